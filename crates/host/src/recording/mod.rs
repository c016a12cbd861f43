//! A recording: the requests to the workers of a run and their results, as files that a team keeps with its workflow.
//!
//! Owns the layout and its names, and the form of a request: placeholders stand for paths of this machine and the id of
//! this run. Does not know how work is requested or done. Everything in it is sorted and free of times, ids and paths of
//! the machine, so that recording the same run again changes nothing.
//!
//! ```text
//! recording.json                     the workflow of the recording
//! decisions.json                     decisions of people, and received signals
//! steps/<path>/<role>-<visit>.<iteration>.<n>.json      one request and its result
//! steps/<path>/<role>-<visit>.<iteration>.<n>.files/    the files that it changed in its workspace
//! steps/<path>/<role>-<visit>.<iteration>.<n>.apart/    the result files outside of its workspace
//! try-<n>/steps/…                    the same for a run that was retried as a whole
//! ```

mod decisions;
mod workspace_scan;

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use skein_core::{
    engine::{AttemptEnd, AttemptId, AttemptMode, AttemptRole, Cost, EvidenceResult},
    time::Timestamp,
};

use crate::{
    json_text::escape_invisible,
    workspace::{
        RootFolder, RunDir,
        root::{EntryKind, FilePathError},
    },
};

pub(crate) use self::decisions::TIME;

pub use self::{
    decisions::{RecordedAnswer, RecordedDecision, collect_decisions, is_recorded_hold, recorded_waitpoint},
    workspace_scan::{FileSignatures, RecordedChange, RecordedChangeKind, RecordedFiles, WorkspaceScan},
};

const HEADER: &str = "recording.json";
const DECISIONS: &str = "decisions.json";
const STEPS: &str = "steps";
/// The name of the hash in a request.
const HASH: &str = "hash";
/// The layout that this version reads and writes.
const FORMAT: u64 = 1;
/// The maximum size of one request and its result.
const ENTRY_BYTES: u64 = 16 * 1024 * 1024;
/// The maximum number of entries that are listed.
const ENTRIES: usize = 100_000;

/// The identity of an attempt, which is the same in every run of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordingKey {
    /// The number of the try of the whole run, from 1.
    pub whole: u32,
    /// The path of the step.
    pub path: String,
    /// The number of the instance with that path, from 1: a retry of a composite step creates another one.
    pub round: u32,
    pub role: AttemptRole,
    pub visit: u32,
    pub iteration: u32,
    /// The number of the attempt among those that ended, from 1.
    pub n: u32,
}

impl RecordingKey {
    /// Returns the path of the attempt's file, without its extension.
    pub fn file_stem(&self) -> String {
        let whole = if self.whole > 1 { format!("try-{}/", self.whole) } else { String::new() };
        let round = if self.round > 1 { format!("-round{}", self.round) } else { String::new() };
        let RecordingKey { path, role, visit, iteration, n, .. } = self;
        format!("{whole}{STEPS}/{path}/{}-{visit}.{iteration}.{n}{round}", role.as_str())
    }
}

