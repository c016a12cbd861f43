//! What goes wrong on purpose, how often, and how often it did.

use std::collections::BTreeMap;

use crate::rng::Rng;

/// A way in which the world misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The host dies before a row is stored; the row is lost.
    CrashBeforeAppend,
    /// The host dies after a row is stored and before it knows.
    CrashAfterAppend,
    /// The host dies after it knows and before it does anything about it.
    CrashAfterAcknowledgement,
    CrashBeforeSpawn,
    CrashAfterSpawn,
    /// The host dies when a worker has ended and before its end is reported.
    CrashAfterExit,
    /// The host dies when an end was reported and nothing has been decided.
    CrashAfterReport,
    /// A worker lives on after the host died, and reports to the next one.
    WorkerOutlivesHost,
    LateResult,
    DuplicateResult,
    /// The end of a worker is never reported; the host finds out when it starts again.
    LostResult,
    SlowAppend,
    EarlyWake,
    RepeatedWake,
    ClockForward,
    ClockBack,
    /// Two people decide at once.
    RacingDecisions,
    Cancel,
    CancelAgain,
    HoldByHost,
    StraySignal,
    SignalFlood,
    NoCapacity,
    /// An attempt fails whatever it would have come to.
    FailedAttempt,
    /// An undo is done once more, because its end was not recorded.
    RepeatedUndo,
    RetryUndo,
    BrokenInvariant,
    /// An input that makes no sense where the run is.
    Nonsense,
}

impl Fault {
    pub const ALL: [Fault; 28] = [
        Fault::CrashBeforeAppend,
        Fault::CrashAfterAppend,
        Fault::CrashAfterAcknowledgement,
        Fault::CrashBeforeSpawn,
        Fault::CrashAfterSpawn,
        Fault::CrashAfterExit,
        Fault::CrashAfterReport,
        Fault::WorkerOutlivesHost,
        Fault::LateResult,
        Fault::DuplicateResult,
        Fault::LostResult,
        Fault::SlowAppend,
        Fault::EarlyWake,
        Fault::RepeatedWake,
        Fault::ClockForward,
        Fault::ClockBack,
        Fault::RacingDecisions,
        Fault::Cancel,
        Fault::CancelAgain,
        Fault::HoldByHost,
        Fault::StraySignal,
        Fault::SignalFlood,
        Fault::NoCapacity,
        Fault::FailedAttempt,
        Fault::RepeatedUndo,
        Fault::RetryUndo,
        Fault::BrokenInvariant,
        Fault::Nonsense,
    ];
}

/// Which faults a run has, and how many are left.
#[derive(Debug, Clone)]
pub struct Faults {
    rng: Rng,
    /// Chances in a thousand.
    chances: BTreeMap<Fault, u64>,
    /// Crashes that may still happen, so that every run comes to its end.
    crashes: u32,
    /// The one fault that strikes exactly once: at its n-th chance.
    nth: Option<(Fault, u64)>,
    pub seen: BTreeMap<Fault, u64>,
}

impl Faults {
    pub fn none() -> Faults {
        Faults { rng: Rng::new(0), chances: BTreeMap::new(), crashes: 0, nth: None, seen: BTreeMap::new() }
    }

    /// A few kinds of fault, chosen by the seed, each with a chance of its own.
    pub fn chosen(seed: u64) -> Faults {
        let mut rng = Rng::new(seed).fork("faults");
        let mut chances = BTreeMap::new();
        for fault in Fault::ALL {
            if rng.percent(30) {
                chances.insert(fault, *rng.pick(&[10, 40, 150]));
            }
        }
        for rare in [Fault::BrokenInvariant, Fault::SignalFlood] {
            if let Some(chance) = chances.get_mut(&rare) {
                *chance = 2;
            }
        }
        let crashes = rng.small(1, 6);
        Faults { rng, chances, crashes, nth: None, seen: BTreeMap::new() }
    }

    /// Nothing but this, at its n-th chance, counted from 1.
    pub fn nth(fault: Fault, n: u64) -> Faults {
        Faults { nth: Some((fault, n)), ..Faults::none() }
    }

    /// With these chances for these as well.
    pub fn with(mut self, also: &[(Fault, u64)]) -> Faults {
        self.chances.extend(also.iter().copied());
        self
    }

    /// Whether this goes wrong now.
    pub fn strikes(&mut self, fault: Fault) -> bool {
        if let Some((one, left)) = &mut self.nth
            && *one == fault
            && *left > 0
        {
            *left -= 1;
            if *left == 0 {
                self.note(fault);
                return true;
            }
            return false;
        }
        let Some(chance) = self.chances.get(&fault) else { return false };
        let crash = is_crash(fault);
        if (crash && self.crashes == 0) || !self.rng.permille(*chance) {
            return false;
        }
        self.crashes -= u32::from(crash);
        self.note(fault);
        true
    }

    /// It happened, by choice or as a consequence.
    pub fn note(&mut self, fault: Fault) {
        *self.seen.entry(fault).or_default() += 1;
    }

    pub fn is_none(&self) -> bool {
        self.chances.is_empty() && self.nth.is_none()
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.chances.contains_key(&fault) || self.nth.is_some_and(|(one, _)| one == fault)
    }

    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }
}

fn is_crash(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::CrashBeforeAppend
            | Fault::CrashAfterAppend
            | Fault::CrashAfterAcknowledgement
            | Fault::CrashBeforeSpawn
            | Fault::CrashAfterSpawn
            | Fault::CrashAfterExit
            | Fault::CrashAfterReport
            | Fault::LostResult
            | Fault::RepeatedUndo
    )
}
