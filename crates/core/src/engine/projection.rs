//! The projection of a run: everything that is known about it, folded from its journal.
//!
//! Owns the plan, the state, the names of steps and the ledger of one run. The ledger has facts about each step that
//! the state does not keep, such as the last attempt, the findings of checks, and the last increase of the stage. The
//! projection is fed each record once and in order: by the [`Driver`](super::Driver) with the records that it decides,
//! by watchers with the rows that they receive. Consumers that show or export a run read it, and do not fold events on
//! their own.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    engine::{
        AttemptEnd, AttemptId, AttemptRole, CheckFinding, CheckOutput, Cost, Event, EventSubject, InstanceIx,
        InstancePart, JournalBatch, JournalError, JournalRecord, RunState, StepAt, StepOutcome, StepReused, Waitpoint,
        apply, code,
    },
    ir::{ErrorClass, StatusWords, Step, StepKindSpec},
    plan::{ContentHash, Plan, PlanDefinition, ScopeIx},
    time::Timestamp,
};

/// A run as its journal describes it so far.
#[derive(Debug, Clone)]
pub struct RunProjection {
    pub(super) plan: Plan,
    pub(super) state: RunState,
    names: StepPaths,
    ledger: RunLedger,
    pub(super) chain: ContentHash,
}

impl RunProjection {
    /// Creates the projection of a run that has not been started.
    pub fn new(plan: Plan) -> RunProjection {
        let names = StepPaths::new(plan.definition.clone());
        let (state, ledger, chain) = (RunState::new(), RunLedger::default(), ContentHash::ZERO);
        RunProjection { plan, state, names, ledger, chain }
    }

    /// Creates a projection from cached parts. The caller vouches that `chain` is the hash of the row that produced
    /// them. Returns `None` if they belong to another plan.
    pub fn from_parts(plan: &Plan, state: RunState, ledger: RunLedger, chain: ContentHash) -> Option<RunProjection> {
        let root = state.instances.first().filter(|_| state.definition == plan.definition.hash())?;
        let ruled = plan.definition.with_rulings(state.rulings.clone());
        let plan = ruled.plan_with_parameters(root.input.clone());
        let names = StepPaths::from_state(&plan.definition, &state);
        Some(RunProjection { plan, state, names, ledger, chain })
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub fn state(&self) -> &RunState {
        &self.state
    }

    pub fn names(&self) -> &StepPaths {
        &self.names
    }

    pub fn ledger(&self) -> &RunLedger {
        &self.ledger
    }

    /// The hash of all rows so far.
    pub fn chain(&self) -> ContentHash {
        self.chain
    }

    /// Returns the plan and the state, for callers that only read them.
    pub fn into_parts(self) -> (Plan, RunState) {
        (self.plan, self.state)
    }

    /// Applies the next row of the journal.
    pub fn apply_row(&mut self, row: &JournalBatch) -> Result<(), JournalError> {
        self.begin_row(row)?;
        row.records.iter().for_each(|record| self.apply_record(record));
        Ok(())
    }

    /// Applies the next row, whose hash chain the store has already checked.
    pub fn apply_checked_row(&mut self, row: &JournalBatch) -> Result<(), JournalError> {
        row.check_place(self.state.events)?;
        self.begin_checked_row(row)?;
        row.records.iter().for_each(|record| self.apply_record(record));
        Ok(())
    }

    /// Checks that a row is the next one of this run. The caller then applies its records, for example to show the
    /// state after each of them.
    pub fn begin_row(&mut self, row: &JournalBatch) -> Result<(), JournalError> {
        row.check(self.state.events, self.chain)?;
        self.begin_checked_row(row)
    }

    fn begin_checked_row(&mut self, row: &JournalBatch) -> Result<(), JournalError> {
        row.check_definition(self.plan.definition.hash())?;
        if let (0, Some(Event::RunStarted { parameters, rulings, .. })) =
            (row.seq, row.records.first().map(|record| &record.event))
        {
            let ruled = self.plan.definition.with_rulings(rulings.clone());
            self.plan = ruled.plan_with_parameters(parameters.clone());
        }
        self.chain = row.chain;
        Ok(())
    }

    /// Applies the next record.
    pub fn apply_record(&mut self, record: &JournalRecord) {
        apply(&self.plan, &mut self.state, record.at, &record.event);
        self.note_record(record);
    }

    /// Adds a record to the names and the ledger. Its event is part of the state already.
    pub(super) fn note_record(&mut self, record: &JournalRecord) {
        self.names.note_event(&record.event);
        self.ledger.apply_record(record);
    }
}

/// The paths of a run's instances and steps, for display.
///
/// Their forms are `each[3]/child`, `parallel/lane/child`, `loop#2/child` and `call/child`. A path does not distinguish
/// the visits of a step or the tries of a composite; [`StepAt`] does.
#[derive(Debug, Clone)]
pub struct StepPaths {
    definition: Arc<PlanDefinition>,
    /// The scope of each instance in the order in which they started, and its path with a slash at the end; empty for
    /// the root.
    instances: Vec<(ScopeIx, String)>,
    /// The step of each waitpoint.
    waitpoints: Vec<StepAt>,
}

impl StepPaths {
    /// Creates the paths of a run that has only its root.
    pub fn new(definition: Arc<PlanDefinition>) -> StepPaths {
        let root = definition.root().root;
        StepPaths { definition, instances: vec![(root, String::new())], waitpoints: Vec::new() }
    }

