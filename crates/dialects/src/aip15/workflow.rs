//! The front matter as a whole: reads its fields and triggers to a definition of the builder, and keeps the fields that
//! the builder has no place for.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use skein_core::{
    builder::WorkflowDefinition,
    ir::{InputFileSpec, OutputFileSpec, Schema, SchemaError, WorkflowRequirements, WorkflowTrigger},
    suggest::find_closest_name,
};

use crate::{
    aip15::{
        defaults::{OLD, REMOVED},
        files,
        step::{Aip15StepReader, explain_extension, read_metadata},
        value,
    },
    catalog::{
        Project,
        definition_fields::{self, COSTS, DESCRIPTION_CHARS, NAME_CHARS},
        routines::{self, check_timezone, read_checked_text},
    },
    diagnostics::{Code, Diagnostic, DiagnosticSink},
    extensions::{ExtensionBlock, WORKFLOW_BLOCK_FIELDS},
    fields::{
        FieldNames, FieldReader, FieldTable, FieldValue, ForeignKey, Spanned,
        cron::{check_cron, note_unserved_trigger},
    },
    source::yaml::YamlNode,
};

/// The contents of a source.
#[derive(Debug)]
pub(super) struct Aip15Workflow {
    pub definition: WorkflowDefinition,
    pub files_in: BTreeMap<String, InputFileSpec>,
    pub files_out: BTreeMap<String, OutputFileSpec>,
    pub requires: Option<WorkflowRequirements>,
    /// The routines as they are written. They are only shown.
    pub routines: Option<Value>,
    pub skein: ExtensionBlock,
}

const WORKFLOW_FIELDS: FieldTable = FieldTable::closed(&[
    "name", "id", "description", "version", "inputs", "outputs", "result", "approval", "risk_level", "timeout_ms",
    "max_steps", "retry", "cost_class", "tags", "inputsFiles", "outputsFiles", "triggers", "routines", "requires",
    "metadata", "suspendable", "start", "steps",
])
.with_explanations(explain_past_field);

impl Aip15Workflow {
    pub(crate) fn read(root: YamlNode<'_>, steps: &mut Aip15StepReader<'_, '_>) -> Option<Aip15Workflow> {
        let mut fields = FieldReader::from_node(root, "a workflow", WORKFLOW_FIELDS, steps.lowering.sink)?;
        let mut definition = read_identity(&mut fields, steps.lowering.sink);
        read_schemas(&mut definition, &mut fields, steps.lowering.sink);
        read_policies(&mut definition, &mut fields, steps.lowering.sink);
        let sink = &mut *steps.lowering.sink;
        let mut source = Aip15Workflow {
            definition,
            files_in: fields.optional("inputsFiles").map(|g| files::read_input_files(g, sink)).unwrap_or_default(),
            files_out: fields.optional("outputsFiles").map(|g| files::read_output_files(g, sink)).unwrap_or_default(),
            requires: None,
            routines: None,
            skein: ExtensionBlock::default(),
        };
        source.read_triggers_and_metadata(&mut fields, sink, steps.lowering.project);
        let suspendable = fields.optional("suspendable").and_then(|given| given.read_bool(sink));
        let start = fields.optional("start").and_then(|given| given.read_non_empty_text(sink));
        source.definition.start = start.map(|start| start.value.to_owned());
        let list = fields.required("steps", sink);
        source.definition.steps = steps.read_steps(list);
        steps.check_names();
        check_suspendable(suspendable, steps);
        fields.finish(steps.lowering.sink);
        Some(source)
    }

    fn read_triggers_and_metadata(
        &mut self,
        fields: &mut FieldReader<'_>,
        sink: &mut DiagnosticSink,
        project: &dyn Project,
    ) {
        let definition = &mut self.definition;
        if let Some(given) = fields.optional("triggers") {
            definition.triggers = read_triggers(given, sink);
        }
        if let Some(given) = fields.optional("routines") {
            definition.triggers.extend(routines::read_routines(given, sink, project));
            self.routines = Some(routines::routines_json(given));
        }
        if let Some(given) = fields.optional("requires") {
            check_requires(given, sink);
            self.requires = Some(WorkflowRequirements(given.node.to_json()));
        }
        if let Some(given) = fields.optional("metadata") {
            let table = WORKFLOW_BLOCK_FIELDS.with_more(&[&["allow_cycles"]]);
            (definition.metadata, self.skein) = read_metadata(given, table, sink);
        }
    }
}

