//! Tools that are builtin functions: executed in this process, without a worker, and otherwise like any attempt.
//!
//! Owns their cancellation and their time limit. File functions work in the step's folder, through its confined names:
//! no part of a name may be a link, Skein's state is neither read nor written, and protected files are not written. No
//! part of a value is ever executed. Functions of small values run on the host loop: a thread for each would take
//! longer than the function.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Map, Value, json};
use skein_core::{
    engine::{AttemptAssignment, AttemptEnd, AttemptId, AttemptReport, AttemptRole, Cost},
    ir::{ErrorClass, StepKindSpec},
    limits,
    time::Millis,
};

use crate::{
    cancel_token::CancelToken,
    executor::{
        ExecutorContext, WorkKey,
        attempt::{
            command::to_plain_text,
            non_retryable,
            spec::{AttemptSpec, planned_step},
        },
        evidence::protect::ProtectionRules,
        tools,
        worktree::{WorktreeError, git::GitRunner},
    },
    executor_api::{ActiveRun, AttemptReporter},
    process::MarkedWork,
    run_settings::{BuiltinFunction, ToolSettings},
    workspace::{
        RepositoryScan, RootFolder, control_owner,
        root::{EntryKind, FilePathError},
    },
};

/// The error of a call: a code that workflows can match, and a message.
pub(crate) struct BuiltinError {
    class: ErrorClass,
    code: &'static str,
    message: String,
}

impl BuiltinError {
    fn invalid_input(message: impl Into<String>) -> BuiltinError {
        BuiltinError { class: ErrorClass::Validation, code: "input_invalid", message: message.into() }
    }

    fn new(class: ErrorClass, code: &'static str, message: impl ToString) -> BuiltinError {
        BuiltinError { class, code, message: message.to_string() }
    }
}

/// Runs an attempt whose tool is a builtin function.
pub(crate) fn run_function(
    shared: &Arc<ExecutorContext>,
    job: &AttemptSpec,
    function: BuiltinFunction,
    key: &WorkKey,
    finish: AttemptReporter,
) {
    let end = match (shared.register_call(key), job.tool()) {
        (None, _) => AttemptEnd::Stopped,
        (Some(_), None) => non_retryable("the tool of this step is no longer configured").into(),
        (Some(call), Some(tool)) => {
            BuiltinCall { shared, job, call: &call, limit: time_limit(job, tool) }.run(tool, function)
        }
    };
    shared.finish_without_cost(key, end, finish);
}

fn time_limit(job: &AttemptSpec, tool: &ToolSettings) -> Option<Duration> {
    let least = [job.timeouts.total, tool.limit].into_iter().flatten().min();
    least.map(|Millis(length)| Duration::from_millis(length))
}

struct BuiltinCall<'a> {
    shared: &'a ExecutorContext,
    job: &'a AttemptSpec,
    call: &'a Arc<CancelToken>,
    limit: Option<Duration>,
}

