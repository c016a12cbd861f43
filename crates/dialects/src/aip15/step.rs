//! The fields that every kind of step has. Reads each step to a definition of the builder, and keeps the fields that
//! the builder has no place for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Map, Value};
use skein_core::{
    builder::{ApprovalClass, StepDefinition, StepHandle, StepKind, aip15, define_step},
    expr::ExprSpan,
    ids::StepId,
    suggest::{did_you_mean, find_closest_name},
};

use super::{
    defaults::{Aip15StepKind, KINDS, OF_KINDS, ONLY},
    step_kinds::{self, ALL_KINDS_FIELDS},
    value::read_value,
};
use crate::{
    catalog::{self, Aip15Tool, CatalogKind, NameUse, action, definition_fields, tool},
    diagnostics::{Code, Diagnostic, DiagnosticSink},
    extensions::{ExtensionBlock, STEP_BLOCK_FIELDS, STEP_ONLY_FIELDS},
    fields::{FieldReader, FieldTable, FieldValue, ForeignKey, Spanned},
    lowering::LoweringContext,
    source::yaml::YamlNode,
};

/// The fields that every kind of step has.
const STEP_FIELDS: &[&str] = &[
    "id", "kind", "name", "description", "compensation", "next", "inputs", "outputs", "approval", "risk_level",
    "timeout_ms", "retry", "metadata",
];

/// Reads the steps of one source.
pub(super) struct Aip15StepReader<'a, 'l> {
    pub lowering: &'a mut LoweringContext<'l>,
    /// The first place of each name.
    names: BTreeMap<String, ExprSpan>,
    /// The extension block of each step.
    pub skein: BTreeMap<StepId, ExtensionBlock>,
    /// Pairs of a step and the step that undoes it.
    pub undos: Vec<(StepId, StepId)>,
    /// The tools that steps name.
    pub tools: Vec<Spanned<String>>,
    /// The actions that steps name.
    pub actions: Vec<Spanned<String>>,
    /// The drivers that steps are pinned to.
    pub drivers: Vec<Spanned<String>>,
    /// The tools and actions that steps name, as their files describe them. None for those without a file.
    described: BTreeMap<(CatalogKind, String), Option<Arc<Aip15Tool>>>,
    /// The roles of approvers.
    pub roles: Vec<Spanned<String>>,
    /// Timeout targets that are not one of the allowed words, with those words.
    late: Vec<(Spanned<String>, &'static [&'static str])>,
    /// The place of the first step that waits for a person or an event.
    pub waits: Option<ExprSpan>,
    /// True if a step is missing or ambiguous, so that its transitions cannot be checked.
    pub broken: bool,
}

impl<'a, 'l> Aip15StepReader<'a, 'l> {
    pub(crate) fn new(lowering: &'a mut LoweringContext<'l>) -> Aip15StepReader<'a, 'l> {
        Aip15StepReader {
            lowering,
            names: BTreeMap::new(),
            skein: BTreeMap::new(),
            undos: Vec::new(),
            tools: Vec::new(),
            actions: Vec::new(),
            drivers: Vec::new(),
            described: BTreeMap::new(),
            roles: Vec::new(),
            late: Vec::new(),
            waits: None,
            broken: false,
        }
    }

    /// Reads a list of steps. The depth of the tree bounds the recursion.
    pub(crate) fn read_steps(&mut self, given: Option<FieldValue<'_>>) -> Vec<StepHandle> {
        let items = given.and_then(|given| given.read_list(self.lowering.sink));
        self.broken |= items.is_none();
        items.into_iter().flatten().filter_map(|item| self.read_step(item.node)).map(define_step).collect()
    }

