//! The run as a whole: its start, its decision, its publications and its close.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use skein_core::{
    engine::{CursorRoute, Event, InstanceIx, Publication},
    ir::{HookTiming, RunStatus, ScopeShape},
    time::Timestamp,
};

use super::{Acceptor, AcceptorPhase, RuleResult, ensure, state::AcceptorInstance};

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
        let mut inst = AcceptorInstance::new(root.root, InstanceIx::ROOT, entry.scope.steps.len());
        inst.cursor = matches!(entry.scope.shape, ScopeShape::Routed { .. }).then_some(CursorRoute::Step(entry.start));
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
