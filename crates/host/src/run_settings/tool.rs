//! The settings of tools: programs, builtin functions and servers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use skein_core::{
    ir::{Schema, WorkerSpec},
    time::Millis,
    tool_call::{CallTemplate, CallText, JsonPathSegment},
};

use crate::http::NetworkAccess;

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

/// A function that a driver of the kind `builtin` can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BuiltinFunction {
    #[serde(rename = "files.read")]
    FilesRead,
    #[serde(rename = "files.write")]
    FilesWrite,
    #[serde(rename = "files.list")]
    FilesList,
    #[serde(rename = "files.exists")]
    FilesExists,
    #[serde(rename = "files.remove")]
    FilesRemove,
    #[serde(rename = "json.merge")]
    JsonMerge,
    #[serde(rename = "json.pick")]
    JsonPick,
    #[serde(rename = "text.template")]
    TextTemplate,
    #[serde(rename = "sleep")]
    Sleep,
    #[serde(rename = "git.status")]
    GitStatus,
    #[serde(rename = "git.diff")]
    GitDiff,
    #[serde(rename = "http.get")]
    HttpGet,
    #[serde(rename = "notify")]
    Notify,
}

impl BuiltinFunction {
    pub const ALL: [BuiltinFunction; 13] = [
        BuiltinFunction::FilesRead,
        BuiltinFunction::FilesWrite,
        BuiltinFunction::FilesList,
        BuiltinFunction::FilesExists,
        BuiltinFunction::FilesRemove,
        BuiltinFunction::JsonMerge,
        BuiltinFunction::JsonPick,
        BuiltinFunction::TextTemplate,
        BuiltinFunction::Sleep,
        BuiltinFunction::GitStatus,
        BuiltinFunction::GitDiff,
        BuiltinFunction::HttpGet,
        BuiltinFunction::Notify,
    ];

    /// The name of the function in a driver.
    pub fn name(self) -> &'static str {
        match self {
            BuiltinFunction::FilesRead => "files.read",
            BuiltinFunction::FilesWrite => "files.write",
            BuiltinFunction::FilesList => "files.list",
            BuiltinFunction::FilesExists => "files.exists",
            BuiltinFunction::FilesRemove => "files.remove",
            BuiltinFunction::JsonMerge => "json.merge",
            BuiltinFunction::JsonPick => "json.pick",
            BuiltinFunction::TextTemplate => "text.template",
            BuiltinFunction::Sleep => "sleep",
            BuiltinFunction::GitStatus => "git.status",
            BuiltinFunction::GitDiff => "git.diff",
            BuiltinFunction::HttpGet => "http.get",
            BuiltinFunction::Notify => "notify",
        }
    }

    /// True if it communicates with the outside. It is then run, recorded and replayed like a call of a server.
    pub fn reaches_out(self) -> bool {
        matches!(self, BuiltinFunction::HttpGet | BuiltinFunction::Notify)
    }

    /// Finds a function by name. Dashes may replace dots, so that a tool's own id can be the name.
    pub fn from_name(name: &str) -> Option<BuiltinFunction> {
        let same = |function: &BuiltinFunction| function.name().replace('.', "-") == name.replace('.', "-");
        BuiltinFunction::ALL.into_iter().find(same)
    }
}

/// Named texts, such as headers.
pub type NamedTextFields = Vec<(String, CallText)>;

/// A server that implements a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RemoteTool {
    Http(Box<HttpTool>),
    Mcp(McpTool),
}

/// A request, and the relevant part of its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpTool {
    pub method: String,
    pub base: CallText,
    pub endpoint: CallText,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: NamedTextFields,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query: NamedTextFields,
    /// `None` means the input itself, if the method has a body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<CallTemplate>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extract: Vec<JsonPathSegment>,
    /// The header for the idempotency key, which is equal for all tries of the same work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_header: Option<String>,
    /// The sign of an expired login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired: Option<LoginExpirySign>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LoginExpirySign {
    Status(u16),
    Header(String, String),
}

/// A tool of an MCP server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpTool {
    pub tool: String,
    pub server: McpEndpoint,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extract: Vec<JsonPathSegment>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum McpEndpoint {
    /// The tool's own program, with these additional variables.
    Program(NamedTextFields),
    Url {
        url: CallText,
        headers: NamedTextFields,
    },
}
