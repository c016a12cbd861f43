//! Coding agents: how a program that is one is started, understood while it works, and judged when it ends.
//!
//! Owns the seam [`AgentAdapter`] and everything that is known of one program or another: its arguments, its variables, the
//! events it prints, what it calls its errors. Refuses to know of runs and steps, and to start anything. To add an
//! agent, write a file beside `claude`, name it in [`ALL`], and give it a row in [`skein_core::agents`].

pub mod account;
mod agent_note;
mod agent_stream;
mod claude;
mod codex;
mod cost_meter;
mod event;
mod failure;
mod home;
mod line_splitter;
mod opencode;
pub mod permissions;
mod tool_server;

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
};

use serde_json::Value;
use skein_core::time::Millis;

pub use self::{
    agent_note::AgentNote,
    agent_stream::{AgentHalt, AgentStream, AgentStreamConfig},
    cost_meter::{CostMeter, ModelPrice, RemainingBudget},
    event::{AgentAnswer, AgentEvent, AgentEventReader, TokenUsage, UsageTotal},
    failure::{AgentFailure, is_outage},
    home::{AgentHome, LoginLink},
    permissions::AgentPermissions,
    tool_server::ToolServer,
};

/// A program that is a coding agent.
pub trait AgentAdapter: fmt::Debug + Send + Sync {
    /// What sources and `skein.toml` call it.
    fn agent_name(&self) -> &'static str;
    /// The program, as it is usually installed.
    fn program(&self) -> &'static str;
    /// Variables of the host by which a person lends it an account. Nobody else is given them.
    fn credential_variables(&self) -> &'static [&'static str];
    /// What a person does to log in, in words.
    fn login_hint(&self) -> &'static str;
    /// Where a person's login is kept.
    fn login_link(&self) -> LoginLink;
    /// How it is started.
    fn build_invocation(&self, request: &AgentRequest<'_>) -> AgentInvocation;
    /// Who understands what it prints. Without the servers of tools that were asked for, it is stopped.
    fn new_reader(&self, home: &AgentHome, servers: &[(&str, &ToolServer)]) -> Box<dyn AgentEventReader>;
    /// What in the folder that it is to work in would tell it what to do, whatever it is told.
    fn find_overriding_config(&self, _folder: &Path) -> Option<PathBuf> {
        None
    }
    /// What a session has spent in all, where the agent keeps that on disk.
    fn read_session_usage(&self, _home: &AgentHome, _session: &str) -> Option<TokenUsage> {
        None
    }
    /// The program itself, where the one that was found only starts it.
    fn find_native_program(&self, found: PathBuf) -> PathBuf {
        found
    }
    /// Whether what it answers in the end is its output, because it is made to answer so or can write no file.
    fn answer_is_output(&self, may: &AgentPermissions, schema: Option<&Value>) -> bool;
    /// Whether what it may run is kept from the network. It needs one itself, to reach its model.
    fn blocks_network(&self, may: &AgentPermissions) -> bool {
        may.run == permissions::CommandPermission::Nothing
    }
    /// Whether it keeps what it runs in a sandbox of its own, in which it cannot write even what it was told to unless it may
    /// write at all.
    fn is_sandboxed(&self) -> bool {
        false
    }
    /// Whether the id of a new session is ours to choose.
    fn accepts_session_id(&self) -> bool {
        false
    }
}

/// What is asked of an agent.
#[derive(Debug)]
pub struct AgentRequest<'a> {
    pub model: Option<&'a str>,
    pub may: &'a AgentPermissions,
    pub session: AgentSession<'a>,
    /// What its answer must look like, if it is to be one value.
    pub schema: Option<&'a Value>,
    pub max_turns: Option<u32>,
    /// How long one command that it runs may take.
    pub command_time: Option<Millis>,
    /// What it may spend, in millionths.
    pub micro_usd: Option<u64>,
    /// Servers of tools that it is given, by name.
    pub servers: &'a [(&'a str, &'a ToolServer)],
    pub home: &'a AgentHome,
    /// Where it works.
    pub folder: &'a Path,
    /// A folder of ours that it may read, for files that only it needs.
    pub files: &'a Path,
    /// Further arguments, as the project says.
    pub arguments: &'a [String],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentSession<'a> {
    /// A new one. Its id, if that is ours to choose.
    New(&'a str),
    /// One that is there goes on.
    Resume(&'a str),
}

/// How an agent is started. What it is to do comes on its standard input.
#[derive(Debug, Default)]
pub struct AgentInvocation {
    pub arguments: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    /// Files that must be there when it starts, by their whole path. Folders on the way are made.
    pub files: Vec<(PathBuf, Vec<u8>)>,
}

impl AgentInvocation {
    fn arg(&mut self, argument: impl Into<OsString>) -> &mut AgentInvocation {
        self.arguments.push(argument.into());
        self
    }

    fn args<T: Into<OsString>>(&mut self, arguments: impl IntoIterator<Item = T>) -> &mut AgentInvocation {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    fn set_variable(&mut self, name: &str, value: impl Into<OsString>) -> &mut AgentInvocation {
        self.environment.push((name.into(), value.into()));
        self
    }
}

/// Every agent there is.
pub const ALL: &[&dyn AgentAdapter] =
    &[&codex::CodexAdapter, &claude::ClaudeAdapter, &opencode::OpenCodeAdapter];

/// The agent of a word.
pub fn find_adapter(word: &str) -> Option<&'static dyn AgentAdapter> {
    ALL.iter().copied().find(|adapter| adapter.agent_name() == word)
}

/// The last line of a text that says something.
fn last_line(text: &str) -> Option<&str> {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty())
}
