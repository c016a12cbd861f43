//! From what a step may do to the sandbox of its worker.
//!
//! Owns what each capability lets a worker write, and what no worker sees. Refuses to build sandboxes.

use std::path::{Path, PathBuf};

use skein_core::{engine::Mode, ir::Worker};

use super::{Shared, about::About, environment::Environment, job::Job, protect, tree};
use crate::{
    agent::{self, Adapter, Home},
    inbox::DecisionInbox,
    sandbox::{self, Sandbox, SandboxPlace, SandboxSpec},
    store::StateRegistry,
    worker::Task,
    workspace::{
        AttemptDir, Root, RunDir,
        root::{Identity, PathError, Thing},
    },
};

/// How far a worker may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// What it is given to write, and nothing else.
    Given,
    Workspace,
    /// Tools do what they are for, wherever that is.
    Anywhere,
}

impl Reach {
    pub fn of(job: &Job) -> Reach {
        match &job.worker {
            Worker::Agent { .. } | Worker::Script { .. } if job.only_reads() => Reach::Given,
            Worker::Agent { .. } | Worker::Script { .. } => Reach::Workspace,
            Worker::Command { .. } => Reach::Workspace,
            Worker::Tool { .. } | Worker::Action { .. } => Reach::Anywhere,
        }
    }
}

/// The places of one attempt.
pub(super) struct Places<'a> {
    pub run: &'a RunDir,
    pub files: &'a AttemptDir,
    /// Where it works.
    pub folder: &'a Root,
    /// The context folder.
    pub context: Option<&'a Path>,
    /// The tree that its folder is in, if that is its own.
    pub own: Option<tree::Behind>,
    /// What it may look at besides.
    pub beside: Vec<PathBuf>,
}

/// The sandbox of an attempt, and the names of files that were made in its workspace so that it may write them.
pub(super) fn sandbox(
    shared: &Shared,
    job: &Job,
    places: &Places<'_>,
) -> Result<(Option<Sandbox>, Vec<String>), PathError> {
    let Some(launcher) = shared.launcher.clone() else { return Ok((None, Vec::new())) };
    let reach = Reach::of(job);
    let mut made = Vec::new();
    let mut spec = SandboxSpec {
        writes: vec![places.files.back()?.sandbox_place()?, places.files.scratch()?.sandbox_place()?],
        hides: engine_places(shared)?,
        shows: vec![places.files.root().sandbox_place()?],
        scratch: Some(places.files.scratch()?.sandbox_place()?),
        directory: Some(places.folder.sandbox_place()?),
        // An agent must reach its model.
        no_network: job.isolation.no_network && !job.is_hired(),
        optional: job.about.allow_unenforced,
        ..SandboxSpec::default()
    };
    spec.writes.extend(places.run.files()?.map(|files| files.sandbox_place()).transpose()?);
    show(&mut spec, places.context.into_iter().chain(places.beside.iter().map(PathBuf::as_path)))?;
    if let Some(own) = &places.own {
        let_in(&mut spec, own, reach, places.folder)?;
    }
    match reach {
        Reach::Anywhere => {
            spec.writes_everywhere = true;
            write(&mut spec, shared_roots(&job.about))?;
            show(&mut spec, protected(shared, job, places)?)?;
        }
        Reach::Workspace => {
            spec.writes.push(places.folder.sandbox_place()?);
            write(&mut spec, job.about.writes.iter().filter(|path| path.exists()))?;
            show_roots(&mut spec, &job.about)?;
            show(&mut spec, protected(shared, job, places)?)?;
            // What is recorded is ours to write.
            let record = job.about.record.as_ref().filter(|tape| tape.starts_with(places.folder.path()));
            show(&mut spec, record)?;
        }
        Reach::Given => {
            show_roots(&mut spec, &job.about)?;
            if !job.writes_apart() {
                made = make(job, places.folder)?;
                let own = job.own_files().filter(|name| is_own(name, places.folder));
                write(&mut spec, own.map(|name| places.folder.path().join(name)))?;
            }
        }
    }
    Ok((Some(Sandbox { launcher, spec }), made))
}

/// The grant of a program that the engine starts beside the steps of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HookGrant {
    /// Write in the run's workspace, and reach the network.
    Workspace,
    /// Write nothing, and speak to the desktop of the person who started the run.
    Desktop,
}

