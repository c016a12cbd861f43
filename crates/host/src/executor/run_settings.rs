//! What was settled about a run when it was begun, so that whoever goes on with it does as it was told: where it
//! works, what it may reach, and who its agents and tools are. Kept with the run; changes to a project change nothing.

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
    /// The file it was read from, as people are shown it.
    pub source: String,
    pub project: PathBuf,
    pub workspace: PathBuf,
    /// Folders beyond those in which steps may work.
    #[serde(default)]
    pub roots: Vec<PathBuf>,
    /// Who began it.
    pub user: String,
    #[serde(default)]
    pub agents: BTreeMap<String, AgentSettings>,
    /// How the programs that are agents are started here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, AgentProgram>,
    /// The commands that are tests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub test_commands: Vec<Vec<String>>,
    /// What models cost, by the name of each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prices: BTreeMap<String, ModelPrice>,
    #[serde(default)]
    pub tools: BTreeMap<String, ToolSettings>,
    /// Who hears of it, and what its agents are told.
    #[serde(default, skip_serializing_if = "RunResources::is_empty")]
    pub surroundings: RunResources,
    #[serde(default)]
    pub secrets: BTreeMap<String, secret::SecretSource>,
    /// How those are handed out that the project describes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub handing: BTreeMap<String, SecretDelivery>,
    /// Variables of the host's environment that workers are given beyond the few they need.
    #[serde(default)]
    pub pass_env: Vec<String>,
    /// Beyond its workspace, what a step that may edit may write.
    #[serde(default)]
    pub writes: Vec<PathBuf>,
    /// Where the system cannot keep steps to what they may do, they are not kept to it.
    #[serde(default)]
    pub allow_unenforced: bool,
    /// Programs inside of the project that the run may start, as they were when it was begun.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pinned: BTreeMap<PathBuf, PinnedProgram>,
    /// The members of each role, as the project said when the run was begun. None: the run is older than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<BTreeMap<String, Vec<String>>>,
    /// The files of the project by which Skein decides what runs may do.
    #[serde(default, skip_serializing_if = "DefinitionFiles::is_empty")]
    pub definitions: DefinitionFiles,
    /// What was allowed beyond the usual when it was begun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<RunOverride>,
    /// The state folder when the run was begun, so that a project that was moved is found again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<PathBuf>,
    /// The context folder of this run, in place of the one that its workflow names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Warnings about the workflow when it was begun, as diagnostics in JSON.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Value>,
    /// Where what its workers do is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<PathBuf>,
    /// The recording from which it is done again. No program is started for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<PathBuf>,
}

/// The files of a project that say what runs of it may do: its configuration, its workflows, and the definitions of tools,
/// drivers, agents, policies and secrets. No step changes them unless its workflow names them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DefinitionFiles {
    /// Patterns that hold for any folder of a project.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<String>,
    /// The files that this run was read from, from the project's folder on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
}

impl DefinitionFiles {
    pub fn is_empty(&self) -> bool {
        *self == DefinitionFiles::default()
    }
}

/// How a secret that the project describes is handed out in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretDelivery {
    /// Why a step may have it, any one of these: a tool, a workflow, or what whoever began the run is. None: anyone may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub granted: Vec<SecretGrant>,
    /// As a variable of the environment.
    pub env: bool,
    /// As a file, whose path is in a variable with `_FILE` at its end.
    pub file: bool,
}

/// A reason to have a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SecretGrant {
    Tool(String),
    Workflow(String),
    /// Of whoever began the run, who has it.
    Role(String),
    User(String),
}

/// Something that was allowed or replaced for a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunOverride {
    /// What it is called where it is said, such as `allow-root`.
    pub name: String,
    /// What it was used for.
    pub used: Value,
}

/// Who an agent is: a coding agent that is known, or a program of the project's own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSettings {
    /// The coding agent. None: the command is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// A program and its arguments. What it is to do comes on its standard input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<WorkerCapability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
}

/// How a coding agent is started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentProgram {
    /// Another program than the usual one, by its name or whole path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The person's own configuration is used as it is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub inherit_config: bool,
}

impl AgentSettings {
    /// The name under which an agent is settled. A coding agent without a name is none of those that have one.
    pub fn settings_key(name: Option<&str>, program: Option<&str>) -> String {
        match (name, program) {
            (Some(name), _) => name.to_owned(),
            (None, program) => format!("any {}", program.unwrap_or_default()),
        }
    }
}

/// A tool that is a program, with JSON in on standard input and JSON out on standard output; a function of our own; or a
/// server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolSettings {
    /// The tool itself: its id and its version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// What it changes, as its file says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mutates: Vec<String>,
    /// The driver that was chosen.
    pub driver: String,
    /// A program and the arguments that are always the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// What does it in this process, in place of a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<BuiltinFunction>,
    /// The server that does it, in place of a program or as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteTool>,
    /// Whom it may ask over the network.
    #[serde(default, skip_serializing_if = "NetworkAccess::has_no_hosts")]
    pub reach: NetworkAccess,
    /// The arguments that values of the input fill in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<CallText>,
    #[serde(default)]
    pub inputs: Schema,
    #[serde(default)]
    pub outputs: Schema,
    /// What the driver calls inputs that the tool knows under another name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub renames: BTreeMap<String, String>,
    /// What of the output is left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drop_outputs: Vec<String>,
    /// What an exit status means, as an error code; `ok` is none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exit_codes: BTreeMap<i32, String>,
    /// Secrets that its program is given beside those of the step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The longest that the driver lets it take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Millis>,
}

impl ToolSettings {
    /// Whether it is a server, or someone else outside, and no program that does it alone.
    pub fn is_remote_or_builtin(&self) -> bool {
        self.remote.is_some() || self.function.is_some()
    }

    /// The name under which a tool is settled, or whatever tool does an action. One that only one driver may provide is
    /// another tool. None: the worker is no tool.
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
    /// Where the steps of the run may work, with this state folder.
    pub fn workspace_grants(&self, state: &Path) -> Result<FolderGrants, GrantError> {
        FolderGrants::new(&self.project, &self.workspace, &self.roots, Some(state))
    }

    /// Returns true if the agents and tools of a step have the same settings in both.
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

    /// The context folder of a run, from its workspace. None: its format has none.
    pub fn context_directory<'a>(&'a self, plan: &'a Plan) -> Option<&'a str> {
        let named = plan.definition.root().workflow.context.directory.as_deref()?;
        Some(self.context.as_deref().unwrap_or(named))
    }

    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("what was settled serialises to JSON")
    }

    pub fn from_json(value: &Value) -> Result<RunSettings, String> {
        RunSettings::deserialize(value)
            .map_err(|error| format!("what was settled about the run cannot be read: {error}"))
    }
}
