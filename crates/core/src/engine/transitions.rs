//! The transition table: the phases of a step, and the effect of each input in each phase.
//!
//! Every pair of phase and input has a rule. The simulator sends every input in every phase, checks the engine against
//! this table, and fails if a pair never occurred.

use serde::{Deserialize, Serialize};

use super::{RunInput, RunPhase};

listed_enum! {
    /// The phase of a step.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum StepPhase {
        /// Not reached.
        Pending,
        /// Waits for a slot or a worker.
        Ready,
        /// Held until a person or a time releases it.
        Held,
        /// The main attempt is running.
        Running,
        /// The check is running.
        Checking,
        /// The summary is running.
        Summing,
        /// Waits until a retry is due.
        Backoff,
        /// An open gate.
        Gated,
        /// An open wait.
        Waiting,
        /// A composite with instances inside.
        Inside,
        /// Told to stop, but not yet reported as stopped.
        Stopping,
        /// A composite whose failed instances are undone before a retry.
        Unwinding,
        /// Ended.
        Done,
        /// Being undone.
        Undoing,
        Undone,
        /// Could not be undone.
        Stuck,
    }
}

impl StepPhase {
    /// True if the step has arrived and has not ended.
    pub fn is_live(self) -> bool {
        !matches!(
            self,
            StepPhase::Pending | StepPhase::Done | StepPhase::Undoing | StepPhase::Undone | StepPhase::Stuck
        )
    }
}

/// Returns true if a step can go directly from one phase to another. One input may take a step through several phases;
/// [`step_transition`] says where it ends up.
pub fn can_follow(from: StepPhase, to: StepPhase) -> bool {
    use StepPhase as P;
    match from {
        P::Pending => matches!(to, P::Ready | P::Held | P::Gated | P::Waiting | P::Inside | P::Done),
        P::Ready => {
            matches!(to, P::Pending | P::Held | P::Running | P::Checking | P::Summing | P::Inside | P::Done)
        }
        P::Held | P::Backoff => matches!(to, P::Ready | P::Done),
        P::Running | P::Checking => {
            matches!(to, P::Ready | P::Held | P::Backoff | P::Stopping | P::Done)
        }
        P::Summing => matches!(to, P::Ready | P::Held | P::Stopping | P::Done),
        P::Gated | P::Waiting | P::Stopping => to == P::Done,
        P::Inside => matches!(to, P::Backoff | P::Unwinding | P::Done),
        P::Unwinding => matches!(to, P::Backoff | P::Done),
        // A later visit begins, or the step is undone.
        P::Done => {
            matches!(to, P::Ready | P::Held | P::Gated | P::Waiting | P::Inside | P::Done | P::Undoing)
        }
        P::Undoing => matches!(to, P::Undone | P::Stuck | P::Done),
        // An undo walk that is retried may undo it again.
        P::Undone | P::Stuck => to == P::Undoing,
    }
}

listed_enum! {
    /// Inputs as seen by a step.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum TransitionInput {
        /// The attempt in flight succeeded, or a check reported its finding.
        Succeeded,
        Failed,
        TimedOut,
        Stopped,
        Interrupted,
        Blocked,
        /// Another agent takes over the attempt.
        HandedOver,
        /// An attempt of this step ended that is not in flight.
        Late,
        /// Its waitpoint was answered; if none is open, one that it had.
        Approved,
        Rejected,
        /// A signal addressed to this step.
        Signalled,
        /// The host holds it.
        Held,
        /// Time passed; a deadline of this step may be due.
        Woken,
        /// The run is cancelled.
        Cancelled,
        /// Workers are available.
        Granted,
        /// The host restarted after a crash.
        Recovered,
    }
}

/// The effect of an input on a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransitionRule {
    /// The step goes to one of these phases, or stays in its own if it is listed.
    To(&'static [StepPhase]),
    /// The input is refused.
    Refused,
    /// The input cannot occur in this phase: it names an attempt or a waitpoint, and the step has none.
    Unsayable,
}

