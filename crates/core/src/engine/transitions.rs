//! What is legal: one table of a step's phases and what each input does in them.
//!
//! Every pair is an arrow or a refusal; there is no third. The simulator offers every input in every phase, checks
//! that the engine did what stands here, and fails when a pair never occurred.

use serde::{Deserialize, Serialize};

use super::{Input, RunPhase};

/// Where a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
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

impl Phase {
    pub const ALL: [Phase; 16] = [
        Phase::Pending,
        Phase::Ready,
        Phase::Held,
        Phase::Running,
        Phase::Checking,
        Phase::Summing,
        Phase::Backoff,
        Phase::Gated,
        Phase::Waiting,
        Phase::Inside,
        Phase::Stopping,
        Phase::Unwinding,
        Phase::Done,
        Phase::Undoing,
        Phase::Undone,
        Phase::Stuck,
    ];

    /// Whether something of the step still has to end.
    pub fn is_live(self) -> bool {
        !matches!(self, Phase::Pending | Phase::Done | Phase::Undoing | Phase::Undone | Phase::Stuck)
    }
}

/// What can be said to a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
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

impl Told {
    pub const ALL: [Told; 16] = [
        Told::Succeeded,
        Told::Failed,
        Told::TimedOut,
        Told::Stopped,
        Told::Interrupted,
        Told::Blocked,
        Told::HandedOver,
        Told::Late,
        Told::Approved,
        Told::Rejected,
        Told::Signalled,
        Told::Held,
        Told::Woken,
        Told::Cancelled,
        Told::Granted,
        Told::Recovered,
    ];
}

/// What an input does to a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrow {
    /// It goes to one of these phases, or stays in its own if that is among them.
    To(&'static [Phase]),
    /// It is refused.
    Refused,
    /// There is no way to say this to a step in this phase: an input names an attempt or an opening, and it has none.
    Unsayable,
}

/// The table. Read a row as: in this phase, told this, the next phase is one of those.
///
/// An input that is not about one step reaches all: it can end some, and others arrive or are stopped because of that.
pub fn arrow(phase: Phase, told: Told) -> Arrow {
    use Arrow::{Refused, To, Unsayable};
    use Phase::{
        Backoff, Checking, Done, Gated, Held, Inside, Pending, Ready, Running, Stopping, Stuck, Summing,
        Undoing, Undone, Unwinding, Waiting,
    };
    match (phase, told) {
        // The attempt in flight ended.
        (Running, Told::Succeeded) => To(&[Done, Ready, Backoff, Held]),
        (Checking, Told::Succeeded) => To(&[Done, Ready, Held]),
        (Running | Checking, Told::Failed | Told::TimedOut | Told::Stopped) => To(&[Backoff, Held, Done]),
        (Running | Checking, Told::Blocked) => To(&[Held]),
        (Running | Checking, Told::HandedOver) => To(&[Ready]),
        (Running, Told::Interrupted) => To(&[Ready, Held, Backoff, Done]),
        (Checking | Summing, Told::Interrupted) => To(&[Ready, Held]),
        (
            Summing,
            Told::Succeeded
            | Told::Failed
            | Told::TimedOut
            | Told::Stopped
            | Told::Blocked
            | Told::HandedOver,
        ) => To(&[Done]),
        (
            Stopping,
            Told::Succeeded
            | Told::Failed
            | Told::TimedOut
            | Told::Stopped
            | Told::Interrupted
            | Told::Blocked
            | Told::HandedOver,
        ) => To(&[Done]),
        // Another visit of the same step may be the next to be undone.
        (Undoing, Told::Succeeded) => To(&[Undone, Undoing, Stuck, Done]),
        (
            Undoing,
            Told::Failed
            | Told::TimedOut
            | Told::Stopped
            | Told::Interrupted
            | Told::Blocked
            | Told::HandedOver,
        ) => To(&[Undoing, Stuck, Done]),
        (
            Pending | Ready | Held | Backoff | Gated | Waiting | Inside | Unwinding | Done | Undone | Stuck,
            Told::Succeeded
            | Told::Failed
            | Told::TimedOut
            | Told::Stopped
            | Told::Interrupted
            | Told::Blocked
            | Told::HandedOver,
        ) => Unsayable,

        // An attempt that is over stays over.
        (_, Told::Late) => Refused,

        // Answers open what is open and nothing else.
        // One of several approvals leaves it open.
        (Held, Told::Approved) => To(&[Ready, Held]),
        (Held, Told::Rejected) => To(&[Done]),
        (Gated, Told::Approved) => To(&[Done, Gated]),
        (Gated, Told::Rejected) => To(&[Done]),
        (_, Told::Approved | Told::Rejected) => Refused,
        (Waiting, Told::Signalled) => To(&[Done]),
        (_, Told::Signalled) => Refused,

        // The host holds what has not started.
        (Ready, Told::Held) => To(&[Held]),
        (_, Told::Held) => Refused,

        // A run that is cancelled stops what works and ends what waits.
        (Pending, Told::Cancelled) => To(&[Pending]),
        (Ready, Told::Cancelled) => To(&[Pending, Done]),
        (Held | Backoff | Gated | Waiting, Told::Cancelled) => To(&[Done]),
        (Running | Checking | Summing | Stopping, Told::Cancelled) => To(&[Stopping]),
        (Inside, Told::Cancelled) => To(&[Inside, Done]),
        (Unwinding, Told::Cancelled) => To(&[Unwinding, Done]),
        (Done, Told::Cancelled) => To(&[Done, Undoing]),
        (Undoing, Told::Cancelled) => To(&[Undoing, Stuck, Done]),
        (Undone, Told::Cancelled) => To(&[Undone, Undoing]),
        (Stuck, Told::Cancelled) => To(&[Stuck]),

        // After a crash nothing is in flight.
        (Running, Told::Recovered) => To(&[Ready, Held, Backoff, Done, Stopping]),
        (Checking | Summing, Told::Recovered) => To(&[Ready, Held, Stopping]),
        (Stopping, Told::Recovered) => To(&[Done]),

        // What time and workers move, and what follows from that.
        (Pending, Told::Woken | Told::Granted | Told::Recovered) => {
            To(&[Pending, Ready, Held, Gated, Waiting, Done])
        }
        (Ready, Told::Woken | Told::Granted | Told::Recovered) => {
            To(&[Ready, Running, Checking, Summing, Inside, Held, Pending, Done])
        }
        (Held, Told::Woken) => To(&[Held, Ready, Done]),
        (Backoff, Told::Woken) => To(&[Backoff, Ready, Done]),
        (Held, Told::Granted | Told::Recovered) => To(&[Held, Done]),
        (Backoff, Told::Granted | Told::Recovered) => To(&[Backoff, Done]),
        (Gated, Told::Woken | Told::Granted | Told::Recovered) => To(&[Gated, Done]),
        (Waiting, Told::Woken | Told::Granted | Told::Recovered) => To(&[Waiting, Done]),
        (Running, Told::Woken | Told::Granted) => To(&[Running, Stopping]),
        (Checking, Told::Woken | Told::Granted) => To(&[Checking, Stopping]),
        (Summing, Told::Woken | Told::Granted) => To(&[Summing, Stopping]),
        (Stopping, Told::Woken | Told::Granted) => To(&[Stopping]),
        (Inside, Told::Woken | Told::Granted | Told::Recovered) => To(&[Inside, Backoff, Unwinding, Done]),
        (Unwinding, Told::Woken | Told::Granted | Told::Recovered) => To(&[Unwinding, Done]),
        (Done, Told::Woken | Told::Granted | Told::Recovered) => {
            To(&[Done, Ready, Held, Gated, Waiting, Undoing])
        }
        (Undoing, Told::Woken | Told::Granted | Told::Recovered) => To(&[Undoing, Stuck, Done]),
        (Undone, Told::Woken | Told::Granted | Told::Recovered) => To(&[Undone, Undoing]),
        (Stuck, Told::Woken | Told::Granted | Told::Recovered) => To(&[Stuck, Undoing]),
    }
}

