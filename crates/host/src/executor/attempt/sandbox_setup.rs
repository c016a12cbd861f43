//! Builds the sandbox spec of a worker from the permissions of its step.
//!
//! Owns the paths that each capability may write, and the paths that no worker may see. Does not create sandboxes.

use std::path::{Path, PathBuf};

use skein_core::{engine::AttemptMode, ir::WorkerSpec};

use super::{AttemptContext, command::WorkerEnvironment, spec::AttemptSpec};
use crate::{
    decision_inbox::DecisionInbox,
    executor::{
        ExecutorContext,
        agents::{self, AgentAdapter, AgentHome},
        evidence::protect,
        worktree::WorktreeSandboxPaths,
    },
    process::ProcessSpec,
    run_settings::RunSettings,
    sandbox::{self, Sandbox, SandboxPlace, SandboxSpec},
    store::StateRegistry,
    workspace::{
        RootFolder,
        root::{EntryKind, FileIdentity, FilePathError},
    },
};

/// The extent of a worker's write access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteAccess {
    /// Only its own files.
    Given,
    Workspace,
    /// Tools may write anywhere.
    Anywhere,
}

impl WriteAccess {
    pub(crate) fn from_spec(job: &AttemptSpec) -> WriteAccess {
        match &job.worker {
            WorkerSpec::Agent { .. } | WorkerSpec::Script { .. } if job.is_read_only() => WriteAccess::Given,
            WorkerSpec::Agent { .. } | WorkerSpec::Script { .. } => WriteAccess::Workspace,
            WorkerSpec::Command { .. } => WriteAccess::Workspace,
            WorkerSpec::Tool { .. } | WorkerSpec::Action { .. } => WriteAccess::Anywhere,
        }
    }
}

/// The sandbox of an attempt that works in `folder`, with the step worktree that contains it and further paths that it
/// may read. Also returns the names of the files that were created in its workspace so that it can write them.
pub(crate) fn build_sandbox(
    attempt: &AttemptContext,
    folder: &RootFolder,
    context: Option<&Path>,
    (own, beside): &(Option<WorktreeSandboxPaths>, Vec<PathBuf>),
) -> Result<(Option<Sandbox>, Vec<String>), FilePathError> {
    let AttemptContext { shared, job, run, files, .. } = attempt;
    let Some(launcher) = shared.launcher.clone() else { return Ok((None, Vec::new())) };
    let reach = WriteAccess::from_spec(job);
    let mut made = Vec::new();
    let mut spec = SandboxSpec {
        writes: vec![files.worker_output()?.sandbox_place()?, files.make_scratch()?.sandbox_place()?],
        hides: engine_places(shared)?,
        shows: vec![files.root().sandbox_place()?],
        scratch: Some(files.make_scratch()?.sandbox_place()?),
        directory: Some(folder.sandbox_place()?),
        // A coding agent must reach its model.
        no_network: job.isolation.no_network && !job.uses_coding_agent(),
        optional: job.settings.allow_unenforced,
        ..SandboxSpec::default()
    };
    spec.writes.extend(run.find_files()?.map(|files| files.sandbox_place()).transpose()?);
    show_paths(&mut spec, context.into_iter().chain(beside.iter().map(PathBuf::as_path)))?;
    if let Some(own) = own {
        show_worktree(&mut spec, own, reach, folder)?;
    }
    match reach {
        WriteAccess::Anywhere => {
            spec.writes_everywhere = true;
            allow_writes(&mut spec, shared_roots(&job.settings))?;
            show_paths(&mut spec, protected_paths(attempt, folder, context)?)?;
        }
        WriteAccess::Workspace => {
            spec.writes.push(folder.sandbox_place()?);
            allow_writes(&mut spec, job.settings.writes.iter().filter(|path| path.exists()))?;
            show_roots(&mut spec, &job.settings)?;
            show_paths(&mut spec, protected_paths(attempt, folder, context)?)?;
            // Only the host writes the recording.
            let record = job.settings.record.as_ref().filter(|path| path.starts_with(folder.path()));
            show_paths(&mut spec, record)?;
        }
        WriteAccess::Given => {
            show_roots(&mut spec, &job.settings)?;
            if !job.writes_in_attempt_folder() {
                made = create_own_files(job, folder)?;
                let own = job.own_files().filter(|name| is_file_or_folder(name, folder));
                allow_writes(&mut spec, own.map(|name| folder.path().join(name)))?;
            }
        }
    }
    Ok((Some(Sandbox { launcher, spec }), made))
}

/// The grant of a program that the engine starts beside the steps of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HookGrant {
    /// May write the run's workspace and use the network.
    Workspace,
    /// May write nothing, and may connect to the desktop of the user who started the run.
    Desktop,
}

