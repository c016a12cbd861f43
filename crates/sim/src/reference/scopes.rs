//! Scopes. In a graph, steps wait for their dependencies; unrelated steps may run at the same time, so a result that
//! depends on their order is a race, unless only one step may run at once and it never gives its slot back. In a routed
//! scope, one cursor visits one step after another. A merge conflict goes to its conflict resolver, and counts as a
//! failure only if that step does not succeed.

use std::collections::BTreeSet;

use serde_json::Value;
use skein_core::{
    ir::{BranchSpec, ErrorClass, OutcomeAction, OutcomeEffect, ScopeShape, StepKindSpec, StepStatus},
    plan::{RouteTargetIx, ScopeEntry},
};

use crate::reference::{
    ModelEvaluator, ModelFailure, ModelOutcome, RaceResult, TimingRace,
    frame::{
        CompletionLog, ModelArrival, ModelFrame, ModelInstanceResult, ModelStopReason, ModelVisitEnd, ModelVisitResult,
        VerdictTally, find_effect, halts_instance,
    },
};

/// The evaluation of one graph instance.
struct ModelGraph<'a> {
    /// For each step, all its direct and indirect dependencies.
    before: Vec<BTreeSet<u32>>,
    /// True if all steps so far ran one after another.
    in_order: bool,
    /// For each step that ended, whether it satisfies its dependents.
    ended: Vec<Option<bool>>,
    arrived: Vec<bool>,
    /// The position of each step among the ends, and the position of the last end that each step waited for (0 if
    /// none).
    order: Vec<usize>,
    since: Vec<usize>,
    waiting: bool,
    tally: VerdictTally,
    log: Vec<(u32, CompletionLog<'a>)>,
}

impl ModelGraph<'_> {
    fn are_related(&self, a: u32, b: u32) -> bool {
        a == b || self.before[a as usize].contains(&b) || self.before[b as usize].contains(&a)
    }

    fn step_count(&self) -> u32 {
        u32::try_from(self.ended.len()).unwrap_or(u32::MAX)
    }

    fn is_alone(&self, step: u32) -> bool {
        (0..self.step_count()).all(|other| self.are_related(step, other))
    }

    /// True if a step declared after this one became ready earlier. The rules leave open which of them gets the slot
    /// that became free when a dependency of this step ended.
    fn overtakes(&self, step: u32) -> bool {
        let since = self.since[step as usize];
        (0..self.ended.len()).any(|i| self.arrived[i] && self.ended[i].is_none() && self.since[i] < since)
    }

    /// True if a step that is unrelated to this one is still to come or running. A skipped step in between may have let
    /// a later step arrive.
    fn has_open_others(&self, step: u32) -> bool {
        let open = |other: u32| other != step && self.ended[other as usize].is_none();
        let beside = |other: u32| !self.are_related(step, other) || self.arrived[other as usize];
        (0..self.step_count()).any(|other| open(other) && beside(other))
    }
}

