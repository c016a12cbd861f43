//! The project's overrides: a file beside the workflow that replaces values of it. Owns the list of replaceable fields,
//! merges the values into the tree, and refuses values that allow more than the workflow. Each value keeps its own file,
//! so that diagnostics about it point there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use skein_core::{expr::ExprSpan, ids::StepId, suggest::find_closest_name, time::Millis};

use crate::{
    catalog::Project,
    diagnostics::{Code, Diagnostic, DiagnosticSink, SourceFile},
    fields::{FieldReader, FieldTable, ForeignKey},
    lowering::OverriddenField,
    source::{
        load,
        yaml::{YamlField, YamlNode, YamlTree, parse_yaml},
    },
    swdl::{
        defaults::{self, SwdlOnTimeout},
        syntax::{GateDef, SwdlStage, SwdlStageKind, SwdlWorkflow},
    },
};

/// The fields of a stage that determine its place among the others.
const PROTECTED: &[&str] = &["id", "depends_on", "type"];

/// Merges the project's overrides into a workflow. Returns the number of its previous root; None if nothing was
/// replaced.
pub(super) fn apply_overrides(tree: &mut YamlTree, sink: &mut DiagnosticSink, project: &dyn Project) -> Option<u32> {
    let source = project.override_source()?;
    let id = tree.root().get("workflow")?.get("id")?.raw_text()?.to_owned();
    let mut own = DiagnosticSink::new(source);
    let over = read_overrides(&mut own);
    let found = over.as_ref().and_then(|over| find_workflow_overrides(over, &id, &mut own));
    if let Some(found) = found {
        check_overrides(found, tree.root(), &mut own);
    }
    let allowed = found.map(YamlNode::number).filter(|_| !own.has_errors());
    sink.extend(own.into_diagnostics());
    let (over, number) = (over?, allowed?);
    // Adopting a tree shifts its node numbers.
    let root = over.root().number();
    let offset = tree.adopt_tree(over) - root;
    let base = tree.root().number();
    let merged = tree.merge_nodes_with(base, number + offset, &|tree, key, list, over| {
        (key == "stages").then(|| merge_stages(tree, list, over))
    });
    Some(tree.set_root(merged))
}

/// Returns the values of a tree that differ from its document without overrides.
pub(super) fn list_overridden(tree: &YamlTree, before: u32) -> Vec<OverriddenField> {
    let mut found = Vec::new();
    collect_overridden(tree.root(), Some(tree.node(before)), String::new(), tree.source(), &mut found);
    found
}

/// Collects replaced values. The depth of a source bounds the recursion.
fn collect_overridden(
    node: YamlNode<'_>,
    before: Option<YamlNode<'_>>,
    field: String,
    base: &Arc<SourceFile>,
    found: &mut Vec<OverriddenField>,
) {
    if !Arc::ptr_eq(node.source(), base) {
        found.push(OverriddenField {
            field,
            value: node.to_json(),
            before: before.map(YamlNode::to_json),
            source: node.source().clone(),
            span: node.first_line_span(),
        });
        return;
    }
    let under = |name: &str| if field.is_empty() { name.to_owned() } else { format!("{field}.{name}") };
    for inner in node.fields().into_iter().flatten() {
        collect_overridden(inner.value, before.and_then(|node| node.get(inner.key)), under(inner.key), base, found);
    }
    // A list is replaced as a whole. Only the list of stages is searched, each stage by its id.
    let mut olds = before.and_then(YamlNode::items).into_iter().flatten();
    for item in node.items().into_iter().flatten() {
        let (old, id) = (olds.next(), item.get("id").and_then(YamlNode::raw_text));
        if let Some(id) = id.filter(|_| field == "stages") {
            collect_overridden(item, old, under(id), base, found);
        }
    }
}

/// Parses the file. An empty file overrides nothing.
fn read_overrides(sink: &mut DiagnosticSink) -> Option<YamlTree> {
    let source = sink.source.clone();
    if let Some(diagnostic) = load::diagnose_size(&source) {
        let stop = diagnostic.is_error();
        sink.push(diagnostic);
        if stop {
            return None;
        }
    }
    let mut said = DiagnosticSink::new(source.clone());
    let tree = parse_yaml(ExprSpan::new(0, source.text.len()), &mut said);
    sink.extend(said.into_diagnostics().into_iter().filter(|diagnostic| diagnostic.code != Code::EmptySource));
    tree
}

const OVERRIDE_FILE_FIELDS: &[&str] = &["overrides"];

/// Returns the overrides of a workflow.
fn find_workflow_overrides<'a>(over: &'a YamlTree, id: &str, sink: &mut DiagnosticSink) -> Option<YamlNode<'a>> {
    if over.root().is_null() {
        return None;
    }
    let fields = FieldReader::from_node(over.root(), "a file of overrides", OVERRIDE_FILE_FIELDS, sink)?;
    let given = fields.optional("overrides");
    fields.finish(sink);
    let given = given?;
    if given.node.fields().is_none() {
        sink.push(given.diagnose_type("a mapping of overrides by the id of their workflow"));
    }
    given.node.get(id).filter(|node| !node.is_null())
}

