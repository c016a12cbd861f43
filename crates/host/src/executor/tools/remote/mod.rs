//! Tools that are servers, called over the network or as a program that is started for the call; and builtin functions
//! that communicate with the outside, HTTP GET and notifications.
//!
//! Owns the settings of such a tool, and the form of its result: one JSON object like the stdout of a program, which
//! may say that the tool refused. The rest of the attempt is like that of any program.

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

use self::http::{REDIRECTS, check_status, idempotency_key, is_header_text, parse_body, transport_failure};
use crate::{
    cancel_token::CancelToken,
    executor::{
        ActiveWork, ExecutorContext, WorkKey,
        attempt::{AttemptContext, command::base_environment},
        publish::{self, HookError},
        tools,
    },
    http::HttpRequest,
    notify::ChannelMessage,
    process::{self, ExceededLimit, ProcessOutcome, ProcessReport, ProcessSpec},
    redact::Redactor,
    run_settings::{BuiltinFunction, McpEndpoint, RemoteTool, ToolSettings},
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

/// The result of a call, and a line for the log.
pub(crate) type LoggedResult = (Result<Value, RemoteToolError>, String);

/// One call of a server, for an attempt.
pub(crate) struct RemoteCall<'a> {
    pub attempt: &'a AttemptContext,
    pub tool: &'a ToolSettings,
}

