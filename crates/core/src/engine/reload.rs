//! Reload: selects the results of a run that a fork with another plan can start with.
//!
//! Owns the comparison. A result is kept if the definition, the inputs and the settings of its step are unchanged, the
//! step ended well enough, and all steps before it are kept. Steps are matched by id; their numbers may differ.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    CursorRoute, ForkRefusal, ForkSeed, InstanceIx, RerunReason, ReusableResults, RunPhase,
    fork::{ForkRenumbering, mark_downstream},
    reusable_results::VisitEnd,
};
use crate::{
    expr::{Expr, ReferenceRoot},
    ir::Step,
    plan::{Plan, RouteTargetIx, ScopeEntry},
};

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
