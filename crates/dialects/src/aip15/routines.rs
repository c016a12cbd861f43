//! `routines`: schedules by AIP-41, named or written out. Only their shape is checked; what they mean is kept for a
//! host that serves them.

use std::sync::Arc;

use serde_json::{Value, json};
use skein_core::{ir::Trigger, plan::Severity, time::Millis};

use super::{
    defaults::{JITTER_SECONDS, ROUTINE_ATTEMPTS},
    schedule::{self, rrule, timezone},
};
use crate::{
    code::Code,
    common::trigger_not_served,
    detect::front_matter,
    diagnostic::{Diagnostic, Sink},
    duration::Units,
    project::Project,
    read::{Fields, Given},
    schedule::cron,
    source::Source,
    xskein::check_path,
};

/// The triggers of a list of routines.
pub(super) fn read(given: Given<'_>, sink: &mut Sink, project: &dyn Project) -> Vec<Trigger> {
    let items = given.list(sink).unwrap_or_default();
    items.into_iter().filter_map(|item| entry(item, sink, project)).collect()
}

/// Checks the path of a routine's file, and that there is such a file.
fn check_file(given: Given<'_>, text: &str, sink: &mut Sink, project: &dyn Project) {
    if check_path(given, text, sink) && !project.has_file(given.node.source(), text) {
        let message = format!("there is no routine file `{text}`");
        let diagnostic =
            Diagnostic::new(Code::NameNotDefined, given.node.source(), given.node.mark(), message);
        sink.push(diagnostic.hint("the path is from the folder of this file"));
    }
}

/// Checks a ROUTINE.md: what is wrong with it.
pub fn routine(source: Arc<Source>) -> Vec<Diagnostic> {
    let mut sink = Sink::new(source);
    if let Some(tree) = front_matter(&mut sink) {
        let given = Given::new("routine", tree.root());
        inline_routine(given, &["schema", "id", "description", "target"], &mut sink);
    }
    sink.finish().into_iter().filter(|said| said.severity != Severity::Note).collect()
}

/// A bare text is a file if it looks like one, else a reference.
fn entry(given: Given<'_>, sink: &mut Sink, project: &dyn Project) -> Option<Trigger> {
    if given.node.raw().is_some() {
        let text = given.words(sink)?.value;
        let is_file = text.starts_with("./") || text.starts_with("../") || text.ends_with(".md");
        if is_file {
            check_file(given, text, sink, project);
        }
        trigger_not_served(given.node.mark(), "routines", sink);
        let reference = if is_file { json!({"file": text}) } else { json!({"ref": text}) };
        return Some(Trigger::Routine { reference });
    }
    let mut fields = Fields::of(given.node, "a routine", sink)?;
    let forms = [fields.optional("ref"), fields.optional("file"), fields.optional("inline")];
    fields.finish(sink);
    let [reference, file, inline] = forms;
    match (reference, file, inline) {
        (Some(given), None, None) => {
            let text = given.words(sink)?.value;
            trigger_not_served(given.node.mark(), "routines", sink);
            Some(Trigger::Routine { reference: json!({"ref": text}) })
        }
        (None, Some(given), None) => {
            let text = given.words(sink)?.value;
            check_file(given, text, sink, project);
            trigger_not_served(given.node.mark(), "routines", sink);
            Some(Trigger::Routine { reference: json!({"file": text}) })
        }
        (None, None, Some(given)) => inline_routine(given, &[], sink),
        _ => {
            let message = "a routine is one of `ref`, `file` and `inline`";
            let found = forms.iter().flatten().count();
            let code = if found == 0 { Code::MissingField } else { Code::FieldsClash };
            sink.push(Diagnostic::new(code, given.node.source(), given.node.mark(), message));
            None
        }
    }
}

