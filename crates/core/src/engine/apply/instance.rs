//! Instances: begun, halted, ended.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use crate::{
    engine::{
        Halt, InstanceEnd, InstanceIx, InstanceReused, Part, Publication, Start, StepAt,
        fold::{Fold, new_steps},
        state::{Deadline, Instance, InstancePhase, RunPhase, null},
        transitions::Phase,
    },
    ir::{RunStatus, Siblings, Verdict},
    plan::ScopeIx,
    time::Time,
};

impl Fold<'_> {
    pub(in crate::engine) fn run_started(
        &mut self,
        start: &Start,
        parameters: &Arc<Value>,
        env: &Arc<Value>,
        deadline: Option<Time>,
        publish: &[Publication],
    ) {
        self.state.phase = RunPhase::Going;
        self.state.start = Some(Box::new(start.clone()));
        self.state.commands.publish.extend(publish);
        let root = self.plan.definition.root().root;
        self.add_instance(root, None, None, parameters.clone(), env.clone(), deadline);
    }

    pub(in crate::engine) fn instance_started(
        &mut self,
        parent: StepAt,
        part: Part,
        input: Option<&Arc<Value>>,
        env: &Arc<Value>,
        deadline: Option<Time>,
    ) {
        let scope = self.inner(parent, part);
        let input = input.cloned().unwrap_or_else(null);
        let ix = self.add_instance(scope, Some(parent), Some(part), input, env.clone(), deadline);
        let more = self.more(parent);
        more.children.push(ix);
        more.open_children += 1;
    }

    /// An instance that is over comes to be. What it is in has been entered by that, and ends when it is reused too.
    pub(in crate::engine) fn instance_reused(&mut self, reused: &InstanceReused) {
        let InstanceReused { parent, part, input, env, why, end } = reused;
        self.arrive(*parent);
        if self.state.step(*parent).phase != Phase::Inside {
            self.set_phase(*parent, Phase::Inside);
        }
        let input = input.clone().unwrap_or_else(null);
        let scope = self.inner(*parent, *part);
        let ix = self.add_instance(scope, Some(*parent), Some(*part), input, env.clone(), None);
        self.more(*parent).children.push(ix);
        let now = self.now;
        let instance = self.instance(ix);
        instance.phase = InstancePhase::Ended { why: why.clone(), end: end.clone() };
        instance.ended = Some(now);
    }

    /// The scope of a part.
    fn inner(&self, parent: StepAt, part: Part) -> ScopeIx {
        let which = if let Part::Lane(lane) = part { lane } else { 0 };
        self.entry(parent.0).inner(parent.1, which)
    }

    pub(in crate::engine) fn add_instance(
        &mut self,
        scope: ScopeIx,
        parent: Option<StepAt>,
        part: Option<Part>,
        input: Arc<Value>,
        env: Arc<Value>,
        deadline: Option<Time>,
    ) -> InstanceIx {
        let ix = InstanceIx(u32::try_from(self.state.instances.len()).expect("instances are limited"));
        let home = match (parent, part) {
            (Some(parent), Some(Part::Lane(_) | Part::Item(_) | Part::Pass(_))) => {
                self.state.instance(parent.0).home
            }
            _ => ix,
        };
        let steps = new_steps(self.plan.definition.scope(scope));
        let open = u32::try_from(steps.len()).expect("steps are limited");
        self.state.phases[Phase::Pending as usize] += open;
        self.state.instances.push(Instance {
            scope,
            parent,
            part,
            home,
            phase: InstancePhase::Going,
            steps,
            input,
            env,
            members: Vec::new(),
            executed: 0,
            open,
            live: 0,
            slots: 0,
            queue: BTreeSet::new(),
            verdict: Verdict::Clean,
            error: None,
            last_output: null(),
            cursor: None,
            completed: Vec::new(),
            undo_asked: false,
            stuck: false,
            deadline,
            started: self.now,
            ended: None,
        });
        self.state.instances[home.0 as usize].members.push(ix);
        if let Some(time) = deadline {
            self.state.deadlines.insert((time, Deadline::Instance(ix)));
        }
        ix
    }

    pub(in crate::engine) fn instance_halted(&mut self, ix: InstanceIx, why: &Halt, undo: bool) {
        self.forget_unstarted(ix);
        let drain = self.entry(ix).scope.siblings == Siblings::Drain && matches!(why, Halt::Failed { .. });
        // What is drained still has to be done in time.
        if !drain {
            self.drop_instance_deadline(ix);
            self.instance(ix).queue.clear();
        }
        self.instance(ix).undo_asked = undo;
        self.instance(ix).phase = InstancePhase::Halted { why: why.clone(), undo };
    }

    pub(in crate::engine) fn instance_ended(&mut self, ix: InstanceIx, end: &InstanceEnd) {
        self.drop_instance_deadline(ix);
        let now = self.now;
        let instance = self.instance(ix);
        let why = instance.halt().cloned();
        let outer = why == Some(Halt::Outer);
        instance.phase = InstancePhase::Ended { why, end: end.clone() };
        instance.ended = Some(now);
        let Some(parent) = instance.parent else { return };
        let more = self.more(parent);
        more.open_children -= 1;
        if end.status != RunStatus::Succeeded && !outer {
            more.failed_children += 1;
            if more.child_error.is_none() {
                more.child_error.clone_from(&end.error);
            }
        }
    }

    pub(in crate::engine) fn drop_instance_deadline(&mut self, ix: InstanceIx) {
        if let Some(time) = self.instance(ix).deadline.take() {
            self.state.deadlines.remove(&(time, Deadline::Instance(ix)));
        }
    }
}
