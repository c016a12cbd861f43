//! OpenCode: `opencode run --format json`, with events as lines of JSON.
//!
//! OpenCode prints no event while it retries, and it retries some errors forever. So its log is read, too: the log
//! names the session before any model is asked, and reports every error when it happens. OpenCode would continue without
//! a tool server that fails, and does not report one whose tools it could not list. So a plugin asks OpenCode for its
//! servers and prints them as an event.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};
use skein_core::time::Millis;

use super::{
    AgentAdapter, AgentAnswer, AgentEvent, AgentEventReader, AgentFailure, AgentHome, AgentInvocation,
    AgentPermissions, AgentRequest, AgentSession, LoginLink, TokenUsage, UsageTotal,
    agent_launch::{CommandPermission, quote_command},
    fallback::AgentFailureKind,
    home::user_folder,
    number_at, text_at, to_micro_usd,
};
use crate::{clock::Clock, executor::attempt::collect::last_line, run_settings::ToolServer};

#[derive(Debug)]
pub(crate) struct OpenCodeAdapter;

const QUIET: [&str; 6] = [
    // No file of the repository gives the agent instructions or starts programs.
    "OPENCODE_DISABLE_PROJECT_CONFIG",
    "OPENCODE_DISABLE_CLAUDE_CODE",
    "OPENCODE_DISABLE_AUTOUPDATE",
    "OPENCODE_DISABLE_MODELS_FETCH",
    "OPENCODE_DISABLE_LSP_DOWNLOAD",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS",
];
/// The configuration files in a repository that OpenCode obeys.
const CONTROL: [&str; 3] = [".opencode", "opencode.json", "opencode.jsonc"];
/// The maximum number of requests that were too long. OpenCode would repeat them forever.
const TOO_LONG: u32 = 2;
/// The maximum number of consecutive failed or truncated answers. The delay of OpenCode grows with each one.
const ERRORS: u32 = 2;

impl AgentAdapter for OpenCodeAdapter {
    fn agent_name(&self) -> &'static str {
        "OPENCODE"
    }

    fn program(&self) -> &'static str {
        "opencode"
    }

    fn credential_variables(&self) -> &'static [&'static str] {
        &["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY", "OPENCODE_API_KEY"]
    }

    fn login_hint(&self) -> &'static str {
        "`opencode auth login`, or set the key of a provider"
    }

    fn login_link(&self) -> LoginLink {
        let from = user_folder("XDG_DATA_HOME", ".local/share").map(|folder| folder.join("opencode/auth.json"));
        LoginLink { from, to: "data/opencode/auth.json" }
    }

    /// A part of OpenCode reads these files and runs the plugins that they name or contain. No setting prevents that.
    fn find_overriding_config(&self, folder: &Path) -> Option<PathBuf> {
        let whole = folder.canonicalize().ok()?;
        // OpenCode searches up to the root of the repository.
        let root = whole.ancestors().position(|at| at.join(".git").exists());
        let within = whole.ancestors().take(root.map_or(usize::MAX, |root| root + 1));
        within.flat_map(|at| CONTROL.map(|name| at.join(name))).find(|path| path.exists())
    }

    fn answer_is_output(&self, _may: &AgentPermissions, _schema: Option<&Value>) -> bool {
        false
    }

    fn build_invocation(&self, request: &AgentRequest<'_>) -> AgentInvocation {
        let mut call = AgentInvocation::default();
        // With a title, OpenCode does not ask a model for one.
        call.args(["run", "--format", "json", "--title", "skein", "--print-logs", "--log-level", "INFO"]);
        call.arg("--dir").arg(request.folder);
        if let Some(model) = request.model {
            call.args(["-m", model]);
        }
        if let AgentSession::Resume(id) = request.session {
            call.args(["-s", id]);
        }
        call.args(request.arguments);
        let mut config = json!({
            "autoupdate": false,
            "share": "disabled",
            "permission": permission_rules(request.may),
        });
        match request.servers {
            // No plugin is needed.
            [] => drop(call.arg("--pure")),
            servers => call.files.push(add_servers(&mut config, servers, request.files)),
        }
        if let Some(most) = request.command_time {
            call.set_variable("OPENCODE_EXPERIMENTAL_BASH_DEFAULT_TIMEOUT_MS", most.0.to_string());
            let (path, script) = timeout_shell(request.files, most);
            config["shell"] = Value::from(path.display().to_string());
            call.files.push((path, script));
        }
        call.set_variable("OPENCODE_CONFIG_CONTENT", config.to_string());
        for name in QUIET {
            call.set_variable(name, "1");
        }
        if let Some(home) = &request.home.path {
            for (name, below) in [("CONFIG", "config"), ("DATA", "data"), ("STATE", "state"), ("CACHE", "cache")] {
                call.set_variable(&format!("XDG_{name}_HOME"), home.join(below));
            }
            // OpenCode also looks for `.opencode` in the home folder.
            call.set_variable("OPENCODE_TEST_HOME", home);
            call.files.extend(plugin_stub_files(&home.join("config/opencode")));
        }
        call
    }

    fn new_reader(&self, _home: &AgentHome, servers: &[(&str, &ToolServer)]) -> Box<dyn AgentEventReader> {
        Box::new(OpenCodeReader { wanted: ExpectedServers::new(servers), ..OpenCodeReader::default() })
    }
}

