//! The catalog of a project: all entries that a workflow can name, and the files that define them.
//!
//! Owns the lookup of names: one rule for every kind. Files are read once, when an entry of their kind is first
//! requested. Does not check files; an invalid one is still found by its folder.

pub mod check;
mod listing;
mod reader;

use std::{cell::OnceCell, cmp::Reverse, collections::BTreeMap, path::PathBuf};

use skein_dialects::{CatalogKind, SourcePosition};

pub use listing::CatalogListing;
pub(crate) use listing::list_catalog;
pub use listing::{CatalogUse, CatalogUses};
pub(crate) use reader::{definition_patterns, find_collection};

use crate::project::DiskProject;

/// An entry that can be named.
#[derive(Debug, Clone)]
pub struct CatalogEntry {
    pub sort: CatalogKind,
    pub name: String,
    /// The name of its file or folder, if it differs.
    pub also: Option<String>,
    pub version: Option<String>,
    pub description: Option<String>,
    /// The kind of a driver.
    pub kind: Option<String>,
    pub path: PathBuf,
    pub at: SourcePosition,
    /// Other entries that it names.
    pub names: Vec<(CatalogKind, String)>,
}

impl CatalogEntry {
    /// Returns the first number of its version.
    pub(crate) fn major_version(&self) -> Option<&str> {
        self.version.as_deref().and_then(|version| version.split('.').next())
    }

    /// Returns the place of its definition, for people.
    pub fn location(&self, project: &DiskProject) -> String {
        format!("{}:{}", project.display_path(&self.path), self.at.line)
    }
}

/// All entries of one kind.
#[derive(Debug, Default)]
pub(crate) struct CatalogShelf {
    /// Sorted by name; the newest of a name first.
    entries: Vec<CatalogEntry>,
    by_name: BTreeMap<String, Vec<usize>>,
    /// Indexes of entries by the names that they refer to.
    naming: BTreeMap<(CatalogKind, String), Vec<usize>>,
}

impl CatalogShelf {
    fn new(mut entries: Vec<CatalogEntry>) -> CatalogShelf {
        entries.sort_by_cached_key(|entry| {
            (entry.name.clone(), Reverse(parse_version_numbers(entry.version.as_deref())), entry.path.clone())
        });
        let mut shelf = CatalogShelf { entries, ..CatalogShelf::default() };
        for (number, entry) in shelf.entries.iter().enumerate() {
            let own = Some(normalize_name(entry.sort, &entry.name).to_owned());
            let also = entry
                .also
                .as_deref()
                .map(|also| normalize_name(entry.sort, also))
                .filter(|also| Some(also) != own.as_ref());
            for name in own.into_iter().chain(also) {
                shelf.by_name.entry(name).or_default().push(number);
            }
            for (sort, name) in &entry.names {
                let numbers = shelf.naming.entry((*sort, normalize_name(*sort, name))).or_default();
                if numbers.last() != Some(&number) {
                    numbers.push(number);
                }
            }
        }
        shelf
    }

    pub(crate) fn entries(&self) -> &[CatalogEntry] {
        &self.entries
    }

    /// Finds all entries that match a name, the newest first. `id@major` selects one major version.
    pub(crate) fn find_all(&self, name: &str) -> Vec<&CatalogEntry> {
        let sort = self.entries.first().map_or(CatalogKind::Tool, |entry| entry.sort);
        let major = has_versions(sort).then(|| name.rsplit_once('@')).flatten().map(|(_, major)| major);
        let numbers = self.by_name.get(&normalize_name(sort, name)).map(Vec::as_slice).unwrap_or_default();
        let found = numbers.iter().map(|number| &self.entries[*number]);
        found.filter(|entry| major.is_none_or(|major| entry.major_version() == Some(major))).collect()
    }

    /// Finds the newest entry that matches a name.
    pub(crate) fn find_newest(&self, name: &str) -> Option<&CatalogEntry> {
        self.find_all(name)
            .into_iter()
            .max_by_key(|entry| (parse_version_numbers(entry.version.as_deref()), Reverse(&entry.path)))
    }