/// A routine that is written out; a file of its own must also say what is `needed`.
fn inline_routine(given: Given<'_>, needed: &[&'static str], sink: &mut Sink) -> Option<Trigger> {
    let mut fields = Fields::of(given.node, "a routine", sink)?;
    for name in needed {
        fields.required(name, sink);
    }
    if let Some(given) = fields.optional("schema") {
        given.one_of(&[("routine/v1", ())], sink);
    }
    for name in ["id", "name", "description", "identity"] {
        fields.optional(name).and_then(|given| given.words(sink));
    }
    for name in ["fires_events", "tags"] {
        fields.optional(name).into_iter().for_each(|given| words(given, sink));
    }
    let enabled = fields.optional("enabled").and_then(|given| given.flag(sink));
    fields.optional("metadata").and_then(|given| Fields::of(given.node, "`metadata`", sink));
    let trigger = fields.required("schedule", sink).and_then(|given| read_schedule(given, sink));
    fields.optional("target").into_iter().for_each(|given| check_target(given, sink));
    fields.optional("retry").into_iter().for_each(|given| check_retry(given, sink));
    fields.optional("on_failure").into_iter().for_each(|given| check_on_failure(given, sink));
    fields.optional("history").into_iter().for_each(|given| check_history(given, sink));
    fields.finish(sink);
    // One that is switched off starts nothing, and is kept only as it is written.
    trigger.filter(|_| enabled.is_none_or(|enabled| enabled.value))
}

