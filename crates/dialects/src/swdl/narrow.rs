//! What overrides may not do: give a stage more than the workflow gives it. They come from another place than the
//! workflow, and whoever read that has not read them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use skein_core::{ids::StepId, time::Millis};

use super::{
    defaults::{self, OnTimeout},
    syntax::{Does, GateDef, Stage, Workflow},
};
use crate::{
    code::Code,
    diagnostic::{Diagnostic, Sink},
    source::Source,
    yaml::Node,
};

/// Refuses every stage that has more with the overrides than without.
pub(super) fn check(before: &Workflow<'_>, after: &Workflow<'_>, sink: &mut Sink) {
    let stages = before.stages.iter().flatten();
    let known: BTreeMap<&StepId, &Stage<'_>> = stages.map(|stage| (&stage.id, &**stage)).collect();
    for stage in after.stages.iter().flatten() {
        let Some(was) = known.get(&stage.id) else { continue };
        let mut narrow = Narrow { stage, sink };
        narrow.tools(was);
        narrow.call(was);
        if let (Does::Gate(gate), Does::Gate(old)) = (&stage.does, &was.does) {
            narrow.gate(gate, old, was);
        }
        let (own, old) = (stage.skein.over(&after.skein), was.skein.over(&before.skein));
        for name in own.widened(&old) {
            let message = format!("an override cannot loosen `{name}` of `{}`", stage.id);
            narrow.refuse(&format!("/x-skein/{name}"), message, "it can only be made stricter");
        }
    }
}

struct Narrow<'s, 'a> {
    stage: &'s Stage<'a>,
    sink: &'s mut Sink,
}

impl<'a> Narrow<'_, 'a> {
    /// Says it at a field of the stage, which is in the file of the overrides.
    fn refuse(&mut self, pointer: &str, message: String, hint: &str) {
        let node = self.stage.node.at(pointer);
        let node = replaced(node, self.stage.node.source()).unwrap_or(node);
        self.sink.push(Diagnostic::new(Code::Widens, node.source(), node.mark(), message).hint(hint));
    }

    fn tools(&mut self, was: &Stage<'_>) {
        let (Some(asked), Some(old)) = (self.stage.asked(), was.asked()) else { return };
        let known: BTreeSet<&str> = old.roles.tools.iter().map(|(_, tool)| *tool).collect();
        for (given, tool) in &asked.roles.tools {
            if !known.contains(tool) && !is_text(tool) {
                let message = format!(
                    "an override cannot give `{}` the tool `{tool}`: a server lets its agent do more than the workflow allows",
                    self.stage.id
                );
                let hint = "an override can take tools away, and add `skill:` and `command:`, which are only text; \
                            add this one in the workflow itself";
                let (source, span) = (given.node.source(), given.node.mark());
                self.sink.push(Diagnostic::new(Code::Widens, source, span, message).hint(hint));
            }
        }
    }

    fn call(&mut self, was: &Stage<'_>) {
        if calls(self.stage) != calls(was) {
            let message = format!("an override cannot change what `{}` calls", self.stage.id);
            self.refuse("/x-skein/call", message, "only the workflow itself can say so");
        }
    }

    fn gate(&mut self, gate: &GateDef<'_>, old: &GateDef<'_>, was: &Stage<'_>) {
        let id = &self.stage.id;
        let known: BTreeSet<&str> = old.approvers.iter().copied().collect();
        let more: Vec<&str> = gate.approvers.iter().filter(|name| !known.contains(*name)).copied().collect();
        if !old.approvers.is_empty() && gate.approvers.is_empty() {
            let message = format!("an override cannot let anyone decide `{id}`");
            self.refuse("/gate/approvers", message, "name some of those who may decide already");
        } else if !old.approvers.is_empty() && !more.is_empty() {
            let message = format!("an override cannot let `{}` decide `{id}`", more.join("`, `"));
            self.refuse("/gate/approvers", message, "it can only leave out some who may decide already");
        }
        let opens = gate.on_timeout == OnTimeout::AutoApprove;
        if opens && old.on_timeout != OnTimeout::AutoApprove {
            let message = format!("an override cannot let `{}` open by itself", self.stage.id);
            self.refuse("/gate/on_timeout", message, "only the workflow itself can say so");
            return;
        }
        let (now, then) = (waits(self.stage, gate), waits(was, old));
        let (looser, how) = if opens { (now < then, "sooner") } else { (now > then, "longer") };
        if looser {
            let verb = if opens { "open" } else { "wait for a decision" };
            let message = format!("an override cannot let `{}` {verb} {how} than {then}", self.stage.id);
            let pointer = if gate.timeout.is_some() { "/gate/timeout" } else { "/error_policy/timeout" };
            self.refuse(pointer, message, "only the workflow itself can say so");
        }
    }
}

/// Returns true if a tool is only text that the agent is told, and gives it nothing to act with.
fn is_text(tool: &str) -> bool {
    ["skill:", "command:"].iter().any(|sort| tool.starts_with(sort))
}

/// The first value in a node that is from another source than the workflow. Nodes nest as deep as sources may.
fn replaced<'a>(node: Node<'a>, base: &Arc<Source>) -> Option<Node<'a>> {
    if !Arc::ptr_eq(node.source(), base) {
        return Some(node);
    }
    node.fields().into_iter().flatten().find_map(|field| replaced(field.value, base))
}

/// The workflow that does a stage, where another does.
fn calls<'a>(stage: &Stage<'a>) -> Option<&'a str> {
    match &stage.does {
        Does::Call(called) => called.workflow.node.raw(),
        _ => None,
    }
}

/// How long a gate waits for a decision.
fn waits(stage: &Stage<'_>, gate: &GateDef<'_>) -> Millis {
    let timeout = gate.timeout.or(stage.policy.timeout.map(|(_, timeout)| timeout));
    timeout.unwrap_or(defaults::GATE_TIMEOUT)
}
