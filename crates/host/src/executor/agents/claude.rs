//! Claude Code: `claude -p`, with events as lines of JSON.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use skein_core::time::Timestamp;

use super::{
    AgentAdapter, AgentAnswer, AgentEvent, AgentEventReader, AgentFailure, AgentHome, AgentInvocation,
    AgentPermissions, AgentRequest, AgentSession, LoginLink, TokenUsage, UsageTotal,
    agent_launch::{CommandPermission, quote_command},
    fallback::AgentFailureKind,
    home::user_folder,
    last_error_line, number_at, text_at, to_micro_usd,
};
use crate::run_settings::ToolServer;

#[derive(Debug)]
pub(crate) struct ClaudeAdapter;

/// Variables that turn off side activities of the agent.
const QUIET: [(&str, &str); 6] = [
    ("DISABLE_AUTOUPDATER", "1"),
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("DISABLE_TELEMETRY", "1"),
    ("DISABLE_ERROR_REPORTING", "1"),
    // A command that takes too long would continue in the background, and be waited for at the end.
    ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
    // Skein retries by itself; this covers errors that pass within seconds.
    ("CLAUDE_CODE_MAX_RETRIES", "2"),
];

impl AgentAdapter for ClaudeAdapter {
    fn agent_name(&self) -> &'static str {
        "CLAUDE_CODE"
    }

    fn program(&self) -> &'static str {
        "claude"
    }

    fn credential_variables(&self) -> &'static [&'static str] {
        &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_BASE_URL"]
    }

    fn login_hint(&self) -> &'static str {
        "start `claude` and enter `/login`, or set ANTHROPIC_API_KEY"
    }

    fn login_link(&self) -> LoginLink {
        let from = user_folder("CLAUDE_CONFIG_DIR", ".claude").map(|folder| folder.join(".credentials.json"));
        LoginLink { from, to: ".credentials.json" }
    }

    fn answer_is_output(&self, _may: &AgentPermissions, schema: Option<&Value>) -> bool {
        schema.is_some()
    }

    fn accepts_session_id(&self) -> bool {
        true
    }

    fn build_invocation(&self, request: &AgentRequest<'_>) -> AgentInvocation {
        let mut call = AgentInvocation::default();
        call.args(["-p", "--output-format", "stream-json", "--verbose"]);
        // Without partial messages, the usage of a turn is known only at the end.
        call.arg("--include-partial-messages");
        // No file of the repository gives the agent instructions or starts programs.
        let sources = if request.home.path.is_none() { "user" } else { "" };
        call.args(["--setting-sources", sources, "--strict-mcp-config", "--disable-slash-commands"]);
        if let Some(model) = request.model {
            call.args(["--model", model]);
        }
        match request.session {
            AgentSession::New(id) => call.args(["--session-id", id]),
            AgentSession::Resume(id) => call.args(["--resume", id]),
        };
        if let Some(most) = request.max_turns {
            call.args(["--max-turns", &most.to_string()]);
        }
        if let Some(most) = request.micro_usd {
            // The agent knows its prices; Skein learns the cost only at the end.
            call.args(["--max-budget-usd", &format!("{}.{:06}", most / 1_000_000, most % 1_000_000)]);
        }
        if let Some(schema) = request.schema {
            call.args(["--json-schema", &schema.to_string()]);
        }
        call.args(request.arguments);
        // Flags that take any number of values come last.
        let (tools, mut rules) = tool_flags(request.may);
        if !request.servers.is_empty() {
            let file = request.files.join("servers.json");
            call.arg("--mcp-config").arg(&file);
            call.files.push((file, servers_json(request.servers).to_string().into_bytes()));
            // All tools of these servers, and of no others.
            rules.extend(request.servers.iter().map(|(name, _)| format!(",mcp__{name}")));
            set_server_timeouts(&mut call, request.servers);
        }
        call.args(["--permission-mode", "dontAsk", "--tools", &tools, "--allowedTools", &rules]);
        call.arg("--add-dir").arg(&request.may.back);
        for (name, value) in QUIET {
            call.set_variable(name, value);
        }
        if let Some(most) = request.command_time {
            call.set_variable("BASH_DEFAULT_TIMEOUT_MS", most.0.to_string());
            call.set_variable("BASH_MAX_TIMEOUT_MS", most.0.to_string());
        }
        if let Some(home) = &request.home.path {
            call.set_variable("CLAUDE_CONFIG_DIR", home);
        }
        call
    }

    fn new_reader(&self, _home: &AgentHome, servers: &[(&str, &ToolServer)]) -> Box<dyn AgentEventReader> {
        let wanted = servers.iter().map(|(name, _)| (*name).to_owned()).collect();
        Box::new(ClaudeReader { wanted, ..ClaudeReader::default() })
    }
}