    /// Creates the paths of all instances of a run.
    pub fn from_state(definition: &Arc<PlanDefinition>, state: &RunState) -> StepPaths {
        let mut names = StepPaths::new(definition.clone());
        for instance in &state.instances {
            if let (Some(parent), Some(part)) = (instance.parent, instance.part) {
                names.add_instance(parent, part);
            }
        }
        names.waitpoints = state.openings.iter().map(|waitpoint| waitpoint.at).collect();
        names
    }

    /// The status words of the format that an instance's workflow is written in.
    pub fn words(&self, instance: InstanceIx) -> &StatusWords {
        &self.definition.workflow_containing(self.scope(instance)).workflow.words
    }

    /// Adds the instance or the waitpoint that an event creates.
    pub fn note_event(&mut self, event: &Event) {
        match event {
            Event::InstanceStarted { parent, part, .. } => self.add_instance(*parent, *part),
            Event::InstanceReused(reused) => self.add_instance(reused.parent, reused.part),
            Event::StepHeld { at, .. } | Event::Opened { at, .. } => self.waitpoints.push(*at),
            _ => {}
        }
    }

    /// Adds the path of the next instance.
    fn add_instance(&mut self, parent: StepAt, part: InstancePart) {
        let which = if let InstancePart::Lane(lane) = part { lane } else { 0 };
        let (scope, around) = &self.instances[parent.0.0 as usize];
        let entry = self.definition.scope(*scope);
        let holder = entry.step(parent.1);
        let path = match (part, &holder.kind) {
            (InstancePart::Item(i), _) => format!("{around}{}[{i}]/", holder.id),
            (InstancePart::Pass(n), _) => format!("{around}{}#{n}/", holder.id),
            (InstancePart::Lane(lane), StepKindSpec::Parallel(parallel)) => {
                let lane = parallel.lanes.get(lane as usize).map_or("", |lane| lane.id.as_str());
                format!("{around}{}/{lane}/", holder.id)
            }
            (InstancePart::Lane(_) | InstancePart::Call, _) => format!("{around}{}/", holder.id),
        };
        let scope = entry.inner_scope(parent.1, which);
        self.instances.push((scope, path));
    }

    pub fn definition(&self) -> &PlanDefinition {
        &self.definition
    }

    pub fn scope(&self, instance: InstanceIx) -> ScopeIx {
        self.instances[instance.0 as usize].0
    }

    /// The definition of a step.
    pub fn step(&self, at: StepAt) -> &Step {
        self.definition.scope(self.scope(at.0)).step(at.1)
    }

    /// The step's id, which is unique within its scope.
    pub fn step_id(&self, at: StepAt) -> &str {
        self.step(at).id.as_str()
    }

    /// The path of a step.
    pub fn step_path(&self, at: StepAt) -> String {
        format!("{}{}", self.instances[at.0.0 as usize].1, self.step_id(at))
    }

    /// The path of an instance; empty for the root.
    pub fn instance_path(&self, instance: InstanceIx) -> &str {
        trim_slash(&self.instances[instance.0 as usize].1)
    }

    /// The path of the subject of the last event that was noted; empty for the run. Returns `None` if the run has no
    /// such waitpoint.
    pub fn subject_path(&self, subject: EventSubject) -> Option<String> {
        Some(match subject {
            EventSubject::Run => String::new(),
            EventSubject::NewInstance { .. } => {
                self.instances.last().map_or(String::new(), |(_, path)| trim_slash(path).to_owned())
            }
            EventSubject::Instance(instance) => self.instance_path(instance).to_owned(),
            EventSubject::Step(at) => self.step_path(at),
            EventSubject::Attempt(attempt) => self.step_path(attempt.at),
            EventSubject::Waitpoint(Waitpoint(number)) => self.step_path(*self.waitpoints.get(number as usize)?),
        })
    }
}

fn trim_slash(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

/// The maximum number of reasons and of fingerprints that are kept, as the format requires.
const NOTES: usize = 40;

/// A ledger is fed with every record of a run in order. It keeps only the latest facts of each step. Clones share the
/// entries until they change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunLedger {
    #[serde(with = "super::state::map_as_pairs")]
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
