//! The limits of overrides: they may not give a stage more than the workflow gives it. They come from another file than
//! the workflow, so a review of the workflow does not cover them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use skein_core::{ids::StepId, time::Millis};

use super::{
    defaults::{self, SwdlOnTimeout},
    syntax::{GateDef, SwdlStage, SwdlStageKind, SwdlWorkflow},
};
use crate::{
    code::Code,
    diagnostic::{Diagnostic, DiagnosticSink},
    source::SourceFile,
    yaml::YamlNode,
};

/// Refuses every stage that has more rights with the overrides than without.
pub(super) fn check_widening(before: &SwdlWorkflow<'_>, after: &SwdlWorkflow<'_>, sink: &mut DiagnosticSink) {
    let stages = before.stages.iter().flatten();
    let known: BTreeMap<&StepId, &SwdlStage<'_>> = stages.map(|stage| (&stage.id, &**stage)).collect();
    for stage in after.stages.iter().flatten() {
        let Some(was) = known.get(&stage.id) else { continue };
        let mut narrow = OverrideCheck { stage, sink };
        narrow.check_tools(was);
        narrow.check_call(was);
        if let (SwdlStageKind::Gate(gate), SwdlStageKind::Gate(old)) = (&stage.does, &was.does) {
            narrow.check_gate(gate, old, was);
        }
        let (own, old) = (stage.skein.inherit_from(&after.skein), was.skein.inherit_from(&before.skein));
        for name in own.widened_fields(&old) {
            let message = format!("an override cannot loosen `{name}` of `{}`", stage.id);
            narrow.refuse_field(&format!("/x-skein/{name}"), message, "it can only be made stricter");
        }
    }
}

struct OverrideCheck<'s, 'a> {
    stage: &'s SwdlStage<'a>,
    sink: &'s mut DiagnosticSink,
}

impl<'a> OverrideCheck<'_, 'a> {
    /// Reports an error at a field of the stage, in the file of the overrides.
    fn refuse_field(&mut self, pointer: &str, message: String, hint: &str) {
        let node = self.stage.node.node_at(pointer);
        let node = find_replaced_node(node, self.stage.node.source()).unwrap_or(node);
        self.sink.push(
            Diagnostic::new(Code::Widens, node.source(), node.first_line_span(), message).with_hint(hint),
        );
    }

    fn check_tools(&mut self, was: &SwdlStage<'_>) {
        let (Some(asked), Some(old)) = (self.stage.agent_task(), was.agent_task()) else { return };
        let known: BTreeSet<&str> = old.roles.tools.iter().map(|(_, tool)| *tool).collect();
        for (given, tool) in &asked.roles.tools {
            if !known.contains(tool) && !is_text_tool(tool) {
                let message = format!(
                    "an override cannot give `{}` the tool `{tool}`: a server lets its agent do more than the workflow allows",
                    self.stage.id
                );
                let hint = "an override can take tools away, and add `skill:` and `command:`, which are only text; \
                            add this one in the workflow itself";
                let (source, span) = (given.node.source(), given.node.first_line_span());
                self.sink.push(Diagnostic::new(Code::Widens, source, span, message).with_hint(hint));
            }
        }
    }

    fn check_call(&mut self, was: &SwdlStage<'_>) {
        if called_workflow(self.stage) != called_workflow(was) {
            let message = format!("an override cannot change the workflow that `{}` calls", self.stage.id);
            self.refuse_field("/x-skein/call", message, "change it in the workflow itself");
        }
    }

    fn check_gate(&mut self, gate: &GateDef<'_>, old: &GateDef<'_>, was: &SwdlStage<'_>) {
        let id = &self.stage.id;
        let known: BTreeSet<&str> = old.approvers.iter().copied().collect();
        let more: Vec<&str> = gate.approvers.iter().filter(|name| !known.contains(*name)).copied().collect();
        if !old.approvers.is_empty() && gate.approvers.is_empty() {
            let message = format!("an override cannot remove all approvers of `{id}`");
            self.refuse_field("/gate/approvers", message, "name some of its present approvers");
        } else if !old.approvers.is_empty() && !more.is_empty() {
            let message = format!("an override cannot add the approver `{}` to `{id}`", more.join("`, `"));
            self.refuse_field("/gate/approvers", message, "it can only remove approvers");
        }
        let opens = gate.on_timeout == SwdlOnTimeout::AutoApprove;
        if opens && old.on_timeout != SwdlOnTimeout::AutoApprove {
            let message = format!("an override cannot let `{}` approve itself on timeout", self.stage.id);
            self.refuse_field("/gate/on_timeout", message, "change it in the workflow itself");
            return;
        }
        let (now, then) = (gate_timeout(self.stage, gate), gate_timeout(was, old));
        let (looser, how) = if opens { (now < then, "sooner") } else { (now > then, "longer") };
        if looser {
            let verb = if opens { "open" } else { "wait for a decision" };
            let message = format!("an override cannot let `{}` {verb} {how} than {then}", self.stage.id);
            let pointer = if gate.timeout.is_some() { "/gate/timeout" } else { "/error_policy/timeout" };
            self.refuse_field(pointer, message, "change it in the workflow itself");
        }
    }
}

/// Returns true if a tool is only text for the agent, and gives it no way to act.
fn is_text_tool(tool: &str) -> bool {
    ["skill:", "command:"].iter().any(|sort| tool.starts_with(sort))
}

/// Returns the first value in a node that comes from another source than the workflow. The depth of a source bounds the
/// recursion.
fn find_replaced_node<'a>(node: YamlNode<'a>, base: &Arc<SourceFile>) -> Option<YamlNode<'a>> {
    if !Arc::ptr_eq(node.source(), base) {
        return Some(node);
    }
    node.fields().into_iter().flatten().find_map(|field| find_replaced_node(field.value, base))
}

/// Returns the workflow that a stage calls.
fn called_workflow<'a>(stage: &SwdlStage<'a>) -> Option<&'a str> {
    match &stage.does {
        SwdlStageKind::Call(called) => called.workflow.node.raw_text(),
        _ => None,
    }
}

/// Returns the timeout of a gate.
fn gate_timeout(stage: &SwdlStage<'_>, gate: &GateDef<'_>) -> Millis {
    let timeout = gate.timeout.or(stage.policy.timeout.map(|(_, timeout)| timeout));
    timeout.unwrap_or(defaults::GATE_TIMEOUT)
}