impl BuiltinCall<'_> {
    /// Runs the call and determines its end, by the same rules as for a program.
    fn run(&self, tool: &ToolSettings, function: BuiltinFunction) -> AttemptEnd {
        let mut begun = None;
        let end = call_function(tool, &self.job.given.inputs, |inputs| {
            begun = Some(Instant::now());
            self.dispatch(function, inputs)
        });
        // Without a beginning, the inputs were refused.
        let Some(begun) = begun else { return end };
        match end {
            _ if self.call.is_cancelled() => AttemptEnd::Stopped,
            _ if self.limit.is_some_and(|limit| begun.elapsed() >= limit) => AttemptEnd::TimedOut,
            end => end,
        }
    }

    fn dispatch(&self, function: BuiltinFunction, inputs: &Value) -> Result<Value, BuiltinError> {
        match function {
            BuiltinFunction::Sleep => self.sleep(inputs),
            BuiltinFunction::FilesRead => self.with_files(|files| files.read_file(inputs)),
            BuiltinFunction::FilesWrite => self.with_files(|files| files.write_file(inputs)),
            BuiltinFunction::FilesList => self.with_files(|files| files.list_folder(inputs)),
            BuiltinFunction::FilesExists => self.with_files(|files| files.check_exists(inputs)),
            BuiltinFunction::FilesRemove => self.with_files(|files| files.remove_file(inputs)),
            BuiltinFunction::GitStatus => self.with_git(|git| git.status()),
            BuiltinFunction::GitDiff => {
                let base = optional_text(inputs, "against")?.unwrap_or("HEAD");
                self.with_git(|git| git.diff(base))
            }
            _ => match find_value_function(function) {
                Some(function) => function(inputs),
                None => Err(BuiltinError::new(
                    ErrorClass::NonRetryable,
                    "internal",
                    "the function needs the network and must be run as a remote call",
                )),
            },
        }
    }

    fn sleep(&self, inputs: &Value) -> Result<Value, BuiltinError> {
        let length = inputs.get("ms").and_then(Value::as_u64);
        let length =
            length.ok_or_else(|| BuiltinError::invalid_input("`ms` must be a whole number of milliseconds"))?;
        let whole = Duration::from_millis(length);
        self.call.sleep(self.limit.map_or(whole, |limit| whole.min(limit)));
        Ok(json!({"slept_ms": length}))
    }

    /// Opens the folder that the step works in.
    fn open_folder(&self) -> Result<RootFolder, BuiltinError> {
        let grants = self.job.settings.workspace_grants(self.shared.state.path());
        let folder = grants.and_then(|grants| grants.make_folder(self.job.isolation.workspace.as_deref()));
        folder.map_err(|error| BuiltinError::new(ErrorClass::NonRetryable, "unauthorised", error))
    }

    fn with_files(
        &self,
        act: impl FnOnce(&FileFunctions<'_>) -> Result<Value, BuiltinError>,
    ) -> Result<Value, BuiltinError> {
        let folder = self.open_folder()?;
        act(&FileFunctions {
            folder: &folder,
            state: self.shared.state.path(),
            rules: &ProtectionRules::new(self.job, true),
        })
    }

    fn with_git(
        &self,
        ask: impl FnOnce(&GitRunner<'_>) -> Result<Value, WorktreeError>,
    ) -> Result<Value, BuiltinError> {
        let workspace = self.open_folder()?;
        let ours = |error| BuiltinError::new(ErrorClass::Transient, "internal", error);
        let run = self.shared.run_dir(&self.job.run).map_err(ours)?;
        let files = run.create_attempt(self.job.attempt).map_err(ours)?;
        let mark = self.shared.process_mark(&self.job.run, MarkedWork::Attempt(self.job.attempt));
        let limit = self.limit.map(|limit| Millis(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)));
        let git = GitRunner { limit, call: Some(self.call), ..GitRunner::new(workspace.path(), files.root(), &mark) };
        ask(&git).map_err(|why| BuiltinError::new(ErrorClass::External, "upstream_error", why))
    }
}

/// The maximum size of inputs that are processed on the loop, because other runs wait for it.
const MOST: usize = 16 * 1024;

/// Runs an attempt inline and reports its end. Returns `None` if it cannot run inline.
pub(crate) fn run_inline(
    shared: &ExecutorContext,
    running: ActiveRun<'_>,
    attempt: AttemptId,
    task: &AttemptAssignment,
) -> Option<AttemptReport> {
    let StepKindSpec::Work(work) = &planned_step(running, attempt.at).kind else { return None };
    if attempt.role != AttemptRole::Main || !work.evidence.is_empty() || !is_small(&task.given.inputs) {
        return None;
    }
    let tool = running.settings.tools.get(&ToolSettings::settings_key(&work.worker)?)?;
    let function = find_value_function(tool.function?)?;
    let report = AttemptReport::new(call_function(tool, &task.given.inputs, function), Cost::default());
    Some(shared.redact_report(report))
}

type ValueFunction = fn(&Value) -> Result<Value, BuiltinError>;

