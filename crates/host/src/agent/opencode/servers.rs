//! The servers of tools that OpenCode is given, and how it is known that they are there.
//!
//! Owns the plugin that asks OpenCode for them, and what it prints. OpenCode would go on without one that fails, and says
//! nothing at all of one whose tools it could not list.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::super::{Failure, Heard, Server, event::text};

const PLUGIN: &str = include_str!("servers.js");
/// The event that the plugin prints, once, before the model is asked.
pub(super) const EVENT: &str = "skein.servers";
/// How long one call of a tool may take in any case. It has no time of its own for that.
const CALL: u64 = 60_000;

/// Writes the servers into its configuration. The file of the plugin must be there when it starts.
pub(super) fn add(config: &mut Value, servers: &[(&str, &Server)], files: &Path) -> (PathBuf, Vec<u8>) {
    let mut times = BTreeMap::new();
    for (name, own) in servers {
        config["mcp"][*name] = server(own);
        config["permission"][format!("{name}_*")] = json!("allow");
        times.insert(*name, json!({"most": own.start_timeout().0, "again": own.url.is_some()}));
    }
    let path = files.join("servers.js");
    config["plugin"] = json!([[path.display().to_string(), times]]);
    (path, PLUGIN.into())
}

/// A server as its configuration has it. It fills in `{env:NAME}` itself, from its environment.
fn server(server: &Server) -> Value {
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

/// Which servers were asked for and are not yet known to be there.
#[derive(Default)]
pub(super) struct Wanted(Vec<String>);

impl Wanted {
    pub(super) fn of(servers: &[(&str, &Server)]) -> Wanted {
        Wanted(servers.iter().map(|(name, _)| (*name).to_owned()).collect())
    }

    /// What the plugin says of them.
    pub(super) fn told(&mut self, event: &Value) -> Option<Heard> {
        let gone = |name: &String| {
            let found = &event["servers"][name];
            let how = match text(found, "/error") {
                "" => text(found, "/status"),
                error => error,
            };
            (found["status"] != "connected").then(|| Failure::of_server(name, how))
        };
        std::mem::take(&mut self.0).iter().find_map(gone).map(Heard::Hopeless)
    }

    /// The model was asked. By then they must be known to be there.
    pub(super) fn missed(&mut self) -> Option<Heard> {
        let missed = std::mem::take(&mut self.0);
        missed.first().map(|name| Heard::Hopeless(Failure::of_server(name, "it is not known to be there")))
    }
}
