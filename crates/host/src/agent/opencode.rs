//! OpenCode: `opencode run --format json`, with events as lines of JSON.
//!
//! It prints no event while it tries again, and tries some things for ever. So its log is asked for, too: it tells which
//! session it is before any model is asked, and every error when it happens.

mod servers;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use skein_core::time::Millis;

use self::servers::Wanted;
use super::{
    Adapter, Call, Done, Failure, Heard, Home, Login, May, Reader, Request, Server, Session, Spent, Used,
    class::Kind,
    event::{micro_usd, number, text},
    flags::{Run, line},
    home::personal,
};
use crate::clock::Clock;

#[derive(Debug)]
pub struct OpenCode;

const QUIET: [&str; 6] = [
    // Nothing of the repository that it works on tells it what to do or start.
    "OPENCODE_DISABLE_PROJECT_CONFIG",
    "OPENCODE_DISABLE_CLAUDE_CODE",
    "OPENCODE_DISABLE_AUTOUPDATE",
    "OPENCODE_DISABLE_MODELS_FETCH",
    "OPENCODE_DISABLE_LSP_DOWNLOAD",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS",
];
/// What it obeys in the repository that it works on.
const CONTROL: [&str; 3] = [".opencode", "opencode.json", "opencode.jsonc"];
/// Requests that were too long: it would ask for ever.
const TOO_LONG: u32 = 2;
/// How often in a row its service may fail or cut an answer off. It would wait longer from each to the next.
const ERRORS: u32 = 2;

impl Adapter for OpenCode {
    fn word(&self) -> &'static str {
        "OPENCODE"
    }

    fn program(&self) -> &'static str {
        "opencode"
    }

    fn credentials(&self) -> &'static [&'static str] {
        &["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY", "OPENCODE_API_KEY"]
    }

    fn sign_in(&self) -> &'static str {
        "`opencode auth login`, or set the key of a provider"
    }

    fn login(&self) -> Login {
        let from = personal("XDG_DATA_HOME", ".local/share").map(|folder| folder.join("opencode/auth.json"));
        Login { from, to: "data/opencode/auth.json" }
    }

    /// A part of it reads these and runs the plugins that they name or hold, and no setting keeps it from that.
    fn obstacle(&self, folder: &Path) -> Option<PathBuf> {
        let whole = folder.canonicalize().ok()?;
        // It looks as far up as the repository goes.
        let root = whole.ancestors().position(|at| at.join(".git").exists());
        let within = whole.ancestors().take(root.map_or(usize::MAX, |root| root + 1));
        within.flat_map(|at| CONTROL.map(|name| at.join(name))).find(|path| path.exists())
    }

    fn answers(&self, _may: &May, _schema: Option<&Value>) -> bool {
        false
    }

    fn call(&self, request: &Request<'_>) -> Call {
        let mut call = Call::default();
        // With a title, no model is asked for one.
        call.args(["run", "--format", "json", "--title", "skein", "--print-logs", "--log-level", "INFO"]);
        call.arg("--dir").arg(request.folder);
        if let Some(model) = request.model {
            call.args(["-m", model]);
        }
        if let Session::Resume(id) = request.session {
            call.args(["-s", id]);
        }
        call.args(request.arguments);
        let mut config = json!({
            "autoupdate": false,
            "share": "disabled",
            "permission": permission(request.may),
        });
        match request.servers {
            // No plugin is needed.
            [] => drop(call.arg("--pure")),
            servers => call.files.push(servers::add(&mut config, servers, request.files)),
        }
        if let Some(most) = request.command_time {
            call.set("OPENCODE_EXPERIMENTAL_BASH_DEFAULT_TIMEOUT_MS", most.0.to_string());
            let (path, script) = shell(request.files, most);
            config["shell"] = Value::from(path.display().to_string());
            call.files.push((path, script));
        }
        call.set("OPENCODE_CONFIG_CONTENT", config.to_string());
        for name in QUIET {
            call.set(name, "1");
        }
        if let Some(home) = &request.home.path {
            for (name, below) in
                [("CONFIG", "config"), ("DATA", "data"), ("STATE", "state"), ("CACHE", "cache")]
            {
                call.set(&format!("XDG_{name}_HOME"), home.join(below));
            }
            // It looks for `.opencode` in the home folder, too.
            call.set("OPENCODE_TEST_HOME", home);
            call.files.extend(installed(&home.join("config/opencode")));
        }
        call
    }

    fn reader(&self, _home: &Home, servers: &[(&str, &Server)]) -> Box<dyn Reader> {
        Box::new(Events { wanted: Wanted::of(servers), ..Events::default() })
    }
}

