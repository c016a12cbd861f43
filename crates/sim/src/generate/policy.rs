//! Policies of generated steps and scopes: tables like those of the formats, and mixtures of everything.

use std::collections::BTreeMap;

use serde_json::json;
use skein_core::{
    ir::{
        ApprovalHold, Approver, Backoff, Budget, BudgetMode, Effect, Effects, ErrorClass, Growth, HoldReason,
        KindName, Level, OnInterrupted, Per, Retry, Scope, Siblings, StepPolicy, Then, Undo, UndoFailure,
        UndoPolicy, Verdict, Work,
    },
    time::Millis,
};

use super::{Gen, Table, kind, pool};
use crate::rng::Rng;

/// Longer than any run takes, so that a timeout of this length is never due.
pub const NEVER: Millis = Millis::hours(200);

const INCOMPLETE_IS_FINE: Effect =
    Effect { then: Then::GoOn, satisfies: true, verdict: Verdict::Degraded, as_skipped: false };
const ALL: [Effect; 7] = [
    Effect::GO_ON,
    Effect::ABORT,
    Effect::UNDO,
    Effect::CONTINUE,
    Effect::SKIP,
    Effect::SKIP_DEPENDENTS,
    Effect::BLOCK,
];
/// Classes that composites may be tried again for: none that the engine itself gives without trying.
const TRIED_AGAIN: [ErrorClass; 5] = [
    ErrorClass::Transient,
    ErrorClass::Network,
    ErrorClass::External,
    ErrorClass::Service,
    ErrorClass::AgentError,
];

impl Gen {
    pub(super) fn policy(&mut self, kind: KindName) -> StepPolicy {
        let mut policy = StepPolicy { effects: self.effects(), ..StepPolicy::default() };
        let composite = matches!(kind, KindName::Parallel | KindName::Each | KindName::Loop | KindName::Call);
        if composite {
            if self.rng.percent(20) {
                policy.retry = self.retry(&TRIED_AGAIN);
            }
            self.step_timeout(&mut policy);
            if self.rng.percent(6) {
                policy.budget = Some(budget(&mut self.rng));
            }
        }
        if kind == KindName::Work {
            if self.rng.percent(45) {
                policy.retry = self.retry(&ErrorClass::ALL);
            }
            self.work_policy(&mut policy);
        }
        policy
    }

    fn work_policy(&mut self, policy: &mut StepPolicy) {
        if self.rng.percent(50) {
            self.step_timeout(policy);
        } else if self.rng.percent(50) {
            policy.timeout = Some(Millis::seconds(self.rng.between(5, 600)));
        }
        if self.rng.percent(3) {
            policy.denied = Some("a policy says no".into());
        }
        if self.rng.percent(25) {
            policy.escalation = self.escalation();
        }
        if self.rng.percent(12) {
            let class = *self.rng.pick(&ErrorClass::ALL);
            policy.holds.insert(class, *self.rng.pick(&HoldReason::ALL));
        }
        if self.rng.percent(6) {
            let approvers = approvers(&mut self.rng);
            let quorum = quorum(&mut self.rng);
            let escalates = self.rng.percent(25);
            policy.approval = Some(ApprovalHold { approvers, quorum, message: String::new(), escalates });
        }
        policy.on_interrupted = match self.rng.below(10) {
            0 => OnInterrupted::Resume,
            1 => OnInterrupted::Restore,
            2 => OnInterrupted::Ask,
            3 => OnInterrupted::Fail,
            _ => OnInterrupted::Rerun,
        };
        if self.rng.percent(8) {
            policy.budget = Some(budget(&mut self.rng));
        }
        policy.keeps_slot = self.rng.percent(40);
    }

    /// Who is asked about what governance holds, and for how long.
    fn escalation(&mut self) -> Vec<Level> {
        let rng = &mut self.rng;
        let levels = rng.small(1, 3);
        let level = |_| {
            let timeout = rng.percent(75).then(|| Millis::minutes(rng.between(2, 30)));
            Level { approvers: named_approvers(rng), timeout }
        };
        (0..levels).map(level).collect()
    }

    fn step_timeout(&mut self, policy: &mut StepPolicy) {
        if self.rng.percent(20) {
            policy.timeout_per = Per::Step;
            policy.timeout =
                Some(if self.hurried { Millis::seconds(self.rng.between(2, 90)) } else { NEVER });
        }
    }

    fn retry(&mut self, classes: &[ErrorClass]) -> Retry {
        let mut attempts = BTreeMap::new();
        // Mostly a few classes alike, sometimes each with a number of its own.
        let most = self.rng.small(2, 4);
        for class in classes {
            if self.rng.percent(60) {
                let n = if self.rng.percent(80) { most } else { self.rng.small(1, 4) };
                attempts.insert(*class, n);
            }
        }
        let never = if self.rng.percent(20) { vec!["E1".into()] } else { Vec::new() };
        Retry { attempts, never, backoff: backoff(&mut self.rng), fresh_per_iteration: self.rng.percent(40) }
    }

