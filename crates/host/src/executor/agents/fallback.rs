//! Fallback agents of a step: chooses the agent of an attempt, and hands over to the next one.
//!
//! Owns the order, and a file in each attempt's folder that says which agent had it and whether it gave up. The file is
//! on disk before any agent works and before anything is reported, so that the agent is known after a crash. Does not
//! know the way in which an agent is started: the chosen agent is the agent of the attempt spec.

use serde::{Deserialize, Serialize};
use skein_core::{
    engine::{AttemptEnd, AttemptId, AttemptRole},
    ir::{ErrorClass, HoldReason, Step, WorkerSpec},
    time::Timestamp,
};

use super::agent_launch;
use crate::{
    clock::Clock,
    executor::{
        agents,
        attempt::{
            StageError,
            command::CommandError,
            non_retryable,
            spec::{AttemptSpec, worker_for_role},
        },
    },
    redact::Redactor,
    run_settings::{AgentSettings, RunSettings, ToolSettings},
    workspace::{RootFolder, RunDir, root::FilePathError},
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
    /// The key of its settings.
    pub fn settings_key(&self) -> String {
        AgentSettings::settings_key(self.name, self.program)
    }
}

/// The agents of a list that come after the step's own agent, without duplicates.
pub fn fallback_agents<'a>(own: &str, names: &'a [String]) -> Vec<AgentReference<'a>> {
    let mut others: Vec<AgentReference<'a>> = Vec::new();
    for other in names.iter().map(|name| parse_agent_reference(name)) {
        if other.settings_key() != own && !others.contains(&other) {
            others.push(other);
        }
    }
    others
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
            let names = named_agents(step);
            let others: Vec<String> =
                fallback_agents(&order[0], &names).iter().map(AgentReference::settings_key).collect();
            order.extend(others);
        }
        if order.len() < 2 { AgentFallback::default() } else { AgentFallback { order, ..AgentFallback::default() } }
    }

    fn next_agent(&self) -> Option<&str> {
        self.order.get(self.turn + 1).map(|key| display_name(key))
    }

    /// The agent that does it, if it is not the step's own.
    pub fn current_substitute(&self) -> Option<&AgentSettings> {
        self.instead.as_ref()
    }

    /// The name of that agent.
    pub fn substitute_name(&self) -> Option<String> {
        self.instead.as_ref()?;
        self.order.get(self.turn).map(|key| display_name(key).to_owned())
    }

    /// The agent that worked on it before, and the reason why it gave up.
    pub fn previous_agent(&self) -> Option<(&str, &str)> {
        self.before.as_ref().map(|(who, why)| (who.as_str(), why.as_str()))
    }

    pub fn has_next(&self) -> bool {
        self.next_agent().is_some()
    }

    pub fn has_alternatives(&self) -> bool {
        !self.order.is_empty()
    }
}

/// Determines whose turn it is, from the records of the previous attempts.
pub(crate) fn choose_agent(job: &mut AttemptSpec, run: &RunDir, files: &RootFolder) -> Result<(), StageError> {
    if !job.relay.has_alternatives() {
        return Ok(());
    }
    let had = (1..job.attempt.attempt).rev().find_map(|attempt| {
        let folder = run.find_attempt(AttemptId { attempt, ..job.attempt }).ok()??;
        FallbackRecord::read(folder.root())
    });
    let order = &job.relay.order;
    let at = |had: &FallbackRecord| order.iter().position(|key| *key == had.agent).unwrap_or(0);
    // After the last agent it is the first one's turn again.
    let turn = had.as_ref().map_or(0, |had| (at(had) + usize::from(had.over)) % order.len());
    let instead =
        (turn > 0).then(|| build_substitute(&job.settings, order, turn)).transpose().map_err(non_retryable)?;
    let before = had.filter(|had| had.over && had.worked).map(|had| (display_name(&had.agent).to_owned(), had.why));
    let now = FallbackRecord { agent: order[turn].clone(), worked: true, ..FallbackRecord::default() };
    now.write(files).map_err(non_retryable)?;
    (job.relay.turn, job.relay.instead, job.relay.before) = (turn, instead, before);
    Ok(())
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
    matches!(class, ErrorClass::RateLimit | ErrorClass::Service) || code.is_some_and(agents::is_outage)
}

