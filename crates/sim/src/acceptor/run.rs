//! The run as a whole: its start, its decision, its publications and its close; and results reused from another run,
//! which are allowed only before any other event, only if the step could have ended that way, and never for a step that
//! failed its run.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use skein_core::{
    engine::{
        CursorRoute, Event, InstanceIx, InstancePart, InstanceReused, Publication, SkipReason, StepAt, StepOutcome,
        StepReused,
    },
    ir::{HookTiming, OutcomeAction, OutcomeEffect, RunImpact as Worst, RunStatus, StepKindSpec},
    time::Timestamp,
};

use crate::acceptor::{
    Acceptor, AcceptorPhase, RuleResult, ensure,
    state::{AcceptorInstance, AcceptorStepPhase},
};

impl Acceptor {
    pub(super) fn accept_run_started(&mut self, event: &Event) -> RuleResult {
        let Event::RunStarted { start, definition, parameters, env, deadline, publish, rulings } = event else {
            return Ok(());
        };
        ensure!(*definition == self.plan.definition.hash(), "the plan is another one");
        ensure!(*parameters == self.plan.parameters, "the parameters differ from the plan's");
        ensure!(rulings == self.plan.definition.rulings(), "the rulings differ from the plan's");
        let definition = self.plan.definition.clone();
        let root = definition.root();
        let entry = definition.scope(root.root);
        let right = entry.scope.timeout.map(|timeout| self.now.saturating_add(timeout));
        ensure!(*deadline == right, "its deadline should be {right:?}");
        let hooks = self.list_hooks(HookTiming::Start);
        ensure!(publish.iter().copied().collect::<BTreeSet<_>>() == hooks, "the start is to be published to {hooks:?}");
        let mut inst = AcceptorInstance::new(&self.plan, root.root, InstanceIx::ROOT);
        inst.deadline = *deadline;
        inst.input = (**parameters).clone();
        self.instances.push(inst);
        self.publish = hooks;
        self.start = Some((**start).clone());
        self.phase = AcceptorPhase::Going;
        self.check_env(env)
    }

    fn check_env(&mut self, env: &Value) -> RuleResult {
        let definition = self.plan.definition.clone();
        let mut right = json!({});
        for (name, expr) in &definition.root().workflow.env {
            right[name.as_str()] =
                self.evaluate_expr(InstanceIx::ROOT, expr).map_err(|e| format!("an env failed: {e}"))?;
        }
        let none = definition.root().workflow.env.is_empty() && env.is_null();
        ensure!(none || right == *env, "its env should be {right}");
        self.instance_mut(InstanceIx::ROOT)?.env = env.clone();
        Ok(())
    }

    fn list_hooks(&self, when: HookTiming) -> BTreeSet<Publication> {
        let hooks = &self.plan.definition.root().workflow.hooks;
        (0..).zip(hooks).filter(|(_, hook)| hook.when == when).map(|(i, _)| Publication::Hook(i)).collect()
    }

    pub(super) fn accept_run_decided(
        &mut self,
        status: RunStatus,
        output: &Value,
        degraded: bool,
        publish: &[Publication],
        retry: Option<Timestamp>,
    ) -> RuleResult {
        let root = self.instance(InstanceIx::ROOT)?;
        match &root.ended {
            Some(end) if self.status.is_none() => {
                ensure!(end.status == status, "its root ended as {}", end.status);
            }
            _ => self.may_be_over(InstanceIx::ROOT)?,
        }
        self.check_instance_end(InstanceIx::ROOT, status, output, degraded)?;
        let over = |walk: &super::state::AcceptorWalk| walk.over && walk.live.is_none();
        ensure!(self.walks.values().all(over), "something is still being undone");
        self.check_publications(status, publish, retry)?;
        self.publish.extend(publish);
        self.phase = AcceptorPhase::Decided;
        self.status = Some(status);
        Ok(())
    }

    fn check_publications(&self, status: RunStatus, publish: &[Publication], retry: Option<Timestamp>) -> RuleResult {
        let good = status == RunStatus::Succeeded;
        let hooks = self.list_hooks(if good { HookTiming::Success } else { HookTiming::Failure });
        let other = self.list_hooks(if good { HookTiming::Failure } else { HookTiming::Success });
        for item in publish {
            match item {
                Publication::Hook(_) => ensure!(!other.contains(item), "that hook is for another status"),
                Publication::Retry => ensure!(retry.is_some(), "there is no retry"),
                Publication::Files | Publication::Context => {}
            }
        }
        // A run that a person cancelled is not a failure, so its failure hooks need not be published.
        let told = hooks.iter().all(|hook| publish.contains(hook));
        ensure!(told || status == RunStatus::Cancelled || self.status.is_some(), "{hooks:?} are missing");
        if retry.is_some() {
            self.may_retry_run(status)?;
            ensure!(publish.contains(&Publication::Retry), "the retry must be published");
        } else if self.status.is_none() {
            ensure!(self.may_retry_run(status).is_err(), "a run with attempts left must be retried");
        }
        Ok(())
    }

