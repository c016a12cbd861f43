//! Injected faults: their kinds, their probabilities, and how often each one occurred.

use std::collections::BTreeMap;

use crate::rng::Rng;

/// A way in which the world misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InjectedFault {
    /// The host dies before a row is stored; the row is lost.
    CrashBeforeAppend,
    /// The host dies after a row is stored and before the acknowledgement.
    CrashAfterAppend,
    /// The host dies after the acknowledgement and before it acts on it.
    CrashAfterAcknowledgement,
    CrashBeforeSpawn,
    CrashAfterSpawn,
    /// The host dies after a worker has ended and before its end is reported.
    CrashAfterExit,
    /// The host dies after an end was reported and before a decision.
    CrashAfterReport,
    /// A worker outlives the host, and reports to the next one.
    WorkerOutlivesHost,
    LateResult,
    DuplicateResult,
    /// The end of a worker is never reported; the host detects it when it restarts.
    LostResult,
    SlowAppend,
    EarlyWake,
    RepeatedWake,
    ClockForward,
    ClockBack,
    /// Two people decide at the same time.
    RacingDecisions,
    Cancel,
    CancelAgain,
    HoldByHost,
    StraySignal,
    SignalFlood,
    NoCapacity,
    /// An attempt fails, regardless of the end drawn for it.
    FailedAttempt,
    /// An undo runs again because its end was not recorded.
    RepeatedUndo,
    RetryUndo,
    BrokenInvariant,
    /// An input that makes no sense in the current state of the run.
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

/// Decides which faults a run has, and counts them.
#[derive(Debug, Clone)]
pub struct FaultInjector {
    rng: Rng,
    /// The chance of each fault, in permille.
    chances: BTreeMap<InjectedFault, u64>,
    /// The number of crashes that may still happen; bounded so that every run ends.
    crashes: u32,
    /// A fault that strikes exactly once, and the chances left until it does.
    nth: Option<(InjectedFault, u64)>,
    pub seen: BTreeMap<InjectedFault, u64>,
}

impl FaultInjector {
    pub fn without_faults() -> FaultInjector {
        FaultInjector { rng: Rng::new(0), chances: BTreeMap::new(), crashes: 0, nth: None, seen: BTreeMap::new() }
    }

    /// Chooses a few kinds of fault by the seed, each with its own chance.
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

    /// Injects only this fault, at its n-th chance, counted from 1.
    pub fn single_fault(fault: InjectedFault, n: u64) -> FaultInjector {
        FaultInjector { nth: Some((fault, n)), ..FaultInjector::without_faults() }
    }

    /// Adds these chances.
    pub fn with_chances(mut self, also: &[(InjectedFault, u64)]) -> FaultInjector {
        self.chances.extend(also.iter().copied());
        self
    }

    /// True if this fault strikes now.
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

    /// Counts a fault that was chosen or that followed from another.
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