/// Replaces the end of an attempt with a handover if another agent can take over.
pub fn apply_fallback(
    job: &AttemptSpec,
    files: &RootFolder,
    redactor: &Redactor,
    state: &RootFolder,
    end: AttemptEnd,
) -> AttemptEnd {
    let relay = &job.relay;
    let AttemptEnd::Failed { class, code, message, retry_at } = end else { return end };
    if !relay.has_alternatives() || !allows_fallback(class, code.as_deref()) {
        return AttemptEnd::Failed { class, code, message, retry_at };
    }
    if let Some(end) = give_up_turn(job, files, &redactor.redact_str(&message), true) {
        return end;
    }
    // No agent is left. The run waits for the account that is available first.
    let retry_at = if class == ErrorClass::RateLimit { earliest_retry(job, state, retry_at) } else { retry_at };
    AttemptEnd::Failed { class, code, message, retry_at }
}

/// Gives up the turn of the present agent. `None` if no agent comes after it; the first one is next.
pub fn give_up_turn(job: &AttemptSpec, files: &RootFolder, why: &str, worked: bool) -> Option<AttemptEnd> {
    let relay = &job.relay;
    let agent = relay.order.get(relay.turn)?;
    let had = FallbackRecord { agent: agent.clone(), over: true, worked, why: why.to_owned() };
    if let Err(error) = had.write(files) {
        // Without the record the same agent would start again.
        return Some(non_retryable(error).into());
    }
    let to = relay.next_agent()?.to_owned();
    Some(AttemptEnd::HandedOver { to, message: why.to_owned() })
}

/// Handles an account that is known to be exhausted: another agent takes over, or the attempt waits. `None`: it is
/// tried.
pub fn handle_account_limit(
    job: &AttemptSpec,
    state: &RootFolder,
    files: &RootFolder,
    until: Timestamp,
) -> Option<AttemptEnd> {
    let message = "the agent's account has reached its limit".to_owned();
    if (job.relay.has_next() || job.waits)
        && let Some(end) = give_up_turn(job, files, &message, false)
    {
        return Some(end);
    }
    let until = earliest_retry(job, state, Some(until));
    job.waits.then_some(AttemptEnd::Blocked { reason: HoldReason::Quota, until, message })
}

/// The time when the first of the agents is available again, if known.
fn earliest_retry(job: &AttemptSpec, state: &RootFolder, until: Option<Timestamp>) -> Option<Timestamp> {
    let (order, now) = (job.relay.order.iter(), Clock::new().now());
    let accounts = order.filter_map(|key| agent_launch::find_account(job, job.settings.agents.get(key)?));
    accounts.filter_map(|account| account.limited_until(state, now)).chain(until).min()
}

impl RunSettings {
    /// True if the agents and tools of a step have the same settings in both.
    pub fn has_same_step_settings(&self, other: &RunSettings, step: &Step) -> bool {
        let roles = [AttemptRole::Main, AttemptRole::Check, AttemptRole::Summary, AttemptRole::Undo];
        let workers = roles.iter().filter_map(|role| worker_for_role(step, *role).ok());
        workers.map(|(worker, _)| worker).all(|worker| match worker {
            WorkerSpec::Agent { name, program, .. } => {
                let own = AgentSettings::settings_key(name.as_deref(), program.as_deref());
                let others = named_agents(step);
                let others =
                    fallback_agents(&own, &others).iter().map(AgentReference::settings_key).collect::<Vec<_>>();
                [own].iter().chain(&others).all(|key| self.agents.get(key) == other.agents.get(key))
            }
            worker => {
                ToolSettings::settings_key(worker).is_none_or(|key| self.tools.get(&key) == other.tools.get(&key))
            }
        })
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
