//! Tools that are builtin functions: executed in this process, without a worker, and otherwise like any attempt.
//!
//! Owns the list of functions, their cancellation and their time limit. File functions use the same confined folder as
//! other steps; no part of a value is ever executed.

mod files;
mod inline;
mod values;

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use skein_core::{engine::AttemptEnd, ir::ErrorClass, time::Millis};

pub(super) use inline::run_inline;

use super::{
    ExecutorContext, WorkKey, attempt::non_retryable, attempt_spec::AttemptSpec, git::GitRunner,
    protect::ProtectionRules, run_settings::ToolSettings, tool,
};
use crate::{
    cancel_token::CancelToken,
    executor_api::AttemptReporter,
    process::{MarkedWork, ProcessMark},
    workspace::RootFolder,
};

/// A function that a driver of the kind `builtin` can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BuiltinFunction {
    #[serde(rename = "files.read")]
    FilesRead,
    #[serde(rename = "files.write")]
    FilesWrite,
    #[serde(rename = "files.list")]
    FilesList,
    #[serde(rename = "files.exists")]
    FilesExists,
    #[serde(rename = "files.remove")]
    FilesRemove,
    #[serde(rename = "json.merge")]
    JsonMerge,
    #[serde(rename = "json.pick")]
    JsonPick,
    #[serde(rename = "text.template")]
    TextTemplate,
    #[serde(rename = "sleep")]
    Sleep,
    #[serde(rename = "git.status")]
    GitStatus,
    #[serde(rename = "git.diff")]
    GitDiff,
    #[serde(rename = "http.get")]
    HttpGet,
    #[serde(rename = "notify")]
    Notify,
}

impl BuiltinFunction {
    pub const ALL: [BuiltinFunction; 13] = [
        BuiltinFunction::FilesRead,
        BuiltinFunction::FilesWrite,
        BuiltinFunction::FilesList,
        BuiltinFunction::FilesExists,
        BuiltinFunction::FilesRemove,
        BuiltinFunction::JsonMerge,
        BuiltinFunction::JsonPick,
        BuiltinFunction::TextTemplate,
        BuiltinFunction::Sleep,
        BuiltinFunction::GitStatus,
        BuiltinFunction::GitDiff,
        BuiltinFunction::HttpGet,
        BuiltinFunction::Notify,
    ];

    /// The name of the function in a driver.
    pub fn name(self) -> &'static str {
        match self {
            BuiltinFunction::FilesRead => "files.read",
            BuiltinFunction::FilesWrite => "files.write",
            BuiltinFunction::FilesList => "files.list",
            BuiltinFunction::FilesExists => "files.exists",
            BuiltinFunction::FilesRemove => "files.remove",
            BuiltinFunction::JsonMerge => "json.merge",
            BuiltinFunction::JsonPick => "json.pick",
            BuiltinFunction::TextTemplate => "text.template",
            BuiltinFunction::Sleep => "sleep",
            BuiltinFunction::GitStatus => "git.status",
            BuiltinFunction::GitDiff => "git.diff",
            BuiltinFunction::HttpGet => "http.get",
            BuiltinFunction::Notify => "notify",
        }
    }

    /// True if it communicates with the outside. It is then run, recorded and replayed like a call of a server.
    pub fn reaches_out(self) -> bool {
        matches!(self, BuiltinFunction::HttpGet | BuiltinFunction::Notify)
    }

    /// Finds a function by name. Dashes may replace dots, so that a tool's own id can be the name.
    pub fn from_name(name: &str) -> Option<BuiltinFunction> {
        let same = |function: &BuiltinFunction| function.name().replace('.', "-") == name.replace('.', "-");
        BuiltinFunction::ALL.into_iter().find(same)
    }
}

/// The error of a call: a code that workflows can match, and a message.
pub(super) struct BuiltinError {
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
pub(super) fn run_function(
    shared: &Arc<ExecutorContext>,
    job: &AttemptSpec,
    function: BuiltinFunction,
    key: &WorkKey,
    finish: AttemptReporter,
) {
    let end = match (shared.register_call(key), job.tool()) {
        (None, _) => AttemptEnd::Stopped,
        (Some(_), None) => non_retryable("the tool of this step is no longer configured"),
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
        if let Err(end) = tool::check_inputs(tool, &self.job.given.inputs) {
            return end;
        }
        let begun = Instant::now();
        let inputs = tool::rename_inputs(tool, &self.job.given.inputs);
        let done = self.dispatch(function, &inputs);
        match done {
            _ if self.call.is_cancelled() => AttemptEnd::Stopped,
            _ if self.limit.is_some_and(|limit| begun.elapsed() >= limit) => AttemptEnd::TimedOut,
            Ok(output) => tool::check_output(tool, output),
            Err(BuiltinError { class, code, message }) => tool::failed_call(class, code, message),
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
        let length = length
            .ok_or_else(|| BuiltinError::invalid_input("`ms` must be a whole number of milliseconds"))?;
        let whole = Duration::from_millis(length);
        self.call.sleep(self.limit.map_or(whole, |limit| whole.min(limit)));
        Ok(json!({"slept_ms": length}))
    }

    /// Opens the folder that the step works in.
    fn open_folder(&self) -> Result<RootFolder, BuiltinError> {
        let grants = self.job.about.workspace_grants(self.shared.state.path());
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
        ask: impl FnOnce(&GitRunner<'_>) -> Result<Value, String>,
    ) -> Result<Value, BuiltinError> {
        let workspace = self.open_folder()?;
        let ours = |error| BuiltinError::new(ErrorClass::Transient, "internal", error);
        let run = self.shared.run_dir(&self.job.run).map_err(ours)?;
        let files = run.create_attempt(self.job.attempt).map_err(ours)?;
        let work = MarkedWork::Attempt(self.job.attempt);
        let mark = ProcessMark { state: self.shared.mark.clone(), run: self.job.run.clone(), work };
        let limit = self.limit.map(|limit| Millis(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)));
        let git = GitRunner {
            limit,
            call: Some(self.call),
            ..GitRunner::new(workspace.path(), files.root(), &mark)
        };
        ask(&git).map_err(|why| BuiltinError::new(ErrorClass::External, "upstream_error", why))
    }
}

/// True if a path is at or below another.
fn is_below(path: &Path, folder: &Path) -> bool {
    path.starts_with(folder)
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
