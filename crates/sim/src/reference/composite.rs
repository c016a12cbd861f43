//! Parallel, each, loop and call: instances inside a step, and retries of the whole step.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use skein_core::{
    engine::{Cost, InstancePart},
    ir::{
        Budget, EachErrorPolicy, EachSpec, ErrorClass, LoopSpec, LoopTest, ParallelSpec, RunStatus, StepKindSpec,
        UndoFailurePolicy,
    },
    limits,
    plan::ScopeIx,
};

use super::{
    ModelEvaluator, ModelFailure, RaceResult, TimingRace,
    frame::{CompletionLog, ModelFrame, ModelInstanceResult, ModelStopReason, ModelVisitEnd, ModelVisitResult},
    workflow::allows_retry,
};

/// The result of one try of a composite.
enum ModelCompositeTry<'a> {
    Done(Result<(Value, bool), ModelFailure>, CompletionLog<'a>),
    /// Must not be retried, regardless of the policy.
    Hopeless(ModelFailure),
    Waiting,
    Stops(ModelStopReason, CompletionLog<'a>),
}

/// A visit of a composite, with the number of times each of its parts has begun.
struct ModelCompositeVisit {
    step: u32,
    begun: BTreeMap<InstancePart, u32>,
    /// True if a part of the current try was degraded.
    degraded: bool,
}

impl ModelCompositeVisit {
    fn end_visit<'a>(&self, end: ModelVisitEnd<'a>, tries: u32) -> ModelVisitResult<'a> {
        ModelVisitResult::Ended(ModelVisitEnd { attempts: tries, yielded: tries > 1, degraded: self.degraded, ..end })
    }
}

