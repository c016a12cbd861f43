//! Generated steps: each of the eight kinds with all its options, and policies: effect tables like those of the
//! formats, and random mixtures.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::json;
use skein_core::{
    ids::{BranchId, SignalName, StepId},
    ir::{
        ApprovalHold, Approver, Backoff, BackoffGrowth, BranchSpec, Budget, BudgetMode, CallSpec, CompletionCheck,
        ConvergencePolicy, ConvergenceStage, EachErrorPolicy, EachSpec, ErrorClass, EscalationLevel, Evidence,
        GateSpec, GateTimeout, HoldReason, LaneSpec, LoopSpec, LoopTest, OnInterrupted, OutcomeAction, OutcomeEffect,
        OutcomeEffects, ParallelSpec, RouteArm, RouteTarget, RunImpact, SiblingPolicy, Step, StepKindName,
        StepKindSpec, StepPolicy, StepRetry, StepScope, SummarySpec, TimeoutScope, UndoFailurePolicy, UndoPolicy,
        UndoSpec, WaitSpec, WaitTimeout, WorkSpec, WorkerSpec,
    },
    time::Millis,
};

use crate::{
    generate::{
        GeneratorStyle, WorkflowGenerator, expressions,
        scope::{ReadableScope, ScopeSkeleton, add_inner_steps},
    },
    rng::Rng,
};

/// The signals that waits wait for.
const SIGNALS: [&str; 3] = ["paid", "shipped", "merged"];

pub(super) fn step_id(text: &str) -> StepId {
    StepId::new(text).expect("generated names are names")
}

pub(super) fn tool_worker(text: &str) -> WorkerSpec {
    WorkerSpec::Tool { tool: text.into(), pinned: None }
}

impl WorkflowGenerator {
    pub(super) fn draw_kind_name(&mut self, routed: bool, depth: u32) -> StepKindName {
        let nests = depth > 0 && self.left > 0;
        match self.rng.next_below(100) {
            0..8 => StepKindName::Gate,
            8..15 => StepKindName::Wait,
            15..26 if routed => StepKindName::Branch,
            26..32 if nests => StepKindName::Parallel,
            32..41 if nests => StepKindName::Each,
            41..47 if nests => StepKindName::Loop,
            47..62 if !self.calls.is_empty() => StepKindName::Call,
            _ => StepKindName::Work,
        }
    }

    pub(super) fn draw_step(
        &mut self,
        skeleton: &ScopeSkeleton,
        i: usize,
        readable: &ReadableScope,
        depth: u32,
    ) -> Step {
        let kind_name = skeleton.kinds[i];
        let id = expressions::nth_step_id(skeleton.base + i);
        let kind = self.draw_kind(skeleton, i, readable, depth);
        let mut step = Step::new(id, kind);
        step.after = skeleton.after[i].iter().map(|j| expressions::nth_step_id(skeleton.base + j)).collect();
        // A branch routes only by its arms.
        if kind_name != StepKindName::Branch {
            step.next = skeleton.next[i].map(|to| skeleton.resolve_target(to));
            if self.rng.chance_percent(20) {
                step.when = Some(self.draw_likely_condition(readable));
            }
        }
        match kind_name {
            StepKindName::Work => {
                step.inputs = self.draw_bindings(readable);
                if self.rng.chance_percent(50) {
                    let schemas = [expressions::ANY_FIELDS, expressions::NEEDS_N, expressions::DEFAULTS];
                    step.outputs = expressions::shared_schema(*self.rng.pick(&schemas));
                }
            }
            StepKindName::Call => step.inputs = self.draw_call_bindings(),
            _ => {}
        }
        step.policy = self.draw_policy(kind_name).into();
        if let Some(by) = skeleton.settled[i] {
            step.policy.settled_by = Some(expressions::nth_step_id(skeleton.base + by));
        }
        step.undo = self.draw_undo(kind_name, step.id.as_str());
        step
    }

    fn draw_kind(&mut self, skeleton: &ScopeSkeleton, i: usize, readable: &ReadableScope, depth: u32) -> StepKindSpec {
        match skeleton.kinds[i] {
            StepKindName::Work => {
                let mut work = self.draw_work(readable);
                work.isolation.worktree = skeleton.settled[i].is_some();
                StepKindSpec::Work(Box::new(work))
            }
            StepKindName::Gate => StepKindSpec::Gate(Box::new(self.draw_gate(skeleton, i))),
            StepKindName::Wait => StepKindSpec::Wait(Box::new(self.draw_wait(skeleton, i))),
            StepKindName::Branch => StepKindSpec::Branch(Box::new(self.draw_branch(skeleton, i, readable))),
            StepKindName::Parallel => StepKindSpec::Parallel(Box::new(self.draw_parallel(readable, depth))),
            StepKindName::Each => StepKindSpec::Each(Box::new(self.draw_each(readable, depth))),
            StepKindName::Loop => StepKindSpec::Loop(Box::new(self.draw_loop(readable, depth))),
            StepKindName::Call => {
                let workflow = self.rng.pick(&self.calls).clone();
                StepKindSpec::Call(Box::new(CallSpec { workflow, exports: Vec::new() }))
            }
        }
    }

