//! A project on disk: the nearest folder above with `skein.toml` or `.git`, its workflows and the names it defines.

use std::{
    collections::BTreeSet,
    fs,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use skein_dialects::{Diagnostic, NotFound, Project, Reference, Sort, Source};

use crate::{config::Config, read};

/// Where workflows of a project are looked for by name, in this order.
const WORKFLOWS: [&str; 2] = [".workflows", "workflows"];
const OVERRIDES: &str = ".skillmeat-workflow-overrides.yaml";
/// A folder with more workflows than this is not searched for names.
const MOST: usize = 10_000;

#[derive(Debug)]
pub struct OnDisk {
    pub root: PathBuf,
    pub config: Config,
}

/// A workflow of the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub name: String,
    pub path: PathBuf,
}

impl OnDisk {
    /// The project around a path.
    pub fn around(path: &Path) -> Result<OnDisk, Box<Diagnostic>> {
        let start = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let marked = |folder: &&Path| folder.join("skein.toml").is_file() || folder.join(".git").exists();
        let folder = if start.is_dir() { start.as_path() } else { start.parent().unwrap_or(Path::new(".")) };
        let root = folder.ancestors().find(marked).unwrap_or(folder).to_owned();
        let config = Config::load(&root)?;
        Ok(OnDisk { root, config })
    }

    /// A path as people are shown it: from the current folder where it is below.
    pub fn shown(&self, path: &Path) -> String {
        let here = std::env::current_dir().ok().and_then(|here| fs::canonicalize(here).ok());
        let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let short = here.as_deref().and_then(|here| whole.strip_prefix(here).ok());
        let short = short.or_else(|| whole.strip_prefix(&self.root).ok());
        short.unwrap_or(&whole).display().to_string()
    }

    /// Every workflow that can be named, in the order in which names are looked up.
    pub fn workflows(&self) -> Vec<Named> {
        let mut found: Vec<Named> = Vec::new();
        let mut names = BTreeSet::new();
        for folder in WORKFLOWS {
            let mut here = entries(&self.root.join(folder))
                .into_iter()
                .filter_map(|path| named(&path))
                .collect::<Vec<_>>();
            here.sort_by(|a, b| a.name.cmp(&b.name));
            found.extend(here.into_iter().filter(|workflow| names.insert(workflow.name.clone())));
        }
        found
    }

    /// The file of a workflow, by its path or by its name.
    pub fn find(&self, text: &str) -> Result<PathBuf, NotFound> {
        let path = PathBuf::from(text);
        if path.is_file() {
            return Ok(path);
        }
        if path.is_dir() {
            return in_folder(&path).ok_or_else(|| missing("the folder holds no workflow", Vec::new()));
        }
        let workflows = self.workflows();
        match workflows.iter().find(|workflow| workflow.name == text) {
            Some(workflow) => Ok(workflow.path.clone()),
            None => Err(missing(
                "there is no such file, and no workflow of that name in `.workflows` or `workflows`",
                workflows.into_iter().map(|workflow| workflow.name).collect(),
            )),
        }
    }

    /// Names of agents: from the configuration, and from files that describe one.
    fn agents(&self) -> Vec<String> {
        let mut names: BTreeSet<String> = self.config.agents.keys().cloned().collect();
        for folder in ["agents", ".claude/agents"] {
            names.extend(stems(&self.root.join(folder), &["md", "yaml", "yml"]));
        }
        names.into_iter().collect()
    }
}

fn missing(why: &str, known: Vec<String>) -> NotFound {
    NotFound { why: why.to_owned(), known }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).into_iter().flatten().take(MOST);
    read.filter_map(Result::ok).map(|entry| entry.path()).collect()
}

fn stems(folder: &Path, extensions: &[&str]) -> Vec<String> {
    let has =
        |path: &Path| path.extension().is_some_and(|found| extensions.iter().any(|wanted| found == *wanted));
    let stem = |path: PathBuf| path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned);
    entries(folder).into_iter().filter(|path| has(path)).filter_map(stem).collect()
}

/// A workflow in a folder of workflows: a file, or a folder of its own.
fn named(path: &Path) -> Option<Named> {
    if path.is_dir() {
        let name = path.file_name()?.to_str()?.to_owned();
        return in_folder(path).map(|path| Named { name, path });
    }
    let is_source =
        path.extension().is_some_and(|found| ["yaml", "yml", "json"].iter().any(|ext| found == *ext));
    let name = path.file_stem()?.to_str()?.to_owned();
    (is_source && path.is_file()).then(|| Named { name, path: path.to_owned() })
}

/// The workflow that a folder is. Beside a YAML file of that name, the Markdown one is documentation.
fn in_folder(folder: &Path) -> Option<PathBuf> {
    let names = ["WORKFLOW.yaml", "WORKFLOW.yml", "WORKFLOW.json", "WORKFLOW.md"];
    names.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

/// Whether a relative path climbs out of where it starts.
fn climbs(path: &Path) -> bool {
    let mut depth = 0i32;
    path.components().any(|component| {
        depth += match component {
            Component::Normal(_) => 1,
            Component::ParentDir => -1,
            _ => 0,
        };
        depth < 0
    })
}

impl Project for OnDisk {
    fn workflow(&self, from: &Source, reference: Reference<'_>) -> Result<Arc<Source>, NotFound> {
        let path = match reference {
            Reference::Path(path) => {
                let path = Path::new(path);
                if path.is_absolute() || climbs(path) {
                    return Err(missing("it is outside of the folder of this file", Vec::new()));
                }
                Path::new(&from.name).parent().unwrap_or(Path::new("")).join(path)
            }
            Reference::Id(id) => self.find_id(id)?,
        };
        let name = self.shown(&path);
        read::source(&path, &name).map_err(|diagnostic| missing(&diagnostic.message, Vec::new()))
    }

    fn names(&self, sort: Sort) -> Vec<String> {
        match sort {
            Sort::Agent => self.agents(),
            Sort::Tool => entries(&self.root.join(".tools")).iter().filter_map(|path| tool(path)).collect(),
            Sort::Role => self.config.roles.keys().cloned().collect(),
            Sort::Domain => stems(&self.root.join("domains"), &["yaml", "yml"]),
        }
    }

    fn overrides(&self) -> Option<Arc<Source>> {
        let path = self.root.join(OVERRIDES);
        path.is_file().then(|| read::source(&path, &self.shown(&path)).ok()).flatten()
    }
}

fn tool(folder: &Path) -> Option<String> {
    folder.join("TOOL.md").is_file().then(|| folder.file_name()?.to_str().map(str::to_owned)).flatten()
}

impl OnDisk {
    fn find_id(&self, id: &str) -> Result<PathBuf, NotFound> {
        let workflows = self.workflows();
        let found =
            workflows.iter().find(|workflow| workflow.name == id).map(|workflow| workflow.path.clone());
        let known = || workflows.iter().map(|workflow| workflow.name.clone()).collect();
        found.ok_or_else(|| missing("there is none in `.workflows` or `workflows`", known()))
    }
}
