//! The protocols of the three model services: streams of events, each an answer with text and tool calls.

use serde_json::{Value, json};

use super::model::Call;

/// The reported usage of an answer. Services count cached input differently.
const INPUT: u64 = 1_000;
const CACHED: u64 = 400;
const OUTPUT: u64 = 50;
/// The timeout in milliseconds that a model requests for a long command.
const LONG: u64 = 600_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Messages,
    Responses,
    Chat,
}

/// A tool call: its name, its arguments, and whether the arguments are plain text.
type Tool = (String, Value, bool);

pub(crate) fn response(status: u16, kind: &str, headers: &[(&str, String)], body: &str) -> Vec<u8> {
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    format!(
        "HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n{more}\r\n{body}"
    )
    .into_bytes()
}

impl Service {
    pub(crate) fn of(path: &str) -> Option<Service> {
        Some(match path {
            path if path.ends_with("/messages") => Service::Messages,
            path if path.ends_with("/responses") => Service::Responses,
            path if path.ends_with("/chat/completions") => Service::Chat,
            _ => return None,
        })
    }

    /// The tokens of one answer, as Skein counts them.
    pub(crate) fn tokens(self) -> u64 {
        match self {
            Service::Messages => INPUT + CACHED + OUTPUT,
            Service::Responses | Service::Chat => INPUT + OUTPUT,
        }
    }

    pub(crate) fn offers_tools(self, asked: &Value) -> bool {
        asked["tools"].as_array().is_some_and(|tools| !tools.is_empty())
    }

    /// True if a tool was called in this conversation.
    pub(crate) fn has_called(self, body: &str) -> bool {
        body.contains(match self {
            Service::Messages => "tool_result",
            Service::Responses => "function_call_output",
            Service::Chat => "tool_call_id",
        })
    }

    /// A complete answer, as bytes.
    pub(crate) fn answer(self, asked: &Value, body: &str, text: &str, calls: &[Call]) -> Vec<u8> {
        let text = &text.replace(CHECK_ID, &check_id(body));
        let tools: Vec<Tool> = calls.iter().map(|call| self.tool(asked, body, call)).collect();
        let events = match self {
            Service::Messages => messages(asked, text, &tools),
            Service::Responses => responses(text, &tools),
            Service::Chat => chat(text, &tools),
        };
        response(200, "text/event-stream", &[], &events)
    }

    /// An answer that the account has reached its limit, with the waiting time where the agent reads it.
    pub(crate) fn limited(self, seconds: u64) -> Vec<u8> {
        let message = format!("Rate limit reached. Please try again in {seconds}s.");
        let error = json!({"type": "rate_limit_error", "code": "rate_limit_exceeded", "message": message});
        if self == Service::Responses {
            let failed = json!({"id": "r", "object": "response", "status": "failed", "error": error});
            return response(200, "text/event-stream", &[], &event("response.failed", json!({"response": failed})));
        }
        let body = json!({"type": "error", "error": error});
        response(429, "application/json", &[], &body.to_string())
    }

    /// The first half of an answer, up to the end of an event.
    pub(crate) fn beginning(self, asked: &Value) -> Vec<u8> {
        let mut whole = self.answer(asked, "", "I think that", &[]);
        let middle = whole.len() / 2;
        let end = whole[middle..].windows(2).position(|two| two == b"\n\n").expect("events end so");
        whole.truncate(middle + end + 2);
        whole
    }

