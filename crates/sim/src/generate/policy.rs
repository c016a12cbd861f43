//! Policies of generated steps and scopes: effect tables like those of the formats, and random mixtures.

use std::collections::BTreeMap;

use serde_json::json;
use skein_core::{
    ir::{
        ApprovalHold, Approver, Backoff, BackoffGrowth, Budget, BudgetMode, ErrorClass, EscalationLevel, HoldReason,
        OnInterrupted, OutcomeAction, OutcomeEffect, OutcomeEffects, RunImpact, SiblingPolicy, StepKindName,
        StepPolicy, StepRetry, StepScope, TimeoutScope, UndoFailurePolicy, UndoPolicy, UndoSpec, WorkSpec,
    },
    time::Millis,
};

use super::{GeneratorStyle, WorkflowGenerator, kind, pool};
use crate::rng::Rng;

/// Longer than any run takes, so that a timeout of this length is never due.
pub const NEVER: Millis = Millis::from_hours(200);

const INCOMPLETE_IS_FINE: OutcomeEffect =
    OutcomeEffect { then: OutcomeAction::GoOn, satisfies: true, verdict: RunImpact::Degraded, as_skipped: false };
const ALL: [OutcomeEffect; 7] = [
    OutcomeEffect::GO_ON,
    OutcomeEffect::ABORT,
    OutcomeEffect::UNDO,
    OutcomeEffect::CONTINUE,
    OutcomeEffect::SKIP,
    OutcomeEffect::SKIP_DEPENDENTS,
    OutcomeEffect::BLOCK,
];
/// The classes for which composites may be retried: none that the engine itself produces without a try.
const TRIED_AGAIN: [ErrorClass; 5] =
    [ErrorClass::Transient, ErrorClass::Network, ErrorClass::External, ErrorClass::Service, ErrorClass::AgentError];

impl WorkflowGenerator {
    pub(super) fn draw_policy(&mut self, kind: StepKindName) -> StepPolicy {
        let mut policy = StepPolicy { effects: self.draw_effects(), ..StepPolicy::default() };
        let composite =
            matches!(kind, StepKindName::Parallel | StepKindName::Each | StepKindName::Loop | StepKindName::Call);
        if composite {
            if self.rng.chance_percent(20) {
                policy.retry = self.draw_retry(&TRIED_AGAIN);
            }
            self.draw_step_timeout(&mut policy);
            if self.rng.chance_percent(6) {
                policy.budget = Some(draw_budget(&mut self.rng));
            }
        }
        if kind == StepKindName::Work {
            if self.rng.chance_percent(45) {
                policy.retry = self.draw_retry(&ErrorClass::ALL);
            }
            self.draw_work_policy(&mut policy);
        }
        policy
    }

    fn draw_work_policy(&mut self, policy: &mut StepPolicy) {
        if self.rng.chance_percent(50) {
            self.draw_step_timeout(policy);
        } else if self.rng.chance_percent(50) {
            policy.timeout = Some(Millis::from_secs(self.rng.next_between(5, 600)));
        }
        if self.rng.chance_percent(3) {
            policy.denied = Some("a policy says no".into());
        }
        if self.rng.chance_percent(25) {
            policy.escalation = self.draw_escalation();
        }
        if self.rng.chance_percent(12) {
            let class = *self.rng.pick(&ErrorClass::ALL);
            policy.holds.insert(class, *self.rng.pick(&HoldReason::ALL));
        }
        if self.rng.chance_percent(6) {
            let approvers = draw_approvers(&mut self.rng);
            let quorum = draw_quorum(&mut self.rng);
            let escalates = self.rng.chance_percent(25);
            policy.approval = Some(ApprovalHold { approvers, quorum, message: String::new(), escalates });
        }
        policy.on_interrupted = match self.rng.next_below(10) {
            0 => OnInterrupted::Resume,
            1 => OnInterrupted::Restore,
            2 => OnInterrupted::Ask,
            3 => OnInterrupted::Fail,
            _ => OnInterrupted::Rerun,
        };
        if self.rng.chance_percent(8) {
            policy.budget = Some(draw_budget(&mut self.rng));
        }
        policy.keeps_slot = self.rng.chance_percent(40);
    }

