//! A project on disk: the nearest folder above the current one with `skein.toml` or `.git`, its workflows and the names
//! it defines.

pub mod catalog;
pub mod config;
pub(crate) mod mcp_servers;
pub mod sources;

use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use skein_core::{expr::ExprSpan, ir::WorkerCapability, ir::rules::PolicyPrincipal, time::Timestamp};
use skein_dialects::{
    ApprovalFloor, CatalogKind, Diagnostic, Project, SourceFile, WorkflowNotFound, WorkflowReference, read_workflow_id,
};
use skein_host::{clock::Clock, identity::current_user, run_settings::DefinitionFiles};

use self::{
    catalog::{Catalog, CatalogEntry, CatalogShelf, find_collection},
    config::ProjectConfig,
};

/// Folders of a project in which workflows are searched by name, in this order.
const WORKFLOWS: [&str; 3] = [".workflows", "workflows", COLLECTED];
/// The folder of workflows in a SkillMeat collection.
const COLLECTED: &str = "artifacts/workflows";
/// Extensions of workflow files; the first that exists wins.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];
/// File names of a workflow that is a folder; the first that exists wins.
const FOLDER_WORKFLOWS: [&str; 4] = ["WORKFLOW.yaml", "WORKFLOW.yml", "WORKFLOW.json", "WORKFLOW.md"];
/// A file that describes secrets, and the folder whose subfolders have one each.
const SECRETS: &str = "SECRETS.md";
const SECRET_FOLDERS: &str = ".secrets";
const OVERRIDES: &str = ".skillmeat-workflow-overrides.yaml";
/// Maximum number of entries of a folder that are searched for names.
const MOST: usize = 10_000;

#[derive(Debug)]
pub struct DiskProject {
    pub root: PathBuf,
    pub(crate) config: ProjectConfig,
    /// The current folder, if it still exists.
    here: Option<PathBuf>,
    overrides: Option<Arc<SourceFile>>,
    /// Sources that were read, by canonical path: many steps may call one workflow.
    read: RefCell<BTreeMap<PathBuf, Arc<SourceFile>>>,
    /// The workflows among them, as paths relative to the root.
    called: RefCell<BTreeSet<String>>,
    named: OnceCell<Vec<NamedWorkflow>>,
    /// Paths of the workflows by the id in each file.
    identified: OnceCell<BTreeMap<String, Vec<PathBuf>>>,
    catalog: Catalog,
}

/// A workflow of the project, with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedWorkflow {
    pub name: String,
    pub path: PathBuf,
}

impl DiskProject {
    /// Returns the nearest folder with `skein.toml` or `.git`, from this one upwards, or else this one.
    pub fn find_root(folder: &Path) -> PathBuf {
        let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let is_root = |folder: &&Path| folder.join(config::NAME).is_file() || folder.join(".git").exists();
        folder.ancestors().find(is_root).unwrap_or(&folder).to_owned()
    }

    /// Returns the root of another project that contains a file, inside or outside of the project with this root.
    pub(crate) fn find_other_root(root: &Path, file: &Path) -> Option<PathBuf> {
        let whole = fs::canonicalize(file).ok()?;
        let mut folders = whole.ancestors().skip(1).take_while(|folder| *folder != root);
        folders.find(|folder| folder.join(config::NAME).is_file()).map(Path::to_owned)
    }

    /// Opens the project with this root. Fails if the project's own configuration is invalid, because nothing in it can
    /// be checked then.
    pub fn open(root: PathBuf) -> Result<DiskProject, Box<Diagnostic>> {
        let here = std::env::current_dir().ok().and_then(|here| fs::canonicalize(here).ok());
        let mut project = DiskProject {
            root,
            config: ProjectConfig::default(),
            here,
            overrides: None,
            read: RefCell::default(),
            called: RefCell::default(),
            named: OnceCell::new(),
            identified: OnceCell::new(),
            catalog: Catalog::new(),
        };
        let config = project.root.join(config::NAME);
        project.config = ProjectConfig::load(&config, &project.display_path(&config))?;
        let overrides = project.root.join(OVERRIDES);
        if overrides.exists() {
            project.overrides = Some(sources::read_source(&overrides, &project.display_path(&overrides))?);
        }
        Ok(project)
    }

