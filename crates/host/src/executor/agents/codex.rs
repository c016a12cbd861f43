//! Codex: `codex exec --json`, with events as lines of JSON.
//!
//! The usage of a turn is reported only at its end. Until then it is read from the file in which Codex keeps the
//! session.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use serde_json::Value;
use skein_core::limits;

use super::{
    AgentAdapter, AgentAnswer, AgentEvent, AgentEventReader, AgentFailure, AgentHome, AgentInvocation,
    AgentPermissions, AgentRequest, AgentSession, LoginLink, TokenUsage, UsageTotal, agent_launch::CommandPermission,
    fallback::AgentFailureKind, home::user_folder, last_error_line, number_at, text_at,
};
use crate::run_settings::ToolServer;

#[derive(Debug)]
pub(crate) struct CodexAdapter;

/// The folder of the session files, below the agent's home.
const SESSIONS: &str = "sessions";
/// The maximum number of folders and files that are searched for a session file.
const LOOKED_AT: usize = 5_000;
/// The maximum number of consecutive retries by Codex itself. Its delay grows with each retry.
const RECONNECTS: u32 = 2;
/// The maximum length of a line in a session file: that of an event.
const LINE: u64 = limits::AGENT_EVENT_BYTES as u64;

impl AgentAdapter for CodexAdapter {
    fn agent_name(&self) -> &'static str {
        "CODEX_CLI"
    }

    fn program(&self) -> &'static str {
        "codex"
    }

    fn credential_variables(&self) -> &'static [&'static str] {
        &["OPENAI_API_KEY", "CODEX_API_KEY", "OPENAI_BASE_URL"]
    }

    fn login_hint(&self) -> &'static str {
        "`codex login`, or set OPENAI_API_KEY"
    }

    fn login_link(&self) -> LoginLink {
        LoginLink { from: user_folder("CODEX_HOME", ".codex").map(|folder| folder.join("auth.json")), to: "auth.json" }
    }

    /// Codex blocks the network with its own sandbox, where it can set one up.
    fn blocks_network(&self, may: &AgentPermissions) -> bool {
        may.sandbox
    }

    fn answer_is_output(&self, may: &AgentPermissions, schema: Option<&Value>) -> bool {
        schema.and_then(to_strict_schema).is_some() || may.is_read_only()
    }

    /// Replaces the installed script by the program that it starts: the script would intercept every signal.
    fn find_native_program(&self, found: PathBuf) -> PathBuf {
        find_vendored_program(&found).unwrap_or(found)
    }

    fn build_invocation(&self, request: &AgentRequest<'_>) -> AgentInvocation {
        let mut call = AgentInvocation::default();
        call.args(["exec", "--json", "--color", "never", "--skip-git-repo-check", "--ignore-rules"]);
        if request.home.path.is_some() {
            call.arg("--ignore-user-config");
        }
        for feature in ["plugins", "apps", "unbounded_connection_retries"] {
            call.args(["--disable", feature]);
        }
        for setting in [
            "check_for_update_on_startup=false",
            "analytics.enabled=false",
            // No file of the repository gives the agent instructions.
            "project_doc_max_bytes=0",
            // Keys and tokens are not passed to the commands that the agent runs.
            "shell_environment_policy.ignore_default_excludes=false",
        ] {
            call.args(["-c", setting]);
        }
        call.arg("-C").arg(request.folder);
        if let Some(model) = request.model {
            call.args(["-m", model]);
        }
        call.args(sandbox_flags(request.may));
        for (name, server) in request.servers {
            call.arg("-c").arg(format!("mcp_servers.{name}={}", render_server_table(server)));
        }
        if let Some(schema) = request.schema.and_then(to_strict_schema) {
            let file = request.files.join("schema.json");
            call.arg("--output-schema").arg(&file);
            call.files.push((file, schema.to_string().into_bytes()));
        }
        call.args(request.arguments);
        if let AgentSession::Resume(id) = request.session {
            call.args(["resume", id]);
        }
        call.arg("-");
        if let Some(home) = &request.home.path {
            call.set_variable("CODEX_HOME", home);
        }
        call
    }

    fn new_reader(&self, home: &AgentHome, _servers: &[(&str, &ToolServer)]) -> Box<dyn AgentEventReader> {
        Box::new(CodexReader::new(home, ""))
    }

    fn is_sandboxed(&self) -> bool {
        true
    }

    fn read_session_usage(&self, home: &AgentHome, session: &str) -> Option<TokenUsage> {
        CodexReader::new(home, session).read_session_file()
    }
}

