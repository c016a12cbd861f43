//! Graphs: steps wait for what they depend on. Steps that are not related may be at work at the same time, so that
//! whatever depends on their order is a race, unless only one may be at work at once and it never steps back.

use std::collections::BTreeSet;

use serde_json::Value;
use skein_core::ir::{Kind, StepStatus, Then};

use super::{
    Ending, Eval, Fault, Race,
    conflict::settler_of,
    frame::{Arrival, End, Frame, Instance, Log, Stop, Tally, Visit, halts},
};

/// The evaluation of one graph instance.
struct Graph<'a> {
    /// For each step, all that come before it by dependencies.
    before: Vec<BTreeSet<u32>>,
    /// Everything so far happened one after another.
    in_order: bool,
    /// Whether each step that ended satisfies.
    ended: Vec<Option<bool>>,
    arrived: Vec<bool>,
    /// The place of each among the ends, and of the last end that each waited for; none waited for is 0.
    order: Vec<usize>,
    since: Vec<usize>,
    waiting: bool,
    tally: Tally,
    log: Vec<(u32, Log<'a>)>,
}

impl Graph<'_> {
    fn related(&self, a: u32, b: u32) -> bool {
        a == b || self.before[a as usize].contains(&b) || self.before[b as usize].contains(&a)
    }

    fn steps(&self) -> u32 {
        u32::try_from(self.ended.len()).unwrap_or(u32::MAX)
    }

    fn alone(&self, step: u32) -> bool {
        (0..self.steps()).all(|other| self.related(step, other))
    }

    /// Whether one that was ready before this step is declared after it. Who gets a slot that the end of what this
    /// step waited for made free is left open.
    fn overtakes(&self, step: u32) -> bool {
        let since = self.since[step as usize];
        (0..self.ended.len()).any(|i| self.arrived[i] && self.ended[i].is_none() && self.since[i] < since)
    }

    /// Whether something that is not related to this step is still to come or at work. What was skipped on the way may have
    /// let one arrive that comes after it.
    fn others_open(&self, step: u32) -> bool {
        let open = |other: u32| other != step && self.ended[other as usize].is_none();
        let beside = |other: u32| !self.related(step, other) || self.arrived[other as usize];
        (0..self.steps()).any(|other| open(other) && beside(other))
    }
}

