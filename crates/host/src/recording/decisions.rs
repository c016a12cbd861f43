//! What people and the world outside said to a run: gates, holds and waits, in the order in which each step asked.
//!
//! Owns which of them are recorded. What only this machine asked for is not: an interruption, a secret that was missing, a
//! time that had to come.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use skein_core::{
    engine::{Event, JournalRecord, Verdict, Waitpoint},
    ids::SignalName,
    ir::HoldReason,
    plan::Plan,
    view::StepPaths,
};

use super::{DECISIONS, ENTRY_BYTES, Recording, RecordingError};

/// Who the engine names when a time decided.
pub(crate) const TIME: &str = "system:timeout";

/// One question and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedDecision {
    /// Which try at the whole run, from 1.
    #[serde(rename = "try", default = "first", skip_serializing_if = "is_first")]
    pub whole: u32,
    /// The path of the step that asked.
    pub step: String,
    pub answer: RecordedAnswer,
    /// Those who approved before, where several had to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

fn first() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it so")]
fn is_first(whole: &u32) -> bool {
    *whole == 1
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RecordedAnswer {
    Approve,
    Reject,
    Signal {
        name: SignalName,
        payload: Arc<Value>,
    },
    /// Nobody answered: its time came, or the run ended before.
    Nobody,
}

/// Whether an event asks something that is recorded, and where.
pub fn recorded_waitpoint(event: &Event) -> Option<(skein_core::engine::StepAt, Waitpoint)> {
    match event {
        Event::Opened { at, opening, .. } => Some((*at, *opening)),
        Event::StepHeld { at, opening, reason, until, .. } if is_recorded_hold(*reason, until.is_some()) => {
            Some((*at, *opening))
        }
        _ => None,
    }
}

/// Whether a hold for this reason is recorded. No time releases what governance holds.
pub fn is_recorded_hold(reason: HoldReason, timed: bool) -> bool {
    match reason {
        HoldReason::Interruption | HoldReason::Secret => false,
        HoldReason::Governance => true,
        _ => !timed,
    }
}

/// What was asked and answered in a run, by its journal.
pub fn collect_decisions<'a>(
    plan: &Plan,
    records: impl Iterator<Item = &'a JournalRecord>,
) -> Vec<RecordedDecision> {
    let mut names = StepPaths::new(plan.definition.clone());
    let mut asked: BTreeMap<Waitpoint, RecordedDecision> = BTreeMap::new();
    let mut whole = first();
    for JournalRecord { event, .. } in records {
        names.note_event(event);
        if let Event::RunStarted { start, .. } = event {
            whole = start.attempt;
        }
        if let Some((at, opening)) = recorded_waitpoint(event) {
            let (step, answer) = (names.step_path(at), RecordedAnswer::Nobody);
            asked.insert(
                opening,
                RecordedDecision { whole, step, answer, after: Vec::new(), by: None, reason: None },
            );
        }
        if let Event::Approved { opening, by, .. } = event
            && let Some(one) = asked.get_mut(opening)
        {
            one.after.push(by.clone());
        }
        let (opening, answer, by, reason) = match event {
            Event::Decided { opening, decision, by, reason, .. } if by != TIME => {
                let answer = match decision {
                    Verdict::Approve => RecordedAnswer::Approve,
                    Verdict::Reject => RecordedAnswer::Reject,
                };
                (opening, answer, Some(by.clone()), reason.clone())
            }
            Event::SignalTaken { opening, name, payload, .. } => {
                let answer = RecordedAnswer::Signal { name: name.clone(), payload: payload.clone() };
                (opening, answer, None, None)
            }
            _ => continue,
        };
        if let Some(one) = asked.get_mut(opening) {
            (one.answer, one.by, one.reason) = (answer, by, reason);
        }
    }
    asked.into_values().collect()
}

impl Recording {
    /// Keeps all that was decided in one try, in place of what was known of it.
    pub fn write_decisions(&self, decided: Vec<RecordedDecision>) -> Result<(), RecordingError> {
        let Some(whole) = decided.first().map(|one| one.whole) else { return Ok(()) };
        let mut all = self.read_decisions()?;
        all.retain(|one| one.whole != whole);
        all.extend(decided);
        // Those of one step stay in their order.
        all.sort_by(|a, b| (a.whole, &a.step).cmp(&(b.whole, &b.step)));
        self.write_json(DECISIONS, &serde_json::to_value(all).expect("decisions are JSON"))
    }

    /// What was decided, of each step in the order in which it asked.
    pub fn read_decisions(&self) -> Result<Vec<RecordedDecision>, RecordingError> {
        let bytes = match self.root.read_file(DECISIONS, ENTRY_BYTES) {
            Err(error) if error.is_missing() => return Ok(Vec::new()),
            other => other?,
        };
        serde_json::from_slice(&bytes)
            .map_err(|error| RecordingError::Wrong(DECISIONS.to_owned(), error.to_string()))
    }
}
