//! Failures of agents, and the fallback agents of a step: chooses the agent of an attempt, and hands over to the next
//! one.
//!
//! Owns the order, and a file in each attempt's folder that says which agent had it and whether it gave up. The file is
//! on disk before any agent works and before anything is reported, so that the agent is known after a crash. Also maps
//! status codes and provider messages to the error classes that a run's policies use, for all agents alike; the error
//! names of one agent are in its own file. Does not know the way in which an agent is started: the chosen agent is the
//! agent of the attempt spec.

use serde::{Deserialize, Serialize};
use skein_core::{
    engine::{AttemptEnd, AttemptRole, code},
    ir::{ErrorClass, HoldReason, Step, WorkerSpec},
    time::{Millis, Timestamp},
};

use crate::{
    clock::Clock,
    executor::{
        agents::{self, agent_launch},
        attempt::{AttemptContext, StageError, command::CommandError, non_retryable, spec::worker_for_role},
    },
    run_settings::{AgentSettings, RunSettings, ToolSettings},
    workspace::{RootFolder, root::FilePathError},
};

/// The file name in the folder of an attempt.
const NAME: &str = "relay.json";
const BYTES: u64 = 64 * 1024;

/// The agents that may do an attempt, in order.
#[derive(Debug, Default)]
pub struct AgentFallback {
    /// The keys of their settings, the step's own agent first. Empty if there is no other.
    order: Vec<String>,
    turn: usize,
    /// The agent whose turn it is, if it is not the step's own.
    instead: Option<AgentSettings>,
    /// The agent that worked on it last and gave it up, and the reason.
    before: Option<(String, String)>,
}

/// The agent of an attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct FallbackRecord {
    agent: String,
    /// It gave up, and it is the turn of the next agent.
    over: bool,
    /// True if it had begun.
    worked: bool,
    why: String,
}

impl FallbackRecord {
    /// A file that cannot be read counts as missing.
    fn read(folder: &RootFolder) -> Option<FallbackRecord> {
        serde_json::from_slice(&folder.read_file(NAME, BYTES).ok()?).ok()
    }

    fn write(&self, folder: &RootFolder) -> Result<(), FilePathError> {
        folder.replace_file(NAME, &serde_json::to_vec(self).expect("it is JSON"))
    }
}

/// The agents that the source names for a step beside its own.
pub fn named_agents(step: &Step) -> Vec<String> {
    step.extensions.skein.agents.clone().unwrap_or_default()
}

/// Resolves an agent of that list: a coding agent, or an agent that the project configures.
pub fn parse_agent_reference(text: &str) -> AgentReference<'_> {
    match agents::find_adapter(text) {
        Some(_) => AgentReference { name: None, program: Some(text) },
        None => AgentReference { name: Some(text), program: None },
    }
}

/// An agent as a source names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentReference<'a> {
    pub name: Option<&'a str>,
    pub program: Option<&'a str>,
}

impl AgentReference<'_> {
    pub fn settings_key(&self) -> String {
        AgentSettings::settings_key(self.name, self.program)
    }
}

/// The agents of a list that come after the step's own agent, without duplicates.
pub fn fallback_agents<'a>(own: &str, names: &'a [String]) -> Vec<AgentReference<'a>> {
    let mut fallbacks: Vec<AgentReference<'a>> = Vec::new();
    for agent in names.iter().map(|name| parse_agent_reference(name)) {
        if agent.settings_key() != own && !fallbacks.contains(&agent) {
            fallbacks.push(agent);
        }
    }
    fallbacks
}

/// The keys of the settings of a step's fallback agents.
fn fallback_keys(step: &Step, own: &str) -> Vec<String> {
    fallback_agents(own, &named_agents(step)).iter().map(AgentReference::settings_key).collect()
}

/// The name of an agent that is shown to people.
fn display_name(key: &str) -> &str {
    key.strip_prefix("any ").unwrap_or(key)
}

impl AgentFallback {
    /// The step's own agent, then those named beside it. An undo and a summary have no fallback.
    pub fn from_step(step: &Step, worker: &WorkerSpec, role: AttemptRole) -> AgentFallback {
        let WorkerSpec::Agent { name, program, .. } = worker else { return AgentFallback::default() };
        let mut order = vec![AgentSettings::settings_key(name.as_deref(), program.as_deref())];
        if matches!(role, AttemptRole::Main | AttemptRole::Check) {
            order.extend(fallback_keys(step, &order[0]));
        }
        if order.len() < 2 { AgentFallback::default() } else { AgentFallback { order, ..AgentFallback::default() } }
    }

    fn next_agent(&self) -> Option<&str> {
        self.order.get(self.turn + 1).map(|key| display_name(key))
    }

    /// The agent that does it, if it is not the step's own.
    pub(crate) fn current_substitute(&self) -> Option<&AgentSettings> {
        self.instead.as_ref()
    }

    /// The name of that agent.
    pub(crate) fn substitute_name(&self) -> Option<String> {
        self.instead.as_ref()?;
        self.order.get(self.turn).map(|key| display_name(key).to_owned())
    }

