//! What a worker may not change in its workspace: looked at before and after, and put back.
//!
//! Owns which files are protected, what of that the wall keeps, and what becomes of files that were changed all the same:
//! the wall cannot keep what is not there yet. Refuses to build walls.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use skein_core::{
    engine::{AttemptEnd, AttemptId, Mode, code},
    ir::ErrorClass,
    limits,
    plan::Hash,
};

use super::{
    Shared,
    attempt::never,
    back::{cut, few},
    confine::Reach,
    job::Job,
};
use crate::{
    wall::Kept,
    workspace::{
        AttemptDir, Became, Pattern, Root, RunDir, Seen, Survey, control_files, harmless_config,
        root::{Identity, PathError, Pending, Thing},
    },
};

/// As many places as a wall keeps by themselves. What is beyond is only found.
const PLACES: usize = 256;
/// Of larger files, and of more in all, no copy is kept to put back.
const COPY_BYTES: u64 = 1024 * 1024;
const COPIES_BYTES: u64 = 16 * COPY_BYTES;

/// Where it is kept how it was, in the folder of the attempt.
const BEFORE: &str = "before.json";
/// Where what was put in the place of a protected file is kept, below the folder of the attempt.
const DISPLACED: &str = "displaced";

pub(super) struct Protected {
    /// Whether these are the usual files.
    usual: bool,
    before: Before,
    run: RunDir,
    files: AttemptDir,
    folder: Root,
    without: Vec<Identity>,
}

/// How it was before an attempt.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Before {
    /// What was looked for: what a wall is sure to keep is not.
    patterns: Vec<String>,
    files: Survey,
}

/// A file that is not as it was, and whether it is again.
struct Found {
    path: String,
    became: Became,
    mended: bool,
}

/// What a step protects, and whether these are the usual files.
fn named(job: &Job) -> (Vec<String>, bool) {
    let own = &job.isolation.protect;
    match own.is_empty() {
        true => (control_files().into_iter().map(str::to_owned).collect(), true),
        false => (own.clone(), false),
    }
}

/// The protected places that are there, which a wall can keep.
pub(super) fn places(job: &Job, folder: &Root, without: &[Identity]) -> Result<Vec<PathBuf>, PathError> {
    let patterns = named(job).0.into_iter().map(|text| Pattern::new(&text));
    let mut places = Vec::new();
    let (whole, wild): (Vec<Pattern>, Vec<Pattern>) = patterns.partition(Pattern::is_whole);
    places.extend(whole.iter().map(Pattern::start).filter(|name| is_there(name, folder)));
    let found = Survey::of(folder, &wild, without)?;
    let files = found.files().filter(|(_, seen)| matches!(seen, Seen::File { .. }));
    places.extend(files.map(|(path, _)| path.to_owned()));
    // Whatever is within another is kept with it.
    places.sort();
    places.dedup_by(|later, earlier| Path::new(later).starts_with(&*earlier));
    places.truncate(PLACES);
    Ok(places.into_iter().map(|name| folder.path().join(name)).collect())
}

/// Whether something of the workspace itself is there. A link may lead anywhere.
fn is_there(name: &str, folder: &Root) -> bool {
    folder.look(name).is_ok_and(|thing| matches!(thing, Some(Thing::File | Thing::Folder)))
}

/// Whether a wall keeps it so that it can be neither changed nor moved away: it is there, and at the top.
fn is_sure(text: &str, folder: &Root) -> bool {
    let pattern = Pattern::new(text);
    let start = pattern.start();
    pattern.is_whole() && !start.contains('/') && is_there(&start, folder)
}

impl Before {
    /// How it was before an attempt that was cut off, if this one is made for that.
    fn interrupted(job: &Job, run: &RunDir) -> Option<Before> {
        if !matches!(job.mode, Mode::Rerun | Mode::Resume | Mode::Restore) {
            return None;
        }
        (1..job.attempt.attempt).rev().find_map(|attempt| {
            let files = run.find_attempt(AttemptId { attempt, ..job.attempt }).ok()??;
            serde_json::from_slice(&files.root().read(BEFORE, limits::SURVEY_BYTES).ok()?).ok()
        })
    }
}

/// A file that is complete and not yet in its place.
fn write(root: &Root, name: &Path, executable: bool, bytes: &[u8]) -> Result<Pending, PathError> {
    let mut pending = root.create(name, executable)?;
    pending.write_all(bytes).map_err(|error| PathError::new(root.path(), name, error))?;
    Ok(pending)
}

impl Protected {
    /// For an attempt that is about to begin. None: it cannot change any of it.
    pub fn of(
        shared: &Shared,
        job: &Job,
        run: &RunDir,
        files: &AttemptDir,
        folder: &Root,
        without: &[Identity],
    ) -> Result<Option<Protected>, AttemptEnd> {
        let (patterns, usual) = named(job);
        let walls = shared.kept();
        match Reach::of(job) {
            Reach::Given if walls.is_some() => return Ok(None),
            // A tool does what it is for, unless someone says what it is not for.
            Reach::Anywhere if usual => return Ok(None),
            Reach::Given | Reach::Workspace | Reach::Anywhere => {}
        }
        let sure = |text: &String| walls == Some(Kept::All) && is_sure(text, folder);
        let before = Before::interrupted(job, run);
        let carried = before.is_some();
        let patterns = || patterns.into_iter().filter(|text| !sure(text)).collect();
        let before = before.unwrap_or_else(|| Before { patterns: patterns(), files: Survey::default() });
        let (run, files) = (run.clone(), files.clone());
        let mut protected =
            Protected { usual, before, run, files, folder: folder.clone(), without: without.to_vec() };
        if !carried {
            protected.before.files = protected.survey().map_err(never)?;
            protected.copy().map_err(never)?;
        }
        let bytes = serde_json::to_vec(&protected.before).expect("a survey is JSON");
        protected.files.root().write_new(BEFORE, &bytes).map_err(never)?;
        Ok(Some(protected))
    }

