//! Compose: parallel, each, loop and call start instances and make something of how those end.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::start::bind;
use crate::{
    engine::{
        Error, Event, Halt, InstanceIx, Outcome, Part, StepAt, Stop, code,
        decide::{Decision, End},
        scope_env::about_run,
        state::null,
        transitions::Phase,
    },
    ir::{Call, Each, EachErrors, ErrorClass, Kind, Loop, LoopTest, Per, RunStatus},
    limits,
    plan::ScopeIx,
};

impl Decision<'_> {
    /// A composite that has its slot begins.
    pub(in crate::engine) fn enter(&mut self, at: StepAt) {
        match &self.step(at).kind {
            Kind::Parallel(parallel) => {
                self.entered(at);
                for lane in (0..).zip(&parallel.lanes).map(|(i, _)| i) {
                    self.start_part(at, Part::Lane(lane), None, null());
                }
            }
            Kind::Each(each) => self.enter_each(at, each),
            Kind::Loop(repeat) => {
                self.entered(at);
                self.next_pass(at, repeat);
            }
            Kind::Call(call) => self.enter_call(at, call),
            Kind::Work(_) | Kind::Gate(_) | Kind::Wait(_) | Kind::Branch(_) => {
                unreachable!("only composites are entered")
            }
        }
    }

    fn entered(&mut self, at: StepAt) {
        let policy = &self.step(at).policy;
        let first = self.state.more(at).is_some_and(|more| more.started.is_none());
        let timeout = policy.timeout.filter(|_| first || policy.timeout_per == Per::Attempt);
        let deadline = timeout.map(|timeout| self.now.after(timeout));
        self.emit(Event::StepEntered { at, deadline });
    }

    fn start_part(&mut self, parent: StepAt, part: Part, input: Option<Arc<Value>>, env: Arc<Value>) {
        let which = if let Part::Lane(lane) = part { lane } else { 0 };
        let scope = self.entry(parent.0).inner(parent.1, which);
        let timeout = self.plan.definition.scope(scope).scope.timeout;
        let deadline = timeout.map(|timeout| self.now.after(timeout));
        let ix =
            InstanceIx(u32::try_from(self.state.instances.len()).expect("instances are limited by events"));
        self.emit(Event::InstanceStarted { parent, part, input, env, deadline });
        self.begin(ix);
    }

    fn enter_each(&mut self, at: StepAt, each: &Each) {
        let items = match each.over.eval(&self.env(at.0)) {
            Ok(items) => items,
            Err(error) => {
                let message = format!("its list cannot be evaluated: {error}");
                return self.fail_step(at, Error::new(ErrorClass::Validation, code::EXPRESSION, message));
            }
        };
        let Some(count) = items.as_array().map(Vec::len) else {
            let message = format!("`{}` is not a list", each.over.source());
            return self.fail_step(at, Error::new(ErrorClass::Validation, code::NOT_A_LIST, message));
        };
        if count > limits::ITEMS {
            let message = format!("the list has {count} items, and {} is the most", limits::ITEMS);
            return self.fail_step(at, Error::new(ErrorClass::Validation, code::TOO_MANY_ITEMS, message));
        }
        self.emit(Event::StepExpanded { at, items: Arc::new(items) });
        self.entered(at);
        self.next_items(at, each);
    }

    /// Starts items while there are any and they may be open.
    fn next_items(&mut self, at: StepAt, each: &Each) {
        let count = self.items(at).len();
        loop {
            let more = self.state.more(at).expect("it was entered");
            let failing = each.errors == EachErrors::FailFast && more.failed_children > 0;
            let full = each.parallelism.is_some_and(|most| more.open_children >= most);
            if more.children.len() == count
                || failing
                || full
                || more.stopping.is_some()
                || !self.may_go_on(at)
            {
                break;
            }
            let i = u32::try_from(more.children.len()).expect("items are limited");
            self.start_part(at, Part::Item(i), None, null());
        }
        self.conclude_if_over(at);
    }

    fn items(&self, at: StepAt) -> &[Value] {
        let items = self.state.more(at).and_then(|more| more.items.as_ref());
        items.and_then(|items| items.as_array()).map_or(&[], Vec::as_slice)
    }

    /// Another pass, or the end of the loop.
    fn next_pass(&mut self, at: StepAt, repeat: &Loop) {
        let passes =
            u32::try_from(self.state.more(at).expect("it was entered").children.len()).unwrap_or(u32::MAX);
        let unconditional = passes == 0 && repeat.test == LoopTest::After;
        let again = if unconditional { Ok(true) } else { self.repeats(at, repeat, passes == 0) };
        match again {
            Err(error) => self.fail_step(at, error),
            Ok(false) => self.conclude_if_over(at),
            Ok(true) if passes >= repeat.max => {
                let message = format!("its condition still holds after {passes} passes, which is the most");
                self.fail_or_retry(at, Error::new(ErrorClass::NonRetryable, code::LOOP_MAX, message), None);
            }
            Ok(true) => self.start_part(at, Part::Pass(passes + 1), None, null()),
        }
    }

    fn repeats(&self, at: StepAt, repeat: &Loop, first: bool) -> Result<bool, Error> {
        let mut env = self.env(at.0);
        env.before = first.then_some(at);
        match repeat.condition.test(&env) {
            Err(error) if first && error.is_not_yet() => Ok(true),
            Err(error) => {
                let message = format!("its condition cannot be evaluated: {error}");
                Err(Error::new(ErrorClass::Validation, code::CONDITION, message))
            }
            Ok(again) => Ok(again),
        }
    }

    fn enter_call(&mut self, at: StepAt, call: &Call) {
        let scope = self.entry(at.0).inner(at.1, 0);
        match self.call_input(at, call, scope) {
            Err(error) => self.fail_step(at, error),
            Ok((input, env)) => {
                self.entered(at);
                self.start_part(at, Part::Call, Some(input), env);
            }
        }
    }

    fn call_input(&self, at: StepAt, call: &Call, scope: ScopeIx) -> Result<(Arc<Value>, Arc<Value>), Error> {
        let mut input = bind(&self.step(at).inputs, &self.env(at.0))?;
        let schema = &self.plan.definition.workflow_of(scope).workflow.inputs;
        // An input that was not given is absent for the called workflow, so that its own default holds.
        if let Some(object) = input.as_object_mut() {
            object.retain(|_, value| !value.is_null());
        }
        schema.fill(&mut input);
        schema.check(&input).map_err(|error| {
            let step = &self.step(at).id;
            let called = &call.workflow;
            let message = format!("what `{step}` gives the workflow `{called}`: {error}");
            Error::new(ErrorClass::Validation, code::INPUT_INVALID, message)
        })?;
        let start = self.state.start.as_ref().expect("the run was started");
        let started = self.state.instance(InstanceIx::ROOT).started;
        let env = self.env_of(scope, &input, about_run(start, started))?;
        Ok((Arc::new(input), env))
    }

    /// An instance of this composite has ended.
    pub(in crate::engine) fn child_over(&mut self, at: StepAt, child: InstanceIx) {
        if self.state.step(at).phase != Phase::Inside {
            return;
        }
        let bad = self.state.instance(child).end().is_some_and(|end| end.status != RunStatus::Succeeded);
        match &self.step(at).kind {
            Kind::Parallel(_) => {
                if bad {
                    self.halt_children(at, &Halt::Outer);
                }
                self.conclude_if_over(at);
            }
            Kind::Each(each) => {
                if bad && each.errors == EachErrors::FailFast {
                    self.halt_children(at, &Halt::Outer);
                }
                self.next_items(at, each);
            }
            Kind::Loop(repeat) if !bad && self.may_go_on(at) && !self.is_overdue(at) => {
                self.next_pass(at, repeat)
            }
            _ => self.conclude_if_over(at),
        }
    }

    fn is_overdue(&self, at: StepAt) -> bool {
        self.state.more(at).and_then(|more| more.stopping) == Some(Stop::Timeout)
    }

    fn conclude_if_over(&mut self, at: StepAt) {
        if self.state.more(at).is_some_and(|more| more.open_children == 0) {
            self.conclude(at);
        }
    }

    /// All instances have ended: the composite succeeds, fails, or is tried again.
    fn conclude(&mut self, at: StepAt) {
        let more = self.state.more(at).expect("it was entered");
        let collects = matches!(&self.step(at).kind, Kind::Each(each) if each.errors == EachErrors::Collect);
        let outer = |ix: &InstanceIx| self.state.instance(*ix).halt() == Some(&Halt::Outer);
        let cut_short = more.children.iter().any(outer) || self.unfinished(at);
        if self.is_overdue(at) {
            return self.composite_timed_out(at);
        }
        if more.failed_children > 0 && !collects {
            let error = more.child_error.clone().unwrap_or_else(|| {
                Error::new(ErrorClass::NonRetryable, code::CANCELLED, "something inside was cancelled")
            });
            return self.fail_or_retry(at, error, None);
        }
        if cut_short {
            return self.end_step(at, End::of(Outcome::Cancelled));
        }
        let output = Arc::new(self.gathered(at));
        match self.step(at).outputs.check(&output) {
            Ok(()) => self.end_step(at, End::with(output)),
            Err(error) => {
                let message = match &self.step(at).kind {
                    Kind::Call(call) => {
                        let (called, step) = (&call.workflow, &self.step(at).id);
                        format!("what the workflow `{called}` gave is not what `{step}` declares: {error}")
                    }
                    _ => format!("its output does not match what is declared: {error}"),
                };
                self.fail_or_retry(
                    at,
                    Error::new(ErrorClass::Validation, code::OUTPUT_INVALID, message),
                    None,
                );
            }
        }
    }

    /// Whether a halt kept items from starting while one that had failed was drained. A loop has one pass at a time: if
    /// that failed the loop fails, and if it was halted from outside that is seen in the pass.
    fn unfinished(&self, at: StepAt) -> bool {
        let started = self.state.more(at).map_or(0, |more| more.children.len());
        matches!(self.step(at).kind, Kind::Each(_)) && started < self.items(at).len()
    }

    fn composite_timed_out(&mut self, at: StepAt) {
        let retries = self.step(at).policy.timeout_per == Per::Attempt;
        let error = self.timeout_of(at);
        if retries { self.fail_or_retry(at, error, None) } else { self.fail_step(at, error) }
    }

    /// What a composite gives when all of its instances have ended well.
    fn gathered(&self, at: StepAt) -> Value {
        let more = self.state.more(at).expect("it was entered");
        let output =
            |ix: &InstanceIx| self.state.instance(*ix).end().map_or(Value::Null, |end| (*end.output).clone());
        match &self.step(at).kind {
            Kind::Parallel(parallel) => {
                let lanes = parallel.lanes.iter().map(|lane| lane.id.to_string());
                Value::Object(lanes.zip(more.children.iter().map(output)).collect::<Map<_, _>>())
            }
            Kind::Each(each) if each.errors == EachErrors::Collect => self.collected(&more.children),
            Kind::Each(_) => Value::Array(more.children.iter().map(output).collect()),
            _ => more.children.last().map_or(Value::Null, output),
        }
    }

    fn collected(&self, children: &[InstanceIx]) -> Value {
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