fn read_identity(fields: &mut FieldReader<'_>, sink: &mut DiagnosticSink) -> WorkflowDefinition {
    let name =
        fields.required("name", sink).and_then(|given| definition_fields::read_short_text(given, NAME_CHARS, sink));
    let id = fields.required("id", sink).and_then(|given| given.read_non_empty_text(sink));
    let description = fields.required("description", sink);
    let description = description.and_then(|given| definition_fields::read_short_text(given, DESCRIPTION_CHARS, sink));
    let version = fields.required("version", sink).and_then(|given| definition_fields::read_version(given, sink));
    // A missing id has been reported; the rest is checked under a placeholder.
    let id = id.map_or("unnamed", |id| id.value);
    let mut definition = WorkflowDefinition::new(id, description.unwrap_or_default());
    definition.name = name.map(str::to_owned);
    definition.version = version.map(str::to_owned);
    definition
}

fn read_schemas(definition: &mut WorkflowDefinition, fields: &mut FieldReader<'_>, sink: &mut DiagnosticSink) {
    if let Some(given) = fields.required("inputs", sink) {
        definition.input_schema = definition_fields::read_schema(given, sink).unwrap_or(Value::Bool(true));
        refuse_bare_names(given, sink);
        refuse_other_inputs(given, sink);
        advise_inputs(given, sink);
    }
    if let Some(given) = fields.required("outputs", sink) {
        definition.output_schema = definition_fields::read_schema(given, sink).unwrap_or(Value::Bool(true));
        refuse_bare_names(given, sink);
    }
    if let Some(given) = fields.optional("result") {
        let is_path = given.node.raw_text().is_some_and(|raw| raw.starts_with('$'));
        if !is_path && given.node.fields().is_none() {
            sink.push(given.diagnose_type("a path or a mapping of names and values"));
        } else {
            definition.result = Some(value::read_value(given, sink));
        }
    }
}

/// Warns of schemas that are valid but that make every run without the parameter fail.
fn advise_inputs(given: FieldValue<'_>, sink: &mut DiagnosticSink) {
    let properties = given.node.get("properties").and_then(|node| node.fields());
    let names: BTreeSet<&str> = properties.clone().into_iter().flatten().map(|field| field.key).collect();
    for field in properties.into_iter().flatten() {
        let Some(default) = field.value.get("default") else { continue };
        // The plan reports an invalid schema.
        let wrong = Schema::new(field.value.to_json()).check(&default.to_json());
        if let Err(why @ SchemaError::Value { .. }) = wrong {
            let message = format!("the default of `{}` does not match its schema: {why}", field.key);
            sink.push(default.diagnose(Code::TypeClash, message));
        }
    }
    for item in given.node.get("required").and_then(|node| node.items()).into_iter().flatten() {
        let Some(name) = item.raw_text().filter(|name| !names.is_empty() && !names.contains(name)) else {
            continue;
        };
        let message = format!("`{name}` is required but not defined in `properties`");
        let diagnostic = item.diagnose(Code::TypeClash, message);
        sink.push(match find_closest_name(name, names.iter().copied()) {
            Some(near) => diagnostic.with_suggestion(item.span(), near),
            None => diagnostic,
        });
    }
}

/// Keywords of JSON Schema that mark a mapping as a schema.
const SCHEMA_KEYWORDS: &[&str] = &[
    "$ref", "$defs", "$schema", "additionalProperties", "allOf", "anyOf", "const", "enum", "if", "not", "oneOf",
    "patternProperties", "properties", "propertyNames", "required", "type", "unevaluatedProperties",
];

/// Refuses a mapping of names that is not a schema: JSON Schema ignores unknown keywords, so it would check nothing.
fn refuse_bare_names(given: FieldValue<'_>, sink: &mut DiagnosticSink) {
    let is_keyword = |name: &str, node: YamlNode<'_>| {
        SCHEMA_KEYWORDS.contains(&name) && (name != "type" || node.raw_text().is_some() || node.items().is_some())
    };
    let mut fields = given.node.fields().into_iter().flatten();
    if fields.any(|field| is_keyword(field.key, field.value)) {
        return;
    }
    let annotations = ["title", "description", "default", "examples", "$id", "$comment"];
    let mut fields = given.node.fields().into_iter().flatten();
    let Some(field) = fields.find(|field| !annotations.contains(&field.key) || field.value.fields().is_some()) else {
        return;
    };
    let message = format!("`{}` is not a JSON Schema: `{}` is not a keyword of one", given.name, field.key);
    let diagnostic = Diagnostic::new(Code::BadSchema, field.value.source(), field.key_span, message);
    sink.push(diagnostic.with_hint("write `type: object` and name the values in `properties`"));
}

