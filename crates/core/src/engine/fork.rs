//! Fork: selects the results of a run that a new run can start with, to continue from a given step or with another
//! plan.
//!
//! Owns the selection. In a graph, it keeps steps that ended well enough to continue and that neither are the given
//! step nor come after it. In a routed scope, it keeps the visits before the first visit of the given step. Steps that
//! were undone, cancelled or failed the run are rerun, and so are the steps after them. With another plan, a result is
//! kept only if the definition, the inputs and the settings of its step are unchanged as well; steps are matched by id.
//! All numbers are assigned anew, so that the fork does not depend on the original run.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    engine::{
        AttemptId, CursorRoute, ExecutionError, HaltReason, InstanceEnd, InstanceIx, InstancePart, InstanceReused,
        ReusableResults, ReusedResult, RunPhase, StepAt, StepOutcome, StepReused, reusable_results::VisitEnd,
    },
    expr::{Expr, ReferenceRoot},
    ir::{OutcomeAction, RunImpact, Step},
    plan::{Plan, RouteTargetIx, ScopeEntry},
};

/// The initial contents of a fork.
#[derive(Debug, Clone, PartialEq)]
pub struct ForkSeed {
    pub reused: Vec<ReusedResult>,
    /// Attempts whose artifacts the fork needs: the id in the original run, and the id in the fork.
    pub attempts: Vec<(AttemptId, AttemptId)>,
    /// The steps whose results are reused, by id, in the order in which they ended.
    pub steps: Vec<String>,
    /// Steps that had ended and are rerun; with another plan, all steps that run.
    pub again: Vec<(String, RerunReason)>,
    /// Steps of the original run that the new plan does not have.
    pub removed: Vec<String>,
}

/// The reason to rerun a step that does not come after the given one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RerunReason {
    /// The step was undone, or its undo failed.
    Undone,
    /// Its outcome failed the run.
    Failed,
    Cancelled,
    /// Its merge conflict is resolved again, which requires the step to run again.
    Conflict,
    /// It comes after a step that is rerun.
    After,
    /// Its definition differs.
    Changed,
    /// It reads parameters, or variables of the workflow, whose values differ.
    Inputs,
    /// The settings of its agent or tool differ.
    Settings,
    /// The original run has no such step.
    New,
    /// It had not ended.
    NotDone,
    /// The user named it.
    Asked,
}

/// The reason why a fork is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForkRefusal {
    #[error("the run has not ended")]
    NotOver,
    #[error("there is no step `{step}`")]
    Unknown { step: String, known: Vec<String> },
    #[error("`{step}` is inside `{outer}`, which can only be rerun as a whole")]
    Inside { step: String, outer: String },
    #[error("the run never reached `{step}`")]
    Never { step: String },
}

