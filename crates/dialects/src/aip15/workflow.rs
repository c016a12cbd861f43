//! The front matter as a whole: its fields, read to a definition of the builder and what the builder has no place for.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use skein_core::{
    builder::WorkflowDefinition,
    closest::closest,
    ir::{FileIn, FileOut, Schema, SchemaError},
};

use super::{
    defaults::{COSTS, DESCRIPTION_CHARS, NAME_CHARS, OLD, REMOVED},
    files, policy, routines,
    step::{Steps, ours},
    triggers, value,
};
use crate::{
    code::Code,
    diagnostic::{Diagnostic, Sink},
    project::Project,
    read::{Fields, Given, Spanned},
    xskein::{Extra, Level, XSkein},
    yaml::Node,
};

/// What a source says.
#[derive(Debug)]
pub(super) struct Source {
    pub definition: WorkflowDefinition,
    pub files_in: BTreeMap<String, FileIn>,
    pub files_out: BTreeMap<String, FileOut>,
    /// What is kept and not understood: `requires` and the routines as they are written.
    pub labels: BTreeMap<String, Value>,
    pub skein: XSkein,
}

impl Source {
    pub fn read(root: Node<'_>, steps: &mut Steps<'_, '_>) -> Option<Source> {
        let mut fields = Fields::of(root, "a workflow", steps.lowering.sink)?;
        let mut definition = identity(&mut fields, steps.lowering.sink);
        schemas(&mut definition, &mut fields, steps.lowering.sink);
        policies(&mut definition, &mut fields, steps.lowering.sink);
        let sink = &mut *steps.lowering.sink;
        let mut source = Source {
            definition,
            files_in: fields.optional("inputsFiles").map(|g| files::inputs(g, sink)).unwrap_or_default(),
            files_out: fields.optional("outputsFiles").map(|g| files::outputs(g, sink)).unwrap_or_default(),
            labels: BTreeMap::new(),
            skein: XSkein::default(),
        };
        source.surroundings(&mut fields, sink, steps.lowering.project);
        let suspendable = fields.optional("suspendable").and_then(|given| given.flag(sink));
        let start = fields.optional("start").and_then(|given| given.words(sink));
        source.definition.start = start.map(|start| start.value.to_owned());
        let list = fields.required("steps", sink);
        source.definition.steps = steps.list(list);
        steps.check_names();
        check_suspendable(suspendable, steps);
        past_fields(&mut fields, steps.lowering.sink);
        fields.finish_with(steps.lowering.sink, ours);
        Some(source)
    }

    fn surroundings(&mut self, fields: &mut Fields<'_>, sink: &mut Sink, project: &dyn Project) {
        let definition = &mut self.definition;
        if let Some(given) = fields.optional("triggers") {
            definition.triggers = triggers::read(given, sink);
        }
        if let Some(given) = fields.optional("routines") {
            definition.triggers.extend(routines::read(given, sink, project));
            self.labels.insert("routines".to_owned(), routines::label(given));
        }
        if let Some(given) = fields.optional("requires") {
            check_requires(given, sink);
            self.labels.insert("requires".to_owned(), given.node.json());
        }
        if let Some(given) = fields.optional("metadata") {
            let extra = Extra { allow_cycles: true, ..Extra::default() };
            (definition.metadata, self.skein) = policy::metadata(given, Level::Workflow, extra, sink);
        }
    }
}

fn identity(fields: &mut Fields<'_>, sink: &mut Sink) -> WorkflowDefinition {
    let name = fields.required("name", sink).and_then(|given| policy::short_text(given, NAME_CHARS, sink));
    let id = fields.required("id", sink).and_then(|given| given.words(sink));
    let description = fields.required("description", sink);
    let description = description.and_then(|given| policy::short_text(given, DESCRIPTION_CHARS, sink));
    let version = fields.required("version", sink).and_then(|given| policy::version(given, sink));
    // One without an id has been refused, and is checked under some name.
    let id = id.map_or("unnamed", |id| id.value);
    let mut definition = WorkflowDefinition::new(id, description.unwrap_or_default());
    definition.name = name.map(str::to_owned);
    definition.version = version.map(str::to_owned);
    definition
}

