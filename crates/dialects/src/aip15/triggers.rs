//! `triggers`: what starts a run by itself. Kept for a host that serves them; until one does, that is noted.

use skein_core::ir::Trigger;

use super::schedule::{self, timezone};
use crate::{
    code::Code,
    common::trigger_not_served,
    diagnostic::{Diagnostic, Sink},
    read::{Fields, Given},
    schedule::cron,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Schedule,
    Webhook,
    Event,
    Manual,
}

const SORTS: &[(&str, Sort)] = &[
    ("schedule", Sort::Schedule),
    ("webhook", Sort::Webhook),
    ("event", Sort::Event),
    ("manual", Sort::Manual),
];

pub(super) fn read(given: Given<'_>, sink: &mut Sink) -> Vec<Trigger> {
    let items = given.list(sink).unwrap_or_default();
    items.into_iter().filter_map(|item| trigger(item, sink)).collect()
}

fn trigger(given: Given<'_>, sink: &mut Sink) -> Option<Trigger> {
    let mut fields = Fields::of(given.node, "a trigger", sink)?;
    let kind = fields.required("kind", sink);
    let sort = kind.and_then(|given| given.one_of(SORTS, sink)).map(|sort| sort.value);
    let trigger = match sort {
        Some(Sort::Schedule) => {
            let cron = schedule::text(fields.required("cron", sink), cron, sink);
            let timezone = schedule::text(fields.optional("timezone"), timezone, sink);
            cron.map(|cron| Trigger::Cron { cron, timezone })
        }
        Some(Sort::Webhook) => fields.required("path", sink).and_then(|given| webhook(given, sink)),
        Some(Sort::Event) => {
            let name = fields.required("name", sink).and_then(|given| given.words(sink));
            name.map(|name| Trigger::Event { event: name.value.to_owned(), condition: None })
        }
        Some(Sort::Manual) => {
            let label = fields.optional("label").and_then(|given| given.words(sink));
            Some(Trigger::Manual { label: label.map(|label| label.value.to_owned()) })
        }
        None => {
            fields.allow(&["cron", "timezone", "path", "name", "label"]);
            None
        }
    };
    fields.finish(sink);
    if let Some(kind) = kind.filter(|_| sort.is_some_and(|sort| sort != Sort::Manual)) {
        let what = format!("triggers of kind `{}`", kind.node.raw().unwrap_or_default());
        trigger_not_served(kind.node.mark(), &what, sink);
    }
    trigger
}

fn webhook(given: Given<'_>, sink: &mut Sink) -> Option<Trigger> {
    let path = given.words(sink)?.value;
    if !path.starts_with('/') {
        let message = format!("the path of a webhook starts with `/`, and `{path}` does not");
        let diagnostic = Diagnostic::new(Code::BadPath, given.node.source(), given.node.mark(), message);
        let fixed = format!("/{path}");
        sink.push(diagnostic.hint(format!("write `{fixed}`")).fix_word(given.span(), &fixed));
        return None;
    }
    Some(Trigger::Webhook { path: path.to_owned() })
}
