//! Comparison of the steps of two definitions, to find results of one that are still valid in the other.
//!
//! Owns the meaning of equal definitions of a step: all fields of the step, of the steps inside it, and of the
//! workflows that it calls.

use std::collections::BTreeSet;

use super::{
    definition::{PlanDefinition, ScopeIx},
    expr_sites::step_sites,
};
use crate::{
    expr::ReferenceRoot,
    ir::{Step, Workflow},
};

impl PlanDefinition {
    /// Returns true if a step and a step of another definition are defined alike.
    pub fn is_same_step(&self, at: (ScopeIx, u32), other: &PlanDefinition, its: (ScopeIx, u32)) -> bool {
        let (own, theirs) = (self.scope(at.0), other.scope(its.0));
        let (own_inner, their_inner) = (&own.inner[at.1 as usize], &theirs.inner[its.1 as usize]);
        is_same_without_ui(own.step(at.1), theirs.step(its.1))
            && own_inner.len() == their_inner.len()
            && own_inner.iter().zip(their_inner).all(|(own, its)| self.is_same_scope(*own, other, *its))
    }

    fn is_same_scope(&self, own: ScopeIx, other: &PlanDefinition, its: ScopeIx) -> bool {
        let (entry, theirs) = (self.scope(own), other.scope(its));
        // The root of a called workflow has no step around it, so the workflows are compared as a whole.
        let called = entry.parent.is_none() || theirs.parent.is_none();
        let (workflow, its_workflow) =
            (&self.workflow_containing(own).workflow, &other.workflow_containing(its).workflow);
        let without_ui = |workflow: &Workflow| workflow.without_ui().unwrap_or_else(|| workflow.clone());
        if called && workflow != its_workflow && without_ui(workflow) != without_ui(its_workflow) {
            return false;
        }
        let same = |i: u32| self.is_same_step((own, i), other, (its, i));
        entry.len() == theirs.len() && (0..entry.len()).all(same)
    }

    /// Returns true if a step, or one inside it, reads one of these parameters of its workflow.
    pub fn reads_parameters(&self, at: (ScopeIx, u32), names: &BTreeSet<String>) -> bool {
        let entry = self.scope(at.0);
        let sites = step_sites(at.0, at.1, entry.step(at.1));
        let reads = sites.iter().flat_map(|site| site.expr.reads()).any(|read| {
            *read.root == ReferenceRoot::Input && read.path.first().is_none_or(|name| names.contains(name))
        });
        let own = |scope: &&ScopeIx| self.scope(**scope).workflow == entry.workflow;
        let mut inner = entry.inner[at.1 as usize].iter().filter(own);
        reads || inner.any(|scope| (0..self.scope(*scope).len()).any(|i| self.reads_parameters((*scope, i), names)))
    }

    /// Returns true if `holds` is true for a step or for one inside it, also in workflows that it calls.
    pub fn any_step_within(&self, at: (ScopeIx, u32), holds: &dyn Fn(&Step) -> bool) -> bool {
        let entry = self.scope(at.0);
        let inside = |scope: &ScopeIx| (0..self.scope(*scope).len()).any(|i| self.any_step_within((*scope, i), holds));
        holds(entry.step(at.1)) || entry.inner[at.1 as usize].iter().any(inside)
    }
}

/// True if two steps are equal apart from the marks of a composer, which have no effect.
fn is_same_without_ui(step: &Step, other: &Step) -> bool {
    let without_ui = |step: &Step| {
        let mut step = step.clone();
        step.remove_ui();
        step
    };
    step == other || step.extensions != other.extensions && without_ui(step) == without_ui(other)
}