/// `permission`. Rules of one kind are tried in order, and the last that fits decides.
fn permission(may: &May) -> Value {
    let mut all = Map::new();
    const DENIED: [&str; 10] =
        ["*", "task", "skill", "webfetch", "websearch", "todowrite", "question", "doom_loop", "lsp", "bash"];
    DENIED.iter().for_each(|name| drop(all.insert((*name).to_owned(), json!("deny"))));
    ["read", "glob", "grep", "list"]
        .iter()
        .for_each(|name| drop(all.insert((*name).to_owned(), json!("allow"))));
    let back = format!("{}/*", may.back.display());
    all.insert("external_directory".to_owned(), json!({"*": "deny", (back): "allow"}));
    let mut edit = Map::new();
    edit.insert("*".to_owned(), json!(if may.edit { "allow" } else { "deny" }));
    if !may.edit {
        edit.insert(format!("*{}/*", end(&may.back)), json!("allow"));
        for name in may.files.iter().flat_map(|name| [name.clone(), format!("*/{name}")]) {
            edit.insert(name, json!("allow"));
        }
    }
    all.insert("edit".to_owned(), Value::Object(edit));
    match &may.run {
        Run::Nothing => {}
        Run::These(commands) => {
            let mut bash = Map::new();
            bash.insert("*".to_owned(), json!("deny"));
            commands.iter().for_each(|words| drop(bash.insert(line(words), json!("allow"))));
            all.insert("bash".to_owned(), Value::Object(bash));
        }
        Run::Anything => drop(all.insert("bash".to_owned(), json!("allow"))),
    }
    Value::Object(all)
}

/// The end of a path. It is matched against a path from the repository, which begins nobody knows how.
fn end(path: &Path) -> String {
    let parts: Vec<_> =
        path.components().rev().take(5).map(|part| part.as_os_str().to_string_lossy()).collect();
    parts.into_iter().rev().collect::<Vec<_>>().join("/")
}

/// A shell that ends what it runs. Its own limit is only one that its model may raise.
fn shell(folder: &Path, most: Millis) -> (PathBuf, Vec<u8>) {
    let (seconds, rest) = (most.0 / 1_000, most.0 % 1_000);
    let script = format!(
        "#!/bin/sh\nshell=/bin/bash; [ -x $shell ] || shell=/bin/sh\n\
         command -v timeout >/dev/null || exec $shell \"$@\"\n\
         exec timeout -k 2 {seconds}.{rest:03} $shell \"$@\"\n"
    );
    // It takes no other name for a shell.
    (folder.join("shell/bash"), script.into_bytes())
}

/// What makes it think that its folder has all that plugins need. It would fetch that from a registry of packages each time.
fn installed(folder: &Path) -> [(PathBuf, Vec<u8>); 2] {
    let lock = json!({"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}});
    [
        (folder.join("package-lock.json"), lock.to_string().into_bytes()),
        (folder.join("node_modules/none"), Vec::new()),
    ]
}

#[derive(Default)]
struct Events {
    wanted: Wanted,
    spent: Spent,
    said: String,
    /// Why the last step ended.
    reason: String,
    too_long: u32,
    errors: u32,
    error: Option<Value>,
}

impl Events {
    fn finished(&mut self, part: &Value) -> Vec<Heard> {
        self.reason = text(part, "/reason").to_owned();
        let cut_off = self.reason == "unknown";
        self.errors = if cut_off { self.errors + 1 } else { 0 };
        self.spent.add(Spent {
            input: number(part, "/tokens/input") + number(part, "/tokens/cache/write"),
            cached: number(part, "/tokens/cache/read"),
            output: number(part, "/tokens/output") + number(part, "/tokens/reasoning"),
            micro_usd: part["cost"].as_f64().and_then(micro_usd),
        });
        let mut heard = vec![Heard::Used(Used::Run(self.spent))];
        if self.errors > ERRORS {
            let message = format!("{} answers in a row were cut off or failed", self.errors);
            heard.push(Heard::Hopeless(Failure::new(Kind::Service, message)));
        }
        heard
    }

    /// An error of its service, which it would try again after.
    fn failed(&mut self, message: &str) -> Vec<Heard> {
        self.errors += 1;
        let failure = Failure::of_words(message);
        // It gives up by itself after others.
        let waits = failure.is_of(Kind::Limit) || failure.is_of(Kind::Billing);
        match self.errors > ERRORS || waits {
            true => vec![Heard::Hopeless(failure)],
            false => vec![Heard::Note(message.to_owned())],
        }
    }

    fn error(&mut self, event: &Value) -> Vec<Heard> {
        let error = &event["error"];
        self.error = Some(error.clone());
        if text(error, "/name") == "ContextOverflowError" {
            self.too_long += 1;
        }
        match self.too_long >= TOO_LONG {
            true => vec![Heard::Hopeless(failure(error))],
            false => vec![Heard::Note(message(error))],
        }
    }
}

fn message(error: &Value) -> String {
    match text(error, "/data/message") {
        "" => text(error, "/name").to_owned(),
        message => message.to_owned(),
    }
}

fn failure(error: &Value) -> Failure {
    let (message, data) = (message(error), &error["data"]);
    let kind = match (text(error, "/name"), data["statusCode"].as_u64()) {
        ("ContextOverflowError", _) => Kind::Context,
        ("ProviderAuthError", _) => Kind::Auth,
        // A limit and an empty account have the same status.
        (_, Some(429)) if text(data, "/responseBody").contains("insufficient_quota") => Kind::Billing,
        (_, Some(status)) => Kind::of_status(status),
        _ => Kind::of_words(&message),
    };
    match wait(data).filter(|_| kind == Kind::Limit) {
        Some(wait) => Failure::new(kind, message).until(Some(Clock::new().now().after(wait))),
        None => Failure::said(kind, message),
    }
}

/// The value of a field in a line of its log. One with spaces in it stands in quotes.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let after = line.split(&format!(" {name}=")).nth(1)?;
    match after.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => after.split(' ').next(),
    }
}

