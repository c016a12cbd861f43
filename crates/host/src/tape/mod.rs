//! A recording: what the workers of a run were asked, and what came of it, as files that a team keeps with its workflow.
//!
//! Owns the layout and its words. Refuses to know how work is asked for or done. Everything in it is sorted and without
//! times, ids and paths of the machine, so that recording the same again changes nothing.
//!
//! ```text
//! recording.json                     which workflow it is of
//! decisions.json                     what people decided, and the signals that came
//! steps/<path>/<role>-<visit>.<iteration>.<n>.json      one request and its result
//! steps/<path>/<role>-<visit>.<iteration>.<n>.files/    the files that it changed in its workspace
//! steps/<path>/<role>-<visit>.<iteration>.<n>.apart/    the files that it gave elsewhere
//! try-<n>/steps/…                    the same for a run that was retried as a whole
//! ```

mod decisions;
mod differs;
mod marker;
mod places;
mod tree;

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use skein_core::{
    engine::{AttemptEnd, Cost, Proof, Role},
    time::Time,
};

pub(crate) use self::decisions::TIME;
pub use self::{
    decisions::{Answer, Decided, asks, counts, decided},
    differs::differs,
    marker::{Marker, markers, ordinal},
    places::Places,
    tree::{Change, Files, Scan, Signs, What},
};
use crate::json_text::escape_invisible;
use crate::workspace::{
    Root,
    root::{PathError, Thing},
};

const ABOUT: &str = "recording.json";
const DECISIONS: &str = "decisions.json";
const STEPS: &str = "steps";
/// The name of its hash in a request.
const HASH: &str = "hash";
/// The layout that this version reads and writes.
const FORMAT: u64 = 1;
/// One request and its result are smaller.
const ENTRY_BYTES: u64 = 16 * 1024 * 1024;
/// No more is looked through.
const ENTRIES: usize = 100_000;

/// Which attempt it is, in words that are the same in every run of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Which try at the whole run, from 1.
    pub whole: u32,
    /// The path of the step.
    pub path: String,
    /// Which instance with that path, from 1: a composite that was tried again has others.
    pub round: u32,
    pub role: Role,
    pub visit: u32,
    pub iteration: u32,
    /// Which of the attempts that came to an end, from 1.
    pub n: u32,
}

impl Key {
    /// The file of it, without its ending.
    pub fn place(&self) -> String {
        let whole = if self.whole > 1 { format!("try-{}/", self.whole) } else { String::new() };
        let round = if self.round > 1 { format!("-round{}", self.round) } else { String::new() };
        let Key { path, role, visit, iteration, n, .. } = self;
        format!("{whole}{STEPS}/{path}/{}-{visit}.{iteration}.{n}{round}", role.as_str())
    }
}

/// A request and its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub request: Value,
    pub result: Taken,
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Taken {
    pub end: AttemptEnd,
    #[serde(default, skip_serializing_if = "Cost::is_zero")]
    pub cost: Cost,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What was found of the step's evidence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proofs: Vec<Proof>,
    /// What it changed in its workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<Change>,
    /// What it gave in a folder of ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<Change>,
    /// Why the files are not here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_whole: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum TapeError {
    #[error("`{0}` is no recording: there is no `recording.json` in it")]
    None(PathBuf),
    #[error("`{0}` is not empty and no recording; name a folder of its own")]
    Others(PathBuf),
    #[error("`{path}` is a recording of the form {form}, and this version knows {FORMAT}")]
    Form { path: PathBuf, form: u64 },
    #[error("`{0}` cannot be read: {1}")]
    Wrong(String, String),
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("`{0}` cannot be used: {1}")]
    Io(PathBuf, std::io::Error),
}

/// A folder with a recording.
#[derive(Debug, Clone)]
pub struct Tape {
    root: Root,
}