    fn effects(&mut self) -> Effects {
        let strict = Effects::default();
        match self.table {
            Table::AgentCore => Effects {
                incomplete: INCOMPLETE_IS_FINE,
                failed: *self.rng.pick(&[Effect::ABORT, Effect::CONTINUE, Effect::SKIP]),
                skipped_by_condition: Effect::GO_ON,
                ..strict
            },
            Table::Ioa => Effects {
                failed: Effect::UNDO,
                rejected: Effect::UNDO,
                timed_out: Effect::UNDO,
                exhausted: Effect::UNDO,
                ..strict
            },
            Table::Swdl => Effects {
                failed: *self.rng.pick(&[Effect::ABORT, Effect::CONTINUE, Effect::SKIP_DEPENDENTS]),
                skipped_by_condition: Effect::GO_ON,
                ..strict
            },
            Table::Aip => Effects {
                failed: *self.rng.pick(&[Effect::UNDO, Effect::UNDO, Effect::CONTINUE]),
                rejected: Effect::UNDO,
                skipped_by_condition: Effect::GO_ON,
                skipped_by_upstream: Effect::GO_ON,
                ..strict
            },
            Table::Mixed => self.mixed(),
        }
    }

    /// Any effect for any outcome; only success mostly goes on, or nothing else would ever happen.
    fn mixed(&mut self) -> Effects {
        let mut failed_by_class = BTreeMap::new();
        if self.rng.percent(40) {
            // A timeout has a row of its own.
            let class = *self.rng.pick(&TRIED_AGAIN);
            failed_by_class.insert(class, *self.rng.pick(&ALL));
        }
        let succeeded = if self.rng.percent(96) { Effect::GO_ON } else { Effect::BLOCK };
        Effects {
            succeeded,
            incomplete: *self.rng.pick(&ALL),
            exhausted: *self.rng.pick(&ALL),
            failed: *self.rng.pick(&ALL),
            failed_by_class,
            rejected: *self.rng.pick(&ALL),
            timed_out: *self.rng.pick(&ALL),
            skipped_by_condition: *self.rng.pick(&ALL),
            skipped_by_upstream: *self.rng.pick(&[Effect::BLOCK, Effect::GO_ON, Effect::SKIP_DEPENDENTS]),
        }
    }

    pub(super) fn undo(&mut self, kind: KindName, own: &str) -> Option<Box<Undo>> {
        let likely = match (kind, self.table) {
            (KindName::Branch | KindName::Gate | KindName::Wait, _) => 0,
            (KindName::Work, Table::AgentCore) => 10,
            (KindName::Work, _) => 50,
            _ => 10,
        };
        if !self.rng.percent(likely) {
            return None;
        }
        let reads = json!(format!("$steps.{own}"));
        let binding = skein_core::ir::Binding::new("done", pool::value(&reads));
        let retry = if self.rng.percent(50) { self.retry(&ErrorClass::ALL) } else { Retry::default() };
        Some(Box::new(Undo {
            id: kind::name(&format!("undo-{own}")),
            work: Work::new(kind::tool("take-back")),
            inputs: vec![binding],
            timeout: self.rng.percent(30).then(|| Millis::minutes(5)),
            retry,
        }))
    }

    /// What any scope may have.
    pub(super) fn scope_policies(&mut self, scope: &mut Scope) {
        scope.concurrency = match self.rng.below(10) {
            0..5 => Some(1),
            5 => Some(2),
            6 => Some(3),
            _ => None,
        };
        if self.rng.percent(20) {
            scope.timeout =
                Some(if self.hurried { Millis::seconds(self.rng.between(5, 120)) } else { NEVER });
        }
        if self.rng.percent(35) {
            scope.siblings = Siblings::Drain;
        }
    }

    /// What only the root of a workflow has.
    pub(super) fn root_policies(&mut self, scope: &mut Scope) {
        if scope.max_steps.is_none() && self.rng.percent(10) {
            scope.max_steps = Some(self.rng.small(2, 12));
        }
        scope.undo = UndoPolicy {
            on_timeout: self.rng.percent(50),
            on_cancel: self.rng.percent(50),
            failed_step: self.rng.percent(25),
            if_one_fails: if self.rng.percent(30) { UndoFailure::Stop } else { UndoFailure::GoOn },
        };
    }
}

pub fn backoff(rng: &mut Rng) -> Backoff {
    let growth = match rng.below(3) {
        0 => Growth::Constant,
        1 => Growth::Linear,
        _ => Growth::Exponential(*rng.pick(&[1_000, 1_500, 2_000])),
    };
    let initial = Millis(*rng.pick(&[0, 100, 1_000, 5_000]));
    Backoff { initial, growth, max: Millis::seconds(30), jitter: rng.percent(30) }
}

pub fn budget(rng: &mut Rng) -> Budget {
    let mode = *rng.pick(&[BudgetMode::Warn, BudgetMode::Pause, BudgetMode::Stop]);
    let tokens = rng.percent(70).then(|| rng.between(50, 400));
    let micro_usd = (tokens.is_none() || rng.percent(30)).then(|| rng.between(50, 400));
    Budget { micro_usd, tokens, mode }
}

/// How many have to approve: mostly one.
pub fn quorum(rng: &mut Rng) -> u32 {
    if rng.percent(75) { 1 } else { rng.small(2, 3) }
}

pub fn approvers(rng: &mut Rng) -> Vec<Approver> {
    if rng.percent(50) { named_approvers(rng) } else { Vec::new() }
}

/// At least one: an escalation that names nobody asks nobody.
pub fn named_approvers(rng: &mut Rng) -> Vec<Approver> {
    match rng.percent(50) {
        true => vec![Approver::Role("lead".into())],
        false => vec![Approver::User("ada".into()), Approver::Role("legal".into())],
    }
}