/// Returns the implementation of a function that depends only on its inputs.
fn find_value_function(function: BuiltinFunction) -> Option<ValueFunction> {
    match function {
        BuiltinFunction::JsonMerge => Some(merge_objects),
        BuiltinFunction::JsonPick => Some(pick_values),
        BuiltinFunction::TextTemplate => Some(fill_template),
        _ => None,
    }
}

/// Calls a function with inputs that match the schema of its tool, and checks its output.
fn call_function(
    tool: &ToolSettings,
    inputs: &Value,
    function: impl FnOnce(&Value) -> Result<Value, BuiltinError>,
) -> AttemptEnd {
    if let Err(end) = tools::check_inputs(tool, inputs) {
        return end.into();
    }
    match function(&tools::rename_inputs(tool, inputs)) {
        Ok(output) => tools::check_output(tool, output),
        Err(BuiltinError { class, code, message }) => tools::failed_call(class, code, message),
    }
}

/// True if a value has at most [`MOST`] bytes, approximately.
fn is_small(value: &Value) -> bool {
    let mut left = MOST;
    let mut todo = vec![value];
    while let Some(value) = todo.pop() {
        let own = match value {
            Value::String(text) => text.len(),
            Value::Array(items) => {
                todo.extend(items.iter().take(MOST));
                items.len()
            }
            Value::Object(fields) => {
                todo.extend(fields.values().take(MOST));
                fields.keys().map(String::len).sum()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        };
        match left.checked_sub(own.max(1)) {
            Some(rest) => left = rest,
            None => return false,
        }
    }
    true
}

/// The maximum number of entries of a folder that is listed.
const ENTRIES: usize = 10_000;

pub(crate) struct FileFunctions<'a> {
    pub folder: &'a RootFolder,
    /// Skein's state folder.
    pub state: &'a Path,
    /// The files that the step must not change.
    pub rules: &'a ProtectionRules,
}

