//! Start: starts the run, anew or as a fork, its instances, and attempts when a worker is available.

use std::{borrow::Cow, sync::Arc};

use serde_json::{Map, Value};

use crate::{
    engine::{
        AttemptId, AttemptInput, AttemptRole, BudgetUsage, Event, ExecutionError, HaltReason, InstanceIx, Publication,
        ReusedResult, RunStart, SkipReason, StepAt, StepOutcome, code,
        decide::{DecideContext, PendingConsequence, StepEnd},
        find_budgets,
        scope_env::{build_run_value, build_workflow_value},
        state::null,
        transitions::StepPhase,
    },
    expr::{ExprEnv, ReferenceRoot, RootLookup},
    ir::{BudgetMode, HoldReason, HookTiming, InputBinding, StepKindSpec, TimeoutScope, WorkerSpec, WorkflowHook},
    plan::ScopeIx,
};

impl DecideContext<'_> {
    pub(in crate::engine) fn start_run(&mut self, start: &RunStart) {
        if self.start_root(start) {
            self.begin_instance(InstanceIx::ROOT);
        }
    }

    pub(in crate::engine) fn fork_run(&mut self, start: &RunStart, reused: &[ReusedResult]) {
        if !self.start_root(start) {
            return;
        }
        for reused in reused {
            self.emit(Event::from(reused.clone()));
        }
        let root = InstanceIx::ROOT;
        let steps = (0..).zip(&self.state.instance(root).steps);
        let over: Vec<StepAt> =
            steps.filter(|(_, step)| step.phase == StepPhase::Done).map(|(i, _)| StepAt(root, i)).collect();
        match over.first() {
            Some(at) if self.scope_entry(root).is_routed() => self.move_cursor(*at),
            // Steps without dependencies, and steps whose dependencies have all ended.
            _ => {
                self.begin_instance(root);
                over.into_iter().for_each(|at| self.defer_consequence(PendingConsequence::StepEnded(at)));
            }
        }
    }

    /// Creates the root instance. Returns false if its `env` cannot be evaluated.
    fn start_root(&mut self, start: &RunStart) -> bool {
        let plan = self.plan;
        let root = plan.definition.root();
        let (env, error) = match self.evaluate_env(root.root, &plan.parameters, build_run_value(start, self.now)) {
            Ok(env) => (env, None),
            Err(error) => (null(), Some(error)),
        };
        let deadline = root.workflow.scope.timeout.map(|timeout| self.now.saturating_add(timeout));
        let publish = select_hooks(&root.workflow.hooks, HookTiming::Start);
        let (start, parameters) = (Box::new(start.clone()), plan.parameters.clone());
        let (definition, rulings) = (plan.definition.hash(), plan.definition.rulings().clone());
        self.emit(Event::RunStarted { start, definition, parameters, env, deadline, publish, rulings });
        let begins = error.is_none();
        if let Some(error) = error {
            self.halt_instance(InstanceIx::ROOT, HaltReason::Limit { error }, false);
        }
        begins
    }

    /// Evaluates the values that expressions of a workflow read as `env`.
    pub(in crate::engine) fn evaluate_env(
        &self,
        scope: ScopeIx,
        input: &Value,
        run: Value,
    ) -> Result<Arc<Value>, ExecutionError> {
        let exprs = &self.plan.definition.workflow_containing(scope).workflow.env;
        if exprs.is_empty() {
            return Ok(null());
        }
        let env = WorkflowEnv { input, run, workflow: build_workflow_value(self.plan, scope) };
        let mut values = Map::new();
        for (name, expr) in exprs {
            let value = expr
                .eval(&env)
                .map_err(|error| ExecutionError::invalid(code::EXPRESSION, format!("env `{name}`: {error}")))?;
            values.insert(name.clone(), value);
        }
        Ok(Arc::new(Value::Object(values)))
    }

    /// Queues the arrival at the first steps of an instance.
    pub(in crate::engine) fn begin_instance(&mut self, ix: InstanceIx) {
        let entry = self.scope_entry(ix);
        if entry.is_routed() {
            self.defer_arrival(StepAt(ix, entry.start));
            return;
        }
        for (step, unmet) in (0..).zip(&entry.unmet) {
            if *unmet == 0 {
                self.defer_arrival(StepAt(ix, step));
            }
        }
    }

    pub(in crate::engine) fn arrive_at_step(&mut self, at: StepAt) {
        // Two steps that ended together may both have queued this arrival.
        let again = self.scope_entry(at.0).is_routed() && self.state.step(at).phase == StepPhase::Done;
        let here = again || self.state.step(at).phase == StepPhase::Pending;
        if !here || !self.state.instance(at.0).is_going() {
            return;
        }
        let home = self.state.instance(at.0).home;
        let max = self.scope_entry(home).scope.max_steps;
        if let Some(max) = max.filter(|max| self.state.instance(home).executed >= *max) {
            let message = format!("max_steps is {max}, and one more was to be executed");
            return self.halt_over_limit(home, ExecutionError::non_retryable(code::MAX_STEPS, message));
        }
        let step = self.step(at);
        if self.has_nothing_to_resolve(at) {
            return self.skip_step(at);
        }
        if let Some(when) = &step.when {
            match when.eval_bool(&self.env(at.0)) {
                Ok(true) => {}
                Ok(false) => return self.skip_step(at),
                Err(error) => {
                    let message = format!("its condition cannot be evaluated: {error}");
                    return self.fail_step(at, ExecutionError::invalid(code::CONDITION, message));
                }
            }
        }
        match &step.kind {
            StepKindSpec::Branch(branch) => self.choose_branch(at, branch),
            StepKindSpec::Gate(gate) => self.open_gate(at, gate),
            StepKindSpec::Wait(wait) => self.open_wait(at, wait),
            StepKindSpec::Work(_) => match (&step.policy.denied, &step.policy.approval) {
                (Some(why), _) => self.deny_start(at, why),
                (None, Some(approval)) => self.hold_for_approval(at, approval),
                (None, None) => self.emit(Event::StepReady { at }),
            },
            StepKindSpec::Parallel(_) | StepKindSpec::Each(_) | StepKindSpec::Loop(_) | StepKindSpec::Call(_) => {
                self.emit(Event::StepReady { at });
            }
        }
    }

    /// Skips a step whose condition is false. Dependents continue with the declared default outputs.
    fn skip_step(&mut self, at: StepAt) {
        let output = Arc::new(self.step(at).outputs.default_object());
        let skipped = StepEnd::from_outcome(StepOutcome::Skipped(SkipReason::Condition));
        self.end_step(at, StepEnd { output, ..skipped });
    }

    /// Starts the next attempt of a ready step, or holds or fails the step if it cannot start.
    pub(in crate::engine) fn start_attempt(&mut self, at: StepAt) {
        let main = self.state.visit_state(at).is_some_and(|more| more.next.role == AttemptRole::Main);
        if main && self.enforce_budget(at) {
            return;
        }
        let (step, more) = (self.step(at), self.state.visit_state(at).expect("a ready step was reached"));
        let StepKindSpec::Work(work) = &step.kind else { unreachable!("only work waits for a worker") };
        let (next, first) = (more.next, more.started.is_none());
        let attempt = AttemptId {
            at,
            visit: self.state.step(at).visit,
            iteration: next.iteration,
            role: next.role,
            attempt: more.attempts[next.role as usize] + 1,
        };
        let worker = match next.role {
            AttemptRole::Check => work.check.as_ref().map(|check| &check.worker),
            AttemptRole::Summary => work.summary.as_ref().map(|summary| &summary.worker),
            AttemptRole::Main | AttemptRole::Undo => Some(&work.worker),
        };
        let given = match (next.role, &more.given) {
            (AttemptRole::Main, Some(_)) => None,
            (AttemptRole::Main, None) => Some(evaluate_attempt_input(&step.inputs, worker, &self.env(at.0))),
            (_, given) => {
                let inputs = given.as_ref().map_or(Value::Null, |given| given.inputs.clone());
                Some(evaluate_texts(worker, &self.env(at.0)).map(|texts| AttemptInput { inputs, texts }))
            }
        };
        let given = match given.transpose() {
            Ok(given) => given.map(Arc::new),
            Err(error) => return self.fail_step(at, error),
        };
        let timeout = step.policy.timeout.filter(|_| first && step.policy.timeout_per == TimeoutScope::Step);
        let deadline = timeout.map(|timeout| self.now.saturating_add(timeout));
        self.grant -= 1;
        self.emit(Event::AttemptStarted { attempt, mode: next.mode, given, deadline });
    }

    /// Holds or fails a step whose budget is spent. Returns true if it did.
    fn enforce_budget(&mut self, at: StepAt) -> bool {
        let stops = |usage: &BudgetUsage<'_>| usage.budget.mode != BudgetMode::Warn && usage.is_spent();
        let Some(usage) = find_budgets(self.plan, self.state, at).into_iter().find(stops) else {
            return false;
        };
        if usage.budget.mode == BudgetMode::Pause {
            let next = self.state.visit_state(at).expect("a ready step was reached").next;
            self.hold_step(at, HoldReason::Budget, None, usage.renewal_question(), next);
        } else {
            self.fail_step(at, ExecutionError::non_retryable(code::BUDGET, usage.message()));
        }
        true
    }
}