    /// Checks names against the catalog, once all steps are known.
    pub(crate) fn check_names(&mut self) {
        let LoweringContext { sink, project, .. } = &mut *self.lowering;
        let source = sink.source.clone();
        let named = [
            (CatalogKind::Tool, &self.tools),
            (CatalogKind::Action, &self.actions),
            (CatalogKind::Driver, &self.drivers),
        ];
        for (sort, names) in named {
            let uses = names.iter().map(|name| NameUse {
                // A reference into a package ends with the id.
                name: name.value.rsplit('/').next().unwrap_or(&name.value),
                source: &source,
                span: name.span,
            });
            catalog::check_names(sort, uses, *project, sink);
        }
        for action in &self.actions {
            let id = action.value.rsplit('/').next().unwrap_or_default();
            if project.find_action(id).is_some() && project.find_tools_for(id).is_empty() {
                let message = format!("no tool here implements the action `{}`", action.value);
                let diagnostic = Diagnostic::new(Code::NobodyProvides, &sink.source, action.span, message);
                let hint =
                    "add a `.tools/ID/TOOL.md` with `implements`; without one, a run of this workflow is refused";
                sink.push(diagnostic.with_hint(hint));
            }
        }
        let roles: BTreeSet<String> = project.catalog_names(CatalogKind::Role).into_iter().collect();
        for role in self.roles.iter().filter(|role| !roles.is_empty() && !roles.contains(&role.value)) {
            let message = format!("nobody has the role `{}`", role.value);
            let diagnostic = Diagnostic::new(Code::NobodyInRole, &sink.source, role.span, message);
            let hint = did_you_mean(&role.value, roles.iter().map(String::as_str));
            sink.push(diagnostic.with_optional_hint(hint));
        }
        self.check_timeout_targets();
    }

    /// Reports targets that are neither an allowed word nor a step.
    fn check_timeout_targets(&mut self) {
        for (text, words) in std::mem::take(&mut self.late) {
            if let Some(near) = find_closest_name(&text.value, words.iter().copied())
                && !self.names.contains_key(&text.value)
            {
                let message = format!("there is no step `{}`", text.value);
                let source = self.lowering.sink.source.clone();
                let diagnostic = Diagnostic::new(Code::UnknownStep, &source, text.span, message);
                self.lowering.push(diagnostic.with_suggestion(text.span, near));
            }
        }
    }

    fn read_step(&mut self, node: YamlNode<'_>) -> Option<StepDefinition> {
        let Some((mut fields, kind)) = self.open_step(node) else {
            self.broken = true;
            return None;
        };
        let id = self.read_id(&mut fields);
        let mut step = self.read_common_fields(&mut fields, id.as_ref(), kind);
        match kind.and_then(|kind| step_kinds::read_kind(self, &mut fields, kind)) {
            Some(read) => step.kind = read,
            None => self.broken = true,
        }
        fields.finish(self.lowering.sink);
        let named = tool::referenced_tool(&step).map(|(sort, name)| (sort, name.to_owned()));
        if let Some(tool) = named.and_then(|(sort, name)| self.load_tool(sort, &name)) {
            let wider = tool.complete_step(&mut step);
            wider.into_iter().for_each(|(field, why)| self.warn_wider(node, field, why));
        }
        step.id = id?.to_string();
        Some(step)
    }

