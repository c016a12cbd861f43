//! The fields that each of the eight kinds has of its own. A reader returns None if a part is missing without which the
//! transitions of the step are unknown; it has reported that.

use skein_core::{
    builder::{
        ApprovalStep, BranchArm, BranchStep, LoopStep, MapStep, ParallelLane, ParallelStep, StepKind, SubworkflowStep,
        SuspendStep, TimeoutRule, ToolStep, aip15,
    },
    expr::ExprSpan,
    ir::{Approver, EachErrorPolicy},
};

use super::{
    defaults::{Aip15StepKind, ITERATIONS},
    step::{Aip15StepReader, end_target, read_target, read_timeout_target},
    value,
};
use crate::{
    catalog::WorkflowReference,
    diagnostics::{Code, Diagnostic, shorten_text},
    fields::{FieldNames, FieldReader, FieldValue},
    source::yaml::{YamlNode, YamlScalar},
};

const TOOL_STEP_FIELDS: &[&str] = &["tool", "action", "pinned_provider"];
const BRANCH_STEP_FIELDS: &[&str] = &["branches", "default"];
const PARALLEL_STEP_FIELDS: &[&str] = &["branches"];
const SUSPEND_STEP_FIELDS: &[&str] = &["resume"];
const APPROVAL_STEP_FIELDS: &[&str] = &["prompt", "artifacts", "approvers", "on_approve", "on_reject", "on_timeout"];
const MAP_STEP_FIELDS: &[&str] = &["over", "parallelism", "steps"];
const LOOP_STEP_FIELDS: &[&str] = &["while", "max_iterations", "steps"];
const SUBWORKFLOW_STEP_FIELDS: &[&str] = &["workflow"];

pub(super) const ALL_KINDS_FIELDS: &[FieldNames] = &[
    TOOL_STEP_FIELDS, BRANCH_STEP_FIELDS, SUSPEND_STEP_FIELDS, APPROVAL_STEP_FIELDS, MAP_STEP_FIELDS, LOOP_STEP_FIELDS,
    SUBWORKFLOW_STEP_FIELDS,
];

impl Aip15StepKind {
    /// The fields that steps of this kind have of their own.
    pub(crate) fn fields(self) -> &'static [FieldNames] {
        match self {
            Aip15StepKind::Tool => &[TOOL_STEP_FIELDS],
            Aip15StepKind::Branch => &[BRANCH_STEP_FIELDS],
            Aip15StepKind::Parallel => &[PARALLEL_STEP_FIELDS],
            Aip15StepKind::Suspend => &[SUSPEND_STEP_FIELDS],
            Aip15StepKind::Approval => &[APPROVAL_STEP_FIELDS],
            Aip15StepKind::Map => &[MAP_STEP_FIELDS],
            Aip15StepKind::Loop => &[LOOP_STEP_FIELDS],
            Aip15StepKind::Subworkflow => &[SUBWORKFLOW_STEP_FIELDS],
        }
    }
}

pub(super) fn read_kind(
    steps: &mut Aip15StepReader<'_, '_>,
    fields: &mut FieldReader<'_>,
    kind: Aip15StepKind,
) -> Option<StepKind> {
    Some(match kind {
        Aip15StepKind::Tool => read_tool_step(steps, fields).into(),
        Aip15StepKind::Branch => read_branch_step(steps, fields)?.into(),
        Aip15StepKind::Parallel => read_parallel_step(steps, fields)?.into(),
        Aip15StepKind::Suspend => read_suspend_step(steps, fields).into(),
        Aip15StepKind::Approval => read_approval_step(steps, fields).into(),
        Aip15StepKind::Map => read_map_step(steps, fields)?.into(),
        Aip15StepKind::Loop => read_loop_step(steps, fields)?.into(),
        Aip15StepKind::Subworkflow => read_subworkflow_step(steps, fields).into(),
    })
}

/// A placeholder for a step without a tool; that has been reported.
pub(super) fn placeholder_tool() -> ToolStep {
    ToolStep::tool("")
}

