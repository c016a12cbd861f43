//! Fork: which results of a run a new one can begin with, so that it goes on from a step.
//!
//! Owns the choice. Of a graph, what ended well enough to go on and neither is nor comes after the step; of a routed
//! scope, what was visited before the step was first. What was undone, cancelled or made the run fail is done again,
//! and so is what comes after that. Numbers are made anew, so that the fork needs nothing of the run it comes from.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    AttemptId, CursorRoute, ExecutionError, HaltReason, InstanceEnd, InstanceIx, InstancePart,
    InstanceReused, ReusableResults, ReusedResult, RunPhase, StepAt, StepOutcome, StepReused,
    reusable_results::VisitEnd,
};
use crate::{
    ir::{OutcomeAction, RunImpact},
    plan::ScopeEntry,
};

/// What a fork begins with.
#[derive(Debug, Clone, PartialEq)]
pub struct ForkSeed {
    pub reused: Vec<ReusedResult>,
    /// Attempts whose artifacts it needs: in the run that was read, and in the fork.
    pub attempts: Vec<(AttemptId, AttemptId)>,
    /// The steps whose results are reused, by id, in the order in which they ended.
    pub steps: Vec<String>,
    /// Steps that had ended before and are done again all the same; with another plan, all that are done.
    pub again: Vec<(String, RerunReason)>,
    /// Steps of the run that another plan has not.
    pub removed: Vec<String>,
}

/// Why a step that does not come after the one that was named is done again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RerunReason {
    /// It was undone, or could not be.
    Undone,
    /// How it ended made the run fail.
    Failed,
    Cancelled,
    /// What it could not merge is settled anew, for which it must be there.
    Conflict,
    /// It comes after one that is done again.
    After,
    /// It is defined in another way.
    Changed,
    /// It reads parameters, or variables of the workflow, that have other values.
    Inputs,
    /// The agent or the tool that does it is set up in another way.
    Settings,
    /// The run that is forked had no such step.
    New,
    /// It had not ended.
    NotDone,
    /// Someone named it.
    Asked,
}

/// Why there is no such fork.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForkRefusal {
    #[error("the run is not over")]
    NotOver,
    #[error("there is no step `{step}` in it")]
    Unknown { step: String, known: Vec<String> },
    #[error("`{step}` is inside of `{outer}`, which is done as a whole")]
    Inside { step: String, outer: String },
    #[error("the run never came to `{step}`")]
    Never { step: String },
}

impl ReusableResults {
    /// What a fork of this run from a step begins with.
    pub fn fork_from_step(&self, from: &str) -> Result<ForkSeed, ForkRefusal> {
        if self.state.phase != RunPhase::Closed {
            return Err(ForkRefusal::NotOver);
        }
        let step = self.find_root_step(from)?;
        let entry = self.root_scope();
        let ends = self.ends.get(&InstanceIx::ROOT).map_or(&[][..], Vec::as_slice);
        let (kept, again) = if entry.is_routed() {
            self.choose_routed_results(ends, step)
                .ok_or_else(|| ForkRefusal::Never { step: from.to_owned() })?
        } else {
            self.choose_graph_results(ends, step)
        };
        let name = |step: u32| entry.step(step).id.to_string();
        let mut named = BTreeSet::new();
        let first = kept.iter().map(|end| end.step.at.1).filter(|step| named.insert(*step));
        let steps = first.map(name).collect();
        let own: BTreeMap<u32, u32> = (0..entry.len()).map(|step| (step, step)).collect();
        let (reused, attempts) = ForkRenumbering::renumber_results(self, &kept, &own);
        let again = again.into_iter().map(|(step, why)| (name(step), why)).collect();
        Ok(ForkSeed { reused, attempts, steps, again, removed: Vec::new() })
    }

    pub(super) fn root_scope(&self) -> &ScopeEntry {
        self.plan.definition.scope(self.plan.definition.root().root)
    }

    /// The step of the root that someone means.
    fn find_root_step(&self, text: &str) -> Result<u32, ForkRefusal> {
        let entry = self.root_scope();
        let by_id = |id: &str| (0..).zip(&entry.scope.steps).find(|(_, step)| step.id.as_str() == id);
        if let Some((step, _)) = by_id(text) {
            return Ok(step);
        }
        let step = text.to_owned();
        let first = text.split('/').next().unwrap_or(text);
        let first = first.split(['[', '#']).next().unwrap_or(first);
        if let Some((_, outer)) = by_id(first) {
            return Err(ForkRefusal::Inside { step, outer: outer.id.to_string() });
        }
        let ended = self.ends.values().flatten().map(|end| end.step.at);
        if let Some(at) = ended.into_iter().find(|at| self.step_id(*at) == text) {
            let outer = entry.step(self.outermost_step(at)).id.to_string();
            return Err(ForkRefusal::Inside { step, outer });
        }
        let known = entry.scope.steps.iter().map(|step| step.id.to_string());
        Err(ForkRefusal::Unknown { step, known: known.collect() })
    }

