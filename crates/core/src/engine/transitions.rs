//! What is legal: one table of a step's phases and what each input does in them.
//!
//! Every pair is an arrow or a refusal; there is no third. The simulator offers every input in every phase, checks
//! that the engine did what stands here, and fails when a pair never occurred.

use serde::{Deserialize, Serialize};

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
    pub const ALL: [Told; 15] = [
        Told::Succeeded,
        Told::Failed,
        Told::TimedOut,
        Told::Stopped,
        Told::Interrupted,
        Told::Blocked,
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
    /// It ends in one of these phases.
    To(&'static [Phase]),
    /// It is refused.
    Refused,
    /// There is no way to say this to a step in this phase: an input names an attempt or an opening, and it has none.
    Unsayable,
}

/// The table. Read a row as: in this phase, told this, it goes there.
pub fn arrow(phase: Phase, told: Told) -> Arrow {
    use Arrow::{Refused, To, Unsayable};
    use Phase::{
        Backoff, Checking, Done, Gated, Held, Inside, Pending, Ready, Running, Stopping, Stuck, Summing,
        Undoing, Undone, Unwinding, Waiting,
    };
    match (phase, told) {
        // Ends of the attempt in flight. What comes next may start at once when a worker can be had.
        (Running, Told::Succeeded) => To(&[Done, Ready, Checking, Summing, Backoff, Held, Running, Pending]),
        (Checking, Told::Succeeded) => To(&[Done, Ready, Running, Summing, Backoff, Held, Pending]),
        (Summing, Told::Succeeded | Told::Failed | Told::TimedOut | Told::Stopped | Told::Blocked) => {
            To(&[Done, Pending])
        }
        (Running | Checking, Told::Failed | Told::TimedOut) => To(&[Done, Backoff, Held, Pending]),
        (Running | Checking, Told::Stopped) => To(&[Done, Backoff, Held, Pending]),
        (Running | Checking | Summing, Told::Interrupted) => {
            To(&[Ready, Running, Checking, Summing, Held, Done, Pending])
        }
        (Running | Checking, Told::Blocked) => To(&[Held, Pending]),
        (Stopping, Told::Succeeded) => To(&[Done, Undoing, Undone]),
        (Stopping, Told::Failed | Told::TimedOut | Told::Stopped | Told::Interrupted | Told::Blocked) => {
            To(&[Done, Undoing, Undone])
        }
        (Undoing, Told::Succeeded) => To(&[Undone, Undoing, Stuck]),
        (Undoing, Told::Failed | Told::TimedOut | Told::Stopped | Told::Blocked) => {
            To(&[Undoing, Stuck, Done])
        }
        (Undoing, Told::Interrupted) => To(&[Undoing, Stuck]),
        (
            Pending | Ready | Held | Backoff | Gated | Waiting | Inside | Unwinding | Done | Undone | Stuck,
            Told::Succeeded
            | Told::Failed
            | Told::TimedOut
            | Told::Stopped
            | Told::Interrupted
            | Told::Blocked,
        ) => Unsayable,

        // An attempt that is over stays over.
        (Pending | Gated | Waiting | Inside | Unwinding, Told::Late) => Refused,
        (_, Told::Late) => Refused,

        // Decisions.
        (Held, Told::Approved) => To(&[Ready, Running, Checking, Held, Done, Pending]),
        (Held, Told::Rejected) => To(&[Done, Undoing, Undone]),
        (Gated, Told::Approved | Told::Rejected) => To(&[Done, Undoing, Undone, Gated]),
        (_, Told::Approved | Told::Rejected) => Refused,

        // Signals.
        (Waiting, Told::Signalled) => To(&[Done, Waiting]),
        (_, Told::Signalled) => Refused,

        // Holds by the host.
        (Ready, Told::Held) => To(&[Held]),
        (_, Told::Held) => Refused,

        // Time, workers and cancellation reach every step; most of them do nothing to it.
        (phase, Told::Woken) => To(match phase {
            Pending => &[Pending, Ready, Running, Held, Gated, Waiting, Inside, Done],
            Ready => &[Ready, Running, Checking, Summing, Inside, Held, Pending, Done],
            Held => &[Held, Ready, Running, Checking, Summing, Done, Pending],
            Running | Checking | Summing => &[Running, Checking, Summing, Stopping],
            Backoff => &[Backoff, Ready, Running, Checking, Inside, Held, Done],
            Gated => &[Gated, Done],
            Waiting => &[Waiting, Done],
            Inside => &[Inside, Done, Backoff, Unwinding, Undoing],
            Stopping => &[Stopping],
            Unwinding => &[Unwinding, Backoff, Done],
            Done => &[Done, Undoing, Undone, Ready, Running, Gated, Waiting, Inside, Held],
            Undoing => &[Undoing, Undone, Stuck, Done],
            Undone => &[Undone, Undoing],
            Stuck => &[Stuck],
        }),
        (phase, Told::Cancelled) => To(match phase {
            Pending => &[Pending],
            Ready => &[Pending, Done],
            Held | Backoff | Gated | Waiting => &[Done, Undoing, Undone],
            Running | Checking | Summing | Stopping => &[Stopping],
            Inside => &[Inside, Done, Undoing, Undone],
            Unwinding => &[Unwinding],
            Done => &[Done, Undoing, Undone, Stuck],
            Undoing => &[Undoing],
            Undone => &[Undone],
            Stuck => &[Stuck],
        }),
        (phase, Told::Granted) => To(match phase {
            Pending => &[Pending, Ready, Running, Held, Gated, Waiting, Inside, Done],
            Ready => &[Ready, Running, Checking, Summing, Inside, Held, Done, Pending],
            Undoing => &[Undoing, Stuck, Done],
            Held => &[Held],
            Running => &[Running, Stopping],
            Checking => &[Checking, Stopping],
            Summing => &[Summing, Stopping],
            Backoff => &[Backoff, Done],
            Gated => &[Gated, Done],
            Waiting => &[Waiting, Done],
            Inside => &[Inside, Done, Backoff, Unwinding],
            Stopping => &[Stopping],
            Unwinding => &[Unwinding, Backoff, Done],
            Done => &[Done, Undoing, Stuck, Ready, Running, Gated, Waiting, Inside, Held],
            Undone => &[Undone, Undoing],
            Stuck => &[Stuck],
        }),
        (phase, Told::Recovered) => To(match phase {
            Running | Checking | Summing => {
                &[Ready, Running, Checking, Summing, Held, Done, Pending, Undoing]
            }
            Stopping => &[Done, Undoing, Undone, Stuck],
            Undoing => &[Undoing, Stuck, Done],
            Pending => &[Pending, Ready, Running, Held, Gated, Waiting, Inside, Done],
            Ready => &[Ready, Running, Checking, Summing, Inside, Held, Done, Pending],
            Held => &[Held, Done],
            Backoff => &[Backoff, Done],
            Gated => &[Gated, Done],
            Waiting => &[Waiting, Done],
            Inside => &[Inside, Done, Backoff, Unwinding, Undoing],
            Unwinding => &[Unwinding, Backoff, Done],
            Done => &[Done, Undoing, Undone, Stuck, Ready, Running, Gated, Waiting, Inside, Held],
            Undone => &[Undone, Undoing],
            Stuck => &[Stuck],
        }),
    }
}
