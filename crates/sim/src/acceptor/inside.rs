//! Composites: their parts, in which order they may begin, and what they come to.

use std::sync::Arc;

use serde_json::{Value, json};
use skein_core::{
    engine::{Error, Halt, InstanceIx, Outcome, Part, Route, StepAt, Walk},
    ir::{Call, Each, EachErrors, ErrorClass, Kind, Loop, LoopTest, Parallel, Per, RunStatus, Shape, Step},
    limits,
    time::Time,
};

use super::{
    Acceptor, Verdict,
    after::again,
    attempts::in_time,
    book::{At, Inst},
    ensure,
};

/// What a composite comes to: an output, or a class and a code.
type Comes = Result<Value, (Option<ErrorClass>, Option<&'static str>)>;

impl Acceptor {
    pub(super) fn step_expanded(&mut self, at: StepAt, items: &Value) -> Verdict {
        self.ensure_arrived(at)?;
        let Kind::Each(each) = &self.step(at)?.kind else { return Err("only an each has items".into()) };
        let over = self.value(at.0, &each.over).map_err(|e| format!("its list is an error: {e}"))?;
        ensure!(over.is_array() && over == *items, "its items are {over}");
        self.st_mut(at)?.items = Some(over);
        Ok(())
    }

    pub(super) fn step_entered(&mut self, at: StepAt, deadline: Option<Time>) -> Verdict {
        self.ensure_arrived(at)?;
        let again = self.st(at)?.tries > 0;
        if !(again && self.drains(at.0)) {
            self.going(at.0)?;
        }
        let step = Arc::clone(&self.entry(at.0).scope.steps[at.1 as usize]);
        let composite =
            matches!(step.kind, Kind::Parallel(_) | Kind::Each(_) | Kind::Loop(_) | Kind::Call(_));
        ensure!(composite, "there is nothing inside");
        let first = self.st(at)?.tries == 0;
        if first {
            let own = step.policy.timeout.filter(|_| step.policy.timeout_per == Per::Step);
            let right = own.map(|timeout| self.now.after(timeout));
            ensure!(deadline == right, "its time should be up at {right:?}");
            self.st_mut(at)?.deadline = deadline;
        }
        self.enter(at)
    }

    /// Goes inside, for the first time or again.
    fn enter(&mut self, at: StepAt) -> Verdict {
        let now = self.now;
        match &self.st(at)?.at {
            At::Ready => {}
            At::Retrying(due) => {
                ensure!(*due <= now, "it is not time to try again");
                let walk = self.walks.get(&Walk::Composite(at));
                ensure!(walk.is_none_or(|walk| walk.over && !walk.failed), "the last try is not undone");
                let call = matches!(self.step(at)?.kind, Kind::Call(_));
                ensure!(call || self.completed_under(at).is_empty(), "the last try is not undone");
            }
            other => return Err(format!("the step is not ready: {other:?}")),
        }
        self.take_slot(at)?;
        let st = self.st_mut(at)?;
        st.at = At::Inside;
        st.children.clear();
        Ok(())
    }

    pub(super) fn instance_started(
        &mut self,
        parent: StepAt,
        part: Part,
        input: Option<&Value>,
        env: &Value,
        deadline: Option<Time>,
    ) -> Verdict {
        // A composite that is left to come to its end goes on inside.
        if self.st(parent)?.at != At::Inside || !self.drains(parent.0) {
            self.going(parent.0)?;
        }
        if self.st(parent)?.at != At::Inside {
            self.ensure_arrived(parent)?;
            self.enter(parent)?;
        }
        let step = Arc::clone(&self.entry(parent.0).scope.steps[parent.1 as usize]);
        let mut item = None;
        match (&step.kind, part) {
            (Kind::Parallel(of), Part::Lane(lane)) => self.may_begin_lane(parent, of, lane)?,
            (Kind::Each(each), Part::Item(i)) => item = Some(self.may_begin_item(parent, each, i)?),
            (Kind::Loop(of), Part::Pass(pass)) => self.may_begin_pass(parent, of, pass)?,
            (Kind::Call(call), Part::Call) => self.may_call(parent, &step, call, input)?,
            _ => return Err("the step has no such part".into()),
        }
        let ix = InstanceIx(u32::try_from(self.instances.len()).unwrap_or(u32::MAX));
        let which = if let Part::Lane(lane) = part { lane } else { 0 };
        let scope = self.entry(parent.0).inner(parent.1, which);
        let home = if part == Part::Call { ix } else { self.inst(parent.0)?.home };
        let entry = self.plan.definition.scope(scope);
        let right = entry.scope.timeout.map(|timeout| self.now.after(timeout));
        ensure!(deadline == right, "its time should be up at {right:?}");
        let mut inst = Inst::new(scope, home, entry.scope.steps.len());
        inst.cursor = matches!(entry.scope.shape, Shape::Routed { .. }).then_some(Route::Step(entry.start));
        (inst.parent, inst.part, inst.item, inst.deadline) = (Some(parent), Some(part), item, deadline);
        inst.input = input.cloned().unwrap_or_default();
        inst.env = env.clone();
        self.instances.push(inst);
        self.st_mut(parent)?.children.push(ix);
        Ok(())
    }

    pub(super) fn children(&self, at: StepAt) -> Result<Vec<&Inst>, String> {
        Ok(self.st(at)?.children.iter().map(|ix| &self.instances[ix.0 as usize]).collect())
    }

    fn may_begin_lane(&self, at: StepAt, of: &Parallel, lane: u32) -> Verdict {
        ensure!((lane as usize) < of.lanes.len(), "there is no such lane");
        let children = self.children(at)?;
        ensure!(
            children.iter().all(|child| child.part != Some(Part::Lane(lane))),
            "the lane has begun already"
        );
        ensure!(!children.iter().any(|child| has_failed(child)), "another lane has failed");
        Ok(())
    }

    fn may_begin_item(&mut self, at: StepAt, each: &Each, i: u32) -> Result<(Value, u32), String> {
        if self.st(at)?.items.is_none() {
            let over = self.value(at.0, &each.over).map_err(|e| format!("its list is an error: {e}"))?;
            self.st_mut(at)?.items = Some(over);
        }
        let children = self.children(at)?;
        ensure!(i as usize == children.len(), "items begin in order; the next is {}", children.len());
        let open = children.iter().filter(|child| child.ended.is_none()).count();
        ensure!(
            each.parallelism.is_none_or(|most| open < most as usize),
            "{open} items are open, the most there may be"
        );
        let failed = each.errors == EachErrors::FailFast && children.iter().any(|child| has_failed(child));
        ensure!(!failed, "another item has failed");
        let items = self.st(at)?.items.as_ref().and_then(Value::as_array);
        let item = items.and_then(|items| items.get(i as usize));
        item.map(|item| (item.clone(), i)).ok_or_else(|| "there is no such item".to_owned())
    }

    fn may_begin_pass(&self, at: StepAt, of: &Loop, pass: u32) -> Verdict {
        let children = self.children(at)?;
        ensure!(pass as usize == children.len() + 1, "the next pass is {}", children.len() + 1);
        ensure!(pass <= of.max, "there may be {} passes", of.max);
        ensure!(children.iter().all(|child| succeeded(child)), "the pass before it has not succeeded");
        if pass > 1 || of.test == LoopTest::First {
            let goes_on = match self.test(at.0, &of.condition) {
                Ok(goes_on) => goes_on,
                Err(error) => pass == 1 && error.is_not_yet(),
            };
            ensure!(goes_on, "the loop's condition is not true");
        }
        Ok(())
    }

    fn may_call(&self, at: StepAt, step: &Step, _call: &Call, input: Option<&Value>) -> Verdict {
        ensure!(self.st(at)?.children.is_empty(), "it has called already");
        let mut given = self.inputs(at, step).map_err(|code| format!("its inputs are wrong: {code}"))?;
        let called = self.plan.definition.workflow_of(self.entry(at.0).inner(at.1, 0));
        called.workflow.inputs.fill(&mut given);
        ensure!(called.workflow.inputs.check(&given).is_ok(), "its inputs do not fit");
        ensure!(input == Some(&given), "it should be given {given}");
        Ok(())
    }

    /// What the children of the present try come to.
    fn comes_to(&self, at: StepAt, step: &Step) -> Result<Comes, String> {
        let children = self.children(at)?;
        ensure!(children.iter().all(|child| child.ended.is_some()), "something inside is not over");
        Ok(match &step.kind {
            Kind::Parallel(of) => match first_failure(&children) {
                Some(class) => Err((class, None)),
                None if children.len() < of.lanes.len() => return Err("a lane has not begun".into()),
                None => Ok(lanes(of, &children)),
            },
            Kind::Each(each) => self.each_comes_to(at, each, &children)?,
            Kind::Loop(of) => self.loop_comes_to(at, of, &children)?,
            _ => self.call_comes_to(at, step, &children)?,
        })
    }

    fn each_comes_to(&self, at: StepAt, each: &Each, children: &[&Inst]) -> Result<Comes, String> {
        let over = match &self.st(at)?.items {
            Some(items) => items.clone(),
            None => match self.value(at.0, &each.over) {
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
        let failure = first_failure(children);
        let all = children.len() == items.len();
        match (each.errors, failure) {
            (EachErrors::FailFast, Some(class)) => return Ok(Err((class, None))),
            // One that was stopped on the way fails with what failed before.
            (EachErrors::Finish, Some(class)) if all || self.going(at.0).is_err() => {
                return Ok(Err((class, None)));
            }
            _ => ensure!(all, "not all items have begun"),
        }
        if each.errors != EachErrors::Collect {
            return Ok(Ok(children.iter().map(|child| output(child)).collect()));
        }
        let good = children.iter().filter(|child| succeeded(child)).count();
        // How an item's failure is shown is not the acceptor's matter.
        Ok(Ok(json!({"succeeded": good, "failed": children.len() - good})))
    }

    fn loop_comes_to(&self, at: StepAt, of: &Loop, children: &[&Inst]) -> Result<Comes, String> {
        if let Some(class) = first_failure(children) {
            return Ok(Err((class, None)));
        }
        if children.is_empty() && of.test == LoopTest::After {
            return Err("the first pass is unconditional".into());
        }
        match self.test(at.0, &of.condition) {
            Ok(false) => Ok(Ok(children.last().map_or(Value::Null, |child| output(child)))),
            Ok(true) if children.len() < of.max as usize => Err("the loop goes on".into()),
            Ok(true) => Ok(Err((Some(ErrorClass::NonRetryable), Some("loop_max_iterations")))),
            Err(error) if children.is_empty() && error.is_not_yet() => Err("the loop goes on".into()),
            Err(_) => Ok(Err((Some(ErrorClass::Validation), Some("condition")))),
        }
    }

    fn call_comes_to(&self, at: StepAt, step: &Step, children: &[&Inst]) -> Result<Comes, String> {
        let Some(child) = children.last() else {
            let called = self.plan.definition.workflow_of(self.entry(at.0).inner(at.1, 0));
            let wrong = match self.inputs(at, step) {
                Err(_) => true,
                Ok(mut given) => {
                    called.workflow.inputs.fill(&mut given);
                    called.workflow.inputs.check(&given).is_err()
                }
            };
            ensure!(wrong, "it has not called");
            return Ok(Err((Some(ErrorClass::Validation), None)));
        };
        Ok(if succeeded(child) { Ok(output(child)) } else { Err((failure_class(child), None)) })
    }

    pub(super) fn composite_retry(&mut self, at: StepAt, due: Time, error: &Error) -> Verdict {
        // What is drained comes to its end like anything else, with all its tries.
        if !self.drains(at.0) {
            self.going(at.0)?;
        }
        let step = Arc::clone(&self.entry(at.0).scope.steps[at.1 as usize]);
        let Err((class, _)) = self.comes_to(at, &step)? else { return Err("it has not failed".into()) };
        ensure!(class.is_none_or(|class| class == error.class), "it failed with {class:?}");
        let now = self.now;
        let st = self.st_mut(at)?;
        st.tries += 1;
        let tries = st.tries;
        let allowed = again(&step.policy.retry, tries, error.class, error.code.as_deref());
        ensure!(allowed, "the policy does not retry this");
        in_time(&step.policy.retry.backoff, (tries, tries), None, now, due)?;
        let st = self.st_mut(at)?;
        st.slot &= step.policy.keeps_slot;
        st.at = At::Retrying(due);
        Ok(())
    }

    pub(super) fn right_composite_end(
        &mut self,
        at: StepAt,
        step: &Step,
        outcome: Outcome,
        output: &Value,
        code: Option<&str>,
    ) -> Verdict {
        let now = self.now;
        let children = self.children(at)?;
        ensure!(children.iter().all(|child| child.ended.is_some()), "something inside is not over");
        if self.st(at)?.timed_out(outcome, now) {
            return Ok(());
        }
        let stuck = self.walks.get(&Walk::Composite(at)).is_some_and(|walk| walk.over && walk.failed);
        if stuck {
            ensure!(code == Some("undo_failed"), "the last try could not be undone");
            return Ok(());
        }
        match self.comes_to(at, step)? {
            Ok(right) => {
                ensure!(outcome == Outcome::Succeeded, "nothing in it failed");
                let collects = matches!(&step.kind, Kind::Each(each) if each.errors == EachErrors::Collect);
                let same = if collects {
                    output["succeeded"] == right["succeeded"] && output["failed"] == right["failed"]
                } else {
                    *output == right
                };
                ensure!(same, "its output is {right}");
            }
            Err((class, right)) => {
                let Outcome::Failed(said) = outcome else { return Err("something in it failed".into()) };
                ensure!(class.is_none_or(|class| class == said), "it failed with {class:?}");
                ensure!(right.is_none_or(|right| code == Some(right)), "the code should be {right:?}");
                let hopeless = self.children(at)?.is_empty();
                let tries = self.st(at)?.tries + 1;
                let again = !hopeless && again(&step.policy.retry, tries, said, code);
                ensure!(!again || self.going(at.0).is_err(), "the policy retries this");
            }
        }
        Ok(())
    }
}

fn succeeded(inst: &Inst) -> bool {
    inst.ended.as_ref().is_some_and(|end| end.status == RunStatus::Succeeded)
}

fn has_failed(inst: &Inst) -> bool {
    inst.ended.as_ref().is_some_and(|end| end.status != RunStatus::Succeeded)
}

fn output(inst: &Inst) -> Value {
    inst.ended.as_ref().map_or(Value::Null, |end| (*end.output).clone())
}

fn lanes(of: &Parallel, children: &[&Inst]) -> Value {
    let mut all = json!({});
    for (i, lane) in (0..).zip(&of.lanes) {
        let child = children.iter().find(|child| child.part == Some(Part::Lane(i)));
        all[lane.id.as_str()] = child.map_or(Value::Null, |child| output(child));
    }
    all
}

/// The class of the first failure in time, if there was one; the class is not known where no error says it.
fn first_failure(children: &[&Inst]) -> Option<Option<ErrorClass>> {
    // One that was stopped because another failed is not what went wrong, unless nothing else did.
    let own = |child: &&&Inst| has_failed(child) && child.halts.first() != Some(&Halt::Outer);
    let any_own = children.iter().any(|child| own(&child));
    let failed = children.iter().filter(|child| if any_own { own(child) } else { has_failed(child) });
    failed.min_by_key(|child| child.ended_as).map(|child| failure_class(child))
}

fn failure_class(inst: &Inst) -> Option<ErrorClass> {
    let end = inst.ended.as_ref()?;
    match end.status {
        RunStatus::TimedOut => Some(ErrorClass::Timeout),
        RunStatus::Cancelled => Some(ErrorClass::NonRetryable),
        _ => end.error.as_ref().map(|error| error.class),
    }
}
