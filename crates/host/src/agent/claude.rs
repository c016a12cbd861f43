//! Claude Code: `claude -p`, with events as lines of JSON.

use std::collections::BTreeMap;

use serde_json::Value;
use skein_core::time::Time;

use super::{
    Adapter, Call, Done, Failure, Heard, Home, Login, May, Reader, Request, Server, Session, Spent, Used,
    class::Kind,
    event::{micro_usd, number, text},
    flags::{Run, line},
    home::personal,
    server::listed,
};

#[derive(Debug)]
pub struct Claude;

/// What it must not do beside its work.
const QUIET: [(&str, &str); 6] = [
    ("DISABLE_AUTOUPDATER", "1"),
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("DISABLE_TELEMETRY", "1"),
    ("DISABLE_ERROR_REPORTING", "1"),
    // A command that takes too long would go on behind its back, and be waited for in the end.
    ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
    // Trying again is ours; this is for what passes within seconds.
    ("CLAUDE_CODE_MAX_RETRIES", "2"),
];

impl Adapter for Claude {
    fn word(&self) -> &'static str {
        "CLAUDE_CODE"
    }

    fn program(&self) -> &'static str {
        "claude"
    }

    fn credentials(&self) -> &'static [&'static str] {
        &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_BASE_URL"]
    }

    fn sign_in(&self) -> &'static str {
        "start `claude` and say `/login`, or set ANTHROPIC_API_KEY"
    }

    fn login(&self) -> Login {
        let from = personal("CLAUDE_CONFIG_DIR", ".claude").map(|folder| folder.join(".credentials.json"));
        Login { from, to: ".credentials.json" }
    }

    fn answers(&self, _may: &May, schema: Option<&Value>) -> bool {
        schema.is_some()
    }

    fn takes_session(&self) -> bool {
        true
    }

    fn call(&self, request: &Request<'_>) -> Call {
        let mut call = Call::default();
        call.args(["-p", "--output-format", "stream-json", "--verbose"]);
        // Without these, what a turn used is known only when all is over.
        call.arg("--include-partial-messages");
        // Nothing of the repository that it works on tells it what to do or start.
        let sources = if request.home.path.is_none() { "user" } else { "" };
        call.args(["--setting-sources", sources, "--strict-mcp-config", "--disable-slash-commands"]);
        if let Some(model) = request.model {
            call.args(["--model", model]);
        }
        match request.session {
            Session::New(id) => call.args(["--session-id", id]),
            Session::Resume(id) => call.args(["--resume", id]),
        };
        if let Some(most) = request.max_turns {
            call.args(["--max-turns", &most.to_string()]);
        }
        if let Some(most) = request.micro_usd {
            // It knows its prices; we hear of money only in the end.
            call.args(["--max-budget-usd", &format!("{}.{:06}", most / 1_000_000, most % 1_000_000)]);
        }
        if let Some(schema) = request.schema {
            call.args(["--json-schema", &schema.to_string()]);
        }
        call.args(request.arguments);
        // Those that take any number of words come last.
        let (tools, mut rules) = flags(request.may);
        if !request.servers.is_empty() {
            let file = request.files.join("servers.json");
            call.arg("--mcp-config").arg(&file);
            call.files.push((file, listed(request.servers).to_string().into_bytes()));
            // All tools of a server, and those of no other.
            rules.extend(request.servers.iter().map(|(name, _)| format!(",mcp__{name}")));
            waits(&mut call, request.servers);
        }
        call.args(["--permission-mode", "dontAsk", "--tools", &tools, "--allowedTools", &rules]);
        call.arg("--add-dir").arg(&request.may.back);
        for (name, value) in QUIET {
            call.set(name, value);
        }
        if let Some(most) = request.command_time {
            call.set("BASH_DEFAULT_TIMEOUT_MS", most.0.to_string());
            call.set("BASH_MAX_TIMEOUT_MS", most.0.to_string());
        }
        if let Some(home) = &request.home.path {
            call.set("CLAUDE_CONFIG_DIR", home);
        }
        call
    }

    fn reader(&self, _home: &Home, servers: &[(&str, &Server)]) -> Box<dyn Reader> {
        let wanted = servers.iter().map(|(name, _)| (*name).to_owned()).collect();
        Box::new(Events { wanted, ..Events::default() })
    }
}

/// It has one time for all servers: it waits no longer for one, and no longer until it asks its model.
fn waits(call: &mut Call, servers: &[(&str, &Server)]) {
    let most = servers.iter().map(|(_, server)| server.start_timeout().0).max().unwrap_or_default();
    call.set("MCP_CONNECTION_NONBLOCKING", "0");
    for name in ["MCP_TIMEOUT", "MCP_CONNECT_TIMEOUT_MS"] {
        call.set(name, most.to_string());
    }
}