impl ReusableResults {
    /// Returns the initial contents of a fork of this run from a step.
    pub fn fork_from_step(&self, from: &str) -> Result<ForkSeed, ForkRefusal> {
        if self.state.phase != RunPhase::Closed {
            return Err(ForkRefusal::NotOver);
        }
        let step = self.find_root_step(from)?;
        let entry = self.root_scope();
        let ends = self.ends.get(&InstanceIx::ROOT).map_or(&[][..], Vec::as_slice);
        let (kept, again) = if entry.is_routed() {
            self.choose_routed_results(ends, step).ok_or_else(|| ForkRefusal::Never { step: from.to_owned() })?
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

    fn root_scope(&self) -> &ScopeEntry {
        self.plan.definition.scope(self.plan.definition.root().root)
    }

    /// Finds the root step that a text names.
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

    /// Returns the root step that contains this one.
    fn outermost_step(&self, mut at: StepAt) -> u32 {
        while let Some(parent) = self.state.instance(at.0).parent {
            at = parent;
        }
        at.1
    }

    /// Returns the reason why a visit cannot be reused, if there is one.
    fn visit_rerun_reason(&self, end: &VisitEnd) -> Option<RerunReason> {
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

    /// True if any part of a visit was undone: with the run, or (`with_run` false) by a workflow that was called in it.
    fn is_undone(&self, end: &VisitEnd, with_run: bool) -> bool {
        let home = self.state.instance(end.step.at.0).home == InstanceIx::ROOT;
        let own = home == with_run && self.undone.contains(&end.step.at);
        own || end.children.iter().flat_map(|child| self.instance_ends(*child)).any(|end| self.is_undone(end, with_run))
    }

    fn instance_ends(&self, instance: InstanceIx) -> &[VisitEnd] {
        self.ends.get(&instance).map_or(&[], Vec::as_slice)
    }

    /// Selects from a routed scope the visits before the first visit of this step. Returns `None` if it was never
    /// visited.
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
        // The step that resolves the conflict of the last visit is not among the kept ones.
        if let Some(last) = kept.pop_if(|end| end.step.settler.is_some()) {
            again.insert(0, (last.step.at.1, RerunReason::Conflict));
        }
        Some((kept, again))
    }

    /// Selects from a graph the ends of steps that neither are this step nor come after it.
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

/// The visits that are reused, and the steps that had ended and are rerun.
type ReuseChoice<'a> = (Vec<&'a VisitEnd>, Vec<(u32, RerunReason)>);

/// Marks these steps and all steps that depend on them.
fn mark_downstream(entry: &ScopeEntry, marked: &mut [bool], mut rest: Vec<u32>) {
    while let Some(step) = rest.pop() {
        if !std::mem::replace(&mut marked[step as usize], true) {
            rest.extend(entry.dependents(step));
        }
    }
}

/// Assigns the numbers that instances and steps have in the fork.
pub(super) struct ForkRenumbering<'a> {
    past: &'a ReusableResults,
    /// The numbers of the root's steps: old to new.
    mapped: &'a BTreeMap<u32, u32>,
    numbers: BTreeMap<InstanceIx, InstanceIx>,
    reused: Vec<ReusedResult>,
    attempts: Vec<(AttemptId, AttemptId)>,
}

impl<'a> ForkRenumbering<'a> {
    fn renumber_results(
        past: &'a ReusableResults,
        kept: &[&'a VisitEnd],
        mapped: &'a BTreeMap<u32, u32>,
    ) -> (Vec<ReusedResult>, Vec<(AttemptId, AttemptId)>) {
        let numbers = BTreeMap::from([(InstanceIx::ROOT, InstanceIx::ROOT)]);
        let mut renumber = ForkRenumbering { past, mapped, numbers, reused: Vec::new(), attempts: Vec::new() };
        kept.iter().for_each(|end| renumber.assign_numbers(end));
        kept.iter().for_each(|end| renumber.reuse_step(end));
        (renumber.reused, renumber.attempts)
    }

    /// Returns the instances that are reused with a visit. Instances of a call that undid itself are left out.
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
        let at = self.renumber_step(end.step.at).expect("a reused step has a number");
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
        let end = InstanceEnd { error: end.error.as_ref().map(|error| self.renumber_error(error)), ..end.clone() };
        self.reused.push(ReusedResult::Instance(Box::new(InstanceReused {
            parent: self.renumber_step(parent).expect("the parent of a reused instance has a number"),
            part,
            input: (part == InstancePart::Call).then(|| instance.input.clone()),
            env: instance.env.clone(),
            why,
            end,
        })));
    }

