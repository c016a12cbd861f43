//! Coding agents: how their programs are started, how their output is read, and how their result is judged.
//!
//! Owns the trait [`AgentAdapter`] and everything that is specific to one program: its arguments, its variables, the
//! events it prints, its error names. Does not know runs and steps, and starts nothing. To add an agent, write a file
//! beside `claude`, name it in [`ALL`], and add a row to [`skein_core::agents`].

pub mod account;
pub(crate) mod agent_context;
pub(crate) mod agent_launch;
pub(crate) mod agent_stream;
pub(crate) mod claude;
pub(crate) mod codex;
pub(crate) mod cost_meter;
pub(crate) mod event;
pub(crate) mod failure;
pub mod fallback;
pub(crate) mod home;
pub(crate) mod opencode;
pub mod permissions;
pub(crate) mod prompt;
pub(crate) mod session;

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
};

use serde_json::Value;
use skein_core::time::Millis;

pub use self::{
    agent_stream::{AgentHalt, AgentStream, AgentStreamConfig},
    cost_meter::{CostMeter, RemainingBudget},
    event::{AgentAnswer, AgentEvent, AgentEventReader, TokenUsage, UsageTotal},
    failure::{AgentFailure, is_outage},
    home::{AgentHome, LoginLink},
    permissions::AgentPermissions,
    session::AgentNote,
};
pub use crate::run_settings::{ModelPrice, ToolServer};

/// The adapter of a coding agent's program.
pub trait AgentAdapter: fmt::Debug + Send + Sync {
    /// The name of the agent in sources and in `skein.toml`.
    fn agent_name(&self) -> &'static str;
    /// The usual name of the program.
    fn program(&self) -> &'static str;
    /// Variables of the host that hold the user's credentials for this agent. No other program is given them.
    fn credential_variables(&self) -> &'static [&'static str];
    /// The instruction to log in, for messages.
    fn login_hint(&self) -> &'static str;
    /// The location of the user's login.
    fn login_link(&self) -> LoginLink;
    /// Returns the arguments, variables and files to start the agent with.
    fn build_invocation(&self, request: &AgentRequest<'_>) -> AgentInvocation;
    /// Returns the reader of its output. It reports a failure if a requested tool server is missing.
    fn new_reader(&self, home: &AgentHome, servers: &[(&str, &ToolServer)]) -> Box<dyn AgentEventReader>;
    /// Finds a file in the working directory that would give the agent instructions, whatever Skein tells it.
    fn find_overriding_config(&self, _folder: &Path) -> Option<PathBuf> {
        None
    }
    /// Reads the total usage of a session, if the agent keeps it on disk.
    fn read_session_usage(&self, _home: &AgentHome, _session: &str) -> Option<TokenUsage> {
        None
    }
    /// Returns the program itself, if the installed one only starts it.
    fn find_native_program(&self, found: PathBuf) -> PathBuf {
        found
    }
    /// True if the final answer is the output, because the agent is forced to answer so or can write no file.
    fn answer_is_output(&self, may: &AgentPermissions, schema: Option<&Value>) -> bool;
    /// True if the commands of the agent have no network access. The agent itself needs it to reach its model.
    fn blocks_network(&self, may: &AgentPermissions) -> bool {
        may.run == permissions::CommandPermission::Nothing
    }
    /// True if the agent runs its commands in a sandbox of its own. In it, a read-only agent cannot write even the
    /// files that it was told to write.
    fn is_sandboxed(&self) -> bool {
        false
    }
    /// True if Skein chooses the id of a new session.
    fn accepts_session_id(&self) -> bool {
        false
    }
}

/// The request to an agent.
#[derive(Debug)]
pub struct AgentRequest<'a> {
    pub model: Option<&'a str>,
    pub may: &'a AgentPermissions,
    pub session: AgentSession<'a>,
    /// The schema of the answer, if it is to be one value.
    pub schema: Option<&'a Value>,
    pub max_turns: Option<u32>,
    /// The timeout of one command that the agent runs.
    pub command_time: Option<Millis>,
    /// The maximum cost, in millionths of a dollar.
    pub micro_usd: Option<u64>,
    /// The tool servers of the agent, by name.
    pub servers: &'a [(&'a str, &'a ToolServer)],
    pub home: &'a AgentHome,
    /// The working directory.
    pub folder: &'a Path,
    /// A folder that the agent may read, for files that only it needs.
    pub files: &'a Path,
    /// Further arguments from the project's configuration.
    pub arguments: &'a [String],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentSession<'a> {
    /// A new session. Its id, if Skein chooses it.
    New(&'a str),
    /// An existing session to continue.
    Resume(&'a str),
}

/// The invocation of an agent. The prompt comes on its standard input.
#[derive(Debug, Default)]
pub struct AgentInvocation {
    pub arguments: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    /// Files that must exist when the agent starts, by absolute path. Missing parent folders are created.
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

/// All supported agents.
pub const ALL: &[&dyn AgentAdapter] = &[&codex::CodexAdapter, &claude::ClaudeAdapter, &opencode::OpenCodeAdapter];

/// Finds the adapter of an agent's name.
pub fn find_adapter(word: &str) -> Option<&'static dyn AgentAdapter> {
    ALL.iter().copied().find(|adapter| adapter.agent_name() == word)
}

/// Returns the last line of a text that is not blank.
fn last_line(text: &str) -> Option<&str> {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty())
}
