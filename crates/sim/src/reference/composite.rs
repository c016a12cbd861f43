//! Parallel, each, loop and call: instances inside a step, and trying it all again.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use skein_core::{
    engine::{Cost, Part},
    ir::{Budget, Each, EachErrors, ErrorClass, Kind, Loop, LoopTest, Parallel, RunStatus, UndoFailure},
    limits,
    plan::ScopeIx,
};

use super::{
    Eval, Fault, Race,
    frame::{End, Frame, Instance, Log, Stop, Visit},
    undo::again,
};

/// One try at a composite.
enum Try<'a> {
    Done(Result<(Value, bool), Fault>, Log<'a>),
    /// Not to be tried again, whatever the policy.
    Hopeless(Fault),
    Waiting,
    Stops(Stop, Log<'a>),
}

/// A visit of a composite: how often each of its parts has begun.
struct Doing {
    step: u32,
    begun: BTreeMap<Part, u32>,
    /// Something inside the try at hand was degraded.
    degraded: bool,
}

impl Doing {
    fn over<'a>(&self, end: End<'a>, tries: u32) -> Visit<'a> {
        Visit::Ended(End { attempts: tries, yielded: tries > 1, degraded: self.degraded, ..end })
    }
}

impl<'a> Eval<'a> {
    pub(super) fn composite(&mut self, frame: &Frame<'_, 'a>, step: u32) -> Result<Visit<'a>, Race> {
        let entry = frame.entry(self);
        let it = entry.step(step);
        let mut budgets: Vec<&Budget> = it.policy.budget.iter().collect();
        if matches!(it.kind, Kind::Call(_)) {
            budgets.extend(&self.definition.workflow_of(entry.inner(step, 0)).workflow.budget);
        }
        if !budgets.is_empty() && frame.steps.borrow()[step as usize].visits > 1 {
            return Err(Race("whether a budget is for a visit or for all"));
        }
        let budgets = budgets.into_iter().map(|budget| (budget, Cost::default())).collect();
        self.around.push((budgets, Cost::default()));
        let visit = self.tries(frame, step);
        self.around.pop();
        visit
    }

    fn tries(&mut self, frame: &Frame<'_, 'a>, step: u32) -> Result<Visit<'a>, Race> {
        let it = frame.entry(self).step(step);
        let mut doing = Doing { step, begun: BTreeMap::new(), degraded: false };
        let mut tries = 0;
        loop {
            frame.inner.borrow_mut().retain(|(holder, _), _| *holder != step);
            doing.degraded = false;
            let done = match &it.kind {
                Kind::Parallel(parallel) => self.parallel(frame, &mut doing, parallel)?,
                Kind::Each(each) => self.each(frame, &mut doing, each)?,
                Kind::Loop(repeat) => self.repeat(frame, &mut doing, repeat)?,
                _ => self.call(frame, &mut doing)?,
            };
            tries += 1;
            let (fault, log) = match done {
                Try::Waiting => return Ok(Visit::Waiting),
                Try::Stops(why, inside) => {
                    return Ok(Visit::Stops { why, inside, yielded: tries > 1 });
                }
                Try::Hopeless(fault) => return Ok(doing.over(End::failed(fault), tries)),
                Try::Done(Ok((output, unclear)), inside) => {
                    return Ok(doing.over(End { inside, unclear, ..End::with(output) }, tries));
                }
                Try::Done(Err(fault), log) => (fault, log),
            };
            let retry = &it.policy.retry;
            if fault.class.is_none() && !retry.attempts.is_empty() {
                return Err(Race("whether to try again depends on a class that is not known"));
            }
            if !fault.class.is_some_and(|class| again(retry, tries, class, fault.code.as_deref())) {
                return Ok(doing.over(End { inside: log, ..End::failed(fault) }, tries));
            }
            let walked = self.walk(None, &log, UndoFailure::GoOn)?;
            if walked.failed {
                return Err(Race("what follows when a try cannot be undone"));
            }
        }
    }

    /// A new instance inside the step.
    fn enter(
        &mut self,
        frame: &Frame<'_, 'a>,
        doing: &mut Doing,
        part: Part,
        item: Option<(Value, u32)>,
        company: bool,
    ) -> Result<Instance<'a>, Race> {
        let entry = frame.entry(self);
        let it = entry.step(doing.step);
        let which = if let Part::Lane(lane) = part { lane } else { 0 };
        let again = doing.begun.entry(part).or_default();
        *again += 1;
        let lane = match &it.kind {
            Kind::Parallel(parallel) => parallel.lanes[which as usize].id.as_str(),
            _ => "",
        };
        let visit = frame.steps.borrow()[doing.step as usize].visits;
        let name = frame.name.inner(it.id.as_str(), visit, part, lane, *again);
        let scope: ScopeIx = entry.inner(doing.step, which);
        let mut inner = Frame::new(self, scope, name, frame.home);
        inner.outer = Some(frame);
        inner.item = item;
        inner.concurrent.set(frame.concurrent.get() || company);
        let instance = self.instance(&inner)?;
        doing.degraded |= matches!(instance, Instance::Ended { degraded: true, .. });
        let record = inner.close(self, matches!(instance, Instance::Waiting));
        if !matches!(it.kind, Kind::Each(_)) {
            frame.inner.borrow_mut().insert((doing.step, which), record);
        }
        Ok(instance)
    }

    fn parallel(
        &mut self,
        frame: &Frame<'_, 'a>,
        doing: &mut Doing,
        parallel: &Parallel,
    ) -> Result<Try<'a>, Race> {
        let company = parallel.lanes.len() > 1;
        let mut output = serde_json::Map::new();
        let (mut waits, mut logs, mut open) = (false, Vec::new(), false);
        for (i, lane) in (0..).zip(&parallel.lanes) {
            match self.enter(frame, doing, Part::Lane(i), None, company)? {
                Instance::Waiting => waits = true,
                Instance::Stops(..) => return Err(Race("a cancel meets other lanes")),
                Instance::Ended { result: Err(_), .. } if company => return Err(Race("a lane fails")),
                Instance::Ended { result: Err(fault), log, .. } => return Ok(Try::Done(Err(fault), log)),
                Instance::Ended { result: Ok(value), log, unclear, .. } => {
                    open |= unclear;
                    output.insert(lane.id.as_str().to_owned(), value);
                    logs.push(log);
                }
            }
        }
        Ok(if waits { Try::Waiting } else { Try::Done(Ok((output.into(), open)), Log::AnyOrder(logs)) })
    }

    fn each(&mut self, frame: &Frame<'_, 'a>, doing: &mut Doing, each: &Each) -> Result<Try<'a>, Race> {
        let items = match self.value(frame, &each.over)? {
            Ok(Value::Array(items)) if items.len() > limits::ITEMS => {
                return Ok(Try::Hopeless(Fault::validation("too_many_items")));
            }
            Ok(Value::Array(items)) => items,
            Ok(_) => return Ok(Try::Hopeless(Fault::validation("not_a_list"))),
            Err(_) => return Ok(Try::Hopeless(Fault::validation("expression"))),
        };
        let company = items.len() > 1 && each.parallelism != Some(1);
        let room = each.parallelism.is_none_or(|most| items.len() <= most as usize);
        let mut done = Items { results: Vec::new(), logs: Vec::new(), open: false, waits: false };
        for (i, item) in (0_u32..).zip(items) {
            let one = self.enter(frame, doing, Part::Item(i), Some((item, i)), company)?;
            match one {
                Instance::Waiting if company && !room => {
                    return Err(Race("an item that waits keeps others out"));
                }
                Instance::Waiting if !company => return Ok(Try::Waiting),
                Instance::Waiting => done.waits = true,
                Instance::Stops(..) if company => return Err(Race("a cancel meets other items")),
                Instance::Stops(why, log) => {
                    done.logs.push(log);
                    return Ok(Try::Stops(why, Log::InOrder(done.logs)));
                }
                Instance::Ended { result, log, unclear, .. } => {
                    let failed = result.is_err();
                    done.open |= unclear;
                    done.results.push(result);
                    done.logs.push(log);
                    if failed && each.errors == EachErrors::FailFast {
                        if company {
                            return Err(Race("an item fails"));
                        }
                        break;
                    }
                }
            }
        }
        Ok(if done.waits { Try::Waiting } else { done.conclude(each.errors, company) })
    }

    fn repeat(&mut self, frame: &Frame<'_, 'a>, doing: &mut Doing, repeat: &Loop) -> Result<Try<'a>, Race> {
        let mut passes = 0;
        let mut last = (Value::Null, false);
        let mut logs = Vec::new();
        loop {
            if passes > 0 || repeat.test == LoopTest::First {
                let goes_on = match self.test(frame, &repeat.condition)? {
                    Ok(goes_on) => goes_on,
                    Err(error) if passes == 0 && error.is_not_yet() => true,
                    Err(_) => return Ok(Try::Done(Err(Fault::validation("condition")), Log::InOrder(logs))),
                };
                if !goes_on {
                    return Ok(Try::Done(Ok(last), Log::InOrder(logs)));
                }
            }
            if passes >= repeat.max {
                let fault = Fault::of(ErrorClass::NonRetryable, "loop_max_iterations");
                return Ok(Try::Done(Err(fault), Log::InOrder(logs)));
            }
            passes += 1;
            match self.enter(frame, doing, Part::Pass(passes), None, false)? {
                Instance::Waiting => return Ok(Try::Waiting),
                Instance::Stops(why, log) => {
                    logs.push(log);
                    return Ok(Try::Stops(why, Log::InOrder(logs)));
                }
                Instance::Ended { result, log, unclear, .. } => {
                    logs.push(log);
                    match result {
                        Ok(value) => last = (value, unclear),
                        Err(fault) => return Ok(Try::Done(Err(fault), Log::InOrder(logs))),
                    }
                }
            }
        }
    }

    fn call(&mut self, frame: &Frame<'_, 'a>, doing: &mut Doing) -> Result<Try<'a>, Race> {
        let entry = frame.entry(self);
        let it = entry.step(doing.step);
        let mut input = match self.inputs(frame, it)? {
            Ok(input) => input,
            Err(fault) => return Ok(Try::Hopeless(fault)),
        };
        let called = self.definition.workflow_of(entry.inner(doing.step, 0));
        called.workflow.inputs.fill(&mut input);
        if called.workflow.inputs.check(&input).is_err() {
            return Ok(Try::Hopeless(Fault::validation("input_invalid")));
        }
        let again = doing.begun.entry(Part::Call).or_default();
        *again += 1;
        let visit = frame.steps.borrow()[doing.step as usize].visits;
        let name = frame.name.inner(it.id.as_str(), visit, Part::Call, "", *again);
        let accompanied = frame.home.accompanied || frame.concurrent.get();
        let Some(whole) = self.workflow(called, input, name, accompanied)? else { return Ok(Try::Waiting) };
        doing.degraded |= whole.degraded;
        let mut log = Log::empty();
        let result = match whole.status {
            RunStatus::Succeeded => {
                // A call without an undo of its own is undone by what is inside it.
                if it.undo.is_none() {
                    log = whole.log;
                }
                Ok((whole.output, whole.unclear))
            }
            RunStatus::UndoFailed => return Err(Race("what a call gives that could not undo itself")),
            _ => Err(whole.fault),
        };
        Ok(Try::Done(result, log))
    }
}