impl<'a> ModelEvaluator<'a> {
    pub(super) fn evaluate_graph(&mut self, frame: &ModelFrame<'_, 'a>) -> RaceResult<ModelInstanceResult<'a>> {
        let entry = frame.scope_entry(self);
        let before = find_predecessors(entry);
        let count = before.len();
        let mut graph = ModelGraph {
            before,
            in_order: false,
            ended: vec![None; count],
            arrived: vec![false; count],
            order: vec![0; count],
            since: vec![0; count],
            waiting: false,
            tally: VerdictTally::default(),
            log: Vec::new(),
        };
        // These act on arrival, regardless of running steps.
        let unslotted = |step: u32| {
            let step = entry.step(step);
            matches!(step.kind, StepKindSpec::Gate(_) | StepKindSpec::Wait(_))
                || step.policy.approval.is_some()
                || step.policy.denied.is_some()
        };
        graph.in_order = (0..graph.step_count())
            .all(|step| graph.is_alone(step) || (entry.scope.concurrency == Some(1) && !unslotted(step)));
        loop {
            if let Some(stopped) = self.process_arrivals(frame, &mut graph)? {
                return Ok(stopped);
            }
            let ready = (0..graph.step_count()).find(|i| {
                let i = *i as usize;
                graph.arrived[i] && graph.ended[i].is_none() && frame.steps.borrow()[i].status != StepStatus::Waiting
            });
            let Some(step) = ready else { break };
            graph.in_order &= !graph.overtakes(step);
            if let Some(stopped) = self.evaluate_graph_step(frame, &mut graph, step)? {
                return Ok(stopped);
            }
        }
        if graph.waiting {
            return Ok(ModelInstanceResult::Waiting);
        }
        let log = take_ordered_log(&mut graph);
        self.conclude_instance(frame, graph.tally, (Value::Null, false), log)
    }

    /// Lets every step arrive that can, in order of declaration.
    fn process_arrivals(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        graph: &mut ModelGraph<'a>,
    ) -> RaceResult<Option<ModelInstanceResult<'a>>> {
        loop {
            let mut any = false;
            for step in 0..graph.step_count() {
                let i = step as usize;
                if graph.arrived[i] || graph.ended[i].is_some() {
                    continue;
                }
                let depends = list_dependencies(frame.scope_entry(self), step);
                let entry = frame.scope_entry(self);
                // A conflict resolver waits for any end of the steps whose conflicts it resolves.
                let over = |d: &u32| match graph.ended[*d as usize] {
                    Some(false) if find_conflict_resolver(entry, *d) == Some(step) => Some(true),
                    ended => ended,
                };
                if depends.iter().any(|d| over(d) == Some(false)) {
                    any = true;
                    let end = ModelVisitEnd::new(ModelOutcome::SkippedByUpstream);
                    if let Some(stopped) = self.note_graph_end(frame, graph, step, end, true)? {
                        return Ok(Some(stopped));
                    }
                } else if depends.iter().all(|d| over(d) == Some(true)) {
                    any = true;
                    graph.arrived[i] = true;
                    graph.since[i] = depends.iter().map(|d| graph.order[*d as usize]).max().unwrap_or(0);
                    let alone = graph.is_alone(step);
                    let stopped = match self.evaluate_arrival(frame, step, alone)? {
                        ModelArrival::Ready => None,
                        ModelArrival::Over(end) => self.note_graph_end(frame, graph, step, *end, true)?,
                        ModelArrival::TooMany => {
                            Some(ModelInstanceResult::Stops(ModelStopReason::Limit, take_ordered_log(graph)))
                        }
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

    fn evaluate_graph_step(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        graph: &mut ModelGraph<'a>,
        step: u32,
    ) -> RaceResult<Option<ModelInstanceResult<'a>>> {
        let entry = frame.scope_entry(self);
        let company = frame.concurrent.get();
        frame.concurrent.set(company || (!graph.is_alone(step) && !graph.in_order));
        let visit = self.perform_step(frame, step)?;
        frame.concurrent.set(company);
        match visit {
            ModelVisitResult::Ended(end) => {
                // A slot that was given back may have let another step go first.
                graph.in_order &= !(end.yielded && graph.has_open_others(step));
                self.note_graph_end(frame, graph, step, end, false)
            }
            ModelVisitResult::Waiting => {
                let composite = !entry.step(step).kind.inner_scopes().is_empty()
                    || matches!(entry.step(step).kind, StepKindSpec::Call(_));
                if composite && entry.scope.concurrency.is_some() && graph.has_open_others(step) {
                    return Err(TimingRace("a waiting step keeps a slot that others need"));
                }
                graph.in_order &= !graph.has_open_others(step);
                graph.waiting = true;
                frame.set_status(step, StepStatus::Waiting, None);
                Ok(None)
            }
            ModelVisitResult::Stops { why, inside, yielded } => {
                graph.in_order &= !(yielded && graph.has_open_others(step));
                if frame.concurrent.get() || graph.waiting || (graph.has_open_others(step) && !graph.in_order) {
                    return Err(TimingRace("a cancel while other steps run"));
                }
                frame.set_status(step, StepStatus::Cancelled, None);
                graph.log.push((step, inside));
                mark_unstarted(frame, graph);
                Ok(Some(ModelInstanceResult::Stops(why, take_ordered_log(graph))))
            }
        }
    }

    /// Records the end of a step. Returns a result if that end halts the instance.
    fn note_graph_end(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        graph: &mut ModelGraph<'a>,
        step: u32,
        mut end: ModelVisitEnd<'a>,
        on_arrival: bool,
    ) -> RaceResult<Option<ModelInstanceResult<'a>>> {
        if let Some(by) =
            find_conflict_resolver(frame.scope_entry(self), step).filter(|_| end.unmerged && !graph.in_order)
        {
            let others = list_dependencies(frame.scope_entry(self), by);
            let own = |d: &u32| find_conflict_resolver(frame.scope_entry(self), *d) != Some(by);
            if others.iter().any(|d| own(d) && graph.ended[*d as usize] != Some(true)) {
                return Err(TimingRace("a resolver may be skipped before the conflict exists"));
            }
        }
        let (effect, log) = self.note_step_end(frame, step, &mut end)?;
        graph.ended[step as usize] = Some(effect.satisfies);
        graph.order[step as usize] = graph.ended.iter().flatten().count();
        graph.log.push((step, log));
        graph.tally.add_end(&end, effect, graph.in_order);
        if !halts_instance(effect) {
            return Ok(None);
        }
        let others = graph.has_open_others(step);
        if others && (!graph.in_order || on_arrival) {
            return Err(TimingRace("a failure while other steps run"));
        }
        // In order, the failure comes after all other ends. Otherwise there must be no unrelated steps at all.
        if !graph.in_order && !graph.is_alone(step) {
            return Err(TimingRace("a failure may have come before other ends"));
        }
        mark_unstarted(frame, graph);
        let fault = match end.ending {
            ModelOutcome::Failed(fault) => fault,
            _ => ModelFailure::unknown(),
        };
        let halted = Some((step, effect.then == OutcomeAction::Undo));
        let log = take_ordered_log(graph);
        Ok(Some(ModelInstanceResult::Ended { result: Err(fault), degraded: false, log, halted, unclear: false }))
    }
}

/// Marks the steps that waited for a slot when the instance stopped: they waited but did not start.
fn mark_unstarted(frame: &ModelFrame<'_, '_>, graph: &ModelGraph<'_>) {
    for step in 0..graph.step_count() {
        let i = step as usize;
        if graph.arrived[i] && graph.ended[i].is_none() && frame.steps.borrow()[i].status == StepStatus::Pending {
            frame.set_status(step, StepStatus::Skipped, Some(StepStatus::Cancelled));
        }
    }
}

/// The completed visits, in the order that is known.
fn take_ordered_log<'a>(graph: &mut ModelGraph<'a>) -> CompletionLog<'a> {
    let log = std::mem::take(&mut graph.log);
    let full: Vec<u32> = log.iter().filter(|(_, log)| !log.is_empty()).map(|(step, _)| *step).collect();
    let ordered = graph.in_order || full.iter().all(|a| full.iter().all(|b| graph.are_related(*a, *b)));
    let logs = log.into_iter().map(|(_, log)| log).collect();
    if ordered { CompletionLog::InOrder(logs) } else { CompletionLog::AnyOrder(logs) }
}

