//! From what a step may do to the wall around its worker.
//!
//! Owns what each capability lets a worker write, and what no worker sees. Refuses to build walls.

use std::path::{Path, PathBuf};

use skein_core::{engine::Mode, ir::Worker};

use super::{Shared, job::Job, protect, tree};
use crate::{
    agent::{self, Adapter, Home},
    wall::{Behind, Wall},
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

/// The wall of an attempt, and the names of files that were made in its workspace so that it may write them.
pub(super) fn behind(
    shared: &Shared,
    job: &Job,
    places: &Places<'_>,
) -> Result<(Option<Behind>, Vec<String>), PathError> {
    let Some(builder) = shared.builder.clone() else { return Ok((None, Vec::new())) };
    let reach = Reach::of(job);
    let mut made = Vec::new();
    let mut wall = Wall {
        writes: vec![places.files.back()?.path().to_owned(), places.files.scratch()?.path().to_owned()],
        hides: vec![shared.state.path().to_owned()],
        shows: vec![places.files.root().path().to_owned()],
        // An agent must reach its model.
        no_network: job.isolation.no_network && !job.is_hired(),
        optional: job.about.allow_unenforced,
    };
    wall.writes.extend(places.run.files()?.map(|files| files.path().to_owned()));
    wall.shows.extend(places.context.map(Path::to_owned));
    wall.shows.extend(places.beside.iter().cloned());
    if let Some(own) = &places.own {
        let_in(&mut wall, own, reach, places.folder);
    }
    match reach {
        Reach::Anywhere => {
            wall.writes.push(PathBuf::from("/"));
            if !job.isolation.protect.is_empty() {
                wall.shows.extend(protected(shared, job, places)?);
            }
        }
        Reach::Workspace => {
            wall.writes.push(places.folder.path().to_owned());
            wall.writes.extend(job.about.writes.iter().filter(|path| path.exists()).cloned());
            wall.shows.extend(protected(shared, job, places)?);
            // What is recorded is ours to write.
            wall.shows.extend(job.about.record.clone().filter(|tape| tape.starts_with(places.folder.path())));
        }
        Reach::Given if job.writes_apart() => {}
        Reach::Given => {
            made = make(job, places.folder)?;
            let own = job.own_files().filter(|name| is_own(name, places.folder));
            wall.writes.extend(own.map(|name| places.folder.path().join(name)));
        }
    }
    Ok((Some(Behind { builder, wall }), made))
}

/// A tree of its own is among what is hidden. Its git folder is for whoever works there; others have no use for it.
fn let_in(wall: &mut Wall, own: &tree::Behind, reach: Reach, folder: &Root) {
    wall.shows.push(own.objects.clone());
    match reach {
        Reach::Anywhere => wall.writes.push(own.top.clone()),
        Reach::Workspace if own.top == folder.path() => {}
        Reach::Workspace => {
            wall.shows.push(own.top.clone());
            let git = own.top.join(".git");
            wall.shows.extend([git.join("config"), git.join("hooks")]);
            wall.writes.push(git);
        }
        Reach::Given => wall.shows.push(own.top.clone()),
    }
}

/// What an agent needs beyond other workers: its home and the person's login. Of what else the person has set up for
/// agents it sees nothing.
pub(super) fn fit(wall: &mut Wall, home: &Home, adapter: &dyn Adapter, program: &Path) {
    for other in agent::ALL {
        let login = other.login().from;
        let folder = login.as_deref().and_then(Path::parent).map(Path::to_owned);
        let (Some(login), Some(folder)) = (login.and_then(real), folder.and_then(real)) else { continue };
        let own = other.word() == adapter.word();
        if own && home.path.is_none() {
            wall.writes.push(folder);
            continue;
        }
        if own {
            wall.writes.push(login);
        }
        // One that is installed there must be found.
        if !program.starts_with(&folder) {
            wall.hides.push(folder);
        }
    }
    wall.writes.extend(home.path.clone());
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

/// The wall around a command that proves something: it writes what the step may, and nothing of what the step gives.
pub(super) fn proving(behind: &Behind, job: &Job, places: &Places<'_>) -> Result<Behind, PathError> {
    let mut behind = behind.clone();
    let back = places.files.back()?.path().to_owned();
    let gives: Vec<PathBuf> = job.own_files().map(|name| places.folder.path().join(name)).collect();
    behind.wall.writes.retain(|path| *path != back && !gives.contains(path));
    behind.wall.no_network = job.isolation.no_network;
    Ok(behind)
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
