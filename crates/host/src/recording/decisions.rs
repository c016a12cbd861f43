//! Recorded decisions: the answers to gates, holds and waits of a run, in the order in which each step asked.
//!
//! Owns which answers are recorded. Waits of this machine alone are not recorded: an interruption, a missing secret, a
//! scheduled time.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use skein_core::{
    engine::{Event, JournalRecord, StepPaths, Verdict, Waitpoint},
    ids::SignalName,
    ir::HoldReason,
    plan::Plan,
};

use super::{DECISIONS, ENTRY_BYTES, Recording, RecordingError};

/// The actor that the engine names if a timeout decided.
pub(crate) const TIME: &str = "system:timeout";

/// One question and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedDecision {
    /// The number of the try of the whole run, from 1.
    #[serde(rename = "try", default = "first", skip_serializing_if = "is_first")]
    pub whole: u32,
    /// The path of the step that asked.
    pub step: String,
    pub answer: RecordedAnswer,
    /// The earlier approvers, if several approvals were needed.
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

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
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
    /// No answer: the timeout came, or the run ended before.
    Nobody,
}

/// Returns the waitpoint that an event opens, if its answer is recorded, and its step.
pub fn recorded_waitpoint(event: &Event) -> Option<(skein_core::engine::StepAt, Waitpoint)> {
    match event {
        Event::Opened { at, opening, .. } => Some((*at, *opening)),
        Event::StepHeld { at, opening, reason, until, .. } if is_recorded_hold(*reason, until.is_some()) => {
            Some((*at, *opening))
        }
        _ => None,
    }
}

/// True if a hold for this reason is recorded. No timeout releases a hold of governance.
pub fn is_recorded_hold(reason: HoldReason, timed: bool) -> bool {
    match reason {
        HoldReason::Interruption | HoldReason::Secret => false,
        HoldReason::Governance => true,
        _ => !timed,
    }
}

/// Collects the questions and answers of a run from its journal.
pub fn collect_decisions<'a>(plan: &Plan, records: impl Iterator<Item = &'a JournalRecord>) -> Vec<RecordedDecision> {
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
            asked.insert(opening, RecordedDecision { whole, step, answer, after: Vec::new(), by: None, reason: None });
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
    /// Stores all decisions of one try, in place of its earlier ones.
    pub fn write_decisions(&self, decided: Vec<RecordedDecision>) -> Result<(), RecordingError> {
        let Some(whole) = decided.first().map(|one| one.whole) else { return Ok(()) };
        let mut all = self.read_decisions()?;
        all.retain(|one| one.whole != whole);
        all.extend(decided);
        // The decisions of one step stay in their order.
        all.sort_by(|a, b| (a.whole, &a.step).cmp(&(b.whole, &b.step)));
        self.write_json(DECISIONS, &serde_json::to_value(all).expect("decisions are JSON"))
    }

    /// Reads the decisions. Those of each step are in the order in which it asked.
    pub fn read_decisions(&self) -> Result<Vec<RecordedDecision>, RecordingError> {
        let bytes = match self.root.read_file(DECISIONS, ENTRY_BYTES) {
            Err(error) if error.is_missing() => return Ok(Vec::new()),
            other => other?,
        };
        serde_json::from_slice(&bytes).map_err(|error| RecordingError::Wrong(DECISIONS.to_owned(), error.to_string()))
    }
}