impl<'a> ModelEvaluator<'a> {
    pub(super) fn evaluate_composite(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        step: u32,
    ) -> RaceResult<ModelVisitResult<'a>> {
        let entry = frame.scope_entry(self);
        let it = entry.step(step);
        let mut budgets: Vec<&Budget> = it.policy.budget.iter().collect();
        if matches!(it.kind, StepKindSpec::Call(_)) {
            budgets.extend(&self.definition.workflow_containing(entry.inner_scope(step, 0)).workflow.budget);
        }
        if !budgets.is_empty() && frame.steps.borrow()[step as usize].visits > 1 {
            return Err(TimingRace("whether a budget is for a visit or for all"));
        }
        let budgets = budgets.into_iter().map(|budget| (budget, Cost::default())).collect();
        self.around.push((budgets, Cost::default()));
        let visit = self.run_composite_tries(frame, step);
        self.around.pop();
        visit
    }

    fn run_composite_tries(&mut self, frame: &ModelFrame<'_, 'a>, step: u32) -> RaceResult<ModelVisitResult<'a>> {
        let it = frame.scope_entry(self).step(step);
        let mut doing = ModelCompositeVisit { step, begun: BTreeMap::new(), degraded: false };
        let mut tries = 0;
        loop {
            frame.inner.borrow_mut().retain(|(holder, _), _| *holder != step);
            doing.degraded = false;
            let done = match &it.kind {
                StepKindSpec::Parallel(parallel) => self.evaluate_parallel(frame, &mut doing, parallel)?,
                StepKindSpec::Each(each) => self.evaluate_each(frame, &mut doing, each)?,
                StepKindSpec::Loop(repeat) => self.evaluate_loop(frame, &mut doing, repeat)?,
                _ => self.evaluate_call(frame, &mut doing)?,
            };
            tries += 1;
            let (fault, log) = match done {
                ModelCompositeTry::Waiting => return Ok(ModelVisitResult::Waiting),
                ModelCompositeTry::Stops(why, inside) => {
                    return Ok(ModelVisitResult::Stops { why, inside, yielded: tries > 1 });
                }
                ModelCompositeTry::Hopeless(fault) => {
                    return Ok(doing.end_visit(ModelVisitEnd::from_failure(fault), tries));
                }
                ModelCompositeTry::Done(Ok((output, unclear)), inside) => {
                    return Ok(
                        doing.end_visit(ModelVisitEnd { inside, unclear, ..ModelVisitEnd::from_output(output) }, tries)
                    );
                }
                ModelCompositeTry::Done(Err(fault), log) => (fault, log),
            };
            let retry = &it.policy.retry;
            if fault.class.is_none() && !retry.attempts.is_empty() {
                return Err(TimingRace("whether to retry depends on a class that is not known"));
            }
            if !fault.class.is_some_and(|class| allows_retry(retry, tries, class, fault.code.as_deref())) {
                return Ok(doing.end_visit(ModelVisitEnd { inside: log, ..ModelVisitEnd::from_failure(fault) }, tries));
            }
            let walked = self.run_undo_walk(None, &log, UndoFailurePolicy::GoOn)?;
            if walked.failed {
                return Err(TimingRace("a try cannot be undone"));
            }
        }
    }

    /// Evaluates a new instance inside the step.
    fn enter_instance(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        doing: &mut ModelCompositeVisit,
        part: InstancePart,
        item: Option<(Value, u32)>,
        company: bool,
    ) -> RaceResult<ModelInstanceResult<'a>> {
        let entry = frame.scope_entry(self);
        let it = entry.step(doing.step);
        let which = if let InstancePart::Lane(lane) = part { lane } else { 0 };
        let again = doing.begun.entry(part).or_default();
        *again += 1;
        let lane = match &it.kind {
            StepKindSpec::Parallel(parallel) => parallel.lanes[which as usize].id.as_str(),
            _ => "",
        };
        let visit = frame.steps.borrow()[doing.step as usize].visits;
        let name = frame.name.child_paths(it.id.as_str(), visit, part, lane, *again);
        let scope: ScopeIx = entry.inner_scope(doing.step, which);
        let mut inner = ModelFrame::new(self, scope, name, frame.home);
        inner.outer = Some(frame);
        inner.item = item;
        inner.concurrent.set(frame.concurrent.get() || company);
        let instance = self.evaluate_instance(&inner)?;
        doing.degraded |= matches!(instance, ModelInstanceResult::Ended { degraded: true, .. });
        let record = inner.close_frame(self, matches!(instance, ModelInstanceResult::Waiting));
        if !matches!(it.kind, StepKindSpec::Each(_)) {
            frame.inner.borrow_mut().insert((doing.step, which), record);
        }
        Ok(instance)
    }

    fn evaluate_parallel(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        doing: &mut ModelCompositeVisit,
        parallel: &ParallelSpec,
    ) -> RaceResult<ModelCompositeTry<'a>> {
        let company = parallel.lanes.len() > 1;
        let mut output = serde_json::Map::new();
        let (mut waits, mut logs, mut open) = (false, Vec::new(), false);
        for (i, lane) in (0..).zip(&parallel.lanes) {
            match self.enter_instance(frame, doing, InstancePart::Lane(i), None, company)? {
                ModelInstanceResult::Waiting => waits = true,
                ModelInstanceResult::Stops(..) => return Err(TimingRace("a cancel meets other lanes")),
                ModelInstanceResult::Ended { result: Err(_), .. } if company => {
                    return Err(TimingRace("a lane fails"));
                }
                ModelInstanceResult::Ended { result: Err(fault), log, .. } => {
                    return Ok(ModelCompositeTry::Done(Err(fault), log));
                }
                ModelInstanceResult::Ended { result: Ok(value), log, unclear, .. } => {
                    open |= unclear;
                    output.insert(lane.id.as_str().to_owned(), value);
                    logs.push(log);
                }
            }
        }
        Ok(if waits {
            ModelCompositeTry::Waiting
        } else {
            ModelCompositeTry::Done(Ok((output.into(), open)), CompletionLog::AnyOrder(logs))
        })
    }

    fn evaluate_each(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        doing: &mut ModelCompositeVisit,
        each: &EachSpec,
    ) -> RaceResult<ModelCompositeTry<'a>> {
        let items = match self.evaluate_expr(frame, &each.over)? {
            Ok(Value::Array(items)) if items.len() > limits::ITEMS => {
                return Ok(ModelCompositeTry::Hopeless(ModelFailure::validation("too_many_items")));
            }
            Ok(Value::Array(items)) => items,
            Ok(_) => return Ok(ModelCompositeTry::Hopeless(ModelFailure::validation("not_a_list"))),
            Err(_) => return Ok(ModelCompositeTry::Hopeless(ModelFailure::validation("expression"))),
        };
        let company = items.len() > 1 && each.parallelism != Some(1);
        let room = each.parallelism.is_none_or(|most| items.len() <= most as usize);
        let mut done = ModelItemResults { results: Vec::new(), logs: Vec::new(), open: false, waits: false };
        for (i, item) in (0_u32..).zip(items) {
            let one = self.enter_instance(frame, doing, InstancePart::Item(i), Some((item, i)), company)?;
            match one {
                ModelInstanceResult::Waiting if company && !room => {
                    return Err(TimingRace("an item that waits blocks other items"));
                }
                ModelInstanceResult::Waiting if !company => return Ok(ModelCompositeTry::Waiting),
                ModelInstanceResult::Waiting => done.waits = true,
                ModelInstanceResult::Stops(..) if company => {
                    return Err(TimingRace("a cancel meets other items"));
                }
                ModelInstanceResult::Stops(why, log) => {
                    done.logs.push(log);
                    return Ok(ModelCompositeTry::Stops(why, CompletionLog::InOrder(done.logs)));
                }
                ModelInstanceResult::Ended { result, log, unclear, .. } => {
                    let failed = result.is_err();
                    done.open |= unclear;
                    done.results.push(result);
                    done.logs.push(log);
                    if failed && each.errors == EachErrorPolicy::FailFast {
                        if company {
                            return Err(TimingRace("an item fails"));
                        }
                        break;
                    }
                }
            }
        }
        Ok(if done.waits { ModelCompositeTry::Waiting } else { done.conclude_each(each.errors, company) })
    }

    fn evaluate_loop(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        doing: &mut ModelCompositeVisit,
        repeat: &LoopSpec,
    ) -> RaceResult<ModelCompositeTry<'a>> {
        let mut passes = 0;
        let mut last = (Value::Null, false);
        let mut logs = Vec::new();
        loop {
            if passes > 0 || repeat.test == LoopTest::First {
                let goes_on = match self.evaluate_condition(frame, &repeat.condition)? {
                    Ok(goes_on) => goes_on,
                    Err(error) if passes == 0 && error.is_not_yet() => true,
                    Err(_) => {
                        return Ok(ModelCompositeTry::Done(
                            Err(ModelFailure::validation("condition")),
                            CompletionLog::InOrder(logs),
                        ));
                    }
                };
                if !goes_on {
                    return Ok(ModelCompositeTry::Done(Ok(last), CompletionLog::InOrder(logs)));
                }
            }
            if passes >= repeat.max {
                let fault = ModelFailure::new(ErrorClass::NonRetryable, "loop_max_iterations");
                return Ok(ModelCompositeTry::Done(Err(fault), CompletionLog::InOrder(logs)));
            }
            passes += 1;
            match self.enter_instance(frame, doing, InstancePart::Pass(passes), None, false)? {
                ModelInstanceResult::Waiting => return Ok(ModelCompositeTry::Waiting),
                ModelInstanceResult::Stops(why, log) => {
                    logs.push(log);
                    return Ok(ModelCompositeTry::Stops(why, CompletionLog::InOrder(logs)));
                }
                ModelInstanceResult::Ended { result, log, unclear, .. } => {
                    logs.push(log);
                    match result {
                        Ok(value) => last = (value, unclear),
                        Err(fault) => {
                            return Ok(ModelCompositeTry::Done(Err(fault), CompletionLog::InOrder(logs)));
                        }
                    }
                }
            }
        }
    }

    fn evaluate_call(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        doing: &mut ModelCompositeVisit,
    ) -> RaceResult<ModelCompositeTry<'a>> {
        let entry = frame.scope_entry(self);
        let it = entry.step(doing.step);
        let mut input = match self.evaluate_inputs(frame, it)? {
            Ok(input) => input,
            Err(fault) => return Ok(ModelCompositeTry::Hopeless(fault)),
        };
        let called = self.definition.workflow_containing(entry.inner_scope(doing.step, 0));
        called.workflow.inputs.fill_defaults(&mut input);
        if called.workflow.inputs.check(&input).is_err() {
            return Ok(ModelCompositeTry::Hopeless(ModelFailure::validation("input_invalid")));
        }
        let again = doing.begun.entry(InstancePart::Call).or_default();
        *again += 1;
        let visit = frame.steps.borrow()[doing.step as usize].visits;
        let name = frame.name.child_paths(it.id.as_str(), visit, InstancePart::Call, "", *again);
        let accompanied = frame.home.accompanied || frame.concurrent.get();
        let Some(whole) = self.evaluate_workflow(called, input, name, accompanied)? else {
            return Ok(ModelCompositeTry::Waiting);
        };
        doing.degraded |= whole.degraded;
        let mut log = CompletionLog::empty();
        let result = match whole.status {
            RunStatus::Succeeded => {
                // A call without its own undo is undone through the steps inside it.
                if it.undo.is_none() {
                    log = whole.log;
                }
                Ok((whole.output, whole.unclear))
            }
            RunStatus::UndoFailed => return Err(TimingRace("the output of a call whose undo failed")),
            _ => Err(whole.fault),
        };
        Ok(ModelCompositeTry::Done(result, log))
    }
}

