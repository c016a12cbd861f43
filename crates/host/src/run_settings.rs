//! The settings of a run, fixed when it begins, so that a resumed run behaves the same: its folders, its permissions,
//! its agents and tools. They are stored with the run; later changes to the project do not affect it.
//!
//! Owns the stored form of the settings. Does not know how a step uses them ([`crate::executor`]).

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use skein_core::{
    ir::{Schema, WorkerCapability, WorkerSpec},
    limits,
    plan::{ContentHash, Plan},
    time::Millis,
    tool_call::{CallTemplate, CallText, JsonPathSegment},
};

use crate::{
    http::NetworkAccess,
    memory::ContextModule,
    notify::NotifyChannel,
    secret,
    workspace::{FolderGrants, GrantError},
};

/// Stored settings that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the settings of the run cannot be read: {0}")]
pub struct RunSettingsError(String);

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSettings {
    /// The source file, as it is shown to people.
    pub source: String,
    pub project: PathBuf,
    pub workspace: PathBuf,
    /// Additional folders in which steps may work.
    #[serde(default)]
    pub roots: Vec<PathBuf>,
    /// The user who started it.
    pub user: String,
    #[serde(default)]
    pub agents: BTreeMap<String, AgentSettings>,
    /// The way coding agents are started here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, AgentProgram>,
    /// The test commands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub test_commands: Vec<Vec<String>>,
    /// The prices of models, by model name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prices: BTreeMap<String, ModelPrice>,
    #[serde(default)]
    pub tools: BTreeMap<String, ToolSettings>,
    /// Notification channels, and material for agents.
    #[serde(default, skip_serializing_if = "RunResources::is_empty")]
    pub surroundings: RunResources,
    #[serde(default)]
    pub secrets: BTreeMap<String, secret::SecretSource>,
    /// The delivery of the secrets that the project describes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub handing: BTreeMap<String, SecretDelivery>,
    /// Host variables that workers get beyond the needed ones.
    #[serde(default)]
    pub pass_env: Vec<String>,
    /// Additional paths that an editing step may write.
    #[serde(default)]
    pub writes: Vec<PathBuf>,
    /// If the system cannot enforce the limits of steps, steps run without enforcement.
    #[serde(default)]
    pub allow_unenforced: bool,
    /// Programs inside the project that the run may start, with their content when it began.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pinned: BTreeMap<PathBuf, PinnedProgram>,
    /// The members of each role when the run began. `None` for a run from before this field existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<BTreeMap<String, Vec<String>>>,
    /// The project files that define the permissions of runs.
    #[serde(default, skip_serializing_if = "DefinitionFiles::is_empty")]
    pub definitions: DefinitionFiles,
    /// Exceptions that were allowed when the run began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<RunOverride>,
    /// The state folder when the run began, so that a moved project is found again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<PathBuf>,
    /// The context folder of this run, instead of the one that its workflow names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The warnings about the workflow when the run began, as diagnostics in JSON.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Value>,
    /// The path of the recording that is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<PathBuf>,
    /// The recording that is replayed. No program is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<PathBuf>,
}

/// The content hash of a program's file when the run began. `None` if there was no file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PinnedProgram(pub(crate) Option<ContentHash>);

/// The project files that define the permissions of runs: its configuration, its workflows, and the definitions of
/// tools, drivers, agents, policies and secrets. No step may change them unless its workflow names them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DefinitionFiles {
    /// Patterns that apply to any folder of a project.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<String>,
    /// The source files of this run, relative to the project folder.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
}

impl DefinitionFiles {
    pub(crate) fn is_empty(&self) -> bool {
        *self == DefinitionFiles::default()
    }
}

/// The delivery of a secret that the project describes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretDelivery {
    /// The grants, each of which allows a step to have it: a tool, a workflow, or the role or name of the user who
    /// started the run. Empty means that any step may have it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub granted: Vec<SecretGrant>,
    /// As an environment variable.
    pub env: bool,
    /// As a file, whose path is in a variable with the suffix `_FILE`.
    pub file: bool,
}

/// A reason to have a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SecretGrant {
    Tool(String),
    Workflow(String),
    /// The role of the user who started the run.
    Role(String),
    User(String),
}

/// An exception that was allowed, or a value that was replaced, for a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunOverride {
    /// The name of the option, such as `allow-root`.
    pub name: String,
    /// The uses of the exception.
    pub used: Value,
}

impl RunSettings {
    /// The folders in which the steps of the run may work, with this state folder.
    pub fn workspace_grants(&self, state: &Path) -> Result<FolderGrants, GrantError> {
        FolderGrants::new(&self.project, &self.workspace, &self.roots, Some(state))
    }

