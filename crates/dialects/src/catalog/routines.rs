//! `routines`: schedules by AIP-41, by reference or inline, with time zones and recurrence rules. Only checks their form
//! and keeps them for a host that serves them.

use std::{fmt, ops::RangeInclusive, sync::Arc};

use serde_json::{Value, json};
use skein_core::{ir::WorkflowTrigger, plan::Severity, suggest::find_closest_name, time::Millis};
use thiserror::Error;

use crate::{
    catalog::Project,
    diagnostics::{Code, Diagnostic, DiagnosticSink, SourceFile},
    fields::{
        DurationUnits, FieldNames, FieldReader, FieldTable, FieldValue,
        cron::{self, check_cron, note_unserved_trigger},
        workspace_path::check_path,
    },
    source::parse_front_matter,
};

/// The attempts of a routine, by AIP-41.
const ROUTINE_ATTEMPTS: RangeInclusive<u32> = 1..=10;
const JITTER_SECONDS: RangeInclusive<u32> = 0..=3_600;

/// The triggers of a list of routines.
pub(crate) fn read_routines(
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
        let diagnostic = given.diagnose(Code::NameNotDefined, message);
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

const ROUTINE_FORM_FIELDS: &[&str] = &["ref", "file", "inline"];

/// Reads a routine. A bare text is a file if it looks like a path, else a reference.
fn read_routine(given: FieldValue<'_>, sink: &mut DiagnosticSink, project: &dyn Project) -> Option<WorkflowTrigger> {
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
    let fields = FieldReader::from_node(given.node, "a routine", ROUTINE_FORM_FIELDS, sink)?;
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
            sink.push(given.diagnose(code, message));
            None
        }
    }
}

const ROUTINE_FIELDS: &[&str] = &[
    "schema", "id", "name", "description", "identity", "fires_events", "tags", "enabled", "metadata", "schedule",
    "target", "retry", "on_failure", "history",
];