/// The sandbox of a program that the engine starts beside the steps of a run: a hook, or the command of a channel.
pub(super) fn hook_sandbox(
    shared: &Shared,
    about: &About,
    grant: HookGrant,
    task: &Task,
    folder: &Root,
) -> Result<Option<Sandbox>, PathError> {
    let Some(launcher) = shared.launcher.clone() else { return Ok(None) };
    let mut spec = SandboxSpec {
        hides: engine_places(shared)?,
        directory: Some(folder.sandbox_place()?),
        optional: about.allow_unenforced,
        ..SandboxSpec::default()
    };
    match grant {
        HookGrant::Workspace => {
            spec.writes.push(folder.sandbox_place()?);
            show(&mut spec, protect::hook_places(about, folder, &[shared.state.identity()?])?)?;
        }
        HookGrant::Desktop => show(&mut spec, desktop_socket())?,
    }
    show_roots(&mut spec, about)?;
    show_programs(&mut spec, &task.program, &task.environment)?;
    Ok(Some(Sandbox { launcher, spec }))
}

/// The socket by which programs speak to the desktop.
fn desktop_socket() -> Option<PathBuf> {
    let address = std::env::var("DBUS_SESSION_BUS_ADDRESS").ok()?;
    let path = address.split(';').find_map(|one| one.strip_prefix("unix:path="))?;
    Some(PathBuf::from(path.split(',').next().unwrap_or(path)))
}

