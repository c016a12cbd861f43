//! What a server of tools answers. It has one tool, `tell`, which adds a line to a file and says what came of it.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    path::Path,
};

use serde_json::{Value, json};

/// The answer to a message. None: it wants none.
pub fn answer(message: &str, file: &Path, token: &str) -> Option<Value> {
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
            let schema =
                json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
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