    /// Opens the mapping of a step and reads its kind, or guesses it by the other fields.
    fn open_step<'n>(&mut self, node: YamlNode<'n>) -> Option<(FieldReader<'n>, Option<Aip15StepKind>)> {
        let sink = &mut *self.lowering.sink;
        let table = FieldTable::closed(STEP_FIELDS).with_explanations(explain_step_field);
        if let Some(kind) = node.find_word("kind", KINDS) {
            let fields = FieldReader::from_node(node, kind.display_name(), table.with_more(kind.fields()), sink)?;
            fields.optional("kind");
            return Some((fields, Some(kind)));
        }
        // Until the kind is known, the fields of all kinds are accepted.
        let mut fields = FieldReader::from_node(node, "a step", table.with_more(ALL_KINDS_FIELDS), sink)?;
        let kind = match guess_kind(node) {
            Some((word, kind)) => {
                let message = "a step needs `kind`";
                let diagnostic = Diagnostic::new(Code::MissingField, node.source(), fields.head_span(), message);
                sink.push(diagnostic.with_hint(format!("by its fields, it is `kind: {word}`")));
                Some(kind)
            }
            None => {
                fields.required("kind", sink).and_then(|given| given.read_one_of(KINDS, sink)).map(|kind| kind.value)
            }
        };
        if let Some(kind) = kind {
            fields.narrow(kind.display_name(), table.for_kind(kind.fields()), sink);
        }
        Some((fields, kind))
    }

    /// Reads the file of a tool, or those of all tools for an action. Reports the errors of each file once.
    fn load_tool(&mut self, sort: CatalogKind, name: &str) -> Option<Arc<Aip15Tool>> {
        let key = (sort, name.to_owned());
        if let Some(known) = self.described.get(&key) {
            return known.clone();
        }
        let (project, id) = (self.lowering.project, name.rsplit('/').next().unwrap_or(name));
        let mut read = |source| tool::read_tool(source, project).map_err(|wrong| self.lowering.sink.extend(wrong)).ok();
        let found = match sort {
            CatalogKind::Action => {
                let tools: Vec<Aip15Tool> = project.find_tools_for(id).into_iter().filter_map(&mut read).collect();
                let own = project.find_action(id).map(action::read_action);
                let own = own.and_then(|own| own.map_err(|wrong| self.lowering.sink.extend(wrong)).ok());
                Aip15Tool::merge_strictest(own.as_ref(), &tools)
            }
            _ => project.find_tool(id).and_then(read),
        };
        self.described.insert(key.clone(), found.map(Arc::new));
        self.described.get(&key).cloned().flatten()
    }

    /// Warns of a field that is less strict than its tool. The tool's value is used.
    fn warn_wider(&mut self, node: YamlNode<'_>, field: &str, why: String) {
        let span = node.field(field).map_or(node.first_line_span(), |field| field.key_span);
        let diagnostic = Diagnostic::new(Code::Wider, node.source(), span, why);
        self.lowering.push(diagnostic.with_hint("a step can only be stricter than its tool; the tool's value is used"));
    }

    /// The tools whose files could be read.
    pub(crate) fn described_tools(&self) -> BTreeMap<(CatalogKind, String), Arc<Aip15Tool>> {
        let found = self.described.iter();
        found.filter_map(|(key, tool)| Some((key.clone(), tool.clone()?))).collect()
    }

    /// Reads an id that is a valid name. The builder checks that it is an id of this format.
    fn read_id(&mut self, fields: &mut FieldReader<'_>) -> Option<StepId> {
        let given = fields.required("id", self.lowering.sink);
        let id = given.and_then(|given| given.read_name(|text| StepId::new(text), self.lowering.sink));
        let Some(id) = id else {
            self.broken = true;
            return None;
        };
        self.lowering.add_step_item(&id.value, fields.node(), "id");
        match self.names.get(id.value.as_str()).copied() {
            None => drop(self.names.insert(id.value.to_string(), id.span)),
            Some(first) => {
                self.broken = true;
                let message = format!("two steps are called `{}`", id.value);
                let source = fields.node().source();
                let diagnostic = Diagnostic::new(Code::DuplicateName, source, id.span, message);
                let diagnostic = if first == id.span {
                    diagnostic.with_label("repeated by an alias")
                } else {
                    diagnostic.with_label("again here").with_related(first, "first here")
                };
                let hint = "ids must be unique in a workflow, including steps inside other steps";
                self.lowering.push(diagnostic.with_hint(hint));
            }
        }
        Some(id.value)
    }

    /// Reads the fields of every kind. The caller sets the kind itself.
    fn read_common_fields(
        &mut self,
        fields: &mut FieldReader<'_>,
        id: Option<&StepId>,
        kind: Option<Aip15StepKind>,
    ) -> StepDefinition {
        let mut step = StepDefinition::new("", StepKind::Tool(step_kinds::placeholder_tool()));
        let sink = &mut *self.lowering.sink;
        let mut text = |name: &'static str| {
            fields.optional(name).and_then(|given| given.read_text(sink)).map(|text| text.value.to_owned())
        };
        step.name = text("name");
        step.description = text("description");
        step.compensation = text("compensation");
        step.next = read_target(fields.optional("next"), self);
        step.inputs = fields.optional("inputs").map(|given| self.read_inputs(given)).unwrap_or_default();
        let sink = &mut *self.lowering.sink;
        step.outputs = fields.optional("outputs").and_then(|given| definition_fields::read_schema(given, sink));
        step.approval = fields.optional("approval").and_then(|given| definition_fields::read_approval(given, sink));
        step.risk_level =
            fields.optional("risk_level").and_then(|given| definition_fields::read_risk_level(given, sink));
        let timeout = fields.optional("timeout_ms").and_then(|given| given.read_millis(1, sink));
        step.timeout_ms = timeout.map(|length| length.value.0);
        step.retry = fields.optional("retry").and_then(|given| definition_fields::read_retry(given, sink));
        if let Some(given) = fields.optional("metadata") {
            let table = match kind {
                Some(Aip15StepKind::Map) => STEP_BLOCK_FIELDS.with_more(&[STEP_ONLY_FIELDS, &["on_error"]]),
                Some(Aip15StepKind::Approval) => STEP_BLOCK_FIELDS.with_more(&[STEP_ONLY_FIELDS, &["quorum"]]),
                _ => STEP_BLOCK_FIELDS,
            };
            let (metadata, skein) = read_metadata(given, table, sink);
            step.metadata = metadata;
            self.skein.extend(id.map(|id| (id.clone(), skein)));
        }
        let undo = step.compensation.as_ref().and_then(|undo| StepId::new(undo).ok());
        self.undos.extend(id.cloned().zip(undo));
        self.check_common_fields(fields.node(), kind, step.approval.as_ref());
        let asked = match kind {
            Some(Aip15StepKind::Subworkflow) => true,
            Some(Aip15StepKind::Tool | Aip15StepKind::Approval) | None => false,
            Some(_) => step.approval == Some(ApprovalClass::Always),
        };
        if let Some(gate) = id.filter(|_| asked).and_then(aip15::approval_gate_id) {
            let key = if fields.node().get("approval").is_some() { "approval" } else { "id" };
            self.lowering.add_step_item(&gate, fields.node(), key);
        }
        step
    }

    fn read_inputs(&mut self, given: FieldValue<'_>) -> Map<String, Value> {
        let Some(fields) = given.node.fields() else {
            self.lowering.push(given.diagnose_type("a mapping of names and values"));
            return Map::new();
        };
        let read = |field: crate::source::yaml::YamlField<'_>, sink: &mut _| {
            (field.key.to_owned(), read_value(FieldValue::new(field.key, field.value), sink))
        };
        fields.map(|field| read(field, self.lowering.sink)).collect()
    }

    /// Warns of common fields that have no effect in a kind.
    fn check_common_fields(
        &mut self,
        node: YamlNode<'_>,
        kind: Option<Aip15StepKind>,
        approval: Option<&ApprovalClass>,
    ) {
        use Aip15StepKind as K;
        let Some(kind) = kind else { return };
        let mut ignored = |names: &[&str], why: &str| self.lowering.warn_ignored(node, names, why);
        match kind {
            K::Tool | K::Subworkflow => {}
            K::Parallel | K::Map | K::Loop => ignored(&["inputs"], "the steps inside have their own"),
            K::Branch => {
                ignored(&["inputs", "outputs", "retry", "timeout_ms"], "a branch only chooses");
                ignored(&["next"], "`branches` and `default` set the next step");
            }
            K::Suspend => {
                ignored(&["inputs", "retry"], "a suspend only waits");
                ignored(&["timeout_ms"], "its timeout is `resume.timeout_ms`");
            }
            K::Approval => {
                ignored(&["inputs", "retry"], "an approval only waits");
                if node.get("on_approve").is_some() {
                    ignored(&["next"], "`on_approve` and `on_reject` set the next step");
                }
            }
        }
        match (kind, approval) {
            (K::Tool, _) | (_, None) => {}
            (K::Approval, Some(_)) => ignored(&["approval"], "an approval step always asks for approval"),
            (_, Some(ApprovalClass::OnMutate | ApprovalClass::Policy(_))) => self.refuse_approval(node, kind),
            (_, Some(_)) => {}
        }
    }

    /// Refuses a class that depends on the tool of a step: this step runs none itself.
    fn refuse_approval(&mut self, node: YamlNode<'_>, kind: Aip15StepKind) {
        let Some(field) = node.field("approval") else { return };
        let (what, inner) = match kind {
            Aip15StepKind::Subworkflow => ("a subworkflow", "the workflow that it runs"),
            kind => (kind.display_name(), "the steps inside"),
        };
        let message = format!("it is not known before the start if {what} changes anything");
        let diagnostic = Diagnostic::new(Code::Misplaced, node.source(), field.key_span, message);
        self.lowering.push(diagnostic.with_hint(format!("write `always`, or set `approval` in {inner}")));
    }
}

