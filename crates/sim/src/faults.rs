//! What goes wrong on purpose, how often, and how often it did.

use std::collections::BTreeMap;

use crate::rng::Rng;

/// A way in which the world misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InjectedFault {
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

impl InjectedFault {
    pub const ALL: [InjectedFault; 28] = [
        InjectedFault::CrashBeforeAppend,
        InjectedFault::CrashAfterAppend,
        InjectedFault::CrashAfterAcknowledgement,
        InjectedFault::CrashBeforeSpawn,
        InjectedFault::CrashAfterSpawn,
        InjectedFault::CrashAfterExit,
        InjectedFault::CrashAfterReport,
        InjectedFault::WorkerOutlivesHost,
        InjectedFault::LateResult,
        InjectedFault::DuplicateResult,
        InjectedFault::LostResult,
        InjectedFault::SlowAppend,
        InjectedFault::EarlyWake,
        InjectedFault::RepeatedWake,
        InjectedFault::ClockForward,
        InjectedFault::ClockBack,
        InjectedFault::RacingDecisions,
        InjectedFault::Cancel,
        InjectedFault::CancelAgain,
        InjectedFault::HoldByHost,
        InjectedFault::StraySignal,
        InjectedFault::SignalFlood,
        InjectedFault::NoCapacity,
        InjectedFault::FailedAttempt,
        InjectedFault::RepeatedUndo,
        InjectedFault::RetryUndo,
        InjectedFault::BrokenInvariant,
        InjectedFault::Nonsense,
    ];
}

/// Which faults a run has, and how many are left.
#[derive(Debug, Clone)]
pub struct FaultInjector {
    rng: Rng,
    /// Chances in a thousand.
    chances: BTreeMap<InjectedFault, u64>,
    /// Crashes that may still happen, so that every run comes to its end.
    crashes: u32,
    /// The one fault that strikes exactly once: at its n-th chance.
    nth: Option<(InjectedFault, u64)>,
    pub seen: BTreeMap<InjectedFault, u64>,
}

impl FaultInjector {
    pub fn without_faults() -> FaultInjector {
        FaultInjector {
            rng: Rng::new(0),
            chances: BTreeMap::new(),
            crashes: 0,
            nth: None,
            seen: BTreeMap::new(),
        }
    }

    /// A few kinds of fault, chosen by the seed, each with a chance of its own.
    pub fn from_seed(seed: u64) -> FaultInjector {
        let mut rng = Rng::new(seed).fork("faults");
        let mut chances = BTreeMap::new();
        for fault in InjectedFault::ALL {
            if rng.chance_percent(30) {
                chances.insert(fault, *rng.pick(&[10, 40, 150]));
            }
        }
        for rare in [InjectedFault::BrokenInvariant, InjectedFault::SignalFlood] {
            if let Some(chance) = chances.get_mut(&rare) {
                *chance = 2;
            }
        }
        let crashes = rng.next_u32_between(1, 6);
        FaultInjector { rng, chances, crashes, nth: None, seen: BTreeMap::new() }
    }

    /// Nothing but this, at its n-th chance, counted from 1.
    pub fn single_fault(fault: InjectedFault, n: u64) -> FaultInjector {
        FaultInjector { nth: Some((fault, n)), ..FaultInjector::without_faults() }
    }

    /// With these chances for these as well.
    pub fn with_chances(mut self, also: &[(InjectedFault, u64)]) -> FaultInjector {
        self.chances.extend(also.iter().copied());
        self
    }

    /// Whether this goes wrong now.
    pub fn strikes(&mut self, fault: InjectedFault) -> bool {
        if let Some((one, left)) = &mut self.nth
            && *one == fault
            && *left > 0
        {
            *left -= 1;
            if *left == 0 {
                self.record_fault(fault);
                return true;
            }
            return false;
        }
        let Some(chance) = self.chances.get(&fault) else { return false };
        let crash = is_crash(fault);
        if (crash && self.crashes == 0) || !self.rng.chance_permille(*chance) {
            return false;
        }
        self.crashes -= u32::from(crash);
        self.record_fault(fault);
        true
    }

    /// It happened, by choice or as a consequence.
    pub fn record_fault(&mut self, fault: InjectedFault) {
        *self.seen.entry(fault).or_default() += 1;
    }

    pub fn is_faultless(&self) -> bool {
        self.chances.is_empty() && self.nth.is_none()
    }

    pub fn can_strike(&self, fault: InjectedFault) -> bool {
        self.chances.contains_key(&fault) || self.nth.is_some_and(|(one, _)| one == fault)
    }

    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }
}

fn is_crash(fault: InjectedFault) -> bool {
    matches!(
        fault,
        InjectedFault::CrashBeforeAppend
            | InjectedFault::CrashAfterAppend
            | InjectedFault::CrashAfterAcknowledgement
            | InjectedFault::CrashBeforeSpawn
            | InjectedFault::CrashAfterSpawn
            | InjectedFault::CrashAfterExit
            | InjectedFault::CrashAfterReport
            | InjectedFault::LostResult
            | InjectedFault::RepeatedUndo
    )
}