impl Tape {
    /// One that is there.
    pub fn open(path: &Path) -> Result<Tape, TapeError> {
        let about = path.join(ABOUT);
        let bytes = fs::read(&about).map_err(|_| TapeError::None(path.to_owned()))?;
        let about: Value = serde_json::from_slice(&bytes)
            .map_err(|error| TapeError::Wrong(about.display().to_string(), error.to_string()))?;
        match about["format"].as_u64() {
            Some(FORMAT) => Ok(Tape { root: Root::open(path)? }),
            form => Err(TapeError::Form { path: path.to_owned(), form: form.unwrap_or_default() }),
        }
    }

    /// A new one, in place of one that was there. Anything else that is there stays, and is no place for one.
    pub fn create(path: &Path, workflow: &Value) -> Result<Tape, TapeError> {
        let io = |error| TapeError::Io(path.to_owned(), error);
        fs::create_dir_all(path).map_err(io)?;
        let ours = path.join(ABOUT).exists();
        let mut others = fs::read_dir(path).map_err(io)?;
        if !ours && others.next().is_some() {
            return Err(TapeError::Others(path.to_owned()));
        }
        let tape = Tape { root: Root::open(path)? };
        for entry in tape.root.entries(ENTRIES)? {
            let name = entry.name.to_string_lossy().into_owned();
            if name == STEPS || name == DECISIONS || name.starts_with("try-") {
                tape.root.remove(&name)?;
            }
        }
        tape.write_json(ABOUT, &json!({"format": FORMAT, "workflow": workflow}))?;
        Ok(tape)
    }

    pub fn path(&self) -> &Path {
        self.root.path()
    }

    /// What was recorded of an attempt. None: nothing.
    pub fn read(&self, key: &Key) -> Result<Option<Entry>, TapeError> {
        let name = format!("{}.json", key.place());
        let bytes = match self.root.read(&name, ENTRY_BYTES) {
            Err(error) if error.is_missing() => return Ok(None),
            other => other?,
        };
        let entry = serde_json::from_slice(&bytes);
        entry.map(Some).map_err(|error| TapeError::Wrong(name, error.to_string()))
    }

    /// A file that goes with an attempt.
    pub fn read_file(&self, key: &Key, kind: Kind, path: &str) -> Result<Vec<u8>, TapeError> {
        Ok(self.root.read(kind.place(key, path), tree::FILE_BYTES)?)
    }

    /// Keeps an attempt in place of what was there of it.
    pub fn write(
        &self,
        key: &Key,
        entry: &Value,
        files: &[(Kind, String, Vec<u8>)],
    ) -> Result<(), TapeError> {
        for kind in [Kind::Files, Kind::Apart] {
            self.root.remove(kind.folder(key))?;
        }
        for (kind, path, bytes) in files {
            let place = kind.place(key, path);
            self.make_parent(&place)?;
            self.root.place(&place, bytes, false)?;
        }
        self.write_json(&format!("{}.json", key.place()), entry)
    }

    fn make_parent(&self, place: &str) -> Result<(), TapeError> {
        if let Some(parent) = Path::new(place).parent().filter(|parent| !parent.as_os_str().is_empty()) {
            self.root.make_folders(parent, false)?;
        }
        Ok(())
    }

    fn write_json(&self, name: &str, value: &Value) -> Result<(), TapeError> {
        self.make_parent(name)?;
        let mut text = serde_json::to_string_pretty(&sorted(value)).expect("it is JSON");
        text.push('\n');
        Ok(self.root.replace(name, escape_invisible(&text).as_bytes())?)
    }

    /// Every attempt that is recorded, by its place.
    pub fn all(&self) -> Result<Vec<String>, TapeError> {
        let mut found = Vec::new();
        let mut open = vec![PathBuf::new()];
        while let Some(folder) = open.pop() {
            let here =
                if folder.as_os_str().is_empty() { self.root.clone() } else { self.root.folder(&folder)? };
            for entry in here.entries(ENTRIES)? {
                let name = entry.name.to_string_lossy().into_owned();
                let path = folder.join(&name);
                let top = folder.as_os_str().is_empty();
                match entry.thing {
                    Thing::Folder if name.ends_with(".files") || name.ends_with(".apart") => {}
                    Thing::Folder => open.push(path),
                    Thing::File if !top && name.ends_with(".json") => {
                        found.push(path.with_extension("").display().to_string());
                    }
                    _ => {}
                }
            }
        }
        found.sort();
        Ok(found)
    }
}