impl RemoteCall<'_> {
    /// Runs the call of an attempt. Only a server that is a program starts the task; all others are called in process.
    pub(crate) fn run(&self, task: ProcessSpec, key: &WorkKey) -> ProcessReport {
        match &self.tool.remote {
            Some(RemoteTool::Mcp(tool)) if matches!(tool.server, McpEndpoint::Program(_)) => {
                self.call_over_stdio(tool, task, key)
            }
            _ => self.run_in_process(&task, key),
        }
    }

    fn find_secret(&self, name: &str) -> Option<String> {
        let names = [name.to_owned()];
        let found = self.attempt.shared.secrets.select_named(&names).ok()?;
        found.first().map(|(_, secret)| secret.expose().to_owned())
    }

    /// Runs the call within this process.
    fn run_in_process(&self, task: &ProcessSpec, key: &WorkKey) -> ProcessReport {
        let (begun, shared) = (Instant::now(), &self.attempt.shared);
        let Some(stop) = shared.register_call(key) else {
            return ProcessReport::without_process(ProcessOutcome::Stopped, begun);
        };
        let limit = timeout_or_default(task.limit);
        let (result, log) = match self.check_network_allowed() {
            Err(error) => (Err(error), String::new()),
            Ok(()) => match &self.tool.remote {
                Some(RemoteTool::Http(tool)) => self.send_request(tool, limit, &stop),
                Some(RemoteTool::Mcp(tool)) => self.call_over_http(tool, limit, &stop),
                None => self.call_builtin(limit, &stop),
            },
        };
        let how = match () {
            () if stop.is_cancelled() => ProcessOutcome::Stopped,
            () if result.is_err() && begun.elapsed() + TICK >= limit => {
                ProcessOutcome::TimedOut(ExceededLimit::Total(to_millis(limit)))
            }
            () => ProcessOutcome::Exited(0),
        };
        let log = format!("[skein: {log} in {} ms]\n", begun.elapsed().as_millis());
        // If the log cannot be written, only the log is missing.
        let _ = fs::write(&task.log, shared.redactor.redact_str(&log));
        let failed = write_result(&shared.redactor, task.stdout.as_deref(), &result);
        ProcessReport::without_process(failed.unwrap_or(how), begun)
    }

    /// A step without network access must not use the network through the host either.
    fn check_network_allowed(&self) -> Result<(), RemoteToolError> {
        match self.attempt.job.isolation.no_network {
            true => Err(RemoteToolError::new("unauthorised", "this step may not use the network")),
            false => Ok(()),
        }
    }

    fn call_builtin(&self, limit: Duration, stop: &Arc<CancelToken>) -> LoggedResult {
        let inputs = tools::rename_inputs(self.tool, &self.attempt.job.given.inputs);
        match self.tool.function {
            Some(BuiltinFunction::HttpGet) => self.http_get(&inputs, limit, stop),
            Some(BuiltinFunction::Notify) => (self.send_notification(&inputs, stop), "notify".to_owned()),
            _ => (Err(RemoteToolError::new("internal", "the tool has no remote call")), String::new()),
        }
    }

    fn http_get(&self, inputs: &Value, time: Duration, stop: &Arc<CancelToken>) -> LoggedResult {
        let call = match build_get_call(inputs, time) {
            Ok(call) => call,
            Err(error) => return (Err(error), "GET was not sent".to_owned()),
        };
        match crate::http::send_cancellable(&self.tool.reach, &call, stop) {
            Ok(answer) => {
                let log = format!("GET: status {}, {} bytes", answer.status, answer.body.len());
                let given = || {
                    let kind = answer.header("content-type").unwrap_or_default();
                    let text = String::from_utf8_lossy(&answer.body);
                    let mut given = json!({"status": answer.status, "content_type": kind, "text": text});
                    if kind.contains("json") {
                        given["value"] = parse_body(&answer);
                    }
                    given
                };
                (check_status(&answer).map(|()| given()), log)
            }
            Err(error) => (Err(transport_failure(&error)), format!("GET: {error}")),
        }
    }

    /// Sends a message to a channel of the project.
    fn send_notification(&self, inputs: &Value, stop: &Arc<CancelToken>) -> Result<Value, RemoteToolError> {
        let AttemptContext { shared, job, .. } = self.attempt;
        let text = |name: &str| inputs.get(name).and_then(Value::as_str).map(str::to_owned);
        let needed = |name: &str| {
            text(name).ok_or_else(|| {
                RemoteToolError::new("input_invalid", format!("`{name}` is required and must be a string"))
            })
        };
        let name = needed("channel")?;
        let known = &job.settings.surroundings.channels;
        let own = name.split(':').next().unwrap_or_default();
        let Some(channel) = known.get(&name).or_else(|| known.get(own)) else {
            let message = format!("there is no channel `{name}`: `[channels.{own}]` is missing in skein.toml");
            return Err(RemoteToolError::new("not_found", message));
        };
        let message = ChannelMessage {
            id: idempotency_key(job),
            title: text("title").unwrap_or_else(|| job.path.clone()),
            text: needed("text")?,
            target: name.split_once(':').map(|(_, target)| target.to_owned()),
            body: json!({"event": "notify", "run_id": job.run.as_str(), "step": job.path}),
        };
        let message = publish::redact_message(shared, &message);
        let sent = match publish::find_channel_program(&job.settings, channel, &message) {
            Some(program) => program.and_then(|program| self.notify_by_program(program, stop)),
            None => publish::send_message(shared, channel, &message),
        };
        match sent {
            Ok(()) => Ok(json!({"channel": name, "id": message.id})),
            Err(why) => Err(RemoteToolError::new("upstream_error", format!("no message was sent to `{name}`: {why}"))),
        }
    }

    fn notify_by_program(&self, program: publish::HookProgram, stop: &Arc<CancelToken>) -> Result<(), HookError> {
        let AttemptContext { shared, job, run, files, mark } = self.attempt;
        let folder = job.settings.workspace_grants(shared.state.path())?.open_folder(None)?;
        let grant = program.grant;
        let mut task = program.into_task(folder.path(), files.root().path().join("told.log"), mark.clone());
        task.environment.extend(base_environment(&job.settings, &job.env));
        task.notes = Some(run.notes_path());
        task.filter = shared.redaction_filter();
        publish::sandbox_hook(shared, &job.settings, run, (grant, &folder), &mut task)?;
        let ended = process::run_process(task, |handle| stop.call_on_cancel(move || handle.stop()));
        match ended.how {
            ProcessOutcome::Exited(0) => Ok(()),
            how => Err(HookError::Ended(how.message())),
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
    result: &Result<Value, RemoteToolError>,
) -> Option<ProcessOutcome> {
    let value = result.as_ref().map_or_else(RemoteToolError::to_envelope, Value::clone);
    let printed = redactor.redact_value(&value).to_string();
    let error = fs::write(stdout?, printed).err()?;
    Some(StartRefusal::Other(format!("the result cannot be written: {error}")).into())
}

impl ExecutorContext {
    /// Registers work that is executed in this process and stopped through a token. `None` if it was stopped before.
    pub(crate) fn register_call(&self, key: &WorkKey) -> Option<Arc<CancelToken>> {
        match self.active_work().get_mut(key) {
            Some(live @ ActiveWork::Ahead { stopped: false }) => {
                let stop = Arc::new(CancelToken::default());
                *live = ActiveWork::Called(Arc::clone(&stop));
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

/// Headers that control the target and the framing of a request.
const OURS: [&str; 5] = ["connection", "content-length", "host", "te", "transfer-encoding"];
fn build_get_call(inputs: &Value, time: Duration) -> Result<HttpRequest, RemoteToolError> {
    let invalid = |message: &str| RemoteToolError::new("input_invalid", message);
    let url =
        inputs.get("url").and_then(Value::as_str).ok_or_else(|| invalid("`url` is required and must be a string"))?;
    let mut headers = Vec::new();
    for (name, value) in inputs.get("headers").and_then(Value::as_object).into_iter().flatten() {
        let ours = OURS.iter().any(|own| own.eq_ignore_ascii_case(name));
        let value = value.as_str().filter(|value| !ours && is_header_text(value) && is_header_text(name));
        let value = value.ok_or_else(|| {
            invalid("`headers` must map names to single-line strings, without headers that control the request")
        })?;
        headers.push((name.clone(), value.to_owned()));
    }
    Ok(HttpRequest {
        method: "GET".to_owned(),
        url: url.to_owned(),
        headers,
        body: None,
        time,
        most: limits::VALUE_BYTES as u64 / 2,
        redirects: REDIRECTS,
    })
}