/// Returns `-s` and the flags that belong to it.
fn sandbox_flags(may: &AgentPermissions) -> Vec<String> {
    let mut words = vec!["-s".to_owned()];
    if !may.sandbox {
        // Codex needs mounts for its sandbox, which are not allowed under Landlock. The Landlock rules still apply.
        words.push("danger-full-access".to_owned());
        return words;
    }
    if may.is_read_only() {
        words.push("read-only".to_owned());
        return words;
    }
    words.push("workspace-write".to_owned());
    words.extend(["--add-dir".to_owned(), may.back.display().to_string()]);
    let network = may.network && may.run != CommandPermission::Nothing;
    words.extend(["-c".to_owned(), format!("sandbox_workspace_write.network_access={network}")]);
    // Codex would create a folder in /tmp, which is not writable.
    words.extend(["-c".to_owned(), "sandbox_workspace_write.exclude_slash_tmp=true".to_owned()]);
    words
}

/// Renders a server as a table of the Codex configuration. The server is marked as required, so that Codex does not
/// work without it.
fn render_server_table(server: &ToolServer) -> String {
    // A quoted JSON string is a quoted TOML string.
    let quoted = |text: &str| Value::from(text).to_string();
    let list = |words: &[String]| words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(",");
    let own = match &server.url {
        Some(url) => {
            let bearer = server.bearer.iter().map(|name| format!(",bearer_token_env_var={}", quoted(name)));
            format!("url={}{}", quoted(url), bearer.collect::<String>())
        }
        None => {
            let (program, arguments) = server.command_parts();
            let env = server.env.iter().map(|(name, value)| format!("{}={}", quoted(name), quoted(value)));
            let env = env.collect::<Vec<_>>().join(",");
            let (program, arguments, secrets) = (quoted(program), list(arguments), list(&server.secrets));
            format!("command={program},args=[{arguments}],env={{{env}}},env_vars=[{secrets}]")
        }
    };
    // The timeout is in seconds, as a decimal number.
    let most = server.start_timeout().0;
    let most = format!("{}.{:03}", most / 1_000, most % 1_000);
    format!("{{{own},required=true,startup_timeout_sec={most},default_tools_approval_mode=\"approve\"}}")
}

/// Finds the program that a script of this package starts.
fn find_vendored_program(script: &Path) -> Option<PathBuf> {
    let script = fs::canonicalize(script).ok()?;
    let package = script.parent()?.parent()?;
    let (machine, system) = match std::env::consts::ARCH {
        "x86_64" => ("x64", "x86_64-unknown-linux-musl"),
        "aarch64" => ("arm64", "aarch64-unknown-linux-musl"),
        _ => return None,
    };
    let below = format!("codex-linux-{machine}/vendor/{system}/bin/codex");
    let places = [package.parent()?.to_owned(), package.join("node_modules/@openai")];
    places.iter().map(|place| place.join(&below)).find(|program| program.is_file())
}

/// Converts the schema to the form that the service accepts: every object is closed and requires all its properties.
/// Returns `None` if that is not possible.
fn to_strict_schema(schema: &Value) -> Option<Value> {
    let mut schema = schema.clone();
    close_objects(&mut schema).then_some(schema).filter(|schema| schema["type"] == "object")
}