    fn tool(self, asked: &Value, body: &str, call: &Call) -> Tool {
        let call = match call {
            Call::Output(text) => Call::Write(output(body), text.clone()),
            Call::Leave(name, text) => Call::Write(format!("{}/{name}", place(body, name)), text.clone()),
            Call::Decide(text) => Call::Write(decision(body), text.replace(CHECK_ID, &check_id(body))),
            other => other.clone(),
        };
        match (self, call) {
            (Service::Messages, Call::Write(path, content)) => {
                ("Write".into(), json!({"file_path": path, "content": content}), false)
            }
            (Service::Messages, Call::Run(command)) => {
                ("Bash".into(), json!({"command": command, "description": "run", "timeout": LONG}), false)
            }
            (Service::Messages, Call::Tool(server, tool, value)) => (format!("mcp__{server}__{tool}"), value, false),
            (Service::Responses, Call::Tool(server, tool, value)) => (format!("mcp__{server}::{tool}"), value, false),
            (Service::Chat, Call::Tool(server, tool, value)) => (format!("{server}_{tool}"), value, false),
            (Service::Messages, Call::Answer(value)) => ("StructuredOutput".into(), value, false),
            (Service::Chat, Call::Write(path, content)) => {
                ("write".into(), json!({"filePath": path, "content": content}), false)
            }
            (Service::Chat, Call::Run(command)) => {
                ("bash".into(), json!({"command": command, "description": "run", "timeout": LONG}), false)
            }
            (Service::Responses, Call::Write(path, content)) => {
                let patch = patch(&path, &content);
                let tools = asked["tools"].as_array().expect("tools are offered");
                let custom = tools.iter().any(|tool| tool["name"] == "apply_patch" && tool["type"] == "custom");
                match custom {
                    true => ("apply_patch".into(), Value::from(patch), true),
                    false => (
                        "exec_command".into(),
                        json!({"cmd": format!("cat > '{path}' <<'EOF'\n{}\nEOF", content.trim_end())}),
                        false,
                    ),
                }
            }
            (Service::Responses, Call::Run(command)) => ("exec_command".into(), json!({"cmd": command}), false),
            (_, call) => panic!("no tool of this agent does {call:?}"),
        }
    }
}

/// A placeholder for the id that only the checker gets.
pub(crate) const CHECK_ID: &str = "CHECK_ID";

/// The id of the check, from the prompt.
fn check_id(body: &str) -> String {
    let after = body.rsplit("check_id").next().unwrap_or_default();
    let from = after.trim_start_matches(|c: char| !c.is_ascii_hexdigit());
    from.chars().take_while(char::is_ascii_hexdigit).collect()
}

/// The path of the output file, from the prompt.
fn output(body: &str) -> String {
    let after = body.rsplit("JSON object to the file ").next().expect("the prompt names a file");
    after.split(", which SKEIN_OUTPUT").next().unwrap_or_default().to_owned()
}

/// The folder in which a file must be at the end, from the prompt.
fn place(body: &str, name: &str) -> String {
    let said = format!("`{name}` must be in ");
    let after = body.rsplit(said.as_str()).next().expect("the prompt names a folder");
    after.split(": it is handed on").next().unwrap_or_default().to_owned()
}

/// The path of the decision file, from the prompt.
fn decision(body: &str) -> String {
    let after = body.rsplit("Write your decision to the file ").next().expect("the prompt names a file");
    after.split(", as one JSON object").next().unwrap_or_default().to_owned()
}

fn patch(path: &str, content: &str) -> String {
    let lines: Vec<String> = content.trim_end().lines().map(|line| format!("+{line}")).collect();
    format!("*** Begin Patch\n*** Add File: {path}\n{}\n*** End Patch", lines.join("\n"))
}

fn event(kind: &str, mut value: Value) -> String {
    value["type"] = Value::from(kind);
    format!("event: {kind}\ndata: {value}\n\n")
}

