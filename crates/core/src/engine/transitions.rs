//! What is legal: one table of a step's phases and what each input does in them.
//!
//! Every pair is an arrow or a refusal; there is no third. The simulator offers every input in every phase, checks
//! that the engine did what stands here, and fails when a pair never occurred.

use serde::{Deserialize, Serialize};

use super::{RunInput, RunPhase};

/// Where a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepPhase {
    /// Not reached.
    Pending,
    /// Waits for a slot or a worker.
    Ready,
    /// Kept until someone or some time releases it.
    Held,
    /// Its work is being done.
    Running,
    /// Its check is being done.
    Checking,
    /// Its summary is being made.
    Summing,
    /// Waits until it is time to try again.
    Backoff,
    /// A gate that is open.
    Gated,
    /// A wait that is open.
    Waiting,
    /// A composite with instances inside.
    Inside,
    /// Told to stop, not known to have.
    Stopping,
    /// A composite whose failed instances are undone before it is tried again.
    Unwinding,
    /// Over.
    Done,
    /// Being taken back.
    Undoing,
    Undone,
    /// Could not be taken back.
    Stuck,
}

impl StepPhase {
    pub const ALL: [StepPhase; 16] = [
        StepPhase::Pending,
        StepPhase::Ready,
        StepPhase::Held,
        StepPhase::Running,
        StepPhase::Checking,
        StepPhase::Summing,
        StepPhase::Backoff,
        StepPhase::Gated,
        StepPhase::Waiting,
        StepPhase::Inside,
        StepPhase::Stopping,
        StepPhase::Unwinding,
        StepPhase::Done,
        StepPhase::Undoing,
        StepPhase::Undone,
        StepPhase::Stuck,
    ];

    /// Whether something of the step still has to end.
    pub fn is_live(self) -> bool {
        !matches!(
            self,
            StepPhase::Pending | StepPhase::Done | StepPhase::Undoing | StepPhase::Undone | StepPhase::Stuck
        )
    }
}

/// What can be said to a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransitionInput {
    /// The attempt in flight ended, well or with a check's finding.
    Succeeded,
    Failed,
    TimedOut,
    Stopped,
    Interrupted,
    Blocked,
    /// Another takes the attempt over.
    HandedOver,
    /// An attempt of this step that is not in flight ended.
    Late,
    /// Its opening was answered; without one, an opening it had.
    Approved,
    Rejected,
    /// A signal for this step alone.
    Signalled,
    /// The host holds it.
    Held,
    /// Time passed; something of this step may be due.
    Woken,
    /// The run is cancelled.
    Cancelled,
    /// Workers can be had.
    Granted,
    /// The host came back after a crash.
    Recovered,
}

impl TransitionInput {
    pub const ALL: [TransitionInput; 16] = [
        TransitionInput::Succeeded,
        TransitionInput::Failed,
        TransitionInput::TimedOut,
        TransitionInput::Stopped,
        TransitionInput::Interrupted,
        TransitionInput::Blocked,
        TransitionInput::HandedOver,
        TransitionInput::Late,
        TransitionInput::Approved,
        TransitionInput::Rejected,
        TransitionInput::Signalled,
        TransitionInput::Held,
        TransitionInput::Woken,
        TransitionInput::Cancelled,
        TransitionInput::Granted,
        TransitionInput::Recovered,
    ];
}

/// What an input does to a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransitionRule {
    /// It goes to one of these phases, or stays in its own if that is among them.
    To(&'static [StepPhase]),
    /// It is refused.
    Refused,
    /// There is no way to say this to a step in this phase: an input names an attempt or an opening, and it has none.
    Unsayable,
}

