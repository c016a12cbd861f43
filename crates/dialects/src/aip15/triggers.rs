//! `triggers`: events that start a run automatically. They are kept for a host that serves them; a note says that none
//! does.

use skein_core::ir::WorkflowTrigger;

use super::schedule::{self, check_timezone};
use crate::{
    code::Code,
    common::note_unserved_trigger,
    cron::check_cron,
    diagnostic::{Diagnostic, DiagnosticSink},
    fields::{FieldReader, FieldValue},
};

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

fn read_trigger(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<WorkflowTrigger> {
    let mut fields = FieldReader::from_node(given.node, "a trigger", sink)?;
    let kind = fields.required("kind", sink);
    let sort = kind.and_then(|given| given.read_one_of(SORTS, sink)).map(|sort| sort.value);
    let trigger = match sort {
        Some(Aip15TriggerKind::Schedule) => {
            let cron = schedule::read_checked_text(fields.required("cron", sink), check_cron, sink);
            let timezone = schedule::read_checked_text(fields.optional("timezone"), check_timezone, sink);
            cron.map(|cron| WorkflowTrigger::Cron { cron, timezone })
        }
        Some(Aip15TriggerKind::Webhook) => {
            fields.required("path", sink).and_then(|given| read_webhook(given, sink))
        }
        Some(Aip15TriggerKind::Event) => {
            let name = fields.required("name", sink).and_then(|given| given.read_non_empty_text(sink));
            name.map(|name| WorkflowTrigger::Event { event: name.value.to_owned(), condition: None })
        }
        Some(Aip15TriggerKind::Manual) => {
            let label = fields.optional("label").and_then(|given| given.read_non_empty_text(sink));
            Some(WorkflowTrigger::Manual { label: label.map(|label| label.value.to_owned()) })
        }
        None => {
            fields.allow_fields(&["cron", "timezone", "path", "name", "label"]);
            None
        }
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
        let diagnostic =
            Diagnostic::new(Code::BadPath, given.node.source(), given.node.first_line_span(), message);
        let fixed = format!("/{path}");
        sink.push(diagnostic.with_hint(format!("write `{fixed}`")).with_word_fix(given.span(), &fixed));
        return None;
    }
    Some(WorkflowTrigger::Webhook { path: path.to_owned() })
}