/// The sandbox of a program that the engine starts beside the steps of a run: a hook, or the command of a channel.
pub(crate) fn build_hook_sandbox(
    shared: &ExecutorContext,
    settings: &RunSettings,
    grant: HookGrant,
    task: &ProcessSpec,
    folder: &RootFolder,
) -> Result<Option<Sandbox>, FilePathError> {
    let Some(launcher) = shared.launcher.clone() else { return Ok(None) };
    let mut spec = SandboxSpec {
        hides: engine_places(shared)?,
        directory: Some(folder.sandbox_place()?),
        optional: settings.allow_unenforced,
        ..SandboxSpec::default()
    };
    match grant {
        HookGrant::Workspace => {
            spec.writes.push(folder.sandbox_place()?);
            show_paths(&mut spec, protect::hook_protected_places(settings, folder, &[shared.state.identity()?])?)?;
        }
        HookGrant::Desktop => show_paths(&mut spec, find_desktop_socket())?,
    }
    show_roots(&mut spec, settings)?;
    show_programs(&mut spec, &task.program, &task.environment)?;
    Ok(Some(Sandbox { launcher, spec }))
}

/// The socket of the desktop's message bus.
fn find_desktop_socket() -> Option<PathBuf> {
    let address = std::env::var("DBUS_SESSION_BUS_ADDRESS").ok()?;
    let path = address.split(';').find_map(|one| one.strip_prefix("unix:path="))?;
    Some(PathBuf::from(path.split(',').next().unwrap_or(path)))
}

