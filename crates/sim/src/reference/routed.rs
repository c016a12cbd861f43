//! Routed scopes: one cursor, one step after another. Nothing here happens at the same time as anything else.

use serde_json::Value;
use skein_core::{
    ir::{Branch, Kind, StepStatus, Then},
    plan::Next,
};

use super::{
    Ending, Eval, Fault, Race,
    frame::{Arrival, End, Frame, Instance, Log, Stop, Tally, Visit, halts},
};

impl<'a> Eval<'a> {
    pub(super) fn routed(&mut self, frame: &Frame<'_, 'a>) -> Result<Instance<'a>, Race> {
        let entry = frame.entry(self);
        let mut cursor = Next::Step(entry.start);
        let mut tally = Tally::default();
        let mut log = Vec::new();
        let mut last = (Value::Null, false);
        while let Next::Step(step) = cursor {
            let visit = match self.arrive(frame, step, true)? {
                Arrival::Over(end) => Visit::Ended(*end),
                Arrival::Ready => self.perform(frame, step)?,
                Arrival::TooMany => return Ok(Instance::Stops(Stop::Limit, Log::InOrder(log))),
            };
            let mut end = match visit {
                Visit::Ended(end) => end,
                Visit::Waiting => {
                    frame.set(step, StepStatus::Waiting, None);
                    return Ok(Instance::Waiting);
                }
                Visit::Stops { why, inside, .. } => {
                    frame.set(step, StepStatus::Cancelled, None);
                    log.push(inside);
                    return Ok(Instance::Stops(why, Log::InOrder(log)));
                }
            };
            let (effect, completed) = self.settle(frame, step, &mut end)?;
            log.push(completed);
            tally.add(&end, effect, true);
            if halts(effect) {
                let result = Err(tally.first.unwrap_or_else(Fault::unknown));
                let halted = Some((step, effect.then == Then::Undo));
                let log = Log::InOrder(log);
                return Ok(Instance::Ended { result, degraded: false, log, halted, unclear: false });
            }
            let branch = matches!(entry.step(step).kind, Kind::Branch(_));
            if end.ending == Ending::Succeeded && !branch {
                last = (end.output.clone(), end.unclear);
            }
            cursor = self.onward(frame, step, &end, effect.satisfies)?;
        }
        self.conclude(frame, tally, last, Log::InOrder(log))
    }

    fn onward(&self, frame: &Frame<'_, 'a>, step: u32, end: &End<'a>, satisfies: bool) -> Result<Next, Race> {
        let entry = frame.entry(self);
        let branch = matches!(entry.step(step).kind, Kind::Branch(_));
        match end.route {
            _ if !satisfies => Ok(Next::End),
            Some(next) => Ok(next),
            None if branch => Err(Race("where a failed branch leads")),
            None => Ok(entry.next[step as usize]),
        }
    }

    pub(super) fn branch(&mut self, frame: &Frame<'_, 'a>, branch: &Branch) -> Result<Visit<'a>, Race> {
        let entry = frame.entry(self);
        let mut target = &branch.default;
        for arm in &branch.arms {
            match self.test(frame, &arm.when)? {
                Ok(false) => {}
                Ok(true) => {
                    target = &arm.next;
                    break;
                }
                Err(_) => return Ok(Visit::Ended(End::failed(Fault::validation("condition")))),
            }
        }
        Ok(Visit::Ended(End { route: Some(entry.target(target)), ..End::with(Value::Null) }))
    }
}