/// Returns the servers in the common `mcpServers` form. The agent replaces `${NAME}` from its environment.
fn servers_json(servers: &[(&str, &ToolServer)]) -> Value {
    let one = |server: &ToolServer| match &server.url {
        Some(url) => {
            let headers: BTreeMap<&str, String> =
                server.bearer.iter().map(|name| ("Authorization", format!("Bearer ${{{name}}}"))).collect();
            json!({"type": "http", "url": url, "headers": headers})
        }
        None => {
            let (program, arguments) = server.command_parts();
            let mut env = server.env.clone();
            env.extend(server.secrets.iter().map(|name| (name.clone(), format!("${{{name}}}"))));
            json!({"type": "stdio", "command": program, "args": arguments, "env": env})
        }
    };
    let all: BTreeMap<&str, Value> = servers.iter().map(|(name, server)| (*name, one(server))).collect();
    json!({"mcpServers": all})
}

/// Sets the timeouts of the servers. Claude Code has one timeout for all servers, and it waits for them before it asks
/// its model.
fn set_server_timeouts(call: &mut AgentInvocation, servers: &[(&str, &ToolServer)]) {
    let most = servers.iter().map(|(_, server)| server.start_timeout().0).max().unwrap_or_default();
    call.set_variable("MCP_CONNECTION_NONBLOCKING", "0");
    for name in ["MCP_TIMEOUT", "MCP_CONNECT_TIMEOUT_MS"] {
        call.set_variable(name, most.to_string());
    }
}

/// Returns the values of `--tools` and `--allowedTools`. A tool that is not in the first list does not exist for the
/// agent; a tool in it may do only what a rule allows.
fn tool_flags(may: &AgentPermissions) -> (String, String) {
    let mut tools = vec!["Read", "Glob", "Grep", "Edit", "Write"];
    let mut rules: Vec<String> = ["Read", "Glob", "Grep"].map(str::to_owned).into();
    // A rule for Edit applies to Write, too; a rule for Write would apply to every file.
    rules.push(format!("Edit(/{}/**)", may.back.display()));
    rules.extend(may.files.iter().map(|name| format!("Edit(/{}/{name})", may.folder.display())));
    if may.edit {
        rules.push("Edit(./**)".to_owned());
    }
    match &may.run {
        CommandPermission::Nothing => {}
        CommandPermission::These(commands) => {
            tools.push("Bash");
            rules.extend(commands.iter().map(|words| format!("Bash({})", quote_command(words))));
        }
        CommandPermission::Anything => {
            tools.push("Bash");
            rules.push("Bash".to_owned());
        }
    }
    (tools.join(","), rules.join(","))
}

#[derive(Default)]
struct ClaudeReader {
    /// The names of the requested servers.
    wanted: Vec<String>,
    /// The usage of each message, by its id. It is reported repeatedly and grows.
    messages: BTreeMap<String, TokenUsage>,
    /// The id of the message that is being written.
    message: String,
    result: Option<Value>,
    /// The agent's name for the last error of its service.
    error: String,
}

impl ClaudeReader {
    fn record_usage(&mut self, id: &str, usage: &Value) -> AgentEvent {
        let at = |name: &str| number_at(usage, name);
        let spent = self.messages.entry(id.to_owned()).or_default();
        spent.input = spent.input.max(at("/input_tokens") + at("/cache_creation_input_tokens"));
        spent.cached = spent.cached.max(at("/cache_read_input_tokens"));
        spent.output = spent.output.max(at("/output_tokens"));
        let mut all = TokenUsage::default();
        self.messages.values().for_each(|spent| all.add(*spent));
        AgentEvent::Used(UsageTotal::Run(all))
    }