    fn draw_work(&mut self, readable: &ReadableScope) -> WorkSpec {
        let mut work = WorkSpec::new(self.draw_worker(readable));
        if self.rng.chance_percent(22) {
            work.check = Some(Box::new(self.draw_check()));
        }
        if self.rng.chance_percent(12) {
            work.summary = Some(Box::new(SummarySpec { worker: tool_worker("sum-up"), timeout: None }));
        }
        if self.rng.chance_percent(10) {
            let count = self.rng.next_u32_between(1, 3);
            work.evidence = (1..=count).map(|n| Evidence::File(format!("done-{n}"))).collect();
        }
        work
    }

    fn draw_worker(&mut self, readable: &ReadableScope) -> WorkerSpec {
        match self.rng.next_below(6) {
            0 => WorkerSpec::Agent {
                name: None,
                program: Some("CODEX_CLI".into()),
                model: None,
                instructions: Some(expressions::parse_value(&json!("$input.word"))),
                capabilities: Vec::new(),
                tools: Vec::new(),
                max_turns: None,
                command_timeout: None,
            },
            1 => WorkerSpec::Action { action: "act".into(), pinned: None },
            2 => {
                let text = if readable.item { json!("$item") } else { json!("$input.n") };
                WorkerSpec::Command { program: "make".into(), arguments: vec![expressions::parse_value(&text)] }
            }
            3 => WorkerSpec::Script { text: "true".into(), capabilities: Vec::new() },
            _ => tool_worker("work"),
        }
    }

    fn draw_check(&mut self) -> CompletionCheck {
        let convergence = self.rng.chance_percent(50).then(|| ConvergencePolicy {
            stall_threshold: self.rng.next_u32_between(1, 3),
            max_stage: self.rng.next_u32_between(2, 3),
            fail_on_max_stage: self.rng.chance_percent(60),
            stages: vec![ConvergenceStage { stage: 2, append: "try another way".into() }],
            allowed_paths: Vec::new(),
            ignored_paths: Vec::new(),
            diff_base_ref: None,
            diff_base_ref_file: None,
            max_changed_files: None,
        });
        CompletionCheck {
            worker: tool_worker("check"),
            timeout: self.rng.chance_percent(30).then(|| Millis::from_mins(2)),
            max_iterations: self.rng.next_u32_between(2, 5),
            incomplete_is_an_end: self.rng.chance_percent(50),
            decision_file: None,
            convergence,
        }
    }

    fn draw_gate(&mut self, skeleton: &ScopeSkeleton, i: usize) -> GateSpec {
        let mut detours = skeleton.detours[i].iter().map(|to| to.map(|to| skeleton.resolve_target(to)));
        let on_approve = detours.next().flatten();
        let on_reject = detours.next().flatten();
        let late = detours.next().flatten();
        let on_timeout = match (late, self.rng.next_below(5)) {
            (Some(target), _) => GateTimeout::Go(target),
            (None, 0) => GateTimeout::Reject,
            (None, 1) => GateTimeout::Approve,
            (None, 2) => GateTimeout::Cancel,
            (None, 3) => GateTimeout::Escalate { to: draw_approvers(&mut self.rng) },
            (None, _) => GateTimeout::Expire,
        };
        let asks_again = matches!(&on_timeout, GateTimeout::Escalate { to } if to.is_empty());
        let approvers = match asks_again {
            true => draw_named_approvers(&mut self.rng),
            false => draw_approvers(&mut self.rng),
        };
        GateSpec {
            message: expressions::parse_value(&json!("go on?")),
            shows: if self.rng.chance_percent(20) {
                vec![expressions::parse_value(&json!("$input.n"))]
            } else {
                Vec::new()
            },
            approvers,
            quorum: draw_quorum(&mut self.rng),
            timeout: self.draw_waitpoint_timeout(),
            on_timeout,
            on_approve,
            on_reject,
        }
    }

    fn draw_wait(&mut self, skeleton: &ScopeSkeleton, i: usize) -> WaitSpec {
        let late = skeleton.detours[i].first().copied().flatten().map(|to| skeleton.resolve_target(to));
        let first = self.rng.pick_index(SIGNALS.len());
        let count = 1 + self.rng.pick_index(2);
        let signal = |n: usize| SignalName::new(SIGNALS[n % SIGNALS.len()]).expect("a word is a name");
        let on_timeout = match (late, self.rng.next_below(3)) {
            (Some(target), _) => WaitTimeout::Go(target),
            (None, 0) => WaitTimeout::Cancel,
            (None, 1) => WaitTimeout::Continue,
            (None, _) => WaitTimeout::Expire,
        };
        WaitSpec {
            on: (first..first + count).map(signal).collect(),
            timeout: self.draw_waitpoint_timeout(),
            on_timeout,
        }
    }

