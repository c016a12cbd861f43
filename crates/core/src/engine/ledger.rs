//! The ledger: facts of the journal about each step that the run state does not keep, such as the last attempt, the
//! findings of checks, and the last increase of the stage.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    AttemptEnd, AttemptId, AttemptRole, CheckFinding, CheckOutput, Cost, Event, JournalRecord, StepAt, StepOutcome,
    StepReused, code, map_as_pairs,
};
use crate::{ir::ErrorClass, time::Timestamp};

/// The maximum number of reasons and of fingerprints that are kept, as the format requires.
const NOTES: usize = 40;

/// A ledger is fed with every record of a run in order. It keeps only the latest facts of each step. Clones share the
/// entries until they change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunLedger {
    #[serde(with = "map_as_pairs")]
    steps: BTreeMap<StepAt, Arc<LedgerEntry>>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerEntry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub main: Option<MainAttempt>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<CheckRecord>,
    /// The last check that found changed files outside of the allowed paths, or too many of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<CheckRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised: Option<StageRaise>,
    /// From 1; 0 before the first attempt.
    stage: u32,
    /// The number of attempts at the work in the last visit that had any or ended.
    tries: u32,
    /// True if that visit has ended.
    over: bool,
}

/// The last attempt at the work itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MainAttempt {
    pub id: AttemptId,
    pub started: Timestamp,
    pub ended: Option<(Timestamp, MainAttemptEnd, Cost)>,
    /// The worker, if it is not the one that the step names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MainAttemptEnd {
    Succeeded,
    Failed(ErrorClass),
    Cancelled,
}

/// The finding of a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckRecord {
    pub at: Timestamp,
    pub iteration: u32,
    pub finding: CheckFinding,
    pub reasons: Vec<String>,
    pub fingerprints: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<CheckOutput>,
}

/// An increase of the stage after a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageRaise {
    pub at: Timestamp,
    pub from: u32,
    /// `None`: to the highest stage, where the step failed.
    pub to: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<CheckRecord>,
}

impl RunLedger {
    /// Applies the next record of the run.
    pub fn apply_record(&mut self, record: &JournalRecord) {
        match &record.event {
            Event::AttemptStarted { attempt, .. } if attempt.role == AttemptRole::Main => {
                let entry = self.entry_mut(attempt.at);
                entry.stage = entry.stage.max(1);
                entry.tries = if std::mem::take(&mut entry.over) { 1 } else { entry.tries + 1 };
                entry.main = Some(MainAttempt { id: *attempt, started: record.at, ended: None, by: None });
            }
            Event::AttemptEnded { attempt, end, cost, by, .. } if attempt.role == AttemptRole::Main => {
                let entry = self.entry_mut(attempt.at);
                if let Some(main) = entry.main.as_mut().filter(|main| main.id == *attempt) {
                    main.ended = Some((record.at, classify_end(end), *cost));
                    main.by.clone_from(by);
                }
            }
            Event::AttemptEnded { attempt, end, .. } if attempt.role == AttemptRole::Check => {
                self.record_check(*attempt, end, record.at);
            }
            Event::StepGoesOn { at, next } => self.record_stage(*at, next.stage, record.at),
            Event::StepEnded { at, error, .. } => {
                let Some(entry) = self.steps.get_mut(at).map(Arc::make_mut) else { return };
                // A step that ended before and had no attempt since then has had none in this visit.
                entry.tries = if std::mem::replace(&mut entry.over, true) { 0 } else { entry.tries };
                if error.as_ref().and_then(|error| error.code.as_deref()) == Some(code::STALLED) {
                    let check = entry.check.clone();
                    entry.raised = Some(StageRaise { at: record.at, from: entry.stage, to: None, check });
                }
            }
            Event::StepReused(reused) => self.record_reuse(reused),
            _ => {}
        }
    }

