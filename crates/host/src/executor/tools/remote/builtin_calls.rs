//! Builtin functions that communicate with the outside: HTTP GET and notifications.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use skein_core::limits;

use super::{
    RemoteCall, RemoteToolError,
    http::{REDIRECTS, check_status, idempotency_key, is_header_text, parse_body, transport_failure},
};
use crate::{
    cancel_token::CancelToken,
    executor::{
        hook::{self, HookError},
        tools,
    },
    http::{self, HttpRequest},
    notify::ChannelMessage,
    process::{self, MarkedWork, ProcessMark, ProcessOutcome},
    run_settings::BuiltinFunction,
};

/// Headers that control the target and the framing of a request.
const OURS: [&str; 5] = ["connection", "content-length", "host", "te", "transfer-encoding"];

impl RemoteCall<'_> {
    pub(crate) fn call_builtin(
        &self,
        limit: Duration,
        stop: &Arc<CancelToken>,
    ) -> (Result<Value, RemoteToolError>, String) {
        let inputs = tools::rename_inputs(self.tool, &self.job.given.inputs);
        match self.tool.function {
            Some(BuiltinFunction::HttpGet) => self.http_get(&inputs, limit, stop),
            Some(BuiltinFunction::Notify) => (self.send_notification(&inputs, stop), "notify".to_owned()),
            _ => (Err(RemoteToolError::new("internal", "the tool has no remote call")), String::new()),
        }
    }

    fn http_get(
        &self,
        inputs: &Value,
        time: Duration,
        stop: &Arc<CancelToken>,
    ) -> (Result<Value, RemoteToolError>, String) {
        let call = match build_get_call(inputs, time) {
            Ok(call) => call,
            Err(trouble) => return (Err(trouble), "GET was not sent".to_owned()),
        };
        match http::send_cancellable(&self.tool.reach, &call, stop) {
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
        let text = |name: &str| inputs.get(name).and_then(Value::as_str).map(str::to_owned);
        let needed = |name: &str| {
            text(name).ok_or_else(|| {
                RemoteToolError::new("input_invalid", format!("`{name}` is required and must be a string"))
            })
        };
        let name = needed("channel")?;
        let known = &self.job.settings.surroundings.channels;
        let own = name.split(':').next().unwrap_or_default();
        let Some(channel) = known.get(&name).or_else(|| known.get(own)) else {
            let message = format!("there is no channel `{name}`: `[channels.{own}]` is missing in skein.toml");
            return Err(RemoteToolError::new("not_found", message));
        };
        let message = ChannelMessage {
            id: idempotency_key(self.job),
            title: text("title").unwrap_or_else(|| self.job.path.clone()),
            text: needed("text")?,
            target: name.split_once(':').map(|(_, target)| target.to_owned()),
            body: json!({"event": "notify", "run_id": self.job.run.as_str(), "step": self.job.path}),
        };
        let message = hook::redact_message(self.shared, &message);
        let told = match hook::find_channel_program(&self.job.settings, channel, &message) {
            Some(words) => words.and_then(|words| self.notify_by_program(words, stop)),
            None => hook::send_message(self.shared, channel, &message),
        };
        match told {
            Ok(()) => Ok(json!({"channel": name, "id": message.id})),
            Err(why) => Err(RemoteToolError::new("upstream_error", format!("no message was sent to `{name}`: {why}"))),
        }
    }

    fn notify_by_program(&self, words: hook::HookProgram, stop: &Arc<CancelToken>) -> Result<(), HookError> {
        let run = self.shared.run_dir(&self.job.run)?;
        let files = run.create_attempt(self.job.attempt)?;
        let grants = self.job.settings.workspace_grants(self.shared.state.path())?;
        let folder = grants.open_folder(None)?;
        let work = MarkedWork::Attempt(self.job.attempt);
        let mark = ProcessMark { state: self.shared.mark.clone(), run: self.job.run.clone(), work };
        let grant = words.grant;
        let mut task = words.into_task(folder.path(), files.root().path().join("told.log"), mark);
        task.environment.extend(crate::executor::attempt::command::base_environment(&self.job.settings, &self.job.env));
        task.notes = Some(run.notes_path());
        task.filter = self.shared.redaction_filter();
        hook::sandbox_hook(self.shared, &self.job.settings, &self.job.run, (grant, &folder), &mut task)?;
        let ended = process::run_process(task, |handle| stop.call_on_cancel(move || handle.stop()));
        match ended.how {
            ProcessOutcome::Exited(0) => Ok(()),
            how => Err(HookError::Ended(how.message())),
        }
    }
}

/// Builds a GET request.
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