/// The table. A row reads: in this phase, after this input, the next phase is one of these.
///
/// An input that is not addressed to one step reaches all of them: it can end some, and others arrive or are stopped as
/// a consequence.
pub fn step_transition(phase: StepPhase, input: TransitionInput) -> TransitionRule {
    use StepPhase::{
        Backoff, Checking, Done, Gated, Held, Inside, Pending, Ready, Running, Stopping, Stuck, Summing, Undoing,
        Undone, Unwinding, Waiting,
    };
    use TransitionInput as I;
    use TransitionRule::{Refused, To, Unsayable};
    match (phase, input) {
        // The attempt in flight ended.
        (Running, I::Succeeded) => To(&[Done, Ready, Backoff, Held]),
        (Checking, I::Succeeded) => To(&[Done, Ready, Held]),
        (Running | Checking, I::Failed | I::TimedOut | I::Stopped) => To(&[Backoff, Held, Done]),
        (Running | Checking, I::Blocked) => To(&[Held]),
        (Running | Checking, I::HandedOver) => To(&[Ready]),
        (Running, I::Interrupted) => To(&[Ready, Held, Backoff, Done]),
        (Checking | Summing, I::Interrupted) => To(&[Ready, Held]),
        (Summing, I::Succeeded | I::Failed | I::TimedOut | I::Stopped | I::Blocked | I::HandedOver) => To(&[Done]),
        (
            Stopping,
            I::Succeeded | I::Failed | I::TimedOut | I::Stopped | I::Interrupted | I::Blocked | I::HandedOver,
        ) => To(&[Done]),
        // The walk may continue with another visit of the same step.
        (Undoing, I::Succeeded) => To(&[Undone, Undoing, Stuck, Done]),
        (Undoing, I::Failed | I::TimedOut | I::Stopped | I::Interrupted | I::Blocked | I::HandedOver) => {
            To(&[Undoing, Stuck, Done])
        }
        (
            Pending | Ready | Held | Backoff | Gated | Waiting | Inside | Unwinding | Done | Undone | Stuck,
            I::Succeeded | I::Failed | I::TimedOut | I::Stopped | I::Interrupted | I::Blocked | I::HandedOver,
        ) => Unsayable,

        // The result of an attempt that has ended is refused.
        (_, I::Late) => Refused,

        // A decision is accepted only at an open waitpoint. One of several approvals leaves it open.
        (Held, I::Approved) => To(&[Ready, Held]),
        (Held, I::Rejected) => To(&[Done]),
        (Gated, I::Approved) => To(&[Done, Gated]),
        (Gated, I::Rejected) => To(&[Done]),
        (_, I::Approved | I::Rejected) => Refused,
        (Waiting, I::Signalled) => To(&[Done]),
        (_, I::Signalled) => Refused,

        // The host can hold only a step that has not started.
        (Ready, I::Held) => To(&[Held]),
        (_, I::Held) => Refused,

        // A cancelled run stops running steps and ends waiting ones.
        (Pending, I::Cancelled) => To(&[Pending]),
        (Ready, I::Cancelled) => To(&[Pending, Done]),
        (Held | Backoff | Gated | Waiting, I::Cancelled) => To(&[Done]),
        (Running | Checking | Summing | Stopping, I::Cancelled) => To(&[Stopping]),
        (Inside, I::Cancelled) => To(&[Inside, Done]),
        (Unwinding, I::Cancelled) => To(&[Unwinding, Done]),
        (Done, I::Cancelled) => To(&[Done, Undoing]),
        (Undoing, I::Cancelled) => To(&[Undoing, Stuck, Done]),
        (Undone, I::Cancelled) => To(&[Undone, Undoing]),
        (Stuck, I::Cancelled) => To(&[Stuck]),

        // After a crash no attempt is in flight.
        (Running, I::Recovered) => To(&[Ready, Held, Backoff, Done, Stopping]),
        (Checking | Summing, I::Recovered) => To(&[Ready, Held, Stopping]),
        (Stopping, I::Recovered) => To(&[Done]),

        // Transitions caused by time and available workers, and their consequences.
        (Pending, I::Woken | I::Granted | I::Recovered) => To(&[Pending, Ready, Held, Gated, Waiting, Done]),
        (Ready, I::Woken | I::Granted | I::Recovered) => {
            To(&[Ready, Running, Checking, Summing, Inside, Held, Pending, Done])
        }
        (Held, I::Woken) => To(&[Held, Ready, Done]),
        (Backoff, I::Woken) => To(&[Backoff, Ready, Done]),
        (Held, I::Granted | I::Recovered) => To(&[Held, Done]),
        (Backoff, I::Granted | I::Recovered) => To(&[Backoff, Done]),
        (Gated, I::Woken | I::Granted | I::Recovered) => To(&[Gated, Done]),
        (Waiting, I::Woken | I::Granted | I::Recovered) => To(&[Waiting, Done]),
        (Running, I::Woken | I::Granted) => To(&[Running, Stopping]),
        (Checking, I::Woken | I::Granted) => To(&[Checking, Stopping]),
        (Summing, I::Woken | I::Granted) => To(&[Summing, Stopping]),
        (Stopping, I::Woken | I::Granted) => To(&[Stopping]),
        (Inside, I::Woken | I::Granted | I::Recovered) => To(&[Inside, Backoff, Unwinding, Done]),
        (Unwinding, I::Woken | I::Granted | I::Recovered) => To(&[Unwinding, Done]),
        (Done, I::Woken | I::Granted | I::Recovered) => To(&[Done, Ready, Held, Gated, Waiting, Undoing]),
        (Undoing, I::Woken | I::Granted | I::Recovered) => To(&[Undoing, Stuck, Done]),
        (Undone, I::Woken | I::Granted | I::Recovered) => To(&[Undone, Undoing]),
        (Stuck, I::Woken | I::Granted | I::Recovered) => To(&[Stuck, Undoing]),
    }
}

