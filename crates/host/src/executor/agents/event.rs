//! The events of an agent, in a form that is the same for all agents.

use serde_json::Value;
use skein_core::time::Timestamp;

use super::AgentFailure;

/// An event of a working agent.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentEvent {
    /// The session, which another attempt could continue.
    Session(String),
    Said(String),
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
    pub fn usage_since(&self, before: TokenUsage) -> TokenUsage {
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
