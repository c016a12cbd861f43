//! Tools that are functions of our own: done in this process, without a worker, and otherwise like any attempt.
//!
//! Owns which functions there are, and that one can be called off and does not last longer than it may. What each does to
//! files goes through the same confined folder that other steps have; nothing of a value is ever run.

mod at_once;
mod files;
mod values;

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use skein_core::{engine::AttemptEnd, ir::ErrorClass, time::Millis};

pub(super) use at_once::at_once;

use super::{Doing, Shared, about::Tool, attempt::never, git::Git, job::Job, protect::ProtectionRules, tool};
use crate::{
    hands::Finish,
    stop::Stop,
    worker::{Mark, Work},
    workspace::Root,
};

/// A function that a driver of the kind `builtin` can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Function {
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

impl Function {
    pub const ALL: [Function; 13] = [
        Function::FilesRead,
        Function::FilesWrite,
        Function::FilesList,
        Function::FilesExists,
        Function::FilesRemove,
        Function::JsonMerge,
        Function::JsonPick,
        Function::TextTemplate,
        Function::Sleep,
        Function::GitStatus,
        Function::GitDiff,
        Function::HttpGet,
        Function::Notify,
    ];

    /// What a driver calls it.
    pub fn name(self) -> &'static str {
        match self {
            Function::FilesRead => "files.read",
            Function::FilesWrite => "files.write",
            Function::FilesList => "files.list",
            Function::FilesExists => "files.exists",
            Function::FilesRemove => "files.remove",
            Function::JsonMerge => "json.merge",
            Function::JsonPick => "json.pick",
            Function::TextTemplate => "text.template",
            Function::Sleep => "sleep",
            Function::GitStatus => "git.status",
            Function::GitDiff => "git.diff",
            Function::HttpGet => "http.get",
            Function::Notify => "notify",
        }
    }

    /// Whether it asks or tells someone outside. It is then done, recorded and replayed as the call of a server is.
    pub fn reaches_out(self) -> bool {
        matches!(self, Function::HttpGet | Function::Notify)
    }

    /// The function of a name. Dashes do for dots, so that a tool's own id can be the name.
    pub fn named(name: &str) -> Option<Function> {
        let same = |function: &Function| function.name().replace('.', "-") == name.replace('.', "-");
        Function::ALL.into_iter().find(same)
    }
}

/// What is wrong with a call: a code that workflows can know, and words.
pub(super) struct Wrong {
    class: ErrorClass,
    code: &'static str,
    message: String,
}

impl Wrong {
    fn input(message: impl Into<String>) -> Wrong {
        Wrong { class: ErrorClass::Validation, code: "input_invalid", message: message.into() }
    }

    fn new(class: ErrorClass, code: &'static str, message: impl ToString) -> Wrong {
        Wrong { class, code, message: message.to_string() }
    }
}

/// Does an attempt whose tool is a function.
pub(super) fn work(shared: &Arc<Shared>, job: &Job, function: Function, key: &Doing, finish: Finish) {
    let end = match (shared.called(key), job.tool()) {
        (None, _) => AttemptEnd::Stopped,
        (Some(_), None) => never("the tool of this step is gone"),
        (Some(call), Some(tool)) => {
            Doer { shared, job, call: &call, limit: limit(job, tool) }.end(tool, function)
        }
    };
    shared.end(key, end, finish);
}

fn limit(job: &Job, tool: &Tool) -> Option<Duration> {
    let least = [job.limit, tool.limit].into_iter().flatten().min();
    least.map(|Millis(length)| Duration::from_millis(length))
}

struct Doer<'a> {
    shared: &'a Shared,
    job: &'a Job,
    call: &'a Arc<Stop>,
    limit: Option<Duration>,
}