impl FileFunctions<'_> {
    pub(crate) fn read_file(&self, inputs: &Value) -> Result<Value, BuiltinError> {
        let (folder, leaf) = self.open_parent(&self.readable_path(required_text(inputs, "path")?)?)?;
        let bytes = folder.read_file(&leaf, limits::VALUE_BYTES as u64).map_err(path_failure)?;
        let text = String::from_utf8(bytes).map_err(|_| BuiltinError::invalid_input("the file is not valid UTF-8"))?;
        if optional_text(inputs, "as")? == Some("json") {
            let value: Value = serde_json::from_str(&text)
                .map_err(|error| BuiltinError::invalid_input(format!("the file is not valid JSON: {error}")))?;
            return Ok(json!({"value": value}));
        }
        Ok(json!({"text": text}))
    }

    /// Writes `text` as it is, or `value` as JSON. The file is replaced atomically.
    pub(crate) fn write_file(&self, inputs: &Value) -> Result<Value, BuiltinError> {
        let name = self.writable_path(required_text(inputs, "path")?)?;
        let bytes = match (optional_text(inputs, "text")?, inputs.get("value")) {
            (Some(text), None) => text.as_bytes().to_vec(),
            (None, Some(value)) => {
                let mut bytes = serde_json::to_vec_pretty(value).expect("a value is JSON");
                bytes.push(b'\n');
                bytes
            }
            _ => {
                return Err(BuiltinError::invalid_input("exactly one of the inputs `text` and `value` is required"));
            }
        };
        let (Some(parent), Some(leaf)) = (name.parent(), name.file_name()) else {
            return Err(BuiltinError::invalid_input("`path` names the folder itself"));
        };
        let folder = match parent.as_os_str().is_empty() {
            true => self.folder.clone(),
            false => self.folder.make_folders_unsynced(parent, false).map_err(path_failure)?,
        };
        folder.replace_file(leaf, &bytes).map_err(path_failure)?;
        Ok(json!({"path": name, "bytes": bytes.len()}))
    }

    pub(crate) fn list_folder(&self, inputs: &Value) -> Result<Value, BuiltinError> {
        let name = self.readable_path(optional_text(inputs, "path")?.unwrap_or("."))?;
        let folder = if name.as_os_str().is_empty() {
            self.folder.clone()
        } else {
            self.folder.open_folder(&name).map_err(path_failure)?
        };
        let entries = folder.list_entries(ENTRIES).map_err(path_failure)?.into_iter();
        let shown = entries.filter(|entry| self.check_readable(&name.join(&entry.name)).is_ok());
        let entry = |entry: crate::workspace::root::FolderEntry| json!({"name": entry.name.to_string_lossy(), "kind": kind_word(entry.thing)});
        Ok(json!({"entries": shown.map(entry).collect::<Vec<_>>()}))
    }

    pub(crate) fn check_exists(&self, inputs: &Value) -> Result<Value, BuiltinError> {
        let name = self.readable_path(required_text(inputs, "path")?)?;
        let thing =
            match self.open_parent(&name).and_then(|(folder, leaf)| folder.entry_kind(leaf).map_err(path_failure)) {
                Ok(thing) => thing,
                Err(BuiltinError { code: "not_found", .. }) => None,
                Err(wrong) => return Err(wrong),
            };
        Ok(json!({"exists": thing.is_some(), "kind": thing.map(kind_word)}))
    }

    pub(crate) fn remove_file(&self, inputs: &Value) -> Result<Value, BuiltinError> {
        let name = self.writable_path(required_text(inputs, "path")?)?;
        if name.as_os_str().is_empty() {
            return Err(BuiltinError::invalid_input("`path` names the folder itself"));
        }
        if self.holds_protected(&name) {
            return Err(unauthorised_path(&name, "holds files that no step may change"));
        }
        let removed = match self.open_parent(&name) {
            Ok((folder, leaf)) => folder.remove(leaf).map_err(path_failure)?,
            Err(BuiltinError { code: "not_found", .. }) => false,
            Err(wrong) => return Err(wrong),
        };
        Ok(json!({"removed": removed}))
    }

    /// Normalizes a name and checks that it may be read.
    fn readable_path(&self, name: &str) -> Result<PathBuf, BuiltinError> {
        let name = self.folder.normalize_name(name).map_err(path_failure)?;
        self.check_readable(&name)?;
        Ok(name)
    }

    fn check_readable(&self, name: &Path) -> Result<(), BuiltinError> {
        let ours = self.folder.path().join(name).starts_with(self.state) || control_owner(name) == Some("Skein");
        if ours { Err(unauthorised_path(name, "belongs to Skein's own state")) } else { Ok(()) }
    }

    /// Normalizes a name and checks that it may be written.
    fn writable_path(&self, name: &str) -> Result<PathBuf, BuiltinError> {
        let name = self.readable_path(name)?;
        let text = name.to_string_lossy();
        let named = || self.git_configured_files().iter().any(|place| name.starts_with(place));
        if self.rules.is_unprotected(&text) {
            return Ok(name);
        }
        if self.rules.covers(&text) || named() {
            let why = "is protected; list it in the step's `unprotect` to allow the change";
            return Err(unauthorised_path(&name, why));
        }
        match control_owner(&name) {
            Some(owner) => {
                Err(unauthorised_path(&name, &format!("is a control file of {owner}, which tools may not write")))
            }
            None => Ok(name),
        }
    }

    /// The hooks and configuration files that git's configuration names.
    fn git_configured_files(&self) -> BTreeSet<String> {
        match self.rules.repositories {
            true => RepositoryScan::named_by_configuration(self.folder),
            false => BTreeSet::new(),
        }
    }

    /// True if a folder holds something that may not be changed, judged by names alone.
    fn holds_protected(&self, name: &Path) -> bool {
        let below = |path: &str| Path::new(path).starts_with(name);
        self.rules.has_protected_below(name, self.folder)
            || self.git_configured_files().iter().any(|path| below(path))
            || self.state.starts_with(self.folder.path().join(name))
    }

    /// Opens the parent folder of a name, and returns it with the last part. No part of the path is a link.
    fn open_parent(&self, name: &Path) -> Result<(RootFolder, PathBuf), BuiltinError> {
        let leaf = name.file_name().map_or_else(|| PathBuf::from("."), PathBuf::from);
        match name.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => Ok((self.folder.open_folder(parent).map_err(path_failure)?, leaf)),
            None => Ok((self.folder.clone(), leaf)),
        }
    }
}