fn read_tool_step(steps: &mut Aip15StepReader<'_, '_>, fields: &mut FieldReader<'_>) -> ToolStep {
    let (tool, action) = (fields.optional("tool"), fields.optional("action"));
    let pinned = fields.optional("pinned_provider").and_then(|given| given.read_non_empty_text(steps.lowering.sink));
    let mut step = match (tool, action) {
        (Some(tool), None) => read_tool_id(steps, tool).map_or_else(placeholder_tool, ToolStep::tool),
        (None, Some(action)) => {
            let action = action.read_non_empty_text(steps.lowering.sink).map(|text| text.map(str::to_owned));
            steps.actions.extend(action.clone());
            action.map_or_else(placeholder_tool, |action| ToolStep::action(action.value))
        }
        (Some(tool), Some(action)) => {
            let message = "a tool step has `tool` or `action`, and this has both";
            let diagnostic = Diagnostic::new(Code::FieldsClash, tool.node.source(), tool.span(), message);
            let hint = "`action` lets any tool that implements it do the work";
            steps.lowering.push(diagnostic.with_related(action.span(), "and here").with_hint(hint));
            placeholder_tool()
        }
        (None, None) => {
            let message = "a tool step needs `tool` or `action`";
            let node = fields.node();
            let diagnostic = Diagnostic::new(Code::MissingField, node.source(), fields.head_span(), message);
            steps.lowering.push(diagnostic.with_hint("name a tool by its id, or an action that some tool implements"));
            placeholder_tool()
        }
    };
    let pinned = pinned.map(|text| text.map(str::to_owned));
    steps.drivers.extend(pinned.clone());
    step.pinned_provider = pinned.map(|text| text.value);
    step
}

/// Reads the id of a tool. In older versions a step could contain the body itself.
fn read_tool_id(steps: &mut Aip15StepReader<'_, '_>, given: FieldValue<'_>) -> Option<String> {
    if given.node.get("entry").is_some() {
        let message = "a step cannot hold the body of its tool";
        let diagnostic = given.diagnose(Code::RemovedField, message);
        let hint = "write a TOOL.md and a DRIVER.md with the body, and name the tool by its id";
        steps.lowering.push(diagnostic.with_hint(hint));
        return None;
    }
    let id = given.read_non_empty_text(steps.lowering.sink)?.map(str::to_owned);
    steps.tools.push(id.clone());
    Some(id.value)
}

const BRANCH_ARM_FIELDS: &[&str] = &["when", "next"];

fn read_branch_step(steps: &mut Aip15StepReader<'_, '_>, fields: &mut FieldReader<'_>) -> Option<BranchStep> {
    let branches = fields.required("branches", steps.lowering.sink);
    let default = read_target(fields.optional("default"), steps).unwrap_or_else(end_target);
    let mut arms = Vec::new();
    let mut whole = true;
    for item in branches?.read_list(steps.lowering.sink)? {
        let Some(mut arm) =
            FieldReader::from_node(item.node, "an entry of `branches`", BRANCH_ARM_FIELDS, steps.lowering.sink)
        else {
            whole = false;
            continue;
        };
        let when = arm.required("when", steps.lowering.sink).and_then(|given| read_condition(steps, given));
        let next = arm.required("next", steps.lowering.sink);
        let next = read_target(next, steps);
        arm.finish(steps.lowering.sink);
        whole &= next.is_some();
        // A missing condition has been reported; this placeholder is not evaluated.
        arms.extend(next.map(|next| BranchArm { when: when.unwrap_or_else(|| "true".to_owned()), next }));
    }
    whole.then_some(BranchStep { branches: arms, default })
}

/// Reads a condition, which is text. `when: true` is valid, too.
fn read_condition(steps: &mut Aip15StepReader<'_, '_>, given: FieldValue<'_>) -> Option<String> {
    match given.node.raw_text() {
        Some(raw) => Some(raw.to_owned()),
        None => {
            steps.lowering.push(given.diagnose_type("a condition, such as `$input.count > 3`"));
            None
        }
    }
}

const LANE_FIELDS: &[&str] = &["id", "next", "steps"];

fn read_parallel_step(steps: &mut Aip15StepReader<'_, '_>, fields: &mut FieldReader<'_>) -> Option<ParallelStep> {
    let branches = fields.required("branches", steps.lowering.sink)?;
    let mut lanes = Vec::new();
    let mut whole = true;
    for item in branches.read_list(steps.lowering.sink)? {
        let Some(mut lane) = FieldReader::from_node(item.node, "a branch", LANE_FIELDS, steps.lowering.sink) else {
            whole = false;
            continue;
        };
        let id = lane.required("id", steps.lowering.sink);
        let id = id.and_then(|given| given.read_non_empty_text(steps.lowering.sink)).map(|id| id.value.to_owned());
        let next = read_target(lane.optional("next"), steps);
        let given = lane.required("steps", steps.lowering.sink);
        let inner = steps.read_steps(given);
        lane.finish(steps.lowering.sink);
        whole &= id.is_some();
        lanes.extend(id.map(|id| ParallelLane { id, next, steps: inner }));
    }
    whole.then_some(ParallelStep { lanes })
}