/// Evaluates and checks the inputs of a step.
pub(super) fn evaluate_bindings(bindings: &[InputBinding], env: &dyn ExprEnv) -> Result<Value, ExecutionError> {
    let fail = |code, message: String| Err(ExecutionError::invalid(code, message));
    let mut inputs = Map::new();
    for binding in bindings {
        let name = &binding.name;
        let value = match binding.value.eval(env) {
            Ok(value) => value,
            Err(error) => return fail(code::EXPRESSION, format!("input `{name}`: {error}")),
        };
        if value.is_null() && binding.required {
            let source = binding.value.source();
            return fail(code::INPUT_MISSING, format!("input `{name}` is required, and `{source}` is null"));
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

/// Evaluates the input of a worker: the bound inputs and its own texts.
fn evaluate_attempt_input(
    bindings: &[InputBinding],
    worker: Option<&WorkerSpec>,
    env: &dyn ExprEnv,
) -> Result<AttemptInput, ExecutionError> {
    Ok(AttemptInput { inputs: evaluate_bindings(bindings, env)?, texts: evaluate_texts(worker, env)? })
}

pub(super) fn evaluate_texts(worker: Option<&WorkerSpec>, env: &dyn ExprEnv) -> Result<Vec<Value>, ExecutionError> {
    let exprs = worker.map(WorkerSpec::expressions).unwrap_or_default();
    let evaluated = exprs.into_iter().map(|expr| expr.eval(env));
    evaluated
        .collect::<Result<_, _>>()
        .map_err(|error| ExecutionError::invalid(code::EXPRESSION, format!("its instructions: {error}")))
}

/// Returns the hooks with this timing, by number.
pub(super) fn select_hooks(hooks: &[WorkflowHook], when: HookTiming) -> Vec<Publication> {
    (0..).zip(hooks).filter(|(_, hook)| hook.when == when).map(|(i, _)| Publication::Hook(i)).collect()
}

/// The environment that exists before a workflow has steps.
struct WorkflowEnv<'a> {
    input: &'a Value,
    run: Value,
    workflow: Value,
}

impl ExprEnv for WorkflowEnv<'_> {
    fn lookup(&self, root: &ReferenceRoot) -> RootLookup<'_> {
        RootLookup::Found(Cow::Borrowed(match root {
            ReferenceRoot::Input => self.input,
            ReferenceRoot::Run => &self.run,
            ReferenceRoot::Workflow => &self.workflow,
            _ => return RootLookup::Absent,
        }))
    }
}
