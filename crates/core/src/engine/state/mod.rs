//! The state of a run: the fold of its events, with an index for every query of `decide`, and the work that the host
//! should be doing.
//!
//! Owns the data and the functions that read it. Only `apply` changes it. Nothing is found by searching: steps are
//! small integers, unmet dependencies are counted, startable steps are in a set, deadlines are ordered. The state can
//! be serialised for a cache ([`STATE_VERSION`]); fields with the value of a new run are left out.

mod instance;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    engine::{
        AttemptId, AttemptInput, AttemptMode, BudgetOwner, Cost, ExecutionError, InstanceIx, Publication, RunStart,
        StepAt, StepOutcome, UndoTarget, UndoWalk, Waitpoint, event::is_null, transitions::StepPhase,
    },
    ids::SignalName,
    ir::{RunStatus, StepStatus, rules::RunRulings},
    plan::ContentHash,
    time::{Millis, Timestamp},
};

pub use instance::{CompletedVisit, InstancePhase, InstanceState};
pub use instance::{StepState, VisitState, WaitpointKind, WaitpointState};

/// The version of the serialised state. It is raised with any change to the result of `apply` or to the serialisation:
/// a state of another version may differ from the one that this code computes, and must not be used.
pub const STATE_VERSION: u32 = 5;

