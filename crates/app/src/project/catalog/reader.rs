//! Locations of the definitions of each kind, in a project's folders and in `skein.toml`.
//!
//! Owns the folders. Reads no deeper than the folder of a kind, and only a limited number of entries of a folder.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use skein_core::secret_name::{to_slug, to_variable_name};
use skein_dialects::{CatalogKind, SourcePosition, read_catalog_card, read_secrets};

use super::CatalogEntry;
use crate::project::{DiskProject, config, list_folder, mcp_servers};

/// The file that identifies a collection of SkillMeat.
const COLLECTION: &str = "collection.toml";

/// Folders in a project that contain definitions of a kind.
struct DefinitionPlace {
    folders: &'static [&'static str],
    form: DefinitionForm,
}

/// The layout of definitions in a folder.
#[derive(Clone, Copy)]
enum DefinitionForm {
    /// Each entry has a folder, which contains a file of this name.
    Folder(&'static str),
    /// Each entry is a Markdown file.
    Markdown,
    /// Each entry is a resource of IOA of this kind.
    Resource(&'static str),
}

/// The extensions of resource files.
const RESOURCES: [&str; 2] = ["yaml", "yml"];

/// Returns the places of a kind. Kinds that are only defined in `skein.toml` have none.
fn definition_places(sort: CatalogKind) -> &'static [DefinitionPlace] {
    use DefinitionForm::{Folder, Markdown, Resource};
    match sort {
        CatalogKind::Tool => &[DefinitionPlace { folders: &[".tools"], form: Folder("TOOL.md") }],
        CatalogKind::Driver => &[DefinitionPlace { folders: &[".drivers"], form: Folder("DRIVER.md") }],
        CatalogKind::Action => &[DefinitionPlace { folders: &[".actions"], form: Folder("ACTION.md") }],
        CatalogKind::Routine => &[DefinitionPlace { folders: &[".routines"], form: Folder("ROUTINE.md") }],
        CatalogKind::Skill => &[DefinitionPlace { folders: &["skills", ".claude/skills"], form: Folder("SKILL.md") }],
        CatalogKind::Agent => &[
            DefinitionPlace { folders: &["agents", ".claude/agents"], form: Markdown },
            DefinitionPlace { folders: &["agents", ".ioa/agents"], form: Resource("Agent") },
        ],
        CatalogKind::Context => &[DefinitionPlace { folders: &["context", ".claude/context"], form: Markdown }],
        CatalogKind::Domain => &[DefinitionPlace { folders: &["domains", ".ioa/domains"], form: Resource("Domain") }],
        CatalogKind::Governance => {
            &[DefinitionPlace { folders: &["governance", ".ioa/governance"], form: Resource("Governance") }]
        }
        CatalogKind::Policy => &[DefinitionPlace { folders: &[".policies"], form: Folder("POLICY.md") }],
        CatalogKind::Workflow | CatalogKind::Server | CatalogKind::Role | CatalogKind::Secret => &[],
    }
}

/// The kinds that only add text for agents, and grant nothing.
const TOLD: [CatalogKind; 2] = [CatalogKind::Skill, CatalogKind::Context];

/// Returns patterns of the files that define what runs of a project may do, besides its workflows and secrets. A folder
/// with a leading dot is covered as a whole; others may also contain code.
pub(crate) fn definition_patterns(project: &DiskProject) -> Vec<String> {
    let sorts = CatalogKind::ALL.into_iter().filter(|sort| !TOLD.contains(sort));
    let mut own = Vec::new();
    for place in sorts.flat_map(definition_places) {
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

/// Reads all entries of a kind.
pub(crate) fn read_entries(project: &DiskProject, sort: CatalogKind) -> Vec<CatalogEntry> {
    let reader = CatalogReader { project, sort };
    let mut found = match sort {
        CatalogKind::Workflow => reader.read_workflows(),
        CatalogKind::Agent => reader.read_settings("agents", project.config.agents.keys()),
        CatalogKind::Server => reader.read_servers(),
        CatalogKind::Role => reader.read_settings("roles", project.config.roles.keys()),
        CatalogKind::Secret => reader.read_secrets(),
        _ => Vec::new(),
    };
    for place in definition_places(sort) {
        found.extend(match place.form {
            DefinitionForm::Folder(file) => reader.read_definition_folders(place.folders, file),
            DefinitionForm::Markdown => reader.read_definition_files(place.folders, &["md"]),
            DefinitionForm::Resource(kind) => reader.read_resources(place.folders, kind),
        });
    }
    found
}

struct CatalogReader<'a> {
    project: &'a DiskProject,
    sort: CatalogKind,
}

impl CatalogReader<'_> {
    /// Workflows have the names of their files.
    fn read_workflows(&self) -> Vec<CatalogEntry> {
        let all = self.project.workflows().iter();
        let entry = |named: &crate::project::NamedWorkflow| CatalogEntry {
            name: named.name.clone(),
            also: None,
            ..self.read_entry(&named.path, &named.name)
        };
        all.map(entry).collect()
    }

    /// Reads entries that have a folder each, which contains a file of this name.
    fn read_definition_folders(&self, folders: &[&str], file: &str) -> Vec<CatalogEntry> {
        let mut found = Vec::new();
        for folder in self.resolve_folders(folders).iter().flat_map(|folder| list_folder(folder)) {
            let path = folder.join(file);
            if let (Some(name), true) = (folder.file_name().and_then(|name| name.to_str()), path.is_file()) {
                found.push(self.read_entry(&path, name));
            }
        }
        found
    }

    /// Reads files that have the name of their entry.
    fn read_definition_files(&self, folders: &[&str], endings: &[&str]) -> Vec<CatalogEntry> {
        let files = self.resolve_folders(folders).into_iter().flat_map(|folder| list_folder(&folder));
        let stem = |path: &Path| path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned);
        let has = |path: &Path| path.extension().is_some_and(|found| endings.iter().any(|ending| found == *ending));
        let files = files.filter(|path| has(path) && path.is_file());
        files.filter_map(|path| Some(self.read_entry(&path, &stem(&path)?))).collect()
    }