fn id(of: &str, n: usize) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{of}_{n}_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn messages(asked: &Value, text: &str, tools: &[Tool]) -> String {
    let usage = json!({"input_tokens": INPUT, "cache_creation_input_tokens": 0, "cache_read_input_tokens": CACHED,
        "output_tokens": 1});
    let message = json!({"id": id("msg", 0), "type": "message", "role": "assistant", "model": asked["model"],
        "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage});
    let mut all = event("message_start", json!({"message": message}));
    let mut index = 0;
    let mut block = |begin: Value, delta: Value| {
        all += &event("content_block_start", json!({"index": index, "content_block": begin}));
        all += &event("content_block_delta", json!({"index": index, "delta": delta}));
        all += &event("content_block_stop", json!({"index": index}));
        index += 1;
    };
    if !text.is_empty() {
        block(json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": text}));
    }
    for (n, (name, value, _)) in tools.iter().enumerate() {
        let begin = json!({"type": "tool_use", "id": id("toolu", n), "name": name, "input": {}});
        block(begin, json!({"type": "input_json_delta", "partial_json": value.to_string()}));
    }
    let stop = if tools.is_empty() { "end_turn" } else { "tool_use" };
    let delta = json!({"stop_reason": stop, "stop_sequence": null});
    all += &event("message_delta", json!({"delta": delta, "usage": {"output_tokens": OUTPUT}}));
    all + &event("message_stop", json!({}))
}

fn responses(text: &str, tools: &[Tool]) -> String {
    let mut items = Vec::new();
    if !text.is_empty() {
        let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
        items.push(json!({"type": "message", "id": id("msg", 0), "role": "assistant", "status": "completed",
            "content": content}));
    }
    for (n, (name, value, custom)) in tools.iter().enumerate() {
        let (item, call) = (id("item", n), id("call", n));
        items.push(match custom {
            true => {
                json!({"type": "custom_tool_call", "id": item, "call_id": call, "name": name, "input": value,
                "status": "completed"})
            }
            false => {
                // The tools of a server have a namespace.
                let (space, name) = name.split_once("::").unwrap_or(("", name));
                let mut item = json!({"type": "function_call", "id": item, "call_id": call, "name": name,
                    "arguments": value.to_string(), "status": "completed"});
                if !space.is_empty() {
                    item["namespace"] = Value::from(space);
                }
                item
            }
        });
    }
    let response = json!({"id": id("resp", 0), "object": "response", "status": "in_progress", "output": []});
    let mut all = event("response.created", json!({"response": response}));
    for (n, item) in items.iter().enumerate() {
        all += &event("response.output_item.added", json!({"output_index": n, "item": item}));
        all += &event("response.output_item.done", json!({"output_index": n, "item": item}));
    }
    let usage = json!({"input_tokens": INPUT, "input_tokens_details": {"cached_tokens": CACHED},
        "output_tokens": OUTPUT, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": INPUT + OUTPUT});
    let mut done = response;
    (done["status"], done["output"], done["usage"]) = (Value::from("completed"), Value::from(items), usage);
    all + &event("response.completed", json!({"response": done}))
}

fn chat(text: &str, tools: &[Tool]) -> String {
    let id_ = id("chat", 0);
    let chunk = |choices: Value, usage: Value| {
        let chunk = json!({"id": id_, "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": choices, "usage": usage});
        format!("data: {chunk}\n\n")
    };
    let delta =
        |delta: Value, end: Value| chunk(json!([{"index": 0, "delta": delta, "finish_reason": end}]), Value::Null);
    let mut all = delta(json!({"role": "assistant", "content": ""}), Value::Null);
    if !text.is_empty() {
        all += &delta(json!({"content": text}), Value::Null);
    }
    for (n, (name, value, _)) in tools.iter().enumerate() {
        let function = json!({"name": name, "arguments": value.to_string()});
        let call = json!([{"index": n, "id": id("call", n), "type": "function", "function": function}]);
        all += &delta(json!({"tool_calls": call}), Value::Null);
    }
    let end = if tools.is_empty() { "stop" } else { "tool_calls" };
    all += &delta(json!({}), Value::from(end));
    let usage = json!({"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT,
        "prompt_tokens_details": {"cached_tokens": CACHED}});
    all + &chunk(json!([]), usage) + "data: [DONE]\n\n"
}
