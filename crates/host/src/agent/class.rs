//! Why an agent failed, as the classes that a run's policies know.
//!
//! Owns what status codes and the words of providers mean, for all agents alike. What an agent itself calls its errors
//! is in its own file.

use skein_core::{
    engine::code,
    ir::ErrorClass,
    time::{Millis, Time},
};

use crate::clock::Clock;

/// A failure, and what may come of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub class: ErrorClass,
    pub code: Option<&'static str>,
    pub message: String,
    /// When it makes sense to try again.
    pub until: Option<Time>,
    /// Whether another attempt may go on with the same session.
    pub goes_on: bool,
    /// The session that it was to go on with is not there.
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

/// The words of providers that mean the same everywhere, in small letters, and what they mean.
const WORDS: [(&str, Kind); 23] = [
    ("required mcp servers failed", Kind::Server),
    ("insufficient_quota", Kind::Billing),
    ("your current quota", Kind::Billing),
    ("quota exceeded", Kind::Billing),
    ("credit balance", Kind::Billing),
    ("billing", Kind::Billing),
    ("context_length_exceeded", Kind::Context),
    ("context window", Kind::Context),
    ("prompt is too long", Kind::Context),
    ("usage limit", Kind::Limit),
    ("rate limit", Kind::Limit),
    ("rate_limit", Kind::Limit),
    ("429", Kind::Limit),
    ("missing environment variable", Kind::Auth),
    ("not logged in", Kind::Auth),
    ("unauthorized", Kind::Auth),
    ("invalid_api_key", Kind::Auth),
    ("401", Kind::Auth),
    ("403", Kind::Auth),
    ("model_not_found", Kind::Model),
    ("model does not exist", Kind::Model),
    ("404", Kind::Model),
    ("invalid_request_error", Kind::Request),
];

/// Whether a code says that the account is used up or the service is down, so that another agent could do the same.
pub fn is_outage(code: &str) -> bool {
    matches!(code, LIMIT | BILLING | SERVICE)
}

/// What kind of failure it is, whoever tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Limit,
    Billing,
    Auth,
    Model,
    Context,
    Request,
    Service,
    /// The program does not take its arguments.
    Usage,
    Turns,
    /// It has spent what it may.
    Budget,
    /// It ended without saying that it is done.
    NoEnd,
    /// A server of tools that it was to have is not there.
    Server,
}

impl Kind {
    pub fn of_status(status: u64) -> Kind {
        match status {
            401 | 403 => Kind::Auth,
            402 => Kind::Billing,
            404 => Kind::Model,
            429 => Kind::Limit,
            400..=499 => Kind::Request,
            _ => Kind::Service,
        }
    }

    /// By the words of a message. What says nothing that is known may pass.
    pub fn of_words(message: &str) -> Kind {
        let message = message.to_lowercase();
        // A number is a status only when it stands alone.
        let says = |word: &str| match word.bytes().all(|byte| byte.is_ascii_digit()) {
            true => message.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| part == word),
            false => message.contains(word),
        };
        WORDS.iter().find(|(word, _)| says(word)).map_or(Kind::Service, |(_, kind)| *kind)
    }

    fn class(self) -> (ErrorClass, &'static str) {
        match self {
            Kind::Limit => (ErrorClass::RateLimit, LIMIT),
            Kind::Billing => (ErrorClass::Fatal, BILLING),
            Kind::Auth => (ErrorClass::Fatal, AUTH),
            Kind::Model => (ErrorClass::Fatal, MODEL),
            Kind::Context => (ErrorClass::NonRetryable, CONTEXT),
            Kind::Request => (ErrorClass::NonRetryable, REQUEST),
            Kind::Service => (ErrorClass::Transient, SERVICE),
            Kind::Usage => (ErrorClass::Fatal, USAGE),
            Kind::Turns => (ErrorClass::NonRetryable, MAX_TURNS),
            Kind::Budget => (ErrorClass::NonRetryable, BUDGET),
            Kind::NoEnd => (ErrorClass::AgentError, NO_END),
            Kind::Server => (ErrorClass::Transient, SERVER),
        }
    }
}

