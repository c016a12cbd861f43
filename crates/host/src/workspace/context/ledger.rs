//! What a journal tells of each step that its state does not keep: the last attempt, what checks said, when a stage
//! was raised.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use skein_core::{
    engine::{
        AttemptEnd, AttemptId, AttemptRole, CheckFinding, CheckOutput, Cost, Event, JournalRecord, StepAt,
        StepOutcome, StepReused, code, map_as_pairs,
    },
    ir::ErrorClass,
    time::Timestamp,
};

/// As much as the format shows of what checks said.
const NOTES: usize = 40;

/// Fed with every record of a run in order. Keeps of each step only what was last, which copies share until it changes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ledger {
    #[serde(with = "map_as_pairs")]
    steps: BTreeMap<StepAt, Arc<LedgerEntry>>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LedgerEntry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub main: Option<MainAttempt>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<CheckRecord>,
    /// The last check that found files where none may be changed, or too many of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<CheckRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised: Option<StageRaise>,
    /// From 1; 0 before the first attempt.
    stage: u32,
    /// Attempts at the work in the last visit that had any or ended.
    tries: u32,
    /// Whether that visit has ended.
    over: bool,
}

/// The last attempt at the work itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MainAttempt {
    pub id: AttemptId,
    pub started: Timestamp,
    pub ended: Option<(Timestamp, MainAttemptEnd, Cost)>,
    /// Who did it, where that was not who the step names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum MainAttemptEnd {
    Succeeded,
    Failed(ErrorClass),
    Cancelled,
}

/// What a check said.
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

/// The stage went up after a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StageRaise {
    pub at: Timestamp,
    pub from: u32,
    /// None: to the highest, where the step failed.
    pub to: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<CheckRecord>,
}

impl Ledger {
    pub fn new() -> Ledger {
        Ledger::default()
    }

    /// Takes the next record of the run.
    pub fn apply_record(&mut self, record: &JournalRecord) {
        match &record.event {
            Event::AttemptStarted { attempt, .. } if attempt.role == AttemptRole::Main => {
                let told = self.entry_mut(attempt.at);
                told.stage = told.stage.max(1);
                told.tries = if std::mem::take(&mut told.over) { 1 } else { told.tries + 1 };
                told.main = Some(MainAttempt { id: *attempt, started: record.at, ended: None, by: None });
            }
            Event::AttemptEnded { attempt, end, cost, by, .. } if attempt.role == AttemptRole::Main => {
                let told = self.entry_mut(attempt.at);
                if let Some(main) = told.main.as_mut().filter(|main| main.id == *attempt) {
                    main.ended = Some((record.at, classify_end(end), *cost));
                    main.by.clone_from(by);
                }
            }
            Event::AttemptEnded { attempt, end, .. } if attempt.role == AttemptRole::Check => {
                self.record_check(*attempt, end, record.at);
            }
            Event::StepGoesOn { at, next } => self.record_stage(*at, next.stage, record.at),
            Event::StepEnded { at, error, .. } => {
                let Some(told) = self.steps.get_mut(at).map(Arc::make_mut) else { return };
                // One that ended before and had no attempt since has had none in this visit.
                told.tries = if std::mem::replace(&mut told.over, true) { 0 } else { told.tries };
                if error.as_ref().and_then(|error| error.code.as_deref()) == Some(code::STALLED) {
                    let check = told.check.clone();
                    told.raised = Some(StageRaise { at: record.at, from: told.stage, to: None, check });
                }
            }
            Event::StepReused(reused) => self.record_reuse(reused),
            _ => {}
        }
    }

    /// What another run came to: its attempt is known by the name that it has in this one, and was paid for there.
    fn record_reuse(&mut self, reused: &StepReused) {
        let Some(id) = reused.attempt else { return };
        let ending = match reused.outcome {
            StepOutcome::Failed(class) => MainAttemptEnd::Failed(class),
            StepOutcome::Cancelled => MainAttemptEnd::Cancelled,
            _ => MainAttemptEnd::Succeeded,
        };
        let started = reused.started.unwrap_or(reused.ended);
        let main =
            MainAttempt { id, started, ended: Some((reused.ended, ending, Cost::default())), by: None };
        let told = self.entry_mut(reused.at);
        (told.main, told.over) = (Some(main), true);
    }

    /// How many attempts at its work a step has had in this visit, or had in the one that ended last.
    pub fn attempt_count(&self, at: StepAt) -> u32 {
        self.steps.get(&at).map_or(0, |told| told.tries)
    }

    pub(super) fn find_entry(&self, at: StepAt) -> Option<&Arc<LedgerEntry>> {
        self.steps.get(&at)
    }

    fn entry_mut(&mut self, at: StepAt) -> &mut LedgerEntry {
        Arc::make_mut(self.steps.entry(at).or_default())
    }

    /// The last attempt at the work of a step.
    pub fn last_attempt(&self, at: StepAt) -> Option<AttemptId> {
        self.steps.get(&at)?.main.as_ref().map(|main| main.id)
    }

    /// The last check of a step.
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
        let checked =
            CheckRecord { at, iteration: attempt.iteration, finding, reasons, fingerprints, output };
        let told = self.entry_mut(attempt.at);
        if checked.fingerprints.iter().any(|note| is_scope_finding(note)) {
            told.scope = Some(checked.clone());
        }
        told.check = Some(checked);
    }

    fn record_stage(&mut self, at: StepAt, stage: u32, now: Timestamp) {
        let told = self.entry_mut(at);
        if told.stage > 0 && stage > told.stage {
            let check = told.check.clone();
            told.raised = Some(StageRaise { at: now, from: told.stage, to: Some(stage), check });
        }
        told.stage = stage;
    }
}

/// Whether a fingerprint says that the wrong files were changed, or too many.
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
        AttemptEnd::Stopped | AttemptEnd::Blocked { .. } | AttemptEnd::HandedOver { .. } => {
            MainAttemptEnd::Cancelled
        }
    }
}
