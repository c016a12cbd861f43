//! Start: of the run, of instances, and of attempts when a worker can be had.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};

use crate::{
    engine::{
        AttemptId, Error, Event, Given, Halt, InstanceIx, Outcome, Publication, Purse, Role, Skip, Start,
        StepAt, code,
        decide::{Decision, End},
        purses,
        scope_env::{about, about_run},
        state::null,
        transitions::Phase,
    },
    expr::{Env, Expr, Lookup, Root},
    ir::{Binding, BudgetMode, ErrorClass, HookWhen, Kind, Per, Worker},
    plan::ScopeIx,
};

impl Decision<'_> {
    pub(in crate::engine) fn start_run(&mut self, start: &Start) {
        if self.start_root(start) {
            self.begin(InstanceIx::ROOT);
        }
    }

    /// The root instance comes to be. Whether it can begin.
    pub(super) fn start_root(&mut self, start: &Start) -> bool {
        let plan = self.plan;
        let root = plan.definition.root();
        let (env, error) = match self.env_of(root.root, &plan.parameters, about_run(start, self.now)) {
            Ok(env) => (env, None),
            Err(error) => (null(), Some(error)),
        };
        let deadline = root.workflow.scope.timeout.map(|timeout| self.now.after(timeout));
        let publish = hooks(&root.workflow.hooks, HookWhen::Start);
        let (start, parameters) = (Box::new(start.clone()), plan.parameters.clone());
        let definition = plan.definition.hash();
        self.emit(Event::RunStarted { start, definition, parameters, env, deadline, publish });
        let begins = error.is_none();
        if let Some(error) = error {
            self.halt(InstanceIx::ROOT, Halt::Limit { error }, false);
        }
        begins
    }

    /// The values that expressions of a workflow read as `env`.
    pub(in crate::engine) fn env_of(
        &self,
        scope: ScopeIx,
        input: &Value,
        run: Value,
    ) -> Result<Arc<Value>, Error> {
        let exprs: &BTreeMap<String, Expr> = &self.plan.definition.workflow_of(scope).workflow.env;
        if exprs.is_empty() {
            return Ok(null());
        }
        let env = Outside { input, run, workflow: about(self.plan, scope) };
        let mut values = Map::new();
        for (name, expr) in exprs {
            let value = expr.eval(&env).map_err(|error| {
                Error::new(ErrorClass::Validation, code::EXPRESSION, format!("env `{name}`: {error}"))
            })?;
            values.insert(name.clone(), value);
        }
        Ok(Arc::new(Value::Object(values)))
    }

    /// The first steps of an instance arrive.
    pub(in crate::engine) fn begin(&mut self, ix: InstanceIx) {
        let entry = self.entry(ix);
        if entry.is_routed() {
            self.arrive_later(StepAt(ix, entry.start));
            return;
        }
        for (step, unmet) in (0..).zip(&entry.unmet) {
            if *unmet == 0 {
                self.arrive_later(StepAt(ix, step));
            }
        }
    }

    pub(in crate::engine) fn arrive(&mut self, at: StepAt) {
        // Two steps that ended together may both have found that this one waits for nothing more.
        let again = self.entry(at.0).is_routed() && self.state.step(at).phase == Phase::Done;
        let here = again || self.state.step(at).phase == Phase::Pending;
        if !here || !self.state.instance(at.0).is_going() {
            return;
        }
        let home = self.state.instance(at.0).home;
        let max = self.entry(home).scope.max_steps;
        if let Some(max) = max.filter(|max| self.state.instance(home).executed >= *max) {
            let message = format!("max_steps is {max}, and one more was to be executed");
            return self.break_off(home, Error::new(ErrorClass::NonRetryable, code::MAX_STEPS, message));
        }
        let step = self.step(at);
        if self.has_nothing_to_settle(at) {
            let output = Arc::new(step.outputs.defaults());
            return self.end_step(at, End { output, ..End::of(Outcome::Skipped(Skip::Condition)) });
        }
        if let Some(when) = &step.when {
            match when.test(&self.env(at.0)) {
                Ok(true) => {}
                Ok(false) => {
                    let output = Arc::new(step.outputs.defaults());
                    return self.end_step(at, End { output, ..End::of(Outcome::Skipped(Skip::Condition)) });
                }
                Err(error) => {
                    let message = format!("its condition cannot be evaluated: {error}");
                    return self.fail_step(at, Error::new(ErrorClass::Validation, code::CONDITION, message));
                }
            }
        }
        match &step.kind {
            Kind::Branch(branch) => self.choose(at, branch),
            Kind::Gate(gate) => self.open_gate(at, gate),
            Kind::Wait(wait) => self.open_wait(at, wait),
            Kind::Work(_) => match (&step.policy.denied, &step.policy.approval) {
                (Some(why), _) => self.deny(at, why),
                (None, Some(approval)) => self.ask_first(at, approval),
                (None, None) => self.emit(Event::StepReady { at }),
            },
            Kind::Parallel(_) | Kind::Each(_) | Kind::Loop(_) | Kind::Call(_) => {
                self.emit(Event::StepReady { at });
            }
        }
    }

    /// Starts the next attempt of a ready step, or finds out why it cannot be.
    pub(in crate::engine) fn start_attempt(&mut self, at: StepAt) {
        let main = self.state.more(at).is_some_and(|more| more.next.role == Role::Main);
        if main && self.over_budget(at) {
            return;
        }
        let (step, more) = (self.step(at), self.state.more(at).expect("a ready step was reached"));
        let Kind::Work(work) = &step.kind else { unreachable!("only work waits for a worker") };
        let (next, first) = (more.next, more.started.is_none());
        let attempt = AttemptId {
            at,
            visit: self.state.step(at).visit,
            iteration: next.iteration,
            role: next.role,
            attempt: more.attempts[next.role as usize] + 1,
        };
        let worker = match next.role {
            Role::Check => work.check.as_ref().map(|check| &check.worker),
            Role::Summary => work.summary.as_ref().map(|summary| &summary.worker),
            Role::Main | Role::Undo => Some(&work.worker),
        };
        let given = match (next.role, &more.given) {
            (Role::Main, Some(_)) => None,
            (Role::Main, None) => Some(self.given(at.0, &step.inputs, worker)),
            (_, given) => {
                let inputs = given.as_ref().map_or(Value::Null, |given| given.inputs.clone());
                Some(self.texts(at.0, worker).map(|texts| Given { inputs, texts }))
            }
        };
        let given = match given.transpose() {
            Ok(given) => given.map(Arc::new),
            Err(error) => return self.fail_step(at, error),
        };
        let timeout = step.policy.timeout.filter(|_| first && step.policy.timeout_per == Per::Step);
        let deadline = timeout.map(|timeout| self.now.after(timeout));
        self.grant -= 1;
        self.emit(Event::AttemptStarted { attempt, mode: next.mode, given, deadline });
    }

    /// What a worker is given: the inputs and its own texts, evaluated.
    pub(in crate::engine) fn given(
        &self,
        ix: InstanceIx,
        bindings: &[Binding],
        worker: Option<&Worker>,
    ) -> Result<Given, Error> {
        let inputs = bind(bindings, &self.env(ix))?;
        Ok(Given { inputs, texts: self.texts(ix, worker)? })
    }

    fn texts(&self, ix: InstanceIx, worker: Option<&Worker>) -> Result<Vec<Value>, Error> {
        texts(worker, &self.env(ix))
    }

    /// Whether a budget keeps the step from starting; if so, that has been dealt with.
    fn over_budget(&mut self, at: StepAt) -> bool {
        let stops = |purse: &Purse<'_>| purse.budget.mode != BudgetMode::Warn && purse.is_spent();
        let Some(purse) = purses(self.plan, self.state, at).into_iter().find(stops) else { return false };
        if purse.budget.mode == BudgetMode::Pause {
            let next = self.state.more(at).expect("a ready step was reached").next;
            self.hold(at, crate::ir::HoldReason::Budget, None, purse.question(), next);
        } else {
            self.fail_step(at, Error::new(ErrorClass::NonRetryable, code::BUDGET, purse.message()));
        }
        true
    }
}

