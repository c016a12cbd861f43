//! What each of AIP-15's eight kinds becomes in the IR.

use std::collections::BTreeSet;

use super::{
    ApprovalStep, BranchStep, Implementation, LoopStep, MapStep, OnTimeout, ParallelStep, StepDefinition,
    StepKind, SuspendStep, ToolStep, aip15,
    lower::{Lower, at},
};
use crate::{
    ids::{BranchId, SignalName},
    ir::{
        Arm, Branch, Call, Each, Gate, GateTimeout, Kind, Lane, Loop, LoopTest, Parallel, Target, Wait,
        WaitTimeout, Work, Worker,
    },
    plan::{Problem, ProblemCode},
    time::Millis,
};

/// None when a part of it could not be made; that has been said.
pub(super) fn kind<'a>(lower: &mut Lower<'a>, step: &'a StepDefinition, depth: usize) -> Option<Kind> {
    Some(match &step.kind {
        StepKind::Tool(tool) => Kind::Work(Box::new(work(tool))),
        StepKind::Branch(branch) => Kind::Branch(Box::new(self::branch(lower, step, branch)?)),
        StepKind::Parallel(parallel) => {
            Kind::Parallel(Box::new(self::parallel(lower, step, parallel, depth)))
        }
        StepKind::Suspend(suspend) => Kind::Wait(Box::new(wait(lower, step, suspend)?)),
        StepKind::Approval(approval) => Kind::Gate(Box::new(gate(lower, step, approval)?)),
        StepKind::Map(map) => Kind::Each(Box::new(each(lower, step, map, depth)?)),
        StepKind::Loop(repeat) => Kind::Loop(Box::new(self::repeat(lower, step, repeat, depth)?)),
        StepKind::Subworkflow(call) => {
            Kind::Call(Box::new(Call { workflow: call.workflow.clone(), exports: Vec::new() }))
        }
    })
}

pub(super) fn work(tool: &ToolStep) -> Work {
    let pinned = tool.pinned_provider.clone();
    Work::new(match &tool.implementation {
        Implementation::Tool(tool) => Worker::Tool { tool: tool.clone(), pinned },
        Implementation::Action(action) => Worker::Action { action: action.clone(), pinned },
    })
}

fn branch(lower: &mut Lower<'_>, step: &StepDefinition, branch: &BranchStep) -> Option<Branch> {
    let mut arms = Vec::new();
    for (i, arm) in branch.branches.iter().enumerate() {
        let when = lower.condition(at(step, format!("branches[{i}].when")), &arm.when);
        let next = lower.target(step, &format!("branches[{i}].next"), &arm.next);
        arms.extend(when.zip(next).map(|(when, next)| Arm { when, next }));
    }
    Some(Branch { arms, default: lower.target(step, "default", &branch.default)? })
}

fn parallel<'a>(
    lower: &mut Lower<'a>,
    step: &'a StepDefinition,
    parallel: &'a ParallelStep,
    depth: usize,
) -> Parallel {
    let mut lanes = Vec::new();
    for (i, lane) in parallel.lanes.iter().enumerate() {
        if lane.next.is_some() && lane.next != step.next {
            let message = format!("lane `{}` must go where `{}` goes, or say nothing", lane.id, step.id);
            let problem =
                Problem::new(ProblemCode::Misplaced, at(step, format!("branches[{i}].next")), message);
            lower.problems.push(match &step.next {
                Some(_) => problem.related(at(step, "next"), format!("`{}` goes there", step.id)),
                None => problem.hint(format!("write the `next` of `{}` itself", step.id)),
            });
        }
        let scope = lower.inner(&lane.steps, depth);
        match BranchId::new(&lane.id) {
            Ok(id) => lanes.push(Lane { id, scope }),
            Err(_) => lower.broken_name(step, format!("branches[{i}].id"), &lane.id),
        }
    }
    Parallel { lanes }
}