    /// The agent that worked on it before, and the reason why it gave up.
    pub(crate) fn previous_agent(&self) -> Option<(&str, &str)> {
        self.before.as_ref().map(|(who, why)| (who.as_str(), why.as_str()))
    }

    pub(crate) fn has_next(&self) -> bool {
        self.next_agent().is_some()
    }

    pub(crate) fn has_alternatives(&self) -> bool {
        !self.order.is_empty()
    }
}

/// Determines whose turn it is, from the records of the previous attempts.
pub(crate) fn choose_agent(mut attempt: AttemptContext) -> Result<AttemptContext, StageError> {
    if !attempt.job.agent_task.fallback.has_alternatives() {
        return Ok(attempt);
    }
    let had = attempt.earlier_attempts().find_map(|files| FallbackRecord::read(files.root()));
    let job = &mut attempt.job;
    let order = &job.agent_task.fallback.order;
    let at = |had: &FallbackRecord| order.iter().position(|key| *key == had.agent).unwrap_or(0);
    // After the last agent it is the first one's turn again.
    let turn = had.as_ref().map_or(0, |had| (at(had) + usize::from(had.over)) % order.len());
    let instead =
        (turn > 0).then(|| build_substitute(&job.settings, order, turn)).transpose().map_err(non_retryable)?;
    let before = had.filter(|had| had.over && had.worked).map(|had| (display_name(&had.agent).to_owned(), had.why));
    let now = FallbackRecord { agent: order[turn].clone(), worked: true, ..FallbackRecord::default() };
    now.write(attempt.files.root()).map_err(non_retryable)?;
    (job.agent_task.fallback.turn, job.agent_task.fallback.instead, job.agent_task.fallback.before) =
        (turn, instead, before);
    Ok(attempt)
}

/// Builds the settings of a substitute. It has the capabilities of the step's own agent, and its instructions unless
/// the substitute has its own. Models are not inherited: they belong to another program.
fn build_substitute(settings: &RunSettings, order: &[String], turn: usize) -> Result<AgentSettings, CommandError> {
    let find =
        |key: &String| settings.agents.get(key).ok_or_else(|| CommandError::UnknownAgent(display_name(key).to_owned()));
    let (own, other) = (find(&order[0])?, find(&order[turn])?);
    Ok(AgentSettings {
        capabilities: own.capabilities.clone(),
        instructions: other.instructions.clone().or_else(|| own.instructions.clone()),
        ..other.clone()
    })
}

/// True if another agent may take over after this failure: the account is exhausted, or the service is down. A program
/// that is missing, not logged in or failing needs a person's attention, so there is no fallback.
fn allows_fallback(class: ErrorClass, code: Option<&str>) -> bool {
    matches!(class, ErrorClass::RateLimit | ErrorClass::Service) || code.is_some_and(is_outage)
}

/// Replaces the end of an attempt with a handover if another agent can take over.
pub(crate) fn apply_fallback(attempt: &AttemptContext, end: AttemptEnd) -> AttemptEnd {
    let AttemptEnd::Failed { class, code, message, retry_at } = end else { return end };
    if !attempt.job.agent_task.fallback.has_alternatives() || !allows_fallback(class, code.as_deref()) {
        return AttemptEnd::Failed { class, code, message, retry_at };
    }
    if let Some(end) = give_up_turn(attempt, &attempt.shared.redactor.redact_str(&message), true) {
        return end;
    }
    // No agent is left. The run waits for the account that is available first.
    let retry_at = if class == ErrorClass::RateLimit { earliest_retry(attempt, retry_at) } else { retry_at };
    AttemptEnd::Failed { class, code, message, retry_at }
}

/// Gives up the turn of the present agent. `None` if no agent comes after it; the first one is next.
fn give_up_turn(attempt: &AttemptContext, why: &str, worked: bool) -> Option<AttemptEnd> {
    let relay = &attempt.job.agent_task.fallback;
    let agent = relay.order.get(relay.turn)?;
    let had = FallbackRecord { agent: agent.clone(), over: true, worked, why: why.to_owned() };
    if let Err(error) = had.write(attempt.files.root()) {
        // Without the record the same agent would start again.
        return Some(non_retryable(error).into());
    }
    let to = relay.next_agent()?.to_owned();
    Some(AttemptEnd::HandedOver { to, message: why.to_owned() })
}

/// Handles an account that is known to be exhausted: another agent takes over, or the attempt waits. `None`: it is
/// tried.
pub(crate) fn handle_account_limit(attempt: &AttemptContext, until: Timestamp) -> Option<AttemptEnd> {
    let job = &attempt.job;
    let message = "the agent's account has reached its limit".to_owned();
    if (job.agent_task.fallback.has_next() || job.agent_task.waits_for_quota)
        && let Some(end) = give_up_turn(attempt, &message, false)
    {
        return Some(end);
    }
    let until = earliest_retry(attempt, Some(until));
    job.agent_task.waits_for_quota.then_some(AttemptEnd::Blocked { reason: HoldReason::Quota, until, message })
}

