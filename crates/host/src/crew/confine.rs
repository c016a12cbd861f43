//! From what a step may do to the wall around its worker.
//!
//! Owns what each capability lets a worker write, and what no worker sees. Refuses to build walls.

use std::path::{Path, PathBuf};

use skein_core::{engine::Mode, ir::Worker};

use super::{Shared, job::Job};
use crate::{
    agent::{self, Adapter, Home},
    wall::{Behind, Wall},
    workspace::{
        AttemptDir, PROTECTED, Root, RunDir,
        root::{PathError, Thing},
    },
};

/// How far a worker may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// What it is given to write, and nothing else.
    Given,
    Workspace,
    /// Tools do what they are for, wherever that is.
    Anywhere,
}

impl Reach {
    fn of(job: &Job) -> Reach {
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
    match reach {
        Reach::Anywhere => wall.writes.push(PathBuf::from("/")),
        Reach::Workspace => {
            wall.writes.push(places.folder.path().to_owned());
            wall.writes.extend(job.about.writes.iter().filter(|path| path.exists()).cloned());
            wall.shows.extend(protected(job, places.folder));
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

/// What of the workspace is protected and is there.
fn protected<'a>(job: &'a Job, folder: &'a Root) -> impl Iterator<Item = PathBuf> + 'a {
    let named = job.isolation.protect.iter().map(String::as_str);
    let control = PROTECTED.into_iter().filter(|_| job.isolation.protect.is_empty());
    named.chain(control).filter(|name| is_own(name, folder)).map(|name| folder.path().join(name))
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
