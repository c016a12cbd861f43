//! The tool servers (MCP) that an agent is given for one step.
//!
//! Owns the description of a server, and its form for agents that accept `mcpServers`. The agent starts the server, so
//! both are in the same sandbox. Secrets reach the server through the agent's environment and are in no file. Does not
//! implement the protocol.

use std::{collections::BTreeMap, num::NonZeroU32};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use skein_core::{limits, time::Millis};

/// A server that is started as a program or reached at a URL.
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
    pub(super) fn command_parts(&self) -> (&str, &[String]) {
        self.command.split_first().map_or(("", &[]), |(program, arguments)| (program, arguments))
    }
}

/// Returns the servers in the common `mcpServers` form. The agent replaces `${NAME}` from its environment.
pub(super) fn servers_json(servers: &[(&str, &ToolServer)]) -> Value {
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