fn list_dependencies(entry: &skein_core::plan::ScopeEntry, step: u32) -> Vec<u32> {
    entry.step(step).after.iter().filter_map(|id| entry.by_id.get(id).copied()).collect()
}

/// For each step, all its direct and indirect dependencies. A graph has no cycles, so one round per step is enough.
fn find_predecessors(entry: &skein_core::plan::ScopeEntry) -> Vec<BTreeSet<u32>> {
    let count = entry.scope.steps.len();
    let mut before = vec![BTreeSet::new(); count];
    for _ in 0..count {
        for i in 0..count {
            let direct = list_dependencies(entry, u32::try_from(i).unwrap_or(u32::MAX));
            let more: Vec<u32> =
                direct.iter().flat_map(|d| before[*d as usize].iter().copied()).chain(direct.clone()).collect();
            before[i].extend(more);
        }
    }
    before
}

impl<'a> ModelEvaluator<'a> {
    pub(super) fn evaluate_routed(&mut self, frame: &ModelFrame<'_, 'a>) -> RaceResult<ModelInstanceResult<'a>> {
        let entry = frame.scope_entry(self);
        let mut cursor = RouteTargetIx::Step(entry.start);
        let mut tally = VerdictTally::default();
        let mut log = Vec::new();
        let mut last = (Value::Null, false);
        while let RouteTargetIx::Step(step) = cursor {
            let visit = match self.evaluate_arrival(frame, step, true)? {
                ModelArrival::Over(end) => ModelVisitResult::Ended(*end),
                ModelArrival::Ready => self.perform_step(frame, step)?,
                ModelArrival::TooMany => {
                    return Ok(ModelInstanceResult::Stops(ModelStopReason::Limit, CompletionLog::InOrder(log)));
                }
            };
            let mut end = match visit {
                ModelVisitResult::Ended(end) => end,
                ModelVisitResult::Waiting => {
                    frame.set_status(step, StepStatus::Waiting, None);
                    return Ok(ModelInstanceResult::Waiting);
                }
                ModelVisitResult::Stops { why, inside, .. } => {
                    frame.set_status(step, StepStatus::Cancelled, None);
                    log.push(inside);
                    return Ok(ModelInstanceResult::Stops(why, CompletionLog::InOrder(log)));
                }
            };
            let (effect, completed) = self.note_step_end(frame, step, &mut end)?;
            log.push(completed);
            tally.add_end(&end, effect, true);
            if halts_instance(effect) {
                let result = Err(tally.first.unwrap_or_else(ModelFailure::unknown));
                let halted = Some((step, effect.then == OutcomeAction::Undo));
                let log = CompletionLog::InOrder(log);
                return Ok(ModelInstanceResult::Ended { result, degraded: false, log, halted, unclear: false });
            }
            let branch = matches!(entry.step(step).kind, StepKindSpec::Branch(_));
            if end.ending == ModelOutcome::Succeeded && !branch {
                last = (end.output.clone(), end.unclear);
            }
            cursor = self.next_cursor(frame, step, &end, effect.satisfies)?;
        }
        self.conclude_instance(frame, tally, last, CompletionLog::InOrder(log))
    }

    fn next_cursor(
        &self,
        frame: &ModelFrame<'_, 'a>,
        step: u32,
        end: &ModelVisitEnd<'a>,
        satisfies: bool,
    ) -> RaceResult<RouteTargetIx> {
        let entry = frame.scope_entry(self);
        let branch = matches!(entry.step(step).kind, StepKindSpec::Branch(_));
        match end.route {
            _ if !satisfies => Ok(RouteTargetIx::End),
            Some(next) => Ok(next),
            None if branch => Err(TimingRace("where a failed branch leads")),
            None => Ok(entry.next[step as usize]),
        }
    }

    pub(super) fn evaluate_branch(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        branch: &BranchSpec,
    ) -> RaceResult<ModelVisitResult<'a>> {
        let entry = frame.scope_entry(self);
        let mut target = &branch.default;
        for arm in &branch.arms {
            match self.evaluate_condition(frame, &arm.when)? {
                Ok(false) => {}
                Ok(true) => {
                    target = &arm.next;
                    break;
                }
                Err(_) => {
                    return Ok(ModelVisitResult::Ended(ModelVisitEnd::from_failure(ModelFailure::validation(
                        "condition",
                    ))));
                }
            }
        }
        Ok(ModelVisitResult::Ended(ModelVisitEnd {
            route: Some(entry.resolve_target(target)),
            ..ModelVisitEnd::from_output(Value::Null)
        }))
    }
}