fn note_wait(steps: &mut Aip15StepReader<'_, '_>, node: YamlNode<'_>) {
    let kind: Option<ExprSpan> = node.get("kind").map(YamlNode::span);
    steps.waits = steps.waits.or(kind);
}

const RESUME_FIELDS: &[&str] = &["on", "timeout_ms", "on_timeout"];

fn read_suspend_step(steps: &mut Aip15StepReader<'_, '_>, fields: &mut FieldReader<'_>) -> SuspendStep {
    note_wait(steps, fields.node());
    let resume = fields.required("resume", steps.lowering.sink);
    let resume =
        resume.and_then(|given| FieldReader::from_node(given.node, "`resume`", RESUME_FIELDS, steps.lowering.sink));
    // A placeholder event that no source names, so that one mistake is not reported twice.
    let mut step = SuspendStep::new(["?"]);
    let Some(mut resume) = resume else { return step };
    let on = resume.required("on", steps.lowering.sink).and_then(|given| given.read_list(steps.lowering.sink));
    if let Some(events) = on {
        let none = events.is_empty();
        let names = events.into_iter().filter_map(|event| event.read_non_empty_text(steps.lowering.sink));
        let names: Vec<String> = names.map(|name| name.value.to_owned()).collect();
        step.on = if names.is_empty() && !none { step.on } else { names };
    }
    let timeout = resume.optional("timeout_ms");
    step.timeout_ms = timeout.and_then(|given| given.read_millis(1, steps.lowering.sink)).map(|n| n.value.0);
    step.on_timeout = match read_timeout_target(resume.optional("on_timeout"), &["cancel", "continue"], steps) {
        None | Some("cancel") => TimeoutRule::Cancel,
        Some("continue") => TimeoutRule::Continue,
        Some(step) => TimeoutRule::Step(step.to_owned()),
    };
    if timeout.is_none() {
        steps.lowering.warn_ignored(resume.node(), &["on_timeout"], "there is no `timeout_ms`");
    }
    resume.finish(steps.lowering.sink);
    step
}

fn read_approval_step(steps: &mut Aip15StepReader<'_, '_>, fields: &mut FieldReader<'_>) -> ApprovalStep {
    note_wait(steps, fields.node());
    let prompt = fields.required("prompt", steps.lowering.sink);
    let prompt = prompt.and_then(|given| value::read_plain_text(given, steps.lowering.sink)).unwrap_or_default();
    let mut step = ApprovalStep::new(prompt);
    let artifacts = fields.optional("artifacts").and_then(|given| given.read_list(steps.lowering.sink));
    let artifacts = artifacts.unwrap_or_default().into_iter();
    step.artifacts = artifacts.map(|item| value::read_value(item, steps.lowering.sink)).collect();
    let approvers = fields.required("approvers", steps.lowering.sink);
    step.approvers = approvers.map(|given| read_approvers(steps, given)).unwrap_or_default();
    step.on_approve = read_route(steps, fields.optional("on_approve"), "`on_approve`");
    step.on_reject = read_route(steps, fields.optional("on_reject"), "`on_reject`");
    let words = &["cancel", "continue", aip15::ESCALATE];
    step.on_timeout = match read_timeout_target(fields.optional("on_timeout"), words, steps) {
        None | Some("cancel") => TimeoutRule::Cancel,
        Some("continue") => TimeoutRule::Continue,
        Some(aip15::ESCALATE) => TimeoutRule::Escalate,
        Some(step) => TimeoutRule::Step(step.to_owned()),
    };
    if fields.node().get("timeout_ms").is_none() {
        steps.lowering.warn_ignored(fields.node(), &["on_timeout"], "there is no `timeout_ms`");
    }
    step
}

fn read_approvers(steps: &mut Aip15StepReader<'_, '_>, given: FieldValue<'_>) -> Vec<Approver> {
    let Some(items) = given.read_list(steps.lowering.sink) else { return Vec::new() };
    if items.is_empty() {
        let message = "an approval needs at least one approver";
        let diagnostic = given.diagnose(Code::TooFew, message);
        steps.lowering.push(diagnostic.with_hint("name a role or a user, such as `- role: legal`"));
    }
    items.into_iter().filter_map(|item| read_approver(steps, item)).collect()
}

const APPROVER_FIELDS: &[&str] = &["role", "userId"];

