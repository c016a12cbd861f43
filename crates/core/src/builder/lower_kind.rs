//! Lowering of AIP-15's eight step kinds to the IR.

use std::collections::BTreeSet;

use super::{
    ApprovalStep, BranchStep, LoopStep, MapStep, ParallelStep, StepDefinition, StepKind, SuspendStep, TimeoutRule,
    ToolImplementation, ToolStep, aip15,
    lower::{WorkflowLowering, step_location},
};
use crate::{
    ids::{BranchId, SignalName},
    ir::{
        BranchSpec, CallSpec, EachSpec, GateSpec, GateTimeout, LaneSpec, LoopSpec, LoopTest, ParallelSpec, RouteArm,
        RouteTarget, StepKindSpec, WaitSpec, WaitTimeout, WorkSpec, WorkerSpec,
    },
    plan::{FieldPath, PlanField, PlanProblem, ProblemCode},
    time::Millis,
};

/// Lowers a step's kind. Returns none if a part could not be lowered; the problem has then been reported.
pub(super) fn lower_kind<'a>(
    lower: &mut WorkflowLowering<'a>,
    step: &'a StepDefinition,
    depth: usize,
) -> Option<StepKindSpec> {
    Some(match &step.kind {
        StepKind::Tool(tool) => StepKindSpec::Work(Box::new(lower_work(tool))),
        StepKind::Branch(branch) => StepKindSpec::Branch(Box::new(lower_branch(lower, step, branch)?)),
        StepKind::Parallel(parallel) => StepKindSpec::Parallel(Box::new(lower_parallel(lower, step, parallel, depth))),
        StepKind::Suspend(suspend) => StepKindSpec::Wait(Box::new(lower_wait(lower, step, suspend)?)),
        StepKind::Approval(approval) => StepKindSpec::Gate(Box::new(lower_gate(lower, step, approval)?)),
        StepKind::Map(map) => StepKindSpec::Each(Box::new(lower_each(lower, step, map, depth)?)),
        StepKind::Loop(repeat) => StepKindSpec::Loop(Box::new(lower_loop(lower, step, repeat, depth)?)),
        StepKind::Subworkflow(call) => {
            StepKindSpec::Call(Box::new(CallSpec { workflow: call.workflow.clone(), exports: Vec::new() }))
        }
    })
}

pub(super) fn lower_work(tool: &ToolStep) -> WorkSpec {
    let pinned = tool.pinned_provider.clone();
    WorkSpec::new(match &tool.implementation {
        ToolImplementation::Tool(tool) => WorkerSpec::Tool { tool: tool.clone(), pinned },
        ToolImplementation::Action(action) => WorkerSpec::Action { action: action.clone(), pinned },
    })
}

fn lower_branch(lower: &mut WorkflowLowering<'_>, step: &StepDefinition, branch: &BranchStep) -> Option<BranchSpec> {
    let mut arms = Vec::new();
    for (i, arm) in branch.branches.iter().enumerate() {
        let when = lower.lower_condition(step_location(step, branch_field(i, PlanField::When)), &arm.when);
        let next = lower.lower_target(step, branch_field(i, PlanField::Next), &arm.next);
        arms.extend(when.zip(next).map(|(when, next)| RouteArm { when, next }));
    }
    Some(BranchSpec { arms, default: lower.lower_target(step, PlanField::Default, &branch.default)? })
}

/// Returns the path to a field of a branch.
fn branch_field(i: usize, field: PlanField) -> FieldPath {
    FieldPath::from(PlanField::Branches).item(i).field(field)
}

fn lower_parallel<'a>(
    lower: &mut WorkflowLowering<'a>,
    step: &'a StepDefinition,
    parallel: &'a ParallelStep,
    depth: usize,
) -> ParallelSpec {
    let mut lanes = Vec::new();
    for (i, lane) in parallel.lanes.iter().enumerate() {
        if lane.next.is_some() && lane.next != step.next {
            let message =
                format!("{} `{}` must have the same `next` as `{}`, or none", lower.terms.lane, lane.id, step.id);
            let at = step_location(step, branch_field(i, PlanField::Next));
            let problem = PlanProblem::new(ProblemCode::Misplaced, at, message);
            lower.problems.push(match &step.next {
                Some(_) => {
                    problem.with_related(step_location(step, PlanField::Next), format!("the `next` of `{}`", step.id))
                }
                None => problem.with_hint(format!("set `next` on `{}` itself", step.id)),
            });
        }
        let scope = lower.lower_inner_list(&lane.steps, depth);
        match BranchId::new(&lane.id) {
            Ok(id) => lanes.push(LaneSpec { id, scope }),
            Err(_) => lower.report_bad_name(step, branch_field(i, PlanField::Id), &lane.id),
        }
    }
    ParallelSpec { lanes }
}