fn schemas(definition: &mut WorkflowDefinition, fields: &mut Fields<'_>, sink: &mut Sink) {
    if let Some(given) = fields.required("inputs", sink) {
        definition.input_schema = policy::schema(given, sink).unwrap_or(Value::Bool(true));
        refuse_bare_names(given, sink);
        refuse_other_inputs(given, sink);
        advise_inputs(given, sink);
    }
    if let Some(given) = fields.required("outputs", sink) {
        definition.output_schema = policy::schema(given, sink).unwrap_or(Value::Bool(true));
        refuse_bare_names(given, sink);
    }
    if let Some(given) = fields.optional("result") {
        let is_path = given.node.raw().is_some_and(|raw| raw.starts_with('$'));
        if !is_path && given.node.fields().is_none() {
            sink.push(given.wrong("a path or a mapping of names and values"));
        } else {
            definition.result = Some(value::value(given, sink));
        }
    }
}

/// What a schema may say, and no run without the parameter would get past.
fn advise_inputs(given: Given<'_>, sink: &mut Sink) {
    let properties = given.node.get("properties").and_then(|node| node.fields());
    let names: BTreeSet<&str> = properties.clone().into_iter().flatten().map(|field| field.key).collect();
    for field in properties.into_iter().flatten() {
        let Some(default) = field.value.get("default") else { continue };
        // A schema that is none is told by the plan.
        let wrong = Schema::new(field.value.json()).check(&default.json());
        if let Err(why @ SchemaError::Value { .. }) = wrong {
            let message = format!("the default of `{}` is not what its schema asks for: {why}", field.key);
            sink.push(Diagnostic::new(Code::TypeClash, default.source(), default.mark(), message));
        }
    }
    for item in given.node.get("required").and_then(|node| node.items()).into_iter().flatten() {
        let Some(name) = item.raw().filter(|name| !names.is_empty() && !names.contains(name)) else {
            continue;
        };
        let message = format!("`{name}` is required, and no property says what it is");
        let diagnostic = Diagnostic::new(Code::TypeClash, item.source(), item.mark(), message);
        sink.push(match closest(name, names.iter().copied()) {
            Some(near) => diagnostic.meant(item.span(), near),
            None => diagnostic,
        });
    }
}

/// Keywords of JSON Schema by which a mapping is known as a schema of an object.
const SCHEMA_KEYWORDS: &[&str] = &[
    "$ref",
    "$defs",
    "$schema",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "enum",
    "if",
    "not",
    "oneOf",
    "patternProperties",
    "properties",
    "propertyNames",
    "required",
    "type",
    "unevaluatedProperties",
];

/// Refuses a mapping of names that is not a schema: JSON Schema ignores words it does not know, so that it would check
/// nothing.
fn refuse_bare_names(given: Given<'_>, sink: &mut Sink) {
    let is_keyword = |name: &str, node: Node<'_>| {
        SCHEMA_KEYWORDS.contains(&name) && (name != "type" || node.raw().is_some() || node.items().is_some())
    };
    let mut fields = given.node.fields().into_iter().flatten();
    if fields.any(|field| is_keyword(field.key, field.value)) {
        return;
    }
    let annotations = ["title", "description", "default", "examples", "$id", "$comment"];
    let mut fields = given.node.fields().into_iter().flatten();
    let Some(field) =
        fields.find(|field| !annotations.contains(&field.key) || field.value.fields().is_some())
    else {
        return;
    };
    let message = format!("`{}` is not a JSON Schema: `{}` is not a keyword of one", given.name, field.key);
    let diagnostic = Diagnostic::new(Code::BadSchema, field.value.source(), field.key_span, message);
    sink.push(diagnostic.hint("write `type: object` and name the values in `properties`"));
}

/// A run is given names and values.
fn refuse_other_inputs(given: Given<'_>, sink: &mut Sink) {
    let Some(node) = given.node.get("type").filter(|node| node.raw().is_some_and(|raw| raw != "object"))
    else {
        return;
    };
    let message = "`inputs` describes an object: a run is given names and values";
    let diagnostic = Diagnostic::new(Code::BadSchema, node.source(), node.mark(), message);
    sink.push(diagnostic.hint("write `type: object` and name the values in `properties`"));
}