    fn may_retry_run(&self, status: RunStatus) -> RuleResult {
        let policy = &self.plan.definition.root().workflow.scope.retry;
        let Some(policy) = policy else { return Err("the run has no retry policy".into()) };
        let attempt = self.start.as_ref().map_or(1, |start| start.attempt);
        ensure!(attempt < policy.attempts, "there are no attempts left");
        let kind = matches!(status, RunStatus::Failed | RunStatus::Undone)
            || (status == RunStatus::TimedOut && policy.on_timeout);
        ensure!(kind, "a run that ended as {status} is not retried");
        Ok(())
    }

    pub(super) fn accept_closed(&mut self) -> RuleResult {
        ensure!(self.phase == AcceptorPhase::Decided, "the run is not decided, or closed already");
        ensure!(self.publish.is_empty(), "{:?} are still to be published", self.publish);
        self.phase = AcceptorPhase::Closed;
        Ok(())
    }
}

impl Acceptor {
    pub(super) fn accept_instance_reused(&mut self, reused: &InstanceReused) -> RuleResult {
        let InstanceReused { parent, part, input, env, why, end } = reused;
        ensure!(self.reuses, "a run reuses results only before its first other event");
        if self.step_state(*parent)?.at != AcceptorStepPhase::Inside {
            self.check_is_next(*parent)?;
            self.count_execution(*parent)?;
            self.step_state_mut(*parent)?.at = AcceptorStepPhase::Inside;
        }
        let kind = &self.step_definition(*parent)?.kind;
        let fits = matches!(
            (kind, part),
            (StepKindSpec::Parallel(_), InstancePart::Lane(_))
                | (StepKindSpec::Each(_), InstancePart::Item(_))
                | (StepKindSpec::Loop(_), InstancePart::Pass(_))
                | (StepKindSpec::Call(_), InstancePart::Call)
        );
        ensure!(fits, "the step has no such part");
        let mut inst = self.new_child(*parent, *part)?;
        inst.input = input.as_deref().cloned().unwrap_or_default();
        inst.env = (**env).clone();
        inst.halts.extend(why.clone());
        inst.ended = Some(end.clone());
        self.add_child(*parent, inst)
    }

    pub(super) fn accept_step_reused(&mut self, reused: &StepReused) -> RuleResult {
        let StepReused { at, outcome, output, error, effect, route, items, settler, .. } = reused;
        ensure!(self.reuses, "a run reuses results only before its first other event");
        self.check_reuse(reused)?;
        if at.0 == InstanceIx::ROOT {
            ensure!(is_reusable_end(*outcome, *effect), "the step failed its run or was cancelled");
        }
        if self.step_state(*at)?.at != AcceptorStepPhase::Inside {
            self.check_is_next(*at)?;
            if !matches!(outcome, StepOutcome::Skipped(SkipReason::Upstream(_))) {
                self.count_execution(*at)?;
            }
        }
        self.step_state_mut(*at)?.items = items.as_deref().cloned();
        let list = items.as_deref().and_then(|items| items.as_array()).cloned().unwrap_or_default();
        for child in self.step_state(*at)?.children.clone() {
            let inst = self.instance_mut(child)?;
            if let Some(InstancePart::Item(i)) = inst.part {
                inst.item = list.get(i as usize).map(|item| (item.clone(), i));
            }
        }
        let routed = self.instance(at.0)?.cursor.is_some();
        self.note_step_end(*at, *outcome, output, error.as_ref(), *effect, *settler)?;
        if routed {
            self.instance_mut(at.0)?.cursor = Some(route.unwrap_or(CursorRoute::End));
        }
        Ok(())
    }

    /// Checks that a reused end has the right effect. A conflict resolver is reused after the steps whose conflicts it
    /// resolves, so their ends are known by then.
    fn check_reuse(&self, reused: &StepReused) -> RuleResult {
        let StepReused { at, outcome, effect, settler, .. } = reused;
        if *outcome == StepOutcome::Cancelled {
            return Ok(());
        }
        if let Some(by) = settler {
            ensure!(self.find_conflict_resolver(*at) == Some(*by), "another step resolves its conflicts");
            ensure!(*effect == OutcomeEffect::GO_ON, "a resolved conflict must not affect the run");
            return Ok(());
        }
        let right = self.plain_effect(*at, *outcome)?;
        ensure!(*effect == right, "the effect should be {right:?}");
        Ok(())
    }

    /// Checks that the step can be the next one to have a result.
    fn check_is_next(&self, at: StepAt) -> RuleResult {
        let inst = self.instance(at.0)?;
        match inst.cursor {
            Some(cursor) => ensure!(cursor == CursorRoute::Step(at.1), "the cursor is at {cursor:?}"),
            None => ensure!(self.step_state(at)?.at == AcceptorStepPhase::Pending, "the step has a result already"),
        }
        Ok(())
    }
}

/// True if a run continues after this end and does not fail because of it.
fn is_reusable_end(outcome: StepOutcome, effect: OutcomeEffect) -> bool {
    outcome != StepOutcome::Cancelled && effect.then == OutcomeAction::GoOn && effect.verdict != Worst::Failed
}