    fn survey(&self) -> Result<Survey, PathError> {
        let patterns: Vec<Pattern> = self.before.patterns.iter().map(|text| Pattern::new(text)).collect();
        Survey::of(&self.folder, &patterns, &self.without)
    }

    /// Keeps what the files hold, each text once.
    fn copy(&self) -> Result<(), PathError> {
        if self.before.files.files().next().is_none() {
            return Ok(());
        }
        let (kept, mut left) = (self.run.before()?, COPIES_BYTES);
        for (path, seen) in self.before.files.files() {
            let Seen::File { hash, .. } = seen else { continue };
            if kept.look(hash.to_string())?.is_some() {
                continue;
            }
            let Ok(bytes) = self.folder.read(path, COPY_BYTES.min(left)) else { continue };
            left -= bytes.len() as u64;
            if Hash::of(&bytes) == *hash {
                write(&kept, Path::new(&hash.to_string()), false, &bytes)?.place_unsynced()?;
            }
        }
        Ok(())
    }

    /// What the files that were changed make of the end of an attempt. Where nobody else worked there, they are put back.
    pub fn judge(&self, end: AttemptEnd, job: &Job, alone: bool) -> AttemptEnd {
        let now = match self.survey() {
            Ok(now) => now,
            Err(error) => {
                return never(format!("it cannot be told whether protected files are as they were: {error}"));
            }
        };
        let became = self.before.files.became(&now).into_iter();
        let found: Vec<Found> = became
            .filter(|(path, became)| !self.is_harmless(path, *became))
            .map(|(path, became)| {
                let mended = alone && self.put_back(&path).is_ok();
                Found { path, became, mended }
            })
            .collect();
        if found.is_empty() || matches!(end, AttemptEnd::Stopped | AttemptEnd::Interrupted) {
            return end;
        }
        let mended = found.iter().all(|found| found.mended);
        // Tried again, what is still there would be taken for what was there before.
        let class = if mended { job.worker.failure() } else { ErrorClass::NonRetryable };
        let message = cut(told(&found, mended));
        AttemptEnd::Failed { class, code: Some(code::PROTECTED.into()), message, retry_at: None }
    }

    /// Who makes a repository makes its configuration, and examples of hooks that git does not run.
    fn is_harmless(&self, path: &str, became: Became) -> bool {
        if !self.usual || became != Became::New {
            return false;
        }
        let example = path.starts_with(".git/hooks/") && path.ends_with(".sample");
        let config = || self.folder.read(path, COPY_BYTES).is_ok_and(|bytes| harmless_config(&bytes));
        example || path == ".git/config" && config()
    }

    fn put_back(&self, path: &str) -> Result<(), PathError> {
        self.set_aside(path);
        self.folder.remove(path)?;
        match self.before.files.get(path) {
            None => self.tidy(Path::new(path)),
            Some(Seen::File { hash, executable }) => {
                let bytes = self.run.before()?.read(hash.to_string(), COPY_BYTES)?;
                if let Some(parent) = Path::new(path).parent().filter(|parent| !parent.as_os_str().is_empty())
                {
                    self.folder.make_folders_unsynced(parent, false)?;
                }
                write(&self.folder, Path::new(path), *executable, &bytes)?.place()
            }
            Some(Seen::Link { .. } | Seen::Other) => {
                let why = std::io::Error::other("only files are put back");
                Err(PathError::new(self.folder.path(), Path::new(path), why))
            }
        }
    }

    /// Keeps what is there now, for people to look at. What cannot be kept is gone.
    fn set_aside(&self, path: &str) {
        let Ok(bytes) = self.folder.read(path, COPY_BYTES) else { return };
        let place = Path::new(DISPLACED).join(path);
        if let Some(parent) = place.parent() {
            let _ = self.files.root().make_folders_unsynced(parent, true);
        }
        let _ = self.files.root().write_new(&place, &bytes);
    }

    /// Folders in which nothing is left go, too.
    fn tidy(&self, path: &Path) -> Result<(), PathError> {
        let parents = path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty());
        for parent in parents {
            if !self.folder.folder(parent)?.entries(1).is_ok_and(|entries| entries.is_empty()) {
                break;
            }
            self.folder.remove(parent)?;
        }
        Ok(())
    }
}

fn told(found: &[Found], mended: bool) -> String {
    let word = |became: Became| match became {
        Became::New => "new",
        Became::Changed => "changed",
        Became::Gone => "removed",
    };
    let name = |found: &Found| format!("`{}` ({})", found.path, word(found.became));
    let names = few(found.iter().map(name));
    match mended {
        true => format!("it changed what is protected, which was put back: {names}"),
        false => format!(
            "what is protected was changed while it worked, by it or by someone else in the same folder, and was not \
             put back: {names}; look at it before you go on"
        ),
    }
}