    /// Reads a part of a message that is being written.
    fn read_stream_event(&mut self, event: &Value) -> Vec<AgentEvent> {
        match text_at(event, "/event/type") {
            "message_start" => {
                self.message = text_at(event, "/event/message/id").to_owned();
                let (id, usage) = (self.message.clone(), &event["event"]["message"]["usage"]);
                vec![AgentEvent::Turn, self.record_usage(&id, usage)]
            }
            "message_delta" => {
                let id = self.message.clone();
                vec![self.record_usage(&id, &event["event"]["usage"])]
            }
            _ => Vec::new(),
        }
    }

    fn read_assistant(&mut self, event: &Value) -> Vec<AgentEvent> {
        if let Some(error) = event["error"].as_str() {
            self.error = error.to_owned();
        }
        let content = event["message"]["content"].as_array().map_or(&[][..], Vec::as_slice);
        let parts = content.iter().filter_map(|part| match part["type"].as_str()? {
            "text" => Some(AgentEvent::Message(part["text"].as_str()?.to_owned())),
            "tool_use" => Some(AgentEvent::Tool {
                name: part["name"].as_str()?.to_owned(),
                on: ["command", "file_path", "pattern", "path", "description"]
                    .iter()
                    .find_map(|name| part["input"][*name].as_str())
                    .unwrap_or_default()
                    .to_owned(),
            }),
            _ => None,
        });
        parts.collect()
    }

    /// Finds a requested server that is missing when the model is asked. Claude Code itself continues without the tools
    /// that a server could not list.
    fn find_missing_server(&self, init: &Value) -> Option<AgentFailure> {
        let all = |name: &str| init[name].as_array().map_or(&[][..], Vec::as_slice);
        self.wanted.iter().find_map(|name| {
            let server = all("mcp_servers").iter().find(|server| server["name"] == name.as_str());
            let first = format!("mcp__{name}__");
            let has_tools = || all("tools").iter().filter_map(Value::as_str).any(|tool| tool.starts_with(&first));
            let how = match server.map_or("unknown", |server| text_at(server, "/status")) {
                "connected" if has_tools() => return None,
                "connected" => "it lists no tools",
                // It has waited for the configured timeout.
                "pending" => "it did not connect in time",
                other => other,
            };
            Some(AgentFailure::unusable_server(name, how))
        })
    }

    fn read_system(&mut self, event: &Value) -> Vec<AgentEvent> {
        match text_at(event, "/subtype") {
            "init" => {
                let session = AgentEvent::Session(text_at(event, "/session_id").to_owned());
                let model = event["model"].as_str().map(|model| AgentEvent::Model(model.to_owned()));
                [session]
                    .into_iter()
                    .chain(model)
                    .chain(self.find_missing_server(event).map(AgentEvent::Hopeless))
                    .collect()
            }
            "api_retry" => {
                let status = number_at(event, "/error_status");
                let message = format!("its service returned status {status}; it retries");
                // A retry does not make a wrong key valid.
                match status {
                    401 | 403 => {
                        vec![AgentEvent::Hopeless(AgentFailure::new(
                            AgentFailureKind::Auth,
                            "its key or login was refused",
                        ))]
                    }
                    _ => vec![AgentEvent::Note(message)],
                }
            }
            "permission_denied" => vec![AgentEvent::Note(format!(
                "{} was not allowed: {}",
                text_at(event, "/tool_name"),
                text_at(event, "/message")
            ))],
            "model_fallback" | "informational" => {
                vec![AgentEvent::Note(text_at(event, "/content").to_owned())]
            }
            _ => Vec::new(),
        }
    }
    fn read_tool_results(event: &Value) -> Vec<AgentEvent> {
        let content = event["message"]["content"].as_array().map_or(&[][..], Vec::as_slice);
        let results = content.iter().filter(|part| part["type"] == "tool_result");
        let events = results.map(|part| match part["is_error"] == Value::Bool(true) {
            true => AgentEvent::Note(result_text(part).chars().take(200).collect()),
            false => AgentEvent::Result(result_text(part)),
        });
        events.collect()
    }