fn kind_word(thing: EntryKind) -> &'static str {
    match thing {
        EntryKind::File => "file",
        EntryKind::Folder => "folder",
        EntryKind::Link => "link",
        EntryKind::Fifo | EntryKind::Socket | EntryKind::Device => "other",
    }
}

fn unauthorised_path(name: &Path, why: &str) -> BuiltinError {
    BuiltinError::new(ErrorClass::NonRetryable, "unauthorised", format!("`{}` {why}", name.display()))
}

fn path_failure(error: FilePathError) -> BuiltinError {
    match &error {
        error if error.is_missing() => BuiltinError::new(ErrorClass::NonRetryable, "not_found", error),
        error if error.is_no_space() => BuiltinError::new(ErrorClass::Transient, "internal", error),
        error => BuiltinError::new(ErrorClass::NonRetryable, "input_invalid", error),
    }
}

/// The maximum nesting depth of merged values.
const DEEPEST: usize = 64;
pub(crate) fn required_text<'a>(inputs: &'a Value, name: &str) -> Result<&'a str, BuiltinError> {
    optional_text(inputs, name)?
        .ok_or_else(|| BuiltinError::invalid_input(format!("the input `{name}` is required and must be a string")))
}
pub(crate) fn optional_text<'a>(inputs: &'a Value, name: &str) -> Result<Option<&'a str>, BuiltinError> {
    match inputs.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(BuiltinError::invalid_input(format!("the input `{name}` must be a string"))),
    }
}

/// Merges the objects of `values`. Later objects override earlier ones.
pub(crate) fn merge_objects(inputs: &Value) -> Result<Value, BuiltinError> {
    let values = inputs.get("values").and_then(Value::as_array);
    let values = values
        .ok_or_else(|| BuiltinError::invalid_input("the input `values` is required and must be a list of objects"))?;
    let mut whole = Value::Object(Map::new());
    for value in values {
        if !value.is_object() {
            return Err(BuiltinError::invalid_input("every item of `values` must be an object"));
        }
        merge_into(&mut whole, value, DEEPEST)?;
    }
    Ok(json!({"value": whole}))
}

/// Recursion is bounded by `depth`.
fn merge_into(under: &mut Value, value: &Value, depth: usize) -> Result<(), BuiltinError> {
    if depth == 0 {
        return Err(BuiltinError::invalid_input(format!(
            "the objects in `values` are nested more than {DEEPEST} levels deep"
        )));
    }
    match (under, value) {
        (Value::Object(under), Value::Object(fields)) => {
            for (name, value) in fields {
                merge_into(under.entry(name).or_insert(Value::Null), value, depth - 1)?;
            }
        }
        (under, value) => *under = value.clone(),
    }
    Ok(())
}

/// Picks values out of `value`: for each name in `paths`, the value at its pointer, or null.
pub(crate) fn pick_values(inputs: &Value) -> Result<Value, BuiltinError> {
    let value = inputs.get("value").ok_or_else(|| BuiltinError::invalid_input("the input `value` is required"))?;
    let paths = inputs.get("paths").and_then(Value::as_object);
    let paths = paths.ok_or_else(|| {
        BuiltinError::invalid_input("the input `paths` is required: an object of JSON pointers such as `/a/0`")
    })?;
    let mut picked = Map::new();
    for (name, pointer) in paths {
        let pointer = pointer.as_str().filter(|text| text.is_empty() || text.starts_with('/'));
        let pointer = pointer.ok_or_else(|| {
            BuiltinError::invalid_input(format!("the path `{name}` is not a JSON pointer such as `/a/0`"))
        })?;
        picked.insert(name.clone(), value.pointer(pointer).cloned().unwrap_or_default());
    }
    Ok(Value::Object(picked))
}

