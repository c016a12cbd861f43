//! Several agents for one step: whose turn an attempt is, and when the next one takes over.
//!
//! Owns the order, and a file in the folder of each attempt that says who had it and whether they gave it up. It is on disk
//! before anyone works and before anything is told, so that after a crash it is known who is at work. Refuses to know how an
//! agent is started: whoever has the turn is the agent of the job.

use serde::{Deserialize, Serialize};
use skein_core::{
    engine::{AttemptEnd, AttemptId, AttemptRole},
    ir::{ErrorClass, HoldReason, Step, WorkerSpec},
    time::Timestamp,
};

use super::{
    agent_launch,
    attempt::non_retryable,
    attempt_spec::AttemptSpec,
    run_settings::{AgentSettings, RunSettings},
};
use crate::{
    agent,
    clock::Clock,
    redact::Redactor,
    workspace::{RootFolder, RunDir, root::FilePathError},
};

/// Its name in the folder of an attempt.
const NAME: &str = "relay.json";
const BYTES: u64 = 64 * 1024;

/// Who may do an attempt, one after another.
#[derive(Debug, Default)]
pub struct AgentFallback {
    /// The names under which they are settled, the step's own agent first. Nobody: there is no other.
    order: Vec<String>,
    turn: usize,
    /// Who has the turn, where that is not the step's own agent.
    instead: Option<AgentSettings>,
    /// Who worked on it last, gave it up, and why.
    before: Option<(String, String)>,
}

/// Who had an attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct FallbackRecord {
    agent: String,
    /// They gave it up, and the next in the order has the turn.
    over: bool,
    /// Whether they had begun.
    worked: bool,
    why: String,
}

impl FallbackRecord {
    /// One that cannot be read says nothing.
    fn read(folder: &RootFolder) -> Option<FallbackRecord> {
        serde_json::from_slice(&folder.read_file(NAME, BYTES).ok()?).ok()
    }

    fn write(&self, folder: &RootFolder) -> Result<(), FilePathError> {
        folder.replace_file(NAME, &serde_json::to_vec(self).expect("it is JSON"))
    }
}

/// The agents that the source names for a step beside its own.
pub fn named_agents(step: &Step) -> Vec<String> {
    let names = step.skein_extension("agents").and_then(|names| names.as_array());
    names.into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
}

/// Who an agent of that list is: a coding agent, or one that the project has a name for.
pub fn parse_agent_reference(text: &str) -> AgentReference<'_> {
    match agent::find_adapter(text) {
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
    /// The name under which it is settled.
    pub fn settings_key(&self) -> String {
        AgentSettings::settings_key(self.name, self.program)
    }
}

/// Those of a list that come after the step's own agent, each once.
pub fn fallback_agents<'a>(own: &str, names: &'a [String]) -> Vec<AgentReference<'a>> {
    let mut others: Vec<AgentReference<'a>> = Vec::new();
    for other in names.iter().map(|name| parse_agent_reference(name)) {
        if other.settings_key() != own && !others.contains(&other) {
            others.push(other);
        }
    }
    others
}

/// The name of an agent as people know it.
fn display_name(key: &str) -> &str {
    key.strip_prefix("any ").unwrap_or(key)
}

impl AgentFallback {
    /// The step's own agent, and then who is named beside it. What an undo and a summary come to does not wait for others.
    pub fn from_step(step: &Step, worker: &WorkerSpec, role: AttemptRole) -> AgentFallback {
        let WorkerSpec::Agent { name, program, .. } = worker else { return AgentFallback::default() };
        let mut order = vec![AgentSettings::settings_key(name.as_deref(), program.as_deref())];
        if matches!(role, AttemptRole::Main | AttemptRole::Check) {
            let names = named_agents(step);
            let others: Vec<String> =
                fallback_agents(&order[0], &names).iter().map(AgentReference::settings_key).collect();
            order.extend(others);
        }
        if order.len() < 2 {
            AgentFallback::default()
        } else {
            AgentFallback { order, ..AgentFallback::default() }
        }
    }

    fn next_agent(&self) -> Option<&str> {
        self.order.get(self.turn + 1).map(|key| display_name(key))
    }

    /// Who does it, where that is not the step's own agent.
    pub fn current_substitute(&self) -> Option<&AgentSettings> {
        self.instead.as_ref()
    }

    /// The same, by name.
    pub fn substitute_name(&self) -> Option<String> {
        self.instead.as_ref()?;
        self.order.get(self.turn).map(|key| display_name(key).to_owned())
    }