/// The table. Read a row as: in this phase, told this, the next phase is one of those.
///
/// An input that is not about one step reaches all: it can end some, and others arrive or are stopped because of that.
pub fn step_transition(phase: StepPhase, told: TransitionInput) -> TransitionRule {
    use StepPhase::{
        Backoff, Checking, Done, Gated, Held, Inside, Pending, Ready, Running, Stopping, Stuck, Summing,
        Undoing, Undone, Unwinding, Waiting,
    };
    use TransitionRule::{Refused, To, Unsayable};
    match (phase, told) {
        // The attempt in flight ended.
        (Running, TransitionInput::Succeeded) => To(&[Done, Ready, Backoff, Held]),
        (Checking, TransitionInput::Succeeded) => To(&[Done, Ready, Held]),
        (
            Running | Checking,
            TransitionInput::Failed | TransitionInput::TimedOut | TransitionInput::Stopped,
        ) => To(&[Backoff, Held, Done]),
        (Running | Checking, TransitionInput::Blocked) => To(&[Held]),
        (Running | Checking, TransitionInput::HandedOver) => To(&[Ready]),
        (Running, TransitionInput::Interrupted) => To(&[Ready, Held, Backoff, Done]),
        (Checking | Summing, TransitionInput::Interrupted) => To(&[Ready, Held]),
        (
            Summing,
            TransitionInput::Succeeded
            | TransitionInput::Failed
            | TransitionInput::TimedOut
            | TransitionInput::Stopped
            | TransitionInput::Blocked
            | TransitionInput::HandedOver,
        ) => To(&[Done]),
        (
            Stopping,
            TransitionInput::Succeeded
            | TransitionInput::Failed
            | TransitionInput::TimedOut
            | TransitionInput::Stopped
            | TransitionInput::Interrupted
            | TransitionInput::Blocked
            | TransitionInput::HandedOver,
        ) => To(&[Done]),
        // Another visit of the same step may be the next to be undone.
        (Undoing, TransitionInput::Succeeded) => To(&[Undone, Undoing, Stuck, Done]),
        (
            Undoing,
            TransitionInput::Failed
            | TransitionInput::TimedOut
            | TransitionInput::Stopped
            | TransitionInput::Interrupted
            | TransitionInput::Blocked
            | TransitionInput::HandedOver,
        ) => To(&[Undoing, Stuck, Done]),
        (
            Pending | Ready | Held | Backoff | Gated | Waiting | Inside | Unwinding | Done | Undone | Stuck,
            TransitionInput::Succeeded
            | TransitionInput::Failed
            | TransitionInput::TimedOut
            | TransitionInput::Stopped
            | TransitionInput::Interrupted
            | TransitionInput::Blocked
            | TransitionInput::HandedOver,
        ) => Unsayable,

        // An attempt that is over stays over.
        (_, TransitionInput::Late) => Refused,

        // Answers open what is open and nothing else.
        // One of several approvals leaves it open.
        (Held, TransitionInput::Approved) => To(&[Ready, Held]),
        (Held, TransitionInput::Rejected) => To(&[Done]),
        (Gated, TransitionInput::Approved) => To(&[Done, Gated]),
        (Gated, TransitionInput::Rejected) => To(&[Done]),
        (_, TransitionInput::Approved | TransitionInput::Rejected) => Refused,
        (Waiting, TransitionInput::Signalled) => To(&[Done]),
        (_, TransitionInput::Signalled) => Refused,

        // The host holds what has not started.
        (Ready, TransitionInput::Held) => To(&[Held]),
        (_, TransitionInput::Held) => Refused,

        // A run that is cancelled stops what works and ends what waits.
        (Pending, TransitionInput::Cancelled) => To(&[Pending]),
        (Ready, TransitionInput::Cancelled) => To(&[Pending, Done]),
        (Held | Backoff | Gated | Waiting, TransitionInput::Cancelled) => To(&[Done]),
        (Running | Checking | Summing | Stopping, TransitionInput::Cancelled) => To(&[Stopping]),
        (Inside, TransitionInput::Cancelled) => To(&[Inside, Done]),
        (Unwinding, TransitionInput::Cancelled) => To(&[Unwinding, Done]),
        (Done, TransitionInput::Cancelled) => To(&[Done, Undoing]),
        (Undoing, TransitionInput::Cancelled) => To(&[Undoing, Stuck, Done]),
        (Undone, TransitionInput::Cancelled) => To(&[Undone, Undoing]),
        (Stuck, TransitionInput::Cancelled) => To(&[Stuck]),

        // After a crash nothing is in flight.
        (Running, TransitionInput::Recovered) => To(&[Ready, Held, Backoff, Done, Stopping]),
        (Checking | Summing, TransitionInput::Recovered) => To(&[Ready, Held, Stopping]),
        (Stopping, TransitionInput::Recovered) => To(&[Done]),

        // What time and workers move, and what follows from that.
        (Pending, TransitionInput::Woken | TransitionInput::Granted | TransitionInput::Recovered) => {
            To(&[Pending, Ready, Held, Gated, Waiting, Done])
        }
        (Ready, TransitionInput::Woken | TransitionInput::Granted | TransitionInput::Recovered) => {
            To(&[Ready, Running, Checking, Summing, Inside, Held, Pending, Done])
        }
        (Held, TransitionInput::Woken) => To(&[Held, Ready, Done]),
        (Backoff, TransitionInput::Woken) => To(&[Backoff, Ready, Done]),
        (Held, TransitionInput::Granted | TransitionInput::Recovered) => To(&[Held, Done]),
        (Backoff, TransitionInput::Granted | TransitionInput::Recovered) => To(&[Backoff, Done]),
        (Gated, TransitionInput::Woken | TransitionInput::Granted | TransitionInput::Recovered) => {
            To(&[Gated, Done])
        }
        (Waiting, TransitionInput::Woken | TransitionInput::Granted | TransitionInput::Recovered) => {
            To(&[Waiting, Done])
        }
        (Running, TransitionInput::Woken | TransitionInput::Granted) => To(&[Running, Stopping]),
        (Checking, TransitionInput::Woken | TransitionInput::Granted) => To(&[Checking, Stopping]),
        (Summing, TransitionInput::Woken | TransitionInput::Granted) => To(&[Summing, Stopping]),
        (Stopping, TransitionInput::Woken | TransitionInput::Granted) => To(&[Stopping]),
        (Inside, TransitionInput::Woken | TransitionInput::Granted | TransitionInput::Recovered) => {
            To(&[Inside, Backoff, Unwinding, Done])
        }
        (Unwinding, TransitionInput::Woken | TransitionInput::Granted | TransitionInput::Recovered) => {
            To(&[Unwinding, Done])
        }
        (Done, TransitionInput::Woken | TransitionInput::Granted | TransitionInput::Recovered) => {
            To(&[Done, Ready, Held, Gated, Waiting, Undoing])
        }
        (Undoing, TransitionInput::Woken | TransitionInput::Granted | TransitionInput::Recovered) => {
            To(&[Undoing, Stuck, Done])
        }
        (Undone, TransitionInput::Woken | TransitionInput::Granted | TransitionInput::Recovered) => {
            To(&[Undone, Undoing])
        }
        (Stuck, TransitionInput::Woken | TransitionInput::Granted | TransitionInput::Recovered) => {
            To(&[Stuck, Undoing])
        }
    }
}

/// What can be said to a run, without what it is about.
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

impl InputKind {
    pub const ALL: [InputKind; 14] = [
        InputKind::Start,
        InputKind::Fork,
        InputKind::Recover,
        InputKind::Capacity,
        InputKind::Finished,
        InputKind::Decide,
        InputKind::Signal,
        InputKind::Hold,
        InputKind::Wake,
        InputKind::Cancel,
        InputKind::Published,
        InputKind::RetryUndo,
        InputKind::Tampered,
        InputKind::Break,
    ];

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

/// What an input does to a run, by where the run is. `To` without a phase: accepted, or refused because of what it is
/// about.
pub fn run_transition(phase: RunPhase, asked: InputKind) -> TransitionRule {
    use TransitionRule::{Refused, To};
    match (phase, asked) {
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