    fn step_id(&self, at: StepAt) -> &str {
        self.plan.definition.scope(self.state.instance(at.0).scope).step(at.1).id.as_str()
    }

    /// The step of the root that this one is inside of.
    fn outermost_step(&self, mut at: StepAt) -> u32 {
        while let Some(parent) = self.state.instance(at.0).parent {
            at = parent;
        }
        at.1
    }

    /// Why a visit cannot be taken as it is.
    pub(super) fn visit_rerun_reason(&self, end: &VisitEnd) -> Option<RerunReason> {
        let effect = end.step.effect;
        if self.is_undone(end, true) {
            Some(RerunReason::Undone)
        } else if end.step.outcome == StepOutcome::Cancelled {
            Some(RerunReason::Cancelled)
        } else if effect.then != OutcomeAction::GoOn || effect.verdict == RunImpact::Failed {
            Some(RerunReason::Failed)
        } else {
            None
        }
    }

    /// Whether something of a visit was undone: with the run, or by a workflow that was called in it.
    fn is_undone(&self, end: &VisitEnd, with_run: bool) -> bool {
        let home = self.state.instance(end.step.at.0).home == InstanceIx::ROOT;
        let own = home == with_run && self.undone.contains(&end.step.at);
        own || end
            .children
            .iter()
            .flat_map(|child| self.instance_ends(*child))
            .any(|end| self.is_undone(end, with_run))
    }

    pub(super) fn instance_ends(&self, instance: InstanceIx) -> &[VisitEnd] {
        self.ends.get(&instance).map_or(&[], Vec::as_slice)
    }

    /// Of a routed scope: the visits before the first of this step. None: there was none.
    fn choose_routed_results<'a>(&self, ends: &'a [VisitEnd], step: u32) -> Option<ReuseChoice<'a>> {
        let first = *self.reached.get(&step)?;
        let before = ends.iter().take_while(|end| end.seq < first);
        let (mut kept, mut again, mut named) = (Vec::new(), Vec::new(), BTreeSet::new());
        for end in before {
            let spoilt = self.visit_rerun_reason(end).or((!again.is_empty()).then_some(RerunReason::After));
            match spoilt {
                None => kept.push(end),
                Some(why) if named.insert(end.step.at.1) => again.push((end.step.at.1, why)),
                Some(_) => {}
            }
        }
        // Who settles what the last could not merge is not among them.
        if let Some(last) = kept.pop_if(|end| end.step.settler.is_some()) {
            again.insert(0, (last.step.at.1, RerunReason::Conflict));
        }
        Some((kept, again))
    }

    /// Of a graph: the ends of steps that neither are this one nor come after it.
    fn choose_graph_results<'a>(&self, ends: &'a [VisitEnd], step: u32) -> ReuseChoice<'a> {
        let entry = self.root_scope();
        let count = entry.scope.steps.len();
        let mut after = vec![false; count];
        mark_downstream(entry, &mut after, vec![step]);
        let mut done = vec![false; count];
        ends.iter().for_each(|end| done[end.step.at.1 as usize] = true);
        let spoilt: BTreeMap<u32, RerunReason> =
            ends.iter().filter_map(|end| Some((end.step.at.1, self.visit_rerun_reason(end)?))).collect();
        let seeds = (0..).zip(&done).filter(|(i, done)| !**done || spoilt.contains_key(i)).map(|(i, _)| i);
        let mut anew = after.clone();
        mark_downstream(entry, &mut anew, seeds.collect());
        let mut conflicts = BTreeSet::new();
        let unsettled = |anew: &[bool], end: &&VisitEnd| {
            end.step.settler.is_some_and(|by| anew[by as usize]) && !anew[end.step.at.1 as usize]
        };
        while let Some(end) = ends.iter().find(|end| unsettled(&anew, end)) {
            conflicts.insert(end.step.at.1);
            mark_downstream(entry, &mut anew, vec![end.step.at.1]);
        }
        let (mut kept, mut again) = (Vec::new(), Vec::new());
        for end in ends {
            let step = end.step.at.1;
            match (anew[step as usize], after[step as usize]) {
                (false, _) => kept.push(end),
                (true, true) => {}
                (true, false) if conflicts.contains(&step) => again.push((step, RerunReason::Conflict)),
                (true, false) => again.push((step, spoilt.get(&step).copied().unwrap_or(RerunReason::After))),
            }
        }
        (kept, again)
    }
}

/// What is taken over, and what had ended and is not.
type ReuseChoice<'a> = (Vec<&'a VisitEnd>, Vec<(u32, RerunReason)>);

