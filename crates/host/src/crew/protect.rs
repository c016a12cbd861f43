//! What a worker may not change in its workspace: looked at before and after, and put back.
//!
//! Owns which files are protected, what of that the wall keeps, and what becomes of files that were changed all the same:
//! the wall cannot keep what is not there yet. Refuses to build walls.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use skein_core::{
    engine::{AttemptEnd, InstanceIx, Mode, StepAt, code},
    ir::ErrorClass,
    limits,
    plan::Hash,
};

use super::{
    Shared,
    attempt::{never, usual},
    back::cut,
    confine::Reach,
    job::Job,
};
use crate::{
    wall::Kept,
    workspace::{
        AttemptDir, Became, PROTECTED, Pattern, Root, RunDir, Seen, Survey, harmless_config,
        root::{Identity, PathError, Thing},
    },
};

/// As many places as a wall keeps by themselves. What is beyond is only found.
const PLACES: usize = 256;
/// Of larger files, and of more in all, no copy is kept to put back.
const COPY_BYTES: u64 = 1024 * 1024;
const COPIES_BYTES: u64 = 16 * COPY_BYTES;
/// So many files are named.
const NAMED: usize = 10;

/// Where what was put in the place of a protected file is kept, below the folder of the attempt.
const DISPLACED: &str = "displaced";

pub(super) struct Protected {
    /// Whether these are the usual files.
    usual: bool,
    before: Before,
    /// Where copies are.
    kept: Root,
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
        true => (PROTECTED.map(str::to_owned).into(), true),
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

impl Protected {
    /// For an attempt that is about to begin. None: it cannot change any of it.
    pub fn of(
        shared: &Shared,
        job: &Job,
        run: &RunDir,
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
        let kept = run.before().map_err(never)?;
        let StepAt(InstanceIx(instance), step) = job.attempt.at;
        let name = format!("{instance}.{step}.{}.protected.json", job.attempt.visit);
        let (folder, without) = (folder.clone(), without.to_vec());
        let interrupted = matches!(job.mode, Mode::Rerun | Mode::Resume | Mode::Restore);
        let known = kept.read(&name, limits::SURVEY_BYTES).ok().filter(|_| interrupted);
        if let Some(before) = known.and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
            // An attempt that was cut off is compared with how it was before that.
            return Ok(Some(Protected { usual, before, kept, folder, without }));
        }
        let sure = |text: &String| walls == Some(Kept::All) && is_sure(text, &folder);
        let patterns = patterns.into_iter().filter(|text| !sure(text)).collect();
        let before = Before { patterns, files: Survey::default() };
        let mut protected = Protected { usual, before, kept, folder, without };
        protected.before.files = protected.survey().map_err(never)?;
        protected.copy().map_err(never)?;
        let bytes = serde_json::to_vec(&protected.before).expect("a survey is JSON");
        protected.kept.replace_unsynced(&name, &bytes).map_err(never)?;
        Ok(Some(protected))
    }

    fn survey(&self) -> Result<Survey, PathError> {
        let patterns: Vec<Pattern> = self.before.patterns.iter().map(|text| Pattern::new(text)).collect();
        Survey::of(&self.folder, &patterns, &self.without)
    }

    /// Keeps what the files hold, each text once.
    fn copy(&self) -> Result<(), PathError> {
        let mut left = COPIES_BYTES;
        for (path, seen) in self.before.files.files() {
            let Seen::File { hash, .. } = seen else { continue };
            if self.kept.look(hash.to_string())?.is_some() {
                continue;
            }
            let Ok(bytes) = self.folder.read(path, COPY_BYTES.min(left)) else { continue };
            left -= bytes.len() as u64;
            if Hash::of(&bytes) == *hash {
                self.kept.replace_unsynced(hash.to_string(), &bytes)?;
            }
        }
        Ok(())
    }

    /// What the files that were changed make of the end of an attempt. Where nobody else worked there, they are put back.
    pub fn judge(&self, end: AttemptEnd, job: &Job, files: &AttemptDir, alone: bool) -> AttemptEnd {
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
                let mended = alone && self.put_back(&path, files).is_ok();
                Found { path, became, mended }
            })
            .collect();
        if found.is_empty() || matches!(end, AttemptEnd::Stopped | AttemptEnd::Interrupted) {
            return end;
        }
        let mended = found.iter().all(|found| found.mended);
        // Tried again, what is still there would be taken for what was there before.
        let class = if mended { usual(&job.worker) } else { ErrorClass::NonRetryable };
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

    fn put_back(&self, path: &str, files: &AttemptDir) -> Result<(), PathError> {
        self.set_aside(path, files);
        self.folder.remove(path)?;
        match self.before.files.get(path) {
            None => self.tidy(Path::new(path)),
            Some(Seen::File { hash, executable }) => {
                let bytes = self.kept.read(hash.to_string(), COPY_BYTES)?;
                if let Some(parent) = Path::new(path).parent().filter(|parent| !parent.as_os_str().is_empty())
                {
                    self.folder.make_folders_unsynced(parent, false)?;
                }
                let mut pending = self.folder.create(path, *executable)?;
                let written = std::io::Write::write_all(&mut pending, &bytes);
                written.map_err(|error| PathError::new(self.folder.path(), Path::new(path), error))?;
                pending.place()
            }
            Some(Seen::Link { .. } | Seen::Other) => {
                let why = std::io::Error::other("only files are put back");
                Err(PathError::new(self.folder.path(), Path::new(path), why))
            }
        }
    }

    /// Keeps what is there now, for people to look at. What cannot be kept is gone.
    fn set_aside(&self, path: &str, files: &AttemptDir) {
        let Ok(bytes) = self.folder.read(path, COPY_BYTES) else { return };
        let place = Path::new(DISPLACED).join(path);
        if let Some(parent) = place.parent() {
            let _ = files.root().make_folders_unsynced(parent, true);
        }
        let _ = files.root().replace_unsynced(&place, &bytes);
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
    let mut names = found.iter().take(NAMED).map(name).collect::<Vec<_>>().join(", ");
    if found.len() > NAMED {
        names += &format!(" and {} more", found.len() - NAMED);
    }
    match mended {
        true => format!("it changed what is protected, which was put back: {names}"),
        false => format!(
            "what is protected was changed while it worked, by it or by someone else in the same folder, and was not \
             put back: {names}; look at it before you go on"
        ),
    }
}
