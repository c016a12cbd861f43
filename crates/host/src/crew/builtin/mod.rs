//! Tools that are functions of our own: done in this process, without a worker, and otherwise like any attempt.
//!
//! Owns which functions there are, and that one can be called off and does not last longer than it may. What each does to
//! files goes through the same confined folder that other steps have; nothing of a value is ever run.

mod at_once;
mod files;
mod values;

use std::{
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use skein_core::{engine::AttemptEnd, ir::ErrorClass, time::Millis};

pub(super) use at_once::at_once;

use super::{Doing, Live, Shared, about::Tool, attempt::never, git::Git, job::Job, tool};
use crate::{
    hands::Finish,
    worker::{Handle, Mark, Work},
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
}

impl Function {
    pub const ALL: [Function; 11] = [
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
        }
    }

    /// The function of a name. Dashes do for dots, so that a tool's own id can be the name.
    pub fn named(name: &str) -> Option<Function> {
        let same = |function: &Function| function.name().replace('.', "-") == name.replace('.', "-");
        Function::ALL.into_iter().find(same)
    }
}

/// Something that is being done here, and can be called off.
#[derive(Debug, Default)]
pub struct Call {
    state: Mutex<CallState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct CallState {
    stopped: bool,
    /// A program that it asked, and waits for.
    asked: Option<Handle>,
}

impl Call {
    fn state(&self) -> MutexGuard<'_, CallState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn stop(&self) {
        let mut state = self.state();
        state.stopped = true;
        if let Some(asked) = &state.asked {
            asked.stop();
        }
        self.changed.notify_all();
    }

    /// Something was asked of a program, which ends when the call does.
    pub fn asks(&self, handle: Handle) {
        let mut state = self.state();
        if state.stopped {
            handle.stop();
        }
        state.asked = Some(handle);
    }

    fn is_stopped(&self) -> bool {
        self.state().stopped
    }

    /// Waits so long. Whether nobody called it off.
    fn sleep(&self, length: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), length, |state| !state.stopped);
        !waited.unwrap_or_else(PoisonError::into_inner).0.stopped
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
    let call = Arc::new(Call::default());
    let begun = match shared.live().get_mut(key) {
        Some(live @ Live::Ahead { stopped: false }) => {
            *live = Live::Called(Arc::clone(&call));
            true
        }
        _ => false,
    };
    let end = match (begun, job.tool()) {
        (false, _) => AttemptEnd::Stopped,
        (true, None) => never("the tool of this step is gone"),
        (true, Some(tool)) => Doer { shared, job, call: &call, limit: limit(job, tool) }.end(tool, function),
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
    call: &'a Arc<Call>,
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
        if let Some(of_values) = at_once::of_values(function) {
            return of_values(inputs);
        }
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
            Function::JsonMerge | Function::JsonPick | Function::TextTemplate => {
                unreachable!("they are functions of values")
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
            protect: &self.job.isolation.protect,
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

    #[test]
    fn a_sleep_that_is_called_off_ends_at_once() {
        let call = Arc::new(Call::default());
        let other = Arc::clone(&call);
        let sleeper = std::thread::spawn(move || other.sleep(Duration::from_secs(600)));
        call.stop();
        assert!(!sleeper.join().unwrap());
    }
}
