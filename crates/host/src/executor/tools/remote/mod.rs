//! Tools that are servers, called over the network or as a program that is started for the call; and builtin functions
//! that communicate with the outside.
//!
//! Owns the settings of such a tool, and the form of its result: one JSON object like the stdout of a program, which
//! may say that the tool refused. The rest of the attempt is like that of any program.

mod builtin_calls;
mod http;
mod mcp;

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use skein_core::{limits, time::Millis, tool_call::JsonPathSegment};

use crate::{
    cancel_token::CancelToken,
    executor::{
        attempt::spec::AttemptSpec,
        executor_context::{ExecutorContext, WorkKey},
    },
    process::{ExceededLimit, ProcessOutcome, ProcessReport, ProcessSpec},
    redact::Redactor,
    run_settings::{McpEndpoint, RemoteTool, ToolSettings},
    start_error::StartRefusal,
};

/// The tolerance between two clocks that measure the same time.
const TICK: Duration = Duration::from_millis(20);

/// The error of a remote call: a code that workflows can match, and a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteToolError {
    pub code: String,
    pub message: String,
    pub retryable: bool,
    /// The delay that the server requests before a retry.
    pub after: Option<Millis>,
}

impl RemoteToolError {
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> RemoteToolError {
        RemoteToolError { code: code.into(), message: message.into(), retryable: false, after: None }
    }

    /// The error in the form in which a tool refuses.
    fn to_envelope(&self) -> Value {
        let mut error = json!({"code": self.code, "message": self.message, "retryable": self.retryable});
        if let Some(Millis(after)) = self.after {
            error["retry_after_ms"] = Value::from(after);
        }
        json!({"ok": false, "error": error})
    }
}

/// One call of a server, for an attempt.
pub(crate) struct RemoteCall<'a> {
    pub shared: &'a ExecutorContext,
    pub job: &'a AttemptSpec,
    pub tool: &'a ToolSettings,
}

impl RemoteCall<'_> {
    /// Runs the call of an attempt. Only a server that is a program starts the task; all others are called in process.
    pub fn run(&self, task: ProcessSpec, key: &WorkKey) -> ProcessReport {
        match &self.tool.remote {
            Some(RemoteTool::Mcp(tool)) if matches!(tool.server, McpEndpoint::Program(_)) => {
                self.call_over_stdio(tool, task, key)
            }
            _ => self.run_in_process(&task, key),
        }
    }

    fn find_secret(&self, name: &str) -> Option<String> {
        let names = [name.to_owned()];
        let found = self.shared.secrets.select_named(&names).ok()?;
        found.first().map(|(_, secret)| secret.expose().to_owned())
    }

    /// Runs the call within this process.
    fn run_in_process(&self, task: &ProcessSpec, key: &WorkKey) -> ProcessReport {
        let begun = Instant::now();
        let Some(stop) = self.shared.register_call(key) else {
            return ProcessReport::without_process(ProcessOutcome::Stopped, begun);
        };
        let limit = timeout_or_default(task.limit);
        let (said, log) = match self.check_network_allowed() {
            Err(trouble) => (Err(trouble), String::new()),
            Ok(()) => match &self.tool.remote {
                Some(RemoteTool::Http(tool)) => self.send_request(tool, limit, &stop),
                Some(RemoteTool::Mcp(tool)) => self.call_over_http(tool, limit, &stop),
                None => self.call_builtin(limit, &stop),
            },
        };
        let how = match () {
            () if stop.is_cancelled() => ProcessOutcome::Stopped,
            () if said.is_err() && begun.elapsed() + TICK >= limit => {
                ProcessOutcome::TimedOut(ExceededLimit::Total(to_millis(limit)))
            }
            () => ProcessOutcome::Exited(0),
        };
        let log = format!("[skein: {log} in {} ms]\n", begun.elapsed().as_millis());
        // If the log cannot be written, only the log is missing.
        let _ = fs::write(&task.log, self.shared.redactor.redact_str(&log));
        let kept = write_result(&self.shared.redactor, task.stdout.as_deref(), &said);
        ProcessReport::without_process(kept.unwrap_or(how), begun)
    }

    /// A step without network access must not use the network through the host either.
    fn check_network_allowed(&self) -> Result<(), RemoteToolError> {
        match self.job.isolation.no_network {
            true => Err(RemoteToolError::new("unauthorised", "this step may not use the network")),
            false => Ok(()),
        }
    }
}

fn timeout_or_default(limit: Option<Millis>) -> Duration {
    Duration::from_millis(limit.map_or(limits::TOOL_CALL, |Millis(length)| length))
}

fn to_millis(length: Duration) -> Millis {
    Millis(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
}

/// Writes the result to the place of a program's stdout. Returns an outcome if that fails.
fn write_result(
    redactor: &Redactor,
    stdout: Option<&Path>,
    said: &Result<Value, RemoteToolError>,
) -> Option<ProcessOutcome> {
    let value = said.as_ref().map_or_else(RemoteToolError::to_envelope, Value::clone);
    let printed = redactor.redact_value(&value).to_string();
    let error = fs::write(stdout?, printed).err()?;
    Some(StartRefusal::Other(format!("the result cannot be written: {error}")).into())
}

impl ExecutorContext {
    /// Registers work that is executed in this process and stopped through a token. `None` if it was stopped before.
    pub(crate) fn register_call(&self, key: &WorkKey) -> Option<Arc<CancelToken>> {
        match self.active_work().get_mut(key) {
            Some(live @ crate::executor::executor_context::ActiveWork::Ahead { stopped: false }) => {
                let stop = Arc::new(CancelToken::default());
                *live = crate::executor::executor_context::ActiveWork::Called(Arc::clone(&stop));
                Some(stop)
            }
            _ => None,
        }
    }
}

/// A value as an object: itself if it is one, or else in the field `body`.
fn to_object(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(fields),
        Value::Null => json!({}),
        other => json!({"body": other}),
    }
}

/// Extracts the relevant part of a value.
fn extract_part(parts: &[JsonPathSegment], value: Value) -> Result<Value, RemoteToolError> {
    if parts.is_empty() {
        return Ok(value);
    }
    JsonPathSegment::select_value(parts, &value).ok_or_else(|| {
        RemoteToolError::new("output_invalid", "the answer does not contain the part that its driver extracts")
    })
}