/// `--tools` and `--allowedTools`. A tool that is not among the first does not exist for it; of those that do, nothing
/// is done that no rule allows.
fn flags(may: &May) -> (String, String) {
    let mut tools = vec!["Read", "Glob", "Grep", "Edit", "Write"];
    let mut rules: Vec<String> = ["Read", "Glob", "Grep"].map(str::to_owned).into();
    // A rule for Edit holds for Write, too; one for Write would hold for every file there is.
    rules.push(format!("Edit(/{}/**)", may.back.display()));
    rules.extend(may.files.iter().map(|name| format!("Edit(/{}/{name})", may.folder.display())));
    if may.edit {
        rules.push("Edit(./**)".to_owned());
    }
    match &may.run {
        Run::Nothing => {}
        Run::These(commands) => {
            tools.push("Bash");
            rules.extend(commands.iter().map(|words| format!("Bash({})", line(words))));
        }
        Run::Anything => {
            tools.push("Bash");
            rules.push("Bash".to_owned());
        }
    }
    (tools.join(","), rules.join(","))
}

#[derive(Default)]
struct Events {
    /// The servers that it was to have.
    wanted: Vec<String>,
    /// What each message used, by its id: it is told again and again, each time more of it.
    messages: BTreeMap<String, Spent>,
    /// The message that is being written.
    message: String,
    result: Option<Value>,
    /// What it called the last error of its service.
    error: String,
}

impl Events {
    fn used(&mut self, id: &str, usage: &Value) -> Heard {
        let at = |name: &str| number(usage, name);
        let spent = self.messages.entry(id.to_owned()).or_default();
        spent.input = spent.input.max(at("/input_tokens") + at("/cache_creation_input_tokens"));
        spent.cached = spent.cached.max(at("/cache_read_input_tokens"));
        spent.output = spent.output.max(at("/output_tokens"));
        let mut all = Spent::default();
        self.messages.values().for_each(|spent| all.add(*spent));
        Heard::Used(Used::Run(all))
    }

    /// A piece of a message while it is written.
    fn piece(&mut self, event: &Value) -> Vec<Heard> {
        match text(event, "/event/type") {
            "message_start" => {
                self.message = text(event, "/event/message/id").to_owned();
                let (id, usage) = (self.message.clone(), &event["event"]["message"]["usage"]);
                vec![Heard::Turn, self.used(&id, usage)]
            }
            "message_delta" => {
                let id = self.message.clone();
                vec![self.used(&id, &event["event"]["usage"])]
            }
            _ => Vec::new(),
        }
    }