/// Lets a sandbox show places that are there.
fn show(spec: &mut SandboxSpec, paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<(), PathError> {
    spec.shows.append(&mut found(paths)?);
    Ok(())
}

/// Lets a program in a sandbox write places that are there.
fn write(spec: &mut SandboxSpec, paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<(), PathError> {
    spec.writes.append(&mut found(paths)?);
    Ok(())
}

/// The places of those paths where something is, by their real paths.
fn found(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Vec<SandboxPlace>, PathError> {
    let mut places = Vec::new();
    for path in paths {
        let path = path.as_ref();
        let unusable = |error: std::io::Error| PathError::new(path, Path::new("."), error);
        let Some(real) = real(path.to_owned()) else { continue };
        places.push(SandboxPlace::find(&real).map_err(unusable)?);
    }
    Ok(places)
}

/// The engine's own places, which no program of a run sees: the state folder, its inbox, and the list of state folders that
/// this user made, by which a forged one would be accepted.
fn engine_places(shared: &Shared) -> Result<Vec<SandboxPlace>, PathError> {
    let mut places = vec![shared.state.sandbox_place()?];
    places.append(&mut found([DecisionInbox::beside(shared.state.path()).folder()])?);
    places.append(&mut found(StateRegistry::of_user().folder())?);
    Ok(places)
}

/// Shows the folders of the run that would be hidden with the folders around them.
fn show_roots(spec: &mut SandboxSpec, about: &About) -> Result<(), PathError> {
    // A place that is both written and shown is shown.
    let written: Vec<PathBuf> = spec.writes.iter().map(|place| place.path.clone()).collect();
    show(spec, shared_roots(about).iter().filter(|root| !written.contains(root)))
}

/// The folders of the run that would be hidden with the folders around them that every sandbox has for itself.
fn shared_roots(about: &About) -> Vec<PathBuf> {
    let project = [&about.project, &about.workspace].into_iter().cloned();
    let roots = project.chain(about.roots.iter().map(|root| about.project.join(root)));
    let mut roots: Vec<PathBuf> = roots.filter_map(real).filter(|root| sandbox::is_replaced(root)).collect();
    roots.sort();
    roots.dedup();
    roots
}

/// A tree of its own is among what is hidden. Its git folder is for the step that works there; others have no use for it.
fn let_in(spec: &mut SandboxSpec, own: &tree::Behind, reach: Reach, folder: &Root) -> Result<(), PathError> {
    show(spec, [&own.objects])?;
    match reach {
        Reach::Anywhere => write(spec, [&own.top]),
        Reach::Workspace if own.top == folder.path() => Ok(()),
        Reach::Workspace => {
            let git = own.top.join(".git");
            show(spec, [own.top.clone(), git.join("config"), git.join("hooks")])?;
            write(spec, [git])
        }
        Reach::Given => show(spec, [&own.top]),
    }
}

/// Gives an agent what it needs beyond other workers: its home, its login and its program. It sees nothing else of what the
/// person has set up for agents.
pub(super) fn fit(
    spec: &mut SandboxSpec,
    home: &Home,
    adapter: &dyn Adapter,
    program: &Path,
) -> Result<(), PathError> {
    for other in agent::ALL {
        let login = other.login().from;
        let folder = login.as_deref().and_then(Path::parent).map(Path::to_owned);
        let (Some(login), Some(folder)) = (login.and_then(real), folder.and_then(real)) else { continue };
        let own = other.word() == adapter.word();
        if own && home.path.is_none() {
            write(spec, [folder])?;
            continue;
        }
        if own {
            write(spec, [login])?;
        }
        // One that is installed there must be found.
        if !program.starts_with(&folder) {
            spec.hides.append(&mut found([folder])?);
        }
    }
    write(spec, &home.path)
}

/// Shows the folders of a program and of a search path, and this program, where they are below folders that every sandbox
/// has for itself.
pub(super) fn show_programs(
    spec: &mut SandboxSpec,
    program: &Path,
    environment: &Environment,
) -> Result<(), PathError> {
    let path = environment.iter().rev().find(|(name, _)| name == "PATH");
    let searched = path.iter().flat_map(|(_, path)| std::env::split_paths(path));
    let own = [Some(program.to_owned()), real(program.to_owned())].into_iter().flatten();
    let own = own.filter_map(|program| Some(program.parent()?.to_owned()));
    let folders = searched.chain(own).filter(|folder| sandbox::is_replaced(folder));
    let written: Vec<PathBuf> = spec.writes.iter().map(|place| place.path.clone()).collect();
    let folders: Vec<PathBuf> = folders.filter(|folder| !written.contains(folder)).collect();
    show(spec, folders)?;
    show(spec, std::env::current_exe().ok().filter(|program| sandbox::is_replaced(program)))
}

fn real(path: PathBuf) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok()
}

/// What is protected and is there.
fn protected(shared: &Shared, job: &Job, places: &Places<'_>) -> Result<Vec<PathBuf>, PathError> {
    let context = places.context.map(Root::open).transpose()?;
    let without: Vec<Identity> =
        context.iter().chain([&shared.state]).map(Root::identity).collect::<Result<_, _>>()?;
    protect::places(job, places.folder, &without)
}

/// The sandbox of a command that proves something: it writes what the step may, and nothing of what the step gives.
pub(super) fn proving(sandbox: &Sandbox, job: &Job, places: &Places<'_>) -> Result<Sandbox, PathError> {
    let mut sandbox = sandbox.clone();
    let back = places.files.back()?.path().to_owned();
    let gives: Vec<PathBuf> = job.own_files().map(|name| places.folder.path().join(name)).collect();
    sandbox.spec.writes.retain(|place| place.path != back && !gives.contains(&place.path));
    sandbox.spec.no_network = job.isolation.no_network;
    Ok(sandbox)
}

/// Whether something of the workspace itself is there. A link may lead anywhere.
fn is_own(name: &str, folder: &Root) -> bool {
    folder.look(name).is_ok_and(|thing| matches!(thing, Some(Thing::File | Thing::Folder)))
}

/// Only what is there can be written where nothing new can be made.
fn make(job: &Job, folder: &Root) -> Result<Vec<String>, PathError> {
    let mut made = Vec::new();
    for name in job.own_files() {
        if folder.look(name)?.is_none() {
            make_one(name, folder)?;
            made.push(name.to_owned());
        } else if job.mode != Mode::Fresh && is_empty(name, folder) {
            // It was made for the attempt that was interrupted.
            made.push(name.to_owned());
        }
    }
    Ok(made)
}

fn make_one(name: &str, folder: &Root) -> Result<(), PathError> {
    if name.ends_with('/') {
        return folder.make_folders_unsynced(name, false).map(drop);
    }
    if let Some(parent) = Path::new(name).parent().filter(|parent| !parent.as_os_str().is_empty()) {
        folder.make_folders_unsynced(parent, false)?;
    }
    folder.create(name, false)?.place_unsynced()
}

fn is_empty(name: &str, folder: &Root) -> bool {
    match name.ends_with('/') {
        true => folder.folder(name).and_then(|made| made.entries(1)).is_ok_and(|entries| entries.is_empty()),
        false => folder.read(name, 0).is_ok(),
    }
}

/// Takes away what was made for it and is still empty: it was not given.
pub(super) fn unmake(made: &[String], folder: &Root) -> Result<(), PathError> {
    for name in made.iter().filter(|name| is_empty(name, folder)) {
        folder.remove(name)?;
    }
    Ok(())
}