/// Shows existing paths in a sandbox.
fn show_paths(spec: &mut SandboxSpec, paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<(), FilePathError> {
    spec.shows.append(&mut find_places(paths)?);
    Ok(())
}

/// Makes existing paths writable in a sandbox.
fn allow_writes(
    spec: &mut SandboxSpec,
    paths: impl IntoIterator<Item = impl AsRef<Path>>,
) -> Result<(), FilePathError> {
    spec.writes.append(&mut find_places(paths)?);
    Ok(())
}

/// The places of existing paths, by their real paths.
fn find_places(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Vec<SandboxPlace>, FilePathError> {
    let mut places = Vec::new();
    for path in paths {
        let path = path.as_ref();
        let unusable = |error: std::io::Error| FilePathError::new(path, Path::new("."), error);
        let Some(real) = real_path(path.to_owned()) else { continue };
        places.push(SandboxPlace::find(&real).map_err(unusable)?);
    }
    Ok(places)
}

/// The engine's own places, which no program of a run may see: the state folder, its inbox, and the registry of this
/// user's state folders, with which a forged state folder would be accepted.
fn engine_places(shared: &ExecutorContext) -> Result<Vec<SandboxPlace>, FilePathError> {
    let mut places = vec![shared.state.sandbox_place()?];
    places.append(&mut find_places([DecisionInbox::new(shared.state.path()).folder()])?);
    places.append(&mut find_places(StateRegistry::from_environment().folder())?);
    Ok(places)
}

/// Shows the run's folders that are below folders hidden in every sandbox.
fn show_roots(spec: &mut SandboxSpec, settings: &RunSettings) -> Result<(), FilePathError> {
    // A place that is both writable and shown is only shown.
    let written: Vec<PathBuf> = spec.writes.iter().map(|place| place.path.clone()).collect();
    show_paths(spec, shared_roots(settings).iter().filter(|root| !written.contains(root)))
}

/// The run's folders that are below folders that every sandbox replaces with its own.
fn shared_roots(settings: &RunSettings) -> Vec<PathBuf> {
    let project = [&settings.project, &settings.workspace].into_iter().cloned();
    let roots = project.chain(settings.roots.iter().map(|root| settings.project.join(root)));
    let mut roots: Vec<PathBuf> =
        roots.filter_map(real_path).filter(|root| sandbox::is_replaced_folder(root)).collect();
    roots.sort();
    roots.dedup();
    roots
}

/// Shows a step worktree, which is in the hidden state folder. Its git folder is only for the step that works there.
fn show_worktree(
    spec: &mut SandboxSpec,
    own: &WorktreeSandboxPaths,
    reach: WriteAccess,
    folder: &RootFolder,
) -> Result<(), FilePathError> {
    show_paths(spec, [&own.objects])?;
    match reach {
        WriteAccess::Anywhere => allow_writes(spec, [&own.top]),
        WriteAccess::Workspace if own.top == folder.path() => Ok(()),
        WriteAccess::Workspace => {
            let git = own.top.join(".git");
            show_paths(spec, [own.top.clone(), git.join("config"), git.join("hooks")])?;
            allow_writes(spec, [git])
        }
        WriteAccess::Given => show_paths(spec, [&own.top]),
    }
}

/// Grants an agent its additional paths: its home, its login and its program. It sees no other part of the user's agent
/// configuration.
pub(crate) fn grant_agent_places(
    spec: &mut SandboxSpec,
    home: &AgentHome,
    adapter: &dyn AgentAdapter,
    program: &Path,
) -> Result<(), FilePathError> {
    for other in agents::ALL {
        let login = other.login_link().from;
        let folder = login.as_deref().and_then(Path::parent).map(Path::to_owned);
        let (Some(login), Some(folder)) = (login.and_then(real_path), folder.and_then(real_path)) else {
            continue;
        };
        let own = other.agent_name() == adapter.agent_name();
        if own && home.path.is_none() {
            allow_writes(spec, [folder])?;
            continue;
        }
        if own {
            allow_writes(spec, [login])?;
        }
        // An agent that is installed there must be found.
        if !program.starts_with(&folder) {
            spec.hides.append(&mut find_places([folder])?);
        }
    }
    allow_writes(spec, &home.path)
}

/// Shows the folders of a program and of the search path, and the current executable, if they are below folders that
/// every sandbox replaces with its own.
pub(crate) fn show_programs(
    spec: &mut SandboxSpec,
    program: &Path,
    environment: &WorkerEnvironment,
) -> Result<(), FilePathError> {
    let path = environment.iter().rev().find(|(name, _)| name == "PATH");
    let searched = path.iter().flat_map(|(_, path)| std::env::split_paths(path));
    let own = [Some(program.to_owned()), real_path(program.to_owned())].into_iter().flatten();
    let own = own.filter_map(|program| Some(program.parent()?.to_owned()));
    let folders = searched.chain(own).filter(|folder| sandbox::is_replaced_folder(folder));
    let written: Vec<PathBuf> = spec.writes.iter().map(|place| place.path.clone()).collect();
    let folders: Vec<PathBuf> = folders.filter(|folder| !written.contains(folder)).collect();
    show_paths(spec, folders)?;
    show_paths(spec, std::env::current_exe().ok().filter(|program| sandbox::is_replaced_folder(program)))
}

fn real_path(path: PathBuf) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok()
}

/// The existing protected paths.
fn protected_paths(
    attempt: &AttemptContext,
    folder: &RootFolder,
    context: Option<&Path>,
) -> Result<Vec<PathBuf>, FilePathError> {
    let context = context.map(RootFolder::open).transpose()?;
    let without: Vec<FileIdentity> =
        context.iter().chain([&attempt.shared.state]).map(RootFolder::identity).collect::<Result<_, _>>()?;
    protect::protected_places(&attempt.job, folder, &without)
}

/// The sandbox of an evidence command: it may write the same paths as the step, except the step's outputs.
pub(crate) fn evidence_sandbox(
    AttemptContext { job, files, .. }: &AttemptContext,
    sandbox: &Sandbox,
    folder: &RootFolder,
) -> Result<Sandbox, FilePathError> {
    let mut sandbox = sandbox.clone();
    let back = files.worker_output()?.path().to_owned();
    let gives: Vec<PathBuf> = job.own_files().map(|name| folder.path().join(name)).collect();
    sandbox.spec.writes.retain(|place| place.path != back && !gives.contains(&place.path));
    sandbox.spec.no_network = job.isolation.no_network;
    Ok(sandbox)
}

/// True if a file or folder of the workspace itself is there. A link may lead anywhere.
pub(crate) fn is_file_or_folder(name: &str, folder: &RootFolder) -> bool {
    folder.entry_kind(name).is_ok_and(|thing| matches!(thing, Some(EntryKind::File | EntryKind::Folder)))
}

/// Creates the files that the worker must write: in a read-only workspace it can only write existing files.
fn create_own_files(job: &AttemptSpec, folder: &RootFolder) -> Result<Vec<String>, FilePathError> {
    let mut made = Vec::new();
    for name in job.own_files() {
        if folder.entry_kind(name)?.is_none() {
            create_own_file(name, folder)?;
            made.push(name.to_owned());
        } else if job.mode != AttemptMode::Fresh && is_empty(name, folder) {
            // It was created for the interrupted attempt.
            made.push(name.to_owned());
        }
    }
    Ok(made)
}

fn create_own_file(name: &str, folder: &RootFolder) -> Result<(), FilePathError> {
    if name.ends_with('/') {
        return folder.make_folders_unsynced(name, false).map(drop);
    }
    if let Some(parent) = Path::new(name).parent().filter(|parent| !parent.as_os_str().is_empty()) {
        folder.make_folders_unsynced(parent, false)?;
    }
    folder.create_file(name, false)?.persist_unsynced()
}

fn is_empty(name: &str, folder: &RootFolder) -> bool {
    match name.ends_with('/') {
        true => folder.open_folder(name).and_then(|made| made.list_entries(1)).is_ok_and(|entries| entries.is_empty()),
        false => folder.read_file(name, 0).is_ok(),
    }
}

/// Removes the created files that are still empty: the worker did not write them.
pub(crate) fn remove_empty_files(made: &[String], folder: &RootFolder) -> Result<(), FilePathError> {
    for name in made.iter().filter(|name| is_empty(name, folder)) {
        folder.remove(name)?;
    }
    Ok(())
}