/// The inputs of a step, evaluated and checked.
pub(super) fn bind(bindings: &[Binding], env: &dyn Env) -> Result<Value, Error> {
    let fail = |code, message| Err(Error::new(ErrorClass::Validation, code, message));
    let mut inputs = Map::new();
    for binding in bindings {
        let name = &binding.name;
        let value = match binding.value.eval(env) {
            Ok(value) => value,
            Err(error) => return fail(code::EXPRESSION, format!("input `{name}`: {error}")),
        };
        if value.is_null() && binding.required {
            return fail(
                code::INPUT_MISSING,
                format!("input `{name}` is required, and `{}` is null", binding.value.source()),
            );
        }
        if !value.is_null()
            && let Err(error) = binding.schema.check(&value)
        {
            return fail(code::INPUT_INVALID, format!("input `{name}`: {error}"));
        }
        inputs.insert(name.to_string(), value);
    }
    Ok(Value::Object(inputs))
}

pub(super) fn texts(worker: Option<&Worker>, env: &dyn Env) -> Result<Vec<Value>, Error> {
    let exprs = worker.map(Worker::expressions).unwrap_or_default();
    let evaluated = exprs.into_iter().map(|expr| expr.eval(env));
    evaluated.collect::<Result<_, _>>().map_err(|error| {
        Error::new(ErrorClass::Validation, code::EXPRESSION, format!("its instructions: {error}"))
    })
}

/// The hooks of a moment, by number.
pub(super) fn hooks(hooks: &[crate::ir::Hook], when: HookWhen) -> Vec<Publication> {
    (0..).zip(hooks).filter(|(_, hook)| hook.when == when).map(|(i, _)| Publication::Hook(i)).collect()
}

/// What can be read before a workflow has steps.
struct Outside<'a> {
    input: &'a Value,
    run: Value,
    workflow: Value,
}

impl Env for Outside<'_> {
    fn lookup(&self, root: &Root) -> Lookup<'_> {
        match root {
            Root::Input => Lookup::Found(std::borrow::Cow::Borrowed(self.input)),
            Root::Run => Lookup::Found(std::borrow::Cow::Borrowed(&self.run)),
            Root::Workflow => Lookup::Found(std::borrow::Cow::Borrowed(&self.workflow)),
            _ => Lookup::Absent,
        }
    }
}
