//! The state of a run: what its events add up to, with an index for every question that `decide` asks.
//!
//! Owns the data and how it is read. `apply` alone changes it. Nothing here is searched: steps are small integers,
//! what is unmet is counted, what could start is in a set, deadlines are in order. It can be written and read back, for
//! a cache ([`STATE_VERSION`]); what is as it is in a new run is left out.

mod instance;
mod step;
mod waitpoint;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    engine::{
        AttemptId, AttemptInput, AttemptMode, BudgetOwner, Cost, ExecutionError, InstanceIx, RunStart,
        StepAt, StepOutcome, UndoTarget, UndoWalk, Waitpoint, WantedWork, event::is_null, map_as_pairs,
        transitions::StepPhase,
    },
    ids::SignalName,
    ir::{RunStatus, StepStatus},
    plan::ContentHash,
    time::Timestamp,
};

pub use instance::{CompletedVisit, InstancePhase, InstanceState};
pub use step::{StepState, VisitState};
pub use waitpoint::{WaitpointKind, WaitpointState};

/// The version of a state that is written. Raised with any change to what `apply` makes of events, or to how that is
/// written: a state of another version is not the state that this code would come to, and is of no use.
pub const STATE_VERSION: u32 = 4;

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    /// Not started.
    New,
    /// Going forward, stopping or undoing.
    Going,
    /// How it ended is known; something is still to be published.
    Decided,
    Closed,
    Quarantined,
}

