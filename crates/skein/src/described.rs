//! What is wrong with the files of a catalog: each by the rules of its sort, and two that are the same.

use std::{path::Path, sync::Arc};

use skein_core::expr::Span;
use skein_dialects::{
    Code, Diagnostic, Label, Sort, Source, action, driver, governance, policy, routine, secrets, tool,
};

use crate::{catalog::Entry, config, project::OnDisk};

/// The files that have rules of their own, by their names.
const FILES: [(&str, Sort); 6] = [
    ("TOOL.md", Sort::Tool),
    ("DRIVER.md", Sort::Driver),
    ("ACTION.md", Sort::Action),
    ("ROUTINE.md", Sort::Routine),
    ("SECRETS.md", Sort::Secret),
    ("POLICY.md", Sort::Policy),
];

/// The sort of thing that a file describes by its name; none for most.
pub fn sort_of(path: &Path) -> Option<Sort> {
    let named = FILES.iter().find(|(name, _)| path.ends_with(name)).map(|(_, sort)| *sort);
    named.or_else(|| is_governance(path).then_some(Sort::Governance))
}

/// A resource of IOA has no name of its own, and is known by its folder.
fn is_governance(path: &Path) -> bool {
    let yaml = path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml");
    yaml && path.parent().is_some_and(|folder| folder.ends_with("governance"))
}

/// What is wrong with one file.
pub fn wrong(project: &OnDisk, sort: Sort, source: Arc<Source>) -> Vec<Diagnostic> {
    match sort {
        Sort::Tool => tool(source, project).err().unwrap_or_default(),
        Sort::Driver => driver(source).err().unwrap_or_default(),
        Sort::Action => action(source).err().unwrap_or_default(),
        Sort::Routine => routine(source),
        Sort::Secret => secrets(source).err().unwrap_or_default(),
        Sort::Policy => policy(source).1,
        Sort::Governance => governance(source).err().unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// What is wrong with something of the catalog.
pub fn check(project: &OnDisk, entry: &Entry) -> Vec<Diagnostic> {
    match project.source(&entry.path) {
        // What `skein.toml` has is checked with it.
        Ok(_) if entry.path.ends_with(config::NAME) => Vec::new(),
        Ok(source) => wrong(project, entry.sort, source),
        Err(error) => vec![*error],
    }
}

/// What is wrong with everything of a sort.
pub fn problems(project: &OnDisk, sort: Sort) -> Vec<Diagnostic> {
    // One file describes many of them, and one that is wrong none.
    if sort == Sort::Secret {
        let files = project.secret_files().into_iter().map(|path| project.source(&path));
        let wrong = |source: Result<Arc<Source>, Box<Diagnostic>>| match source {
            Ok(source) => wrong(project, sort, source),
            Err(error) => vec![*error],
        };
        return files.flat_map(wrong).collect();
    }
    let shelf = project.shelf(sort);
    let mut all: Vec<Diagnostic> = shelf.entries().iter().flat_map(|entry| check(project, entry)).collect();
    all.extend(twins(project, sort));
    all
}

/// Two files that describe what is one by name and major version.
pub fn twins(project: &OnDisk, sort: Sort) -> Vec<Diagnostic> {
    let (one, _) = sort.words();
    let pairs = project.shelf(sort).twins().into_iter();
    let said = pairs.filter_map(|(first, again)| {
        let (kept, other) = (project.source(&first.path).ok()?, project.source(&again.path).ok()?);
        let id = again.major().map_or_else(|| again.name.clone(), |major| format!("{}@{major}", again.name));
        let message = format!("there is {one} `{id}` already", one = article(one));
        let diagnostic = Diagnostic::new(Code::DuplicateName, &other, span(&other, again), message);
        let mut diagnostic = diagnostic.hint("give one of them another id, or another major version");
        let message = "the other is here, and is the one that the name means".to_owned();
        diagnostic.labels.push(Label { span: span(&kept, first), source: kept, message });
        Some(diagnostic)
    });
    said.collect()
}

fn article(word: &str) -> String {
    if word.starts_with(['a', 'e', 'i', 'o', 'u']) { format!("an {word}") } else { format!("a {word}") }
}

/// Where a file says its name.
fn span(source: &Source, entry: &Entry) -> Span {
    let before = source.text.split_inclusive('\n').take(entry.at.line - 1).map(str::len).sum::<usize>();
    let line = source.text[before..].lines().next().unwrap_or_default();
    let column = line.char_indices().nth(entry.at.column - 1).map_or(0, |(at, _)| at);
    Span::new(before + column, before + line.trim_end().len())
}
