//! The failures of agents, mapped to the error classes that a run's policies use.
//!
//! Owns the meaning of status codes and provider messages, for all agents alike. The error names of one agent are in
//! its own file.

use skein_core::{
    engine::code,
    ir::ErrorClass,
    time::{Millis, Timestamp},
};

use crate::clock::Clock;

/// A failure of an agent, and the possible reactions to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentFailure {
    pub class: ErrorClass,
    pub code: Option<&'static str>,
    pub message: String,
    /// The time at which a retry makes sense.
    pub until: Option<Timestamp>,
    /// True if another attempt may continue the same session.
    pub goes_on: bool,
    /// True if the session that was to be continued does not exist.
    pub lost: bool,
}

pub const AUTH: &str = "agent_auth";
pub const BILLING: &str = "agent_billing";
pub const MODEL: &str = "agent_model";
pub const CONTEXT: &str = "agent_context";
pub const LIMIT: &str = "agent_limit";
pub const SERVICE: &str = "agent_service";
pub const REQUEST: &str = "agent_request";
pub const USAGE: &str = "agent_usage";
pub const NO_END: &str = "agent_no_end";
pub const SERVER: &str = "agent_server";
pub const MAX_TURNS: &str = "max_steps";
pub const BUDGET: &str = code::BUDGET;

/// Phrases that mean the same for all providers, in lower case, and the kind of failure they indicate.
const WORDS: [(&str, AgentFailureKind); 23] = [
    ("required mcp servers failed", AgentFailureKind::Server),
    ("insufficient_quota", AgentFailureKind::Billing),
    ("your current quota", AgentFailureKind::Billing),
    ("quota exceeded", AgentFailureKind::Billing),
    ("credit balance", AgentFailureKind::Billing),
    ("billing", AgentFailureKind::Billing),
    ("context_length_exceeded", AgentFailureKind::Context),
    ("context window", AgentFailureKind::Context),
    ("prompt is too long", AgentFailureKind::Context),
    ("usage limit", AgentFailureKind::Limit),
    ("rate limit", AgentFailureKind::Limit),
    ("rate_limit", AgentFailureKind::Limit),
    ("429", AgentFailureKind::Limit),
    ("missing environment variable", AgentFailureKind::Auth),
    ("not logged in", AgentFailureKind::Auth),
    ("unauthorized", AgentFailureKind::Auth),
    ("invalid_api_key", AgentFailureKind::Auth),
    ("401", AgentFailureKind::Auth),
    ("403", AgentFailureKind::Auth),
    ("model_not_found", AgentFailureKind::Model),
    ("model does not exist", AgentFailureKind::Model),
    ("404", AgentFailureKind::Model),
    ("invalid_request_error", AgentFailureKind::Request),
];

/// True if a code means that the account is used up or the service is down, so that another agent could take over.
pub fn is_outage(code: &str) -> bool {
    matches!(code, LIMIT | BILLING | SERVICE)
}

/// The kind of a failure, independent of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentFailureKind {
    Limit,
    Billing,
    Auth,
    Model,
    Context,
    Request,
    Service,
    /// The program rejects its arguments.
    Usage,
    Turns,
    /// The budget is spent.
    Budget,
    /// The agent exited without reporting that it is done.
    NoEnd,
    /// A requested tool server is missing.
    Server,
}

impl AgentFailureKind {
    pub fn from_status(status: u64) -> AgentFailureKind {
        match status {
            401 | 403 => AgentFailureKind::Auth,
            402 => AgentFailureKind::Billing,
            404 => AgentFailureKind::Model,
            429 => AgentFailureKind::Limit,
            400..=499 => AgentFailureKind::Request,
            _ => AgentFailureKind::Service,
        }
    }

    /// Determines the kind from a message. An unknown message counts as a transient service error.
    pub fn from_message(message: &str) -> AgentFailureKind {
        let message = message.to_lowercase();
        // A number is a status only if it stands alone.
        let says = |word: &str| match word.bytes().all(|byte| byte.is_ascii_digit()) {
            true => message.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| part == word),
            false => message.contains(word),
        };
        WORDS.iter().find(|(word, _)| says(word)).map_or(AgentFailureKind::Service, |(_, kind)| *kind)
    }

    fn error_class(self) -> (ErrorClass, &'static str) {
        match self {
            AgentFailureKind::Limit => (ErrorClass::RateLimit, LIMIT),
            AgentFailureKind::Billing => (ErrorClass::Fatal, BILLING),
            AgentFailureKind::Auth => (ErrorClass::Fatal, AUTH),
            AgentFailureKind::Model => (ErrorClass::Fatal, MODEL),
            AgentFailureKind::Context => (ErrorClass::NonRetryable, CONTEXT),
            AgentFailureKind::Request => (ErrorClass::NonRetryable, REQUEST),
            AgentFailureKind::Service => (ErrorClass::Transient, SERVICE),
            AgentFailureKind::Usage => (ErrorClass::Fatal, USAGE),
            AgentFailureKind::Turns => (ErrorClass::NonRetryable, MAX_TURNS),
            AgentFailureKind::Budget => (ErrorClass::NonRetryable, BUDGET),
            AgentFailureKind::NoEnd => (ErrorClass::AgentError, NO_END),
            AgentFailureKind::Server => (ErrorClass::Transient, SERVER),
        }
    }
}

