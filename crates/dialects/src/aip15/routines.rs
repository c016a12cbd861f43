//! `routines`: schedules by AIP-41, by reference or inline. Only checks their form and keeps them for a host that
//! serves them.

use std::sync::Arc;

use serde_json::{Value, json};
use skein_core::{ir::WorkflowTrigger, plan::Severity, time::Millis};

use super::{
    defaults::{JITTER_SECONDS, ROUTINE_ATTEMPTS},
    schedule::{self, check_rrule, check_timezone},
};
use crate::{
    code::Code,
    common::note_unserved_trigger,
    cron::check_cron,
    detect::parse_front_matter,
    diagnostic::{Diagnostic, DiagnosticSink},
    duration::DurationUnits,
    extension_block::check_path,
    fields::{FieldReader, FieldValue},
    project::Project,
    source::SourceFile,
};

/// The triggers of a list of routines.
pub(super) fn read_routines(
    given: FieldValue<'_>,
    sink: &mut DiagnosticSink,
    project: &dyn Project,
) -> Vec<WorkflowTrigger> {
    let items = given.read_list(sink).unwrap_or_default();
    items.into_iter().filter_map(|item| read_routine(item, sink, project)).collect()
}

/// Checks the path of a routine's file, and that the file exists.
fn check_routine_file(given: FieldValue<'_>, text: &str, sink: &mut DiagnosticSink, project: &dyn Project) {
    if check_path(given, text, sink) && !project.has_file(given.node.source(), text) {
        let message = format!("there is no routine file `{text}`");
        let diagnostic =
            Diagnostic::new(Code::NameNotDefined, given.node.source(), given.node.first_line_span(), message);
        sink.push(diagnostic.with_hint("the path is relative to the folder of this file"));
    }
}

/// Checks a ROUTINE.md and returns its problems.
pub fn check_routine(source: Arc<SourceFile>) -> Vec<Diagnostic> {
    let mut sink = DiagnosticSink::new(source);
    if let Some(tree) = parse_front_matter(&mut sink) {
        let given = FieldValue::new("routine", tree.root());
        read_inline_routine(given, &["schema", "id", "description", "target"], &mut sink);
    }
    sink.into_diagnostics().into_iter().filter(|said| said.severity != Severity::Note).collect()
}

/// Reads a routine. A bare text is a file if it looks like a path, else a reference.
fn read_routine(
    given: FieldValue<'_>,
    sink: &mut DiagnosticSink,
    project: &dyn Project,
) -> Option<WorkflowTrigger> {
    if given.node.raw_text().is_some() {
        let text = given.read_non_empty_text(sink)?.value;
        let is_file = text.starts_with("./") || text.starts_with("../") || text.ends_with(".md");
        if is_file {
            check_routine_file(given, text, sink, project);
        }
        note_unserved_trigger(given.node.first_line_span(), "routines", sink);
        let reference = if is_file { json!({"file": text}) } else { json!({"ref": text}) };
        return Some(WorkflowTrigger::Routine { reference });
    }
    let mut fields = FieldReader::from_node(given.node, "a routine", sink)?;
    let forms = [fields.optional("ref"), fields.optional("file"), fields.optional("inline")];
    fields.finish(sink);
    let [reference, file, inline] = forms;
    match (reference, file, inline) {
        (Some(given), None, None) => {
            let text = given.read_non_empty_text(sink)?.value;
            note_unserved_trigger(given.node.first_line_span(), "routines", sink);
            Some(WorkflowTrigger::Routine { reference: json!({"ref": text}) })
        }
        (None, Some(given), None) => {
            let text = given.read_non_empty_text(sink)?.value;
            check_routine_file(given, text, sink, project);
            note_unserved_trigger(given.node.first_line_span(), "routines", sink);
            Some(WorkflowTrigger::Routine { reference: json!({"file": text}) })
        }
        (None, None, Some(given)) => read_inline_routine(given, &[], sink),
        _ => {
            let message = "a routine is one of `ref`, `file` and `inline`";
            let found = forms.iter().flatten().count();
            let code = if found == 0 { Code::MissingField } else { Code::FieldsClash };
            sink.push(Diagnostic::new(code, given.node.source(), given.node.first_line_span(), message));
            None
        }
    }
}