    /// Records a result that was reused from another run: the attempt has an id of this run, and its cost belongs to
    /// the other.
    fn record_reuse(&mut self, reused: &StepReused) {
        let Some(id) = reused.attempt else { return };
        let ending = match reused.outcome {
            StepOutcome::Failed(class) => MainAttemptEnd::Failed(class),
            StepOutcome::Cancelled => MainAttemptEnd::Cancelled,
            _ => MainAttemptEnd::Succeeded,
        };
        let started = reused.started.unwrap_or(reused.ended);
        let main = MainAttempt { id, started, ended: Some((reused.ended, ending, Cost::default())), by: None };
        let entry = self.entry_mut(reused.at);
        (entry.main, entry.over) = (Some(main), true);
    }

    /// Returns the number of attempts at the work of a step in this visit, or in the one that ended last.
    pub fn attempt_count(&self, at: StepAt) -> u32 {
        self.steps.get(&at).map_or(0, |entry| entry.tries)
    }

    pub fn find_entry(&self, at: StepAt) -> Option<&Arc<LedgerEntry>> {
        self.steps.get(&at)
    }

    fn entry_mut(&mut self, at: StepAt) -> &mut LedgerEntry {
        Arc::make_mut(self.steps.entry(at).or_default())
    }

    /// Returns the last attempt at the work of a step.
    pub fn last_attempt(&self, at: StepAt) -> Option<AttemptId> {
        self.steps.get(&at)?.main.as_ref().map(|main| main.id)
    }

    /// Returns the last check of a step.
    pub fn last_check(&self, at: StepAt) -> Option<&CheckRecord> {
        self.steps.get(&at)?.check.as_ref()
    }

    fn record_check(&mut self, attempt: AttemptId, end: &AttemptEnd, at: Timestamp) {
        let none: &[String] = &[];
        let (finding, reasons, fingerprints, output) = match end {
            AttemptEnd::Checked { finding, reasons, fingerprints, output } => {
                (*finding, reasons.as_slice(), fingerprints.as_slice(), output.clone())
            }
            AttemptEnd::Succeeded { .. } => (CheckFinding::Complete, none, none, None),
            _ => return,
        };
        let notes = |notes: &[String]| notes.iter().take(NOTES).cloned().collect();
        let (reasons, fingerprints) = (notes(reasons), notes(fingerprints));
        let checked = CheckRecord { at, iteration: attempt.iteration, finding, reasons, fingerprints, output };
        let entry = self.entry_mut(attempt.at);
        if checked.fingerprints.iter().any(|note| is_scope_finding(note)) {
            entry.scope = Some(checked.clone());
        }
        entry.check = Some(checked);
    }

    fn record_stage(&mut self, at: StepAt, stage: u32, now: Timestamp) {
        let entry = self.entry_mut(at);
        if entry.stage > 0 && stage > entry.stage {
            let check = entry.check.clone();
            entry.raised = Some(StageRaise { at: now, from: entry.stage, to: Some(stage), check });
        }
        entry.stage = stage;
    }
}

/// Returns true if a fingerprint reports changed files outside of the allowed paths, or too many.
fn is_scope_finding(note: &str) -> bool {
    note.starts_with("scope:") || note.starts_with("diff_budget:")
}

fn classify_end(end: &AttemptEnd) -> MainAttemptEnd {
    match end {
        AttemptEnd::Succeeded { .. } | AttemptEnd::Checked { .. } => MainAttemptEnd::Succeeded,
        AttemptEnd::Failed { class, .. } => MainAttemptEnd::Failed(*class),
        AttemptEnd::Unmerged { .. } => MainAttemptEnd::Failed(ErrorClass::NonRetryable),
        AttemptEnd::TimedOut => MainAttemptEnd::Failed(ErrorClass::Timeout),
        AttemptEnd::Interrupted => MainAttemptEnd::Failed(ErrorClass::Interrupted),
        AttemptEnd::Stopped | AttemptEnd::Blocked { .. } | AttemptEnd::HandedOver { .. } => MainAttemptEnd::Cancelled,
    }
}