    /// Returns the route and the conflict resolver of a visit, in the numbers of the fork.
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

impl ReusableResults {
    /// Returns the initial contents of a fork with another plan: the results of steps that have the same definition and
    /// the same inputs in both. `from` names a step that is rerun in any case; `is_set_up_anew` is true for a step of
    /// the new plan whose agent or tool has other settings.
    pub fn fork_with_plan(
        &self,
        plan: &Plan,
        from: Option<&str>,
        is_set_up_anew: &dyn Fn(&Step) -> bool,
    ) -> Result<ForkSeed, ForkRefusal> {
        if self.state.phase != RunPhase::Closed {
            return Err(ForkRefusal::NotOver);
        }
        let entry = plan.definition.scope(plan.definition.root().root);
        let is = |step: &str| entry.scope.steps.iter().any(|known| known.id.as_str() == step);
        if let Some(step) = from.filter(|from| !is(from)) {
            let known = entry.scope.steps.iter().map(|step| step.id.to_string()).collect();
            return Err(ForkRefusal::Unknown { step: step.to_owned(), known });
        }
        let (reload, mapped) = (PlanReload { plan, from, is_set_up_anew }, self.map_steps(entry));
        let ends = self.instance_ends(InstanceIx::ROOT);
        let (kept, again) = match entry.is_routed() {
            true => self.reload_routed_results(&reload, ends, &mapped),
            false => self.reload_graph_results(&reload, ends, &mapped),
        };
        let (reused, attempts) = ForkRenumbering::renumber_results(self, &kept, &mapped);
        let name = |step: &u32| entry.step(*step).id.to_string();
        let mut named = BTreeSet::new();
        let first = kept.iter().map(|end| mapped[&end.step.at.1]).filter(|step| named.insert(*step));
        let steps = first.map(|step| name(&step)).collect();
        let again = again.iter().filter(|(step, _)| !named.contains(step));
        let again = again.map(|(step, why)| (name(step), *why)).collect();
        let removed = (0..self.root_scope().len()).filter(|step| !mapped.contains_key(step));
        let removed = removed.map(|step| self.root_scope().step(step).id.to_string()).collect();
        Ok(ForkSeed { reused, attempts, steps, again, removed })
    }

    /// Maps the numbers of the root's steps to those of the steps with the same id in another scope.
    fn map_steps(&self, entry: &ScopeEntry) -> BTreeMap<u32, u32> {
        let numbers: BTreeMap<&str, u32> =
            (0..).zip(&entry.scope.steps).map(|(i, step)| (step.id.as_str(), i)).collect();
        let own = (0..).zip(&self.root_scope().scope.steps);
        own.filter_map(|(i, step)| Some((i, *numbers.get(step.id.as_str())?))).collect()
    }

    /// Returns the reason to rerun a step of the new plan, apart from the steps before it. `None`: its result is kept.
    fn step_rerun_reason(
        &self,
        reload: &PlanReload<'_>,
        ends: &[VisitEnd],
        old: Option<u32>,
        new: u32,
        inputs: &InputChanges,
    ) -> Option<RerunReason> {
        let (definition, before) = (&reload.plan.definition, &self.plan.definition);
        let at = (definition.root().root, new);
        let Some(old) = old else { return Some(RerunReason::New) };
        if reload.from == Some(definition.scope(at.0).step(new).id.as_str()) {
            return Some(RerunReason::Asked);
        }
        let mut visits = ends.iter().filter(|end| end.step.at.1 == old).peekable();
        if visits.peek().is_none() {
            return Some(RerunReason::NotDone);
        }
        if let Some(why) = visits.find_map(|end| self.visit_rerun_reason(end)) {
            return Some(why);
        }
        if !definition.is_same_step(at, before, (before.root().root, old)) || !self.has_same_successor(reload, old, new)
        {
            return Some(RerunReason::Changed);
        }
        if inputs.variables || definition.reads_parameters(at, &inputs.parameters) {
            return Some(RerunReason::Inputs);
        }
        definition.any_step_within(at, reload.is_set_up_anew).then_some(RerunReason::Settings)
    }

    /// Compares the parameters and variables of both plans.
    fn compare_inputs(&self, reload: &PlanReload<'_>) -> InputChanges {
        let (old, new) = (&self.plan, reload.plan);
        let of = |plan: &Plan| plan.parameters.as_object().cloned().unwrap_or_default();
        let (before, now) = (of(old), of(new));
        let names = before.keys().chain(now.keys());
        let parameters: BTreeSet<String> = names.filter(|name| before.get(*name) != now.get(*name)).cloned().collect();
        let (was, is) = (&old.definition.root().workflow.env, &new.definition.root().workflow.env);
        let reads = |expr: &Expr| {
            expr.reads().iter().any(|read| {
                *read.root == ReferenceRoot::Input && read.path.first().is_none_or(|name| parameters.contains(name))
            })
        };
        let variables = was != is || is.values().any(reads);
        InputChanges { parameters, variables }
    }