/// What can be said to a run, without what it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
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

impl Asked {
    pub const ALL: [Asked; 14] = [
        Asked::Start,
        Asked::Fork,
        Asked::Recover,
        Asked::Capacity,
        Asked::Finished,
        Asked::Decide,
        Asked::Signal,
        Asked::Hold,
        Asked::Wake,
        Asked::Cancel,
        Asked::Published,
        Asked::RetryUndo,
        Asked::Tampered,
        Asked::Break,
    ];

    pub fn of(input: &Input) -> Asked {
        match input {
            Input::Start(_) => Asked::Start,
            Input::Fork { .. } => Asked::Fork,
            Input::Recover => Asked::Recover,
            Input::Capacity => Asked::Capacity,
            Input::Finished { .. } => Asked::Finished,
            Input::Decide { .. } => Asked::Decide,
            Input::Signal { .. } => Asked::Signal,
            Input::Hold { .. } => Asked::Hold,
            Input::Wake => Asked::Wake,
            Input::Cancel { .. } => Asked::Cancel,
            Input::Published { .. } => Asked::Published,
            Input::RetryUndo { .. } => Asked::RetryUndo,
            Input::Tampered { .. } => Asked::Tampered,
            Input::Break { .. } => Asked::Break,
        }
    }
}

/// What an input does to a run, by where the run is. `To` without a phase: accepted, or refused because of what it is
/// about.
pub fn run_arrow(phase: RunPhase, asked: Asked) -> Arrow {
    use Arrow::{Refused, To};
    match (phase, asked) {
        (RunPhase::Quarantined, _) => Refused,
        (_, Asked::Break) => To(&[]),
        (RunPhase::New, Asked::Start | Asked::Fork) => To(&[]),
        (RunPhase::New, _) => Refused,
        (_, Asked::Start | Asked::Fork) => Refused,
        (_, Asked::Recover | Asked::Capacity | Asked::Wake) => To(&[]),
        (RunPhase::Going, Asked::RetryUndo) => Refused,
        (RunPhase::Going, _) => To(&[]),
        (RunPhase::Decided, Asked::Published) => To(&[]),
        (RunPhase::Closed, Asked::RetryUndo) => To(&[]),
        (RunPhase::Decided | RunPhase::Closed, _) => Refused,
    }
}