fn read_approver(steps: &mut Aip15StepReader<'_, '_>, given: FieldValue<'_>) -> Option<Approver> {
    if let Some(YamlScalar::Text(name)) = given.node.scalar() {
        let message = format!("an approver is a `role` or a `userId`, found the text `{}`", shorten_text(name));
        let diagnostic = given.diagnose(Code::WrongType, message);
        let meant = given.node.wrap_in_key("role");
        steps.lowering.push(diagnostic.with_hint(format!("a role is `{meant}`")).with_fix(given.span(), meant));
        return None;
    }
    let fields = FieldReader::from_node(given.node, "an approver", APPROVER_FIELDS, steps.lowering.sink)?;
    let (role, user) = (fields.optional("role"), fields.optional("userId"));
    let misspelt =
        given.node.fields().is_some_and(|mut fields| fields.any(|field| !matches!(field.key, "role" | "userId")));
    fields.finish(steps.lowering.sink);
    match (role, user) {
        (Some(role), None) => {
            let name = role.read_non_empty_text(steps.lowering.sink)?.map(str::to_owned);
            steps.roles.push(name.clone());
            Some(Approver::Role(name.value))
        }
        (None, Some(user)) => Some(Approver::User(user.read_non_empty_text(steps.lowering.sink)?.value.to_owned())),
        (None, None) if misspelt => None,
        (role, _) => {
            let (code, found) = match role {
                Some(_) => (Code::FieldsClash, "both"),
                None => (Code::MissingField, "neither"),
            };
            let message = format!("an approver is a `role` or a `userId`, and this is {found}");
            steps.lowering.push(given.diagnose(code, message));
            None
        }
    }
}

const ROUTE_FIELDS: &[&str] = &["next"];

/// Reads `{next: STEP}`, for which a bare step is often written.
fn read_route(
    steps: &mut Aip15StepReader<'_, '_>,
    given: Option<FieldValue<'_>>,
    what: &'static str,
) -> Option<String> {
    let given = given?;
    if let Some(raw) = given.node.raw_text() {
        let fixed = given.node.wrap_in_key("next");
        let diagnostic = given.diagnose_type("a mapping with `next`").with_hint(format!("write `{fixed}`"));
        steps.lowering.push(diagnostic.with_fix(given.span(), fixed));
        return Some(raw.to_owned());
    }
    let mut fields = FieldReader::from_node(given.node, what, ROUTE_FIELDS, steps.lowering.sink)?;
    let next = fields.required("next", steps.lowering.sink);
    let next = read_target(next, steps);
    fields.finish(steps.lowering.sink);
    steps.broken |= next.is_none();
    next
}

fn read_map_step(steps: &mut Aip15StepReader<'_, '_>, fields: &mut FieldReader<'_>) -> Option<MapStep> {
    let over = fields.required("over", steps.lowering.sink);
    let over = over.map(|given| value::read_value(given, steps.lowering.sink)).unwrap_or_default();
    let parallelism = fields.optional("parallelism");
    let parallelism = parallelism.and_then(|given| given.read_whole_number(0..=u32::MAX, steps.lowering.sink));
    let inner = fields.required("steps", steps.lowering.sink)?;
    Some(MapStep {
        over,
        parallelism: parallelism.map(|n| n.value),
        on_error: EachErrorPolicy::default(),
        steps: steps.read_steps(Some(inner)),
    })
}

fn read_loop_step(steps: &mut Aip15StepReader<'_, '_>, fields: &mut FieldReader<'_>) -> Option<LoopStep> {
    let condition = fields.required("while", steps.lowering.sink).and_then(|given| read_condition(steps, given));
    let max = fields.required("max_iterations", steps.lowering.sink);
    let max = max.and_then(|given| given.read_whole_number(ITERATIONS, steps.lowering.sink));
    let inner = fields.required("steps", steps.lowering.sink)?;
    Some(LoopStep {
        condition: condition.unwrap_or_else(|| "true".to_owned()),
        max_iterations: max.map_or(*ITERATIONS.start(), |n| n.value),
        steps: steps.read_steps(Some(inner)),
    })
}

/// Reads the workflow to call. If it does not exist, that has been reported and the plan adds nothing.
fn read_subworkflow_step(steps: &mut Aip15StepReader<'_, '_>, fields: &mut FieldReader<'_>) -> SubworkflowStep {
    let given = fields.required("workflow", steps.lowering.sink);
    let id = given.and_then(|given| given.read_non_empty_text(steps.lowering.sink));
    steps.broken |= id.is_none();
    let found = given
        .zip(id)
        .and_then(|(given, id)| steps.lowering.resolve_called_workflow(given, WorkflowReference::Id(id.value)));
    SubworkflowStep::new(found.unwrap_or_default())
}