/// What came of the items of an each.
struct Items<'a> {
    results: Vec<Result<Value, Fault>>,
    logs: Vec<Log<'a>>,
    open: bool,
    waits: bool,
}

impl<'a> Items<'a> {
    fn conclude(self, errors: EachErrors, company: bool) -> Try<'a> {
        let log = if company { Log::AnyOrder(self.logs) } else { Log::InOrder(self.logs) };
        if errors == EachErrors::Collect {
            return Try::Done(Ok((collected(&self.results), self.open)), log);
        }
        let mut faults = self.results.iter().filter_map(|result| result.as_ref().err());
        let Some(first) = faults.next() else {
            return Try::Done(Ok((self.results.into_iter().flatten().collect(), self.open)), log);
        };
        // Whose failure came first is not known when they are at work at the same time.
        let alike = !company || faults.all(|fault| fault == first);
        Try::Done(Err(if alike { first.clone() } else { Fault::unknown() }), log)
    }
}

fn collected(results: &[Result<Value, Fault>]) -> Value {
    let shown = |(index, result): (usize, &Result<Value, Fault>)| match result {
        Ok(value) => json!({"index": index, "status": "succeeded", "value": value}),
        Err(_) => json!({"index": index, "status": "failed", "error": super::ANYTHING}),
    };
    let succeeded = results.iter().filter(|result| result.is_ok()).count();
    let all: Vec<Value> = results.iter().enumerate().map(shown).collect();
    json!({"results": all, "succeeded": succeeded, "failed": results.len() - succeeded})
}
