//! The MCP servers that the agents of a project may use.
//!
//! Owns the places of their definitions: `[mcp.NAME]` of `skein.toml`, and `.mcp.json` only if `skein.toml` allows it,
//! because a person who can change a file of the repository must not be able to start programs by it. Starts no server.

use std::{collections::BTreeMap, ffi::OsStr, fs};

use serde::Deserialize;
use skein_core::{limits, suggest::did_you_mean, time::Millis};
use skein_host::{process, run_settings::ToolServer};

use crate::{app_error::UnusableReason, project::DiskProject};

/// The file in which other programs define their servers.
pub(crate) const FILE: &str = ".mcp.json";

#[derive(Debug, Default, Deserialize)]
struct McpServerFile {
    #[serde(default, rename = "mcpServers")]
    servers: BTreeMap<String, McpFileEntry>,
}

/// A server as defined in that file. Other keys belong to other programs and are ignored.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct McpFileEntry {
    command: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    url: Option<String>,
    headers: BTreeMap<String, String>,
}

/// Returns the servers that are defined in `.mcp.json` only, if that file is used.
pub(crate) fn list_file_servers(project: &DiskProject) -> Vec<String> {
    let listed = read_server_file(project).unwrap_or_default().servers.into_keys();
    listed.filter(|name| !project.config.mcp.contains_key(name)).collect()
}

/// Finds a server by its name, as it is kept with a run, or returns the reason why it cannot be used. A replay does not
/// need its program.
pub(crate) fn find_server(name: &str, project: &DiskProject, replays: bool) -> Result<ToolServer, UnusableReason> {
    let wrong = |why: UnusableReason| format!("the server `mcp:{name}` {why}");
    let listed = read_server_file(project).map_err(wrong)?;
    let server = match (project.config.mcp.get(name), listed.servers.get(name)) {
        (Some(own), _) => own.clone(),
        (None, Some(entry)) => convert_entry(entry.clone()).map_err(wrong)?,
        (None, None) => return Err(describe_unknown_server(name, project)),
    };
    if !ToolServer::is_valid_name(name) {
        return Err(wrong("has an invalid name; use only letters, digits, `-` and single `_`".into()).into());
    }
    Ok(check_server(server, project, replays).map_err(wrong)?)
}

fn describe_unknown_server(name: &str, project: &DiskProject) -> UnusableReason {
    let known: Vec<String> = project.config.mcp.keys().cloned().chain(list_file_servers(project)).collect();
    let near = did_you_mean(name, known.iter().map(String::as_str)).map(|near| format!(" ({near})"));
    let in_file = || fs::exists(project.root.join(FILE)).unwrap_or_default() && !project.config.mcp_json;
    let hint = match near {
        Some(near) => near,
        None if in_file() => format!("; those of {FILE} are used only with `mcp_json = true` in skein.toml"),
        None => String::new(),
    };
    format!("server `mcp:{name}` is not configured{hint}; add `[mcp.{name}]` to skein.toml").into()
}

/// Reads `.mcp.json`, if it is used.
fn read_server_file(project: &DiskProject) -> Result<McpServerFile, UnusableReason> {
    if !project.config.mcp_json {
        return Ok(McpServerFile::default());
    }
    let wrong = |why: &str| UnusableReason::from(format!("cannot be looked up: {FILE} {why}"));
    let Ok(source) = project.read_source(&project.root.join(FILE)) else {
        return Err(wrong("does not exist or cannot be read"));
    };
    serde_json::from_str(&source.text).map_err(|error| wrong(&format!("is invalid: {error}")))
}

/// Converts an entry. Other programs expand variables in it; here such values are secrets, and belong into
/// `skein.toml`.
fn convert_entry(entry: McpFileEntry) -> Result<ToolServer, UnusableReason> {
    let words = entry.command.iter().chain(&entry.args).chain(entry.env.values()).chain(&entry.url);
    if words.into_iter().any(|word| word.contains("${")) || !entry.headers.is_empty() {
        return Err(format!(
            "uses variables or headers in {FILE}; define it as `[mcp.NAME]` in skein.toml, with names from `[secrets]`"
        )
        .into());
    }
    let command = entry.command.into_iter().chain(entry.args).collect();
    Ok(ToolServer { command, env: entry.env, url: entry.url, ..ToolServer::default() })
}

/// Checks that a server can be started or reached. A path is relative to the project.
fn check_server(mut server: ToolServer, project: &DiskProject, replays: bool) -> Result<ToolServer, UnusableReason> {
    if server.start_timeout().0 > limits::SERVER_START_MOST {
        let most = Millis(limits::SERVER_START_MOST);
        return Err(format!("has a `start_timeout_ms` above the maximum of {most}").into());
    }
    match (server.command.first_mut(), &server.url) {
        (Some(_), Some(_)) => {
            return Err("has both a `command` and a `url`; only one is allowed".into());
        }
        (None, None) => return Err("needs a `command` or a `url`".into()),
        (None, Some(url)) if !url.starts_with("https://") && !url.starts_with("http://") => {
            return Err(format!("has the URL `{url}`, which starts with neither `https://` nor `http://`").into());
        }
        (None, Some(_)) if !server.secrets.is_empty() || !server.env.is_empty() => {
            return Err("has a `url`, and so cannot have an environment; `bearer` names the secret to send".into());
        }
        (Some(_), None) if server.bearer.is_some() => {
            return Err("has a `bearer` but no `url` to send it to; a program gets its secrets by `secrets`".into());
        }
        (Some(program), None) => {
            if program.contains('/') {
                *program = project.root.join(&*program).display().to_string();
            }
            let path = std::env::var_os("PATH").unwrap_or_default();
            let there = process::find_program(OsStr::new(&*program), &path, &[]);
            if let (Err(error), false) = (there, replays) {
                return Err(format!("cannot be started: {error}").into());
            }
        }
        (None, Some(_)) => {}
    }
    Ok(server)
}