    /// The context folder of a run, relative to its workspace. `None` if its format has none.
    pub fn context_directory<'a>(&'a self, plan: &'a Plan) -> Option<&'a str> {
        let named = plan.definition.root().workflow.context.directory.as_deref()?;
        Some(self.context.as_deref().unwrap_or(named))
    }

    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("run settings serialise to JSON")
    }

    pub fn from_json(value: &Value) -> Result<RunSettings, RunSettingsError> {
        RunSettings::deserialize(value).map_err(|error| RunSettingsError(error.to_string()))
    }
}

/// Notification channels, and the material for agents beside their instructions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunResources {
    /// Notification channels, by the names that hooks use.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub channels: BTreeMap<String, NotifyChannel>,
    /// Context modules, by their references such as `ctx:rules`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub modules: BTreeMap<String, ContextModule>,
    /// Skills, by their references such as `skill:search`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub skills: BTreeMap<String, AgentSkill>,
    /// Tool servers, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub servers: BTreeMap<String, ToolServer>,
    /// Subscriptions to the events of the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub telemetry: Vec<TelemetrySubscription>,
}

/// A channel that subscribes to some of the events of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelemetrySubscription {
    pub name: String,
    pub channel: NotifyChannel,
    /// Event names without their domain, event classes, or `*`.
    pub events: Vec<String>,
}

impl RunResources {
    pub(crate) fn is_empty(&self) -> bool {
        *self == RunResources::default()
    }
}

/// A skill: instructions for an agent, with files that it may read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSkill {
    pub text: String,
    pub folder: PathBuf,
}

impl AgentSkill {
    /// The text about it in the prompt.
    pub(crate) fn render_instructions(&self, name: &str) -> String {
        let short = name.split_once(':').map_or(name, |(_, name)| name);
        format!("# Skill: {short}\n\nIts files are in {}.\n\n{}", self.folder.display(), self.text.trim())
    }
}

/// The settings of an agent: a known coding agent, or a program of the project.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSettings {
    /// The coding agent. `None` if `command` is the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// A program and its arguments. It reads its prompt from stdin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<WorkerCapability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
}

/// The way a coding agent is started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentProgram {
    /// A program that replaces the default one, by name or absolute path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Uses the user's own configuration unchanged.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub inherit_config: bool,
}

impl AgentSettings {
    /// The key of an agent's settings. A coding agent without a name never shares the settings of a named one.
    pub fn settings_key(name: Option<&str>, program: Option<&str>) -> String {
        match (name, program) {
            (Some(name), _) => name.to_owned(),
            (None, program) => format!("any {}", program.unwrap_or_default()),
        }
    }
}

/// The price of a model's tokens, in dollars per million.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrice {
    pub input: f64,
    /// The price of cached input. The default is `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<f64>,
    pub output: f64,
}

/// A tool server (MCP) of agents, which is started as a program or reached at a URL. The agent starts the server, so both are in
/// the same sandbox. Secrets reach the server through the agent's environment and are in no file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolServer {
    /// A program and its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Secrets in the server's environment. The variable has the name of the secret.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The URL of the server, instead of a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The secret that is sent as the bearer token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bearer: Option<String>,
    /// The maximum time until the server has listed its tools, if it is not the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timeout_ms: Option<NonZeroU32>,
}

impl ToolServer {
    /// The prefix of a server's name where a step requests it.
    pub const SORT: &str = "mcp:";

    /// Returns the secrets that the agent must have in its environment.
    pub fn required_secrets(&self) -> impl Iterator<Item = &String> {
        self.secrets.iter().chain(&self.bearer)
    }

    /// Returns the maximum time until the server has listed its tools.
    pub fn start_timeout(&self) -> Millis {
        self.start_timeout_ms.map_or(Millis(limits::SERVER_START), |time| Millis(time.get().into()))
    }

    /// True if a name is valid: it becomes a part of the names of tools.
    pub fn is_valid_name(name: &str) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=64).contains(&name.len()) && name.bytes().all(plain) && !name.contains("__")
    }

    /// Returns the program and its arguments.
    pub(crate) fn command_parts(&self) -> (&str, &[String]) {
        self.command.split_first().map_or(("", &[]), |(program, arguments)| (program, arguments))
    }
}

/// A tool: a program with JSON on stdin and stdout, a builtin function, or a server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolSettings {
    /// The id and the version of the tool.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The things that it changes, as its file declares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mutates: Vec<String>,
    /// The chosen driver.
    pub driver: String,
    /// A program and its fixed arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The builtin function that implements it, instead of a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<BuiltinFunction>,
    /// The server that implements it, instead of a program or started as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteTool>,
    /// The network access of the tool.
    #[serde(default, skip_serializing_if = "NetworkAccess::has_no_hosts")]
    pub reach: NetworkAccess,
    /// The arguments that are filled with input values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<CallText>,
    #[serde(default)]
    pub inputs: Schema,
    #[serde(default)]
    pub outputs: Schema,
    /// The driver's names of inputs that have another name in the tool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub renames: BTreeMap<String, String>,
    /// The output fields that are dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drop_outputs: Vec<String>,
    /// The error codes of exit statuses; `ok` means no error.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exit_codes: BTreeMap<i32, String>,
    /// The secrets of its program, beside those of the step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The time limit of the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Millis>,
}