listed_enum! {
    /// The phase of a run.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum RunPhase {
        /// Not started.
        #[default]
        New,
        /// Running, stopping or undoing.
        Going,
        /// The outcome is known; publications are pending.
        Decided,
        Closed,
        Quarantined,
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunState {
    pub phase: RunPhase,
    /// The number of events applied so far.
    pub events: u64,
    /// The time of the last event.
    pub now: Timestamp,
    pub start: Option<Box<RunStart>>,
    /// The hash of the definition that it runs.
    pub definition: ContentHash,
    /// The rulings of policies for the start of its steps.
    #[serde(default, skip_serializing_if = "RunRulings::is_empty")]
    pub rulings: RunRulings,
    pub instances: Vec<InstanceState>,
    pub openings: Vec<WaitpointState>,
    /// Signals that no wait has taken yet, oldest first.
    pub signals: VecDeque<(SignalName, Arc<Value>)>,
    /// The number of refused attempts to change the run without permission.
    pub tampers: u32,
    #[serde(with = "map_as_pairs")]
    pub walks: BTreeMap<UndoWalk, UndoWalkState>,
    pub spent: Cost,
    /// The costs from which renewed budgets count.
    #[serde(default, with = "map_as_pairs", skip_serializing_if = "BTreeMap::is_empty")]
    pub renewed: BTreeMap<BudgetOwner, Cost>,
    pub cancel: Option<RunCancellation>,
    pub end: Option<RunConclusion>,
    pub quarantine: Option<String>,
    /// The number of steps in each phase, over all instances.
    pub phases: [u32; StepPhase::ALL.len()],
    pub(super) commands: WantedWork,
    /// Work steps that have a slot and wait for a worker.
    pub(super) ready: BTreeSet<StepAt>,
    /// Composites that have a slot.
    pub(super) entering: BTreeSet<StepAt>,
    /// Walks whose next undo waits for a worker.
    pub(super) undoable: BTreeSet<UndoWalk>,
    /// Steps that are being undone, with the walk that undoes them.
    #[serde(with = "map_as_pairs")]
    pub(super) undoing: BTreeMap<StepAt, UndoWalk>,
    pub(super) deadlines: BTreeSet<(Timestamp, Deadline)>,
    /// The number of completed visits of steps with an undo.
    pub(super) completions: u64,
    /// Attempts that were started and have not ended, including those that are to be stopped.
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
pub struct RunConclusion {
    pub status: RunStatus,
    #[serde(default = "null", skip_serializing_if = "is_null")]
    pub output: Arc<Value>,
    pub error: Option<ExecutionError>,
    pub degraded: bool,
    pub at: Timestamp,
    pub retry: Option<Timestamp>,
}

/// The subject of a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deadline {
    Instance(InstanceIx),
    Step(StepAt),
    Retry(StepAt),
    Opening(Waitpoint),
    Undo(UndoWalk),
}

/// The progress of an undo walk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UndoWalkState {
    pub targets: Vec<UndoTarget>,
    /// The index of the target that is being undone.
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

/// Returns a shared null value.
pub(in crate::engine) fn null() -> Arc<Value> {
    static NULL: std::sync::OnceLock<Arc<Value>> = std::sync::OnceLock::new();
    NULL.get_or_init(|| Arc::new(Value::Null)).clone()
}

impl RunState {
    /// Creates the state of a run that has not been started.
    pub fn new() -> RunState {
        RunState::default()
    }

    pub fn instance(&self, ix: InstanceIx) -> &InstanceState {
        &self.instances[ix.0 as usize]
    }

    pub fn step(&self, at: StepAt) -> &StepState {
        &self.instance(at.0).steps[at.1 as usize]
    }

    /// Returns the step, if the run has it.
    pub fn find_step(&self, at: StepAt) -> Option<&StepState> {
        self.instances.get(at.0.0 as usize)?.steps.get(at.1 as usize)
    }

    pub fn visit_state(&self, at: StepAt) -> Option<&VisitState> {
        self.step(at).more.as_deref()
    }

    /// The time of the next retry, if no other deadline comes before it.
    pub fn pauses_until(&self) -> Option<Timestamp> {
        match self.deadlines.first() {
            Some((at, Deadline::Retry(_) | Deadline::Undo(_))) => Some(*at),
            _ => None,
        }
    }

    pub fn waitpoint(&self, waitpoint: Waitpoint) -> Option<&WaitpointState> {
        self.openings.get(waitpoint.0 as usize)
    }

    /// Returns the waitpoints that are open, in the order in which they were opened.
    pub fn open_waitpoints(&self) -> impl Iterator<Item = (Waitpoint, &WaitpointState)> {
        (0..).map(Waitpoint).zip(&self.openings).filter(|(_, waitpoint)| !waitpoint.closed)
    }

    /// Returns the workflow instance that a scope instance belongs to.
    pub fn home_instance(&self, ix: InstanceIx) -> &InstanceState {
        self.instance(self.instance(ix).home)
    }

    /// True if a step or an undo could start if a worker were available.
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
            StepPhase::Ready if step.more.as_ref().is_some_and(|more| more.started.is_some()) => StepStatus::Running,
            StepPhase::Ready => StepStatus::Ready,
            StepPhase::Running | StepPhase::Summing | StepPhase::Backoff | StepPhase::Inside => StepStatus::Running,
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

    /// True if the run cannot continue without a person, a signal or a release.
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

    /// True if the root instance is being undone. A run that was quarantined before it started has no root.
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

    /// True if the run has been started and no step has run yet: every step waits for others or for a worker.
    fn is_queued(&self) -> bool {
        let idle = self.count_in_phase(StepPhase::Pending) + self.count_in_phase(StepPhase::Ready);
        let unstarted = |step: &StepState| step.more.as_ref().is_none_or(|more| more.started.is_none());
        self.phase == RunPhase::Going
            && self.count_in_phase(StepPhase::Ready) > 0
            && idle == self.phases.iter().sum::<u32>()
            && self.instances.iter().flat_map(|instance| &instance.steps).all(unstarted)
    }
}

/// Returns the work that the host should be doing now.
pub fn wanted(state: &RunState) -> &WantedWork {
    &state.commands
}

/// The wanted work. The host stops attempts in flight that are not listed here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantedWork {
    pub runs: BTreeMap<AttemptId, AttemptAssignment>,
    pub publish: BTreeSet<Publication>,
    pub wake: Option<Timestamp>,
}

/// The task of a worker, in addition to the definition of its step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptAssignment {
    pub given: Arc<AttemptInput>,
    pub mode: AttemptMode,
    pub stage: u32,
    /// The time limit of the attempt, measured with a monotonic clock.
    pub limit: Option<Millis>,
}

impl WantedWork {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.publish.is_empty() && self.wake.is_none()
    }
}

/// Serialises a map as a list of pairs, for keys that are not strings and so cannot be JSON keys.
pub(super) mod map_as_pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(crate) fn deserialize<'de, K, V, D>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Ok(Vec::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wish_is_not_nothing() {
        assert!(WantedWork::default().is_empty());
        let publishes = WantedWork { publish: [Publication::Files].into(), ..WantedWork::default() };
        let wakes = WantedWork { wake: Some(Timestamp(1)), ..WantedWork::default() };
        assert!(!publishes.is_empty() && !wakes.is_empty());
    }

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