    /// Draws the timeout of a gate or wait, which is longer than any answer takes.
    fn draw_waitpoint_timeout(&mut self) -> Option<Millis> {
        self.rng.chance_percent(75).then(|| Millis::from_mins(self.rng.next_between(2, 30)))
    }

    fn draw_branch(&mut self, skeleton: &ScopeSkeleton, i: usize, readable: &ReadableScope) -> BranchSpec {
        let mut targets: Vec<_> =
            skeleton.detours[i].iter().map(|to| skeleton.resolve_target((*to).flatten())).collect();
        let default = targets.pop().unwrap_or(RouteTarget::End);
        let arms = targets.into_iter().map(|next| RouteArm { when: self.draw_condition(readable), next }).collect();
        BranchSpec { arms, default }
    }

    fn draw_parallel(&mut self, readable: &ReadableScope, depth: u32) -> ParallelSpec {
        let lanes = self.rng.next_u32_between(2, 3);
        let lanes = (0..lanes)
            .map(|n| LaneSpec {
                id: BranchId::new(format!("l{n}")).expect("a letter and a number are a name"),
                scope: self.draw_inner_scope(readable, depth),
            })
            .collect();
        ParallelSpec { lanes }
    }

    fn draw_each(&mut self, readable: &ReadableScope, depth: u32) -> EachSpec {
        let mut within = readable.clone();
        within.item = true;
        EachSpec {
            over: self.draw_list(),
            parallelism: [Some(1), Some(1), Some(2), Some(3), None][self.rng.pick_index(5)],
            errors: *self.rng.pick(&[EachErrorPolicy::FailFast, EachErrorPolicy::Finish, EachErrorPolicy::Collect]),
            scope: self.draw_inner_scope(&within, depth),
        }
    }

    fn draw_loop(&mut self, readable: &ReadableScope, depth: u32) -> LoopSpec {
        let scope = self.draw_inner_scope(readable, depth);
        let test = if self.rng.chance_percent(50) { LoopTest::First } else { LoopTest::After };
        let max = self.rng.next_u32_between(1, 4);
        let mut within = readable.clone();
        let shell = LoopSpec { condition: expressions::parse_value(&json!(false)), test, max, scope: scope.clone() };
        add_inner_steps(&StepKindSpec::Loop(Box::new(shell)), &mut within.seen);
        LoopSpec { condition: self.draw_condition(&within), test, max, scope }
    }

    fn draw_inner_scope(&mut self, readable: &ReadableScope, depth: u32) -> Arc<StepScope> {
        let most = self.size.inner;
        Arc::new(self.draw_scope(readable, depth.saturating_sub(1), most, false))
    }
}

/// Longer than any run takes, so that a timeout of this length is never due.
pub(super) const NEVER: Millis = Millis::from_hours(200);

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
    fn draw_policy(&mut self, kind: StepKindName) -> StepPolicy {
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

    fn draw_undo(&mut self, kind: StepKindName, own: &str) -> Option<Box<UndoSpec>> {
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
        let binding = skein_core::ir::InputBinding::new("done", expressions::parse_value(&reads));
        let retry = if self.rng.chance_percent(50) { self.draw_retry(&ErrorClass::ALL) } else { StepRetry::default() };
        Some(Box::new(UndoSpec {
            id: step_id(&format!("undo-{own}")),
            work: WorkSpec::new(tool_worker("take-back")),
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

pub(super) fn draw_backoff(rng: &mut Rng) -> Backoff {
    let growth = match rng.next_below(3) {
        0 => BackoffGrowth::Constant,
        1 => BackoffGrowth::Linear,
        _ => BackoffGrowth::Exponential(*rng.pick(&[1_000, 1_500, 2_000])),
    };
    let initial = Millis(*rng.pick(&[0, 100, 1_000, 5_000]));
    Backoff { initial, growth, max: Millis::from_secs(30), jitter: rng.chance_percent(30) }
}

pub(super) fn draw_budget(rng: &mut Rng) -> Budget {
    let mode = *rng.pick(&[BudgetMode::Warn, BudgetMode::Pause, BudgetMode::Stop]);
    let tokens = rng.chance_percent(70).then(|| rng.next_between(50, 400));
    let micro_usd = (tokens.is_none() || rng.chance_percent(30)).then(|| rng.next_between(50, 400));
    Budget { micro_usd, tokens, mode }
}

/// Draws the number of required approvals: usually one.
fn draw_quorum(rng: &mut Rng) -> u32 {
    if rng.chance_percent(75) { 1 } else { rng.next_u32_between(2, 3) }
}

fn draw_approvers(rng: &mut Rng) -> Vec<Approver> {
    if rng.chance_percent(50) { draw_named_approvers(rng) } else { Vec::new() }
}

/// Draws at least one approver: an escalation without approvers asks nobody.
fn draw_named_approvers(rng: &mut Rng) -> Vec<Approver> {
    match rng.chance_percent(50) {
        true => vec![Approver::Role("lead".into())],
        false => vec![Approver::User("ada".into()), Approver::Role("legal".into())],
    }
}
