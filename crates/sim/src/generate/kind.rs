//! What generated steps do: each of the eight kinds with all that it can have.

use std::sync::Arc;

use serde_json::json;
use skein_core::{
    ids::{BranchId, SignalName, StepId},
    ir::{
        Arm, Branch, Call, Check, Convergence, Each, EachErrors, Evidence, Gate, GateTimeout, Kind, KindName,
        Lane, Loop, LoopTest, Parallel, Scope, Stage, Step, Summary, Target, Wait, WaitTimeout, Work, Worker,
    },
    time::Millis,
};

use super::{
    Gen, policy, pool,
    scope::{Readable, Skeleton, inside},
};

/// The signals that waits name.
pub const SIGNALS: [&str; 3] = ["paid", "shipped", "merged"];

pub fn name(text: &str) -> StepId {
    StepId::new(text).expect("generated names are names")
}

pub fn tool(text: &str) -> Worker {
    Worker::Tool { tool: text.into(), pinned: None }
}

impl Gen {
    pub(super) fn kind_name(&mut self, routed: bool, depth: u32) -> KindName {
        let nests = depth > 0 && self.left > 0;
        match self.rng.below(100) {
            0..8 => KindName::Gate,
            8..15 => KindName::Wait,
            15..26 if routed => KindName::Branch,
            26..32 if nests => KindName::Parallel,
            32..41 if nests => KindName::Each,
            41..47 if nests => KindName::Loop,
            47..62 if !self.calls.is_empty() => KindName::Call,
            _ => KindName::Work,
        }
    }

    pub(super) fn step(&mut self, skeleton: &Skeleton, i: usize, readable: &Readable, depth: u32) -> Step {
        let kind_name = skeleton.kinds[i];
        let id = pool::id(skeleton.base + i);
        let kind = self.kind(skeleton, i, readable, depth);
        let mut step = Step::new(id, kind);
        step.after = skeleton.after[i].iter().map(|j| pool::id(skeleton.base + j)).collect();
        // A branch routes by its arms alone.
        if kind_name != KindName::Branch {
            step.next = skeleton.next[i].map(|to| skeleton.target(to));
            if self.rng.percent(20) {
                step.when = Some(self.likely(readable));
            }
        }
        match kind_name {
            KindName::Work => {
                step.inputs = self.bindings(readable);
                if self.rng.percent(50) {
                    let schemas = [pool::ANY_FIELDS, pool::NEEDS_N, pool::DEFAULTS];
                    step.outputs = pool::schema(*self.rng.pick(&schemas));
                }
            }
            KindName::Call => step.inputs = self.call_bindings(),
            _ => {}
        }
        step.policy = self.policy(kind_name).into();
        if let Some(by) = skeleton.settled[i] {
            step.policy.settled_by = Some(pool::id(skeleton.base + by));
        }
        step.undo = self.undo(kind_name, step.id.as_str());
        step
    }

    fn kind(&mut self, skeleton: &Skeleton, i: usize, readable: &Readable, depth: u32) -> Kind {
        match skeleton.kinds[i] {
            KindName::Work => {
                let mut work = self.work(readable);
                work.isolation.worktree = skeleton.settled[i].is_some();
                Kind::Work(Box::new(work))
            }
            KindName::Gate => Kind::Gate(Box::new(self.gate(skeleton, i))),
            KindName::Wait => Kind::Wait(Box::new(self.wait(skeleton, i))),
            KindName::Branch => Kind::Branch(Box::new(self.branch(skeleton, i, readable))),
            KindName::Parallel => Kind::Parallel(Box::new(self.parallel(readable, depth))),
            KindName::Each => Kind::Each(Box::new(self.each(readable, depth))),
            KindName::Loop => Kind::Loop(Box::new(self.repeat(readable, depth))),
            KindName::Call => {
                let workflow = self.rng.pick(&self.calls).clone();
                Kind::Call(Box::new(Call { workflow, exports: Vec::new() }))
            }
        }
    }

    fn work(&mut self, readable: &Readable) -> Work {
        let mut work = Work::new(self.worker(readable));
        if self.rng.percent(22) {
            work.check = Some(Box::new(self.check()));
        }
        if self.rng.percent(12) {
            work.summary = Some(Box::new(Summary { worker: tool("sum-up"), timeout: None }));
        }
        if self.rng.percent(10) {
            let count = self.rng.small(1, 3);
            work.evidence = (1..=count).map(|n| Evidence::File(format!("done-{n}"))).collect();
        }
        work
    }

    fn worker(&mut self, readable: &Readable) -> Worker {
        match self.rng.below(6) {
            0 => Worker::Agent {
                name: None,
                program: Some("CODEX_CLI".into()),
                model: None,
                instructions: Some(pool::value(&json!("$input.word"))),
                capabilities: Vec::new(),
                tools: Vec::new(),
                max_turns: None,
                command_timeout: None,
            },
            1 => Worker::Action { action: "act".into(), pinned: None },
            2 => {
                let text = if readable.item { json!("$item") } else { json!("$input.n") };
                Worker::Command { program: "make".into(), arguments: vec![pool::value(&text)] }
            }
            3 => Worker::Script { text: "true".into(), capabilities: Vec::new() },
            _ => tool("work"),
        }
    }

