//! The settings of agents: the programs, models, prices and tool servers of a run.

use std::{collections::BTreeMap, num::NonZeroU32};

use serde::{Deserialize, Serialize};
use skein_core::{ir::WorkerCapability, limits, time::Millis};

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
