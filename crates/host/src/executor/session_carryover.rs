//! The carryover between attempts of an agent: its session, and unreported costs.
//!
//! Owns the choice of attempts that resume a session. Does not know the content of a session.

use skein_core::engine::{AttemptId, AttemptMode, Cost};

use super::attempt_spec::AttemptSpec;
use crate::{
    agent::{AgentAdapter, AgentHome, AgentNote, TokenUsage},
    workspace::RunDir,
};

/// The data that an attempt takes over from the previous one.
#[derive(Debug, Default)]
pub struct SessionCarryover {
    /// The session to resume.
    pub session: Option<String>,
    /// Costs that were never reported to the run.
    pub carried: Cost,
    /// The total usage of the session.
    pub total: TokenUsage,
}

impl SessionCarryover {
    pub fn load(
        job: &AttemptSpec,
        run: &RunDir,
        adapter: &dyn AgentAdapter,
        home: &AgentHome,
    ) -> SessionCarryover {
        let interrupted = matches!(job.mode, AttemptMode::Rerun | AttemptMode::Resume | AttemptMode::Restore);
        let Some(note) = read_last_note(job, run) else { return SessionCarryover::default() };
        let mut carried = if interrupted { note.cost } else { Cost::default() };
        let mut total = note.total;
        let session = resumable_session(job, &note, adapter.agent_name());
        if interrupted
            && let Some(now) = session.as_ref().and_then(|session| adapter.read_session_usage(home, session))
        {
            // An interrupted agent may have spent more than it reported.
            carried.add(Cost { tokens: now.usage_since(total).total_tokens(), micro_usd: None });
            total = now;
        }
        let goes_on = match job.mode {
            AttemptMode::Resume => true,
            AttemptMode::Again => note.goes_on,
            AttemptMode::Fresh | AttemptMode::Rerun | AttemptMode::Restore => false,
        };
        match session.filter(|_| goes_on) {
            Some(session) => SessionCarryover { session: Some(session), carried, total },
            None => SessionCarryover { carried, ..SessionCarryover::default() },
        }
    }
}

/// True if its agent can resume a session.
pub fn has_session(job: &AttemptSpec, run: &RunDir) -> bool {
    let worker = job.agent().and_then(|agent| agent.worker.as_deref());
    read_last_note(job, run)
        .zip(worker)
        .is_some_and(|(note, worker)| resumable_session(job, &note, worker).is_some())
}

/// The session of a note, if the same agent can resume it. An agent that takes over starts a new one.
fn resumable_session(job: &AttemptSpec, note: &AgentNote, worker: &str) -> Option<String> {
    note.session.clone().filter(|_| note.worker == worker && job.relay.previous_agent().is_none())
}

/// The note about the agent of the previous attempt.
fn read_last_note(job: &AttemptSpec, run: &RunDir) -> Option<AgentNote> {
    (1..job.attempt.attempt).rev().find_map(|attempt| {
        let folder = run.find_attempt(AttemptId { attempt, ..job.attempt }).ok()??;
        AgentNote::read(folder.root())
    })
}