impl RunPhase {
    pub const ALL: [RunPhase; 5] =
        [RunPhase::New, RunPhase::Going, RunPhase::Decided, RunPhase::Closed, RunPhase::Quarantined];
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunState {
    pub phase: RunPhase,
    /// How many events it is made of.
    pub events: u64,
    /// The time of the last event.
    pub now: Timestamp,
    pub start: Option<Box<RunStart>>,
    /// The hash of what it runs.
    pub definition: ContentHash,
    pub instances: Vec<InstanceState>,
    pub openings: Vec<WaitpointState>,
    /// Signals that no wait has taken yet, oldest first.
    pub signals: VecDeque<(SignalName, Arc<Value>)>,
    /// How often someone tried to say what they may not.
    pub tampers: u32,
    #[serde(with = "map_as_pairs")]
    pub walks: BTreeMap<UndoWalk, UndoWalkState>,
    pub spent: Cost,
    /// The costs from which renewed budgets count.
    #[serde(default, with = "map_as_pairs", skip_serializing_if = "BTreeMap::is_empty")]
    pub renewed: BTreeMap<BudgetOwner, Cost>,
    pub cancel: Option<RunCancellation>,
    pub end: Option<RunEnd>,
    pub quarantine: Option<String>,
    /// How many steps are in each phase, over all instances.
    pub phases: [u32; StepPhase::ALL.len()],
    pub(super) commands: WantedWork,
    /// Work that has its slot and waits for a worker.
    pub(super) ready: BTreeSet<StepAt>,
    /// Composites that have their slot.
    pub(super) entering: BTreeSet<StepAt>,
    /// Walks whose next undo waits for a worker.
    pub(super) undoable: BTreeSet<UndoWalk>,
    /// Steps that are being undone, and in which walk.
    #[serde(with = "map_as_pairs")]
    pub(super) undoing: BTreeMap<StepAt, UndoWalk>,
    pub(super) deadlines: BTreeSet<(Timestamp, Deadline)>,
    /// How many steps with an undo have been completed.
    pub(super) completions: u64,
    /// Attempts that were started and have not ended, wanted or not.
    pub(super) in_flight: BTreeSet<AttemptId>,
    /// Open waits by the signals they name.
    pub(super) waits: BTreeMap<SignalName, BTreeSet<Waitpoint>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunCancellation {
    pub by: String,
    pub reason: Option<String>,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunEnd {
    pub status: RunStatus,
    #[serde(default = "null", skip_serializing_if = "is_null")]
    pub output: Arc<Value>,
    pub error: Option<ExecutionError>,
    pub degraded: bool,
    pub at: Timestamp,
    pub retry: Option<Timestamp>,
}

/// What becomes due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deadline {
    Instance(InstanceIx),
    Step(StepAt),
    Retry(StepAt),
    Opening(Waitpoint),
    Undo(UndoWalk),
}

/// How far an undo has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UndoWalkState {
    pub targets: Vec<UndoTarget>,
    /// The target that is being undone.
    pub at: usize,
    pub live: Option<AttemptId>,
    pub mode: AttemptMode,
    pub given: Option<Arc<AttemptInput>>,
    pub attempts: u32,
    pub tries: u32,
    pub interruptions: u32,
    pub due: Option<Timestamp>,
    pub undone: u32,
    pub failed: u32,
    pub uncertain: Vec<StepAt>,
    pub ended: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The one null that is shared.
pub(in crate::engine) fn null() -> Arc<Value> {
    static NULL: std::sync::OnceLock<Arc<Value>> = std::sync::OnceLock::new();
    NULL.get_or_init(|| Arc::new(Value::Null)).clone()
}

impl RunState {
    /// A run that has not been started.
    pub fn new() -> RunState {
        RunState {
            phase: RunPhase::New,
            events: 0,
            now: Timestamp::default(),
            start: None,
            definition: ContentHash::ZERO,
            instances: Vec::new(),
            openings: Vec::new(),
            signals: VecDeque::new(),
            tampers: 0,
            walks: BTreeMap::new(),
            spent: Cost::default(),
            renewed: BTreeMap::new(),
            cancel: None,
            end: None,
            quarantine: None,
            phases: [0; StepPhase::ALL.len()],
            commands: WantedWork::default(),
            ready: BTreeSet::new(),
            entering: BTreeSet::new(),
            undoable: BTreeSet::new(),
            undoing: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            completions: 0,
            in_flight: BTreeSet::new(),
            waits: BTreeMap::new(),
        }
    }

    pub fn instance(&self, ix: InstanceIx) -> &InstanceState {
        &self.instances[ix.0 as usize]
    }

    pub fn step(&self, at: StepAt) -> &StepState {
        &self.instance(at.0).steps[at.1 as usize]
    }

    /// The step, if the run has it.
    pub fn find_step(&self, at: StepAt) -> Option<&StepState> {
        self.instances.get(at.0.0 as usize)?.steps.get(at.1 as usize)
    }

    pub fn visit_state(&self, at: StepAt) -> Option<&VisitState> {
        self.step(at).more.as_deref()
    }

    /// When something is tried again, if nothing else comes before that.
    pub fn pauses_until(&self) -> Option<Timestamp> {
        match self.deadlines.first() {
            Some((at, Deadline::Retry(_) | Deadline::Undo(_))) => Some(*at),
            _ => None,
        }
    }

    pub fn waitpoint(&self, opening: Waitpoint) -> Option<&WaitpointState> {
        self.openings.get(opening.0 as usize)
    }

    /// The workflow instance that a scope instance belongs to.
    pub fn home_instance(&self, ix: InstanceIx) -> &InstanceState {
        self.instance(self.instance(ix).home)
    }

    /// Whether something could start if a worker were to be had.
    pub fn wants_workers(&self) -> bool {
        !self.ready.is_empty() || !self.undoable.is_empty()
    }

    /// Attempts that were started and have not ended.
    pub fn in_flight(&self) -> &BTreeSet<AttemptId> {
        &self.in_flight
    }

    /// The canonical status of a step.
    pub fn step_status(&self, at: StepAt) -> StepStatus {
        let step = self.step(at);
        match step.phase {
            StepPhase::Pending if self.instance(at.0).is_going() && self.end.is_none() => StepStatus::Pending,
            StepPhase::Pending => StepStatus::Skipped,
            StepPhase::Ready if step.more.as_ref().is_some_and(|more| more.started.is_some()) => {
                StepStatus::Running
            }
            StepPhase::Ready => StepStatus::Ready,
            StepPhase::Running | StepPhase::Summing | StepPhase::Backoff | StepPhase::Inside => {
                StepStatus::Running
            }
            StepPhase::Stopping | StepPhase::Unwinding => StepStatus::Running,
            StepPhase::Checking => StepStatus::Checking,
            StepPhase::Held | StepPhase::Gated | StepPhase::Waiting => StepStatus::Waiting,
            StepPhase::Undone if step.outcome == Some(StepOutcome::Succeeded) => StepStatus::Undone,
            StepPhase::Done | StepPhase::Undoing | StepPhase::Undone | StepPhase::Stuck => step.end_status(),
        }
    }

    pub fn count_in_phase(&self, phase: StepPhase) -> u32 {
        self.phases[phase as usize]
    }

    /// Whether nothing can go on until a person, a signal or a release.
    pub fn is_waiting(&self) -> bool {
        let open = [StepPhase::Gated, StepPhase::Waiting, StepPhase::Held];
        let moving = [
            StepPhase::Running,
            StepPhase::Checking,
            StepPhase::Summing,
            StepPhase::Backoff,
            StepPhase::Stopping,
            StepPhase::Unwinding,
            StepPhase::Undoing,
        ];
        self.phase == RunPhase::Going
            && open.iter().any(|phase| self.count_in_phase(*phase) > 0)
            && moving.iter().all(|phase| self.count_in_phase(*phase) == 0)
            && !self.wants_workers()
    }

    /// A run that was set aside before it began has no root.
    fn is_root_undoing(&self) -> bool {
        self.instances.first().is_some_and(|root| matches!(root.phase, InstancePhase::Undoing { .. }))
    }

    /// The canonical status of the run.
    pub fn status(&self) -> RunStatus {
        match (&self.end, self.phase) {
            (Some(end), _) => end.status,
            (None, RunPhase::New) => RunStatus::Queued,
            _ if self.is_root_undoing() => RunStatus::Undoing,
            _ if self.is_waiting() => RunStatus::Waiting,
            _ if self.is_queued() => RunStatus::Queued,
            _ => RunStatus::Running,
        }
    }

    /// Returns true if the run has been started and nothing of it has been at work: every step waits for others or for a worker.
    fn is_queued(&self) -> bool {
        let idle = self.count_in_phase(StepPhase::Pending) + self.count_in_phase(StepPhase::Ready);
        let unstarted = |step: &StepState| step.more.as_ref().is_none_or(|more| more.started.is_none());
        self.phase == RunPhase::Going
            && self.count_in_phase(StepPhase::Ready) > 0
            && idle == self.phases.iter().sum::<u32>()
            && self.instances.iter().flat_map(|instance| &instance.steps).all(unstarted)
    }
}

impl Default for RunState {
    fn default() -> RunState {
        RunState::new()
    }
}

/// What the world should be doing now.
pub fn wanted(state: &RunState) -> &WantedWork {
    &state.commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_has_not_been_started_is_queued() {
        assert_eq!(RunState::new().status(), RunStatus::Queued);
    }

    #[test]
    fn a_run_that_was_set_aside_before_it_began_has_a_status() {
        let state = RunState { phase: RunPhase::Quarantined, ..RunState::new() };
        assert_eq!(state.status(), RunStatus::Running);
    }
}