/// Reads an inline routine, or a file of its own, which must also have the fields in `needed`.
fn read_inline_routine(
    given: FieldValue<'_>,
    needed: &[&'static str],
    sink: &mut DiagnosticSink,
) -> Option<WorkflowTrigger> {
    let mut fields = FieldReader::from_node(given.node, "a routine", ROUTINE_FIELDS, sink)?;
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
    if let Some(given) = fields.optional("metadata").filter(|given| given.node.fields().is_none()) {
        let message = format!("`metadata` is a mapping of fields, found {}", given.node.describe());
        sink.push(given.diagnose(Code::WrongType, message));
    }
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

const CRON_FIELDS: &[&str] = &["cron", "timezone", "jitter_seconds", "catchup"];
const INTERVAL_FIELDS: &[&str] = &["every", "from", "jitter"];
const CALENDAR_FIELDS: &[&str] = &["rrule", "timezone"];
const EVENT_FIELDS: &[&str] = &["on", "filter"];
const SCHEDULE_FIELDS: FieldTable =
    FieldTable::closed(&["kind"]).with_more(&[CRON_FIELDS, INTERVAL_FIELDS, CALENDAR_FIELDS, EVENT_FIELDS]);

impl RoutineScheduleKind {
    fn fields(self) -> &'static [FieldNames] {
        match self {
            RoutineScheduleKind::Cron => &[CRON_FIELDS],
            RoutineScheduleKind::Interval => &[INTERVAL_FIELDS],
            RoutineScheduleKind::Calendar => &[CALENDAR_FIELDS],
            RoutineScheduleKind::Manual => &[],
            RoutineScheduleKind::Event => &[EVENT_FIELDS],
        }
    }
}

fn read_schedule(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<WorkflowTrigger> {
    let written = given.node.find_word("kind", SHAPES);
    let table = written.map_or(SCHEDULE_FIELDS, |shape| SCHEDULE_FIELDS.for_kind(shape.fields()));
    let mut fields = FieldReader::from_node(given.node, "`schedule`", table, sink)?;
    let kind = fields.required("kind", sink);
    let shape = kind.and_then(|given| given.read_one_of(SHAPES, sink)).map(|shape| shape.value);
    let trigger = match shape {
        Some(shape) => {
            fields.narrow("`schedule`", SCHEDULE_FIELDS.for_kind(shape.fields()), sink);
            read_schedule_kind(shape, &mut fields, sink)
        }
        None => None,
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
            let cron = read_checked_text(fields.required("cron", sink), check_cron, sink);
            let timezone = read_checked_text(fields.optional("timezone"), check_timezone, sink);
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
            let rule = read_checked_text(fields.required("rrule", sink), check_rrule, sink);
            let timezone = read_checked_text(fields.optional("timezone"), check_timezone, sink);
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
        let diagnostic = given.diagnose(Code::BadDuration, message);
        sink.push(
            diagnostic
                .with_hint(format!("write it in the smaller unit, such as `{}`", DurationUnits::UpToDays.example())),
        );
    }
    Some(length)
}

const TARGET_FIELDS: &[&str] = &["action", "workflow", "tool", "inputs"];
const REFERENCE_FIELDS: &[&str] = &["ref", "file"];

/// Checks the target of a routine: a workflow, a tool or an action, by a reference.
fn check_target(given: FieldValue<'_>, sink: &mut DiagnosticSink) {
    let Some(fields) = FieldReader::from_node(given.node, "`target`", TARGET_FIELDS, sink) else { return };
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
        sink.push(given.diagnose(code, message));
    }
    for reference in named {
        if reference.node.raw_text().is_some() {
            reference.read_non_empty_text(sink);
        } else if let Some(fields) = FieldReader::from_node(reference.node, "a reference", REFERENCE_FIELDS, sink) {
            let (by_ref, by_file) = (fields.optional("ref"), fields.optional("file"));
            for given in [by_ref, by_file].into_iter().flatten() {
                given.read_non_empty_text(sink);
            }
            fields.finish(sink);
        }
    }
}

const RETRY_FIELDS: &[&str] = &["max_attempts", "backoff", "initial_ms", "max_ms", "on"];

fn check_retry(given: FieldValue<'_>, sink: &mut DiagnosticSink) {
    let Some(fields) = FieldReader::from_node(given.node, "`retry`", RETRY_FIELDS, sink) else { return };
    fields.optional("max_attempts").and_then(|given| given.read_whole_number(ROUTINE_ATTEMPTS, sink));
    let backoffs = &[("exponential", ()), ("linear", ()), ("fixed", ())];
    fields.optional("backoff").and_then(|given| given.read_one_of(backoffs, sink));
    fields.optional("initial_ms").and_then(|given| given.read_millis(0, sink));
    fields.optional("max_ms").and_then(|given| given.read_millis(0, sink));
    fields.optional("on").into_iter().for_each(|given| check_texts(given, sink));
    fields.finish(sink);
}

const ON_FAILURE_FIELDS: &[&str] = &["notify", "create_work_item", "fire_event"];

fn check_on_failure(given: FieldValue<'_>, sink: &mut DiagnosticSink) {
    let Some(fields) = FieldReader::from_node(given.node, "`on_failure`", ON_FAILURE_FIELDS, sink) else { return };
    fields.optional("notify").into_iter().for_each(|given| check_texts(given, sink));
    fields.optional("create_work_item");
    fields.optional("fire_event").and_then(|given| given.read_non_empty_text(sink));
    fields.finish(sink);
}

const HISTORY_FIELDS: &[&str] = &["retain_runs", "retain_failed"];

fn check_history(given: FieldValue<'_>, sink: &mut DiagnosticSink) {
    let Some(fields) = FieldReader::from_node(given.node, "`history`", HISTORY_FIELDS, sink) else { return };
    for name in ["retain_runs", "retain_failed"] {
        fields.optional(name).and_then(|given| given.read_whole_number(0..=u32::MAX, sink));
    }
    fields.finish(sink);
}

/// The routines as they are written, for a host that serves them.
pub(crate) fn routines_json(given: FieldValue<'_>) -> Value {
    given.node.to_json()
}

/// The names of the time zone database, one a line, sorted.
const ZONES: &str = include_str!("time_zones.txt");
const FREQUENCIES: &[&str] = &["SECONDLY", "MINUTELY", "HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY"];

/// The reason why a text is not a time zone or a recurrence rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum ScheduleError {
    #[error("there is no time zone `{text}`; did you mean `{near}`?")]
    MisspeltZone { text: String, near: &'static str },
    #[error("there is no time zone `{0}`; names are `UTC` or such as `Europe/Paris`")]
    UnknownZone(String),
    #[error("`{0}` is not a name, `=` and a value")]
    BadPart(String),
    #[error("there is no frequency `{0}`")]
    UnknownFrequency(String),
    #[error("`FREQ` is missing, as in `FREQ=WEEKLY;BYDAY=MO`")]
    NoFrequency,
}

/// Reads a text and reports the error that `check` returns for it.
pub(crate) fn read_checked_text<E: fmt::Display>(
    given: Option<FieldValue<'_>>,
    check: impl FnOnce(&str) -> Result<(), E>,
    sink: &mut DiagnosticSink,
) -> Option<String> {
    let given = given?;
    let text = given.read_non_empty_text(sink)?.value;
    if let Err(why) = check(text) {
        sink.push(cron::diagnose_schedule(given, text, &why));
    }
    Some(text.to_owned())
}

/// Checks a name of the time zone database, such as `UTC` or `Europe/Paris`.
pub(crate) fn check_timezone(text: &str) -> Result<(), ScheduleError> {
    if ZONES.lines().any(|zone| zone == text) {
        return Ok(());
    }
    Err(match find_closest_name(text, ZONES.lines()) {
        Some(near) => ScheduleError::MisspeltZone { text: text.to_owned(), near },
        None => ScheduleError::UnknownZone(text.to_owned()),
    })
}

/// Checks a rule such as `FREQ=WEEKLY;BYDAY=MO`, perhaps after `RRULE:`.
pub(crate) fn check_rrule(text: &str) -> Result<(), ScheduleError> {
    let rule = text.strip_prefix("RRULE:").unwrap_or(text);
    let mut frequency = None;
    for part in rule.split(';') {
        let Some((key, value)) = part.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty())
        else {
            return Err(ScheduleError::BadPart(part.to_owned()));
        };
        if key == "FREQ" {
            frequency = Some(value);
        }
    }
    match frequency {
        Some(word) if FREQUENCIES.contains(&word) => Ok(()),
        Some(word) => Err(ScheduleError::UnknownFrequency(word.to_owned())),
        None => Err(ScheduleError::NoFrequency),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_and_rules() {
        for good in ["UTC", "Europe/Paris", "America/Argentina/Buenos_Aires", "Etc/GMT+5"] {
            assert_eq!(check_timezone(good), Ok(()), "{good}");
        }
        for bad in ["", "Paris", "CET+1", "Europe/", "Europe/Pa ris", "Mars/Olympus", "Europe/Nowhere"] {
            assert!(check_timezone(bad).is_err(), "{bad}");
        }
        assert!(check_timezone("Eurpe/Paris").unwrap_err().to_string().contains("`Europe/Paris`"));
        assert_eq!(check_rrule("FREQ=WEEKLY;BYDAY=MO"), Ok(()));
        for bad in ["", "WEEKLY", "FREQ=", "FREQ=OFTEN", "BYDAY=MO", "FREQ=DAILY;;"] {
            assert!(check_rrule(bad).is_err(), "{bad}");
        }
    }
}