    /// True if the step has the same implicit successor in a scope of the same shape.
    fn has_same_successor(&self, reload: &PlanReload<'_>, old: u32, new: u32) -> bool {
        let definition = &reload.plan.definition;
        let (before, now) = (self.root_scope(), definition.scope(definition.root().root));
        let next = |entry: &ScopeEntry, step: u32| match entry.next.get(step as usize) {
            Some(RouteTargetIx::Step(to)) => Some(entry.step(*to).id.to_string()),
            Some(RouteTargetIx::End) | None => None,
        };
        before.is_routed() == now.is_routed() && next(before, old) == next(now, new)
    }

    /// Selects from a graph the results to keep, and all steps of the new plan that run.
    fn reload_graph_results<'a>(
        &self,
        reload: &PlanReload<'_>,
        ends: &'a [VisitEnd],
        mapped: &BTreeMap<u32, u32>,
    ) -> (Vec<&'a VisitEnd>, BTreeMap<u32, RerunReason>) {
        let definition = &reload.plan.definition;
        let entry = definition.scope(definition.root().root);
        let old: BTreeMap<u32, u32> = mapped.iter().map(|(old, new)| (*new, *old)).collect();
        let inputs = self.compare_inputs(reload);
        let mut again: BTreeMap<u32, RerunReason> = (0..entry.len())
            .filter_map(|new| Some((new, self.step_rerun_reason(reload, ends, old.get(&new).copied(), new, &inputs)?)))
            .collect();
        add_downstream(entry, &mut again);
        let stands = |again: &BTreeMap<u32, RerunReason>, end: &VisitEnd| {
            mapped.get(&end.step.at.1).is_some_and(|new| !again.contains_key(new))
        };
        let unsettled = |again: &BTreeMap<u32, RerunReason>, end: &VisitEnd| {
            let by = end.step.settler.map(|by| mapped.get(&by));
            by.is_some_and(|by| by.is_none_or(|by| again.contains_key(by))) && stands(again, end)
        };
        while let Some(end) = ends.iter().find(|end| unsettled(&again, end)) {
            again.insert(mapped[&end.step.at.1], RerunReason::Conflict);
            add_downstream(entry, &mut again);
        }
        (ends.iter().filter(|end| stands(&again, end)).collect(), again)
    }

    /// Selects from a routed scope the visits before the first one that cannot be kept, and the steps visited from
    /// there on.
    fn reload_routed_results<'a>(
        &self,
        reload: &PlanReload<'_>,
        ends: &'a [VisitEnd],
        mapped: &BTreeMap<u32, u32>,
    ) -> (Vec<&'a VisitEnd>, BTreeMap<u32, RerunReason>) {
        let inputs = self.compare_inputs(reload);
        let (mut kept, mut again, mut cut) = (Vec::new(), BTreeMap::new(), false);
        for end in ends {
            let new = mapped.get(&end.step.at.1).copied();
            let leads = |route| matches!(route, Some(CursorRoute::Step(to)) if !mapped.contains_key(&to));
            let why = match new {
                _ if cut => Some(RerunReason::After),
                Some(new) if end.step.settler.is_none() && !leads(end.step.route) => {
                    self.step_rerun_reason(reload, ends, Some(end.step.at.1), new, &inputs)
                }
                Some(_) if end.step.settler.is_some() => Some(RerunReason::Conflict),
                _ => Some(RerunReason::Changed),
            };
            match why {
                None => kept.push(end),
                Some(why) => {
                    cut = true;
                    new.map(|new| again.entry(new).or_insert(why));
                }
            }
        }
        (kept, again)
    }
}

/// A fork with a plan that differs from that of the original run.
struct PlanReload<'a> {
    plan: &'a Plan,
    /// A step that is rerun in any case.
    from: Option<&'a str>,
    is_set_up_anew: &'a dyn Fn(&Step) -> bool,
}

/// The differences between the inputs of two plans.
struct InputChanges {
    parameters: BTreeSet<String>,
    /// True if variables of the workflow differ; all of its steps have them.
    variables: bool,
}

/// Adds all steps that come after these.
fn add_downstream(entry: &ScopeEntry, again: &mut BTreeMap<u32, RerunReason>) {
    let mut marked = vec![false; entry.scope.steps.len()];
    mark_downstream(entry, &mut marked, again.keys().copied().collect());
    for (step, _) in (0..).zip(&marked).filter(|(_, marked)| **marked) {
        again.entry(step).or_insert(RerunReason::After);
    }
}
