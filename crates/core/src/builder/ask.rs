//! Approval before a step that is no work of its own starts: a gate in front of it. Work is held by the engine itself.

use std::collections::{BTreeMap, BTreeSet};

use super::aip15;
use crate::{
    expr::Expr,
    ids::StepId,
    ir::{Gate, GateTimeout, Kind, Step, StepPolicy, Target, WaitTimeout},
};

/// Puts a gate in front of each of these steps; whatever led to a step leads to its gate.
pub(super) fn ask_first(steps: Vec<Step>, start: &mut Option<StepId>, asked: &BTreeSet<&str>) -> Vec<Step> {
    let gates: BTreeMap<StepId, StepId> = steps
        .iter()
        .filter(|step| {
            !matches!(step.kind, Kind::Work(_) | Kind::Gate(_)) && asked.contains(step.id.as_str())
        })
        .filter_map(|step| Some((step.id.clone(), aip15::approval_of(&step.id)?)))
        .collect();
    if let Some(gate) = start.as_ref().and_then(|start| gates.get(start)) {
        *start = Some(gate.clone());
    }
    let mut placed = Vec::with_capacity(steps.len() + gates.len());
    for mut step in steps {
        targets(&mut step).for_each(|target| {
            if let Target::Step(id) = target
                && let Some(gate) = gates.get(id)
            {
                *id = gate.clone();
            }
        });
        placed.extend(gates.get(&step.id).and_then(|id| gate(id.clone(), &step)));
        placed.push(step);
    }
    placed
}

fn gate(id: StepId, before: &Step) -> Option<Step> {
    let gate = Gate {
        message: Expr::literal(format!("May `{}` start?", before.id)).ok()?,
        shows: Vec::new(),
        approvers: Vec::new(),
        quorum: 1,
        timeout: None,
        on_timeout: GateTimeout::Expire,
        on_approve: Some(Target::Step(before.id.clone())),
        on_reject: None,
    };
    let policy = StepPolicy { effects: aip15::effects(), ..StepPolicy::default() };
    Some(Step { policy: policy.into(), ..Step::new(id, Kind::Gate(Box::new(gate))) })
}

/// Every place where a step says what comes next.
fn targets(step: &mut Step) -> impl Iterator<Item = &mut Target> {
    let own: Vec<&mut Target> = match &mut step.kind {
        Kind::Branch(branch) => {
            branch.arms.iter_mut().map(|arm| &mut arm.next).chain([&mut branch.default]).collect()
        }
        Kind::Gate(gate) => {
            let late = match &mut gate.on_timeout {
                GateTimeout::Go(target) => Some(target),
                _ => None,
            };
            gate.on_approve.iter_mut().chain(&mut gate.on_reject).chain(late).collect()
        }
        Kind::Wait(wait) => match &mut wait.on_timeout {
            WaitTimeout::Go(target) => vec![target],
            _ => Vec::new(),
        },
        Kind::Work(_) | Kind::Parallel(_) | Kind::Each(_) | Kind::Loop(_) | Kind::Call(_) => Vec::new(),
    };
    own.into_iter().chain(&mut step.next)
}
