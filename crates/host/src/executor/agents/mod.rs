//! Coding agents: how their programs are started, how their output is read, and how their result is judged.
//!
//! Owns the trait [`AgentAdapter`], the events that all agents report alike, and everything that is specific to one
//! program: its arguments, its variables, the events it prints, its error names. Does not know runs and steps, and
//! starts nothing. To add an agent, write a file beside `claude`, name it in [`ALL`], and add a row to
//! [`skein_core::agents`].

pub(crate) mod agent_launch;
pub(crate) mod agent_stream;
pub(crate) mod claude;
pub(crate) mod codex;
pub mod fallback;
pub(crate) mod home;
pub(crate) mod opencode;
pub(crate) mod prompt;

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
};

use serde_json::Value;
use skein_core::time::{Millis, Timestamp};

use crate::executor::attempt::collect::last_line;

pub(crate) use self::agent_stream::{AgentHalt, AgentStream, AgentStreamConfig, CostMeter, RemainingBudget};
pub use self::{
    agent_launch::{AgentPermissions, describe_limits},
    fallback::AgentFailure,
    home::{AgentHome, AgentNote, LoginLink},
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
        may.run == agent_launch::CommandPermission::Nothing
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

/// Returns the last line of standard error, as the message of an agent that gave no result.
fn last_error_line(errors: &str) -> &str {
    last_line(errors).unwrap_or("the agent exited without a final result")
}

/// An event of a working agent.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentEvent {
    /// The session, which another attempt could continue.
    Session(String),
    Message(String),
    /// The agent uses a tool: its name and its subject.
    Tool {
        name: String,
        on: String,
    },
    /// The result of a tool.
    Result(String),
    /// The model that answers.
    Model(String),
    /// A note for people.
    Note(String),
    /// A command started or ended, by its id.
    Begun(String),
    Over(String),
    Used(UsageTotal),
    /// The model starts another turn.
    Turn,
    /// The account is rate limited until this time.
    LimitedUntil(Timestamp),
    /// The agent cannot succeed: it is better to stop it than to wait.
    Hopeless(AgentFailure),
}

/// The total usage so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageTotal {
    /// Since the program started.
    Run(TokenUsage),
    /// Since the session started, across programs.
    Session(TokenUsage),
}

/// Tokens by price class, and the cost in millionths of a dollar if it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct TokenUsage {
    /// Input that was not cached.
    pub input: u64,
    /// Input read from a cache.
    pub cached: u64,
    pub output: u64,
    pub micro_usd: Option<u64>,
}

impl TokenUsage {
    pub fn total_tokens(&self) -> u64 {
        self.input.saturating_add(self.cached).saturating_add(self.output)
    }

    pub fn add(&mut self, other: TokenUsage) {
        self.input = self.input.saturating_add(other.input);
        self.cached = self.cached.saturating_add(other.cached);
        self.output = self.output.saturating_add(other.output);
        self.micro_usd = match (self.micro_usd, other.micro_usd) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
    }

    /// Returns the usage since an earlier total.
    #[must_use]
    pub(crate) fn usage_since(&self, before: TokenUsage) -> TokenUsage {
        TokenUsage {
            input: self.input.saturating_sub(before.input),
            cached: self.cached.saturating_sub(before.cached),
            output: self.output.saturating_sub(before.output),
            micro_usd: self.micro_usd.map(|now| now.saturating_sub(before.micro_usd.unwrap_or(0))),
        }
    }
}

/// The final answer of an agent, as it reports it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentAnswer {
    /// The last message.
    pub text: String,
    /// The answer as one value, if the agent was asked for one.
    pub value: Option<Value>,
}

/// Reads the events of one agent, from the first to the last.
pub trait AgentEventReader: Send {
    fn read_event(&mut self, event: &Value) -> Vec<AgentEvent>;

    /// Reads a line of standard error. Returns `None` if the line is meant for people.
    fn read_error_line(&mut self, _line: &str) -> Option<Vec<AgentEvent>> {
        None
    }

    /// True if an event is too small to be kept.
    fn is_noise(&self, _event: &Value) -> bool {
        false
    }

    /// Returns the result, now that the program has exited. An exit status alone is never a success.
    fn final_result(&self, status: i32, errors: &str) -> Result<AgentAnswer, AgentFailure>;
}

/// Returns the number at a path of an event, or 0 if there is none.
pub(crate) fn number_at(event: &Value, path: &str) -> u64 {
    event.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

pub(crate) fn text_at<'a>(event: &'a Value, path: &str) -> &'a str {
    event.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// Converts dollars to millionths.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded before the cast")]
pub(crate) fn to_micro_usd(dollars: f64) -> Option<u64> {
    (dollars.is_finite() && (0.0..1e12).contains(&dollars)).then(|| (dollars * 1e6).round() as u64)
}
