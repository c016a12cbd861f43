//! Composites: their parts, the order in which the parts may begin, and their results.

use std::sync::Arc;

use serde_json::{Value, json};
use skein_core::{
    engine::{ExecutionError, HaltReason, InstanceIx, InstancePart, StepAt, StepOutcome, UndoWalk},
    ir::{
        CallSpec, EachErrorPolicy, EachSpec, ErrorClass, LoopSpec, LoopTest, ParallelSpec, RunStatus, Step,
        StepKindSpec, TimeoutScope,
    },
    limits,
    time::Timestamp,
};

use super::{
    Acceptor, RuleResult,
    attempts::{allows_retry, check_retry_due},
    ensure,
    state::{AcceptorInstance, AcceptorStepPhase},
};

/// The result of a composite: an output, or a class and a code.
type AcceptorCompositeResult = Result<Value, (Option<ErrorClass>, Option<&'static str>)>;

impl Acceptor {
    pub(super) fn accept_step_expanded(&mut self, at: StepAt, items: &Value) -> RuleResult {
        self.ensure_arrived(at)?;
        let StepKindSpec::Each(each) = &self.step_definition(at)?.kind else {
            return Err("only an `each` has items".into());
        };
        let over = self.evaluate_expr(at.0, &each.over).map_err(|e| format!("its list has no value: {e}"))?;
        ensure!(over.is_array() && over == *items, "its items are {over}");
        self.step_state_mut(at)?.items = Some(over);
        Ok(())
    }

    pub(super) fn accept_step_entered(&mut self, at: StepAt, deadline: Option<Timestamp>) -> RuleResult {
        self.ensure_arrived(at)?;
        let again = self.step_state(at)?.tries > 0;
        if !(again && self.is_draining(at.0)) {
            self.check_going(at.0)?;
        }
        let step = Arc::clone(&self.scope_entry(at.0).scope.steps[at.1 as usize]);
        let composite = matches!(
            step.kind,
            StepKindSpec::Parallel(_) | StepKindSpec::Each(_) | StepKindSpec::Loop(_) | StepKindSpec::Call(_)
        );
        ensure!(composite, "it is not a composite");
        let first = self.step_state(at)?.tries == 0;
        if first {
            let own = step.policy.timeout.filter(|_| step.policy.timeout_per == TimeoutScope::Step);
            let right = own.map(|timeout| self.now.saturating_add(timeout));
            ensure!(deadline == right, "its deadline should be {right:?}");
            self.step_state_mut(at)?.deadline = deadline;
        }
        self.enter_composite(at)
    }

    /// Enters a composite, for the first time or for a retry.
    fn enter_composite(&mut self, at: StepAt) -> RuleResult {
        let now = self.now;
        match &self.step_state(at)?.at {
            AcceptorStepPhase::Ready => {}
            AcceptorStepPhase::Retrying(due) => {
                ensure!(*due <= now, "the retry is not due yet");
                let walk = self.walks.get(&UndoWalk::Composite(at));
                ensure!(walk.is_none_or(|walk| walk.over && !walk.failed), "the last try was not undone");
                let call = matches!(self.step_definition(at)?.kind, StepKindSpec::Call(_));
                ensure!(call || self.undo_targets_under(at).is_empty(), "the last try was not undone");
            }
            other => return Err(format!("the step is not ready: {other:?}").into()),
        }
        self.take_slot(at)?;
        let st = self.step_state_mut(at)?;
        st.at = AcceptorStepPhase::Inside;
        st.children.clear();
        Ok(())
    }

    pub(super) fn accept_instance_started(
        &mut self,
        parent: StepAt,
        part: InstancePart,
        input: Option<&Value>,
        env: &Value,
        deadline: Option<Timestamp>,
    ) -> RuleResult {
        // A composite that drains still starts instances inside.
        if self.step_state(parent)?.at != AcceptorStepPhase::Inside || !self.is_draining(parent.0) {
            self.check_going(parent.0)?;
        }
        if self.step_state(parent)?.at != AcceptorStepPhase::Inside {
            self.ensure_arrived(parent)?;
            self.enter_composite(parent)?;
        }
        let step = Arc::clone(&self.scope_entry(parent.0).scope.steps[parent.1 as usize]);
        let mut item = None;
        match (&step.kind, part) {
            (StepKindSpec::Parallel(of), InstancePart::Lane(lane)) => self.may_begin_lane(parent, of, lane)?,
            (StepKindSpec::Each(each), InstancePart::Item(i)) => item = Some(self.may_begin_item(parent, each, i)?),
            (StepKindSpec::Loop(of), InstancePart::Pass(pass)) => self.may_begin_pass(parent, of, pass)?,
            (StepKindSpec::Call(call), InstancePart::Call) => self.may_call(parent, &step, call, input)?,
            _ => return Err("the step has no such part".into()),
        }
        let mut inst = self.new_child(parent, part)?;
        let timeout = self.plan.definition.scope(inst.scope).scope.timeout;
        let right = timeout.map(|timeout| self.now.saturating_add(timeout));
        ensure!(deadline == right, "its deadline should be {right:?}");
        (inst.item, inst.deadline) = (item, deadline);
        inst.input = input.cloned().unwrap_or_default();
        inst.env = env.clone();
        self.add_child(parent, inst)
    }

    /// Returns a new instance for a part of a composite.
    pub(super) fn new_child(&self, parent: StepAt, part: InstancePart) -> RuleResult<AcceptorInstance> {
        let which = if let InstancePart::Lane(lane) = part { lane } else { 0 };
        let scope = self.scope_entry(parent.0).inner_scope(parent.1, which);
        let home = if part == InstancePart::Call { self.next_instance() } else { self.instance(parent.0)?.home };
        let mut inst = AcceptorInstance::new(&self.plan, scope, home);
        (inst.parent, inst.part) = (Some(parent), Some(part));
        Ok(inst)
    }

    pub(super) fn add_child(&mut self, parent: StepAt, inst: AcceptorInstance) -> RuleResult {
        let ix = self.next_instance();
        self.instances.push(inst);
        self.step_state_mut(parent)?.children.push(ix);
        Ok(())
    }

    fn next_instance(&self) -> InstanceIx {
        InstanceIx(u32::try_from(self.instances.len()).unwrap_or(u32::MAX))
    }

    pub(super) fn child_instances(&self, at: StepAt) -> RuleResult<Vec<&AcceptorInstance>> {
        Ok(self.step_state(at)?.children.iter().map(|ix| &self.instances[ix.0 as usize]).collect())
    }

    fn may_begin_lane(&self, at: StepAt, of: &ParallelSpec, lane: u32) -> RuleResult {
        ensure!((lane as usize) < of.lanes.len(), "there is no such lane");
        let children = self.child_instances(at)?;
        ensure!(
            children.iter().all(|child| child.part != Some(InstancePart::Lane(lane))),
            "the lane has begun already"
        );
        ensure!(!children.iter().any(|child| has_failed(child)), "another lane has failed");
        Ok(())
    }

    fn may_begin_item(&mut self, at: StepAt, each: &EachSpec, i: u32) -> RuleResult<(Value, u32)> {
        if self.step_state(at)?.items.is_none() {
            let over = self.evaluate_expr(at.0, &each.over).map_err(|e| format!("its list has no value: {e}"))?;
            self.step_state_mut(at)?.items = Some(over);
        }
        let children = self.child_instances(at)?;
        ensure!(i as usize == children.len(), "items begin in order; the next is {}", children.len());
        let open = children.iter().filter(|child| child.ended.is_none()).count();
        ensure!(each.parallelism.is_none_or(|most| open < most as usize), "{open} items are open, which is the limit");
        let failed = each.errors == EachErrorPolicy::FailFast && children.iter().any(|child| has_failed(child));
        ensure!(!failed, "another item has failed");
        let items = self.step_state(at)?.items.as_ref().and_then(Value::as_array);
        let item = items.and_then(|items| items.get(i as usize));
        item.map(|item| (item.clone(), i)).ok_or("there is no such item".into())
    }

    fn may_begin_pass(&self, at: StepAt, of: &LoopSpec, pass: u32) -> RuleResult {
        let children = self.child_instances(at)?;
        ensure!(pass as usize == children.len() + 1, "the next pass is {}", children.len() + 1);
        ensure!(pass <= of.max, "the limit is {} passes", of.max);
        ensure!(children.iter().all(|child| has_succeeded(child)), "the pass before it has not succeeded");
        if pass > 1 || of.test == LoopTest::First {
            let goes_on = match self.evaluate_condition(at.0, &of.condition) {
                Ok(goes_on) => goes_on,
                Err(error) => pass == 1 && error.is_not_yet(),
            };
            ensure!(goes_on, "the loop's condition is not true");
        }
        Ok(())
    }

    fn may_call(&self, at: StepAt, step: &Step, _call: &CallSpec, input: Option<&Value>) -> RuleResult {
        ensure!(self.step_state(at)?.children.is_empty(), "its call has begun already");
        let mut given = self.evaluate_inputs(at, step).map_err(|code| format!("its inputs are wrong: {code}"))?;
        let called = self.plan.definition.workflow_containing(self.scope_entry(at.0).inner_scope(at.1, 0));
        called.workflow.inputs.fill_defaults(&mut given);
        ensure!(called.workflow.inputs.check(&given).is_ok(), "its inputs do not match the schema");
        ensure!(input == Some(&given), "its input should be {given}");
        Ok(())
    }

    /// Returns the combined result of the children of the current try.
    fn evaluate_composite(&self, at: StepAt, step: &Step) -> RuleResult<AcceptorCompositeResult> {
        let children = self.child_instances(at)?;
        ensure!(children.iter().all(|child| child.ended.is_some()), "an inner instance has not ended");
        Ok(match &step.kind {
            StepKindSpec::Parallel(of) => match find_first_failure(&children) {
                Some(class) => Err((class, None)),
                None if children.len() < of.lanes.len() => return Err("a lane has not begun".into()),
                None => Ok(collect_lane_outputs(of, &children)),
            },
            StepKindSpec::Each(each) => self.evaluate_each(at, each, &children)?,
            StepKindSpec::Loop(of) => self.evaluate_loop(at, of, &children)?,
            _ => self.evaluate_call(at, step, &children)?,
        })
    }

    fn evaluate_each(
        &self,
        at: StepAt,
        each: &EachSpec,
        children: &[&AcceptorInstance],
    ) -> RuleResult<AcceptorCompositeResult> {
        let over = match &self.step_state(at)?.items {
            Some(items) => items.clone(),
            None => match self.evaluate_expr(at.0, &each.over) {
                Ok(over) => over,
                Err(_) => return Ok(Err((Some(ErrorClass::Validation), None))),
            },
        };
        let Some(items) = over.as_array() else {
            return Ok(Err((Some(ErrorClass::Validation), Some("not_a_list"))));
        };
        if items.len() > limits::ITEMS {
            return Ok(Err((Some(ErrorClass::Validation), Some("too_many_items"))));
        }
        let failure = find_first_failure(children);
        let all = children.len() == items.len();
        match (each.errors, failure) {
            (EachErrorPolicy::FailFast, Some(class)) => return Ok(Err((class, None))),
            // An each that was stopped before all items began fails with the earlier failure.
            (EachErrorPolicy::Finish, Some(class)) if all || self.check_going(at.0).is_err() => {
                return Ok(Err((class, None)));
            }
            _ => ensure!(all, "not all items have begun"),
        }
        if each.errors != EachErrorPolicy::Collect {
            return Ok(Ok(children.iter().map(|child| instance_output(child)).collect()));
        }
        let good = children.iter().filter(|child| has_succeeded(child)).count();
        // The acceptor does not check the details of a failed item.
        Ok(Ok(json!({"succeeded": good, "failed": children.len() - good})))
    }

    fn evaluate_loop(
        &self,
        at: StepAt,
        of: &LoopSpec,
        children: &[&AcceptorInstance],
    ) -> RuleResult<AcceptorCompositeResult> {
        if let Some(class) = find_first_failure(children) {
            return Ok(Err((class, None)));
        }
        if children.is_empty() && of.test == LoopTest::After {
            return Err("the first pass is unconditional".into());
        }
        match self.evaluate_condition(at.0, &of.condition) {
            Ok(false) => Ok(Ok(children.last().map_or(Value::Null, |child| instance_output(child)))),
            Ok(true) if children.len() < of.max as usize => Err("the loop continues".into()),
            Ok(true) => Ok(Err((Some(ErrorClass::NonRetryable), Some("loop_max_iterations")))),
            Err(error) if children.is_empty() && error.is_not_yet() => Err("the loop continues".into()),
            Err(_) => Ok(Err((Some(ErrorClass::Validation), Some("condition")))),
        }
    }

    fn evaluate_call(
        &self,
        at: StepAt,
        step: &Step,
        children: &[&AcceptorInstance],
    ) -> RuleResult<AcceptorCompositeResult> {
        let Some(child) = children.last() else {
            let called = self.plan.definition.workflow_containing(self.scope_entry(at.0).inner_scope(at.1, 0));
            let wrong = match self.evaluate_inputs(at, step) {
                Err(_) => true,
                Ok(mut given) => {
                    called.workflow.inputs.fill_defaults(&mut given);
                    called.workflow.inputs.check(&given).is_err()
                }
            };
            ensure!(wrong, "its call has not begun");
            return Ok(Err((Some(ErrorClass::Validation), None)));
        };
        Ok(if has_succeeded(child) { Ok(instance_output(child)) } else { Err((failure_class(child), None)) })
    }

    pub(super) fn accept_composite_retry(&mut self, at: StepAt, due: Timestamp, error: &ExecutionError) -> RuleResult {
        // A draining composite runs to its end with all its tries.
        if !self.is_draining(at.0) {
            self.check_going(at.0)?;
        }
        let step = Arc::clone(&self.scope_entry(at.0).scope.steps[at.1 as usize]);
        let Err((class, _)) = self.evaluate_composite(at, &step)? else {
            return Err("it has not failed".into());
        };
        ensure!(class.is_none_or(|class| class == error.class), "it failed with {class:?}");
        let now = self.now;
        let st = self.step_state_mut(at)?;
        st.tries += 1;
        let tries = st.tries;
        let allowed = allows_retry(&step.policy.retry, tries, error.class, error.code.as_deref());
        ensure!(allowed, "the policy does not retry this");
        check_retry_due(&step.policy.retry.backoff, (tries, tries), None, now, due)?;
        let st = self.step_state_mut(at)?;
        st.slot &= step.policy.keeps_slot;
        st.at = AcceptorStepPhase::Retrying(due);
        Ok(())
    }

    pub(super) fn check_composite_end(
        &mut self,
        at: StepAt,
        step: &Step,
        outcome: StepOutcome,
        output: &Value,
        code: Option<&str>,
    ) -> RuleResult {
        let now = self.now;
        let children = self.child_instances(at)?;
        ensure!(children.iter().all(|child| child.ended.is_some()), "an inner instance has not ended");
        if self.step_state(at)?.may_end_timed_out(outcome, now) {
            return Ok(());
        }
        let stuck = self.walks.get(&UndoWalk::Composite(at)).is_some_and(|walk| walk.over && walk.failed);
        if stuck {
            ensure!(code == Some("undo_failed"), "the last try could not be undone");
            return Ok(());
        }
        match self.evaluate_composite(at, step)? {
            Ok(right) => {
                ensure!(outcome == StepOutcome::Succeeded, "nothing inside failed");
                let collects =
                    matches!(&step.kind, StepKindSpec::Each(each) if each.errors == EachErrorPolicy::Collect);
                let same = if collects {
                    output["succeeded"] == right["succeeded"] && output["failed"] == right["failed"]
                } else {
                    *output == right
                };
                ensure!(same, "its output is {right}");
            }
            Err((class, right)) => {
                let StepOutcome::Failed(said) = outcome else { return Err("something inside failed".into()) };
                ensure!(class.is_none_or(|class| class == said), "it failed with {class:?}");
                ensure!(right.is_none_or(|right| code == Some(right)), "the code should be {right:?}");
                let hopeless = self.child_instances(at)?.is_empty();
                let tries = self.step_state(at)?.tries + 1;
                let again = !hopeless && allows_retry(&step.policy.retry, tries, said, code);
                ensure!(!again || self.check_going(at.0).is_err(), "the policy retries this");
            }
        }
        Ok(())
    }
}

fn has_succeeded(inst: &AcceptorInstance) -> bool {
    inst.ended.as_ref().is_some_and(|end| end.status == RunStatus::Succeeded)
}

fn has_failed(inst: &AcceptorInstance) -> bool {
    inst.ended.as_ref().is_some_and(|end| end.status != RunStatus::Succeeded)
}

fn instance_output(inst: &AcceptorInstance) -> Value {
    inst.ended.as_ref().map_or(Value::Null, |end| (*end.output).clone())
}

fn collect_lane_outputs(of: &ParallelSpec, children: &[&AcceptorInstance]) -> Value {
    let mut all = json!({});
    for (i, lane) in (0..).zip(&of.lanes) {
        let child = children.iter().find(|child| child.part == Some(InstancePart::Lane(i)));
        all[lane.id.as_str()] = child.map_or(Value::Null, |child| instance_output(child));
    }
    all
}

/// The class of the first failure in time, if there was one. The class is unknown if no error states it.
fn find_first_failure(children: &[&AcceptorInstance]) -> Option<Option<ErrorClass>> {
    // A child that was stopped because another one failed is not the cause, unless it is the only failure.
    let own = |child: &&&AcceptorInstance| has_failed(child) && child.halts.first() != Some(&HaltReason::Outer);
    let any_own = children.iter().any(|child| own(&child));
    let failed = children.iter().filter(|child| if any_own { own(child) } else { has_failed(child) });
    failed.min_by_key(|child| child.ended_as).map(|child| failure_class(child))
}

fn failure_class(inst: &AcceptorInstance) -> Option<ErrorClass> {
    let end = inst.ended.as_ref()?;
    match end.status {
        RunStatus::TimedOut => Some(ErrorClass::Timeout),
        RunStatus::Cancelled => Some(ErrorClass::NonRetryable),
        _ => end.error.as_ref().map(|error| error.class),
    }
}
