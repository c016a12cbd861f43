//! Instance events: started, halted, ended, reused.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use crate::{
    engine::{
        HaltReason, InstanceEnd, InstanceIx, InstancePart, InstanceReused, Publication, RunStart, StepAt,
        fold::{StateFold, new_steps},
        state::{Deadline, InstancePhase, InstanceState, RunPhase, null},
        transitions::StepPhase,
    },
    ir::{RunImpact, RunStatus, SiblingPolicy},
    plan::ScopeIx,
    time::Timestamp,
};

impl StateFold<'_> {
    pub(in crate::engine) fn apply_run_started(
        &mut self,
        start: &RunStart,
        parameters: &Arc<Value>,
        env: &Arc<Value>,
        deadline: Option<Timestamp>,
        publish: &[Publication],
    ) {
        self.state.phase = RunPhase::Going;
        self.state.start = Some(Box::new(start.clone()));
        self.state.commands.publish.extend(publish);
        let root = self.plan.definition.root().root;
        self.add_instance(root, None, None, parameters.clone(), env.clone(), deadline);
    }

    pub(in crate::engine) fn apply_instance_started(
        &mut self,
        parent: StepAt,
        part: InstancePart,
        input: Option<&Arc<Value>>,
        env: &Arc<Value>,
        deadline: Option<Timestamp>,
    ) {
        let scope = self.part_scope(parent, part);
        let input = input.cloned().unwrap_or_else(null);
        let ix = self.add_instance(scope, Some(parent), Some(part), input, env.clone(), deadline);
        let more = self.visit_state_mut(parent);
        more.children.push(ix);
        more.open_children += 1;
    }

    /// Adds an instance that has already ended. Its parent step enters phase `Inside` and ends with its own
    /// `StepReused` event.
    pub(in crate::engine) fn apply_instance_reused(&mut self, reused: &InstanceReused) {
        let InstanceReused { parent, part, input, env, why, end } = reused;
        self.begin_visit(*parent);
        if self.state.step(*parent).phase != StepPhase::Inside {
            self.set_phase(*parent, StepPhase::Inside);
        }
        let input = input.clone().unwrap_or_else(null);
        let scope = self.part_scope(*parent, *part);
        let ix = self.add_instance(scope, Some(*parent), Some(*part), input, env.clone(), None);
        self.visit_state_mut(*parent).children.push(ix);
        let now = self.now;
        let instance = self.instance_mut(ix);
        instance.phase = InstancePhase::Ended { why: why.clone(), end: end.clone() };
        instance.ended = Some(now);
    }

    /// Returns the scope of a part of a composite.
    fn part_scope(&self, parent: StepAt, part: InstancePart) -> ScopeIx {
        let which = if let InstancePart::Lane(lane) = part { lane } else { 0 };
        self.scope_entry(parent.0).inner_scope(parent.1, which)
    }

    pub(in crate::engine) fn add_instance(
        &mut self,
        scope: ScopeIx,
        parent: Option<StepAt>,
        part: Option<InstancePart>,
        input: Arc<Value>,
        env: Arc<Value>,
        deadline: Option<Timestamp>,
    ) -> InstanceIx {
        let ix = InstanceIx(u32::try_from(self.state.instances.len()).expect("instances are limited"));
        let home = match (parent, part) {
            (Some(parent), Some(InstancePart::Lane(_) | InstancePart::Item(_) | InstancePart::Pass(_))) => {
                self.state.instance(parent.0).home
            }
            _ => ix,
        };
        let steps = new_steps(self.plan.definition.scope(scope));
        let open = u32::try_from(steps.len()).expect("steps are limited");
        self.state.phases[StepPhase::Pending as usize] += open;
        self.state.instances.push(InstanceState {
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
            verdict: RunImpact::Clean,
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

    pub(in crate::engine) fn apply_instance_halted(&mut self, ix: InstanceIx, why: &HaltReason, undo: bool) {
        self.forget_unstarted(ix);
        let drain =
            self.scope_entry(ix).scope.siblings == SiblingPolicy::Drain && matches!(why, HaltReason::Failed { .. });
        // An instance that drains keeps its deadline.
        if !drain {
            self.drop_instance_deadline(ix);
            self.instance_mut(ix).queue.clear();
        }
        self.instance_mut(ix).undo_asked = undo;
        self.instance_mut(ix).phase = InstancePhase::Halted { why: why.clone(), undo };
    }

    pub(in crate::engine) fn apply_instance_ended(&mut self, ix: InstanceIx, end: &InstanceEnd) {
        self.drop_instance_deadline(ix);
        let now = self.now;
        let instance = self.instance_mut(ix);
        let why = instance.halt_reason().cloned();
        let outer = why == Some(HaltReason::Outer);
        instance.phase = InstancePhase::Ended { why, end: end.clone() };
        instance.ended = Some(now);
        let Some(parent) = instance.parent else { return };
        let more = self.visit_state_mut(parent);
        more.open_children -= 1;
        if end.status != RunStatus::Succeeded && !outer {
            more.failed_children += 1;
            if more.child_error.is_none() {
                more.child_error.clone_from(&end.error);
            }
        }
    }

    pub(in crate::engine) fn drop_instance_deadline(&mut self, ix: InstanceIx) {
        if let Some(time) = self.instance_mut(ix).deadline.take() {
            self.state.deadlines.remove(&(time, Deadline::Instance(ix)));
        }
    }
}
