//! What one attempt of an agent leaves to the next: its session, and what it spent and never told.
//!
//! Owns which attempts go on with a session. Refuses to know what is said in it.

use skein_core::engine::{AttemptId, AttemptMode, Cost};

use super::attempt_spec::AttemptSpec;
use crate::{
    agent::{AgentAdapter, AgentHome, AgentNote, TokenUsage},
    workspace::RunDir,
};

/// What an attempt takes over from the one before it.
#[derive(Debug, Default)]
pub struct SessionCarryover {
    /// The session that it goes on with.
    pub session: Option<String>,
    /// What was spent and never told to the run.
    pub carried: Cost,
    /// What the session had spent in all.
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
            // It may have spent more than it lived to tell.
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

/// Whether there is a session with which its agent can go on.
pub fn has_session(job: &AttemptSpec, run: &RunDir) -> bool {
    let worker = job.agent().and_then(|agent| agent.worker.as_deref());
    read_last_note(job, run)
        .zip(worker)
        .is_some_and(|(note, worker)| resumable_session(job, &note, worker).is_some())
}

/// A session is one agent's own; whoever takes over begins anew.
fn resumable_session(job: &AttemptSpec, note: &AgentNote, worker: &str) -> Option<String> {
    note.session.clone().filter(|_| note.worker == worker && job.relay.previous_agent().is_none())
}

/// What is noted of the agent of the attempt before.
fn read_last_note(job: &AttemptSpec, run: &RunDir) -> Option<AgentNote> {
    (1..job.attempt.attempt).rev().find_map(|attempt| {
        let folder = run.find_attempt(AttemptId { attempt, ..job.attempt }).ok()??;
        AgentNote::read(folder.root())
    })
}
