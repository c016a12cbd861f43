//! `skein validate`: reports all errors and warnings of workflows.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};

use clap::Args;
use serde_json::json;
use skein_app::{app_error::AppError, catalog_check, project::DiskProject, source_search};
use skein_core::plan::Severity;
use skein_dialects::{
    CatalogKind, Diagnostic, SourceFile, check_source, is_probably_workflow, load_source, render,
};

use super::load::other_project_warning;
use crate::{exit::Exit, output::CliOutput};

#[derive(Debug, Args)]
pub struct ValidateArguments {
    /// Files, names of workflows, or folders in which all workflows, tools, drivers, actions and routines are checked.
    #[arg(required = true, value_name = "PATH|NAME")]
    paths: Vec<PathBuf>,
    /// Treat warnings as errors.
    #[arg(long)]
    strict: bool,
}

pub fn run(arguments: &ValidateArguments, output: CliOutput) -> Result<Exit, AppError> {
    let mut checked = ValidationResults::new();
    for path in &arguments.paths {
        if path.is_dir() {
            let found = source_search::find_sources(path);
            found.files.iter().for_each(|file| checked.add_file(file, true));
            found.described.iter().for_each(|file| checked.add_file(file, true));
            found.missed.into_iter().for_each(|(folder, why)| checked.add_missed_folder(&folder, why));
        } else {
            checked.add_named(path, output);
        }
    }
    let valid = checked.error_count() == 0 && !(arguments.strict && checked.warning_count() > 0);
    if output.is_json() {
        let objects: Vec<_> = checked.diagnostics.iter().map(render::render_json).collect();
        let mut object = json!({"valid": valid, "diagnostics": objects});
        if checked.skipped > 0 {
            object["skipped"] = json!(checked.skipped);
        }
        output.print_json(&object);
    } else {
        output.print_diagnostics(&checked.diagnostics);
        output.print_text(&checked.render_summary(valid, output));
    }
    Ok(if valid { Exit::Done } else { Exit::Invalid })
}

#[derive(Debug, Default)]
struct ValidationResults {
    /// The root of the project of this command.
    root: PathBuf,
    files: usize,
    /// The number of files in folders that are not workflows.
    skipped: usize,
    diagnostics: Vec<Diagnostic>,
    /// Code, file, place and message of each diagnostic.
    said: BTreeSet<(&'static str, String, u32, String)>,
    /// Projects by their roots. None: the project is invalid, which was reported, and its files cannot be checked.
    projects: BTreeMap<PathBuf, Option<Rc<DiskProject>>>,
    /// Duplicate definitions, by project and kind, and by file.
    twins: BTreeMap<(PathBuf, CatalogKind), BTreeMap<String, Vec<Diagnostic>>>,
}

fn format_count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

impl ValidationResults {
    fn new() -> ValidationResults {
        ValidationResults { root: DiskProject::current_root(), ..ValidationResults::default() }
    }

    /// Adds a file, or the workflow of this name.
    fn add_named(&mut self, path: &Path, output: CliOutput) {
        let root = self.root.clone();
        let Some(project) = self.find_project(root) else { return };
        let named = || path.to_str().and_then(|name| project.locate_workflow(name).ok());
        let file = if path.exists() { None } else { named() };
        let file = file.as_deref().unwrap_or(path);
        if let Some(warning) = other_project_warning(&project, file) {
            output.warn(&warning);
        }
        self.add_file(file, false);
    }

    /// Checks one file. A file of a folder that is not a workflow is skipped and counted.
    fn add_file(&mut self, path: &Path, of_folder: bool) {
        // A folder may contain other projects, each with its own names.
        let other = of_folder.then(|| DiskProject::find_other_root(&self.root, path)).flatten();
        let root = other.unwrap_or_else(|| self.root.clone());
        let Some(project) = self.find_project(root) else { return };
        let mut report = match project.read_source(path) {
            Ok(source) => match catalog_check::definition_kind(path) {
                Some(sort) => return self.add_definition(&project, sort, source),
                None => {
                    let report = check_source(source.clone(), &*project);
                    if of_folder && !report.is_valid() && !is_probably_workflow(&source) {
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
        std::mem::take(&mut report.diagnostics)
            .into_iter()
            .for_each(|diagnostic| self.add_diagnostic(diagnostic));
        // Leaks the report of a single file: freeing a large plan would only delay the end of the program. A folder
        // could contain thousands of files, so their reports are freed.
        if !of_folder {
            std::mem::forget(report);
        }
    }

    /// Checks a definition that workflows can name, and whether another file defines the same.
    fn add_definition(&mut self, project: &DiskProject, sort: CatalogKind, source: Arc<SourceFile>) {
        self.files += 1;
        let twins = self.twins.entry((project.root.clone(), sort)).or_insert_with(|| {
            let mut by_file: BTreeMap<String, Vec<Diagnostic>> = BTreeMap::new();
            for twins in catalog_check::find_duplicates(project, sort) {
                let files: BTreeSet<&String> = twins.labels.iter().map(|label| &label.source.name).collect();
                files
                    .into_iter()
                    .for_each(|file| by_file.entry(file.clone()).or_default().push(twins.clone()));
            }
            by_file
        });
        let twins = twins.get(&source.name).cloned().unwrap_or_default();
        let wrong = catalog_check::check_definition(project, sort, source);
        wrong.into_iter().chain(twins).for_each(|diagnostic| self.add_diagnostic(diagnostic));
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
        let key = (
            diagnostic.code.as_str(),
            place.source.name.clone(),
            place.span.start,
            diagnostic.message.clone(),
        );
        if self.said.insert(key) {
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

    fn error_count(&self) -> usize {
        self.count_severity(Severity::Error)
    }

    fn warning_count(&self) -> usize {
        self.count_severity(Severity::Warning)
    }

    /// Returns the number of diagnostics, including those that are not shown.
    fn count_severity(&self, severity: Severity) -> usize {
        let such = self.diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity);
        such.map(|diagnostic| diagnostic.count).sum()
    }

    fn render_summary(&self, valid: bool, output: CliOutput) -> String {
        if self.files == 0 && self.diagnostics.is_empty() {
            return format!("nothing to check: there are no workflows{}\n", self.describe_skipped(", "));
        }
        let verdict = if valid { output.paint.title("valid") } else { output.paint.error("not valid") };
        let mut parts = vec![format_count(self.files, "file")];
        parts.extend((self.error_count() > 0).then(|| format_count(self.error_count(), "error")));
        parts.extend((self.warning_count() > 0).then(|| format_count(self.warning_count(), "warning")));
        format!("{verdict}: {}{}\n", parts.join(", "), self.describe_skipped("; "))
    }

    /// Returns the part of the summary about skipped files, after a separator; empty if none was skipped.
    fn describe_skipped(&self, separator: &str) -> String {
        match self.skipped {
            0 => String::new(),
            1 => format!("{separator}1 file that is not a workflow was skipped"),
            n => format!("{separator}{n} files that are not workflows were skipped"),
        }
    }
}
