//! The tool servers of OpenCode, and the check that they are connected.
//!
//! Owns the plugin that asks OpenCode for them, and the event that it prints. OpenCode would continue without a server
//! that fails, and does not report one whose tools it could not list.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::super::{AgentEvent, AgentFailure, ToolServer, event::text_at};

const PLUGIN: &str = include_str!("servers.js");
/// The event that the plugin prints once, before the model is asked.
pub(super) const EVENT: &str = "skein.servers";
/// The minimum timeout of one tool call. OpenCode has no separate setting for it.
const CALL: u64 = 60_000;

/// Adds the servers to the configuration. Returns the plugin's file, which must exist when OpenCode starts.
pub(super) fn add_servers(
    config: &mut Value,
    servers: &[(&str, &ToolServer)],
    files: &Path,
) -> (PathBuf, Vec<u8>) {
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
            let bearer =
                server.bearer.iter().map(|name| ("Authorization", format!("Bearer {}", filled(name))));
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
pub(super) struct ExpectedServers(Vec<String>);

impl ExpectedServers {
    pub(super) fn new(servers: &[(&str, &ToolServer)]) -> ExpectedServers {
        ExpectedServers(servers.iter().map(|(name, _)| (*name).to_owned()).collect())
    }

    /// Checks the report of the plugin.
    pub(super) fn check_report(&mut self, event: &Value) -> Option<AgentEvent> {
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
    pub(super) fn fail_unreported(&mut self) -> Option<AgentEvent> {
        let missed = std::mem::take(&mut self.0);
        missed.first().map(|name| {
            AgentEvent::Hopeless(AgentFailure::unusable_server(name, "it was not reported as connected"))
        })
    }
}