/// Marks these steps and all that come after them.
pub(super) fn mark_downstream(entry: &ScopeEntry, marked: &mut [bool], mut rest: Vec<u32>) {
    while let Some(step) = rest.pop() {
        if !std::mem::replace(&mut marked[step as usize], true) {
            rest.extend(entry.dependents(step));
        }
    }
}

/// Gives instances the numbers that they have in the fork.
pub(super) struct ForkRenumbering<'a> {
    past: &'a ReusableResults,
    /// The numbers of the root's steps, before and now.
    mapped: &'a BTreeMap<u32, u32>,
    numbers: BTreeMap<InstanceIx, InstanceIx>,
    reused: Vec<ReusedResult>,
    attempts: Vec<(AttemptId, AttemptId)>,
}

impl<'a> ForkRenumbering<'a> {
    pub(super) fn renumber_results(
        past: &'a ReusableResults,
        kept: &[&'a VisitEnd],
        mapped: &'a BTreeMap<u32, u32>,
    ) -> (Vec<ReusedResult>, Vec<(AttemptId, AttemptId)>) {
        let numbers = BTreeMap::from([(InstanceIx::ROOT, InstanceIx::ROOT)]);
        let mut renumber =
            ForkRenumbering { past, mapped, numbers, reused: Vec::new(), attempts: Vec::new() };
        kept.iter().for_each(|end| renumber.assign_numbers(end));
        kept.iter().for_each(|end| renumber.reuse_step(end));
        (renumber.reused, renumber.attempts)
    }

    /// The instances that are taken over with a visit: not those of a call that has undone itself.
    fn reused_children(&self, end: &'a VisitEnd) -> &'a [InstanceIx] {
        if self.past.is_undone(end, false) { &[] } else { &end.children }
    }

    fn assign_numbers(&mut self, end: &'a VisitEnd) {
        for child in self.reused_children(end) {
            let next = InstanceIx(u32::try_from(self.numbers.len()).expect("instances are limited"));
            self.numbers.insert(*child, next);
            self.past.instance_ends(*child).iter().for_each(|end| self.assign_numbers(end));
        }
    }

    fn reuse_step(&mut self, end: &'a VisitEnd) {
        for child in self.reused_children(end) {
            self.reuse_instance(*child);
            self.past.instance_ends(*child).iter().for_each(|end| self.reuse_step(end));
        }
        let at = self.renumber_step(end.step.at).expect("what is taken over has its number");
        let attempt = end.step.attempt.map(|attempt| AttemptId { at, ..attempt });
        self.attempts.extend(end.step.attempt.zip(attempt));
        let error = end.step.error.as_ref().map(|error| self.renumber_error(error));
        let (route, settler) = self.renumber_links(end);
        let step = StepReused { at, attempt, error, route, settler, ..end.step.clone() };
        self.reused.push(ReusedResult::Step(Box::new(step)));
    }

    fn reuse_instance(&mut self, ix: InstanceIx) {
        let instance = self.past.state.instance(ix);
        let (Some(parent), Some(part), Some(end)) = (instance.parent, instance.part, instance.end()) else {
            return;
        };
        let why = instance.halt_reason().map(|why| match why {
            HaltReason::Limit { error } => HaltReason::Limit { error: self.renumber_error(error) },
            other => other.clone(),
        });
        let end =
            InstanceEnd { error: end.error.as_ref().map(|error| self.renumber_error(error)), ..end.clone() };
        self.reused.push(ReusedResult::Instance(Box::new(InstanceReused {
            parent: self.renumber_step(parent).expect("what is around it has its number"),
            part,
            input: (part == InstancePart::Call).then(|| instance.input.clone()),
            env: instance.env.clone(),
            why,
            end,
        })));
    }

    /// Returns the route and the settler of a visit, in the numbers of the fork.
    fn renumber_links(&self, end: &VisitEnd) -> (Option<CursorRoute>, Option<u32>) {
        let StepReused { at, route, settler, .. } = &end.step;
        let now = |step: u32| match at.0 {
            InstanceIx::ROOT => self.mapped.get(&step).copied(),
            _ => Some(step),
        };
        let route = route.and_then(|route| match route {
            CursorRoute::Step(step) => now(step).map(CursorRoute::Step),
            CursorRoute::End => Some(CursorRoute::End),
        });
        (route, settler.and_then(now))
    }

    fn renumber_step(&self, at: StepAt) -> Option<StepAt> {
        let ix = *self.numbers.get(&at.0)?;
        let step = if at.0 == InstanceIx::ROOT { *self.mapped.get(&at.1)? } else { at.1 };
        Some(StepAt(ix, step))
    }

    fn renumber_error(&self, error: &ExecutionError) -> ExecutionError {
        ExecutionError { origin: error.origin.and_then(|at| self.renumber_step(at)), ..error.clone() }
    }
}
