//! Compose: parallel, each, loop and call start instances and combine their results.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::start::evaluate_bindings;
use crate::{
    engine::{
        AttemptStopReason, Event, ExecutionError, HaltReason, InstanceIx, InstancePart, StepAt, StepOutcome, code,
        decide::{DecideContext, StepEnd},
        scope_env::build_run_value,
        state::null,
        transitions::StepPhase,
    },
    ir::{CallSpec, EachErrorPolicy, EachSpec, LoopSpec, LoopTest, RunStatus, StepKindSpec, TimeoutScope},
    limits,
    plan::ScopeIx,
};

impl DecideContext<'_> {
    /// Starts a composite that has a slot.
    pub(in crate::engine) fn enter_composite(&mut self, at: StepAt) {
        match &self.step(at).kind {
            StepKindSpec::Parallel(parallel) => {
                self.emit_step_entered(at);
                for lane in (0..).zip(&parallel.lanes).map(|(i, _)| i) {
                    self.start_part(at, InstancePart::Lane(lane), None, null());
                }
            }
            StepKindSpec::Each(each) => self.enter_each(at, each),
            StepKindSpec::Loop(repeat) => {
                self.emit_step_entered(at);
                self.start_next_pass(at, repeat);
            }
            StepKindSpec::Call(call) => self.enter_call(at, call),
            StepKindSpec::Work(_) | StepKindSpec::Gate(_) | StepKindSpec::Wait(_) | StepKindSpec::Branch(_) => {
                unreachable!("only composites are entered")
            }
        }
    }

    fn emit_step_entered(&mut self, at: StepAt) {
        let policy = &self.step(at).policy;
        let first = self.state.visit_state(at).is_some_and(|more| more.started.is_none());
        let timeout = policy.timeout.filter(|_| first || policy.timeout_per == TimeoutScope::Attempt);
        let deadline = timeout.map(|timeout| self.now.saturating_add(timeout));
        self.emit(Event::StepEntered { at, deadline });
    }

    fn start_part(&mut self, parent: StepAt, part: InstancePart, input: Option<Arc<Value>>, env: Arc<Value>) {
        let which = if let InstancePart::Lane(lane) = part { lane } else { 0 };
        let scope = self.scope_entry(parent.0).inner_scope(parent.1, which);
        let timeout = self.plan.definition.scope(scope).scope.timeout;
        let deadline = timeout.map(|timeout| self.now.saturating_add(timeout));
        let ix = InstanceIx(u32::try_from(self.state.instances.len()).expect("instances are limited by events"));
        self.emit(Event::InstanceStarted { parent, part, input, env, deadline });
        self.begin_instance(ix);
    }

    fn enter_each(&mut self, at: StepAt, each: &EachSpec) {
        let items = match each.over.eval(&self.env(at.0)) {
            Ok(items) => items,
            Err(error) => {
                let message = format!("its list cannot be evaluated: {error}");
                return self.fail_step(at, ExecutionError::invalid(code::EXPRESSION, message));
            }
        };
        let Some(count) = items.as_array().map(Vec::len) else {
            let message = format!("`{}` is not a list", each.over.source());
            return self.fail_step(at, ExecutionError::invalid(code::NOT_A_LIST, message));
        };
        if count > limits::ITEMS {
            let message = format!("the list has {count} items; the limit is {}", limits::ITEMS);
            return self.fail_step(at, ExecutionError::invalid(code::TOO_MANY_ITEMS, message));
        }
        self.emit(Event::StepExpanded { at, items: Arc::new(items) });
        self.emit_step_entered(at);
        self.start_next_items(at, each);
    }

    /// Starts items up to the allowed parallelism.
    fn start_next_items(&mut self, at: StepAt, each: &EachSpec) {
        let count = self.each_items(at).len();
        loop {
            let more = self.state.visit_state(at).expect("it was entered");
            let failing = each.errors == EachErrorPolicy::FailFast && more.failed_children > 0;
            let full = each.parallelism.is_some_and(|most| more.open_children >= most);
            if more.children.len() == count || failing || full || more.stopping.is_some() || !self.may_go_on(at) {
                break;
            }
            let i = u32::try_from(more.children.len()).expect("items are limited");
            self.start_part(at, InstancePart::Item(i), None, null());
        }
        self.conclude_if_over(at);
    }

    fn each_items(&self, at: StepAt) -> &[Value] {
        let items = self.state.visit_state(at).and_then(|more| more.items.as_ref());
        items.and_then(|items| items.as_array()).map_or(&[], Vec::as_slice)
    }

    /// Starts another pass, or ends the loop.
    fn start_next_pass(&mut self, at: StepAt, repeat: &LoopSpec) {
        let passes =
            u32::try_from(self.state.visit_state(at).expect("it was entered").children.len()).unwrap_or(u32::MAX);
        let unconditional = passes == 0 && repeat.test == LoopTest::After;
        let again = if unconditional { Ok(true) } else { self.should_repeat(at, repeat, passes == 0) };
        match again {
            Err(error) => self.fail_step(at, error),
            Ok(false) => self.conclude_if_over(at),
            Ok(true) if passes >= repeat.max => {
                let message = format!("its condition is still true after {passes} passes, the maximum");
                self.fail_or_retry(at, ExecutionError::non_retryable(code::LOOP_MAX, message), None);
            }
            Ok(true) => self.start_part(at, InstancePart::Pass(passes + 1), None, null()),
        }
    }

    fn should_repeat(&self, at: StepAt, repeat: &LoopSpec, first: bool) -> Result<bool, ExecutionError> {
        let mut env = self.env(at.0);
        env.before = first.then_some(at);
        match repeat.condition.eval_bool(&env) {
            Err(error) if first && error.is_not_yet() => Ok(true),
            Err(error) => {
                let message = format!("its condition cannot be evaluated: {error}");
                Err(ExecutionError::invalid(code::CONDITION, message))
            }
            Ok(again) => Ok(again),
        }
    }

    fn enter_call(&mut self, at: StepAt, call: &CallSpec) {
        let scope = self.scope_entry(at.0).inner_scope(at.1, 0);
        match self.evaluate_call_input(at, call, scope) {
            Err(error) => self.fail_step(at, error),
            Ok((input, env)) => {
                self.emit_step_entered(at);
                self.start_part(at, InstancePart::Call, Some(input), env);
            }
        }
    }

    fn evaluate_call_input(
        &self,
        at: StepAt,
        call: &CallSpec,
        scope: ScopeIx,
    ) -> Result<(Arc<Value>, Arc<Value>), ExecutionError> {
        let mut input = evaluate_bindings(&self.step(at).inputs, &self.env(at.0))?;
        let schema = &self.plan.definition.workflow_containing(scope).workflow.inputs;
        // An input without a value is absent for the called workflow, so that its default applies.
        if let Some(object) = input.as_object_mut() {
            object.retain(|_, value| !value.is_null());
        }
        schema.fill_defaults(&mut input);
        schema.check(&input).map_err(|error| {
            let step = &self.step(at).id;
            let called = &call.workflow;
            let message = format!("invalid input of workflow `{called}`, called by `{step}`: {error}");
            ExecutionError::invalid(code::INPUT_INVALID, message)
        })?;
        let start = self.state.start.as_ref().expect("the run was started");
        let started = self.state.instance(InstanceIx::ROOT).started;
        let env = self.evaluate_env(scope, &input, build_run_value(start, started))?;
        Ok((Arc::new(input), env))
    }

    /// Handles the end of an instance of this composite.
    pub(in crate::engine) fn handle_child_end(&mut self, at: StepAt, child: InstanceIx) {
        if self.state.step(at).phase != StepPhase::Inside {
            return;
        }
        let bad = self.state.instance(child).end().is_some_and(|end| end.status != RunStatus::Succeeded);
        match &self.step(at).kind {
            StepKindSpec::Parallel(_) => {
                if bad {
                    self.halt_children(at, &HaltReason::Outer);
                }
                self.conclude_if_over(at);
            }
            StepKindSpec::Each(each) => {
                if bad && each.errors == EachErrorPolicy::FailFast {
                    self.halt_children(at, &HaltReason::Outer);
                }
                self.start_next_items(at, each);
            }
            StepKindSpec::Loop(repeat) if !bad && self.may_go_on(at) && !self.is_overdue(at) => {
                self.start_next_pass(at, repeat)
            }
            _ => self.conclude_if_over(at),
        }
    }

    fn is_overdue(&self, at: StepAt) -> bool {
        self.state.visit_state(at).and_then(|more| more.stopping) == Some(AttemptStopReason::Timeout)
    }

    fn conclude_if_over(&mut self, at: StepAt) {
        if self.state.visit_state(at).is_some_and(|more| more.open_children == 0) {
            self.conclude_composite(at);
        }
    }

    /// Ends or retries a composite whose instances have all ended.
    fn conclude_composite(&mut self, at: StepAt) {
        let more = self.state.visit_state(at).expect("it was entered");
        let collects =
            matches!(&self.step(at).kind, StepKindSpec::Each(each) if each.errors == EachErrorPolicy::Collect);
        let outer = |ix: &InstanceIx| self.state.instance(*ix).halt_reason() == Some(&HaltReason::Outer);
        let cut_short = more.children.iter().any(outer) || self.has_unstarted_items(at);
        if self.is_overdue(at) {
            return self.time_out_composite(at);
        }
        if more.failed_children > 0 && !collects {
            let error = more
                .child_error
                .clone()
                .unwrap_or_else(|| ExecutionError::non_retryable(code::CANCELLED, "something inside was cancelled"));
            return self.fail_or_retry(at, error, None);
        }
        if cut_short {
            return self.end_step(at, StepEnd::from_outcome(StepOutcome::Cancelled));
        }
        let output = Arc::new(self.gather_output(at));
        match self.step(at).outputs.check(&output) {
            Ok(()) => self.end_step(at, StepEnd::from_output(output)),
            Err(error) => {
                let message = match &self.step(at).kind {
                    StepKindSpec::Call(call) => {
                        let (called, step) = (&call.workflow, &self.step(at).id);
                        format!("the output of `{called}` does not match what `{step}` declares: {error}")
                    }
                    _ => format!("its output does not match the declared outputs: {error}"),
                };
                self.fail_or_retry(at, ExecutionError::invalid(code::OUTPUT_INVALID, message), None);
            }
        }
    }

    /// True if a halt kept items from starting while a failed instance drained. A loop needs no such check: it has one
    /// pass at a time, and a failure or a halt shows in that pass.
    fn has_unstarted_items(&self, at: StepAt) -> bool {
        let started = self.state.visit_state(at).map_or(0, |more| more.children.len());
        matches!(self.step(at).kind, StepKindSpec::Each(_)) && started < self.each_items(at).len()
    }

    fn time_out_composite(&mut self, at: StepAt) {
        let retries = self.step(at).policy.timeout_per == TimeoutScope::Attempt;
        let error = self.timeout_error(at);
        if retries { self.fail_or_retry(at, error, None) } else { self.fail_step(at, error) }
    }

    /// Returns the output of a composite whose instances all succeeded.
    fn gather_output(&self, at: StepAt) -> Value {
        let more = self.state.visit_state(at).expect("it was entered");
        let output = |ix: &InstanceIx| self.state.instance(*ix).end().map_or(Value::Null, |end| (*end.output).clone());
        match &self.step(at).kind {
            StepKindSpec::Parallel(parallel) => {
                let lanes = parallel.lanes.iter().map(|lane| lane.id.to_string());
                Value::Object(lanes.zip(more.children.iter().map(output)).collect::<Map<_, _>>())
            }
            StepKindSpec::Each(each) if each.errors == EachErrorPolicy::Collect => {
                self.collect_item_results(&more.children)
            }
            StepKindSpec::Each(_) => Value::Array(more.children.iter().map(output).collect()),
            _ => more.children.last().map_or(Value::Null, output),
        }
    }

    fn collect_item_results(&self, children: &[InstanceIx]) -> Value {
        let mut failed = 0;
        let mut results = Vec::new();
        for (index, child) in children.iter().enumerate() {
            let Some(end) = self.state.instance(*child).end() else { continue };
            if end.status == RunStatus::Succeeded {
                results.push(json!({"index": index, "status": "succeeded", "value": *end.output}));
            } else {
                failed += 1;
                let message = end.error.as_ref().map_or("", |error| &error.message);
                results.push(json!({"index": index, "status": end.status.as_str(), "error": message}));
            }
        }
        let succeeded = results.len() - failed;
        json!({"results": results, "succeeded": succeeded, "failed": failed})
    }
}
