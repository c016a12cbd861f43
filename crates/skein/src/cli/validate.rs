//! `skein validate`: everything that is wrong or unwise in some workflows.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};

use clap::Args;
use serde_json::json;
use skein_core::plan::Severity;
use skein_dialects::{Diagnostic, Sort, Source, check, is_probably_workflow, load, render};

use super::load::other_project;
use crate::{described, exit::Exit, find, output::Output, project::OnDisk};

#[derive(Debug, Args)]
pub struct Arguments {
    /// Files, names of workflows, or folders whose workflows, tools, drivers, actions and routines are all checked.
    #[arg(required = true, value_name = "PATH|NAME")]
    paths: Vec<PathBuf>,
    /// Warnings count as errors.
    #[arg(long)]
    strict: bool,
}

pub fn run(arguments: &Arguments, output: Output) -> Exit {
    let mut checked = Checked::new();
    for path in &arguments.paths {
        if path.is_dir() {
            let found = find::sources(path);
            found.files.iter().for_each(|file| checked.add(file, true));
            found.described.iter().for_each(|file| checked.add(file, true));
            found.missed.into_iter().for_each(|(folder, why)| checked.miss(&folder, why));
        } else {
            checked.add_named(path, output);
        }
    }
    let valid = checked.errors() == 0 && !(arguments.strict && checked.warnings() > 0);
    if output.is_json() {
        let objects: Vec<_> = checked.diagnostics.iter().map(render::object).collect();
        let mut object = json!({"valid": valid, "diagnostics": objects});
        if checked.skipped > 0 {
            object["skipped"] = json!(checked.skipped);
        }
        output.json(&object);
    } else {
        output.diagnostics(&checked.diagnostics);
        output.text(&checked.summary(valid, output));
    }
    if valid { Exit::Done } else { Exit::Invalid }
}

#[derive(Debug, Default)]
struct Checked {
    /// The root of the project of this command.
    root: PathBuf,
    files: usize,
    /// The files of folders that are not workflows.
    skipped: usize,
    diagnostics: Vec<Diagnostic>,
    /// Code, file, place and message of each.
    said: BTreeSet<(&'static str, String, u32, String)>,
    /// By their roots. None: what is wrong with it has been said, and nothing in it can be judged.
    projects: BTreeMap<PathBuf, Option<Rc<OnDisk>>>,
    /// What is described twice, by project and sort, and by file.
    twins: BTreeMap<(PathBuf, Sort), BTreeMap<String, Vec<Diagnostic>>>,
}

fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

impl Checked {
    fn new() -> Checked {
        Checked { root: OnDisk::root(), ..Checked::default() }
    }

    /// A file, or the workflow of this name.
    fn add_named(&mut self, path: &Path, output: Output) {
        let root = self.root.clone();
        let Some(project) = self.project(root) else { return };
        let named = || path.to_str().and_then(|name| project.find(name).ok());
        let file = if path.exists() { None } else { named() };
        let file = file.as_deref().unwrap_or(path);
        if let Some(warning) = other_project(&project, file) {
            output.warn(&warning);
        }
        self.add(file, false);
    }

    /// Checks one file. A file of a folder that is not a workflow is skipped and counted.
    fn add(&mut self, path: &Path, of_folder: bool) {
        // A folder that is searched may hold other projects, each with its own names.
        let other = of_folder.then(|| OnDisk::other_root(&self.root, path)).flatten();
        let root = other.unwrap_or_else(|| self.root.clone());
        let Some(project) = self.project(root) else { return };
        let mut report = match project.source(path) {
            Ok(source) => match described::sort_of(path) {
                Some(sort) => return self.add_described(&project, sort, source),
                None => {
                    let report = check(source.clone(), &*project);
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
        std::mem::take(&mut report.diagnostics).into_iter().for_each(|diagnostic| self.say(diagnostic));
        // A person waits for the program to end, and to take a large plan apart is work for nothing. Of a folder,
        // there could be thousands.
        if !of_folder {
            std::mem::forget(report);
        }
    }

    /// A file that describes what workflows name, and whether another describes the same.
    fn add_described(&mut self, project: &OnDisk, sort: Sort, source: Arc<Source>) {
        self.files += 1;
        let twins = self.twins.entry((project.root.clone(), sort)).or_insert_with(|| {
            let mut by_file: BTreeMap<String, Vec<Diagnostic>> = BTreeMap::new();
            for twins in described::twins(project, sort) {
                let files: BTreeSet<&String> = twins.labels.iter().map(|label| &label.source.name).collect();
                files
                    .into_iter()
                    .for_each(|file| by_file.entry(file.clone()).or_default().push(twins.clone()));
            }
            by_file
        });
        let twins = twins.get(&source.name).cloned().unwrap_or_default();
        let wrong = described::wrong(project, sort, source);
        wrong.into_iter().chain(twins).for_each(|diagnostic| self.say(diagnostic));
    }

    /// A folder that was not looked into could hold anything.
    fn miss(&mut self, folder: &Path, why: String) {
        if let Err(diagnostic) = load(&folder.display().to_string(), Err(why)) {
            self.say(diagnostic);
        }
    }

    /// A workflow that another calls is checked with both; what is wrong with it is said once.
    fn say(&mut self, diagnostic: Diagnostic) {
        let place = diagnostic.place();
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

    /// The project of a root, opened once however many files it has.
    fn project(&mut self, root: PathBuf) -> Option<Rc<OnDisk>> {
        if let Some(known) = self.projects.get(&root) {
            return known.clone();
        }
        let project = match OnDisk::open(root.clone()) {
            Ok(project) => Some(Rc::new(project)),
            Err(error) => {
                self.diagnostics.push(*error);
                None
            }
        };
        self.projects.insert(root, project.clone());
        project
    }

    fn errors(&self) -> usize {
        self.count(Severity::Error)
    }

    fn warnings(&self) -> usize {
        self.count(Severity::Warning)
    }

    /// How many there are, with those that are not shown.
    fn count(&self, severity: Severity) -> usize {
        let such = self.diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity);
        such.map(|diagnostic| diagnostic.count).sum()
    }

    fn summary(&self, valid: bool, output: Output) -> String {
        if self.files == 0 && self.diagnostics.is_empty() {
            return format!("nothing to check: there are no workflows{}\n", self.skipped_files(", "));
        }
        let verdict = if valid { output.paint.title("valid") } else { output.paint.error("not valid") };
        let mut parts = vec![counted(self.files, "file")];
        parts.extend((self.errors() > 0).then(|| counted(self.errors(), "error")));
        parts.extend((self.warnings() > 0).then(|| counted(self.warnings(), "warning")));
        format!("{verdict}: {}{}\n", parts.join(", "), self.skipped_files("; "))
    }

    /// The part of the summary about skipped files, after a separator; nothing where none was skipped.
    fn skipped_files(&self, separator: &str) -> String {
        match self.skipped {
            0 => String::new(),
            1 => format!("{separator}1 file that is not a workflow was skipped"),
            n => format!("{separator}{n} files that are not workflows were skipped"),
        }
    }
}