impl<'a> Eval<'a> {
    pub(super) fn graph(&mut self, frame: &Frame<'_, 'a>) -> Result<Instance<'a>, Race> {
        let entry = frame.entry(self);
        let before = before(entry);
        let count = before.len();
        let mut graph = Graph {
            before,
            in_order: false,
            ended: vec![None; count],
            arrived: vec![false; count],
            order: vec![0; count],
            since: vec![0; count],
            waiting: false,
            tally: Tally::default(),
            log: Vec::new(),
        };
        // These do something on arrival, whoever is at work.
        let unslotted = |step: u32| {
            let step = entry.step(step);
            matches!(step.kind, Kind::Gate(_) | Kind::Wait(_))
                || step.policy.approval.is_some()
                || step.policy.denied.is_some()
        };
        graph.in_order = (0..graph.steps())
            .all(|step| graph.alone(step) || (entry.scope.concurrency == Some(1) && !unslotted(step)));
        loop {
            if let Some(stopped) = self.arrivals(frame, &mut graph)? {
                return Ok(stopped);
            }
            let ready = (0..graph.steps()).find(|i| {
                let i = *i as usize;
                graph.arrived[i]
                    && graph.ended[i].is_none()
                    && frame.steps.borrow()[i].status != StepStatus::Waiting
            });
            let Some(step) = ready else { break };
            graph.in_order &= !graph.overtakes(step);
            if let Some(stopped) = self.one(frame, &mut graph, step)? {
                return Ok(stopped);
            }
        }
        if graph.waiting {
            return Ok(Instance::Waiting);
        }
        let log = order(&mut graph);
        self.conclude(frame, graph.tally, (Value::Null, false), log)
    }

    /// Lets everything arrive that can, in order of declaration.
    fn arrivals(
        &mut self,
        frame: &Frame<'_, 'a>,
        graph: &mut Graph<'a>,
    ) -> Result<Option<Instance<'a>>, Race> {
        loop {
            let mut any = false;
            for step in 0..graph.steps() {
                let i = step as usize;
                if graph.arrived[i] || graph.ended[i].is_some() {
                    continue;
                }
                let depends = depends(frame.entry(self), step);
                let entry = frame.entry(self);
                // Who settles conflicts waits for any end of those whose they are.
                let over = |d: &u32| match graph.ended[*d as usize] {
                    Some(false) if settler_of(entry, *d) == Some(step) => Some(true),
                    ended => ended,
                };
                if depends.iter().any(|d| over(d) == Some(false)) {
                    any = true;
                    let end = End::of(Ending::SkippedByUpstream);
                    if let Some(stopped) = self.note(frame, graph, step, end, true)? {
                        return Ok(Some(stopped));
                    }
                } else if depends.iter().all(|d| over(d) == Some(true)) {
                    any = true;
                    graph.arrived[i] = true;
                    graph.since[i] = depends.iter().map(|d| graph.order[*d as usize]).max().unwrap_or(0);
                    let alone = graph.alone(step);
                    let stopped = match self.arrive(frame, step, alone)? {
                        Arrival::Ready => None,
                        Arrival::Over(end) => self.note(frame, graph, step, *end, true)?,
                        Arrival::TooMany => Some(Instance::Stops(Stop::Limit, order(graph))),
                    };
                    if stopped.is_some() {
                        return Ok(stopped);
                    }
                }
            }
            if !any {
                return Ok(None);
            }
        }
    }

    fn one(
        &mut self,
        frame: &Frame<'_, 'a>,
        graph: &mut Graph<'a>,
        step: u32,
    ) -> Result<Option<Instance<'a>>, Race> {
        let entry = frame.entry(self);
        let company = frame.concurrent.get();
        frame.concurrent.set(company || (!graph.alone(step) && !graph.in_order));
        let visit = self.perform(frame, step)?;
        frame.concurrent.set(company);
        match visit {
            Visit::Ended(end) => {
                // A slot that was given back may have let another go first.
                graph.in_order &= !(end.yielded && graph.others_open(step));
                self.note(frame, graph, step, end, false)
            }
            Visit::Waiting => {
                let composite = !entry.step(step).kind.scopes().is_empty()
                    || matches!(entry.step(step).kind, Kind::Call(_));
                if composite && entry.scope.concurrency.is_some() && graph.others_open(step) {
                    return Err(Race("who waits keeps a slot that others need"));
                }
                graph.in_order &= !graph.others_open(step);
                graph.waiting = true;
                frame.set(step, StepStatus::Waiting, None);
                Ok(None)
            }
            Visit::Stops { why, inside, yielded } => {
                graph.in_order &= !(yielded && graph.others_open(step));
                if frame.concurrent.get() || graph.waiting || (graph.others_open(step) && !graph.in_order) {
                    return Err(Race("a cancel meets others at work"));
                }
                frame.set(step, StepStatus::Cancelled, None);
                graph.log.push((step, inside));
                unstarted(frame, graph);
                Ok(Some(Instance::Stops(why, order(graph))))
            }
        }
    }

    /// Notes the end of a step. Something is given back when that halts the instance.
    fn note(
        &mut self,
        frame: &Frame<'_, 'a>,
        graph: &mut Graph<'a>,
        step: u32,
        mut end: End<'a>,
        on_arrival: bool,
    ) -> Result<Option<Instance<'a>>, Race> {
        if let Some(by) = settler_of(frame.entry(self), step).filter(|_| end.unmerged && !graph.in_order) {
            let others = depends(frame.entry(self), by);
            let own = |d: &u32| settler_of(frame.entry(self), *d) != Some(by);
            if others.iter().any(|d| own(d) && graph.ended[*d as usize] != Some(true)) {
                return Err(Race("who settles a conflict may be skipped before it is there"));
            }
        }
        let (effect, log) = self.settle(frame, step, &mut end)?;
        graph.ended[step as usize] = Some(effect.satisfies);
        graph.order[step as usize] = graph.ended.iter().flatten().count();
        graph.log.push((step, log));
        graph.tally.add(&end, effect, graph.in_order);
        if !halts(effect) {
            return Ok(None);
        }
        let others = graph.others_open(step);
        if others && (!graph.in_order || on_arrival) {
            return Err(Race("a failure meets others at work"));
        }
        // One that is in order comes after all that ended; otherwise unrelated ones must not have been there at all.
        if !graph.in_order && !graph.alone(step) {
            return Err(Race("a failure may have come before what ended"));
        }
        unstarted(frame, graph);
        let fault = match end.ending {
            Ending::Failed(fault) => fault,
            _ => Fault::unknown(),
        };
        let halted = Some((step, effect.then == Then::Undo));
        let log = order(graph);
        Ok(Some(Instance::Ended { result: Err(fault), degraded: false, log, halted, unclear: false }))
    }
}

/// Steps that wait for a slot when all stops have not started, and yet they waited.
fn unstarted(frame: &Frame<'_, '_>, graph: &Graph<'_>) {
    for step in 0..graph.steps() {
        let i = step as usize;
        if graph.arrived[i]
            && graph.ended[i].is_none()
            && frame.steps.borrow()[i].status == StepStatus::Pending
        {
            frame.set(step, StepStatus::Skipped, Some(StepStatus::Cancelled));
        }
    }
}

/// What was completed, in the order that is known.
fn order<'a>(graph: &mut Graph<'a>) -> Log<'a> {
    let log = std::mem::take(&mut graph.log);
    let full: Vec<u32> = log.iter().filter(|(_, log)| !log.is_empty()).map(|(step, _)| *step).collect();
    let ordered = graph.in_order || full.iter().all(|a| full.iter().all(|b| graph.related(*a, *b)));
    let logs = log.into_iter().map(|(_, log)| log).collect();
    if ordered { Log::InOrder(logs) } else { Log::AnyOrder(logs) }
}

fn depends(entry: &skein_core::plan::ScopeEntry, step: u32) -> Vec<u32> {
    entry.step(step).after.iter().filter_map(|id| entry.by_id.get(id).copied()).collect()
}

/// For each step, all that come before it. A graph has no cycles, so that as many rounds as steps suffice.
fn before(entry: &skein_core::plan::ScopeEntry) -> Vec<BTreeSet<u32>> {
    let count = entry.scope.steps.len();
    let mut before = vec![BTreeSet::new(); count];
    for _ in 0..count {
        for i in 0..count {
            let direct = depends(entry, u32::try_from(i).unwrap_or(u32::MAX));
            let more: Vec<u32> = direct
                .iter()
                .flat_map(|d| before[*d as usize].iter().copied())
                .chain(direct.clone())
                .collect();
            before[i].extend(more);
        }
    }
    before
}