/// Where a file of an attempt belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// In its workspace.
    Files,
    /// In a folder of ours.
    Apart,
}

impl Kind {
    fn folder(self, key: &Key) -> String {
        let ending = match self {
            Kind::Files => "files",
            Kind::Apart => "apart",
        };
        format!("{}.{ending}", key.place())
    }

    fn place(self, key: &Key, path: &str) -> String {
        format!("{}/{path}", self.folder(key))
    }
}

/// An end without times: whatever was waited for is over when it is replayed.
pub fn timeless(end: AttemptEnd) -> AttemptEnd {
    let past = |time: Option<Time>| time.map(|_| Time(0));
    match end {
        AttemptEnd::Failed { class, code, message, retry_at } => {
            AttemptEnd::Failed { class, code, message, retry_at: past(retry_at) }
        }
        AttemptEnd::Blocked { reason, until, message } => {
            AttemptEnd::Blocked { reason, until: past(until), message }
        }
        other => other,
    }
}

/// A request with a hash of all that is in it.
pub fn hashed(mut request: Value) -> Value {
    let text = serde_json::to_string(&sorted(&request)).expect("it is JSON");
    let hash = blake3::hash(text.as_bytes()).to_hex();
    if let Value::Object(fields) = &mut request {
        fields.insert(HASH.to_owned(), Value::from(&hash.as_str()[..16]));
    }
    request
}

/// A value whose names are in order, however deep.
pub fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort();
            let pairs = names.into_iter().map(|name| (name.clone(), sorted(&fields[name])));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(path: &str) -> Key {
        Key { whole: 1, path: path.into(), round: 1, role: Role::Main, visit: 1, iteration: 2, n: 3 }
    }

    #[test]
    fn a_place_tells_apart_what_paths_do_not() {
        assert_eq!(key("each[3]/child").place(), "steps/each[3]/child/main-1.2.3");
        assert_eq!(Key { round: 2, ..key("a") }.place(), "steps/a/main-1.2.3-round2");
        assert_eq!(Key { whole: 2, ..key("a") }.place(), "try-2/steps/a/main-1.2.3");
    }

    #[test]
    fn what_is_written_is_read_and_others_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tape");
        assert!(matches!(Tape::open(&path), Err(TapeError::None(_))));
        let tape = Tape::create(&path, &json!({"id": "w"})).unwrap();
        let result = Taken {
            end: AttemptEnd::TimedOut,
            cost: Cost::default(),
            by: None,
            proofs: Vec::new(),
            files: vec![Change { path: "a/b".into(), what: What::File }],
            apart: Vec::new(),
            not_whole: None,
        };
        let entry = Entry { request: json!({"b": 1, "a": 2}), result };
        let value = serde_json::to_value(&entry).unwrap();
        tape.write(&key("x"), &value, &[(Kind::Files, "a/b".into(), b"text".to_vec())]).unwrap();
        assert_eq!(tape.read(&key("x")).unwrap(), Some(entry));
        assert_eq!(tape.read_file(&key("x"), Kind::Files, "a/b").unwrap(), b"text");
        assert_eq!(tape.read(&key("y")).unwrap(), None);
        assert_eq!(tape.all().unwrap(), ["steps/x/main-1.2.3"]);
        let text = fs::read_to_string(path.join("steps/x/main-1.2.3.json")).unwrap();
        assert!(text.find("\"a\"").unwrap() < text.find("\"b\"").unwrap(), "{text}");
        // Recorded again, nothing of before is left.
        fs::write(path.join("README.md"), "ours").unwrap();
        let again = Tape::create(&path, &json!({"id": "w"})).unwrap();
        assert!(again.all().unwrap().is_empty() && path.join("README.md").exists());
        let other = dir.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("x"), "").unwrap();
        assert!(matches!(Tape::create(&other, &json!({})), Err(TapeError::Others(_))));
    }
}
