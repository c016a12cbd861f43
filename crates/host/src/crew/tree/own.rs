//! A tree of its own for a step: files of the repository as they were when the step was first started, in a folder
//! of the run, with a git folder in it that belongs to nobody else.
//!
//! Owns how such a tree comes to be and goes. The commit that it is made of is noted first and lasts, so that whoever
//! goes on after a crash makes the same tree. What whoever works there does to the git folder inside concerns only
//! them: the engine never uses it.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use skein_core::engine::{AttemptId, Report, StepAt};

use super::{
    id, origin,
    shadow::{Call, Shadow, line},
    take::{Rules, View},
};
use crate::{
    crew::git::{Git, Question},
    workspace::{Root, RunDir},
};

/// What lasts of a tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Note {
    /// The step, for people.
    pub step: String,
    /// What it was made of.
    pub commit: String,
    /// Where its changes go, once they are complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merging: Option<Merging>,
    /// What could not be merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfit: Option<Unfit>,
    /// Its changes are where they belong, or there are none.
    #[serde(default)]
    pub done: bool,
}

/// Changes that did not fit when they were to be merged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Unfit {
    /// The files of the tree as they were then.
    pub theirs: String,
    /// The files that do not fit, once what does was brought to whoever settles it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Vec<String>>,
}

/// A merge that was decided: what becomes of the workspace, and what is then told of the attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Merging {
    /// Whose changes they are.
    pub attempt: AttemptId,
    pub from: String,
    pub to: String,
    pub report: Report,
}

/// A tree that is there.
#[derive(Debug)]
pub(super) struct OwnTree {
    place: Root,
    pub note: Note,
    /// Its files.
    pub files: Root,
}

const NOTE: &str = "note.json";
const FILES: &str = "files";
const CONFLICTS: &str = "conflicts";
/// Put together before it is there.
const PENDING: &str = "pending";
/// More than a note can have.
const NOTE_BYTES: u64 = 64 * 1024 * 1024;

/// The note of the tree of a step, if it has one.
pub(super) fn note(run: &RunDir, attempt: AttemptId) -> Result<Option<Note>, String> {
    let said = |error: crate::workspace::root::PathError| error.to_string();
    let place = run.tree(attempt).map_err(said)?;
    match place.read(NOTE, NOTE_BYTES) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| format!("its note: {error}")),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// The step of a tree and where its files are, if they are still there.
pub(super) fn kept(place: &Path) -> Option<(String, PathBuf)> {
    let files = place.join(FILES);
    let note: Note = serde_json::from_slice(&fs::read(place.join(NOTE)).ok()?).ok()?;
    (!note.done && files.is_dir()).then_some((note.step, files))
}

impl OwnTree {
    /// The tree of a step that has one.
    pub fn find(run: &RunDir, attempt: AttemptId) -> Result<Option<OwnTree>, String> {
        let said = |error: crate::workspace::root::PathError| error.to_string();
        let Some(note) = note(run, attempt)? else { return Ok(None) };
        let place = run.tree(attempt).map_err(said)?;
        match place.look(FILES).map_err(said)? {
            Some(_) => Ok(Some(OwnTree { files: place.folder(FILES).map_err(said)?, place, note })),
            None => Ok(None),
        }
    }

    /// The tree of a step, made where it is not there yet.
    pub fn open(
        shadow: &Shadow<'_>,
        run: &RunDir,
        attempt: AttemptId,
        step: &str,
    ) -> Result<OwnTree, String> {
        let said = |error: crate::workspace::root::PathError| error.to_string();
        let place = run.tree(attempt).map_err(said)?;
        let note = match note(run, attempt)? {
            Some(note) => note,
            None => {
                let (step, commit) = (step.to_owned(), commit(shadow)?);
                let note = Note { step, commit, merging: None, unfit: None, done: false };
                write(&place, &note)?;
                note
            }
        };
        if place.look(FILES).map_err(said)?.is_none() {
            make(shadow, &place, &note.commit)?;
        }
        let files = place.folder(FILES).map_err(said)?;
        Ok(OwnTree { place, note, files })
    }

    pub fn save(&self) -> Result<(), String> {
        write(&self.place, &self.note)
    }

    /// Its files are not needed any more.
    pub fn remove(&self) -> Result<(), String> {
        self.place.remove(FILES).map(drop).map_err(|error| error.to_string())
    }

    /// The files that do not fit, for whoever is to settle that.
    pub fn note_conflicts(&self, files: &[PathBuf]) -> Result<(), String> {
        let lines: Vec<u8> = files.iter().flat_map(|file| line(file)).collect();
        self.place.replace(CONFLICTS, &lines).map_err(|error| error.to_string())
    }