impl Doer<'_> {
    /// What became of the call, by the same rules as for a program.
    fn end(&self, tool: &Tool, function: Function) -> AttemptEnd {
        if let Err(end) = tool::check_inputs(tool, &self.job.given.inputs) {
            return end;
        }
        let begun = Instant::now();
        let inputs = tool::renamed(tool, &self.job.given.inputs);
        let done = self.call(function, &inputs);
        match done {
            _ if self.call.is_stopped() => AttemptEnd::Stopped,
            _ if self.limit.is_some_and(|limit| begun.elapsed() >= limit) => AttemptEnd::TimedOut,
            Ok(output) => tool::given(tool, output),
            Err(Wrong { class, code, message }) => tool::failed(class, code, message),
        }
    }

    fn call(&self, function: Function, inputs: &Value) -> Result<Value, Wrong> {
        match function {
            Function::Sleep => self.sleep(inputs),
            Function::FilesRead => self.files(|files| files.read(inputs)),
            Function::FilesWrite => self.files(|files| files.write(inputs)),
            Function::FilesList => self.files(|files| files.list(inputs)),
            Function::FilesExists => self.files(|files| files.exists(inputs)),
            Function::FilesRemove => self.files(|files| files.remove(inputs)),
            Function::GitStatus => self.git(|git| git.status()),
            Function::GitDiff => {
                let base = values::optional(inputs, "against")?.unwrap_or("HEAD");
                self.git(|git| git.diff(base))
            }
            Function::JsonMerge => values::merge(inputs),
            Function::JsonPick => values::pick(inputs),
            Function::TextTemplate => values::template(inputs),
            Function::HttpGet | Function::Notify => {
                Err(Wrong::new(ErrorClass::NonRetryable, "internal", "it reaches out of this machine"))
            }
        }
    }

    fn sleep(&self, inputs: &Value) -> Result<Value, Wrong> {
        let length = inputs.get("ms").and_then(Value::as_u64);
        let length = length.ok_or_else(|| Wrong::input("`ms` says how long, in whole milliseconds"))?;
        let whole = Duration::from_millis(length);
        self.call.sleep(self.limit.map_or(whole, |limit| whole.min(limit)));
        Ok(json!({"slept_ms": length}))
    }

    /// The folder that the step works in.
    fn folder(&self) -> Result<Root, Wrong> {
        let grants = self.job.about.grants(self.shared.state.path());
        let folder = grants.and_then(|grants| grants.make_folder(self.job.isolation.workspace.as_deref()));
        folder.map_err(|error| Wrong::new(ErrorClass::NonRetryable, "unauthorised", error))
    }

    fn files(&self, act: impl FnOnce(&files::Files<'_>) -> Result<Value, Wrong>) -> Result<Value, Wrong> {
        let folder = self.folder()?;
        act(&files::Files {
            folder: &folder,
            state: self.shared.state.path(),
            rules: &ProtectionRules::new(self.job, true),
        })
    }

    fn git(&self, ask: impl FnOnce(&Git<'_>) -> Result<Value, String>) -> Result<Value, Wrong> {
        let workspace = self.folder()?;
        let ours = |error| Wrong::new(ErrorClass::Transient, "internal", error);
        let run = self.shared.run_dir(&self.job.run).map_err(ours)?;
        let files = run.attempt(self.job.attempt).map_err(ours)?;
        let work = Work::Attempt(self.job.attempt);
        let mark = Mark { state: self.shared.mark.clone(), run: self.job.run.clone(), work };
        let limit = self.limit.map(|limit| Millis(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)));
        let git = Git { limit, call: Some(self.call), ..Git::new(workspace.path(), files.root(), &mark) };
        ask(&git).map_err(|why| Wrong::new(ErrorClass::External, "upstream_error", why))
    }
}

/// Whether a path is at or below another.
fn is_below(path: &Path, folder: &Path) -> bool {
    path.starts_with(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_has_one_name_in_drivers_and_in_what_is_kept() {
        for function in Function::ALL {
            assert_eq!(Function::named(function.name()), Some(function));
            assert_eq!(serde_json::to_value(function).unwrap(), function.name());
        }
        assert_eq!(Function::named("json-merge"), Some(Function::JsonMerge));
        assert_eq!(Function::named("shell.run"), None);
    }
}
