//! The settings of a run, fixed when it begins, so that a resumed run behaves the same: its folders, its permissions,
//! its agents and tools. They are stored with the run; later changes to the project do not affect it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use skein_core::{
    engine::AttemptRole,
    ir::{Schema, Step, WorkerCapability, WorkerSpec},
    plan::Plan,
    time::Millis,
    tool_call::CallText,
};

use super::{
    attempt_spec::worker_for_role, builtin::BuiltinFunction, fallback, pinned_programs::PinnedProgram,
    remote::RemoteTool, run_resources::RunResources,
};
use crate::{
    agent::ModelPrice,
    http::NetworkAccess,
    secret,
    workspace::{FolderGrants, GrantError},
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    pub fn is_remote_or_builtin(&self) -> bool {
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

impl RunSettings {
    /// The folders in which the steps of the run may work, with this state folder.
    pub fn workspace_grants(&self, state: &Path) -> Result<FolderGrants, GrantError> {
        FolderGrants::new(&self.project, &self.workspace, &self.roots, Some(state))
    }

    /// True if the agents and tools of a step have the same settings in both.
    pub fn has_same_step_settings(&self, other: &RunSettings, step: &Step) -> bool {
        let roles = [AttemptRole::Main, AttemptRole::Check, AttemptRole::Summary, AttemptRole::Undo];
        let workers = roles.iter().filter_map(|role| worker_for_role(step, *role).ok());
        workers.map(|(worker, _)| worker).all(|worker| match worker {
            WorkerSpec::Agent { name, program, .. } => {
                let own = AgentSettings::settings_key(name.as_deref(), program.as_deref());
                let others = fallback::named_agents(step);
                let others = fallback::fallback_agents(&own, &others)
                    .iter()
                    .map(fallback::AgentReference::settings_key)
                    .collect::<Vec<_>>();
                [own].iter().chain(&others).all(|key| self.agents.get(key) == other.agents.get(key))
            }
            worker => ToolSettings::settings_key(worker)
                .is_none_or(|key| self.tools.get(&key) == other.tools.get(&key)),
        })
    }

    /// The context folder of a run, relative to its workspace. `None` if its format has none.
    pub fn context_directory<'a>(&'a self, plan: &'a Plan) -> Option<&'a str> {
        let named = plan.definition.root().workflow.context.directory.as_deref()?;
        Some(self.context.as_deref().unwrap_or(named))
    }

    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("run settings serialise to JSON")
    }

    pub fn from_json(value: &Value) -> Result<RunSettings, String> {
        RunSettings::deserialize(value)
            .map_err(|error| format!("the settings of the run cannot be read: {error}"))
    }
}