    /// Formats a path for people so that it can be used: relative to the current folder within the project, absolute
    /// outside of it.
    pub(crate) fn display_path(&self, path: &Path) -> String {
        let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let Some(here) = self.here.as_deref() else { return whole.display().to_string() };
        if let Ok(below) = whole.strip_prefix(here) {
            return below.display().to_string();
        }
        let shared = here.ancestors().find(|folder| folder.starts_with(&self.root) && whole.starts_with(folder));
        let ways = shared.and_then(|shared| here.strip_prefix(shared).ok().zip(whole.strip_prefix(shared).ok()));
        let Some((up, down)) = ways else { return whole.display().to_string() };
        up.components().map(|_| Path::new("..")).chain([down]).collect::<PathBuf>().display().to_string()
    }

    /// Reads a source of the project. Its key is its path relative to the root, so that a plan is the same from any
    /// folder.
    pub fn read_source(&self, path: &Path) -> Result<Arc<SourceFile>, Box<Diagnostic>> {
        let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if let Some(source) = self.read.borrow().get(&whole) {
            return Ok(source.clone());
        }
        let key = whole.strip_prefix(&self.root).unwrap_or(&whole).display().to_string();
        let source = sources::read_source(path, &self.display_path(path))?.with_key(key);
        self.read.borrow_mut().insert(whole, source.clone());
        Ok(source)
    }

    /// Reads a workflow of the project.
    pub(crate) fn read_workflow_source(&self, path: &Path) -> Result<Arc<SourceFile>, Box<Diagnostic>> {
        let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let key = whole.strip_prefix(&self.root).ok().and_then(Path::to_str).map(str::to_owned);
        self.called.borrow_mut().extend(key);
        self.read_source(path)
    }

    /// Returns the path that a setting names: relative to the root, or below `~`, the home of the current user.
    pub(crate) fn resolve_path(&self, named: &str) -> PathBuf {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        match named.strip_prefix("~/").zip(home) {
            Some((rest, home)) => home.join(rest),
            None => self.root.join(named),
        }
    }

    /// Returns the files that determine what runs of this project may do.
    pub(crate) fn definition_files(&self) -> DefinitionFiles {
        let in_folder = |folder: &str| FOLDER_WORKFLOWS.map(|name| format!("{folder}{name}")).to_vec();
        let files = [config::NAME, OVERRIDES, SECRETS, SECRET_FOLDERS].map(str::to_owned);
        let mut patterns: Vec<String> = files.into_iter().chain(in_folder("")).collect();
        for folder in WORKFLOWS {
            if folder.starts_with('.') {
                patterns.push(folder.to_owned());
                continue;
            }
            patterns.extend(ENDINGS.map(|ending| format!("{folder}/*.{ending}")));
            patterns.extend(in_folder(&format!("{folder}/*/")));
        }
        patterns.extend(catalog::definition_patterns(self));
        DefinitionFiles { patterns, sources: self.called.borrow().iter().cloned().collect() }
    }

    /// Returns all workflows that have a name, in the order of lookup.
    pub fn workflows(&self) -> &[NamedWorkflow] {
        self.named.get_or_init(|| {
            let mut names = BTreeSet::new();
            let all = self.workflow_folders().into_iter().flat_map(|folder| list_named_workflows(&folder));
            all.filter(|workflow| names.insert(workflow.name.clone())).collect()
        })
    }

    /// Returns the folders in which workflows are searched by name, in order.
    fn workflow_folders(&self) -> Vec<PathBuf> {
        let own = WORKFLOWS.iter().map(|folder| self.root.join(folder));
        own.chain(find_collection(self).map(|folder| folder.join(COLLECTED))).collect()
    }

    /// Finds the file of a workflow by its path, its name or its id.
    pub(crate) fn locate_workflow(&self, text: &str) -> Result<PathBuf, WorkflowNotFound> {
        let path = PathBuf::from(text);
        let folder = path.is_dir();
        // Any other existing path is read, or reported as unreadable.
        let found = if folder { find_folder_workflow(&path) } else { path.exists().then_some(path) };
        let why = if folder {
            "the folder contains none, and `.workflows`, `workflows` and `artifacts/workflows` have none with that name or id"
        } else {
            "there is no such file, and no workflow with that name or id in `.workflows`, `workflows` or `artifacts/workflows`"
        };
        found.map_or_else(|| self.locate_by_name(text, why), Ok)
    }

    fn locate_by_name(&self, name: &str, why: &str) -> Result<PathBuf, WorkflowNotFound> {
        let found = self.workflow_folders().iter().find_map(|folder| find_named_workflow(folder, name));
        found.map_or_else(|| self.locate_by_id(name, why), Ok)
    }