/// The results of the items of an each.
struct ModelItemResults<'a> {
    results: Vec<Result<Value, ModelFailure>>,
    logs: Vec<CompletionLog<'a>>,
    open: bool,
    waits: bool,
}

impl<'a> ModelItemResults<'a> {
    fn conclude_each(self, errors: EachErrorPolicy, company: bool) -> ModelCompositeTry<'a> {
        let log = if company { CompletionLog::AnyOrder(self.logs) } else { CompletionLog::InOrder(self.logs) };
        if errors == EachErrorPolicy::Collect {
            return ModelCompositeTry::Done(Ok((collect_item_results(&self.results), self.open)), log);
        }
        let mut faults = self.results.iter().filter_map(|result| result.as_ref().err());
        let Some(first) = faults.next() else {
            return ModelCompositeTry::Done(Ok((self.results.into_iter().flatten().collect(), self.open)), log);
        };
        // If the items run concurrently, the order of their failures is unknown.
        let alike = !company || faults.all(|fault| fault == first);
        ModelCompositeTry::Done(Err(if alike { first.clone() } else { ModelFailure::unknown() }), log)
    }
}

fn collect_item_results(results: &[Result<Value, ModelFailure>]) -> Value {
    let shown = |(index, result): (usize, &Result<Value, ModelFailure>)| match result {
        Ok(value) => json!({"index": index, "status": "succeeded", "value": value}),
        Err(_) => json!({"index": index, "status": "failed", "error": super::ANYTHING}),
    };
    let succeeded = results.iter().filter(|result| result.is_ok()).count();
    let all: Vec<Value> = results.iter().enumerate().map(shown).collect();
    json!({"results": all, "succeeded": succeeded, "failed": results.len() - succeeded})
}