fn lower_wait(lower: &mut WorkflowLowering<'_>, step: &StepDefinition, suspend: &SuspendStep) -> Option<WaitSpec> {
    let mut on: BTreeSet<SignalName> = BTreeSet::new();
    for (i, event) in suspend.on.iter().enumerate() {
        match SignalName::new(event) {
            Ok(name) => drop(on.insert(name)),
            Err(_) => {
                let field = FieldPath::from([PlanField::Resume, PlanField::On]).item(i);
                lower.report_bad_name(step, field, event);
            }
        }
    }
    let on_timeout = match &suspend.on_timeout {
        TimeoutRule::Cancel => WaitTimeout::Cancel,
        TimeoutRule::Continue => WaitTimeout::Continue,
        TimeoutRule::Step(next) => {
            WaitTimeout::Go(lower.lower_target(step, [PlanField::Resume, PlanField::OnTimeout], next)?)
        }
        TimeoutRule::Escalate => {
            let message = format!("`{}` waits for an event, and there is nobody to escalate to", step.id);
            lower.report_problem(step, [PlanField::Resume, PlanField::OnTimeout], message, ProblemCode::Misplaced);
            WaitTimeout::Cancel
        }
    };
    Some(WaitSpec { on: on.into_iter().collect(), timeout: suspend.timeout_ms.map(Millis), on_timeout })
}

fn lower_gate(lower: &mut WorkflowLowering<'_>, step: &StepDefinition, approval: &ApprovalStep) -> Option<GateSpec> {
    let message = lower.lower_text(step_location(step, PlanField::Prompt), &approval.prompt);
    let artifacts = approval.artifacts.iter().enumerate();
    let shows: Vec<_> = artifacts
        .map(|(i, value)| lower.lower_value(step_location(step, FieldPath::from(PlanField::Artifacts).item(i)), value))
        .collect();
    let mut target = |field: PlanField, next: &Option<String>| -> Option<RouteTarget> {
        next.as_deref().and_then(|next| lower.lower_target(step, [field, PlanField::Next], next))
    };
    let on_approve = target(PlanField::OnApprove, &approval.on_approve);
    let on_reject = target(PlanField::OnReject, &approval.on_reject);
    Some(GateSpec {
        on_timeout: lower_gate_timeout(lower, step, approval)?,
        message: message?,
        shows: shows.into_iter().flatten().collect(),
        approvers: approval.approvers.clone(),
        quorum: 1,
        timeout: step.timeout_ms.map(Millis),
        on_approve,
        on_reject,
    })
}

/// Lowers an approval's timeout. Continuing without a decision is never an approval: it becomes a rejection if
/// `on_reject` has a target, and otherwise a cancel.
fn lower_gate_timeout(
    lower: &mut WorkflowLowering<'_>,
    step: &StepDefinition,
    approval: &ApprovalStep,
) -> Option<GateTimeout> {
    Some(match &approval.on_timeout {
        TimeoutRule::Continue if approval.on_reject.is_some() => GateTimeout::Reject,
        TimeoutRule::Cancel | TimeoutRule::Continue => GateTimeout::Cancel,
        TimeoutRule::Escalate if lower.has_step(aip15::ESCALATE) => {
            GateTimeout::Go(lower.lower_target(step, PlanField::OnTimeout, aip15::ESCALATE)?)
        }
        TimeoutRule::Escalate => GateTimeout::Escalate { to: Vec::new() },
        TimeoutRule::Step(next) => GateTimeout::Go(lower.lower_target(step, PlanField::OnTimeout, next)?),
    })
}

fn lower_each<'a>(
    lower: &mut WorkflowLowering<'a>,
    step: &StepDefinition,
    map: &'a MapStep,
    depth: usize,
) -> Option<EachSpec> {
    let over = lower.lower_value(step_location(step, PlanField::Over), &map.over);
    let scope = lower.lower_inner_list(&map.steps, depth);
    let parallelism = Some(map.parallelism.unwrap_or(aip15::MAP_PARALLELISM)).filter(|items| *items > 0);
    Some(EachSpec { over: over?, parallelism, errors: map.on_error, scope })
}

fn lower_loop<'a>(
    lower: &mut WorkflowLowering<'a>,
    step: &StepDefinition,
    repeat: &'a LoopStep,
    depth: usize,
) -> Option<LoopSpec> {
    let condition = lower.lower_condition(step_location(step, PlanField::While), &repeat.condition);
    let scope = lower.lower_inner_list(&repeat.steps, depth);
    Some(LoopSpec { condition: condition?, test: LoopTest::First, max: repeat.max_iterations, scope })
}
