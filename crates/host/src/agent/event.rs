//! What an agent lets us know, in words that are the same for all of them.

use skein_core::time::Timestamp;

use serde_json::Value;

use super::AgentFailure;

/// Something that was heard from an agent at work.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentEvent {
    /// The session that it could go on with.
    Session(String),
    Said(String),
    /// It uses a tool: which, and on what.
    Tool {
        name: String,
        on: String,
    },
    /// The result of a tool.
    Result(String),
    /// The model that answers.
    Model(String),
    /// Something that a person may want to know.
    Note(String),
    /// A command that it runs has begun, by its id, or is over.
    Begun(String),
    Over(String),
    Used(UsageTotal),
    /// Another turn of its model.
    Turn,
    /// Nothing more can be had from its account until then.
    LimitedUntil(Timestamp),
    /// It will come to nothing: it is better stopped than waited for.
    Hopeless(AgentFailure),
}

/// What was spent, each time all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageTotal {
    /// Since the program started.
    Run(TokenUsage),
    /// Since its session began, in whichever program.
    Session(TokenUsage),
}

/// Tokens by what they cost, and money in millionths where it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct TokenUsage {
    /// Read anew.
    pub input: u64,
    /// Read from a cache.
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

    /// What came on top of an earlier state.
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

/// What an agent gave in the end, by its own words.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentAnswer {
    /// Its last message.
    pub text: String,
    /// Its answer as one value, where it was asked for that.
    pub value: Option<Value>,
}

/// Understands the events of one agent, from the first to the last.
pub trait AgentEventReader: Send {
    fn read_event(&mut self, event: &Value) -> Vec<AgentEvent>;

    /// A line of its standard error. None: it is for people.
    fn read_error_line(&mut self, _line: &str) -> Option<Vec<AgentEvent>> {
        None
    }

    /// Whether an event is too small to be kept.
    fn is_noise(&self, _event: &Value) -> bool {
        false
    }

    /// What it all came to, now that the program has exited. An exit status alone is never a success.
    fn final_result(&self, status: i32, errors: &str) -> Result<AgentAnswer, AgentFailure>;
}

/// A number at a path of an event; 0 where there is none.
pub(super) fn number_at(event: &Value, path: &str) -> u64 {
    event.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

pub(super) fn text_at<'a>(event: &'a Value, path: &str) -> &'a str {
    event.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// Dollars in millionths.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded before it is cut")]
pub(super) fn to_micro_usd(dollars: f64) -> Option<u64> {
    (dollars.is_finite() && (0.0..1e12).contains(&dollars)).then(|| (dollars * 1e6).round() as u64)
}