/// Guesses the kind of a step without `kind`, by a field that no other kind has.
fn guess_kind(node: YamlNode<'_>) -> Option<(&'static str, Aip15StepKind)> {
    if node.get("kind").is_some() {
        return None;
    }
    let branches = node.get("branches").and_then(|node| node.items()?.next());
    let word = match branches {
        Some(first) if first.get("when").is_some() => "branch",
        Some(first) => first.get("steps").map(|_| "parallel")?,
        None => ONLY.iter().find(|(field, _)| node.get(field).is_some())?.1,
    };
    KINDS.iter().find(|(known, _)| *known == word).copied()
}

/// Explains a field that only other kinds of step have.
fn explain_step_field(key: &str) -> Option<ForeignKey> {
    let kinds = OF_KINDS.iter().find(|(name, _)| *name == key).map(|(_, kinds)| *kinds);
    let hint = kinds.map(|kinds| ForeignKey::Elsewhere(format!("it is a field of {kinds}")));
    hint.or_else(|| explain_extension(key))
}

/// Explains `x-skein`, which has another name in this format.
pub(super) fn explain_extension(key: &str) -> Option<ForeignKey> {
    (key == "x-skein").then(|| ForeignKey::Elsewhere("in this format it is `metadata.skein`".to_owned()))
}

