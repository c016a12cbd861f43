//! Where the things of each sort are described, in a project's folders and in `skein.toml`.
//!
//! Owns the folders. Nothing is followed deeper than a sort's own folder, and a folder with too much in it is cut off.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use skein_core::secret_name::{slug, variable};
use skein_dialects::{Position, Sort, card, secrets};

use super::Entry;
use crate::{config, project::OnDisk, servers};

/// No more of one folder is read than this.
const MOST: usize = 10_000;
/// What a collection of SkillMeat is known by.
const COLLECTION: &str = "collection.toml";

/// The places in a project where things of a sort are described.
struct DefinitionPlace {
    folders: &'static [&'static str],
    form: DefinitionForm,
}

/// The names of files that describe things.
#[derive(Clone, Copy)]
enum DefinitionForm {
    /// Each thing has a folder, with a file of this name in it.
    Folder(&'static str),
    /// Each thing is a Markdown file.
    Markdown,
    /// Each thing is a resource of IOA of this kind.
    Resource(&'static str),
}

/// The endings of files of resources.
const RESOURCES: [&str; 2] = ["yaml", "yml"];

/// The places of a sort. Those that are in `skein.toml` alone have none.
fn places(sort: Sort) -> &'static [DefinitionPlace] {
    use DefinitionForm::{Folder, Markdown, Resource};
    match sort {
        Sort::Tool => &[DefinitionPlace { folders: &[".tools"], form: Folder("TOOL.md") }],
        Sort::Driver => &[DefinitionPlace { folders: &[".drivers"], form: Folder("DRIVER.md") }],
        Sort::Action => &[DefinitionPlace { folders: &[".actions"], form: Folder("ACTION.md") }],
        Sort::Routine => &[DefinitionPlace { folders: &[".routines"], form: Folder("ROUTINE.md") }],
        Sort::Skill => {
            &[DefinitionPlace { folders: &["skills", ".claude/skills"], form: Folder("SKILL.md") }]
        }
        Sort::Agent => &[
            DefinitionPlace { folders: &["agents", ".claude/agents"], form: Markdown },
            DefinitionPlace { folders: &["agents", ".ioa/agents"], form: Resource("Agent") },
        ],
        Sort::Context => &[DefinitionPlace { folders: &["context", ".claude/context"], form: Markdown }],
        Sort::Domain => {
            &[DefinitionPlace { folders: &["domains", ".ioa/domains"], form: Resource("Domain") }]
        }
        Sort::Governance => {
            &[DefinitionPlace { folders: &["governance", ".ioa/governance"], form: Resource("Governance") }]
        }
        Sort::Policy => &[DefinitionPlace { folders: &[".policies"], form: Folder("POLICY.md") }],
        Sort::Workflow | Sort::Server | Sort::Role | Sort::Secret => &[],
    }
}

/// The sorts that agents are only told, and that decide nothing.
const TOLD: [Sort; 2] = [Sort::Skill, Sort::Context];

/// Patterns of the files that describe what runs of a project may do, beside its workflows and secrets. A folder with a
/// dot is Skein's as a whole; others may hold code as well.
pub fn definition_patterns(project: &OnDisk) -> Vec<String> {
    let sorts = Sort::ALL.into_iter().filter(|sort| !TOLD.contains(sort));
    let mut own = Vec::new();
    for place in sorts.flat_map(places) {
        for folder in place.folders {
            match (folder.strip_prefix('.'), place.form) {
                (Some(_), _) => own.push((*folder).to_owned()),
                (None, DefinitionForm::Folder(file)) => own.push(format!("{folder}/*/{file}")),
                (None, DefinitionForm::Markdown) => own.push(format!("{folder}/*.md")),
                (None, DefinitionForm::Resource(_)) => {
                    own.extend(RESOURCES.map(|ending| format!("{folder}/*.{ending}")));
                }
            }
        }
    }
    let shared = named_collection(project);
    if let Some(shared) = shared.strip_prefix(&project.root).ok().and_then(Path::to_str) {
        let inside: Vec<String> = own.iter().map(|pattern| format!("{shared}/{pattern}")).collect();
        own.extend(inside);
        own.push(format!("{shared}/{COLLECTION}"));
    }
    own
}

/// Everything of a sort.
pub fn entries(project: &OnDisk, sort: Sort) -> Vec<Entry> {
    let reader = Reader { project, sort };
    let mut found = match sort {
        Sort::Workflow => reader.workflows(),
        Sort::Agent => reader.settings("agents", project.config.agents.keys()),
        Sort::Server => reader.servers(),
        Sort::Role => reader.settings("roles", project.config.roles.keys()),
        Sort::Secret => reader.secrets(),
        _ => Vec::new(),
    };
    for place in places(sort) {
        found.extend(match place.form {
            DefinitionForm::Folder(file) => reader.described(place.folders, file),
            DefinitionForm::Markdown => reader.files(place.folders, &["md"]),
            DefinitionForm::Resource(kind) => reader.resources(place.folders, kind),
        });
    }
    found
}

struct Reader<'a> {
    project: &'a OnDisk,
    sort: Sort,
}

