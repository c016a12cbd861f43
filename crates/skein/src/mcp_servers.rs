//! The servers of tools (MCP) that the agents of a project may be given.
//!
//! Owns where one is described: `[mcp.NAME]` of `skein.toml`, and `.mcp.json` only where `skein.toml` says so, because
//! whoever can change a file of the repository must not be able to start programs by it. Refuses to start any.

use std::{collections::BTreeMap, ffi::OsStr, fs};

use serde::Deserialize;
use skein_core::{limits, suggest::did_you_mean, time::Millis};
use skein_host::{agent::ToolServer, process};

use crate::project::DiskProject;

/// The file in which other programs keep theirs.
pub const FILE: &str = ".mcp.json";

#[derive(Debug, Default, Deserialize)]
struct McpServerFile {
    #[serde(default, rename = "mcpServers")]
    servers: BTreeMap<String, McpFileEntry>,
}

/// A server as that file has it. What else stands there is for others.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct McpFileEntry {
    command: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    url: Option<String>,
    headers: BTreeMap<String, String>,
}

/// The servers that another file than `skein.toml` describes, and that count here.
pub fn list_file_servers(project: &DiskProject) -> Vec<String> {
    let listed = read_server_file(project).unwrap_or_default().servers.into_keys();
    listed.filter(|name| !project.config.mcp.contains_key(name)).collect()
}

/// A server by its name, as it is kept with a run; or why there is none. In a replay nothing is started.
pub fn find_server(name: &str, project: &DiskProject, replays: bool) -> Result<ToolServer, String> {
    let wrong = |why: String| format!("the server `mcp:{name}` {why}");
    let listed = read_server_file(project).map_err(wrong)?;
    let server = match (project.config.mcp.get(name), listed.servers.get(name)) {
        (Some(own), _) => own.clone(),
        (None, Some(entry)) => convert_entry(entry.clone()).map_err(wrong)?,
        (None, None) => return Err(describe_unknown_server(name, project)),
    };
    if !ToolServer::is_valid_name(name) {
        return Err(wrong(
            "has a name that no tool can carry; letters, digits, `-` and single `_` can be in it".into(),
        ));
    }
    check_server(server, project, replays).map_err(wrong)
}

fn describe_unknown_server(name: &str, project: &DiskProject) -> String {
    let known: Vec<String> = project.config.mcp.keys().cloned().chain(list_file_servers(project)).collect();
    let near = did_you_mean(name, known.iter().map(String::as_str)).map(|near| format!(" ({near})"));
    let in_file = || fs::exists(project.root.join(FILE)).unwrap_or_default() && !project.config.mcp_json;
    let hint = match near {
        Some(near) => near,
        None if in_file() => format!("; those of {FILE} count only with `mcp_json = true` in skein.toml"),
        None => String::new(),
    };
    format!("there is no server `mcp:{name}` here{hint}; `[mcp.{name}]` in skein.toml says how it is started")
}

/// What `.mcp.json` has, if it counts here.
fn read_server_file(project: &DiskProject) -> Result<McpServerFile, String> {
    if !project.config.mcp_json {
        return Ok(McpServerFile::default());
    }
    let wrong = |why: String| format!("cannot be looked up: {FILE} {why}");
    let Ok(source) = project.read_source(&project.root.join(FILE)) else {
        return Err(wrong("is not there, or cannot be read".to_owned()));
    };
    serde_json::from_str(&source.text).map_err(|error| wrong(format!("is wrong: {error}")))
}

/// Other programs fill in variables of theirs, which are secrets here and stand in `skein.toml`.
fn convert_entry(entry: McpFileEntry) -> Result<ToolServer, String> {
    let words = entry.command.iter().chain(&entry.args).chain(entry.env.values()).chain(&entry.url);
    if words.into_iter().any(|word| word.contains("${")) || !entry.headers.is_empty() {
        return Err(format!(
            "is given variables or headers in {FILE}; describe it by `[mcp.NAME]` in skein.toml, with names from `[secrets]`"
        ));
    }
    let command = entry.command.into_iter().chain(entry.args).collect();
    Ok(ToolServer { command, env: entry.env, url: entry.url, ..ToolServer::default() })
}

/// A server that can be started or asked. A path is from the project on.
fn check_server(mut server: ToolServer, project: &DiskProject, replays: bool) -> Result<ToolServer, String> {
    if server.start_timeout().0 > limits::SERVER_START_MOST {
        let most = Millis(limits::SERVER_START_MOST);
        return Err(format!("has a `start_timeout_ms` beyond {most}, which is the most"));
    }
    match (server.command.first_mut(), &server.url) {
        (Some(_), Some(_)) => {
            return Err("has a `command` and a `url`, and can be only one of them".to_owned());
        }
        (None, None) => return Err("needs a `command` or a `url`".to_owned()),
        (None, Some(url)) if !url.starts_with("https://") && !url.starts_with("http://") => {
            return Err(format!("is asked at `{url}`, which begins with neither `https://` nor `http://`"));
        }
        (None, Some(_)) if !server.secrets.is_empty() || !server.env.is_empty() => {
            return Err(
                "has a `url`, and so no environment; `bearer` names the secret that is sent".to_owned()
            );
        }
        (Some(_), None) if server.bearer.is_some() => {
            return Err(
                "has a `bearer` and no `url` to send it to; `secrets` are given to a program".to_owned()
            );
        }
        (Some(program), None) => {
            if program.contains('/') {
                *program = project.root.join(&*program).display().to_string();
            }
            let path = std::env::var_os("PATH").unwrap_or_default();
            let there = process::find_program(OsStr::new(&*program), &path, &[]);
            if let (Err(error), false) = (there, replays) {
                return Err(format!("cannot be started: {error}"));
            }
        }
        (None, Some(_)) => {}
    }
    Ok(server)
}