    /// Reads resources of IOA of one kind. A file without a kind is accepted.
    fn read_resources(&self, folders: &[&str], kind: &str) -> Vec<CatalogEntry> {
        let all = self.read_definition_files(folders, &RESOURCES).into_iter();
        all.filter(|entry| entry.kind.as_deref().is_none_or(|found| found == kind))
            .map(|entry| CatalogEntry { kind: None, ..entry })
            .collect()
    }

    /// Reads secrets that are declared, and those that are only in `skein.toml`.
    fn read_secrets(&self) -> Vec<CatalogEntry> {
        let mut found = Vec::new();
        for path in self.project.secret_files() {
            let Ok(source) = self.project.read_source(&path) else { continue };
            let described = read_secrets(source.clone()).unwrap_or_default();
            found.extend(described.into_iter().map(|secret| CatalogEntry {
                sort: self.sort,
                name: to_variable_name(&secret.slug),
                also: Some(secret.slug),
                version: None,
                description: secret.description,
                kind: None,
                path: path.clone(),
                at: source.position(secret.span.start),
                names: Vec::new(),
            }));
        }
        let own = self.read_settings("secrets", self.project.config.secrets.keys());
        let is_new = |entry: &CatalogEntry| !found.iter().any(|known| to_slug(&known.name) == to_slug(&entry.name));
        let own: Vec<CatalogEntry> = own.into_iter().filter(is_new).collect();
        found.into_iter().chain(own).collect()
    }

    /// Reads the entries of a table in `skein.toml`.
    fn read_settings<'n>(&self, table: &str, names: impl Iterator<Item = &'n String>) -> Vec<CatalogEntry> {
        let path = self.project.root.join(config::NAME);
        let text = self.project.read_source(&path).map(|source| source.text.clone()).unwrap_or_default();
        names.map(|name| self.plain_entry(name.clone(), &path, find_setting_line(&text, table, name))).collect()
    }

    /// Returns an entry of which only the name and the place are known.
    fn plain_entry(&self, name: String, path: &Path, line: usize) -> CatalogEntry {
        CatalogEntry {
            sort: self.sort,
            name,
            also: None,
            version: None,
            description: None,
            kind: None,
            path: path.to_owned(),
            at: SourcePosition { line, column: 1 },
            names: Vec::new(),
        }
    }

    /// Reads MCP servers: from `skein.toml`, and from `.mcp.json` if that is used.
    fn read_servers(&self) -> Vec<CatalogEntry> {
        let mut found = self.read_settings("mcp", self.project.config.mcp.keys());
        let path = self.project.root.join(mcp_servers::FILE);
        let in_file = mcp_servers::list_file_servers(self.project).into_iter();
        found.extend(in_file.map(|name| self.plain_entry(name, &path, 1)));
        found
    }

    fn read_entry(&self, path: &Path, called: &str) -> CatalogEntry {
        let source = self.project.read_source(path).ok();
        let card = source.as_ref().map(read_catalog_card);
        let (at, id) =
            card.as_ref().map_or((SourcePosition { line: 1, column: 1 }, None), |card| (card.at, card.id.clone()));
        let name = id.unwrap_or_else(|| called.to_owned());
        CatalogEntry {
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

    /// Returns the project's own folders, then those of its collection. A folder that a link leads out of the project
    /// is skipped.
    fn resolve_folders(&self, names: &[&str]) -> Vec<PathBuf> {
        let mut seen = BTreeSet::new();
        let root = &self.project.root;
        let own = names
            .iter()
            .map(|name| root.join(name))
            .filter(|folder| fs::canonicalize(folder).is_ok_and(|whole| whole.starts_with(root)));
        let shared = find_collection(self.project).into_iter();
        let shared = shared.flat_map(|folder| names.iter().map(move |name| folder.join(name)));
        own.chain(shared).filter(|folder| seen.insert(folder.clone())).collect()
    }
}

/// Returns the folder of shared definitions, if it is a collection.
pub(crate) fn find_collection(project: &DiskProject) -> Option<PathBuf> {
    let folder = named_collection(project);
    folder.join(COLLECTION).is_file().then_some(folder)
}

/// Returns the folder for shared definitions that `skein.toml` names, or `collection`.
fn named_collection(project: &DiskProject) -> PathBuf {
    project.resolve_path(project.config.collection.as_deref().unwrap_or("collection"))
}

/// Finds the line of a table in `skein.toml`, or of a key in it; the first line if it is written differently.
fn find_setting_line(text: &str, table: &str, name: &str) -> usize {
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
        assert_eq!(find_setting_line(text, "agents", "a"), 2);
        assert_eq!(find_setting_line(text, "roles", "legal"), 5);
        assert_eq!(find_setting_line(text, "roles", "x y"), 6);
        assert_eq!(find_setting_line(text, "agents", "b c"), 7);
        assert_eq!(find_setting_line(text, "secrets", "legal"), 1);
    }
}