/// Fills `{{name}}` and `{{name.field}}` of `template` with `values`. An inserted value is not expanded again.
pub(crate) fn fill_template(inputs: &Value) -> Result<Value, BuiltinError> {
    let template = required_text(inputs, "template")?;
    let values = inputs.get("values").unwrap_or(&Value::Null);
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, left)) = after.split_once("}}") else {
            return Err(BuiltinError::invalid_input("`template` has a `{{` that is never closed"));
        };
        let name = name.trim();
        let found = name.split('.').try_fold(values, |value, part| value.get(part));
        let found = found.ok_or_else(|| {
            BuiltinError::invalid_input(format!("`template` refers to `{name}`, which is not in `values`"))
        })?;
        filled.push_str(before);
        filled.push_str(&to_plain_text(found));
        if filled.len() > skein_core::limits::VALUE_BYTES {
            return Err(BuiltinError::invalid_input(format!(
                "the text is more than {} bytes",
                skein_core::limits::VALUE_BYTES
            )));
        }
        rest = left;
    }
    filled.push_str(rest);
    Ok(json!({"text": filled}))
}

#[cfg(test)]
mod values_tests {
    use super::*;

    fn wrong(done: Result<Value, BuiltinError>) -> String {
        done.err().map(|wrong| format!("{} {}", wrong.code, wrong.message)).unwrap_or_default()
    }

    #[test]
    fn objects_are_put_together_from_the_first_to_the_last() {
        let values = json!({"values": [{"a": {"b": 1, "c": 2}, "l": [1]}, {"a": {"b": 3}, "l": [2]}]});
        assert_eq!(merge_objects(&values).ok(), Some(json!({"value": {"a": {"b": 3, "c": 2}, "l": [2]}})));
        assert!(wrong(merge_objects(&json!({"values": [1]}))).contains("must be an object"));
        assert!(wrong(merge_objects(&json!({}))).starts_with("input_invalid"));
        let deep = (0..100).fold(json!({}), |inner, _| json!({"x": inner}));
        assert!(wrong(merge_objects(&json!({"values": [deep.clone(), deep]}))).contains("deep"));
    }

    #[test]
    fn values_are_taken_out_by_pointers() {
        let inputs = json!({"value": {"a": [{"b": 7}]}, "paths": {"n": "/a/0/b", "none": "/x", "all": ""}});
        assert_eq!(pick_values(&inputs).ok(), Some(json!({"n": 7, "none": null, "all": {"a": [{"b": 7}]}})));
        assert!(wrong(pick_values(&json!({"value": 1, "paths": {"n": "a"}}))).contains("not a JSON pointer"));
    }

    #[test]
    fn a_value_is_put_into_a_text_and_not_read_again() {
        let inputs = json!({"template": "{{ who.name }} owes {{n}}", "values": {"who": {"name": "{{n}}"}, "n": 5}});
        assert_eq!(fill_template(&inputs).ok(), Some(json!({"text": "{{n}} owes 5"})));
        assert!(wrong(fill_template(&json!({"template": "{{x}}", "values": {}}))).contains("`x`"));
        assert!(wrong(fill_template(&json!({"template": "{{x"}))).contains("never closed"));
    }
}

#[cfg(test)]
mod files_tests {
    use std::fs;

    use super::*;