/// Returns the value of `permission`. Rules of one kind are tried in order, and the last match decides.
fn permission_rules(may: &AgentPermissions) -> Value {
    let mut all = Map::new();
    const DENIED: [&str; 10] =
        ["*", "task", "skill", "webfetch", "websearch", "todowrite", "question", "doom_loop", "lsp", "bash"];
    DENIED.iter().for_each(|name| drop(all.insert((*name).to_owned(), json!("deny"))));
    ["read", "glob", "grep", "list"].iter().for_each(|name| drop(all.insert((*name).to_owned(), json!("allow"))));
    let back = format!("{}/*", may.back.display());
    all.insert("external_directory".to_owned(), json!({"*": "deny", (back): "allow"}));
    let mut edit = Map::new();
    edit.insert("*".to_owned(), json!(if may.edit { "allow" } else { "deny" }));
    if !may.edit {
        edit.insert(format!("*{}/*", path_suffix(&may.back)), json!("allow"));
        for name in may.files.iter().flat_map(|name| [name.clone(), format!("*/{name}")]) {
            edit.insert(name, json!("allow"));
        }
    }
    all.insert("edit".to_owned(), Value::Object(edit));
    match &may.run {
        CommandPermission::Nothing => {}
        CommandPermission::These(commands) => {
            let mut bash = Map::new();
            bash.insert("*".to_owned(), json!("deny"));
            commands.iter().for_each(|words| drop(bash.insert(quote_command(words), json!("allow"))));
            all.insert("bash".to_owned(), Value::Object(bash));
        }
        CommandPermission::Anything => drop(all.insert("bash".to_owned(), json!("allow"))),
    }
    Value::Object(all)
}

/// Returns the end of a path. OpenCode matches rules against paths relative to a repository with an unknown root.
fn path_suffix(path: &Path) -> String {
    let parts: Vec<_> = path.components().rev().take(5).map(|part| part.as_os_str().to_string_lossy()).collect();
    parts.into_iter().rev().collect::<Vec<_>>().join("/")
}

/// Returns a shell script that ends its command after the timeout. The model may raise the timeout of OpenCode itself.
fn timeout_shell(folder: &Path, most: Millis) -> (PathBuf, Vec<u8>) {
    let (seconds, rest) = (most.0 / 1_000, most.0 % 1_000);
    let script = format!(
        "#!/bin/sh\nshell=/bin/bash; [ -x $shell ] || shell=/bin/sh\n\
         command -v timeout >/dev/null || exec $shell \"$@\"\n\
         exec timeout -k 2 {seconds}.{rest:03} $shell \"$@\"\n"
    );
    // OpenCode accepts no other name for a shell.
    (folder.join("shell/bash"), script.into_bytes())
}