    /// Who worked on it before, and why they gave it up.
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

/// Finds out whose turn it is, by who had the attempts before this one.
pub fn choose_agent(job: &mut AttemptSpec, run: &RunDir, files: &RootFolder) -> Result<(), AttemptEnd> {
    if !job.relay.has_alternatives() {
        return Ok(());
    }
    let had = (1..job.attempt.attempt).rev().find_map(|attempt| {
        let folder = run.find_attempt(AttemptId { attempt, ..job.attempt }).ok()??;
        FallbackRecord::read(folder.root())
    });
    let order = &job.relay.order;
    let at = |had: &FallbackRecord| order.iter().position(|key| *key == had.agent).unwrap_or(0);
    // After the last of them the first has the turn again.
    let turn = had.as_ref().map_or(0, |had| (at(had) + usize::from(had.over)) % order.len());
    let instead =
        (turn > 0).then(|| build_substitute(&job.about, order, turn)).transpose().map_err(non_retryable)?;
    let before =
        had.filter(|had| had.over && had.worked).map(|had| (display_name(&had.agent).to_owned(), had.why));
    let now = FallbackRecord { agent: order[turn].clone(), worked: true, ..FallbackRecord::default() };
    now.write(files).map_err(non_retryable)?;
    (job.relay.turn, job.relay.instead, job.relay.before) = (turn, instead, before);
    Ok(())
}

/// Whoever takes over does what the step's own agent would: with its rights, and told what it is told, unless they have
/// standing instructions of their own. Models are not taken over: they are another program's.
fn build_substitute(about: &RunSettings, order: &[String], turn: usize) -> Result<AgentSettings, String> {
    let find = |key: &String| {
        about.agents.get(key).ok_or_else(|| format!("nobody here is the agent `{}`", display_name(key)))
    };
    let (own, other) = (find(&order[0])?, find(&order[turn])?);
    Ok(AgentSettings {
        capabilities: own.capabilities.clone(),
        instructions: other.instructions.clone().or_else(|| own.instructions.clone()),
        ..other.clone()
    })
}

/// Whether another agent may do what this one failed at: its account is used up, or its service is down. A program that is
/// not there, is not logged in or does not end well is something to look at, and nothing to go around.
fn allows_fallback(class: ErrorClass, code: Option<&str>) -> bool {
    matches!(class, ErrorClass::RateLimit | ErrorClass::Service) || code.is_some_and(agent::is_outage)
}

/// What an end means where others could take over.
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
    // Nobody is left. Who has something again first is waited for.
    let retry_at =
        if class == ErrorClass::RateLimit { earliest_retry(job, state, retry_at) } else { retry_at };
    AttemptEnd::Failed { class, code, message, retry_at }
}

/// Whoever has the turn gives it up. None: nobody comes after them, and the first is next.
pub fn give_up_turn(job: &AttemptSpec, files: &RootFolder, why: &str, worked: bool) -> Option<AttemptEnd> {
    let relay = &job.relay;
    let agent = relay.order.get(relay.turn)?;
    let had = FallbackRecord { agent: agent.clone(), over: true, worked, why: why.to_owned() };
    if let Err(error) = had.write(files) {
        // It would be begun again by the same one.
        return Some(non_retryable(error));
    }
    let to = relay.next_agent()?.to_owned();
    Some(AttemptEnd::HandedOver { to, message: why.to_owned() })
}

/// What becomes of an attempt whose account is known to be used up: another takes over, or it waits. None: it is tried.
pub fn handle_account_limit(
    job: &AttemptSpec,
    state: &RootFolder,
    files: &RootFolder,
    until: Timestamp,
) -> Option<AttemptEnd> {
    let message = "its account has reached its limit".to_owned();
    if (job.relay.has_next() || job.waits)
        && let Some(end) = give_up_turn(job, files, &message, false)
    {
        return Some(end);
    }
    let until = earliest_retry(job, state, Some(until));
    job.waits.then_some(AttemptEnd::Blocked { reason: HoldReason::Quota, until, message })
}

/// When the first of those who may do it can be asked again, as far as that is known.
fn earliest_retry(job: &AttemptSpec, state: &RootFolder, until: Option<Timestamp>) -> Option<Timestamp> {
    let (order, now) = (job.relay.order.iter(), Clock::new().now());
    let accounts = order.filter_map(|key| agent_launch::find_account(job, job.about.agents.get(key)?));
    accounts.filter_map(|account| account.limited_until(state, now)).chain(until).min()
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
