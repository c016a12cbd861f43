//! Whole workflows: the run and calls, how they end, and what every step goes through on arrival.

use serde_json::{Value, json};
use skein_core::{
    ir::{ErrorClass, Kind, RunStatus, Shape, Verdict},
    plan::{Plan, WorkflowEntry},
};

use super::{
    Ending, Eval, Expected, Fault, NEVER_DUE, Race,
    frame::{Arrival, Completed, End, Frame, Home, Instance, Log, Stop, Tally, Visit},
};
use crate::paths::Name;

/// How a workflow ended.
pub struct Whole<'a> {
    pub status: RunStatus,
    pub output: Value,
    pub fault: Fault,
    pub degraded: bool,
    pub unclear: bool,
    /// The steps of a success that its caller can undo.
    pub log: Log<'a>,
}

impl<'a> Eval<'a> {
    pub(super) fn run(&mut self, plan: &'a Plan) -> Result<Expected, Race> {
        let input = (*plan.parameters).clone();
        let root = self.definition.root();
        let whole = self.workflow(root, input, Name::default(), false)?;
        let (status, output, degraded) = match whole {
            None if self.has_timeouts() => return Err(Race("what waits for ever runs out of time")),
            None => (RunStatus::Waiting, Value::Null, false),
            Some(whole) if whole.unclear => (whole.status, super::ANYTHING.into(), whole.degraded),
            Some(whole) => (whole.status, whole.output, whole.degraded),
        };
        let (steps, undone) = (std::mem::take(&mut self.steps), std::mem::take(&mut self.undone));
        Ok(Expected { status, output, degraded, steps, undone })
    }

    /// Even a time that no run takes passes when one waits for ever.
    fn has_timeouts(&self) -> bool {
        let of_step = |step: &std::sync::Arc<skein_core::ir::Step>| {
            step.policy.timeout_per == skein_core::ir::Per::Step && step.policy.timeout.is_some()
        };
        let mut scopes = self.definition.scopes.iter();
        scopes.any(|entry| entry.scope.timeout.is_some() || entry.scope.steps.iter().any(of_step))
    }