    fn check(&mut self) -> Check {
        let convergence = self.rng.percent(50).then(|| Convergence {
            stall_threshold: self.rng.small(1, 3),
            max_stage: self.rng.small(2, 3),
            fail_on_max_stage: self.rng.percent(60),
            stages: vec![Stage { stage: 2, append: "try another way".into() }],
            allowed_paths: Vec::new(),
            ignored_paths: Vec::new(),
            diff_base_ref: None,
            diff_base_ref_file: None,
            max_changed_files: None,
        });
        Check {
            worker: tool("check"),
            timeout: self.rng.percent(30).then(|| Millis::minutes(2)),
            max_iterations: self.rng.small(2, 5),
            incomplete_is_an_end: self.rng.percent(50),
            decision_file: None,
            convergence,
        }
    }

    fn gate(&mut self, skeleton: &Skeleton, i: usize) -> Gate {
        let mut detours = skeleton.detours[i].iter().map(|to| to.map(|to| skeleton.target(to)));
        let on_approve = detours.next().flatten();
        let on_reject = detours.next().flatten();
        let late = detours.next().flatten();
        let on_timeout = match (late, self.rng.below(5)) {
            (Some(target), _) => GateTimeout::Go(target),
            (None, 0) => GateTimeout::Reject,
            (None, 1) => GateTimeout::Approve,
            (None, 2) => GateTimeout::Cancel,
            (None, 3) => GateTimeout::Escalate { to: policy::approvers(&mut self.rng) },
            (None, _) => GateTimeout::Expire,
        };
        let asks_again = matches!(&on_timeout, GateTimeout::Escalate { to } if to.is_empty());
        let approvers = match asks_again {
            true => policy::named_approvers(&mut self.rng),
            false => policy::approvers(&mut self.rng),
        };
        Gate {
            message: pool::value(&json!("go on?")),
            shows: if self.rng.percent(20) { vec![pool::value(&json!("$input.n"))] } else { Vec::new() },
            approvers,
            quorum: policy::quorum(&mut self.rng),
            timeout: self.patience(),
            on_timeout,
            on_approve,
            on_reject,
        }
    }

    fn wait(&mut self, skeleton: &Skeleton, i: usize) -> Wait {
        let late = skeleton.detours[i].first().copied().flatten().map(|to| skeleton.target(to));
        let first = self.rng.index(SIGNALS.len());
        let count = 1 + self.rng.index(2);
        let signal = |n: usize| SignalName::new(SIGNALS[n % SIGNALS.len()]).expect("a word is a name");
        let on_timeout = match (late, self.rng.below(3)) {
            (Some(target), _) => WaitTimeout::Go(target),
            (None, 0) => WaitTimeout::Cancel,
            (None, 1) => WaitTimeout::Continue,
            (None, _) => WaitTimeout::Expire,
        };
        Wait { on: (first..first + count).map(signal).collect(), timeout: self.patience(), on_timeout }
    }

    /// How long a gate or wait stays open. Longer than any answer that comes takes.
    fn patience(&mut self) -> Option<Millis> {
        self.rng.percent(75).then(|| Millis::minutes(self.rng.between(2, 30)))
    }

    fn branch(&mut self, skeleton: &Skeleton, i: usize, readable: &Readable) -> Branch {
        let mut targets: Vec<_> =
            skeleton.detours[i].iter().map(|to| skeleton.target((*to).flatten())).collect();
        let default = targets.pop().unwrap_or(Target::End);
        let arms = targets.into_iter().map(|next| Arm { when: self.condition(readable), next }).collect();
        Branch { arms, default }
    }

    fn parallel(&mut self, readable: &Readable, depth: u32) -> Parallel {
        let lanes = self.rng.small(2, 3);
        let lanes = (0..lanes)
            .map(|n| Lane {
                id: BranchId::new(format!("l{n}")).expect("a letter and a number are a name"),
                scope: self.inner(readable, depth),
            })
            .collect();
        Parallel { lanes }
    }

    fn each(&mut self, readable: &Readable, depth: u32) -> Each {
        let mut within = readable.clone();
        within.item = true;
        Each {
            over: self.list(),
            parallelism: [Some(1), Some(1), Some(2), Some(3), None][self.rng.index(5)],
            errors: *self.rng.pick(&[EachErrors::FailFast, EachErrors::Finish, EachErrors::Collect]),
            scope: self.inner(&within, depth),
        }
    }

    fn repeat(&mut self, readable: &Readable, depth: u32) -> Loop {
        let scope = self.inner(readable, depth);
        let test = if self.rng.percent(50) { LoopTest::First } else { LoopTest::After };
        let max = self.rng.small(1, 4);
        let mut within = readable.clone();
        let shell = Loop { condition: pool::value(&json!(false)), test, max, scope: scope.clone() };
        inside(&Kind::Loop(Box::new(shell)), &mut within.seen);
        Loop { condition: self.condition(&within), test, max, scope }
    }

    fn inner(&mut self, readable: &Readable, depth: u32) -> Arc<Scope> {
        let most = self.size.inner;
        Arc::new(self.scope(readable, depth.saturating_sub(1), most, false))
    }
}