/// Refuses inputs that are not an object: a run receives names and values.
fn refuse_other_inputs(given: FieldValue<'_>, sink: &mut DiagnosticSink) {
    let Some(node) = given.node.get("type").filter(|node| node.raw_text().is_some_and(|raw| raw != "object")) else {
        return;
    };
    let message = "`inputs` must describe an object: a run receives names and values";
    let diagnostic = node.diagnose(Code::BadSchema, message);
    sink.push(diagnostic.with_hint("write `type: object` and name the values in `properties`"));
}

fn read_policies(definition: &mut WorkflowDefinition, fields: &mut FieldReader<'_>, sink: &mut DiagnosticSink) {
    let approval = fields.optional("approval").and_then(|given| definition_fields::read_approval(given, sink));
    definition.approval = approval.unwrap_or_default();
    definition.risk_level =
        fields.optional("risk_level").and_then(|given| definition_fields::read_risk_level(given, sink));
    let timeout = fields.optional("timeout_ms").and_then(|given| given.read_millis(1, sink));
    definition.timeout_ms = timeout.map(|length| length.value.0);
    let max_steps = fields.optional("max_steps").and_then(|given| given.read_whole_number(1..=u32::MAX, sink));
    definition.max_steps = max_steps.map(|count| count.value);
    definition.retry = fields.optional("retry").and_then(|given| definition_fields::read_retry(given, sink));
    let cost = fields.optional("cost_class").and_then(|given| given.read_one_of(COSTS, sink));
    definition.cost_class = cost.map(|cost| cost.value).unwrap_or_default();
    definition.tags = fields.optional("tags").map(|given| read_tags(given, sink)).unwrap_or_default();
}

/// Reads tags: lower case letters, digits and dashes, starting with a letter.
fn read_tags(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Vec<String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_tag = |text: &str| text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(allowed);
    let mut tags = Vec::new();
    for item in given.read_list(sink).unwrap_or_default() {
        let Some(tag) = item.read_non_empty_text(sink) else { continue };
        if !is_tag(tag.value) {
            let message = format!("`{}` cannot be a tag", tag.value);
            let diagnostic = Diagnostic::new(Code::BadName, item.node.source(), tag.span, message);
            sink.push(diagnostic.with_hint("use lower case letters, digits and dashes, starting with a letter"));
        }
        tags.push(tag.value.to_owned());
    }
    tags
}

const REQUIRES_FIELDS: &[&str] = &["fs.read", "fs.write", "env", "secrets", "tools", "network", "fs"];
const REQUIRED_FILES_FIELDS: &[&str] = &["read", "write"];

/// Checks the requirements on the host, by AIP-7.
fn check_requires(given: FieldValue<'_>, sink: &mut DiagnosticSink) {
    let Some(fields) = FieldReader::from_node(given.node, "`requires`", REQUIRES_FIELDS, sink) else { return };
    let lists = ["fs.read", "fs.write", "env", "secrets", "tools"].map(|name| fields.optional(name));
    let network = fields.optional("network");
    let files = fields.optional("fs");
    fields.finish(sink);
    // Either a boolean for all hosts, or a list of hosts.
    let hosts = network.filter(|given| given.node.items().is_some());
    if hosts.is_none() {
        network.and_then(|given| given.read_bool(sink));
    }
    let inner =
        files.and_then(|given| FieldReader::from_node(given.node, "`fs`", REQUIRED_FILES_FIELDS, sink)).map(|fields| {
            let lists = [fields.optional("read"), fields.optional("write")];
            fields.finish(sink);
            lists
        });
    for given in lists.into_iter().chain(inner.into_iter().flatten()).chain([hosts]).flatten() {
        for item in given.read_list(sink).unwrap_or_default() {
            item.read_non_empty_text(sink);
        }
    }
}

/// Refuses `suspendable: false` in a workflow with a step that waits.
fn check_suspendable(given: Option<Spanned<bool>>, steps: &mut Aip15StepReader<'_, '_>) {
    if let (Some(Spanned { value: false, span }), Some(waits)) = (given, steps.waits) {
        let source = steps.lowering.sink.source.clone();
        let message = "this workflow has `suspendable: false` but a step that waits";
        let diagnostic = Diagnostic::new(Code::FieldsClash, &source, span, message);
        let hint = "leave `suspendable` out: it follows from the steps";
        steps.lowering.push(diagnostic.with_related(waits, "this waits").with_hint(hint));
    }
}