impl Reader<'_> {
    /// Workflows are called as their files are.
    fn workflows(&self) -> Vec<Entry> {
        let all = self.project.workflows().iter();
        let entry = |named: &crate::project::Named| Entry {
            name: named.name.clone(),
            also: None,
            ..self.entry(&named.path, &named.name)
        };
        all.map(entry).collect()
    }

    /// Things that have a folder each, with a file of this name in it.
    fn described(&self, folders: &[&str], file: &str) -> Vec<Entry> {
        let mut found = Vec::new();
        for folder in self.folders(folders).iter().flat_map(|folder| list(folder)) {
            let path = folder.join(file);
            if let (Some(name), true) = (folder.file_name().and_then(|name| name.to_str()), path.is_file()) {
                found.push(self.entry(&path, name));
            }
        }
        found
    }

    /// Files that are called as what they describe.
    fn files(&self, folders: &[&str], endings: &[&str]) -> Vec<Entry> {
        let files = self.folders(folders).into_iter().flat_map(|folder| list(&folder));
        let stem = |path: &Path| path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned);
        let has =
            |path: &Path| path.extension().is_some_and(|found| endings.iter().any(|ending| found == *ending));
        let files = files.filter(|path| has(path) && path.is_file());
        files.filter_map(|path| Some(self.entry(&path, &stem(&path)?))).collect()
    }

    /// Resources of IOA of one kind. A file that does not say its kind is taken for it.
    fn resources(&self, folders: &[&str], kind: &str) -> Vec<Entry> {
        let all = self.files(folders, &RESOURCES).into_iter();
        all.filter(|entry| entry.kind.as_deref().is_none_or(|found| found == kind))
            .map(|entry| Entry { kind: None, ..entry })
            .collect()
    }

    /// Secrets that are described, and those that only `skein.toml` has.
    fn secrets(&self) -> Vec<Entry> {
        let mut found = Vec::new();
        for path in self.project.secret_files() {
            let Ok(source) = self.project.source(&path) else { continue };
            let described = secrets(source.clone()).unwrap_or_default();
            found.extend(described.into_iter().map(|secret| Entry {
                sort: self.sort,
                name: variable(&secret.slug),
                also: Some(secret.slug),
                version: None,
                description: secret.description,
                kind: None,
                path: path.clone(),
                at: source.position(secret.span.start),
                names: Vec::new(),
            }));
        }
        let own = self.settings("secrets", self.project.config.secrets.keys());
        let is_new = |entry: &Entry| !found.iter().any(|known| slug(&known.name) == slug(&entry.name));
        let own: Vec<Entry> = own.into_iter().filter(is_new).collect();
        found.into_iter().chain(own).collect()
    }

    /// What `skein.toml` has in a table.
    fn settings<'n>(&self, table: &str, names: impl Iterator<Item = &'n String>) -> Vec<Entry> {
        let path = self.project.root.join(config::NAME);
        let text = self.project.source(&path).map(|source| source.text.clone()).unwrap_or_default();
        names.map(|name| self.plain(name.clone(), &path, line_of(&text, table, name))).collect()
    }

    /// Something of which no more than its name and its place is known.
    fn plain(&self, name: String, path: &Path, line: usize) -> Entry {
        Entry {
            sort: self.sort,
            name,
            also: None,
            version: None,
            description: None,
            kind: None,
            path: path.to_owned(),
            at: Position { line, column: 1 },
            names: Vec::new(),
        }
    }

    /// Servers of tools: of `skein.toml`, and of another file where that counts.
    fn servers(&self) -> Vec<Entry> {
        let mut found = self.settings("mcp", self.project.config.mcp.keys());
        let path = self.project.root.join(servers::FILE);
        let others = servers::elsewhere(self.project).into_iter();
        found.extend(others.map(|name| self.plain(name, &path, 1)));
        found
    }

    fn entry(&self, path: &Path, called: &str) -> Entry {
        let source = self.project.source(path).ok();
        let card = source.as_ref().map(card);
        let (at, id) =
            card.as_ref().map_or((Position { line: 1, column: 1 }, None), |card| (card.at, card.id.clone()));
        let name = id.unwrap_or_else(|| called.to_owned());
        Entry {
            sort: self.sort,
            also: (name != called).then(|| called.to_owned()),
            name,
            version: card.as_ref().and_then(|card| card.version.clone()),
            description: card.as_ref().and_then(|card| card.description.clone()),
            kind: card.as_ref().and_then(|card| card.kind.clone()),
            path: path.to_owned(),
            at,
            names: card.map(|card| card.names).unwrap_or_default(),
        }
    }

    /// The project's own folders, then those of its collection. A folder that leads out of the project is no folder of it.
    fn folders(&self, names: &[&str]) -> Vec<PathBuf> {
        let mut seen = BTreeSet::new();
        let root = &self.project.root;
        let own = names
            .iter()
            .map(|name| root.join(name))
            .filter(|folder| fs::canonicalize(folder).is_ok_and(|whole| whole.starts_with(root)));
        let shared = collection(self.project).into_iter();
        let shared = shared.flat_map(|folder| names.iter().map(move |name| folder.join(name)));
        own.chain(shared).filter(|folder| seen.insert(folder.clone())).collect()
    }
}