    /// Draws the escalation levels of a governance hold: approvers and timeouts.
    fn draw_escalation(&mut self) -> Vec<EscalationLevel> {
        let rng = &mut self.rng;
        let levels = rng.next_u32_between(1, 3);
        let level = |_| {
            let timeout = rng.chance_percent(75).then(|| Millis::from_mins(rng.next_between(2, 30)));
            EscalationLevel { approvers: draw_named_approvers(rng), timeout }
        };
        (0..levels).map(level).collect()
    }

    fn draw_step_timeout(&mut self, policy: &mut StepPolicy) {
        if self.rng.chance_percent(20) {
            policy.timeout_per = TimeoutScope::Step;
            policy.timeout = Some(if self.hurried { Millis::from_secs(self.rng.next_between(2, 90)) } else { NEVER });
        }
    }

    fn draw_retry(&mut self, classes: &[ErrorClass]) -> StepRetry {
        let mut attempts = BTreeMap::new();
        // Usually a few classes have the same number, sometimes each has its own.
        let most = self.rng.next_u32_between(2, 4);
        for class in classes {
            if self.rng.chance_percent(60) {
                let n = if self.rng.chance_percent(80) { most } else { self.rng.next_u32_between(1, 4) };
                attempts.insert(*class, n);
            }
        }
        let never = if self.rng.chance_percent(20) { vec!["E1".into()] } else { Vec::new() };
        StepRetry {
            attempts,
            never,
            backoff: draw_backoff(&mut self.rng),
            fresh_per_iteration: self.rng.chance_percent(40),
        }
    }

    fn draw_effects(&mut self) -> OutcomeEffects {
        let strict = OutcomeEffects::default();
        match self.table {
            GeneratorStyle::AgentCore => OutcomeEffects {
                incomplete: INCOMPLETE_IS_FINE,
                failed: *self.rng.pick(&[OutcomeEffect::ABORT, OutcomeEffect::CONTINUE, OutcomeEffect::SKIP]),
                skipped_by_condition: OutcomeEffect::GO_ON,
                ..strict
            },
            GeneratorStyle::Ioa => OutcomeEffects {
                failed: OutcomeEffect::UNDO,
                rejected: OutcomeEffect::UNDO,
                timed_out: OutcomeEffect::UNDO,
                exhausted: OutcomeEffect::UNDO,
                ..strict
            },
            GeneratorStyle::Swdl => OutcomeEffects {
                failed: *self.rng.pick(&[
                    OutcomeEffect::ABORT,
                    OutcomeEffect::CONTINUE,
                    OutcomeEffect::SKIP_DEPENDENTS,
                ]),
                skipped_by_condition: OutcomeEffect::GO_ON,
                ..strict
            },
            GeneratorStyle::Aip => OutcomeEffects {
                failed: *self.rng.pick(&[OutcomeEffect::UNDO, OutcomeEffect::UNDO, OutcomeEffect::CONTINUE]),
                rejected: OutcomeEffect::UNDO,
                skipped_by_condition: OutcomeEffect::GO_ON,
                skipped_by_upstream: OutcomeEffect::GO_ON,
                ..strict
            },
            GeneratorStyle::Mixed => self.draw_mixed_effects(),
        }
    }

    /// Draws any effect for any outcome. Only success usually continues, because otherwise nothing else would happen.
    fn draw_mixed_effects(&mut self) -> OutcomeEffects {
        let mut failed_by_class = BTreeMap::new();
        if self.rng.chance_percent(40) {
            // A timeout has its own row.
            let class = *self.rng.pick(&TRIED_AGAIN);
            failed_by_class.insert(class, *self.rng.pick(&ALL));
        }
        let succeeded = if self.rng.chance_percent(96) { OutcomeEffect::GO_ON } else { OutcomeEffect::BLOCK };
        OutcomeEffects {
            succeeded,
            incomplete: *self.rng.pick(&ALL),
            exhausted: *self.rng.pick(&ALL),
            failed: *self.rng.pick(&ALL),
            failed_by_class,
            rejected: *self.rng.pick(&ALL),
            timed_out: *self.rng.pick(&ALL),
            skipped_by_condition: *self.rng.pick(&ALL),
            skipped_by_upstream: *self.rng.pick(&[
                OutcomeEffect::BLOCK,
                OutcomeEffect::GO_ON,
                OutcomeEffect::SKIP_DEPENDENTS,
            ]),
        }
    }