/// Returns files that make OpenCode assume that its plugin dependencies are installed. Otherwise it would fetch them
/// from a package registry each time.
fn plugin_stub_files(folder: &Path) -> [(PathBuf, Vec<u8>); 2] {
    let lock = json!({"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}});
    [(folder.join("package-lock.json"), lock.to_string().into_bytes()), (folder.join("node_modules/none"), Vec::new())]
}

#[derive(Default)]
struct OpenCodeReader {
    wanted: ExpectedServers,
    spent: TokenUsage,
    answer: String,
    /// The reason why the last step ended.
    reason: String,
    too_long: u32,
    errors: u32,
    error: Option<Value>,
}

impl OpenCodeReader {
    fn read_step_finish(&mut self, part: &Value) -> Vec<AgentEvent> {
        self.reason = text_at(part, "/reason").to_owned();
        let cut_off = self.reason == "unknown";
        self.errors = if cut_off { self.errors + 1 } else { 0 };
        self.spent.add(TokenUsage {
            input: number_at(part, "/tokens/input") + number_at(part, "/tokens/cache/write"),
            cached: number_at(part, "/tokens/cache/read"),
            output: number_at(part, "/tokens/output") + number_at(part, "/tokens/reasoning"),
            micro_usd: part["cost"].as_f64().and_then(to_micro_usd),
        });
        let mut events = vec![AgentEvent::Used(UsageTotal::Run(self.spent))];
        if self.errors > ERRORS {
            let message = format!("{} answers in a row were cut off or failed", self.errors);
            events.push(AgentEvent::Hopeless(AgentFailure::new(AgentFailureKind::Service, message)));
        }
        events
    }

    /// Handles an error of the service, after which OpenCode would retry.
    fn handle_service_error(&mut self, message: &str) -> Vec<AgentEvent> {
        self.errors += 1;
        let failure = AgentFailure::from_message(message);
        // OpenCode gives up by itself after other errors.
        let waits = failure.has_kind(AgentFailureKind::Limit) || failure.has_kind(AgentFailureKind::Billing);
        match self.errors > ERRORS || waits {
            true => vec![AgentEvent::Hopeless(failure)],
            false => vec![AgentEvent::Note(message.to_owned())],
        }
    }

    fn read_error(&mut self, event: &Value) -> Vec<AgentEvent> {
        let error = &event["error"];
        self.error = Some(error.clone());
        if text_at(error, "/name") == "ContextOverflowError" {
            self.too_long += 1;
        }
        match self.too_long >= TOO_LONG {
            true => vec![AgentEvent::Hopeless(parse_failure(error))],
            false => vec![AgentEvent::Note(error_message(error))],
        }
    }
}

fn error_message(error: &Value) -> String {
    match text_at(error, "/data/message") {
        "" => text_at(error, "/name").to_owned(),
        message => message.to_owned(),
    }
}

fn parse_failure(error: &Value) -> AgentFailure {
    let (message, data) = (error_message(error), &error["data"]);
    let kind = match (text_at(error, "/name"), data["statusCode"].as_u64()) {
        ("ContextOverflowError", _) => AgentFailureKind::Context,
        ("ProviderAuthError", _) => AgentFailureKind::Auth,
        // A rate limit and an empty account have the same status.
        (_, Some(429)) if text_at(data, "/responseBody").contains("insufficient_quota") => AgentFailureKind::Billing,
        (_, Some(status)) => AgentFailureKind::from_status(status),
        _ => AgentFailureKind::from_message(&message),
    };
    match parse_retry_after(data).filter(|_| kind == AgentFailureKind::Limit) {
        Some(wait) => AgentFailure::new(kind, message).with_until(Some(Clock::new().now().saturating_add(wait))),
        None => AgentFailure::with_parsed_wait(kind, message),
    }
}

/// Returns the value of a field in a line of the log. A value with spaces is quoted.
fn log_field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let after = line.split(&format!(" {name}=")).nth(1)?;
    match after.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => after.split(' ').next(),
    }
}

/// Parses the wait that the headers of the answer ask for.
fn parse_retry_after(data: &Value) -> Option<Millis> {
    let header = |name: &str| data["responseHeaders"][name].as_str()?.trim().parse::<u64>().ok();
    let wait = header("retry-after-ms").or_else(|| header("retry-after").map(|seconds| seconds.saturating_mul(1_000)));
    wait.map(Millis)
}

impl AgentEventReader for OpenCodeReader {
    fn read_event(&mut self, event: &Value) -> Vec<AgentEvent> {
        let part = &event["part"];
        let mut events: Vec<AgentEvent> =
            event["sessionID"].as_str().map(|id| AgentEvent::Session(id.to_owned())).into_iter().collect();
        events.extend(match text_at(event, "/type") {
            EVENT => self.wanted.check_report(event).into_iter().collect(),
            "step_start" => self.wanted.fail_unreported().into_iter().chain([AgentEvent::Turn]).collect(),
            "text" => {
                self.answer = text_at(part, "/text").to_owned();
                vec![AgentEvent::Message(self.answer.clone())]
            }
            "tool_use" => {
                let input = &part["state"]["input"];
                let on = ["command", "filePath", "pattern", "path"].iter().find_map(|name| input[*name].as_str());
                let tool =
                    AgentEvent::Tool { name: text_at(part, "/tool").to_owned(), on: on.unwrap_or_default().to_owned() };
                let result = match text_at(part, "/state/status") {
                    "error" => AgentEvent::Note(text_at(part, "/state/error").chars().take(200).collect()),
                    _ => AgentEvent::Result(text_at(part, "/state/output").to_owned()),
                };
                vec![tool, result]
            }
            "step_finish" => self.read_step_finish(part),
            "error" => self.read_error(event),
            _ => Vec::new(),
        });
        events
    }

