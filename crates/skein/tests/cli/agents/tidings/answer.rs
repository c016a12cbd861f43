//! The answers of the test MCP server. It has one tool, `tell`, which appends a line to a file and returns the result.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use serde_json::{Value, json};

/// A defect in the answers to one method.
pub(crate) struct Flaw {
    method: String,
    how: String,
    met: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Late(Duration),
    /// Never answers.
    Never,
    /// Disconnects.
    Leaves,
}

impl Flaw {
    /// Parses words such as `METHOD never`, `METHOD leaves once`, or `METHOD 8` (a delay in seconds).
    pub(crate) fn new(words: &str) -> Flaw {
        let (method, how) = words.split_once(' ').unwrap_or_default();
        Flaw { method: method.to_owned(), how: how.to_owned(), met: AtomicBool::new(false) }
    }

    /// The defect of the answer to this message, if any.
    pub(crate) fn of(&self, message: &str) -> Option<How> {
        let asked: Value = serde_json::from_str(message).expect("a message is JSON");
        if asked["method"] != self.method.as_str() {
            return None;
        }
        let again = self.met.swap(true, Ordering::SeqCst);
        match self.how.as_str() {
            "never" => Some(How::Never),
            "leaves" => Some(How::Leaves),
            "leaves once" => (!again).then_some(How::Leaves),
            seconds => Some(How::Late(Duration::from_secs(seconds.parse().expect("it is a number of seconds")))),
        }
    }
}

/// The answer to a message. Returns `None` if the message expects no answer.
pub(crate) fn answer(message: &str, file: &Path, token: &str) -> Option<Value> {
    let asked: Value = serde_json::from_str(message).expect("a message is JSON");
    let id = asked.get("id")?;
    Some(match result(&asked, file, token) {
        Some(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        None => json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}}),
    })
}

fn result(asked: &Value, file: &Path, token: &str) -> Option<Value> {
    Some(match asked["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": asked["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "tidings", "version": "1.0.0"},
        }),
        "ping" => json!({}),
        "tools/list" => {
            let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
            json!({"tools": [{"name": "tell", "description": "Tells something.", "inputSchema": schema}]})
        }
        "tools/call" => {
            let (text, is_error) = match tell(asked["params"]["arguments"]["text"].as_str()?, file) {
                Ok(()) => (format!("told, with {token}"), false),
                Err(error) => (format!("not told: {error}"), true),
            };
            json!({"content": [{"type": "text", "text": text}], "isError": is_error})
        }
        _ => return None,
    })
}

fn tell(text: &str, file: &Path) -> io::Result<()> {
    writeln!(OpenOptions::new().create(true).append(true).open(file)?, "{text}")
}