    pub(super) fn draw_undo(&mut self, kind: StepKindName, own: &str) -> Option<Box<UndoSpec>> {
        let likely = match (kind, self.table) {
            (StepKindName::Branch | StepKindName::Gate | StepKindName::Wait, _) => 0,
            (StepKindName::Work, GeneratorStyle::AgentCore) => 10,
            (StepKindName::Work, _) => 50,
            _ => 10,
        };
        if !self.rng.chance_percent(likely) {
            return None;
        }
        let reads = json!(format!("$steps.{own}"));
        let binding = skein_core::ir::InputBinding::new("done", pool::parse_value(&reads));
        let retry = if self.rng.chance_percent(50) { self.draw_retry(&ErrorClass::ALL) } else { StepRetry::default() };
        Some(Box::new(UndoSpec {
            id: kind::step_id(&format!("undo-{own}")),
            work: WorkSpec::new(kind::tool_worker("take-back")),
            inputs: vec![binding],
            timeout: self.rng.chance_percent(30).then(|| Millis::from_mins(5)),
            retry,
        }))
    }

    /// Draws the policies that any scope may have.
    pub(super) fn draw_scope_policies(&mut self, scope: &mut StepScope) {
        scope.concurrency = match self.rng.next_below(10) {
            0..5 => Some(1),
            5 => Some(2),
            6 => Some(3),
            _ => None,
        };
        if self.rng.chance_percent(20) {
            scope.timeout = Some(if self.hurried { Millis::from_secs(self.rng.next_between(5, 120)) } else { NEVER });
        }
        if self.rng.chance_percent(35) {
            scope.siblings = SiblingPolicy::Drain;
        }
    }

    /// Draws the policies that only the root of a workflow has.
    pub(super) fn draw_root_policies(&mut self, scope: &mut StepScope) {
        if scope.max_steps.is_none() && self.rng.chance_percent(10) {
            scope.max_steps = Some(self.rng.next_u32_between(2, 12));
        }
        scope.undo = UndoPolicy {
            on_timeout: self.rng.chance_percent(50),
            on_cancel: self.rng.chance_percent(50),
            failed_step: self.rng.chance_percent(25),
            if_one_fails: if self.rng.chance_percent(30) { UndoFailurePolicy::Stop } else { UndoFailurePolicy::GoOn },
        };
    }
}

pub fn draw_backoff(rng: &mut Rng) -> Backoff {
    let growth = match rng.next_below(3) {
        0 => BackoffGrowth::Constant,
        1 => BackoffGrowth::Linear,
        _ => BackoffGrowth::Exponential(*rng.pick(&[1_000, 1_500, 2_000])),
    };
    let initial = Millis(*rng.pick(&[0, 100, 1_000, 5_000]));
    Backoff { initial, growth, max: Millis::from_secs(30), jitter: rng.chance_percent(30) }
}

pub fn draw_budget(rng: &mut Rng) -> Budget {
    let mode = *rng.pick(&[BudgetMode::Warn, BudgetMode::Pause, BudgetMode::Stop]);
    let tokens = rng.chance_percent(70).then(|| rng.next_between(50, 400));
    let micro_usd = (tokens.is_none() || rng.chance_percent(30)).then(|| rng.next_between(50, 400));
    Budget { micro_usd, tokens, mode }
}

/// Draws the number of required approvals: usually one.
pub fn draw_quorum(rng: &mut Rng) -> u32 {
    if rng.chance_percent(75) { 1 } else { rng.next_u32_between(2, 3) }
}

pub fn draw_approvers(rng: &mut Rng) -> Vec<Approver> {
    if rng.chance_percent(50) { draw_named_approvers(rng) } else { Vec::new() }
}

/// Draws at least one approver: an escalation without approvers asks nobody.
pub fn draw_named_approvers(rng: &mut Rng) -> Vec<Approver> {
    match rng.chance_percent(50) {
        true => vec![Approver::Role("lead".into())],
        false => vec![Approver::User("ada".into()), Approver::Role("legal".into())],
    }
}