/// The time when the first of the agents is available again, if known.
fn earliest_retry(attempt: &AttemptContext, until: Option<Timestamp>) -> Option<Timestamp> {
    let job = &attempt.job;
    let (order, now) = (job.agent_task.fallback.order.iter(), Clock::new().now());
    let accounts = order.filter_map(|key| agent_launch::find_account(job, job.settings.agents.get(key)?));
    accounts.filter_map(|account| account.limited_until(&attempt.shared.state, now)).chain(until).min()
}

impl RunSettings {
    /// True if the agents and tools of a step have the same settings in both.
    pub(crate) fn has_same_step_settings(&self, other: &RunSettings, step: &Step) -> bool {
        let roles = [AttemptRole::Main, AttemptRole::Check, AttemptRole::Summary, AttemptRole::Undo];
        let workers = roles.iter().filter_map(|role| worker_for_role(step, *role).ok());
        workers.map(|(worker, _)| worker).all(|worker| match worker {
            WorkerSpec::Agent { name, program, .. } => {
                let own = AgentSettings::settings_key(name.as_deref(), program.as_deref());
                let fallbacks = fallback_keys(step, &own);
                [own].iter().chain(&fallbacks).all(|key| self.agents.get(key) == other.agents.get(key))
            }
            worker => {
                ToolSettings::settings_key(worker).is_none_or(|key| self.tools.get(&key) == other.tools.get(&key))
            }
        })
    }
}

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

const BILLING: &str = "agent_billing";
const LIMIT: &str = "agent_limit";
const SERVICE: &str = "agent_service";

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
pub(crate) fn is_outage(code: &str) -> bool {
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
    pub(crate) fn from_status(status: u64) -> AgentFailureKind {
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
    pub(crate) fn from_message(message: &str) -> AgentFailureKind {
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
            AgentFailureKind::Auth => (ErrorClass::Fatal, "agent_auth"),
            AgentFailureKind::Model => (ErrorClass::Fatal, "agent_model"),
            AgentFailureKind::Context => (ErrorClass::NonRetryable, "agent_context"),
            AgentFailureKind::Request => (ErrorClass::NonRetryable, "agent_request"),
            AgentFailureKind::Service => (ErrorClass::Transient, SERVICE),
            AgentFailureKind::Usage => (ErrorClass::Fatal, "agent_usage"),
            AgentFailureKind::Turns => (ErrorClass::NonRetryable, "max_steps"),
            AgentFailureKind::Budget => (ErrorClass::NonRetryable, code::BUDGET),
            AgentFailureKind::NoEnd => (ErrorClass::AgentError, "agent_no_end"),
            AgentFailureKind::Server => (ErrorClass::Transient, "agent_server"),
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
    pub(crate) fn from_message(message: &str) -> AgentFailure {
        AgentFailure::with_parsed_wait(AgentFailureKind::from_message(message), message)
    }

    /// Creates a failure of a known kind. The message may say when a limit ends.
    pub(crate) fn with_parsed_wait(kind: AgentFailureKind, message: impl Into<String>) -> AgentFailure {
        let failure = AgentFailure::new(kind, message);
        let wait = parse_wait(&failure.message).filter(|_| kind == AgentFailureKind::Limit);
        failure.with_until(wait.map(|wait| Clock::new().now().saturating_add(Millis(wait))))
    }

    pub(crate) fn has_kind(&self, kind: AgentFailureKind) -> bool {
        self.code == Some(kind.error_class().1)
    }
    pub(crate) fn is_budget_exceeded(&self) -> bool {
        self.code == Some(code::BUDGET)
    }

    /// Creates the failure for a missing tool server: work without the requested tools would only seem to be done.
    pub(crate) fn unusable_server(name: &str, how: &str) -> AgentFailure {
        AgentFailure::new(AgentFailureKind::Server, format!("its server `mcp:{name}` cannot be used: {how}"))
    }

    /// Creates the failure for a session that cannot be continued.
    pub(crate) fn lost_session(message: impl Into<String>) -> AgentFailure {
        AgentFailure { lost: true, ..AgentFailure::new(AgentFailureKind::NoEnd, message) }
    }

    #[must_use]
    pub(crate) fn with_until(self, until: Option<Timestamp>) -> AgentFailure {
        AgentFailure { until, ..self }
    }
}

/// Parses the wait that a message asks for, such as `try again in 2 hours 5 minutes` or `try again in 1.5s`, in
/// milliseconds.
pub(crate) fn parse_wait(message: &str) -> Option<u64> {
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
mod failure_tests {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_another_could_do_moves_on() {
        for code in ["agent_limit", "agent_billing", "agent_service"] {
            assert!(allows_fallback(ErrorClass::Transient, Some(code)), "{code}");
        }
        for code in ["agent_auth", "agent_model", "agent_usage", "agent_no_end", "agent_context", "budget"] {
            assert!(!allows_fallback(ErrorClass::Fatal, Some(code)), "{code}");
        }
        assert!(allows_fallback(ErrorClass::RateLimit, None) && allows_fallback(ErrorClass::Service, None));
        assert!(!allows_fallback(ErrorClass::Transient, None) && !allows_fallback(ErrorClass::Timeout, None));
    }
}