    /// Finds the workflow whose file has this id, if no file or folder has this name.
    fn locate_by_id(&self, id: &str, why: &str) -> Result<PathBuf, WorkflowNotFound> {
        let identified = self.identified.get_or_init(|| self.read_workflow_ids());
        match identified.get(id).map(Vec::as_slice) {
            Some([path]) => Ok(path.clone()),
            Some([first, second, ..]) => {
                let (first, second) = (self.display_path(first), self.display_path(second));
                Err(not_found(&format!("`{first}` and `{second}` both have that id; name one by its path"), Vec::new()))
            }
            _ => {
                let names = self.workflows().iter().map(|workflow| workflow.name.clone());
                let known: BTreeSet<String> = names.chain(identified.keys().cloned()).collect();
                Err(not_found(why, known.into_iter().collect()))
            }
        }
    }

    fn read_workflow_ids(&self) -> BTreeMap<String, Vec<PathBuf>> {
        let mut identified: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for workflow in self.workflows() {
            let id = self.read_source(&workflow.path).ok().and_then(|source| read_workflow_id(&source));
            if let Some(id) = id {
                identified.entry(id).or_default().push(workflow.path.clone());
            }
        }
        identified
    }

    /// Returns the files that describe secrets. A link that leads out of the project is ignored.
    pub(crate) fn secret_files(&self) -> Vec<PathBuf> {
        let folders = list_folder(&self.root.join(SECRET_FOLDERS));
        let all = [self.root.clone()].into_iter().chain(folders).map(|folder| folder.join(SECRETS));
        all.filter(|path| path.is_file() && check_inside(path, &[&self.root]).is_ok()).collect()
    }

    /// Returns all entries of a kind that can be named in this project.
    pub(crate) fn shelf(&self, sort: CatalogKind) -> &CatalogShelf {
        self.catalog.shelf(self, sort)
    }

    fn entry_source(&self, entry: &CatalogEntry) -> Option<Arc<SourceFile>> {
        self.read_source(&entry.path).ok()
    }
}

/// Refuses a link that leads out of all of these folders.
fn check_inside(path: &Path, folders: &[&Path]) -> Result<(), WorkflowNotFound> {
    match fs::canonicalize(path) {
        Ok(whole) if !folders.iter().any(|folder| whole.starts_with(folder)) => {
            Err(not_found("it is a link to a path outside of the project", Vec::new()))
        }
        _ => Ok(()),
    }
}

fn not_found(why: &str, known: Vec<String>) -> WorkflowNotFound {
    WorkflowNotFound { why: why.to_owned(), known }
}

/// Returns the entries of a folder, sorted.
fn list_folder(folder: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).into_iter().flatten().take(MOST);
    let mut found: Vec<PathBuf> = read.filter_map(Result::ok).map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// Finds a workflow by name in a folder of workflows: a file, or a folder of its own. Tests paths instead of listing
/// the folder, since thousands of steps may call thousands of workflows.
fn find_named_workflow(folder: &Path, name: &str) -> Option<PathBuf> {
    if !is_plain_name(name) {
        return None;
    }
    let files = ENDINGS.iter().map(|ending| folder.join(format!("{name}.{ending}")));
    files.into_iter().find(|path| path.is_file()).or_else(|| find_folder_workflow(&folder.join(name)))
}

/// Returns true if a name is not a path.
pub(crate) fn is_plain_name(name: &str) -> bool {
    matches!(Path::new(name).components().collect::<Vec<_>>()[..], [Component::Normal(only)] if only == name)
}

/// Lists all workflows in a folder of workflows, with their names.
fn list_named_workflows(folder: &Path) -> Vec<NamedWorkflow> {
    let name = |path: &PathBuf| {
        let is_source = path.extension().is_some_and(|found| ENDINGS.iter().any(|ending| found == *ending));
        let name = if is_source && path.is_file() { path.file_stem() } else { path.file_name() };
        name.and_then(|name| name.to_str()).map(str::to_owned)
    };
    let names: BTreeSet<String> = list_folder(folder).iter().filter_map(name).collect();
    let found = |name: String| find_named_workflow(folder, &name).map(|path| NamedWorkflow { name, path });
    names.into_iter().filter_map(found).collect()
}

