//! Coverage: the transitions that occurred, and the points that must occur sometimes.
//!
//! Owns the counts and the list of points that a meaningful simulation has to reach. A simulation that never exercised
//! a rule proves nothing about it, so missing points fail it.

use std::collections::{BTreeMap, BTreeSet};

use skein_core::{
    engine::{
        Event, Refusal, RunInput, RunPhase,
        transitions::{InputKind, StepPhase, TransitionInput, TransitionRule, run_transition, step_transition},
    },
    ir::{HoldReason, RunStatus, StepKindName, StepStatus},
};

use crate::faults::InjectedFault;

#[derive(Debug, Clone, Default)]
pub struct Coverage {
    pub steps: BTreeMap<(StepPhase, TransitionInput), u64>,
    pub runs: BTreeMap<(RunPhase, InputKind), u64>,
    pub sometimes: BTreeMap<String, u64>,
    pub faults: BTreeMap<InjectedFault, u64>,
}

/// Defines a function that names a variant as its JSON does, and the list of all names.
macro_rules! variant_names {
    ($(#[doc = $doc:literal])* $function:ident, $names:ident: $type:ty { $($variant:pat => $name:literal,)* }) => {
        $(#[doc = $doc])*
        pub fn $function(of: &$type) -> &'static str {
            match of { $($variant => $name,)* }
        }

        const $names: &[&str] = &[$($name,)*];
    };
}

variant_names! {
    /// The name of an event.
    event_name, EVENTS: Event {
        Event::RunStarted { .. } => "run_started",
        Event::InstanceStarted { .. } => "instance_started",
        Event::InstanceHalted { .. } => "instance_halted",
        Event::InstanceEnded { .. } => "instance_ended",
        Event::StepReady { .. } => "step_ready",
        Event::StepExpanded { .. } => "step_expanded",
        Event::StepOverdue { .. } => "step_overdue",
        Event::StepEntered { .. } => "step_entered",
        Event::AttemptStarted { .. } => "attempt_started",
        Event::StopAsked { .. } => "stop_asked",
        Event::AttemptEnded { .. } => "attempt_ended",
        Event::StepGoesOn { .. } => "step_goes_on",
        Event::RetryScheduled { .. } => "retry_scheduled",
        Event::StepHeld { .. } => "step_held",
        Event::Opened { .. } => "opened",
        Event::Escalated { .. } => "escalated",
        Event::Approved { .. } => "approved",
        Event::Decided { .. } => "decided",
        Event::SignalKept { .. } => "signal_kept",
        Event::SignalTaken { .. } => "signal_taken",
        Event::StepEnded { .. } => "step_ended",
        Event::InstanceReused(_) => "instance_reused",
        Event::StepReused(_) => "step_reused",
        Event::CancelAsked { .. } => "cancel_asked",
        Event::Tampered { .. } => "tampered",
        Event::UndoBegan { .. } => "undo_began",
        Event::StepUndone { .. } => "step_undone",
        Event::UndoFailed { .. } => "undo_failed",
        Event::UndoEnded { .. } => "undo_ended",
        Event::RunDecided { .. } => "run_decided",
        Event::PublicationEnded { .. } => "publication_ended",
        Event::Closed => "closed",
        Event::Quarantined { .. } => "quarantined",
    }
}

variant_names! {
    /// The name of a refusal.
    refusal_name, REFUSALS: Refusal {
        Refusal::NotStarted => "not_started",
        Refusal::AlreadyStarted => "already_started",
        Refusal::Ended => "ended",
        Refusal::Quarantined { .. } => "quarantined",
        Refusal::UnknownAttempt => "unknown_attempt",
        Refusal::LateResult => "late_result",
        Refusal::WrongReport => "wrong_report",
        Refusal::UnknownOpening => "unknown_opening",
        Refusal::ApprovedAlready { .. } => "approved_already",
        Refusal::AlreadyDecided { .. } => "already_decided",
        Refusal::NotOpen => "not_open",
        Refusal::NotADecision => "not_a_decision",
        Refusal::NotAllowed { .. } => "not_allowed",
        Refusal::UnknownSignal => "unknown_signal",
        Refusal::TooManySignals => "too_many_signals",
        Refusal::NotWaiting => "not_waiting",
        Refusal::OutputInvalid { .. } => "output_invalid",
        Refusal::UnknownStep => "unknown_step",
        Refusal::NotReady => "not_ready",
        Refusal::NotPublishing => "not_publishing",
        Refusal::NothingToUndo => "nothing_to_undo",
    }
}

/// The refusal that no generated workflow causes: its waits and gates accept every output.
const NEVER_REFUSED: &str = "output_invalid";

impl Coverage {
    pub fn record_point(&mut self, point: impl Into<String>) {
        *self.sometimes.entry(point.into()).or_default() += 1;
    }

    pub fn record_event(&mut self, event: &Event) {
        // There are few names and they are counted often: no string is allocated for a known name.
        match self.sometimes.get_mut(event_name(event)) {
            Some(count) => *count += 1,
            None => self.record_point(event_name(event)),
        }
    }

    pub fn record_run_input(&mut self, phase: RunPhase, input: &RunInput) {
        *self.runs.entry((phase, InputKind::from_input(input))).or_default() += 1;
    }

    pub fn record_step_input(&mut self, phase: StepPhase, input: TransitionInput) {
        *self.steps.entry((phase, input)).or_default() += 1;
    }

    pub fn merge(&mut self, other: &Coverage) {
        fn add_counts<K: Ord + Clone>(into: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
            from.iter().for_each(|(key, n)| *into.entry(key.clone()).or_default() += n);
        }
        add_counts(&mut self.steps, &other.steps);
        add_counts(&mut self.runs, &other.runs);
        add_counts(&mut self.sometimes, &other.sometimes);
        add_counts(&mut self.faults, &other.faults);
    }

    /// The pairs of phase and input that are possible and never occurred.
    pub fn missing_pairs(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for phase in StepPhase::ALL {
            for input in TransitionInput::ALL {
                if step_transition(phase, input) != TransitionRule::Unsayable
                    && !self.steps.contains_key(&(phase, input))
                {
                    missing.push(format!("step {phase:?} with {input:?}"));
                }
            }
        }
        for phase in RunPhase::ALL {
            for kind in InputKind::ALL {
                if run_transition(phase, kind) != TransitionRule::Unsayable && !self.runs.contains_key(&(phase, kind)) {
                    missing.push(format!("run {phase:?} with {kind:?}"));
                }
            }
        }
        missing
    }

    /// The number of pairs that occurred, and of all possible pairs.
    pub fn count_pairs(&self) -> (usize, usize) {
        let steps = StepPhase::ALL
            .iter()
            .flat_map(|phase| TransitionInput::ALL.iter().map(|input| step_transition(*phase, *input)));
        let runs =
            RunPhase::ALL.iter().flat_map(|phase| InputKind::ALL.iter().map(|kind| run_transition(*phase, *kind)));
        let all = steps.chain(runs).filter(|arrow| *arrow != TransitionRule::Unsayable).count();
        (all - self.missing_pairs().len(), all)
    }

    /// Points that must occur and did not.
    pub fn missing_points(&self) -> Vec<String> {
        let mut expected: BTreeSet<String> = EVENTS.iter().map(ToString::to_string).collect();
        let refusals = REFUSALS.iter().filter(|name| **name != NEVER_REFUSED);
        expected.extend(refusals.map(|name| format!("refused {name}")));
        expected.extend(StepKindName::ALL.iter().map(|kind| format!("kind {kind:?}")));
        expected.extend(HoldReason::ALL.iter().map(|reason| format!("hold {reason:?}")));
        let ends = RunStatus::ALL.iter().filter(|status| {
            !matches!(status, RunStatus::Queued | RunStatus::Running | RunStatus::Waiting | RunStatus::Undoing)
        });
        expected.extend(ends.map(|status| format!("run {status}")));
        let over = [
            StepStatus::Succeeded,
            StepStatus::Failed,
            StepStatus::Incomplete,
            StepStatus::Skipped,
            StepStatus::Cancelled,
            StepStatus::TimedOut,
            StepStatus::Undone,
        ];
        expected.extend(over.iter().map(|status| format!("step {status}")));
        expected.extend(
            [
                "three deep",
                "reference agreed",
                "trace accepted",
                "waits forever",
                "fork agreed",
                "fork of a fork",
                "fork refused",
                "a conflict",
                "a conflict is resolved",
                "a conflict is not resolved",
                "there is no conflict",
            ]
            .map(str::to_owned),
        );
        let mut missing: Vec<String> =
            expected.into_iter().filter(|point| !self.sometimes.contains_key(point)).collect();
        missing.extend(
            InjectedFault::ALL
                .iter()
                .filter(|fault| !self.faults.contains_key(fault))
                .map(|fault| format!("fault {fault:?}")),
        );
        missing
    }
}