/// The folder of things that projects share, where it is one.
pub(crate) fn collection(project: &OnDisk) -> Option<PathBuf> {
    let folder = named_collection(project);
    folder.join(COLLECTION).is_file().then_some(folder)
}

/// The folder that `skein.toml` names for things that projects share, or `collection`.
fn named_collection(project: &OnDisk) -> PathBuf {
    let named = project.config.collection.as_deref().unwrap_or("collection");
    let home = std::env::var_os("HOME").map(PathBuf::from);
    match named.strip_prefix("~/").zip(home) {
        Some((rest, home)) => home.join(rest),
        None => project.root.join(named),
    }
}

/// What is in a folder, in order.
fn list(folder: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).into_iter().flatten().take(MOST);
    let mut found: Vec<PathBuf> = read.filter_map(Result::ok).map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// The line of a table of `skein.toml`, or of a field of it; the first where it is written otherwise.
fn line_of(text: &str, table: &str, name: &str) -> usize {
    let heads = [format!("[{table}.{name}]"), format!("[{table}.\"{name}\"]")];
    let mut inside = false;
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if heads.iter().any(|head| line.starts_with(head)) {
            return number;
        }
        let key = line.split('=').next().unwrap_or_default().trim().trim_matches('"');
        match line.starts_with('[') {
            true => inside = line.starts_with(&format!("[{table}]")),
            false if inside && key == name => return number,
            false => {}
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_setting_is_found() {
        let text = "roots = []\n[agents.a]\nworker = \"CUSTOM\"\n[roles]\nlegal = []\n\"x y\" = []\n[agents.\"b c\"]\n";
        assert_eq!(line_of(text, "agents", "a"), 2);
        assert_eq!(line_of(text, "roles", "legal"), 5);
        assert_eq!(line_of(text, "roles", "x y"), 6);
        assert_eq!(line_of(text, "agents", "b c"), 7);
        assert_eq!(line_of(text, "secrets", "legal"), 1);
    }
}