impl Failure {
    pub fn new(kind: Kind, message: impl Into<String>) -> Failure {
        let (class, code) = kind.class();
        // What failed for reasons outside of the conversation can go on with it.
        let goes_on = matches!(kind, Kind::Limit | Kind::Service);
        Failure { class, code: Some(code), message: message.into(), until: None, goes_on, lost: false }
    }

    /// By its words. A limit may say when it ends.
    pub fn of_words(message: &str) -> Failure {
        Failure::said(Kind::of_words(message), message)
    }

    /// A failure whose message may say when a limit ends.
    pub fn said(kind: Kind, message: impl Into<String>) -> Failure {
        let failure = Failure::new(kind, message);
        let wait = wait_in(&failure.message).filter(|_| kind == Kind::Limit);
        failure.until(wait.map(|wait| Clock::new().now().after(Millis(wait))))
    }

    pub fn is_of(&self, kind: Kind) -> bool {
        self.code == Some(kind.class().1)
    }

    /// Whether it is that a budget is spent.
    pub fn is_budget(&self) -> bool {
        self.code == Some(BUDGET)
    }

    /// Work without the tools that were asked for would only seem to be done.
    pub fn of_server(name: &str, how: &str) -> Failure {
        Failure::new(Kind::Server, format!("its server `mcp:{name}` cannot be used: {how}"))
    }

    /// A session that cannot be gone on with.
    pub fn lost(message: impl Into<String>) -> Failure {
        Failure { lost: true, ..Failure::new(Kind::NoEnd, message) }
    }

    #[must_use]
    pub fn until(self, until: Option<Time>) -> Failure {
        Failure { until, ..self }
    }
}

/// How long a message asks to wait, such as `try again in 2 hours 5 minutes` or `try again in 1.5s`, in milliseconds.
pub fn wait_in(message: &str) -> Option<u64> {
    let lower = message.to_lowercase();
    let after =
        ["try again in ", "retry in ", "retry after "].iter().find_map(|part| lower.split(part).nth(1))?;
    let mut total = 0.0;
    let mut found = false;
    let mut rest = after.trim_start_matches("about ");
    while let Some((count, unit, next)) = length(rest) {
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
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded before it is cut")]
    (found && (0.0..1e12).contains(&total)).then_some(total as u64)
}

/// A number and a unit at the beginning of a text, and what comes after them.
fn length(text: &str) -> Option<(f64, &str, &str)> {
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
            ("exceeded retry limit, last status: 429 Too Many Requests", Kind::Limit),
            ("You've hit your usage limit. Try again in 2 hours.", Kind::Limit),
            ("Quota exceeded. Check your plan and billing details.", Kind::Billing),
            ("unexpected status 401 Unauthorized: Incorrect API key", Kind::Auth),
            ("We’re currently experiencing high demand", Kind::Service),
            ("{\"error\": {\"code\": \"context_length_exceeded\"}}", Kind::Context),
            ("Codex ran out of room in the model's context window.", Kind::Context),
            ("The model does not exist or you do not have access to it.", Kind::Model),
            ("error sending request for url (http://127.0.0.1:44290/v1/429x)", Kind::Service),
            ("stream disconnected before completion: Transport error", Kind::Service),
        ];
        for (message, kind) in kinds {
            assert_eq!(Kind::of_words(message), kind, "{message}");
        }
    }

    #[test]
    fn a_wait_is_read_out_of_words() {
        assert_eq!(wait_in("Please try again in 1s."), Some(1_000));
        assert_eq!(wait_in("try again in 2 hours 5 minutes"), Some(7_500_000));
        assert_eq!(wait_in("Try again in 1.5s"), Some(1_500));
        assert_eq!(wait_in("try again in 3 days, 4 hours and 1 minute."), Some(273_660_000));
        assert_eq!(wait_in("try again later"), None);
        assert_eq!(wait_in("try again in a while"), None);
        assert_eq!(wait_in(""), None);
    }
}