    /// The error code of a refused call, or an empty text.
    fn code(done: Result<Value, BuiltinError>) -> &'static str {
        done.err().map(|wrong| wrong.code).unwrap_or_default()
    }

    #[test]
    fn files_are_written_read_listed_and_removed_in_the_folder() {
        let place = tempfile::tempdir().unwrap();
        let root = RootFolder::open(place.path()).unwrap();
        let rules = ProtectionRules::from_patterns(&[]);
        let files = FileFunctions { folder: &root, state: Path::new("/nowhere"), rules: &rules };
        assert_eq!(files.write_file(&json!({"path": "a/b.json", "value": {"n": 1}})).ok().unwrap()["bytes"], 13);
        assert_eq!(files.read_file(&json!({"path": "a/b.json", "as": "json"})).ok(), Some(json!({"value": {"n": 1}})));
        let listed = files.list_folder(&json!({"path": "a"})).ok();
        assert_eq!(listed, Some(json!({"entries": [{"name": "b.json", "kind": "file"}]})));
        assert_eq!(files.check_exists(&json!({"path": "a"})).ok().unwrap()["kind"], "folder");
        assert_eq!(files.remove_file(&json!({"path": "a"})).ok(), Some(json!({"removed": true})));
        assert_eq!(files.check_exists(&json!({"path": "a/b.json"})).ok().unwrap()["exists"], false);
        assert_eq!(code(files.read_file(&json!({"path": "a/b.json"}))), "not_found");
    }

    #[test]
    fn nothing_outside_and_nothing_of_ours_is_touched() {
        let place = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("x"), "secret").unwrap();
        let whole = fs::canonicalize(place.path()).unwrap();
        fs::create_dir_all(whole.join("kept/db")).unwrap();
        fs::create_dir_all(whole.join(".git/hooks")).unwrap();
        fs::write(whole.join(".git/config"), "[core]\nhooksPath = tools/hooks\n").unwrap();
        std::os::unix::fs::symlink(outside.path(), whole.join("link")).unwrap();
        std::os::unix::fs::symlink(whole.join("kept"), whole.join("sneaky")).unwrap();
        let root = RootFolder::open(&whole).unwrap();
        let state = whole.join("kept");
        let rules = ProtectionRules::from_patterns(&[]);
        let files = FileFunctions { folder: &root, state: &state, rules: &rules };
        let path = |path: &str| json!({"path": path, "text": "x"});
        for bad in ["../x", "/etc/passwd", "link/x", "kept/db", ".skein/x", "sneaky/db"] {
            assert_ne!(code(files.read_file(&path(bad))), "", "{bad}");
            assert_ne!(code(files.write_file(&path(bad))), "", "{bad}");
        }
        for bad in [
            ".git/config",
            ".git/hooks/pre-commit",
            ".claude/settings.json",
            ".mcp.json",
            "tools/hooks/pre-commit",
            ".husky/pre-commit",
        ] {
            assert_eq!(code(files.write_file(&path(bad))), "unauthorised", "{bad}");
        }
        assert_eq!(code(files.remove_file(&path(".git"))), "unauthorised");
        assert_eq!(code(files.remove_file(&path("tools"))), "unauthorised");
        assert_eq!(code(files.remove_file(&path("."))), "input_invalid");
        let rules = ProtectionRules::from_patterns(&["src/**"]);
        let guarded = FileFunctions { rules: &rules, ..files };
        assert_eq!(code(guarded.write_file(&path(".git/config"))), "unauthorised");
        assert_eq!(code(guarded.write_file(&path("src/a.rs"))), "unauthorised");
        assert!(fs::read_dir(outside.path()).unwrap().count() == 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_has_one_name_in_drivers_and_in_what_is_kept() {
        for function in BuiltinFunction::ALL {
            assert_eq!(BuiltinFunction::from_name(function.name()), Some(function));
            assert_eq!(serde_json::to_value(function).unwrap(), function.name());
        }
        assert_eq!(BuiltinFunction::from_name("json-merge"), Some(BuiltinFunction::JsonMerge));
        assert_eq!(BuiltinFunction::from_name("shell.run"), None);
    }
}

#[cfg(test)]
mod inline_tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_large_is_not_done_by_the_loop() {
        assert!(is_small(&json!({"values": [{"a": "text", "b": [1, null, true]}]})));
        assert!(is_small(&json!("x".repeat(MOST))));
        assert!(!is_small(&json!("x".repeat(MOST + 1))));
        assert!(!is_small(&json!({"values": vec![7; MOST]})));
        assert!(!is_small(&json!(vec![vec![Vec::<u8>::new(); 200]; 200])));
        assert!(!is_small(&json!({"x".repeat(MOST + 1): 1})));
    }
}