impl ToolSettings {
    /// True if it is a server or a builtin function, so that no program does it alone.
    pub(crate) fn is_remote_or_builtin(&self) -> bool {
        self.remote.is_some() || self.function.is_some()
    }

    /// The key of a tool's settings, or of any tool for an action. A tool that is pinned to a driver has its own key.
    /// `None` if the worker is not a tool.
    pub fn settings_key(worker: &WorkerSpec) -> Option<String> {
        let (name, pinned) = match worker {
            WorkerSpec::Tool { tool, pinned } => (tool.clone(), pinned),
            WorkerSpec::Action { action, pinned } => (format!("any for {action}"), pinned),
            _ => return None,
        };
        Some(match pinned {
            Some(driver) => format!("{name} by {driver}"),
            None => name,
        })
    }
}

/// A function that a driver of the kind `builtin` can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BuiltinFunction {
    #[serde(rename = "files.read")]
    FilesRead,
    #[serde(rename = "files.write")]
    FilesWrite,
    #[serde(rename = "files.list")]
    FilesList,
    #[serde(rename = "files.exists")]
    FilesExists,
    #[serde(rename = "files.remove")]
    FilesRemove,
    #[serde(rename = "json.merge")]
    JsonMerge,
    #[serde(rename = "json.pick")]
    JsonPick,
    #[serde(rename = "text.template")]
    TextTemplate,
    #[serde(rename = "sleep")]
    Sleep,
    #[serde(rename = "git.status")]
    GitStatus,
    #[serde(rename = "git.diff")]
    GitDiff,
    #[serde(rename = "http.get")]
    HttpGet,
    #[serde(rename = "notify")]
    Notify,
}

impl BuiltinFunction {
    pub const ALL: [BuiltinFunction; 13] = [
        BuiltinFunction::FilesRead,
        BuiltinFunction::FilesWrite,
        BuiltinFunction::FilesList,
        BuiltinFunction::FilesExists,
        BuiltinFunction::FilesRemove,
        BuiltinFunction::JsonMerge,
        BuiltinFunction::JsonPick,
        BuiltinFunction::TextTemplate,
        BuiltinFunction::Sleep,
        BuiltinFunction::GitStatus,
        BuiltinFunction::GitDiff,
        BuiltinFunction::HttpGet,
        BuiltinFunction::Notify,
    ];

    /// The name of the function in a driver.
    pub fn name(self) -> &'static str {
        match self {
            BuiltinFunction::FilesRead => "files.read",
            BuiltinFunction::FilesWrite => "files.write",
            BuiltinFunction::FilesList => "files.list",
            BuiltinFunction::FilesExists => "files.exists",
            BuiltinFunction::FilesRemove => "files.remove",
            BuiltinFunction::JsonMerge => "json.merge",
            BuiltinFunction::JsonPick => "json.pick",
            BuiltinFunction::TextTemplate => "text.template",
            BuiltinFunction::Sleep => "sleep",
            BuiltinFunction::GitStatus => "git.status",
            BuiltinFunction::GitDiff => "git.diff",
            BuiltinFunction::HttpGet => "http.get",
            BuiltinFunction::Notify => "notify",
        }
    }

    /// True if it communicates with the outside. It is then run, recorded and replayed like a call of a server.
    pub(crate) fn reaches_out(self) -> bool {
        matches!(self, BuiltinFunction::HttpGet | BuiltinFunction::Notify)
    }

    /// Finds a function by name. Dashes may replace dots, so that a tool's own id can be the name.
    pub fn from_name(name: &str) -> Option<BuiltinFunction> {
        let same = |function: &BuiltinFunction| function.name().replace('.', "-") == name.replace('.', "-");
        BuiltinFunction::ALL.into_iter().find(same)
    }
}

/// Named texts, such as headers.
pub type NamedTextFields = Vec<(String, CallText)>;

/// A server that implements a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RemoteTool {
    Http(Box<HttpTool>),
    Mcp(McpTool),
}

/// A request, and the relevant part of its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpTool {
    pub method: String,
    pub base: CallText,
    pub endpoint: CallText,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: NamedTextFields,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query: NamedTextFields,
    /// `None` means the input itself, if the method has a body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<CallTemplate>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extract: Vec<JsonPathSegment>,
    /// The header for the idempotency key, which is equal for all tries of the same work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_header: Option<String>,
    /// The sign of an expired login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired: Option<LoginExpirySign>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LoginExpirySign {
    Status(u16),
    Header(String, String),
}

/// A tool of an MCP server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpTool {
    pub tool: String,
    pub server: McpEndpoint,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extract: Vec<JsonPathSegment>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum McpEndpoint {
    /// The tool's own program, with these additional variables.
    Program(NamedTextFields),
    Url {
        url: CallText,
        headers: NamedTextFields,
    },
}