    fn read_error_line(&mut self, line: &str) -> Option<Vec<AgentEvent>> {
        if !line.starts_with("timestamp=") {
            return None;
        }
        Some(match log_field(line, "message") {
            Some("created") => {
                let id = log_field(line, "id").filter(|id| id.starts_with("ses_"));
                id.map(|id| AgentEvent::Session(id.to_owned())).into_iter().collect()
            }
            Some("stream error") => self.handle_service_error(log_field(line, "error.error").unwrap_or_default()),
            _ => Vec::new(),
        })
    }

    fn final_result(&self, status: i32, errors: &str) -> Result<AgentAnswer, AgentFailure> {
        if let Some(error) = &self.error {
            return Err(parse_failure(error));
        }
        if status == 0 && self.reason == "stop" {
            return Ok(AgentAnswer { text: self.answer.clone(), value: None });
        }
        let message = last_line(errors);
        Err(match (message, self.reason.as_str()) {
            (Some(message), _) if errors.contains("Session not found") => AgentFailure::lost_session(message),
            (Some(message), "") => AgentFailure::new(AgentFailureKind::Usage, message),
            (_, reason) => AgentFailure::new(
                AgentFailureKind::NoEnd,
                format!("the agent ended without an answer, after `{reason}`"),
            ),
        })
    }
}

const PLUGIN: &str = include_str!("opencode/servers.js");
/// The event that the plugin prints once, before the model is asked.
pub(crate) const EVENT: &str = "skein.servers";
/// The minimum timeout of one tool call. OpenCode has no separate setting for it.
const CALL: u64 = 60_000;

/// Adds the servers to the configuration. Returns the plugin's file, which must exist when OpenCode starts.
pub(crate) fn add_servers(config: &mut Value, servers: &[(&str, &ToolServer)], files: &Path) -> (PathBuf, Vec<u8>) {
    let mut times = BTreeMap::new();
    for (name, own) in servers {
        config["mcp"][*name] = server_config(own);
        config["permission"][format!("{name}_*")] = json!("allow");
        times.insert(*name, json!({"most": own.start_timeout().0, "again": own.url.is_some()}));
    }
    let path = files.join("servers.js");
    config["plugin"] = json!([[path.display().to_string(), times]]);
    (path, PLUGIN.into())
}

/// Returns a server in the form of the configuration. OpenCode itself replaces `{env:NAME}` from its environment.
fn server_config(server: &ToolServer) -> Value {
    let filled = |name: &String| format!("{{env:{name}}}");
    let mut own = match &server.url {
        Some(url) => {
            let bearer = server.bearer.iter().map(|name| ("Authorization", format!("Bearer {}", filled(name))));
            json!({"type": "remote", "url": url, "headers": bearer.collect::<BTreeMap<_, _>>(), "oauth": false})
        }
        None => {
            let mut env = server.env.clone();
            env.extend(server.secrets.iter().map(|name| (name.clone(), filled(name))));
            json!({"type": "local", "command": server.command, "environment": env})
        }
    };
    own["timeout"] = json!(server.start_timeout().0.max(CALL));
    own
}

/// The requested servers that are not yet reported as connected.
#[derive(Default)]
pub(crate) struct ExpectedServers(Vec<String>);

impl ExpectedServers {
    pub(crate) fn new(servers: &[(&str, &ToolServer)]) -> ExpectedServers {
        ExpectedServers(servers.iter().map(|(name, _)| (*name).to_owned()).collect())
    }

    /// Checks the report of the plugin.
    pub(crate) fn check_report(&mut self, event: &Value) -> Option<AgentEvent> {
        let gone = |name: &String| {
            let found = &event["servers"][name];
            let how = match text_at(found, "/error") {
                "" => text_at(found, "/status"),
                error => error,
            };
            (found["status"] != "connected").then(|| AgentFailure::unusable_server(name, how))
        };
        std::mem::take(&mut self.0).iter().find_map(gone).map(AgentEvent::Hopeless)
    }

    /// Fails if the model was asked and a server has not been reported.
    pub(crate) fn fail_unreported(&mut self) -> Option<AgentEvent> {
        let missed = std::mem::take(&mut self.0);
        missed
            .first()
            .map(|name| AgentEvent::Hopeless(AgentFailure::unusable_server(name, "it was not reported as connected")))
    }
}

#[cfg(test)]
mod tests;
