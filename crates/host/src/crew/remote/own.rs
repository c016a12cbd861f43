//! Our own functions that reach someone outside: a page is read, or people are told.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use skein_core::limits;

use super::{
    Asking, Trouble,
    http::{REDIRECTS, body, status, unanswered},
    request::{is_line, key},
};
use crate::{
    crew::{Function, hook, tool},
    http::{self, Call},
    notify::Message,
    stop::Stop,
    worker::{self, How, Mark, Work},
};

/// Headers that say where a request goes and where it ends.
const OURS: [&str; 5] = ["connection", "content-length", "host", "te", "transfer-encoding"];

impl Asking<'_> {
    pub(super) fn own(&self, limit: Duration, stop: &Arc<Stop>) -> (Result<Value, Trouble>, String) {
        let inputs = tool::renamed(self.tool, &self.job.given.inputs);
        match self.tool.function {
            Some(Function::HttpGet) => self.get(&inputs, limit, stop),
            Some(Function::Notify) => (self.notify(&inputs, stop), "told someone".to_owned()),
            _ => (Err(Trouble::new("internal", "nobody is there to be asked")), String::new()),
        }
    }

    fn get(&self, inputs: &Value, time: Duration, stop: &Arc<Stop>) -> (Result<Value, Trouble>, String) {
        let call = match call(inputs, time) {
            Ok(call) => call,
            Err(trouble) => return (Err(trouble), "GET was not sent".to_owned()),
        };
        match http::send_until(&self.tool.reach, &call, stop) {
            Ok(answer) => {
                let log = format!("GET: status {}, {} bytes", answer.status, answer.body.len());
                let given = || {
                    let kind = answer.header("content-type").unwrap_or_default();
                    let text = String::from_utf8_lossy(&answer.body);
                    let mut given = json!({"status": answer.status, "content_type": kind, "text": text});
                    if kind.contains("json") {
                        given["value"] = body(&answer);
                    }
                    given
                };
                (status(&answer).map(|()| given()), log)
            }
            Err(error) => (Err(unanswered(&error)), format!("GET: {error}")),
        }
    }

    /// Tells someone on a channel of the project.
    fn notify(&self, inputs: &Value, stop: &Arc<Stop>) -> Result<Value, Trouble> {
        let text = |name: &str| inputs.get(name).and_then(Value::as_str).map(str::to_owned);
        let needed = |name: &str| {
            text(name)
                .ok_or_else(|| Trouble::new("input_invalid", format!("`{name}` is text that is needed")))
        };
        let name = needed("channel")?;
        let known = &self.job.about.surroundings.channels;
        let own = name.split(':').next().unwrap_or_default();
        let Some(channel) = known.get(&name).or_else(|| known.get(own)) else {
            let message =
                format!("there is no channel `{name}`; `[channels.{own}]` in skein.toml says how to tell it");
            return Err(Trouble::new("not_found", message));
        };
        let message = Message {
            id: key(self.job),
            title: text("title").unwrap_or_else(|| self.job.path.clone()),
            text: needed("text")?,
            target: name.split_once(':').map(|(_, target)| target.to_owned()),
            body: json!({"event": "notify", "run_id": self.job.run.as_str(), "step": self.job.path}),
        };
        let message = hook::redacted(self.shared, &message);
        let told = match hook::words(&self.job.about, channel, &message) {
            Some(words) => words.and_then(|words| self.tell_by_program(words, stop)),
            None => hook::say(self.shared, channel, &message),
        };
        match told {
            Ok(()) => Ok(json!({"channel": name, "id": message.id})),
            Err(why) => Err(Trouble::new("upstream_error", format!("nobody was told on `{name}`: {why}"))),
        }
    }

    fn tell_by_program(&self, words: hook::Words, stop: &Arc<Stop>) -> Result<(), String> {
        let ours = |error: &dyn ToString| error.to_string();
        let run = self.shared.run_dir(&self.job.run).map_err(|error| ours(&error))?;
        let files = run.attempt(self.job.attempt).map_err(|error| ours(&error))?;
        let grants = self.job.about.grants(self.shared.state.path()).map_err(|error| ours(&error))?;
        let folder = grants.folder(None).map_err(|error| ours(&error))?;
        let work = Work::Attempt(self.job.attempt);
        let mark = Mark { state: self.shared.mark.clone(), run: self.job.run.clone(), work };
        let grant = words.grant;
        let mut task = words.task(folder.path(), files.root().path().join("told.log"), mark);
        task.environment.extend(super::super::environment::base(&self.job.about, &self.job.env));
        task.notes = Some(run.notes());
        task.filter = self.shared.filter();
        hook::confine_hook(self.shared, &self.job.about, &self.job.run, (grant, &folder), &mut task)?;
        let ended = worker::run(task, |handle| stop.then(move || handle.stop()));
        match ended.how {
            How::Exited(0) => Ok(()),
            how => Err(how.message()),
        }
    }
}

/// A page that is asked for.
fn call(inputs: &Value, time: Duration) -> Result<Call, Trouble> {
    let invalid = |message: &str| Trouble::new("input_invalid", message);
    let url =
        inputs.get("url").and_then(Value::as_str).ok_or_else(|| invalid("`url` is text that is needed"))?;
    let mut headers = Vec::new();
    for (name, value) in inputs.get("headers").and_then(Value::as_object).into_iter().flatten() {
        let ours = OURS.iter().any(|own| own.eq_ignore_ascii_case(name));
        let value = value.as_str().filter(|value| !ours && is_line(value) && is_line(name));
        let value = value.ok_or_else(|| {
            invalid("`headers` is a mapping of names and lines of text, and not of what a request is made of")
        })?;
        headers.push((name.clone(), value.to_owned()));
    }
    Ok(Call {
        method: "GET".to_owned(),
        url: url.to_owned(),
        headers,
        body: None,
        time,
        most: limits::VALUE_BYTES as u64 / 2,
        redirects: REDIRECTS,
    })
}