impl AgentFailure {
    pub fn new(kind: AgentFailureKind, message: impl Into<String>) -> AgentFailure {
        let (class, code) = kind.error_class();
        // After a failure outside of the conversation, the conversation can be continued.
        let goes_on = matches!(kind, AgentFailureKind::Limit | AgentFailureKind::Service);
        AgentFailure { class, code: Some(code), message: message.into(), until: None, goes_on, lost: false }
    }

    /// Creates a failure from a message, which may say when a limit ends.
    pub fn from_message(message: &str) -> AgentFailure {
        AgentFailure::with_parsed_wait(AgentFailureKind::from_message(message), message)
    }

    /// Creates a failure of a known kind. The message may say when a limit ends.
    pub fn with_parsed_wait(kind: AgentFailureKind, message: impl Into<String>) -> AgentFailure {
        let failure = AgentFailure::new(kind, message);
        let wait = parse_wait(&failure.message).filter(|_| kind == AgentFailureKind::Limit);
        failure.with_until(wait.map(|wait| Clock::new().now().saturating_add(Millis(wait))))
    }

    pub fn has_kind(&self, kind: AgentFailureKind) -> bool {
        self.code == Some(kind.error_class().1)
    }

    /// True if a budget is spent.
    pub fn is_budget_exceeded(&self) -> bool {
        self.code == Some(BUDGET)
    }

    /// Creates the failure for a missing tool server: work without the requested tools would only seem to be done.
    pub fn unusable_server(name: &str, how: &str) -> AgentFailure {
        AgentFailure::new(AgentFailureKind::Server, format!("its server `mcp:{name}` cannot be used: {how}"))
    }

    /// Creates the failure for a session that cannot be continued.
    pub fn lost_session(message: impl Into<String>) -> AgentFailure {
        AgentFailure { lost: true, ..AgentFailure::new(AgentFailureKind::NoEnd, message) }
    }

    #[must_use]
    pub fn with_until(self, until: Option<Timestamp>) -> AgentFailure {
        AgentFailure { until, ..self }
    }
}

/// Parses the wait that a message asks for, such as `try again in 2 hours 5 minutes` or `try again in 1.5s`, in
/// milliseconds.
pub fn parse_wait(message: &str) -> Option<u64> {
    let lower = message.to_lowercase();
    let after = ["try again in ", "retry in ", "retry after "].iter().find_map(|part| lower.split(part).nth(1))?;
    let mut total = 0.0;
    let mut found = false;
    let mut rest = after.trim_start_matches("about ");
    while let Some((count, unit, next)) = parse_length(rest) {
        let each = match unit {
            unit if unit.starts_with("ms") || unit.starts_with("milli") => 1.0,
            unit if unit.starts_with('s') => 1_000.0,
            unit if unit.starts_with('m') => 60_000.0,
            unit if unit.starts_with('h') => 3_600_000.0,
            unit if unit.starts_with('d') => 86_400_000.0,
            _ => break,
        };
        (total, found) = (total + count * each, true);
        rest = next.trim_start_matches([' ', ',']).trim_start_matches("and ");
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded before the cast")]
    (found && (0.0..1e12).contains(&total)).then_some(total as u64)
}

/// Parses a number and a unit at the beginning of a text, and returns the rest.
fn parse_length(text: &str) -> Option<(f64, &str, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let count = text[..digits].trim_end_matches('.').parse().ok()?;
    let unit = text[digits..].trim_start();
    let end = unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit.len());
    (end > 0).then(|| (count, &unit[..end], &unit[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_providers_are_known() {
        let kinds = [
            ("exceeded retry limit, last status: 429 Too Many Requests", AgentFailureKind::Limit),
            ("You've hit your usage limit. Try again in 2 hours.", AgentFailureKind::Limit),
            ("Quota exceeded. Check your plan and billing details.", AgentFailureKind::Billing),
            ("unexpected status 401 Unauthorized: Incorrect API key", AgentFailureKind::Auth),
            ("We’re currently experiencing high demand", AgentFailureKind::Service),
            ("{\"error\": {\"code\": \"context_length_exceeded\"}}", AgentFailureKind::Context),
            ("Codex ran out of room in the model's context window.", AgentFailureKind::Context),
            ("The model does not exist or you do not have access to it.", AgentFailureKind::Model),
            ("error sending request for url (http://127.0.0.1:44290/v1/429x)", AgentFailureKind::Service),
            ("stream disconnected before completion: Transport error", AgentFailureKind::Service),
        ];
        for (message, kind) in kinds {
            assert_eq!(AgentFailureKind::from_message(message), kind, "{message}");
        }
    }

    #[test]
    fn a_wait_is_read_out_of_words() {
        assert_eq!(parse_wait("Please try again in 1s."), Some(1_000));
        assert_eq!(parse_wait("try again in 2 hours 5 minutes"), Some(7_500_000));
        assert_eq!(parse_wait("Try again in 1.5s"), Some(1_500));
        assert_eq!(parse_wait("try again in 3 days, 4 hours and 1 minute."), Some(273_660_000));
        assert_eq!(parse_wait("try again later"), None);
        assert_eq!(parse_wait("try again in a while"), None);
        assert_eq!(parse_wait(""), None);
    }
}