/// A request and its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordingEntry {
    pub request: Value,
    pub result: RecordedResult,
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedResult {
    pub end: AttemptEnd,
    #[serde(default, skip_serializing_if = "Cost::is_zero")]
    pub cost: Cost,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The results of the step's evidence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proofs: Vec<EvidenceResult>,
    /// The changed files in the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<RecordedChange>,
    /// The result files outside of the workspace, in a folder of Skein.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<RecordedChange>,
    /// The reason why the files are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_whole: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    #[error("`{0}` is not a recording: it has no `recording.json`")]
    None(PathBuf),
    #[error("`{0}` is not empty and not a recording; choose an empty folder")]
    Others(PathBuf),
    #[error("`{path}` is a recording of format {form}, and this version reads format {FORMAT}")]
    Form { path: PathBuf, form: u64 },
    #[error("`{0}` cannot be read: {1}")]
    Wrong(String, String),
    #[error("the workspace has more than {0} files")]
    TooManyFiles(usize),
    #[error(
        "`{path}` is larger than {mib} MiB; exclude files from the recording with `.gitignore`, or use a workspace \
         with fewer files"
    )]
    FileTooLarge { path: String, mib: u64 },
    #[error(
        "more than {mib} MiB of files changed; exclude files from the recording with `.gitignore`, or use a workspace \
         with fewer files"
    )]
    TooManyBytes { mib: u64 },
    #[error(transparent)]
    Metadata(#[from] std::io::Error),
    #[error(transparent)]
    Signatures(#[from] serde_json::Error),
    #[error(transparent)]
    Path(#[from] FilePathError),
    #[error("`{0}` cannot be used: {1}")]
    Io(PathBuf, std::io::Error),
}

/// A folder with a recording.
#[derive(Debug, Clone)]
pub struct Recording {
    root: RootFolder,
}

impl Recording {
    pub fn open(path: &Path) -> Result<Recording, RecordingError> {
        let file = path.join(HEADER);
        let bytes = fs::read(&file).map_err(|_| RecordingError::None(path.to_owned()))?;
        let header: Value = serde_json::from_slice(&bytes)
            .map_err(|error| RecordingError::Wrong(file.display().to_string(), error.to_string()))?;
        match header["format"].as_u64() {
            Some(FORMAT) => Ok(Recording { root: RootFolder::open(path)? }),
            form => Err(RecordingError::Form { path: path.to_owned(), form: form.unwrap_or_default() }),
        }
    }

    /// Creates a recording and replaces an earlier one. Other files stay; a folder that has only other files is
    /// rejected.
    pub fn create(path: &Path, workflow: &Value) -> Result<Recording, RecordingError> {
        let io = |error| RecordingError::Io(path.to_owned(), error);
        fs::create_dir_all(path).map_err(io)?;
        let ours = path.join(HEADER).exists();
        let mut entries = fs::read_dir(path).map_err(io)?;
        if !ours && entries.next().is_some() {
            return Err(RecordingError::Others(path.to_owned()));
        }
        let recording = Recording { root: RootFolder::open(path)? };
        for entry in recording.root.list_entries(ENTRIES)? {
            let name = entry.name.to_string_lossy().into_owned();
            if name == STEPS || name == DECISIONS || name.starts_with("try-") {
                recording.root.remove(&name)?;
            }
        }
        recording.write_json(HEADER, &json!({"format": FORMAT, "workflow": workflow}))?;
        Ok(recording)
    }

    pub fn path(&self) -> &Path {
        self.root.path()
    }

    /// Reads the record of an attempt, or `None` if there is none.
    pub fn read_entry(&self, key: &RecordingKey) -> Result<Option<RecordingEntry>, RecordingError> {
        let name = format!("{}.json", key.file_stem());
        let bytes = match self.root.read_file(&name, ENTRY_BYTES) {
            Err(error) if error.is_missing() => return Ok(None),
            other => other?,
        };
        let entry = serde_json::from_slice(&bytes);
        entry.map(Some).map_err(|error| RecordingError::Wrong(name, error.to_string()))
    }

    /// Reads a file that belongs to an attempt.
    pub fn read_file(&self, key: &RecordingKey, kind: RecordedFileKind, path: &str) -> Result<Vec<u8>, RecordingError> {
        Ok(self.root.read_file(kind.file_path(key, path), workspace_scan::FILE_BYTES)?)
    }

    /// Stores an attempt and replaces its earlier record.
    pub(crate) fn write_entry(
        &self,
        key: &RecordingKey,
        entry: &Value,
        files: &[(RecordedFileKind, String, Vec<u8>)],
    ) -> Result<(), RecordingError> {
        for kind in [RecordedFileKind::Files, RecordedFileKind::Apart] {
            self.root.remove(kind.folder_name(key))?;
        }
        for (kind, path, bytes) in files {
            let place = kind.file_path(key, path);
            self.make_parent(&place)?;
            self.root.replace_unsynced(&place, bytes, false)?;
        }
        self.write_json(&format!("{}.json", key.file_stem()), entry)
    }

    fn make_parent(&self, place: &str) -> Result<(), RecordingError> {
        if let Some(parent) = Path::new(place).parent().filter(|parent| !parent.as_os_str().is_empty()) {
            self.root.make_folders(parent, false)?;
        }
        Ok(())
    }

    fn write_json(&self, name: &str, value: &Value) -> Result<(), RecordingError> {
        self.make_parent(name)?;
        let mut text = serde_json::to_string_pretty(&sort_json(value)).expect("it is JSON");
        text.push('\n');
        Ok(self.root.replace_file(name, escape_invisible(&text).as_bytes())?)
    }

    /// Lists the places of all recorded attempts.
    pub fn list_entries(&self) -> Result<Vec<String>, RecordingError> {
        let mut found = Vec::new();
        let mut open = vec![PathBuf::new()];
        while let Some(folder) = open.pop() {
            let here =
                if folder.as_os_str().is_empty() { self.root.clone() } else { self.root.open_folder(&folder)? };
            for entry in here.list_entries(ENTRIES)? {
                let name = entry.name.to_string_lossy().into_owned();
                let path = folder.join(&name);
                let top = folder.as_os_str().is_empty();
                match entry.thing {
                    EntryKind::Folder if name.ends_with(".files") || name.ends_with(".apart") => {}
                    EntryKind::Folder => open.push(path),
                    EntryKind::File if !top && name.ends_with(".json") => {
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

/// The place to which a file of an attempt belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordedFileKind {
    /// The workspace of the attempt.
    Files,
    /// A folder of Skein.
    Apart,
}

impl RecordedFileKind {
    fn folder_name(self, key: &RecordingKey) -> String {
        let ending = match self {
            RecordedFileKind::Files => "files",
            RecordedFileKind::Apart => "apart",
        };
        format!("{}.{ending}", key.file_stem())
    }

    fn file_path(self, key: &RecordingKey, path: &str) -> String {
        format!("{}/{path}", self.folder_name(key))
    }
}

/// Returns an end without times: in a replay every wait is over.
pub(crate) fn strip_times(end: AttemptEnd) -> AttemptEnd {
    let past = |time: Option<Timestamp>| time.map(|_| Timestamp(0));
    match end {
        AttemptEnd::Failed { class, code, message, retry_at } => {
            AttemptEnd::Failed { class, code, message, retry_at: past(retry_at) }
        }
        AttemptEnd::Blocked { reason, until, message } => AttemptEnd::Blocked { reason, until: past(until), message },
        other => other,
    }
}

/// Adds a hash of the whole request to it.
pub(crate) fn with_request_hash(mut request: Value) -> Value {
    let text = serde_json::to_string(&sort_json(&request)).expect("it is JSON");
    let hash = blake3::hash(text.as_bytes()).to_hex();
    if let Value::Object(fields) = &mut request {
        fields.insert(HASH.to_owned(), Value::from(&hash.as_str()[..16]));
    }
    request
}

/// Returns a value with sorted names at every depth.
pub(crate) fn sort_json(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort();
            let pairs = names.into_iter().map(|name| (name.clone(), sort_json(&fields[name])));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(sort_json).collect(),
        other => other.clone(),
    }
}

const NAME: &str = "tape.json";
const BYTES: u64 = 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingMarker {
    /// The attempt's place in the recording.
    pub place: String,
    /// The reason why it is not completely recorded, or cannot be replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl RecordingMarker {
    pub fn write(&self, folder: &RootFolder) -> Result<(), FilePathError> {
        folder.replace_file(NAME, &serde_json::to_vec(self).expect("it is JSON"))
    }

    fn read(folder: &RootFolder) -> Option<RecordingMarker> {
        serde_json::from_slice(&folder.read_file(NAME, BYTES).ok()?).ok()
    }
}

/// Returns the number of this attempt among those that ended, from 1.
pub(crate) fn attempt_ordinal(run: &RunDir, attempt: AttemptId, mode: AttemptMode) -> Result<u32, FilePathError> {
    let mut n = 1;
    for before in 1..attempt.attempt {
        let Some(folder) = run.find_attempt(AttemptId { attempt: before, ..attempt })? else { continue };
        let interrupted = matches!(mode, AttemptMode::Rerun | AttemptMode::Resume | AttemptMode::Restore);
        if interrupted && before + 1 == attempt.attempt {
            // The end was written here, but never reported to the run.
            folder.root().remove(NAME)?;
        }
        n += u32::from(RecordingMarker::read(folder.root()).is_some());
    }
    Ok(n)
}
pub fn read_markers(run: &RunDir) -> Result<Vec<RecordingMarker>, FilePathError> {
    let mut all = Vec::new();
    for attempt in run.list_attempts()? {
        all.extend(run.find_attempt(attempt)?.and_then(|folder| RecordingMarker::read(folder.root())));
    }
    all.sort_by(|a, b| a.place.cmp(&b.place));
    Ok(all)
}

/// The replaced texts with their placeholders. A longer text comes before a shorter one that it may contain.
#[derive(Debug, Clone)]
pub struct PathPlaceholders(Vec<(String, String)>);

impl PathPlaceholders {
    /// Creates the placeholders in the order of the names: of two equal paths, the first gets the placeholder.
    pub fn new(all: &[(&str, &Path)], run: &str) -> PathPlaceholders {
        let mut pairs: Vec<(String, String)> = Vec::new();
        let texts = all.iter().filter_map(|(name, path)| Some((*name, path.to_str()?)));
        for (name, text) in texts.chain([("run", run)]) {
            // The root path is a part of every path.
            if text.len() > 1 && !pairs.iter().any(|(known, _)| known == text) {
                pairs.push((text.to_owned(), format!("<skein:{name}>")));
            }
        }
        pairs.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        PathPlaceholders(pairs)
    }

    /// The placeholders in the other direction: they become the paths of this machine again.
    pub(crate) fn inverse(&self) -> PathPlaceholders {
        PathPlaceholders(self.0.iter().map(|(text, place)| (place.clone(), text.clone())).collect())
    }

    fn replace_text(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    /// Returns a value with all its texts replaced.
    pub(crate) fn replace_value(&self, value: &Value) -> Value {
        map_texts(value, &|text| self.replace_text(text))
    }

    /// Replaces texts in the content of a file. Content that is not UTF-8 stays as it is.
    pub(crate) fn replace_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        String::from_utf8(bytes).map_or_else(|error| error.into_bytes(), |text| self.replace_text(&text).into_bytes())
    }
}

fn map_texts(value: &Value, change: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(change(text)),
        Value::Array(items) => items.iter().map(|item| map_texts(item, change)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (change(name), map_texts(value, change))).collect())
        }
        other => other.clone(),
    }
}

/// The maximum number of lines.
const LINES: usize = 12;
/// The maximum number of characters of one value.
const WIDEST: usize = 160;

/// Describes the difference between the recorded request and the new one. Returns `None` if they are equal.
pub(crate) fn diff_requests(recorded: &Value, asked: &Value) -> Option<String> {
    let mut lines = Vec::new();
    compare_values("", recorded, asked, &mut lines);
    if lines.is_empty() {
        return None;
    }
    let more = lines.len().saturating_sub(LINES);
    lines.truncate(LINES);
    if more > 0 {
        lines.push(format!("and {more} more lines"));
    }
    Some(lines.join("\n"))
}

fn compare_values(path: &str, recorded: &Value, asked: &Value, lines: &mut Vec<String>) {
    match (recorded, asked) {
        _ if recorded == asked => {}
        (Value::Object(before), Value::Object(now)) => {
            let mut names: Vec<&String> = before.keys().chain(now.keys()).collect();
            names.sort();
            names.dedup();
            // A different hash is not informative.
            names.retain(|name| !path.is_empty() || *name != crate::recording::HASH);
            for name in names {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let value = |side: &serde_json::Map<String, Value>| side.get(name).cloned().unwrap_or_default();
                compare_values(&path, &value(before), &value(now), lines);
            }
        }
        // A text is recorded as a list of its lines.
        (Value::Array(before), Value::Array(now)) => {
            let same = before.iter().zip(now).take_while(|(a, b)| a == b).count();
            let ends = before[same..].iter().rev().zip(now[same..].iter().rev());
            let end = ends.take_while(|(a, b)| a == b).count();
            lines.push(format!("{path}, from {} on:", same + 1));
            let shown = |sign: &str, items: &[Value]| {
                items.iter().map(|item| format!("{sign} {}", shorten_value(item))).collect::<Vec<_>>()
            };
            lines.extend(shown("-", &before[same..before.len() - end]));
            lines.extend(shown("+", &now[same..now.len() - end]));
        }
        _ => {
            lines.push(format!("{path}:"));
            lines.push(format!("- {}", shorten_value(recorded)));
            lines.push(format!("+ {}", shorten_value(asked)));
        }
    }
}

fn shorten_value(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null => "(nothing)".to_owned(),
        other => other.to_string(),
    };
    let shown: String = text.chars().take(WIDEST).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if shown.len() < text.len() { format!("{shown}…") } else { shown }
}

#[cfg(test)]
mod request_form_tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn places_go_and_come_back_wherever_they_are() {
        let at = |base: &str, run: &str| {
            let work = format!("{base}/work");
            PathPlaceholders::new(
                &[("state", Path::new(&format!("{work}/.skein"))), ("workspace", Path::new(&work))],
                run,
            )
        };
        let (here, there) = (at("/home/ada", "k3f9"), at("/build", "zz11"));
        let value = json!({"see /home/ada/work": ["/home/ada/work/.skein/x of k3f9", 7]});
        let hidden = here.replace_value(&value);
        assert_eq!(hidden, json!({"see <skein:workspace>": ["<skein:state>/x of <skein:run>", 7]}));
        assert_eq!(
            there.inverse().replace_value(&hidden),
            json!({"see /build/work": ["/build/work/.skein/x of zz11", 7]})
        );
        assert_eq!(here.replace_bytes(vec![0xff, 0]), [0xff, 0]);
    }
}

#[cfg(test)]
mod request_diff_tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_different_is_told() {
        let before = json!({"inputs": {"a": 1, "b": 2}, "instructions": ["One.", "Two.", "Three."]});
        assert_eq!(diff_requests(&before, &before), None);
        let now = json!({"inputs": {"a": 1, "c": 3}, "instructions": ["One.", "Too.", "Three."]});
        let told = diff_requests(&before, &now).unwrap();
        let lines =
            "inputs.b:\n- 2\n+ (nothing)\ninputs.c:\n- (nothing)\n+ 3\ninstructions, from 2 on:\n- Two.\n+ Too.";
        assert_eq!(told, lines);
        let long = json!({"text": vec!["x"; 100]});
        assert!(diff_requests(&long, &json!({"text": []})).unwrap().ends_with("and 89 more lines"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(path: &str) -> RecordingKey {
        RecordingKey { whole: 1, path: path.into(), round: 1, role: AttemptRole::Main, visit: 1, iteration: 2, n: 3 }
    }

    #[test]
    fn a_place_tells_apart_what_paths_do_not() {
        assert_eq!(key("each[3]/child").file_stem(), "steps/each[3]/child/main-1.2.3");
        assert_eq!(RecordingKey { round: 2, ..key("a") }.file_stem(), "steps/a/main-1.2.3-round2");
        assert_eq!(RecordingKey { whole: 2, ..key("a") }.file_stem(), "try-2/steps/a/main-1.2.3");
    }

    #[test]
    fn what_is_written_is_read_and_others_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tape");
        assert!(matches!(Recording::open(&path), Err(RecordingError::None(_))));
        let recording = Recording::create(&path, &json!({"id": "w"})).unwrap();
        let result = RecordedResult {
            end: AttemptEnd::TimedOut,
            cost: Cost::default(),
            by: None,
            proofs: Vec::new(),
            files: vec![RecordedChange { path: "a/b".into(), what: RecordedChangeKind::File }],
            apart: Vec::new(),
            not_whole: None,
        };
        let entry = RecordingEntry { request: json!({"b": 1, "a": 2}), result };
        let value = serde_json::to_value(&entry).unwrap();
        recording.write_entry(&key("x"), &value, &[(RecordedFileKind::Files, "a/b".into(), b"text".to_vec())]).unwrap();
        assert_eq!(recording.read_entry(&key("x")).unwrap(), Some(entry));
        assert_eq!(recording.read_file(&key("x"), RecordedFileKind::Files, "a/b").unwrap(), b"text");
        assert_eq!(recording.read_entry(&key("y")).unwrap(), None);
        assert_eq!(recording.list_entries().unwrap(), ["steps/x/main-1.2.3"]);
        let text = fs::read_to_string(path.join("steps/x/main-1.2.3.json")).unwrap();
        assert!(text.find("\"a\"").unwrap() < text.find("\"b\"").unwrap(), "{text}");
        // A new recording contains nothing of the earlier one.
        fs::write(path.join("README.md"), "ours").unwrap();
        let again = Recording::create(&path, &json!({"id": "w"})).unwrap();
        assert!(again.list_entries().unwrap().is_empty() && path.join("README.md").exists());
        let other = dir.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("x"), "").unwrap();
        assert!(matches!(Recording::create(&other, &json!({})), Err(RecordingError::Others(_))));
    }
}