/// Reads the id that a field names, or `$end`.
pub(super) fn read_target(given: Option<FieldValue<'_>>, steps: &mut Aip15StepReader<'_, '_>) -> Option<String> {
    let given = given?;
    let text = given.read_non_empty_text(steps.lowering.sink)?.value;
    // No id starts with `$`, so this can only mean the end.
    if text.starts_with('$') && text != aip15::END {
        let message = format!("there is no step `{text}`");
        let (source, end) = (given.node.source(), aip15::END);
        let diagnostic = Diagnostic::new(Code::UnknownStep, source, given.node.first_line_span(), message);
        let hint = format!("write `{end}` to end the list of steps");
        steps.lowering.push(diagnostic.with_hint(hint).with_word_fix(given.span(), end));
    } else if text.eq_ignore_ascii_case(END_WORD) {
        steps.late.push((Spanned::new(text.to_owned(), given.span()), &[aip15::END]));
    }
    Some(text.to_owned())
}

/// A word that means the end if no step has this id.
const END_WORD: &str = "end";

/// Reads the target of a timeout: one of a few words, or a step. The step may be read later, so unknown targets are
/// reported at the end.
pub(super) fn read_timeout_target<'n>(
    given: Option<FieldValue<'n>>,
    words: &'static [&'static str],
    steps: &mut Aip15StepReader<'_, '_>,
) -> Option<&'n str> {
    let given = given?;
    let text = given.read_non_empty_text(steps.lowering.sink)?;
    if !words.contains(&text.value) {
        steps.late.push((Spanned::new(text.value.to_owned(), text.span), words));
    }
    Some(text.value)
}

/// The target of a step that names none.
pub(super) fn end_target() -> String {
    aip15::END.to_owned()
}

/// Reads `metadata`, which is free-form except for its `skein` block.
pub(super) fn read_metadata(
    given: FieldValue<'_>,
    table: FieldTable,
    sink: &mut DiagnosticSink,
) -> (Map<String, Value>, ExtensionBlock) {
    let skein = given.node.get("skein").filter(|node| !node.is_null());
    let skein = skein.map(|node| ExtensionBlock::read(FieldValue::new("skein", node), table, sink)).unwrap_or_default();
    // After reading: the builder takes fields of the block by their intended names.
    let Value::Object(metadata) = given.node.to_json() else {
        sink.push(given.diagnose_type("a mapping"));
        return (Map::new(), skein);
    };
    (metadata, skein)
}