fn words(given: Given<'_>, sink: &mut Sink) {
    for item in given.list(sink).unwrap_or_default() {
        item.words(sink);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Cron,
    Interval,
    Calendar,
    Manual,
    Event,
}

const SHAPES: &[(&str, Shape)] = &[
    ("cron", Shape::Cron),
    ("interval", Shape::Interval),
    ("calendar", Shape::Calendar),
    ("manual", Shape::Manual),
    ("event", Shape::Event),
];
const CATCHUP: &[(&str, ())] = &[("skip", ()), ("one", ()), ("all", ())];
const OF_SHAPES: &[&str] =
    &["cron", "timezone", "jitter_seconds", "catchup", "every", "from", "jitter", "rrule", "on", "filter"];

fn read_schedule(given: Given<'_>, sink: &mut Sink) -> Option<Trigger> {
    let mut fields = Fields::of(given.node, "`schedule`", sink)?;
    let kind = fields.required("kind", sink);
    let shape = kind.and_then(|given| given.one_of(SHAPES, sink)).map(|shape| shape.value);
    let trigger = match shape {
        Some(shape) => read_shape(shape, &mut fields, sink),
        None => {
            fields.allow(OF_SHAPES);
            None
        }
    };
    fields.finish(sink);
    if let Some(kind) = kind.filter(|_| shape.is_some_and(|shape| shape != Shape::Manual)) {
        let what = format!("schedules of kind `{}`", kind.node.raw().unwrap_or_default());
        trigger_not_served(kind.node.mark(), &what, sink);
    }
    trigger
}

fn read_shape(shape: Shape, fields: &mut Fields<'_>, sink: &mut Sink) -> Option<Trigger> {
    let owned = |text: Option<crate::read::Spanned<&str>>| text.map(|text| text.value.to_owned());
    match shape {
        Shape::Cron => {
            let cron = schedule::text(fields.required("cron", sink), cron, sink);
            let timezone = schedule::text(fields.optional("timezone"), timezone, sink);
            fields.optional("jitter_seconds").and_then(|given| given.whole(JITTER_SECONDS, sink));
            fields.optional("catchup").and_then(|given| given.one_of(CATCHUP, sink));
            cron.map(|cron| Trigger::Cron { cron, timezone })
        }
        Shape::Interval => {
            let every = fields.required("every", sink).and_then(|given| interval(given, sink));
            fields.optional("from").and_then(|given| given.words(sink));
            fields.optional("jitter").and_then(|given| given.whole(JITTER_SECONDS, sink));
            every.map(|every| Trigger::Interval { every })
        }
        Shape::Calendar => {
            let rule = schedule::text(fields.required("rrule", sink), rrule, sink);
            let timezone = schedule::text(fields.optional("timezone"), timezone, sink);
            rule.map(|rule| Trigger::Calendar { rule, timezone })
        }
        Shape::Manual => Some(Trigger::Manual { label: None }),
        Shape::Event => {
            let event = owned(fields.required("on", sink).and_then(|given| given.words(sink)));
            fields.optional("filter");
            event.map(|event| Trigger::Event { event, condition: None })
        }
    }
}

/// One number with one unit, such as `15m`.
fn interval(given: Given<'_>, sink: &mut Sink) -> Option<Millis> {
    let length = given.duration(Units::UpToDays, sink)?.value;
    let units = given.node.raw().unwrap_or_default().chars().filter(char::is_ascii_alphabetic).count();
    if units > 1 {
        let message = format!("`{}` is one number and one unit", given.name);
        let diagnostic = Diagnostic::new(Code::BadDuration, given.node.source(), given.node.mark(), message);
        sink.push(
            diagnostic.hint(format!("write it in the smaller unit, such as `{}`", Units::UpToDays.example())),
        );
    }
    Some(length)
}

/// What is started: a workflow, a tool or an action, by a reference.
fn check_target(given: Given<'_>, sink: &mut Sink) {
    let Some(mut fields) = Fields::of(given.node, "`target`", sink) else { return };
    let named = ["action", "workflow", "tool"].map(|name| fields.optional(name));
    let inputs = fields.optional("inputs");
    fields.finish(sink);
    if inputs.is_some_and(|given| given.node.fields().is_none()) {
        sink.extend(inputs.map(|given| given.wrong("a mapping of names and values")));
    }
    let named: Vec<Given<'_>> = named.into_iter().flatten().collect();
    if named.len() != 1 {
        let message = "a target is one of `action`, `workflow` and `tool`";
        let code = if named.is_empty() { Code::MissingField } else { Code::FieldsClash };
        sink.push(Diagnostic::new(code, given.node.source(), given.node.mark(), message));
    }
    for reference in named {
        if reference.node.raw().is_some() {
            reference.words(sink);
        } else if let Some(mut fields) = Fields::of(reference.node, "a reference", sink) {
            let (by_ref, by_file) = (fields.optional("ref"), fields.optional("file"));
            for given in [by_ref, by_file].into_iter().flatten() {
                given.words(sink);
            }
            fields.finish(sink);
        }
    }
}

fn check_retry(given: Given<'_>, sink: &mut Sink) {
    let Some(mut fields) = Fields::of(given.node, "`retry`", sink) else { return };
    fields.optional("max_attempts").and_then(|given| given.whole(ROUTINE_ATTEMPTS, sink));
    let backoffs = &[("exponential", ()), ("linear", ()), ("fixed", ())];
    fields.optional("backoff").and_then(|given| given.one_of(backoffs, sink));
    fields.optional("initial_ms").and_then(|given| given.millis(0, sink));
    fields.optional("max_ms").and_then(|given| given.millis(0, sink));
    fields.optional("on").into_iter().for_each(|given| words(given, sink));
    fields.finish(sink);
}

fn check_on_failure(given: Given<'_>, sink: &mut Sink) {
    let Some(mut fields) = Fields::of(given.node, "`on_failure`", sink) else { return };
    fields.optional("notify").into_iter().for_each(|given| words(given, sink));
    fields.optional("create_work_item");
    fields.optional("fire_event").and_then(|given| given.words(sink));
    fields.finish(sink);
}

fn check_history(given: Given<'_>, sink: &mut Sink) {
    let Some(mut fields) = Fields::of(given.node, "`history`", sink) else { return };
    for name in ["retain_runs", "retain_failed"] {
        fields.optional(name).and_then(|given| given.whole(0..=u32::MAX, sink));
    }
    fields.finish(sink);
}

/// The routines as they are written, for a host that serves them.
pub(super) fn label(given: Given<'_>) -> Value {
    given.node.json()
}
