//! The run as a whole: how it starts, how it is decided, what is published, when it is closed.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use skein_core::{
    engine::{Event, InstanceIx, Publication, Route},
    ir::{HookWhen, RunStatus, Shape},
    time::Time,
};

use super::{Acceptor, Phase, Verdict, book::Inst, ensure};

impl Acceptor {
    pub(super) fn run_started(&mut self, event: &Event) -> Verdict {
        let Event::RunStarted { start, definition, parameters, env, deadline, publish } = event else {
            return Ok(());
        };
        ensure!(*definition == self.plan.definition.hash(), "it is another plan");
        ensure!(*parameters == self.plan.parameters, "it is given other parameters");
        let definition = self.plan.definition.clone();
        let root = definition.root();
        let entry = definition.scope(root.root);
        let right = entry.scope.timeout.map(|timeout| self.now.after(timeout));
        ensure!(*deadline == right, "its time should be up at {right:?}");
        let hooks = self.hooks(HookWhen::Start);
        ensure!(
            publish.iter().copied().collect::<BTreeSet<_>>() == hooks,
            "what starts is to be told to {hooks:?}"
        );
        let mut inst = Inst::new(root.root, InstanceIx::ROOT, entry.scope.steps.len());
        inst.cursor = matches!(entry.scope.shape, Shape::Routed { .. }).then_some(Route::Step(entry.start));
        inst.deadline = *deadline;
        inst.input = (**parameters).clone();
        self.instances.push(inst);
        self.publish = hooks;
        self.start = Some((**start).clone());
        self.phase = Phase::Going;
        self.right_env(env)
    }

    fn right_env(&mut self, env: &Value) -> Verdict {
        let definition = self.plan.definition.clone();
        let mut right = json!({});
        for (name, expr) in &definition.root().workflow.env {
            right[name.as_str()] =
                self.value(InstanceIx::ROOT, expr).map_err(|e| format!("an env is wrong: {e}"))?;
        }
        let none = definition.root().workflow.env.is_empty() && env.is_null();
        ensure!(none || right == *env, "its env should be {right}");
        self.inst_mut(InstanceIx::ROOT)?.env = env.clone();
        Ok(())
    }

    fn hooks(&self, when: HookWhen) -> BTreeSet<Publication> {
        let hooks = &self.plan.definition.root().workflow.hooks;
        (0..).zip(hooks).filter(|(_, hook)| hook.when == when).map(|(i, _)| Publication::Hook(i)).collect()
    }

    pub(super) fn run_decided(
        &mut self,
        status: RunStatus,
        output: &Value,
        degraded: bool,
        publish: &[Publication],
        retry: Option<Time>,
    ) -> Verdict {
        let root = self.inst(InstanceIx::ROOT)?;
        match &root.ended {
            Some(end) if self.status.is_none() => {
                ensure!(end.status == status, "its root ended as {}", end.status);
            }
            _ => self.may_be_over(InstanceIx::ROOT)?,
        }
        self.right_end(InstanceIx::ROOT, status, output, degraded)?;
        let over = |walk: &super::book::WalkBook| walk.over && walk.live.is_none();
        ensure!(self.walks.values().all(over), "something is still being undone");
        self.right_publications(status, publish, retry)?;
        self.publish.extend(publish);
        self.phase = Phase::Decided;
        self.status = Some(status);
        Ok(())
    }

    fn right_publications(&self, status: RunStatus, publish: &[Publication], retry: Option<Time>) -> Verdict {
        let good = status == RunStatus::Succeeded;
        let hooks = self.hooks(if good { HookWhen::Success } else { HookWhen::Failure });
        let other = self.hooks(if good { HookWhen::Failure } else { HookWhen::Success });
        for item in publish {
            match item {
                Publication::Hook(_) => ensure!(!other.contains(item), "that hook is for another end"),
                Publication::Retry => ensure!(retry.is_some(), "there is no retry"),
                Publication::Files | Publication::Context => {}
            }
        }
        // A run that someone cancelled is no failure that anyone must be told of.
        let told = hooks.iter().all(|hook| publish.contains(hook));
        ensure!(told || status == RunStatus::Cancelled || self.status.is_some(), "{hooks:?} are to be told");
        if retry.is_some() {
            self.may_retry(status)?;
            ensure!(publish.contains(&Publication::Retry), "a retry is to be published");
        } else if self.status.is_none() {
            ensure!(self.may_retry(status).is_err(), "a run with attempts left is to be retried");
        }
        Ok(())
    }

    fn may_retry(&self, status: RunStatus) -> Verdict {
        let policy = &self.plan.definition.root().workflow.scope.retry;
        let Some(policy) = policy else { return Err("the run is not retried".into()) };
        let attempt = self.start.as_ref().map_or(1, |start| start.attempt);
        ensure!(attempt < policy.attempts, "there are no attempts left");
        let kind = matches!(status, RunStatus::Failed | RunStatus::Undone)
            || (status == RunStatus::TimedOut && policy.on_timeout);
        ensure!(kind, "a run that ended as {status} is not retried");
        Ok(())
    }

    pub(super) fn closed(&mut self) -> Verdict {
        ensure!(self.phase == Phase::Decided, "the run is not decided, or closed already");
        ensure!(self.publish.is_empty(), "{:?} are still to be published", self.publish);
        self.phase = Phase::Closed;
        Ok(())
    }
}