listed_enum! {
    /// The kinds of inputs of a run, without their contents.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum InputKind {
        Start,
        Fork,
        Recover,
        Capacity,
        Finished,
        Decide,
        Signal,
        Hold,
        Wake,
        Cancel,
        Published,
        RetryUndo,
        Tampered,
        Break,
    }
}

impl InputKind {
    pub fn from_input(input: &RunInput) -> InputKind {
        match input {
            RunInput::Start(_) => InputKind::Start,
            RunInput::Fork { .. } => InputKind::Fork,
            RunInput::Recover => InputKind::Recover,
            RunInput::Capacity => InputKind::Capacity,
            RunInput::Finished { .. } => InputKind::Finished,
            RunInput::Decide { .. } => InputKind::Decide,
            RunInput::Signal { .. } => InputKind::Signal,
            RunInput::Hold { .. } => InputKind::Hold,
            RunInput::Wake => InputKind::Wake,
            RunInput::Cancel { .. } => InputKind::Cancel,
            RunInput::Published { .. } => InputKind::Published,
            RunInput::RetryUndo { .. } => InputKind::RetryUndo,
            RunInput::Tampered { .. } => InputKind::Tampered,
            RunInput::Break { .. } => InputKind::Break,
        }
    }
}

/// Returns the effect of an input on a run, by the phase of the run. `To` without a phase: accepted, or refused because
/// of the contents of the input.
pub fn run_transition(phase: RunPhase, kind: InputKind) -> TransitionRule {
    use TransitionRule::{Refused, To};
    match (phase, kind) {
        (RunPhase::Quarantined, _) => Refused,
        (_, InputKind::Break) => To(&[]),
        (RunPhase::New, InputKind::Start | InputKind::Fork) => To(&[]),
        (RunPhase::New, _) => Refused,
        (_, InputKind::Start | InputKind::Fork) => Refused,
        (_, InputKind::Recover | InputKind::Capacity | InputKind::Wake) => To(&[]),
        (RunPhase::Going, InputKind::RetryUndo) => Refused,
        (RunPhase::Going, _) => To(&[]),
        (RunPhase::Decided, InputKind::Published) => To(&[]),
        (RunPhase::Closed, InputKind::RetryUndo) => To(&[]),
        (RunPhase::Decided | RunPhase::Closed, _) => Refused,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The phases that can be reached from a phase in any number of steps, and the phase itself.
    fn reachable(from: StepPhase) -> BTreeSet<StepPhase> {
        let mut found = BTreeSet::from([from]);
        loop {
            let next: BTreeSet<StepPhase> = StepPhase::ALL
                .into_iter()
                .filter(|to| found.iter().any(|from| *from == *to || can_follow(*from, *to)))
                .collect();
            if next == found {
                return found;
            }
            found = next;
        }
    }

    #[test]
    fn every_rule_leads_to_phases_that_can_follow() {
        for phase in StepPhase::ALL {
            let reachable = reachable(phase);
            for input in TransitionInput::ALL {
                let TransitionRule::To(phases) = step_transition(phase, input) else { continue };
                let wrong: Vec<_> = phases.iter().filter(|to| !reachable.contains(to)).collect();
                assert!(wrong.is_empty(), "{phase:?} after {input:?}: {wrong:?} cannot follow");
            }
        }
    }

    #[test]
    fn a_gate_does_not_run() {
        assert!(can_follow(StepPhase::Gated, StepPhase::Done));
        assert!(!can_follow(StepPhase::Gated, StepPhase::Running));
        assert!(!can_follow(StepPhase::Undone, StepPhase::Ready));
    }
}