    /// Reads the result, which has the most exact usage and includes subagents.
    fn read_result(&mut self, event: &Value) -> Vec<AgentEvent> {
        self.result = Some(event.clone());
        let Some(models) = event["model_usage_since_last_result"].as_object() else { return Vec::new() };
        let mut all = TokenUsage::default();
        for model in models.values() {
            let at = |name: &str| number_at(model, name);
            all.add(TokenUsage {
                input: at("/inputTokens") + at("/cacheCreationInputTokens"),
                cached: at("/cacheReadInputTokens"),
                output: at("/outputTokens"),
                micro_usd: model["costUSD"].as_f64().and_then(to_micro_usd),
            });
        }
        if all == TokenUsage::default() { Vec::new() } else { vec![AgentEvent::Used(UsageTotal::Run(all))] }
    }

    fn parse_failure(&self, result: &Value) -> AgentFailure {
        let errors = result["errors"]
            .as_array()
            .map(|errors| errors.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("; "));
        let message = match result["result"].as_str() {
            Some(text) if !text.is_empty() => text.to_owned(),
            _ => errors.filter(|errors| !errors.is_empty()).unwrap_or_else(|| "the agent failed".to_owned()),
        };
        if message.contains("No conversation found") {
            return AgentFailure::lost_session(message);
        }
        let status = result["api_error_status"].as_u64();
        let kind = match (text_at(result, "/subtype"), text_at(result, "/terminal_reason"), self.error.as_str()) {
            ("error_max_turns", ..) => AgentFailureKind::Turns,
            ("error_max_budget_usd", ..) => AgentFailureKind::Budget,
            (_, "prompt_too_long", _) => AgentFailureKind::Context,
            (_, _, "rate_limit") => AgentFailureKind::Limit,
            (_, _, "billing_error") => AgentFailureKind::Billing,
            (_, _, "authentication_failed") => AgentFailureKind::Auth,
            (_, _, "model_not_found") => AgentFailureKind::Model,
            _ if result["api_error"] == "max_output_tokens" => AgentFailureKind::Request,
            _ => match status {
                Some(status) => AgentFailureKind::from_status(status),
                None if self.error == "server_error" => AgentFailureKind::Service,
                None => AgentFailureKind::NoEnd,
            },
        };
        AgentFailure::with_parsed_wait(kind, message)
    }
}

/// Returns the text of a result, which may consist of parts.
fn result_text(part: &Value) -> String {
    match &part["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

impl AgentEventReader for ClaudeReader {
    fn read_event(&mut self, event: &Value) -> Vec<AgentEvent> {
        match text_at(event, "/type") {
            "system" => self.read_system(event),
            "assistant" => self.read_assistant(event),
            "user" => ClaudeReader::read_tool_results(event),
            "stream_event" => self.read_stream_event(event),
            "rate_limit_event" if event["rate_limit_info"]["status"] == "rejected" => {
                let seconds = event["rate_limit_info"]["resetsAt"].as_i64();
                seconds.map(|at| AgentEvent::LimitedUntil(Timestamp(at.saturating_mul(1_000)))).into_iter().collect()
            }
            "result" => self.read_result(event),
            _ => Vec::new(),
        }
    }

    fn is_noise(&self, event: &Value) -> bool {
        event["type"] == "stream_event"
    }

    fn final_result(&self, status: i32, errors: &str) -> Result<AgentAnswer, AgentFailure> {
        let Some(result) = &self.result else {
            let message = last_error_line(errors);
            return Err(match status {
                _ if message.contains("No conversation found") => AgentFailure::lost_session(message),
                0 => AgentFailure::new(AgentFailureKind::NoEnd, message),
                _ => AgentFailure::new(AgentFailureKind::Usage, message),
            });
        };
        // Claude Code reports success even if its service failed.
        if result["is_error"] != Value::Bool(false) {
            return Err(self.parse_failure(result));
        }
        let value = result.get("structured_output").filter(|value| !value.is_null()).cloned();
        Ok(AgentAnswer { text: text_at(result, "/result").to_owned(), value })
    }
}

#[cfg(test)]
mod tests;