fn close_objects(schema: &mut Value) -> bool {
    let Value::Object(fields) = schema else { return true };
    if let Some(Value::Object(properties)) = fields.get("properties") {
        let required: Vec<&str> =
            fields.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let all = properties.keys().all(|name| required.contains(&name.as_str()));
        if !all || fields.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false)) {
            return false;
        }
        fields.insert("additionalProperties".to_owned(), Value::Bool(false));
    } else if fields.get("type") == Some(&Value::from("object")) {
        return false;
    }
    // A default is useless in an answer that has every property.
    fields.remove("default");
    fields.iter_mut().all(|(name, value)| match name.as_str() {
        "properties" | "$defs" | "definitions" => {
            value.as_object_mut().is_none_or(|named| named.values_mut().all(close_objects))
        }
        "items" => close_objects(value),
        "anyOf" => value.as_array_mut().is_none_or(|any| any.iter_mut().all(close_objects)),
        "allOf" | "oneOf" | "not" | "if" | "then" | "else" | "patternProperties" | "dependentSchemas" => false,
        _ => true,
    })
}

#[derive(Default)]
struct CodexReader {
    home: Option<PathBuf>,
    session: String,
    file: Option<BufReader<File>>,
    /// The last message of the agent.
    answer: String,
    /// The result of the turn, or `None` if it has not ended.
    ended: Option<Result<(), String>>,
    /// The number of consecutive retries.
    reconnects: u32,
}

impl CodexReader {
    fn new(home: &AgentHome, session: &str) -> CodexReader {
        let home = home.path.clone().or_else(|| user_folder("CODEX_HOME", ".codex"));
        CodexReader { home, session: session.to_owned(), ..CodexReader::default() }
    }

    fn read_usage(&mut self) -> Option<AgentEvent> {
        self.read_session_file().map(|spent| AgentEvent::Used(UsageTotal::Session(spent)))
    }

    /// Reads new lines of the session file. Returns the session's total usage, if it was updated.
    fn read_session_file(&mut self) -> Option<TokenUsage> {
        if self.file.is_none() {
            let sessions = self.home.as_ref()?.join(SESSIONS);
            let path = find_session_file(&sessions, &self.session, &mut 0)?;
            self.file = Some(BufReader::new(File::open(path).ok()?));
        }
        let file = self.file.as_mut()?;
        let mut last = None;
        loop {
            let (at, mut line) = (file.stream_position().ok()?, String::new());
            let read = file.by_ref().take(LINE).read_line(&mut line);
            if !line.ends_with('\n') {
                // The rest of the line is not written yet.
                let _ = file.seek(SeekFrom::Start(at));
                break;
            }
            if read.is_err() {
                break;
            }
            if line.contains("\"token_count\"")
                && let Ok(event) = serde_json::from_str::<Value>(&line)
                && let Some(usage) = event.pointer("/payload/info/total_token_usage")
            {
                last = Some(parse_usage(usage));
            }
        }
        last
    }

    /// Reads an error after which Codex retries by itself. It waits as long as its service says, even for hours.
    fn read_error(&mut self, message: &str) -> Vec<AgentEvent> {
        let Some(rest) = message.strip_prefix("Reconnecting") else {
            return vec![AgentEvent::Note(message.to_owned())];
        };
        self.reconnects += 1;
        let why = rest.split_once('(').map_or(message, |(_, why)| why.trim_end_matches(')'));
        let failure = AgentFailure::from_message(why);
        match self.reconnects > RECONNECTS || !failure.has_kind(AgentFailureKind::Service) {
            true => vec![AgentEvent::Hopeless(failure)],
            false => vec![AgentEvent::Note(message.to_owned())],
        }
    }

