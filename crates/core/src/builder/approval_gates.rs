//! Approval of steps that are not work: a gate is inserted before each. The engine itself holds work steps.

use std::collections::{BTreeMap, BTreeSet};

use super::aip15;
use crate::{
    expr::Expr,
    ids::StepId,
    ir::{GateSpec, GateTimeout, RouteTarget, Step, StepKindSpec, StepPolicy, WaitTimeout},
};

/// Inserts a gate before each of these steps. All routes to such a step then lead to its gate.
pub(super) fn insert_approval_gates(steps: Vec<Step>, start: &mut Option<StepId>, asked: &BTreeSet<&str>) -> Vec<Step> {
    let gates: BTreeMap<StepId, StepId> = steps
        .iter()
        .filter(|step| {
            !matches!(step.kind, StepKindSpec::Work(_) | StepKindSpec::Gate(_)) && asked.contains(step.id.as_str())
        })
        .filter_map(|step| Some((step.id.clone(), aip15::approval_gate_id(&step.id)?)))
        .collect();
    if let Some(gate) = start.as_ref().and_then(|start| gates.get(start)) {
        *start = Some(gate.clone());
    }
    let mut placed = Vec::with_capacity(steps.len() + gates.len());
    for mut step in steps {
        route_targets_mut(&mut step).for_each(|target| {
            if let RouteTarget::Step(id) = target
                && let Some(gate) = gates.get(id)
            {
                *id = gate.clone();
            }
        });
        placed.extend(gates.get(&step.id).and_then(|id| build_gate_before(id.clone(), &step)));
        placed.push(step);
    }
    placed
}

fn build_gate_before(id: StepId, before: &Step) -> Option<Step> {
    let gate = GateSpec {
        message: Expr::literal(format!("May `{}` start?", before.id)).ok()?,
        shows: Vec::new(),
        approvers: Vec::new(),
        quorum: 1,
        timeout: None,
        on_timeout: GateTimeout::Expire,
        on_approve: Some(RouteTarget::Step(before.id.clone())),
        on_reject: None,
    };
    let policy = StepPolicy { effects: aip15::default_effects(), ..StepPolicy::default() };
    Some(Step { policy: policy.into(), ..Step::new(id, StepKindSpec::Gate(Box::new(gate))) })
}

/// Returns every route target of a step.
fn route_targets_mut(step: &mut Step) -> impl Iterator<Item = &mut RouteTarget> {
    let own: Vec<&mut RouteTarget> = match &mut step.kind {
        StepKindSpec::Branch(branch) => {
            branch.arms.iter_mut().map(|arm| &mut arm.next).chain([&mut branch.default]).collect()
        }
        StepKindSpec::Gate(gate) => {
            let late = match &mut gate.on_timeout {
                GateTimeout::Go(target) => Some(target),
                _ => None,
            };
            gate.on_approve.iter_mut().chain(&mut gate.on_reject).chain(late).collect()
        }
        StepKindSpec::Wait(wait) => match &mut wait.on_timeout {
            WaitTimeout::Go(target) => vec![target],
            _ => Vec::new(),
        },
        StepKindSpec::Work(_)
        | StepKindSpec::Parallel(_)
        | StepKindSpec::Each(_)
        | StepKindSpec::Loop(_)
        | StepKindSpec::Call(_) => Vec::new(),
    };
    own.into_iter().chain(&mut step.next)
}