    fn assistant(&mut self, event: &Value) -> Vec<Heard> {
        if let Some(error) = event["error"].as_str() {
            self.error = error.to_owned();
        }
        let content = event["message"]["content"].as_array().map_or(&[][..], Vec::as_slice);
        let parts = content.iter().filter_map(|part| match part["type"].as_str()? {
            "text" => Some(Heard::Said(part["text"].as_str()?.to_owned())),
            "tool_use" => Some(Heard::Tool {
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

    /// A server that is not there now that the model is asked. One whose tools it could not list has none, and it goes on.
    fn gone(&self, init: &Value) -> Option<Failure> {
        let all = |name: &str| init[name].as_array().map_or(&[][..], Vec::as_slice);
        self.wanted.iter().find_map(|name| {
            let server = all("mcp_servers").iter().find(|server| server["name"] == name.as_str());
            let first = format!("mcp__{name}__");
            let has_tools =
                || all("tools").iter().filter_map(Value::as_str).any(|tool| tool.starts_with(&first));
            let how = match server.map_or("unknown", |server| text(server, "/status")) {
                "connected" if has_tools() => return None,
                "connected" => "it lists no tools",
                // It has waited for as long as it was told to.
                "pending" => "it was not there in time",
                other => other,
            };
            Some(Failure::of_server(name, how))
        })
    }

    fn system(&mut self, event: &Value) -> Vec<Heard> {
        match text(event, "/subtype") {
            "init" => {
                let session = Heard::Session(text(event, "/session_id").to_owned());
                let model = event["model"].as_str().map(|model| Heard::Model(model.to_owned()));
                [session].into_iter().chain(model).chain(self.gone(event).map(Heard::Hopeless)).collect()
            }
            "api_retry" => {
                let status = number(event, "/error_status");
                let message = format!("its service answers with {status}, and it tries again");
                // A wrong key does not become right.
                match status {
                    401 | 403 => {
                        vec![Heard::Hopeless(Failure::new(Kind::Auth, "its key or login was refused"))]
                    }
                    _ => vec![Heard::Note(message)],
                }
            }
            "permission_denied" => vec![Heard::Note(format!(
                "{} was not allowed: {}",
                text(event, "/tool_name"),
                text(event, "/message")
            ))],
            "model_fallback" | "informational" => vec![Heard::Note(text(event, "/content").to_owned())],
            _ => Vec::new(),
        }
    }

    /// Reads the results of its tools.
    fn results(event: &Value) -> Vec<Heard> {
        let content = event["message"]["content"].as_array().map_or(&[][..], Vec::as_slice);
        let results = content.iter().filter(|part| part["type"] == "tool_result");
        let heard = results.map(|part| match part["is_error"] == Value::Bool(true) {
            true => Heard::Note(result_text(part).chars().take(200).collect()),
            false => Heard::Result(result_text(part)),
        });
        heard.collect()
    }

    /// The end knows best what was used, also by agents below it.
    fn result(&mut self, event: &Value) -> Vec<Heard> {
        self.result = Some(event.clone());
        let Some(models) = event["model_usage_since_last_result"].as_object() else { return Vec::new() };
        let mut all = Spent::default();
        for model in models.values() {
            let at = |name: &str| number(model, name);
            all.add(Spent {
                input: at("/inputTokens") + at("/cacheCreationInputTokens"),
                cached: at("/cacheReadInputTokens"),
                output: at("/outputTokens"),
                micro_usd: model["costUSD"].as_f64().and_then(micro_usd),
            });
        }
        if all == Spent::default() { Vec::new() } else { vec![Heard::Used(Used::Run(all))] }
    }

    fn failed(&self, result: &Value) -> Failure {
        let errors = result["errors"]
            .as_array()
            .map(|errors| errors.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("; "));
        let message = match result["result"].as_str() {
            Some(said) if !said.is_empty() => said.to_owned(),
            _ => errors.filter(|errors| !errors.is_empty()).unwrap_or_else(|| "it failed".to_owned()),
        };
        if message.contains("No conversation found") {
            return Failure::lost(message);
        }
        let status = result["api_error_status"].as_u64();
        let kind = match (text(result, "/subtype"), text(result, "/terminal_reason"), self.error.as_str()) {
            ("error_max_turns", ..) => Kind::Turns,
            ("error_max_budget_usd", ..) => Kind::Budget,
            (_, "prompt_too_long", _) => Kind::Context,
            (_, _, "rate_limit") => Kind::Limit,
            (_, _, "billing_error") => Kind::Billing,
            (_, _, "authentication_failed") => Kind::Auth,
            (_, _, "model_not_found") => Kind::Model,
            _ if result["api_error"] == "max_output_tokens" => Kind::Request,
            _ => match status {
                Some(status) => Kind::of_status(status),
                None if self.error == "server_error" => Kind::Service,
                None => Kind::NoEnd,
            },
        };
        Failure::said(kind, message)
    }
}

/// The text of a result, which may be in parts.
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

impl Reader for Events {
    fn hear(&mut self, event: &Value) -> Vec<Heard> {
        match text(event, "/type") {
            "system" => self.system(event),
            "assistant" => self.assistant(event),
            "user" => Events::results(event),
            "stream_event" => self.piece(event),
            "rate_limit_event" if event["rate_limit_info"]["status"] == "rejected" => {
                let seconds = event["rate_limit_info"]["resetsAt"].as_i64();
                seconds.map(|at| Heard::LimitedUntil(Time(at.saturating_mul(1_000)))).into_iter().collect()
            }
            "result" => self.result(event),
            _ => Vec::new(),
        }
    }

    fn is_noise(&self, event: &Value) -> bool {
        event["type"] == "stream_event"
    }

    fn end(&self, status: i32, errors: &str) -> Result<Done, Failure> {
        let Some(result) = &self.result else {
            let message = super::last_line(errors).unwrap_or("it ended without saying what became of it");
            return Err(match status {
                _ if message.contains("No conversation found") => Failure::lost(message),
                0 => Failure::new(Kind::NoEnd, message),
                _ => Failure::new(Kind::Usage, message),
            });
        };
        // It calls the outcome a success even when its service failed.
        if result["is_error"] != Value::Bool(false) {
            return Err(self.failed(result));
        }
        let value = result.get("structured_output").filter(|value| !value.is_null()).cloned();
        Ok(Done { text: text(result, "/result").to_owned(), value })
    }
}

#[cfg(test)]
mod tests;
