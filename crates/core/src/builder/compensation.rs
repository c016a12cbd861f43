//! Compensation: finds the steps that undo others, and checks them.
//!
//! A step that undoes another is stored by value in the step that it undoes. It leaves its own list unless a step
//! routes to it.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    StepDefinition, StepHandle, StepKind, aip15,
    lower::step_location,
    step_kinds::{ApprovalStep, BranchStep, SuspendStep, TimeoutRule},
};
use crate::plan::{PlanField, PlanProblem, ProblemCode};

/// Every step of a workflow by id, and the ids of those that undo others.
#[derive(Debug)]
pub(super) struct UndoIndex<'a> {
    steps: BTreeMap<&'a str, &'a StepDefinition>,
    named: BTreeSet<&'a str>,
}

impl<'a> UndoIndex<'a> {
    /// Visits all lists, at any depth, without recursion.
    pub fn new(steps: &'a [StepHandle]) -> UndoIndex<'a> {
        let mut undos = UndoIndex { steps: BTreeMap::new(), named: BTreeSet::new() };
        let mut todo = vec![steps];
        while let Some(list) = todo.pop() {
            for step in list {
                let step = step.definition();
                undos.steps.insert(&step.id, step);
                todo.extend(step.kind.step_lists());
            }
        }
        // A step that is no valid compensation stays an ordinary step, so that one mistake is reported once.
        let named = undos.steps.values().filter_map(|step| Some((*step, step.compensation.as_deref()?)));
        undos.named = named.filter(|(step, name)| undos.check_undo(step, name).is_ok()).map(|(_, name)| name).collect();
        undos
    }

    pub fn find_step(&self, id: &str) -> Option<&'a StepDefinition> {
        self.steps.get(id).copied()
    }

    /// Reports invalid compensations, also those of steps that leave their list.
    pub fn check_compensations(&self, problems: &mut Vec<PlanProblem>) {
        for step in self.steps.values() {
            let Some(name) = &step.compensation else { continue };
            if let Err(message) = self.check_undo(step, name) {
                let problem =
                    PlanProblem::new(ProblemCode::BadUndo, step_location(step, PlanField::Compensation), message);
                let known = self.steps.keys().copied();
                problems.push(if self.find_step(name).is_none() {
                    problem.with_suggestion(name, known)
                } else {
                    problem
                });
            }
        }
    }

    fn check_undo(&self, step: &StepDefinition, name: &str) -> Result<(), String> {
        let undo = self.find_step(name).ok_or_else(|| format!("there is no step `{name}` to undo with"))?;
        if name == step.id {
            return Err(format!("`{name}` cannot undo itself"));
        }
        if !matches!(undo.kind, StepKind::Tool(_)) {
            return Err(format!("`{name}` is a step of kind {}, and only tools can undo", undo.kind));
        }
        if undo.compensation.is_some() {
            return Err(format!("`{name}` is a compensation and cannot have one itself"));
        }
        Ok(())
    }

    /// True if some step names it as its compensation.
    pub fn is_undo(&self, id: &str) -> bool {
        self.named.contains(id)
    }
}

/// Returns the steps that a list routes to by name, including by `next`.
pub(super) fn find_targeted_steps<'a>(steps: &'a [StepHandle], start: Option<&'a str>) -> BTreeSet<&'a str> {
    let routes = steps.iter().flat_map(|step| {
        let step = step.definition();
        detour_targets(&step.kind).into_iter().chain(step.next.as_deref())
    });
    routes.chain(start).collect()
}

/// Returns the steps that a step may route to other than by `next`.
pub(super) fn detour_targets(kind: &StepKind) -> Vec<&str> {
    match kind {
        StepKind::Branch(BranchStep { branches, default }) => {
            branches.iter().map(|arm| arm.next.as_str()).chain([default.as_str()]).collect()
        }
        StepKind::Suspend(SuspendStep { on_timeout: TimeoutRule::Step(step), .. }) => vec![step],
        StepKind::Approval(ApprovalStep { on_approve, on_reject, on_timeout, .. }) => {
            let late = match on_timeout {
                TimeoutRule::Step(step) => Some(step.as_str()),
                TimeoutRule::Escalate => Some(aip15::ESCALATE),
                TimeoutRule::Cancel | TimeoutRule::Continue => None,
            };
            on_approve.as_deref().into_iter().chain(on_reject.as_deref()).chain(late).collect()
        }
        _ => Vec::new(),
    }
}