/// The step that resolves the merge conflicts of another.
pub(super) fn find_conflict_resolver(entry: &ScopeEntry, step: u32) -> Option<u32> {
    let by = entry.step(step).policy.settled_by.as_ref()?;
    let found = (0u32..).zip(&entry.scope.steps).find(|(_, other)| other.id == *by);
    found.map(|(i, _)| i)
}

/// The steps whose conflicts this one resolves.
fn steps_resolved_by(entry: &ScopeEntry, step: u32) -> Vec<u32> {
    (0..entry.len()).filter(|of| find_conflict_resolver(entry, *of) == Some(step)).collect()
}

impl<'a> ModelEvaluator<'a> {
    fn unresolved_conflicts(&self, frame: &ModelFrame<'_, 'a>, step: u32) -> Vec<u32> {
        let mut of = steps_resolved_by(frame.scope_entry(self), step);
        of.retain(|of| frame.steps.borrow()[*of as usize].handed_on);
        of
    }

    pub(super) fn has_no_conflict_to_resolve(&self, frame: &ModelFrame<'_, 'a>, step: u32) -> bool {
        !steps_resolved_by(frame.scope_entry(self), step).is_empty()
            && self.unresolved_conflicts(frame, step).is_empty()
    }

    /// Returns the effect of an end. The flag is true if its conflict is passed to the resolver.
    pub(super) fn determine_effect(
        &self,
        frame: &ModelFrame<'_, 'a>,
        step: u32,
        end: &ModelVisitEnd<'a>,
    ) -> RaceResult<(OutcomeEffect, bool)> {
        let entry = frame.scope_entry(self);
        if let Some(by) = find_conflict_resolver(entry, step).filter(|_| end.unmerged) {
            let routed = matches!(entry.scope.shape, ScopeShape::Routed { .. });
            if routed || !frame.steps.borrow()[by as usize].ended {
                return Ok((OutcomeEffect::GO_ON, true));
            }
        }
        let plain = find_effect(&entry.step(step).policy.effects, &end.ending)?;
        let unsettled = self.unresolved_conflicts(frame, step);
        let mut effect = match end.ending {
            ModelOutcome::SkippedByCondition if self.has_no_conflict_to_resolve(frame, step) => OutcomeEffect::GO_ON,
            _ => plain,
        };
        for of in unsettled.into_iter().filter(|_| end.ending != ModelOutcome::Succeeded) {
            let fault = ModelFailure::new(ErrorClass::NonRetryable, "merge_conflict");
            let failed = find_effect(&entry.step(of).policy.effects, &ModelOutcome::Failed(fault))?;
            effect.then = effect.then.max(failed.then);
            effect.verdict = effect.verdict.max(failed.verdict);
            effect.satisfies = effect.satisfies && failed.satisfies;
        }
        Ok((effect, false))
    }
}
