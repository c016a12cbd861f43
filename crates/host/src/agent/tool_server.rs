//! Servers of tools (MCP) that an agent is given for one step.
//!
//! Owns what a server is and how it is written for an agent that takes `mcpServers`. The agent starts it, so that it is
//! in the same sandbox as the agent; what it needs to know in secret comes to it through the agent's environment, and
//! stands in no file. Refuses to speak the protocol.

use std::{collections::BTreeMap, num::NonZeroU32};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use skein_core::{limits, time::Millis};

/// A program that is started, or an address that is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolServer {
    /// A program and its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Secrets that it is given in its environment, by the names of both.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Where it is asked, in place of a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The secret by which whoever asks there is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bearer: Option<String>,
    /// How long it may take until it has said which tools it has, if not as long as is usual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timeout_ms: Option<NonZeroU32>,
}

impl ToolServer {
    /// What stands before the name of a server where a step asks for one.
    pub const SORT: &str = "mcp:";

    /// The secrets that the agent must have in its environment.
    pub fn required_secrets(&self) -> impl Iterator<Item = &String> {
        self.secrets.iter().chain(&self.bearer)
    }

    /// How long it may take until it has said which tools it has.
    pub fn start_timeout(&self) -> Millis {
        self.start_timeout_ms.map_or(Millis(limits::SERVER_START), |time| Millis(time.get().into()))
    }

    /// Whether a name can be one: it becomes a part of the names of tools.
    pub fn is_valid_name(name: &str) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=64).contains(&name.len()) && name.bytes().all(plain) && !name.contains("__")
    }

    /// The program and its arguments.
    pub(super) fn command_parts(&self) -> (&str, &[String]) {
        self.command.split_first().map_or(("", &[]), |(program, arguments)| (program, arguments))
    }
}

/// The servers as most programs take them. `${NAME}` is filled in by the agent, from its environment.
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
