//! The settings of a run, fixed when it begins, so that a resumed run behaves the same: its folders, its permissions,
//! its agents and tools. They are stored with the run; later changes to the project do not affect it.
//!
//! Owns the stored form of the settings. Does not know how a step uses them ([`crate::executor`]).

mod agent;
mod tool;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use skein_core::plan::{ContentHash, Plan};

use crate::{
    memory::ContextModule,
    notify::NotifyChannel,
    secret,
    workspace::{FolderGrants, GrantError},
};

pub use agent::{AgentProgram, AgentSettings, ModelPrice, ToolServer};
pub use tool::{
    BuiltinFunction, HttpTool, LoginExpirySign, McpEndpoint, McpTool, NamedTextFields, RemoteTool, ToolSettings,
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
    pub fn is_empty(&self) -> bool {
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
    pub fn is_empty(&self) -> bool {
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