/// Reads an inline routine, or a file of its own, which must also have the fields in `needed`.
fn read_inline_routine(
    given: FieldValue<'_>,
    needed: &[&'static str],
    sink: &mut DiagnosticSink,
) -> Option<WorkflowTrigger> {
    let mut fields = FieldReader::from_node(given.node, "a routine", sink)?;
    for name in needed {
        fields.required(name, sink);
    }
    if let Some(given) = fields.optional("schema") {
        given.read_one_of(&[("routine/v1", ())], sink);
    }
    for name in ["id", "name", "description", "identity"] {
        fields.optional(name).and_then(|given| given.read_non_empty_text(sink));
    }
    for name in ["fires_events", "tags"] {
        fields.optional(name).into_iter().for_each(|given| check_texts(given, sink));
    }
    let enabled = fields.optional("enabled").and_then(|given| given.read_bool(sink));
    fields.optional("metadata").and_then(|given| FieldReader::from_node(given.node, "`metadata`", sink));
    let trigger = fields.required("schedule", sink).and_then(|given| read_schedule(given, sink));
    fields.optional("target").into_iter().for_each(|given| check_target(given, sink));
    fields.optional("retry").into_iter().for_each(|given| check_retry(given, sink));
    fields.optional("on_failure").into_iter().for_each(|given| check_on_failure(given, sink));
    fields.optional("history").into_iter().for_each(|given| check_history(given, sink));
    fields.finish(sink);
    // A disabled routine starts nothing. It is only kept as written.
    trigger.filter(|_| enabled.is_none_or(|enabled| enabled.value))
}

fn check_texts(given: FieldValue<'_>, sink: &mut DiagnosticSink) {
    for item in given.read_list(sink).unwrap_or_default() {
        item.read_non_empty_text(sink);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RoutineScheduleKind {
    Cron,
    Interval,
    Calendar,
    Manual,
    Event,
}

const SHAPES: &[(&str, RoutineScheduleKind)] = &[
    ("cron", RoutineScheduleKind::Cron),
    ("interval", RoutineScheduleKind::Interval),
    ("calendar", RoutineScheduleKind::Calendar),
    ("manual", RoutineScheduleKind::Manual),
    ("event", RoutineScheduleKind::Event),
];
const CATCHUP: &[(&str, ())] = &[("skip", ()), ("one", ()), ("all", ())];
const OF_SHAPES: &[&str] =
    &["cron", "timezone", "jitter_seconds", "catchup", "every", "from", "jitter", "rrule", "on", "filter"];

fn read_schedule(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<WorkflowTrigger> {
    let mut fields = FieldReader::from_node(given.node, "`schedule`", sink)?;
    let kind = fields.required("kind", sink);
    let shape = kind.and_then(|given| given.read_one_of(SHAPES, sink)).map(|shape| shape.value);
    let trigger = match shape {
        Some(shape) => read_schedule_kind(shape, &mut fields, sink),
        None => {
            fields.allow_fields(OF_SHAPES);
            None
        }
    };
    fields.finish(sink);
    if let Some(kind) = kind.filter(|_| shape.is_some_and(|shape| shape != RoutineScheduleKind::Manual)) {
        let what = format!("schedules of kind `{}`", kind.node.raw_text().unwrap_or_default());
        note_unserved_trigger(kind.node.first_line_span(), &what, sink);
    }
    trigger
}

fn read_schedule_kind(
    shape: RoutineScheduleKind,
    fields: &mut FieldReader<'_>,
    sink: &mut DiagnosticSink,
) -> Option<WorkflowTrigger> {
    let owned = |text: Option<crate::fields::Spanned<&str>>| text.map(|text| text.value.to_owned());
    match shape {
        RoutineScheduleKind::Cron => {
            let cron = schedule::read_checked_text(fields.required("cron", sink), check_cron, sink);
            let timezone = schedule::read_checked_text(fields.optional("timezone"), check_timezone, sink);
            fields.optional("jitter_seconds").and_then(|given| given.read_whole_number(JITTER_SECONDS, sink));
            fields.optional("catchup").and_then(|given| given.read_one_of(CATCHUP, sink));
            cron.map(|cron| WorkflowTrigger::Cron { cron, timezone })
        }
        RoutineScheduleKind::Interval => {
            let every = fields.required("every", sink).and_then(|given| read_interval(given, sink));
            fields.optional("from").and_then(|given| given.read_non_empty_text(sink));
            fields.optional("jitter").and_then(|given| given.read_whole_number(JITTER_SECONDS, sink));
            every.map(|every| WorkflowTrigger::Interval { every })
        }
        RoutineScheduleKind::Calendar => {
            let rule = schedule::read_checked_text(fields.required("rrule", sink), check_rrule, sink);
            let timezone = schedule::read_checked_text(fields.optional("timezone"), check_timezone, sink);
            rule.map(|rule| WorkflowTrigger::Calendar { rule, timezone })
        }
        RoutineScheduleKind::Manual => Some(WorkflowTrigger::Manual { label: None }),
        RoutineScheduleKind::Event => {
            let event = owned(fields.required("on", sink).and_then(|given| given.read_non_empty_text(sink)));
            fields.optional("filter");
            event.map(|event| WorkflowTrigger::Event { event, condition: None })
        }
    }
}

/// Reads one number with one unit, such as `15m`.
fn read_interval(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<Millis> {
    let length = given.read_duration(DurationUnits::UpToDays, sink)?.value;
    let units = given.node.raw_text().unwrap_or_default().chars().filter(char::is_ascii_alphabetic).count();
    if units > 1 {
        let message = format!("`{}` is one number and one unit", given.name);
        let diagnostic =
            Diagnostic::new(Code::BadDuration, given.node.source(), given.node.first_line_span(), message);
        sink.push(diagnostic.with_hint(format!(
            "write it in the smaller unit, such as `{}`",
            DurationUnits::UpToDays.example()
        )));
    }
    Some(length)
}

/// Checks the target of a routine: a workflow, a tool or an action, by a reference.
fn check_target(given: FieldValue<'_>, sink: &mut DiagnosticSink) {
    let Some(mut fields) = FieldReader::from_node(given.node, "`target`", sink) else { return };
    let named = ["action", "workflow", "tool"].map(|name| fields.optional(name));
    let inputs = fields.optional("inputs");
    fields.finish(sink);
    if inputs.is_some_and(|given| given.node.fields().is_none()) {
        sink.extend(inputs.map(|given| given.diagnose_type("a mapping of names and values")));
    }
    let named: Vec<FieldValue<'_>> = named.into_iter().flatten().collect();
    if named.len() != 1 {
        let message = "a target is one of `action`, `workflow` and `tool`";
        let code = if named.is_empty() { Code::MissingField } else { Code::FieldsClash };
        sink.push(Diagnostic::new(code, given.node.source(), given.node.first_line_span(), message));
    }
    for reference in named {
        if reference.node.raw_text().is_some() {
            reference.read_non_empty_text(sink);
        } else if let Some(mut fields) = FieldReader::from_node(reference.node, "a reference", sink) {
            let (by_ref, by_file) = (fields.optional("ref"), fields.optional("file"));
            for given in [by_ref, by_file].into_iter().flatten() {
                given.read_non_empty_text(sink);
            }
            fields.finish(sink);
        }
    }
}

fn check_retry(given: FieldValue<'_>, sink: &mut DiagnosticSink) {
    let Some(mut fields) = FieldReader::from_node(given.node, "`retry`", sink) else { return };
    fields.optional("max_attempts").and_then(|given| given.read_whole_number(ROUTINE_ATTEMPTS, sink));
    let backoffs = &[("exponential", ()), ("linear", ()), ("fixed", ())];
    fields.optional("backoff").and_then(|given| given.read_one_of(backoffs, sink));
    fields.optional("initial_ms").and_then(|given| given.read_millis(0, sink));
    fields.optional("max_ms").and_then(|given| given.read_millis(0, sink));
    fields.optional("on").into_iter().for_each(|given| check_texts(given, sink));
    fields.finish(sink);
}

fn check_on_failure(given: FieldValue<'_>, sink: &mut DiagnosticSink) {
    let Some(mut fields) = FieldReader::from_node(given.node, "`on_failure`", sink) else { return };
    fields.optional("notify").into_iter().for_each(|given| check_texts(given, sink));
    fields.optional("create_work_item");
    fields.optional("fire_event").and_then(|given| given.read_non_empty_text(sink));
    fields.finish(sink);
}

fn check_history(given: FieldValue<'_>, sink: &mut DiagnosticSink) {
    let Some(mut fields) = FieldReader::from_node(given.node, "`history`", sink) else { return };
    for name in ["retain_runs", "retain_failed"] {
        fields.optional(name).and_then(|given| given.read_whole_number(0..=u32::MAX, sink));
    }
    fields.finish(sink);
}

/// The routines as they are written, for a host that serves them.
pub(super) fn routines_json(given: FieldValue<'_>) -> Value {
    given.node.to_json()
}