fn policies(definition: &mut WorkflowDefinition, fields: &mut Fields<'_>, sink: &mut Sink) {
    let approval = fields.optional("approval").and_then(|given| policy::approval(given, sink));
    definition.approval = approval.unwrap_or_default();
    definition.risk_level = fields.optional("risk_level").and_then(|given| policy::risk_level(given, sink));
    let timeout = fields.optional("timeout_ms").and_then(|given| given.millis(1, sink));
    definition.timeout_ms = timeout.map(|length| length.value.0);
    let max_steps = fields.optional("max_steps").and_then(|given| given.whole(1..=u32::MAX, sink));
    definition.max_steps = max_steps.map(|count| count.value);
    definition.retry = fields.optional("retry").and_then(|given| policy::retry(given, sink));
    let cost = fields.optional("cost_class").and_then(|given| given.one_of(COSTS, sink));
    definition.cost_class = cost.map(|cost| cost.value).unwrap_or_default();
    definition.tags = fields.optional("tags").map(|given| tags(given, sink)).unwrap_or_default();
}

/// Lower case letters, digits and dashes, from a letter.
fn tags(given: Given<'_>, sink: &mut Sink) -> Vec<String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_tag = |text: &str| text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(allowed);
    let mut tags = Vec::new();
    for item in given.list(sink).unwrap_or_default() {
        let Some(tag) = item.words(sink) else { continue };
        if !is_tag(tag.value) {
            let message = format!("`{}` cannot be a tag", tag.value);
            let diagnostic = Diagnostic::new(Code::BadName, item.node.source(), tag.span, message);
            sink.push(diagnostic.hint("lower case letters, digits and dashes, from a letter"));
        }
        tags.push(tag.value.to_owned());
    }
    tags
}

/// What a run needs of its host, by AIP-7.
fn check_requires(given: Given<'_>, sink: &mut Sink) {
    let Some(mut fields) = Fields::of(given.node, "`requires`", sink) else { return };
    let lists = ["fs.read", "fs.write", "env", "secrets", "tools"].map(|name| fields.optional(name));
    let network = fields.optional("network");
    let files = fields.optional("fs");
    fields.finish(sink);
    // All of it, or some hosts.
    let hosts = network.filter(|given| given.node.items().is_some());
    if hosts.is_none() {
        network.and_then(|given| given.flag(sink));
    }
    let inner = files.and_then(|given| Fields::of(given.node, "`fs`", sink)).map(|mut fields| {
        let lists = [fields.optional("read"), fields.optional("write")];
        fields.finish(sink);
        lists
    });
    for given in lists.into_iter().chain(inner.into_iter().flatten()).chain([hosts]).flatten() {
        for item in given.list(sink).unwrap_or_default() {
            item.words(sink);
        }
    }
}

/// Whether a run can wait is told by its steps.
fn check_suspendable(given: Option<Spanned<bool>>, steps: &mut Steps<'_, '_>) {
    if let (Some(Spanned { value: false, span }), Some(waits)) = (given, steps.waits) {
        let source = steps.lowering.sink.source.clone();
        let message = "this workflow says that it is not suspendable, and has a step that waits";
        let diagnostic = Diagnostic::new(Code::FieldsClash, &source, span, message);
        let hint = "leave `suspendable` out: it follows from the steps";
        steps.lowering.push(diagnostic.also(waits, "this waits").hint(hint));
    }
}

/// Fields that older files have.
fn past_fields(fields: &mut Fields<'_>, sink: &mut Sink) {
    for (name, now) in REMOVED {
        if let Some(field) = fields.retired(name) {
            let message = format!("`{name}` is no longer a field of a workflow");
            let diagnostic =
                Diagnostic::new(Code::RemovedField, field.value.source(), field.key_span, message);
            sink.push(diagnostic.hint(*now));
        }
    }
    for (name, now) in OLD {
        if let Some(field) = fields.retired(name) {
            let message = format!("`{name}` is from older files and changes nothing");
            let diagnostic = Diagnostic::new(Code::OldField, field.value.source(), field.key_span, message);
            sink.push(diagnostic.hint(*now));
        }
    }
}