/// Returns the workflow file of a folder. Beside a YAML file of that name, the Markdown file is documentation.
fn find_folder_workflow(folder: &Path) -> Option<PathBuf> {
    FOLDER_WORKFLOWS.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

/// Finds a workflow beside another one: a file next to a file, a folder next to a folder.
fn find_sibling_workflow(from: &SourceFile, name: &str) -> Option<PathBuf> {
    let path = fs::canonicalize(&from.name).ok()?;
    let folder = path.parent()?;
    let is_folder = find_folder_workflow(folder).is_some_and(|found| found == path);
    find_named_workflow(if is_folder { folder.parent()? } else { folder }, name)
}

/// Returns true if a relative path leads out of the folder where it starts.
fn climbs_out(path: &Path) -> bool {
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

impl Project for DiskProject {
    fn resolve_workflow(
        &self,
        from: &SourceFile,
        reference: WorkflowReference<'_>,
    ) -> Result<Arc<SourceFile>, WorkflowNotFound> {
        let path = match reference {
            WorkflowReference::Path(path) => {
                let path = Path::new(path);
                if path.is_absolute() || climbs_out(path) {
                    return Err(not_found("it is outside of the folder of this file", Vec::new()));
                }
                let folder = Path::new(&from.name).parent().unwrap_or(Path::new(""));
                let path = folder.join(path);
                // A workflow outside of the project may call the workflows beside it.
                let whole = fs::canonicalize(if folder == Path::new("") { Path::new(".") } else { folder });
                check_inside(&path, &[&self.root, whole.as_deref().unwrap_or(&self.root)])?;
                path
            }
            WorkflowReference::Id(id) => match find_sibling_workflow(from, id) {
                Some(path) => path,
                None => self.locate_by_name(
                    id,
                    "there is none beside this one or in `.workflows`, `workflows` or `artifacts/workflows`",
                )?,
            },
        };
        self.read_workflow_source(&path).map_err(|diagnostic| not_found(&diagnostic.message, Vec::new()))
    }

    fn has_file(&self, from: &SourceFile, path: &str) -> bool {
        Path::new(&from.name).parent().unwrap_or(Path::new("")).join(path).is_file()
    }

    fn catalog_names(&self, sort: CatalogKind) -> Vec<String> {
        let mut names = self.shelf(sort).known_names();
        // A governance resource may be named as a policy.
        if sort == CatalogKind::Policy {
            names.extend(self.shelf(CatalogKind::Governance).known_names());
        }
        names
    }

    fn find_tool(&self, name: &str) -> Option<Arc<SourceFile>> {
        self.shelf(CatalogKind::Tool).find_newest(name).and_then(|entry| self.entry_source(entry))
    }

    fn find_action(&self, name: &str) -> Option<Arc<SourceFile>> {
        self.shelf(CatalogKind::Action).find_newest(name).and_then(|entry| self.entry_source(entry))
    }

    fn find_tools_for(&self, action: &str) -> Vec<Arc<SourceFile>> {
        self.shelf(CatalogKind::Tool)
            .find_referring(CatalogKind::Action, action)
            .filter_map(|entry| self.entry_source(entry))
            .collect()
    }

    fn secret_sources(&self) -> Vec<Arc<SourceFile>> {
        self.secret_files().iter().filter_map(|path| self.read_source(path).ok()).collect()
    }

    fn find_policy(&self, name: &str) -> Option<Arc<SourceFile>> {
        let of = |sort| self.shelf(sort).find_newest(name);
        of(CatalogKind::Policy).or_else(|| of(CatalogKind::Governance)).and_then(|entry| self.entry_source(entry))
    }

    fn governance_sources(&self) -> Vec<Arc<SourceFile>> {
        self.shelf(CatalogKind::Governance).entries().iter().filter_map(|entry| self.entry_source(entry)).collect()
    }

    fn approval_floor(&self) -> Option<ApprovalFloor> {
        let class = self.config.approval.at_least.clone()?;
        let (place, source) = (class.span(), self.read_source(&self.root.join(config::NAME)).ok()?);
        Some(ApprovalFloor { class: class.into_inner(), span: ExprSpan::new(place.start, place.end), source })
    }

    fn current_principal(&self) -> PolicyPrincipal {
        let name = current_user();
        PolicyPrincipal { roles: self.config.user_roles(&name), name }
    }

    fn now(&self) -> Timestamp {
        Clock::new().now()
    }

    fn agent_profile(&self, name: &str) -> (Vec<WorkerCapability>, Option<String>) {
        let own = self.config.agents.get(name).map(|agent| agent.capabilities.clone()).unwrap_or_default();
        let named = self.shelf(CatalogKind::Agent).find_all(name).into_iter().flat_map(|entry| &entry.names);
        (own, named.clone().find(|(sort, _)| *sort == CatalogKind::Domain).map(|(_, domain)| domain.clone()))
    }

    fn override_source(&self) -> Option<Arc<SourceFile>> {
        self.overrides.clone()
    }
}
