//! Validation of workflows, and of the definitions that workflows can name.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};

use serde_json::{Value, json};
use skein_core::plan::Severity;
use skein_dialects::{CatalogKind, Diagnostic, SourceFile, check_source, is_probably_workflow, load_source, render};

use crate::{
    app::App,
    project::{DiskProject, catalog::check, sources},
    workflows::other_project_warning,
};

/// The result of a validation.
#[derive(Debug)]
pub struct ValidationReport {
    pub valid: bool,
    /// The number of checked files.
    pub files: usize,
    /// The number of files in folders that are not workflows.
    pub skipped: usize,
    pub diagnostics: Vec<Diagnostic>,
}

impl ValidationReport {
    pub fn to_json(&self) -> Value {
        let objects: Vec<_> = self.diagnostics.iter().map(render::render_json).collect();
        let mut object = json!({"valid": self.valid, "diagnostics": objects});
        if self.skipped > 0 {
            object["skipped"] = json!(self.skipped);
        }
        object
    }

    /// Returns the number of diagnostics of a severity, including those that are not shown.
    pub fn count_severity(&self, severity: Severity) -> usize {
        count_severity(&self.diagnostics, severity)
    }
}

fn count_severity(diagnostics: &[Diagnostic], severity: Severity) -> usize {
    let such = diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity);
    such.map(|diagnostic| diagnostic.count).sum()
}

/// Validates files, workflows by name, and everything in folders. If `strict`, warnings count as errors.
pub fn validate_paths(app: &App, paths: &[PathBuf], strict: bool) -> ValidationReport {
    let mut validator = SourceValidator { root: app.project_root(), ..SourceValidator::default() };
    for path in paths {
        if path.is_dir() {
            let found = sources::find_sources(path);
            found.files.iter().for_each(|file| validator.add_file(file, true));
            found.described.iter().for_each(|file| validator.add_file(file, true));
            found.missed.into_iter().for_each(|(folder, why)| validator.add_missed_folder(&folder, why));
        } else {
            validator.add_named(app, path);
        }
    }
    let SourceValidator { files, skipped, diagnostics, .. } = validator;
    let is_severe = |severity| count_severity(&diagnostics, severity) > 0;
    let invalid = is_severe(Severity::Error) || strict && is_severe(Severity::Warning);
    ValidationReport { valid: !invalid, files, skipped, diagnostics }
}

/// Validates files one by one, and collects their diagnostics.
#[derive(Debug, Default)]
struct SourceValidator {
    /// The root of the front end's project.
    root: PathBuf,
    files: usize,
    /// The number of files in folders that are not workflows.
    skipped: usize,
    diagnostics: Vec<Diagnostic>,
    /// Code, file, place and message of each diagnostic.
    reported: BTreeSet<(&'static str, String, u32, String)>,
    /// Projects by their roots. None: the project is invalid, which was reported, and its files cannot be checked.
    projects: BTreeMap<PathBuf, Option<Rc<DiskProject>>>,
    /// Duplicate definitions, by project and kind, and by file.
    duplicates: BTreeMap<(PathBuf, CatalogKind), BTreeMap<String, Vec<Diagnostic>>>,
}

impl SourceValidator {
    /// Adds a file, or the workflow of this name.
    fn add_named(&mut self, app: &App, path: &Path) {
        let root = self.root.clone();
        let Some(project) = self.find_project(root) else { return };
        let named = || path.to_str().and_then(|name| project.locate_workflow(name).ok());
        let file = if path.exists() { None } else { named() };
        let file = file.as_deref().unwrap_or(path);
        if let Some(warning) = other_project_warning(&project, file) {
            app.warn(&warning);
        }
        self.add_file(file, false);
    }

    /// Checks one file. A file of a folder that is not a workflow is skipped and counted.
    fn add_file(&mut self, path: &Path, in_folder: bool) {
        // A folder may contain other projects, each with its own names.
        let other = in_folder.then(|| DiskProject::find_other_root(&self.root, path)).flatten();
        let root = other.unwrap_or_else(|| self.root.clone());
        let Some(project) = self.find_project(root) else { return };
        let mut report = match project.read_source(path) {
            Ok(source) => match check::definition_kind(path) {
                Some(kind) => return self.add_definition(&project, kind, source),
                None => {
                    let report = check_source(source.clone(), &*project);
                    if in_folder && !report.is_valid() && !is_probably_workflow(&source) {
                        self.skipped += 1;
                        return;
                    }
                    report
                }
            },
            Err(error) => {
                self.files += 1;
                return self.diagnostics.push(*error);
            }
        };
        self.files += 1;
        std::mem::take(&mut report.diagnostics).into_iter().for_each(|diagnostic| self.add_diagnostic(diagnostic));
        // Leaks the report of a single file: freeing a large plan would only delay the end of the program. A folder
        // could contain thousands of files, so their reports are freed.
        if !in_folder {
            std::mem::forget(report);
        }
    }

    /// Checks a definition that workflows can name, and whether another file defines the same.
    fn add_definition(&mut self, project: &DiskProject, kind: CatalogKind, source: Arc<SourceFile>) {
        self.files += 1;
        let duplicates = self.duplicates.entry((project.root.clone(), kind)).or_insert_with(|| {
            let mut by_file: BTreeMap<String, Vec<Diagnostic>> = BTreeMap::new();
            for duplicates in check::find_duplicates(project, kind) {
                let files: BTreeSet<&String> = duplicates.labels.iter().map(|label| &label.source.name).collect();
                files.into_iter().for_each(|file| by_file.entry(file.clone()).or_default().push(duplicates.clone()));
            }
            by_file
        });
        let duplicates = duplicates.get(&source.name).cloned().unwrap_or_default();
        let problems = check::check_definition(project, kind, source);
        problems.into_iter().chain(duplicates).for_each(|diagnostic| self.add_diagnostic(diagnostic));
    }

    /// Reports a folder that could not be searched, because it could contain anything.
    fn add_missed_folder(&mut self, folder: &Path, why: String) {
        if let Err(diagnostic) = load_source(&folder.display().to_string(), Err(why)) {
            self.add_diagnostic(diagnostic);
        }
    }

    /// Adds a diagnostic. A workflow that another one calls is checked twice; its diagnostics are reported once.
    fn add_diagnostic(&mut self, diagnostic: Diagnostic) {
        let place = diagnostic.primary_label();
        let key = (diagnostic.code.as_str(), place.source.name.clone(), place.span.start, diagnostic.message.clone());
        if self.reported.insert(key) {
            self.diagnostics.push(diagnostic);
        }
    }

    /// Returns the project with this root, opened once however many files it has.
    fn find_project(&mut self, root: PathBuf) -> Option<Rc<DiskProject>> {
        if let Some(known) = self.projects.get(&root) {
            return known.clone();
        }
        let project = match DiskProject::open(root.clone()) {
            Ok(project) => Some(Rc::new(project)),
            Err(error) => {
                self.diagnostics.push(*error);
                None
            }
        };
        self.projects.insert(root, project.clone());
        project
    }
}