const OVERRIDE_FIELDS: FieldTable = FieldTable::closed(&["stages"])
    .with_unread(&["context", "config", "error_policy"])
    .with_explanations(explain_protected);

/// Refuses fields that may not be replaced.
fn check_overrides(over: YamlNode<'_>, root: YamlNode<'_>, sink: &mut DiagnosticSink) {
    let Some(fields) = FieldReader::from_node(over, "an override", OVERRIDE_FIELDS, sink) else { return };
    let given = fields.optional("stages");
    fields.finish(sink);
    check_env(over, root, sink);
    let Some(given) = given else { return };
    let Some(stages) = given.node.fields() else {
        sink.push(given.diagnose_type("a mapping of stages by id"));
        return;
    };
    let known = stages_by_id(root);
    stages.for_each(|stage| check_stage(stage, &known, sink));
}

/// Refuses variables that the workflow does not declare: an override adds none.
fn check_env(over: YamlNode<'_>, root: YamlNode<'_>, sink: &mut DiagnosticSink) {
    let of_config = root.get("config").and_then(|config| config.get("env"));
    let given = over.get("config").and_then(|config| config.get("env")).and_then(YamlNode::fields);
    let is_new = |field: &YamlField<'_>| of_config.is_none_or(|own| own.get(field.key).is_none());
    for field in given.into_iter().flatten().filter(is_new) {
        sink.push(diagnose_protected(field, &format!("the set of variables: the workflow has no `{}`", field.key)));
    }
}

/// Returns the stages of a workflow by id. The first of each id counts.
fn stages_by_id<'a>(root: YamlNode<'a>) -> BTreeMap<&'a str, u32> {
    let mut known = BTreeMap::new();
    for stage in root.get("stages").and_then(YamlNode::items).into_iter().flatten() {
        if let Some(id) = stage.get("id").and_then(YamlNode::raw_text) {
            known.entry(id).or_insert(stage.number());
        }
    }
    known
}

fn check_stage(stage: YamlField<'_>, known: &BTreeMap<&str, u32>, sink: &mut DiagnosticSink) {
    let source = stage.value.source();
    if !known.contains_key(stage.key) {
        let message = format!("the workflow has no stage `{}`", stage.key);
        let diagnostic = Diagnostic::new(Code::UnknownStep, source, stage.key_span, message);
        sink.push(match find_closest_name(stage.key, known.keys().copied()) {
            Some(near) => diagnostic.with_suggestion(stage.key_span, near),
            None => diagnostic,
        });
        return;
    }
    let Some(fields) = stage.value.fields() else {
        let message = format!("the override of `{}` is a mapping, found {}", stage.key, stage.value.describe());
        sink.push(Diagnostic::new(Code::WrongType, source, stage.value.first_line_span(), message));
        return;
    };
    for field in fields.filter(|field| PROTECTED.contains(&field.key)) {
        sink.push(diagnose_protected(field, &format!("`{}` of a stage", field.key)));
    }
}

fn diagnose_protected(field: YamlField<'_>, what: &str) -> Diagnostic {
    let message = format!("an override cannot change {what}");
    let diagnostic = Diagnostic::new(Code::Protected, field.value.source(), field.key_span, message);
    diagnostic.with_hint(PROTECTED_HINT)
}

const PROTECTED_HINT: &str = "change the workflow itself";

fn explain_protected(key: &str) -> Option<ForeignKey> {
    (key == "workflow").then(|| ForeignKey::Refused {
        code: Code::Protected,
        message: "an override cannot change the workflow's own block".to_owned(),
        hint: PROTECTED_HINT.to_owned(),
    })
}

/// Merges a mapping of stages by id into a list of stages.
fn merge_stages(tree: &mut YamlTree, list: u32, over: u32) -> u32 {
    let root = tree.root();
    let known: BTreeMap<String, u32> =
        stages_by_id(root).into_iter().map(|(id, number)| (id.to_owned(), number)).collect();
    let above = tree.node(over).fields().into_iter().flatten();
    let above: Vec<(u32, u32)> =
        above.filter_map(|field| Some((*known.get(field.key)?, field.value.number()))).collect();
    let mut replaced = BTreeMap::new();
    for (below, over) in above {
        let merged = tree.merge_nodes(below, over);
        replaced.insert(below, merged);
    }
    let items: Vec<u32> = tree.node(list).items().into_iter().flatten().map(YamlNode::number).collect();
    let items = items.into_iter().map(|item| replaced.get(&item).copied().unwrap_or(item)).collect();
    tree.with_items(list, items)
}

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
        self.sink.push(node.diagnose(Code::Widens, message).with_hint(hint));
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
                self.sink.push(given.diagnose(Code::Widens, message).with_hint(hint));
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
