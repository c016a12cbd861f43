//! Tools that are servers: asked over the network, or spoken to as a program that was started for it; and our own
//! functions that reach someone outside.
//!
//! Owns what is kept of such a tool, and that its answer is taken up as what a program prints is: one JSON object, which
//! may say that the tool refused. The rest of the attempt is as that of any program.

mod builtin_calls;
mod http;
mod mcp;
mod request;

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use skein_core::{
    limits,
    time::Millis,
    tool_call::{CallTemplate, CallText, JsonPathSegment},
};

use super::{ExecutorContext, WorkKey, attempt_spec::AttemptSpec, run_settings::ToolSettings};
use crate::{
    cancel_token::CancelToken,
    process::{ExceededLimit, ProcessOutcome, ProcessReport, ProcessSpec, StartRefusal},
    redact::Redactor,
};

/// Two clocks that count the same time may be so far apart.
const TICK: Duration = Duration::from_millis(20);

/// Texts by name, such as headers.
pub type NamedTextFields = Vec<(String, CallText)>;

/// A server that does the work of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RemoteTool {
    Http(Box<HttpTool>),
    Mcp(McpTool),
}

/// A request, and what of its answer counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpTool {
    pub method: String,
    pub base: CallText,
    pub endpoint: CallText,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: NamedTextFields,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query: NamedTextFields,
    /// None: the input itself, where the method has a body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<CallTemplate>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extract: Vec<JsonPathSegment>,
    /// The header in which every try at the same says the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_header: Option<String>,
    /// What means that a login is no longer good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired: Option<LoginExpirySign>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LoginExpirySign {
    Status(u16),
    Header(String, String),
}

/// A tool of a server that speaks MCP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpTool {
    pub tool: String,
    pub server: McpEndpoint,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extract: Vec<JsonPathSegment>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum McpEndpoint {
    /// The tool's own program, with these variables more.
    Program(NamedTextFields),
    Url {
        url: CallText,
        headers: NamedTextFields,
    },
}

/// Why a server did not do it: a code that workflows can know, and words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteToolError {
    pub code: String,
    pub message: String,
    pub retryable: bool,
    /// How long it asks to be left alone.
    pub after: Option<Millis>,
}

impl RemoteToolError {
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> RemoteToolError {
        RemoteToolError { code: code.into(), message: message.into(), retryable: false, after: None }
    }

    /// As a tool says that it refused.
    fn to_envelope(&self) -> Value {
        let mut error = json!({"code": self.code, "message": self.message, "retryable": self.retryable});
        if let Some(Millis(after)) = self.after {
            error["retry_after_ms"] = Value::from(after);
        }
        json!({"ok": false, "error": error})
    }
}

/// One call of a server, for an attempt.
pub(super) struct RemoteCall<'a> {
    pub shared: &'a ExecutorContext,
    pub job: &'a AttemptSpec,
    pub tool: &'a ToolSettings,
}

impl RemoteCall<'_> {
    /// Does the work of an attempt. The server of a program is started by its task; nobody else is.
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

    /// Asks someone from within this process.
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
        // Without it nothing is wrong but the log.
        let _ = fs::write(&task.log, self.shared.redactor.redact_str(&log));
        let kept = write_result(&self.shared.redactor, task.stdout.as_deref(), &said);
        ProcessReport::without_process(kept.unwrap_or(how), begun)
    }

    /// A step that may not use the network does not use it through us either.
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

/// Keeps what was said where a program's output would be. How it ended, if it cannot be kept.
fn write_result(
    redactor: &Redactor,
    stdout: Option<&Path>,
    said: &Result<Value, RemoteToolError>,
) -> Option<ProcessOutcome> {
    let value = said.as_ref().map_or_else(RemoteToolError::to_envelope, Value::clone);
    let printed = redactor.redact_value(&value).to_string();
    let error = fs::write(stdout?, printed).err()?;
    Some(ProcessOutcome::CannotStart(StartRefusal::Other(format!("what was said cannot be kept: {error}"))))
}

impl ExecutorContext {
    /// From now on it is done in this process, and stopped by this. None: it was called off before.
    pub(super) fn register_call(&self, key: &WorkKey) -> Option<Arc<CancelToken>> {
        match self.active_work().get_mut(key) {
            Some(live @ super::ActiveWork::Ahead { stopped: false }) => {
                let stop = Arc::new(CancelToken::default());
                *live = super::ActiveWork::Called(Arc::clone(&stop));
                Some(stop)
            }
            _ => None,
        }
    }
}

/// What is given of a value: itself where it is an object, or else as its body.
fn to_object(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(fields),
        Value::Null => json!({}),
        other => json!({"body": other}),
    }
}

/// The part of a value that counts.
fn extract_part(parts: &[JsonPathSegment], value: Value) -> Result<Value, RemoteToolError> {
    if parts.is_empty() {
        return Ok(value);
    }
    JsonPathSegment::select_value(parts, &value).ok_or_else(|| {
        RemoteToolError::new(
            "output_invalid",
            "the answer does not have the part that its driver takes out of it",
        )
    })
}
