//! Tools that are servers: asked over the network, or spoken to as a program that was started for it; and our own
//! functions that reach someone outside.
//!
//! Owns what is kept of such a tool, and that its answer is taken up as what a program prints is: one JSON object, which
//! may say that the tool refused. The rest of the attempt is as that of any program.

mod http;
mod mcp;
mod own;
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
    call::{Part, Template, Text},
    limits,
    time::Millis,
};

use super::{Doing, Shared, about::Tool, job::Job};
use crate::{
    redact::Redactor,
    stop::Stop,
    worker::{Ended, How, Refused, Task, Which},
};

/// Two clocks that count the same time may be so far apart.
const TICK: Duration = Duration::from_millis(20);

/// Texts by name, such as headers.
pub type Texts = Vec<(String, Text)>;

/// A server that does the work of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Remote {
    Http(Box<HttpTool>),
    Mcp(McpTool),
}

/// A request, and what of its answer counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpTool {
    pub method: String,
    pub base: Text,
    pub endpoint: Text,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Texts,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query: Texts,
    /// None: the input itself, where the method has a body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Template>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extract: Vec<Part>,
    /// The header in which every try at the same says the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_header: Option<String>,
    /// What means that a login is no longer good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired: Option<Expired>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Expired {
    Status(u16),
    Header(String, String),
}

/// A tool of a server that speaks MCP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpTool {
    pub tool: String,
    pub server: Server,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extract: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Server {
    /// The tool's own program, with these variables more.
    Program(Texts),
    Url {
        url: Text,
        headers: Texts,
    },
}

/// Why a server did not do it: a code that workflows can know, and words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub code: String,
    pub message: String,
    pub retryable: bool,
    /// How long it asks to be left alone.
    pub after: Option<Millis>,
}

impl Trouble {
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Trouble {
        Trouble { code: code.into(), message: message.into(), retryable: false, after: None }
    }

    /// As a tool says that it refused.
    fn envelope(&self) -> Value {
        let mut error = json!({"code": self.code, "message": self.message, "retryable": self.retryable});
        if let Some(Millis(after)) = self.after {
            error["retry_after_ms"] = Value::from(after);
        }
        json!({"ok": false, "error": error})
    }
}

/// One call of a server, for an attempt.
pub(super) struct Asking<'a> {
    pub shared: &'a Shared,
    pub job: &'a Job,
    pub tool: &'a Tool,
}

impl Asking<'_> {
    /// Does the work of an attempt. The server of a program is started by its task; nobody else is.
    pub fn run(&self, task: Task, key: &Doing) -> Ended {
        match &self.tool.remote {
            Some(Remote::Mcp(tool)) if matches!(tool.server, Server::Program(_)) => {
                self.converse(tool, task, key)
            }
            _ => self.ask(&task, key),
        }
    }

    fn secret(&self, name: &str) -> Option<String> {
        let names = [name.to_owned()];
        let found = self.shared.secrets.of(&names).ok()?;
        found.first().map(|(_, secret)| secret.expose().to_owned())
    }

    /// Asks someone from within this process.
    fn ask(&self, task: &Task, key: &Doing) -> Ended {
        let begun = Instant::now();
        let Some(stop) = self.shared.called(key) else { return Ended::without_process(How::Stopped, begun) };
        let limit = time(task.limit);
        let (said, log) = match self.allowed() {
            Err(trouble) => (Err(trouble), String::new()),
            Ok(()) => match &self.tool.remote {
                Some(Remote::Http(tool)) => self.request(tool, limit, &stop),
                Some(Remote::Mcp(tool)) => self.call_over_http(tool, limit, &stop),
                None => self.own(limit, &stop),
            },
        };
        let how = match () {
            () if stop.is_stopped() => How::Stopped,
            () if said.is_err() && begun.elapsed() + TICK >= limit => {
                How::TimedOut(Which::Total(millis(limit)))
            }
            () => How::Exited(0),
        };
        let log = format!("[skein: {log} in {} ms]\n", begun.elapsed().as_millis());
        // Without it nothing is wrong but the log.
        let _ = fs::write(&task.log, self.shared.redactor.redact_str(&log));
        let kept = keep(&self.shared.redactor, task.stdout.as_deref(), &said);
        Ended::without_process(kept.unwrap_or(how), begun)
    }

    /// A step that may not use the network does not use it through us either.
    fn allowed(&self) -> Result<(), Trouble> {
        match self.job.isolation.no_network {
            true => Err(Trouble::new("unauthorised", "this step may not use the network")),
            false => Ok(()),
        }
    }
}

fn time(limit: Option<Millis>) -> Duration {
    Duration::from_millis(limit.map_or(limits::TOOL_CALL, |Millis(length)| length))
}

fn millis(length: Duration) -> Millis {
    Millis(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
}

/// Keeps what was said where a program's output would be. How it ended, if it cannot be kept.
fn keep(redactor: &Redactor, stdout: Option<&Path>, said: &Result<Value, Trouble>) -> Option<How> {
    let value = said.as_ref().map_or_else(Trouble::envelope, Value::clone);
    let printed = redactor.redact_value(&value).to_string();
    let error = fs::write(stdout?, printed).err()?;
    Some(How::CannotStart(Refused::Other(format!("what was said cannot be kept: {error}"))))
}

impl Shared {
    /// From now on it is done in this process, and stopped by this. None: it was called off before.
    pub(super) fn called(&self, key: &Doing) -> Option<Arc<Stop>> {
        match self.live().get_mut(key) {
            Some(live @ super::Live::Ahead { stopped: false }) => {
                let stop = Arc::new(Stop::default());
                *live = super::Live::Called(Arc::clone(&stop));
                Some(stop)
            }
            _ => None,
        }
    }
}

/// What is given of a value: itself where it is an object, or else as its body.
fn object(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(fields),
        Value::Null => json!({}),
        other => json!({"body": other}),
    }
}

/// The part of a value that counts.
fn part(parts: &[Part], value: Value) -> Result<Value, Trouble> {
    if parts.is_empty() {
        return Ok(value);
    }
    Part::of(parts, &value).ok_or_else(|| {
        Trouble::new("output_invalid", "the answer does not have the part that its driver takes out of it")
    })
}