    /// Returns the entries that refer to an entry of another kind.
    pub(crate) fn find_referring<'a>(
        &'a self,
        sort: CatalogKind,
        name: &str,
    ) -> impl Iterator<Item = &'a CatalogEntry> + use<'a> {
        let numbers = self.naming.get(&(sort, normalize_name(sort, name))).map(Vec::as_slice).unwrap_or_default();
        numbers.iter().map(|number| &self.entries[*number])
    }

    /// Returns all names that would be found, including those with a major version.
    pub(crate) fn known_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for entry in &self.entries {
            let major = entry.major_version().filter(|_| has_versions(entry.sort));
            for name in [Some(&entry.name), entry.also.as_ref()].into_iter().flatten() {
                names.push(name.clone());
                names.extend(major.map(|major| format!("{name}@{major}")));
            }
        }
        names
    }

    /// Returns pairs with the same name and major version, which are ambiguous.
    pub(crate) fn find_duplicates(&self) -> Vec<(&CatalogEntry, &CatalogEntry)> {
        let same = |a: &CatalogEntry, b: &CatalogEntry| a.name == b.name && a.major_version() == b.major_version();
        let pairs = self.entries.windows(2).filter(|pair| has_versions(pair[0].sort));
        pairs.filter(|pair| same(&pair[0], &pair[1])).map(|pair| (&pair[0], &pair[1])).collect()
    }
}

/// Returns true for kinds that are identified by id and major version.
fn has_versions(sort: CatalogKind) -> bool {
    matches!(
        sort,
        CatalogKind::Tool | CatalogKind::Driver | CatalogKind::Action | CatalogKind::Routine | CatalogKind::Policy
    )
}

/// Normalises a name for the lookup. A reference into a package ends with the id, a path to a file with its folder; a
/// colon of an action is replaced, because some file systems do not allow it in folder names.
fn normalize_name(sort: CatalogKind, name: &str) -> String {
    if !has_versions(sort) {
        return name.to_owned();
    }
    let name = name.strip_suffix("/TOOL.md").or_else(|| name.strip_suffix("/ACTION.md")).unwrap_or(name);
    let name = name.rsplit('/').next().unwrap_or(name);
    let name = name.rsplit_once('@').map_or(name, |(id, _)| id);
    if sort == CatalogKind::Action { name.replace(':', "-") } else { name.to_owned() }
}

/// Parses a version for comparison. A text that is not a version sorts before all versions.
fn parse_version_numbers(version: Option<&str>) -> Option<[u64; 3]> {
    let plain = version?.split(['-', '+']).next()?;
    let mut numbers = plain.split('.').map(|number| number.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

/// All kinds, each read when it is first requested.
#[derive(Debug, Default)]
pub struct Catalog {
    shelves: BTreeMap<CatalogKind, OnceCell<CatalogShelf>>,
}

impl Catalog {
    pub fn new() -> Catalog {
        Catalog { shelves: CatalogKind::ALL.into_iter().map(|sort| (sort, OnceCell::new())).collect() }
    }

    pub(crate) fn shelf(&self, project: &DiskProject, sort: CatalogKind) -> &CatalogShelf {
        let shelf = self.shelves.get(&sort).expect("there is a shelf for every sort");
        shelf.get_or_init(|| CatalogShelf::new(reader::read_entries(project, sort)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, version: &str, names: &[(CatalogKind, &str)]) -> CatalogEntry {
        CatalogEntry {
            sort: CatalogKind::Tool,
            name: name.to_owned(),
            also: None,
            version: Some(version.to_owned()),
            description: None,
            kind: None,
            path: PathBuf::from(format!("/p/.tools/{name}-{version}/TOOL.md")),
            at: SourcePosition { line: 3, column: 5 },
            names: names.iter().map(|(sort, name)| (*sort, (*name).to_owned())).collect(),
        }
    }

    #[test]
    fn a_name_means_the_newest_and_a_major_version_the_newest_of_it() {
        let shelf = CatalogShelf::new(vec![
            tool("mail", "1.9.0", &[]),
            tool("mail", "2.0.1", &[]),
            tool("mail", "1.10.0", &[]),
        ]);
        let version = |name: &str| shelf.find_newest(name).and_then(|entry| entry.version.as_deref());
        assert_eq!(version("mail"), Some("2.0.1"));
        assert_eq!(version("mail@1"), Some("1.10.0"));
        assert_eq!(version("@acme/tools/mail@2"), Some("2.0.1"));
        assert_eq!(version("./tools/mail/TOOL.md"), Some("2.0.1"));
        assert_eq!((version("mail@3"), version("mial")), (None, None));
        assert_eq!(shelf.find_duplicates().len(), 1, "1.9.0 and 1.10.0 have one identity");
    }

    #[test]
    fn who_names_something_is_found_by_any_form_of_its_name() {
        let shelf = CatalogShelf::new(vec![
            tool("a", "1.0.0", &[(CatalogKind::Action, "mail:send@1")]),
            tool("b", "1.0.0", &[]),
        ]);
        let naming: Vec<&str> =
            shelf.find_referring(CatalogKind::Action, "mail-send").map(|entry| entry.name.as_str()).collect();
        assert_eq!(naming, ["a"]);
    }
}
