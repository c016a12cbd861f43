//! A listing of the catalog: the entries that workflows can name, their problems and their uses.

use serde_json::{Value, json};
use skein_core::suggest::find_closest_name;
use skein_dialects::{CatalogKind, Diagnostic, render};

use super::{CatalogEntry, CatalogUse, CatalogUses, check};
use crate::{app_error::AppError, project::DiskProject};

/// The entries of a catalog, by kind.
#[derive(Debug)]
pub struct CatalogListing {
    pub project: DiskProject,
    pub kinds: Vec<CatalogKind>,
    /// The name of the entries; none: all entries.
    name: Option<String>,
    pub uses: CatalogUses,
    pub problems: Vec<Diagnostic>,
}

/// Lists the entries of a kind, or of all kinds, or finds those with a name. A word that is no kind is a name.
pub(crate) fn list_catalog(
    project: DiskProject,
    kind: Option<&str>,
    name: Option<&str>,
) -> Result<CatalogListing, AppError> {
    let all = CatalogKind::ALL.to_vec();
    match (kind.map(|word| (word, parse_kind(word))), name) {
        (None, _) => Ok(list_entries(project, all)),
        (Some((_, Some(kind))), None) => Ok(list_entries(project, vec![kind])),
        (Some((_, Some(kind))), Some(name)) => find_entries(project, vec![kind], name),
        // A name alone is looked up in all kinds.
        (Some((name, None)), None) => find_entries(project, all, name),
        (Some((word, None)), Some(_)) => {
            let words = CatalogKind::ALL.iter().map(|kind| kind.singular_and_plural().1);
            let hint = find_closest_name(word, words.clone()).map(|near| format!("did you mean `{near}`?"));
            let hint = hint.unwrap_or_else(|| format!("known kinds: {}", words.collect::<Vec<_>>().join(", ")));
            Err(AppError::usage(format!("unknown kind `{word}`")).with_hint(hint))
        }
    }
}

fn parse_kind(word: &str) -> Option<CatalogKind> {
    let mut all = CatalogKind::ALL.into_iter();
    all.find(|kind| kind.singular_and_plural().0 == word || kind.singular_and_plural().1 == word)
}

fn list_entries(project: DiskProject, kinds: Vec<CatalogKind>) -> CatalogListing {
    let uses = CatalogUses::collect_uses(&project);
    let problems = kinds.iter().flat_map(|kind| check::check_kind(&project, *kind)).collect();
    CatalogListing { project, kinds, name: None, uses, problems }
}

fn find_entries(project: DiskProject, kinds: Vec<CatalogKind>, name: &str) -> Result<CatalogListing, AppError> {
    let found: Vec<&CatalogEntry> = kinds.iter().filter_map(|kind| project.shelf(*kind).find_newest(name)).collect();
    if found.is_empty() {
        return Err(refuse_missing(&project, &kinds, name));
    }
    let uses = CatalogUses::collect_uses(&project);
    let problems = found.iter().flat_map(|entry| check::check_entry(&project, entry)).collect();
    Ok(CatalogListing { name: Some(name.to_owned()), uses, problems, kinds, project })
}

fn refuse_missing(project: &DiskProject, kinds: &[CatalogKind], name: &str) -> AppError {
    let known: Vec<String> = kinds.iter().flat_map(|kind| project.shelf(*kind).known_names()).collect();
    let what = if let [only] = kinds { only.singular_and_plural().0 } else { "name" };
    let hint = find_closest_name(name, known.iter().map(String::as_str)).map(|near| format!("did you mean `{near}`?"));
    let hint = hint.unwrap_or_else(|| "`skein catalog` lists all entries".to_owned());
    AppError::refused(format!("there is no {what} `{name}` in the project")).with_hint(hint)
}

impl CatalogListing {
    /// Returns true if the listing is of one name.
    pub fn is_of_name(&self) -> bool {
        self.name.is_some()
    }

    /// Returns the entries of a kind.
    pub fn entries(&self, kind: CatalogKind) -> Vec<&CatalogEntry> {
        let shelf = self.project.shelf(kind);
        match &self.name {
            Some(name) => shelf.find_newest(name).into_iter().collect(),
            None => shelf.entries().iter().collect(),
        }
    }

    pub fn to_json(&self) -> Value {
        let entries = self.kinds.iter().flat_map(|kind| self.entries(*kind));
        let entries: Vec<Value> = entries.map(|entry| self.entry_to_json(entry)).collect();
        let problems: Vec<Value> = self.problems.iter().map(render::render_json).collect();
        json!({"entries": entries, "problems": problems})
    }

    fn entry_to_json(&self, entry: &CatalogEntry) -> Value {
        let use_to_json = |used: &&CatalogUse| {
            json!({"sort": used.sort.singular_and_plural().0, "name": used.by, "step": used.step,
                   "file": used.file, "line": used.line})
        };
        let name_to_json =
            |(kind, name): &(CatalogKind, String)| json!({"sort": kind.singular_and_plural().0, "name": name});
        json!({
            "sort": entry.sort.singular_and_plural().0,
            "name": entry.name,
            "also": entry.also,
            "version": entry.version,
            "kind": entry.kind,
            "description": entry.description,
            "file": self.project.display_path(&entry.path),
            "line": entry.at.line,
            "column": entry.at.column,
            "names": entry.names.iter().map(name_to_json).collect::<Vec<_>>(),
            "used_by": self.uses.find_uses(entry).iter().map(use_to_json).collect::<Vec<_>>(),
        })
    }
}
