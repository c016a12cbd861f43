//! Tools that are builtin functions: executed in this process, without a worker, and otherwise like any attempt.
//!
//! Owns their cancellation and their time limit. File functions use the same confined folder as other steps; no part of a
//! value is ever executed. Functions of small values run on the host loop: a thread for each would take longer than the
//! function.

mod files;
mod values;

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use skein_core::{
    engine::{AttemptAssignment, AttemptEnd, AttemptId, AttemptReport, AttemptRole, Cost},
    ir::{ErrorClass, StepKindSpec},
    time::Millis,
};

use crate::{
    cancel_token::CancelToken,
    executor::{
        attempt::{non_retryable, spec::AttemptSpec},
        evidence::protect::ProtectionRules,
        executor_context::{ExecutorContext, WorkKey},
        tools,
        worktree::{WorktreeError, git::GitRunner},
    },
    executor_api::{ActiveRun, AttemptReporter},
    process::{MarkedWork, ProcessMark},
    run_settings::{BuiltinFunction, ToolSettings},
    workspace::RootFolder,
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
    let least = [job.limit, tool.limit].into_iter().flatten().min();
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
        if let Err(end) = tools::check_inputs(tool, &self.job.given.inputs) {
            return end.into();
        }
        let begun = Instant::now();
        let inputs = tools::rename_inputs(tool, &self.job.given.inputs);
        let done = self.dispatch(function, &inputs);
        match done {
            _ if self.call.is_cancelled() => AttemptEnd::Stopped,
            _ if self.limit.is_some_and(|limit| begun.elapsed() >= limit) => AttemptEnd::TimedOut,
            Ok(output) => tools::check_output(tool, output),
            Err(BuiltinError { class, code, message }) => tools::failed_call(class, code, message),
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
                let base = values::optional_text(inputs, "against")?.unwrap_or("HEAD");
                self.with_git(|git| git.diff(base))
            }
            BuiltinFunction::JsonMerge => values::merge_objects(inputs),
            BuiltinFunction::JsonPick => values::pick_values(inputs),
            BuiltinFunction::TextTemplate => values::fill_template(inputs),
            BuiltinFunction::HttpGet | BuiltinFunction::Notify => Err(BuiltinError::new(
                ErrorClass::NonRetryable,
                "internal",
                "the function needs the network and must be run as a remote call",
            )),
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
        act: impl FnOnce(&files::FileFunctions<'_>) -> Result<Value, BuiltinError>,
    ) -> Result<Value, BuiltinError> {
        let folder = self.open_folder()?;
        act(&files::FileFunctions {
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
        let work = MarkedWork::Attempt(self.job.attempt);
        let mark = ProcessMark { state: self.shared.mark.clone(), run: self.job.run.clone(), work };
        let limit = self.limit.map(|limit| Millis(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)));
        let git = GitRunner { limit, call: Some(self.call), ..GitRunner::new(workspace.path(), files.root(), &mark) };
        ask(&git).map_err(|why| BuiltinError::new(ErrorClass::External, "upstream_error", why))
    }
}

/// True if a path is at or below another.
fn is_below(path: &Path, folder: &Path) -> bool {
    path.starts_with(folder)
}

/// The maximum size of inputs that are processed on the loop, because other runs wait for it.
const MOST: usize = 16 * 1024;

/// Runs an attempt inline and reports its end. Returns `None` if it cannot run inline.
pub fn run_inline(
    shared: &ExecutorContext,
    running: ActiveRun<'_>,
    attempt: AttemptId,
    task: &AttemptAssignment,
) -> Option<AttemptReport> {
    let scope = running.names.scope(attempt.at.0);
    let step = running.plan.definition.scope(scope).step(attempt.at.1);
    let StepKindSpec::Work(work) = &step.kind else { return None };
    if attempt.role != AttemptRole::Main || !work.evidence.is_empty() || !is_small(&task.given.inputs) {
        return None;
    }
    let tool = running.settings.tools.get(&ToolSettings::settings_key(&work.worker)?)?;
    let function = find_value_function(tool.function?)?;
    let report = AttemptReport::new(call_value_function(tool, function, &task.given.inputs), Cost::default());
    Some(shared.redact_report(report))
}

type ValueFunction = fn(&Value) -> Result<Value, BuiltinError>;

/// Returns the implementation of a function that depends only on its inputs.
fn find_value_function(function: BuiltinFunction) -> Option<ValueFunction> {
    match function {
        BuiltinFunction::JsonMerge => Some(values::merge_objects),
        BuiltinFunction::JsonPick => Some(values::pick_values),
        BuiltinFunction::TextTemplate => Some(values::fill_template),
        _ => None,
    }
}

fn call_value_function(tool: &ToolSettings, function: ValueFunction, inputs: &Value) -> AttemptEnd {
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