/// How long it is to wait, as the head of the answer says.
fn wait(data: &Value) -> Option<Millis> {
    let header = |name: &str| data["responseHeaders"][name].as_str()?.trim().parse::<u64>().ok();
    let told = header("retry-after-ms")
        .or_else(|| header("retry-after").map(|seconds| seconds.saturating_mul(1_000)));
    told.map(Millis)
}

impl Reader for Events {
    fn hear(&mut self, event: &Value) -> Vec<Heard> {
        let part = &event["part"];
        let mut heard: Vec<Heard> =
            event["sessionID"].as_str().map(|id| Heard::Session(id.to_owned())).into_iter().collect();
        heard.extend(match text(event, "/type") {
            servers::EVENT => self.wanted.told(event).into_iter().collect(),
            "step_start" => self.wanted.missed().into_iter().chain([Heard::Turn]).collect(),
            "text" => {
                self.said = text(part, "/text").to_owned();
                vec![Heard::Said(self.said.clone())]
            }
            "tool_use" => {
                let input = &part["state"]["input"];
                let on =
                    ["command", "filePath", "pattern", "path"].iter().find_map(|name| input[*name].as_str());
                let tool = Heard::Tool {
                    name: text(part, "/tool").to_owned(),
                    on: on.unwrap_or_default().to_owned(),
                };
                let result = match text(part, "/state/status") {
                    "error" => Heard::Note(text(part, "/state/error").chars().take(200).collect()),
                    _ => Heard::Result(text(part, "/state/output").to_owned()),
                };
                vec![tool, result]
            }
            "step_finish" => self.finished(part),
            "error" => self.error(event),
            _ => Vec::new(),
        });
        heard
    }

    fn hear_error(&mut self, line: &str) -> Option<Vec<Heard>> {
        if !line.starts_with("timestamp=") {
            return None;
        }
        Some(match field(line, "message") {
            Some("created") => {
                let id = field(line, "id").filter(|id| id.starts_with("ses_"));
                id.map(|id| Heard::Session(id.to_owned())).into_iter().collect()
            }
            Some("stream error") => self.failed(field(line, "error.error").unwrap_or_default()),
            _ => Vec::new(),
        })
    }

    fn end(&self, status: i32, errors: &str) -> Result<Done, Failure> {
        if let Some(error) = &self.error {
            return Err(failure(error));
        }
        if status == 0 && self.reason == "stop" {
            return Ok(Done { text: self.said.clone(), value: None });
        }
        let told = super::last_line(errors);
        Err(match (told, self.reason.as_str()) {
            (Some(told), _) if errors.contains("Session not found") => Failure::lost(told),
            (Some(told), "") => Failure::new(Kind::Usage, told),
            (_, reason) => Failure::new(Kind::NoEnd, format!("it ended without an answer, after `{reason}`")),
        })
    }
}

#[cfg(test)]
mod tests;