    /// Runs a workflow to its end, undo included. None: it waits for ever.
    pub(super) fn workflow(
        &mut self,
        entry: &'a WorkflowEntry,
        input: Value,
        name: Name,
        accompanied: bool,
    ) -> Result<Option<Whole<'a>>, Race> {
        let mut home = Home { entry, input, env: Value::Null, executed: Default::default(), accompanied };
        let mut env = json!({});
        for (name, expr) in &entry.workflow.env {
            let frame = Frame::new(self, entry.root, Name::default(), &home);
            env[name.as_str()] = self.value(&frame, expr)?.map_err(|_| Race("an env that has no value"))?;
        }
        home.env = env;
        let frame = Frame::new(self, entry.root, name, &home);
        match self.instance(&frame)? {
            Instance::Waiting => {
                frame.close(self, true);
                Ok(None)
            }
            Instance::Stops(why, log) => {
                frame.close(self, false);
                self.stopped(entry, why, &log).map(Some)
            }
            Instance::Ended { result, degraded, log, halted, unclear } => {
                frame.close(self, false);
                let status = match (&result, halted) {
                    (Ok(_), _) => RunStatus::Succeeded,
                    (Err(_), Some((step, true))) => self.undo_after(&frame, step, &log)?,
                    (Err(_), _) => RunStatus::Failed,
                };
                let (output, fault) = match result {
                    Ok(output) => (output, Fault::unknown()),
                    Err(fault) => (Value::Null, fault),
                };
                Ok(Some(Whole { status, output, fault, degraded, unclear, log }))
            }
        }
    }

    fn stopped(&mut self, entry: &WorkflowEntry, why: Stop, log: &Log<'a>) -> Result<Whole<'a>, Race> {
        let policy = &entry.workflow.scope.undo;
        let (mut status, undoes, fault) = match why {
            Stop::Cancel => {
                let fault = Fault::of(ErrorClass::NonRetryable, "cancelled");
                (RunStatus::Cancelled, policy.on_cancel, fault)
            }
            // The rules give it a code and no class.
            Stop::Limit => {
                let fault = Fault { class: None, code: Some("max_steps".to_owned()) };
                (RunStatus::Failed, policy.on_timeout, fault)
            }
        };
        if undoes {
            let walked = self.walk(None, log, policy.if_one_fails)?;
            if walked.failed {
                status = RunStatus::UndoFailed;
            } else if walked.undone > 0 && why == Stop::Limit {
                status = RunStatus::Undone;
            }
        }
        let log = Log::empty();
        Ok(Whole { status, output: Value::Null, fault, degraded: false, unclear: false, log })
    }

    fn undo_after(&mut self, frame: &Frame<'_, 'a>, failed: u32, log: &Log<'a>) -> Result<RunStatus, Race> {
        let policy = &frame.home.entry.workflow.scope.undo;
        let step = frame.entry(self).step(failed);
        let mut first = None;
        if policy.failed_step && step.undo.is_some() {
            let known = frame.steps.borrow()[failed as usize].clone();
            if known.attempts == 0 || !matches!(step.kind, Kind::Work(_)) {
                return Err(Race("whether a step that did nothing itself is undone"));
            }
            first = Some(Completed { step, name: frame.name.clone(), visit: known.visits });
        }
        let walked = self.walk(first, log, policy.if_one_fails)?;
        Ok(match walked {
            walked if walked.failed => RunStatus::UndoFailed,
            walked if walked.undone > 0 => RunStatus::Undone,
            _ => RunStatus::Failed,
        })
    }

    /// Runs a scope instance to its end.
    pub(super) fn instance(&mut self, frame: &Frame<'_, 'a>) -> Result<Instance<'a>, Race> {
        let scope = &frame.entry(self).scope;
        if scope.timeout.is_some_and(|timeout| timeout < NEVER_DUE) {
            return Err(Race("a scope may run out of time"));
        }
        match scope.shape {
            Shape::Graph => self.graph(frame),
            Shape::Routed { .. } => self.routed(frame),
        }
    }

    /// An instance that came to its end by itself.
    pub(super) fn conclude(
        &mut self,
        frame: &Frame<'_, 'a>,
        tally: Tally,
        last: (Value, bool),
        log: Log<'a>,
    ) -> Result<Instance<'a>, Race> {
        let scope = &frame.entry(self).scope;
        let (mut output, mut unclear) = last;
        if let Some(result) = &scope.result {
            output = self.value(frame, result)?.map_err(|_| Race("a result that has no value"))?;
            unclear = false;
        }
        let result = match tally.worst {
            Verdict::Failed => Err(tally.first.unwrap_or_else(Fault::unknown)),
            _ if unclear && !scope.outputs.is_empty() => return Err(Race("an open value is checked")),
            _ if scope.outputs.check(&output).is_err() => Err(Fault::validation("output_invalid")),
            _ => Ok(output),
        };
        let degraded = tally.worst == Verdict::Degraded && result.is_ok();
        Ok(Instance::Ended { result, degraded, log, halted: None, unclear })
    }

    /// What happens to a step on arrival, before anything is done: the count, then the condition.
    pub(super) fn arrive(
        &mut self,
        frame: &Frame<'_, 'a>,
        step: u32,
        alone: bool,
    ) -> Result<Arrival<'a>, Race> {
        let home = frame.home;
        if home.entry.workflow.scope.max_steps.is_some_and(|max| home.executed.get() >= max) {
            if frame.concurrent.get() || !alone {
                return Err(Race("which of several steps is one too many"));
            }
            return Ok(Arrival::TooMany);
        }
        {
            let known = &mut frame.steps.borrow_mut()[step as usize];
            known.visits += 1;
            known.at_work = true;
        }
        let entry = frame.entry(self);
        let tested = match &entry.step(step).when {
            _ if self.has_nothing_to_settle(frame, step) => Ok(false),
            Some(when) => self.test(frame, when)?,
            None => Ok(true),
        };
        home.executed.set(home.executed.get() + 1);
        Ok(match tested {
            Ok(true) => Arrival::Ready,
            Ok(false) => {
                let output = entry.step(step).outputs.defaults();
                Arrival::Over(Box::new(End { output, ..End::of(Ending::SkippedByCondition) }))
            }
            Err(_) => Arrival::Over(Box::new(End::failed(Fault::validation("condition")))),
        })
    }

    /// What a step does once it has arrived.
    pub(super) fn perform(&mut self, frame: &Frame<'_, 'a>, step: u32) -> Result<Visit<'a>, Race> {
        let it = frame.entry(self).step(step);
        if it.policy.timeout_per == skein_core::ir::Per::Step
            && it.policy.timeout.is_some_and(|timeout| timeout < NEVER_DUE)
        {
            return Err(Race("a step may run out of time"));
        }
        match &it.kind {
            Kind::Work(work) => self.work(frame, step, work),
            Kind::Gate(gate) => self.gate(frame, step, gate),
            Kind::Wait(wait) => self.wait(frame, step, wait),
            Kind::Branch(branch) => self.branch(frame, branch),
            Kind::Parallel(_) | Kind::Each(_) | Kind::Loop(_) | Kind::Call(_) => self.composite(frame, step),
        }
    }

    /// Notes an end: its effect, and what of it can be undone.
    pub(super) fn settle(
        &mut self,
        frame: &Frame<'_, 'a>,
        step: u32,
        end: &mut End<'a>,
    ) -> Result<(skein_core::ir::Effect, Log<'a>), Race> {
        let it = frame.entry(self).step(step);
        let (effect, handed_on) = self.effect(frame, step, end)?;
        if end.unmerged && !handed_on {
            end.output = Value::Null;
        }
        let failed = matches!(end.ending, Ending::Failed(_) | Ending::Exhausted);
        if failed && effect.satisfies && !handed_on && end.output.is_null() {
            end.output = it.outputs.defaults();
        }
        frame.end(step, end, effect);
        frame.steps.borrow_mut()[step as usize].handed_on = handed_on;
        let inside = std::mem::replace(&mut end.inside, Log::empty());
        let visit = frame.steps.borrow()[step as usize].visits;
        let log = if (end.ending == Ending::Succeeded || handed_on) && it.undo.is_some() {
            let one = Completed { step: it, name: frame.name.clone(), visit };
            Log::InOrder(vec![inside, Log::One(one)])
        } else {
            inside
        };
        Ok((effect, log))
    }
}