/// Explains fields of older files.
fn explain_past_field(name: &str) -> Option<ForeignKey> {
    let find = |table: &[(&str, &'static str)]| table.iter().find(|(past, _)| *past == name).map(|(_, now)| *now);
    let (code, message, hint) = match (find(REMOVED), find(OLD)) {
        (Some(now), _) => (Code::RemovedField, format!("`{name}` is no longer a field of a workflow"), now),
        (None, Some(now)) => (Code::OldField, format!("`{name}` is obsolete and has no effect"), now),
        (None, None) => return explain_extension(name),
    };
    Some(ForeignKey::Refused { code, message, hint: hint.to_owned() })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aip15TriggerKind {
    Schedule,
    Webhook,
    Event,
    Manual,
}

const SORTS: &[(&str, Aip15TriggerKind)] = &[
    ("schedule", Aip15TriggerKind::Schedule),
    ("webhook", Aip15TriggerKind::Webhook),
    ("event", Aip15TriggerKind::Event),
    ("manual", Aip15TriggerKind::Manual),
];

pub(super) fn read_triggers(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Vec<WorkflowTrigger> {
    let items = given.read_list(sink).unwrap_or_default();
    items.into_iter().filter_map(|item| read_trigger(item, sink)).collect()
}

const SCHEDULE_TRIGGER_FIELDS: &[&str] = &["cron", "timezone"];
const WEBHOOK_TRIGGER_FIELDS: &[&str] = &["path"];
const EVENT_TRIGGER_FIELDS: &[&str] = &["name"];
const MANUAL_TRIGGER_FIELDS: &[&str] = &["label"];
const TRIGGER_FIELDS: FieldTable = FieldTable::closed(&["kind"])
    .with_more(&[SCHEDULE_TRIGGER_FIELDS, WEBHOOK_TRIGGER_FIELDS, EVENT_TRIGGER_FIELDS, MANUAL_TRIGGER_FIELDS]);

impl Aip15TriggerKind {
    fn fields(self) -> &'static [FieldNames] {
        match self {
            Aip15TriggerKind::Schedule => &[SCHEDULE_TRIGGER_FIELDS],
            Aip15TriggerKind::Webhook => &[WEBHOOK_TRIGGER_FIELDS],
            Aip15TriggerKind::Event => &[EVENT_TRIGGER_FIELDS],
            Aip15TriggerKind::Manual => &[MANUAL_TRIGGER_FIELDS],
        }
    }
}

fn read_trigger(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<WorkflowTrigger> {
    let written = given.node.find_word("kind", SORTS);
    let table = written.map_or(TRIGGER_FIELDS, |sort| TRIGGER_FIELDS.for_kind(sort.fields()));
    let mut fields = FieldReader::from_node(given.node, "a trigger", table, sink)?;
    let kind = fields.required("kind", sink);
    let sort = kind.and_then(|given| given.read_one_of(SORTS, sink)).map(|sort| sort.value);
    if let Some(sort) = sort {
        fields.narrow("a trigger", TRIGGER_FIELDS.for_kind(sort.fields()), sink);
    }
    let trigger = match sort {
        Some(Aip15TriggerKind::Schedule) => {
            let cron = read_checked_text(fields.required("cron", sink), check_cron, sink);
            let timezone = read_checked_text(fields.optional("timezone"), check_timezone, sink);
            cron.map(|cron| WorkflowTrigger::Cron { cron, timezone })
        }
        Some(Aip15TriggerKind::Webhook) => fields.required("path", sink).and_then(|given| read_webhook(given, sink)),
        Some(Aip15TriggerKind::Event) => {
            let name = fields.required("name", sink).and_then(|given| given.read_non_empty_text(sink));
            name.map(|name| WorkflowTrigger::Event { event: name.value.to_owned(), condition: None })
        }
        Some(Aip15TriggerKind::Manual) => {
            let label = fields.optional("label").and_then(|given| given.read_non_empty_text(sink));
            Some(WorkflowTrigger::Manual { label: label.map(|label| label.value.to_owned()) })
        }
        None => None,
    };
    fields.finish(sink);
    if let Some(kind) = kind.filter(|_| sort.is_some_and(|sort| sort != Aip15TriggerKind::Manual)) {
        let what = format!("triggers of kind `{}`", kind.node.raw_text().unwrap_or_default());
        note_unserved_trigger(kind.node.first_line_span(), &what, sink);
    }
    trigger
}

fn read_webhook(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<WorkflowTrigger> {
    let path = given.read_non_empty_text(sink)?.value;
    if !path.starts_with('/') {
        let message = format!("the path of a webhook starts with `/`, and `{path}` does not");
        let diagnostic = given.diagnose(Code::BadPath, message);
        let fixed = format!("/{path}");
        sink.push(diagnostic.with_hint(format!("write `{fixed}`")).with_word_fix(given.span(), &fixed));
        return None;
    }
    Some(WorkflowTrigger::Webhook { path: path.to_owned() })
}