fn wait(lower: &mut Lower<'_>, step: &StepDefinition, suspend: &SuspendStep) -> Option<Wait> {
    let mut on: BTreeSet<SignalName> = BTreeSet::new();
    for (i, event) in suspend.on.iter().enumerate() {
        match SignalName::new(event) {
            Ok(name) => drop(on.insert(name)),
            Err(_) => lower.broken_name(step, format!("resume.on[{i}]"), event),
        }
    }
    let on_timeout = match &suspend.on_timeout {
        OnTimeout::Cancel => WaitTimeout::Cancel,
        OnTimeout::Continue => WaitTimeout::Continue,
        OnTimeout::Step(next) => WaitTimeout::Go(lower.target(step, "resume.on_timeout", next)?),
        OnTimeout::Escalate => {
            let message = format!("`{}` waits for an event, and there is nobody to escalate to", step.id);
            lower.refuse(step, "resume.on_timeout", message, ProblemCode::Misplaced);
            WaitTimeout::Cancel
        }
    };
    Some(Wait { on: on.into_iter().collect(), timeout: suspend.timeout_ms.map(Millis), on_timeout })
}

fn gate(lower: &mut Lower<'_>, step: &StepDefinition, approval: &ApprovalStep) -> Option<Gate> {
    let message = lower.text(at(step, "prompt"), &approval.prompt);
    let artifacts = approval.artifacts.iter().enumerate();
    let shows: Vec<_> =
        artifacts.map(|(i, value)| lower.value(at(step, format!("artifacts[{i}]")), value)).collect();
    let mut target = |field: &str, next: &Option<String>| -> Option<Target> {
        next.as_deref().and_then(|next| lower.target(step, field, next))
    };
    let on_approve = target("on_approve.next", &approval.on_approve);
    let on_reject = target("on_reject.next", &approval.on_reject);
    Some(Gate {
        on_timeout: gate_timeout(lower, step, approval)?,
        message: message?,
        shows: shows.into_iter().flatten().collect(),
        approvers: approval.approvers.clone(),
        quorum: 1,
        timeout: step.timeout_ms.map(Millis),
        on_approve,
        on_reject,
    })
}

/// Going on without a decision is never an approval: at best it is a rejection that has somewhere to go.
fn gate_timeout(
    lower: &mut Lower<'_>,
    step: &StepDefinition,
    approval: &ApprovalStep,
) -> Option<GateTimeout> {
    Some(match &approval.on_timeout {
        OnTimeout::Continue if approval.on_reject.is_some() => GateTimeout::Reject,
        OnTimeout::Cancel | OnTimeout::Continue => GateTimeout::Cancel,
        OnTimeout::Escalate if lower.has_step(aip15::ESCALATE) => {
            GateTimeout::Go(lower.target(step, "on_timeout", aip15::ESCALATE)?)
        }
        OnTimeout::Escalate => GateTimeout::Escalate { to: Vec::new() },
        OnTimeout::Step(next) => GateTimeout::Go(lower.target(step, "on_timeout", next)?),
    })
}

fn each<'a>(lower: &mut Lower<'a>, step: &StepDefinition, map: &'a MapStep, depth: usize) -> Option<Each> {
    let over = lower.value(at(step, "over"), &map.over);
    let scope = lower.inner(&map.steps, depth);
    let parallelism = Some(map.parallelism.unwrap_or(aip15::MAP_PARALLELISM)).filter(|items| *items > 0);
    Some(Each { over: over?, parallelism, errors: map.on_error, scope })
}

fn repeat<'a>(
    lower: &mut Lower<'a>,
    step: &StepDefinition,
    repeat: &'a LoopStep,
    depth: usize,
) -> Option<Loop> {
    let condition = lower.condition(at(step, "while"), &repeat.condition);
    let scope = lower.inner(&repeat.steps, depth);
    Some(Loop { condition: condition?, test: LoopTest::First, max: repeat.max_iterations, scope })
}
