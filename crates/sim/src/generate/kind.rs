//! The kinds of generated steps: each of the eight kinds with all its options.

use std::sync::Arc;

use serde_json::json;
use skein_core::{
    ids::{BranchId, SignalName, StepId},
    ir::{
        BranchSpec, CallSpec, CompletionCheck, ConvergencePolicy, ConvergenceStage, EachErrorPolicy, EachSpec,
        Evidence, GateSpec, GateTimeout, LaneSpec, LoopSpec, LoopTest, ParallelSpec, RouteArm, RouteTarget, Step,
        StepKindName, StepKindSpec, StepScope, SummarySpec, WaitSpec, WaitTimeout, WorkSpec, WorkerSpec,
    },
    time::Millis,
};

use super::{
    WorkflowGenerator, policy, pool,
    scope::{ReadableScope, ScopeSkeleton, add_inner_steps},
};

/// The signals that waits wait for.
pub const SIGNALS: [&str; 3] = ["paid", "shipped", "merged"];

pub fn step_id(text: &str) -> StepId {
    StepId::new(text).expect("generated names are names")
}

pub fn tool_worker(text: &str) -> WorkerSpec {
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
        let id = pool::nth_step_id(skeleton.base + i);
        let kind = self.draw_kind(skeleton, i, readable, depth);
        let mut step = Step::new(id, kind);
        step.after = skeleton.after[i].iter().map(|j| pool::nth_step_id(skeleton.base + j)).collect();
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
                    let schemas = [pool::ANY_FIELDS, pool::NEEDS_N, pool::DEFAULTS];
                    step.outputs = pool::shared_schema(*self.rng.pick(&schemas));
                }
            }
            StepKindName::Call => step.inputs = self.draw_call_bindings(),
            _ => {}
        }
        step.policy = self.draw_policy(kind_name).into();
        if let Some(by) = skeleton.settled[i] {
            step.policy.settled_by = Some(pool::nth_step_id(skeleton.base + by));
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
                instructions: Some(pool::parse_value(&json!("$input.word"))),
                capabilities: Vec::new(),
                tools: Vec::new(),
                max_turns: None,
                command_timeout: None,
            },
            1 => WorkerSpec::Action { action: "act".into(), pinned: None },
            2 => {
                let text = if readable.item { json!("$item") } else { json!("$input.n") };
                WorkerSpec::Command { program: "make".into(), arguments: vec![pool::parse_value(&text)] }
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
            (None, 3) => GateTimeout::Escalate { to: policy::draw_approvers(&mut self.rng) },
            (None, _) => GateTimeout::Expire,
        };
        let asks_again = matches!(&on_timeout, GateTimeout::Escalate { to } if to.is_empty());
        let approvers = match asks_again {
            true => policy::draw_named_approvers(&mut self.rng),
            false => policy::draw_approvers(&mut self.rng),
        };
        GateSpec {
            message: pool::parse_value(&json!("go on?")),
            shows: if self.rng.chance_percent(20) { vec![pool::parse_value(&json!("$input.n"))] } else { Vec::new() },
            approvers,
            quorum: policy::draw_quorum(&mut self.rng),
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
        let shell = LoopSpec { condition: pool::parse_value(&json!(false)), test, max, scope: scope.clone() };
        add_inner_steps(&StepKindSpec::Loop(Box::new(shell)), &mut within.seen);
        LoopSpec { condition: self.draw_condition(&within), test, max, scope }
    }

    fn draw_inner_scope(&mut self, readable: &ReadableScope, depth: u32) -> Arc<StepScope> {
        let most = self.size.inner;
        Arc::new(self.draw_scope(readable, depth.saturating_sub(1), most, false))
    }
}