    pub fn path(&self) -> &Path {
        self.files.path()
    }

    /// The index in which we keep what we know of its files.
    pub fn view(&self, shadow: &Shadow<'_>, attempt: AttemptId, prefix: &Path) -> Result<View, String> {
        let (StepAt(instance, step), visit) = (attempt.at, attempt.visit);
        let index = format!("tree.{}.{step}.{visit}", instance.0);
        let view = View {
            root: self.files.clone(),
            prefix: prefix.to_owned(),
            index,
            rules: Rules::Tree,
            largest: None,
        };
        if !shadow.folder().join(&view.index).exists() {
            shadow.unlock(&view.index);
            shadow.ask(shadow.call(&view, "read-tree", &["read-tree", &self.note.commit]))?.well()?;
        }
        Ok(view)
    }
}

fn write(place: &Root, note: &Note) -> Result<(), String> {
    let bytes = serde_json::to_vec_pretty(note).expect("a note is plain data");
    place.replace(NOTE, &bytes).map_err(|error| error.to_string())
}

/// All of the repository as it is now, committed or not, as a commit that nobody else sees.
fn commit(shadow: &Shadow<'_>) -> Result<String, String> {
    let view = super::whole(shadow);
    let tree = shadow.take(&view)?.tree;
    let kept = shadow.said()?;
    let mut arguments = vec!["commit-tree", "-m", "skein: the workspace as it was", tree.as_str()];
    let head = origin::head(shadow.outside(&kept))?;
    arguments.extend(head.iter().flat_map(|head| ["-p", head.as_str()]));
    id(&shadow.ask(shadow.call(&view, "commit", &arguments))?.well()?)
}

/// Whole or not at all.
fn make(shadow: &Shadow<'_>, place: &Root, commit: &str) -> Result<(), String> {
    let said = |error: crate::workspace::root::PathError| error.to_string();
    place.remove(PENDING).map_err(said)?;
    let files = place.make_folders(PENDING, true).map_err(said)?;
    let (index, at) = ("make", files.path());
    shadow.unlock(index);
    let ask = |name, arguments: &[&str]| {
        let arguments = arguments.iter().map(OsString::from).collect();
        shadow.ask(Call { name, arguments, files: at, index, stdin: Vec::new() })?.well()
    };
    ask("make-read", &["read-tree", commit])?;
    ask("make-files", &["checkout-index", "--all", "--force"])?;
    give_git(shadow, &files, commit)?;
    files.sync_all().map_err(said)?;
    place.move_new(PENDING, FILES).map_err(said)
}

/// A git folder of its own, in which all of the history is, and in which whoever works there may do as they like.
fn give_git(shadow: &Shadow<'_>, files: &Root, commit: &str) -> Result<(), String> {
    let format = shadow.origin.as_ref().map_or("sha1", |origin| &origin.format);
    let kept = shadow.said()?;
    let git = Git::new(files.path(), &kept, shadow.mark);
    let place = files.path().join(".git");
    let ask = |name, arguments: &[String]| {
        let mut question = Question::new(name, arguments);
        question.settings = vec![
            ("GIT_CONFIG_GLOBAL".into(), "/dev/null".into()),
            ("GIT_DIR".into(), place.clone().into()),
            ("GIT_WORK_TREE".into(), files.path().into()),
            ("GIT_OPTIONAL_LOCKS".into(), "1".into()),
        ];
        git.ask(question)?.well().map(drop)
    };
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    ask("git-init", &words(&["init", "--quiet", "--template=", &format!("--object-format={format}")]))?;
    let mut borrowed = line(&shadow.folder().join("objects"));
    if let Some(origin) = &shadow.origin {
        borrowed.extend(line(&origin.objects));
        for (name, value) in &origin.author {
            ask("git-author", &words(&["config", name, value]))?;
        }
        if origin.shallow.exists() {
            fs::copy(&origin.shallow, place.join("shallow")).map_err(|error| error.to_string())?;
        }
    }
    let io = |error: std::io::Error| format!("{}: {error}", place.display());
    fs::create_dir_all(place.join("objects/info")).map_err(io)?;
    fs::create_dir_all(place.join("hooks")).map_err(io)?;
    fs::write(place.join("objects/info/alternates"), borrowed).map_err(io)?;
    fs::write(place.join("HEAD"), format!("{commit}\n")).map_err(io)?;
    ask("git-read", &words(&["read-tree", "HEAD"]))?;
    ask("git-refresh", &words(&["update-index", "-q", "--refresh"])).or(Ok(()))
}

/// Where the objects are that the git folder of a tree borrows.
pub(super) fn borrowed(shadow: &Shadow<'_>) -> PathBuf {
    shadow.folder().join("objects")
}