    fn read_item(&mut self, event: &Value) -> Vec<AgentEvent> {
        let (item, over) = (&event["item"], event["type"] == "item.completed");
        let item_event = match (text_at(item, "/type"), over) {
            ("agent_message", true) => {
                self.answer = text_at(item, "/text").to_owned();
                Some(AgentEvent::Message(self.answer.clone()))
            }
            ("command_execution", false) => {
                let command = text_at(item, "/command").to_owned();
                Some(AgentEvent::Tool { name: "run".to_owned(), on: command })
            }
            ("command_execution", true) => {
                let printed = text_at(item, "/aggregated_output");
                Some(AgentEvent::Result(match item["exit_code"].as_i64() {
                    None | Some(0) => printed.to_owned(),
                    Some(status) => format!("exit status {status}\n{printed}"),
                }))
            }
            ("file_change", true) => {
                let changes = item["changes"].as_array().map_or(&[][..], Vec::as_slice);
                let paths: Vec<&str> = changes.iter().map(|change| text_at(change, "/path")).collect();
                Some(AgentEvent::Tool { name: "edit".to_owned(), on: paths.join(", ") })
            }
            ("error", true) => Some(AgentEvent::Note(text_at(item, "/message").to_owned())),
            ("web_search", false) => {
                Some(AgentEvent::Tool { name: "web_search".to_owned(), on: text_at(item, "/query").to_owned() })
            }
            ("mcp_tool_call", false) => Some(AgentEvent::Tool {
                name: text_at(item, "/server").to_owned(),
                on: text_at(item, "/tool").to_owned(),
            }),
            ("mcp_tool_call", true) if !item["error"].is_null() => {
                Some(AgentEvent::Note(text_at(item, "/error/message").to_owned()))
            }
            ("mcp_tool_call", true) => Some(AgentEvent::Result(text_at(item, "/result/content/0/text").to_owned())),
            _ => None,
        };
        let turn = matches!(item_event, Some(AgentEvent::Tool { .. })).then_some(AgentEvent::Turn);
        self.read_usage().into_iter().chain(item_event).chain(turn).chain(command_event(item, over)).collect()
    }
}

/// Returns an event for the start or end of a command. Codex itself lets a command run as long as its model likes.
fn command_event(item: &Value, over: bool) -> Option<AgentEvent> {
    let id = text_at(item, "/id").to_owned();
    let runs = text_at(item, "/type") == "command_execution";
    runs.then_some(if over { AgentEvent::Over(id) } else { AgentEvent::Begun(id) })
}

fn parse_usage(usage: &Value) -> TokenUsage {
    let cached = number_at(usage, "/cached_input_tokens");
    TokenUsage {
        // The number of input tokens includes the cached ones.
        input: number_at(usage, "/input_tokens").saturating_sub(cached),
        cached,
        output: number_at(usage, "/output_tokens"),
        micro_usd: None,
    }
}

/// Finds the file of a session, newest folders first.
fn find_session_file(folder: &Path, session: &str, looked: &mut usize) -> Option<PathBuf> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).take(LOOKED_AT).collect();
    entries.sort();
    entries.into_iter().rev().find_map(|path| {
        *looked += 1;
        if *looked > LOOKED_AT || session.is_empty() {
            return None;
        }
        if path.is_dir() {
            return find_session_file(&path, session, looked);
        }
        path.file_name()?.to_str()?.strip_suffix(".jsonl")?.ends_with(session).then_some(path)
    })
}

impl AgentEventReader for CodexReader {
    fn read_event(&mut self, event: &Value) -> Vec<AgentEvent> {
        match text_at(event, "/type") {
            "thread.started" => {
                self.session = text_at(event, "/thread_id").to_owned();
                vec![AgentEvent::Session(self.session.clone())]
            }
            "item.started" | "item.completed" => {
                self.reconnects = 0;
                self.read_item(event)
            }
            "turn.completed" => {
                self.ended = Some(Ok(()));
                vec![AgentEvent::Used(UsageTotal::Session(parse_usage(&event["usage"])))]
            }
            "turn.failed" => {
                self.ended = Some(Err(text_at(event, "/error/message").to_owned()));
                self.read_usage().into_iter().collect()
            }
            "error" => self.read_error(text_at(event, "/message")),
            _ => Vec::new(),
        }
    }

    fn final_result(&self, status: i32, errors: &str) -> Result<AgentAnswer, AgentFailure> {
        match &self.ended {
            Some(Ok(())) => {
                let value = serde_json::from_str(self.answer.trim()).ok().filter(Value::is_object);
                Ok(AgentAnswer { text: self.answer.clone(), value })
            }
            Some(Err(message)) => Err(AgentFailure::from_message(message)),
            None => {
                let message = last_error_line(errors);
                Err(match status {
                    _ if errors.contains("no rollout found") => AgentFailure::lost_session(message),
                    2 => AgentFailure::new(AgentFailureKind::Usage, message),
                    0 => AgentFailure::new(AgentFailureKind::NoEnd, message),
                    // The reason why it did not start is on standard error.
                    _ => AgentFailure::new(AgentFailureKind::from_message(errors), message),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests;
