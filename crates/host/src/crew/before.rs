//! What one attempt of an agent leaves to the next: its session, and what it spent and never told.
//!
//! Owns which attempts go on with a session. Refuses to know what is said in it.

use skein_core::engine::{AttemptId, Cost, Mode};

use super::job::Job;
use crate::{
    agent::{Adapter, Home, Note, Spent},
    workspace::RunDir,
};

/// What an attempt takes over from the one before it.
#[derive(Debug, Default)]
pub struct Before {
    /// The session that it goes on with.
    pub session: Option<String>,
    /// What was spent and never told to the run.
    pub carried: Cost,
    /// What the session had spent in all.
    pub total: Spent,
}

impl Before {
    pub fn of(job: &Job, run: &RunDir, adapter: &dyn Adapter, home: &Home) -> Before {
        let interrupted = matches!(job.mode, Mode::Rerun | Mode::Resume | Mode::Restore);
        let Some(note) = last_note(job, run) else { return Before::default() };
        let mut carried = if interrupted { note.cost } else { Cost::default() };
        let mut total = note.total;
        let session = note.session.filter(|_| note.worker == adapter.word());
        if interrupted && let Some(now) = session.as_ref().and_then(|session| adapter.total(home, session)) {
            // It may have spent more than it lived to tell.
            carried.add(Cost { tokens: now.since(total).tokens(), micro_usd: None });
            total = now;
        }
        let goes_on = match job.mode {
            Mode::Resume => true,
            Mode::Again => note.goes_on,
            Mode::Fresh | Mode::Rerun | Mode::Restore => false,
        };
        match session.filter(|_| goes_on) {
            Some(session) => Before { session: Some(session), carried, total },
            None => Before { carried, ..Before::default() },
        }
    }
}

/// Whether there is a session with which its agent can go on.
pub fn has_session(job: &Job, run: &RunDir) -> bool {
    let worker = job.agent().and_then(|agent| agent.worker.as_ref());
    last_note(job, run).is_some_and(|note| note.session.is_some() && Some(&note.worker) == worker)
}

/// What is noted of the agent of the attempt before.
fn last_note(job: &Job, run: &RunDir) -> Option<Note> {
    (1..job.attempt.attempt).rev().find_map(|attempt| {
        let folder = run.find_attempt(AttemptId { attempt, ..job.attempt }).ok()??;
        Note::read(folder.root())
    })
}
