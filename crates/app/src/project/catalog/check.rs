//! Checks the files of a catalog: each by the rules of its kind, and all for duplicates.

use std::{path::Path, sync::Arc};

use skein_core::expr::ExprSpan;
use skein_dialects::{
    CatalogKind, Code, Diagnostic, DiagnosticLabel, SourceFile, check_routine, read_action, read_driver,
    read_governance, read_policy, read_secrets, read_tool,
};

use crate::project::{DiskProject, catalog::CatalogEntry, config};

/// The files that have rules of their own, by file name.
const FILES: [(&str, CatalogKind); 6] = [
    ("TOOL.md", CatalogKind::Tool),
    ("DRIVER.md", CatalogKind::Driver),
    ("ACTION.md", CatalogKind::Action),
    ("ROUTINE.md", CatalogKind::Routine),
    ("SECRETS.md", CatalogKind::Secret),
    ("POLICY.md", CatalogKind::Policy),
];

/// Returns the kind of definition that a file contains, judged by its path; none for most files.
pub(crate) fn definition_kind(path: &Path) -> Option<CatalogKind> {
    let named = FILES.iter().find(|(name, _)| path.ends_with(name)).map(|(_, sort)| *sort);
    named.or_else(|| is_governance_file(path).then_some(CatalogKind::Governance))
}

/// A governance resource of IOA has no fixed file name, and is recognised by its folder.
fn is_governance_file(path: &Path) -> bool {
    let yaml = path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml");
    yaml && path.parent().is_some_and(|folder| folder.ends_with("governance"))
}

/// Checks one file.
pub fn check_definition(project: &DiskProject, sort: CatalogKind, source: Arc<SourceFile>) -> Vec<Diagnostic> {
    match sort {
        CatalogKind::Tool => read_tool(source, project).err().unwrap_or_default(),
        CatalogKind::Driver => read_driver(source).err().unwrap_or_default(),
        CatalogKind::Action => read_action(source).err().unwrap_or_default(),
        CatalogKind::Routine => check_routine(source),
        CatalogKind::Secret => read_secrets(source).err().unwrap_or_default(),
        CatalogKind::Policy => read_policy(source).1,
        CatalogKind::Governance => read_governance(source).err().unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// Checks one entry of the catalog.
pub(crate) fn check_entry(project: &DiskProject, entry: &CatalogEntry) -> Vec<Diagnostic> {
    match project.read_source(&entry.path) {
        // Entries of `skein.toml` are checked with that file.
        Ok(_) if entry.path.ends_with(config::NAME) => Vec::new(),
        Ok(source) => check_definition(project, entry.sort, source),
        Err(error) => vec![*error],
    }
}

/// Checks all entries of a kind.
pub(crate) fn check_kind(project: &DiskProject, sort: CatalogKind) -> Vec<Diagnostic> {
    // One file describes many secrets, and an invalid file describes none.
    if sort == CatalogKind::Secret {
        let files = project.secret_files().into_iter().map(|path| project.read_source(&path));
        let wrong = |source: Result<Arc<SourceFile>, Box<Diagnostic>>| match source {
            Ok(source) => check_definition(project, sort, source),
            Err(error) => vec![*error],
        };
        return files.flat_map(wrong).collect();
    }
    let shelf = project.shelf(sort);
    let mut all: Vec<Diagnostic> = shelf.entries().iter().flat_map(|entry| check_entry(project, entry)).collect();
    all.extend(find_duplicates(project, sort));
    all
}

/// Reports files that define the same name and major version.
pub(crate) fn find_duplicates(project: &DiskProject, sort: CatalogKind) -> Vec<Diagnostic> {
    let (one, _) = sort.singular_and_plural();
    let pairs = project.shelf(sort).find_duplicates().into_iter();
    let duplicates = pairs.filter_map(|(first, again)| {
        let (first_source, other) = (project.read_source(&first.path).ok()?, project.read_source(&again.path).ok()?);
        let id = again.major_version().map_or_else(|| again.name.clone(), |major| format!("{}@{major}", again.name));
        let message = format!("{one} `{id}` is already defined", one = with_article(one));
        let diagnostic = Diagnostic::new(Code::DuplicateName, &other, entry_span(&other, again), message);
        let mut diagnostic = diagnostic.with_hint("give one of them another id, or another major version");
        let message = "the other definition is here; the name refers to this one".to_owned();
        diagnostic.labels.push(DiagnosticLabel {
            span: entry_span(&first_source, first),
            source: first_source,
            message,
        });
        Some(diagnostic)
    });
    duplicates.collect()
}

fn with_article(word: &str) -> String {
    if word.starts_with(['a', 'e', 'i', 'o', 'u']) { format!("an {word}") } else { format!("a {word}") }
}

/// Returns the span of the name in a file.
fn entry_span(source: &SourceFile, entry: &CatalogEntry) -> ExprSpan {
    let before = source.text.split_inclusive('\n').take(entry.at.line - 1).map(str::len).sum::<usize>();
    let line = source.text[before..].lines().next().unwrap_or_default();
    let column = line.char_indices().nth(entry.at.column - 1).map_or(0, |(at, _)| at);
    ExprSpan::new(before + column, before + line.trim_end().len())
}
