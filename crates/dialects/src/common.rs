//! Decisions that apply to every format.

use std::collections::{BTreeMap, BTreeSet};

use skein_core::{
    expr::ExprSpan,
    ids::StepId,
    ir::{OnInterrupted, StepKindSpec, WorkerCapability, WorkerSpec},
    limits,
    time::Millis,
};

use crate::{
    code::Code,
    diagnostic::{Diagnostic, DiagnosticSink},
    fields::{FieldValue, Spanned},
};

/// Returns the default reaction to an attempt that was interrupted by the end of the host: it is run again, except that
/// an agent that may edit resumes its session, also where its failures are retried.
pub(crate) fn default_on_interrupted(kind: &StepKindSpec) -> OnInterrupted {
    let StepKindSpec::Work(work) = kind else { return OnInterrupted::Rerun };
    match &work.worker {
        WorkerSpec::Agent { capabilities, .. } if can_edit(capabilities) => OnInterrupted::Resume,
        _ => OnInterrupted::Rerun,
    }
}

/// True if the capabilities include more than reading. An agent without any reads and edits.
pub(crate) fn can_edit(capabilities: &[WorkerCapability]) -> bool {
    capabilities.is_empty() || capabilities.iter().any(|capability| *capability != WorkerCapability::Read)
}

/// Converts a text to an id: characters that a name cannot have become dashes.
pub(crate) fn sanitize_id(text: &str) -> String {
    let dash = |c: char| if c.is_control() || matches!(c, '/' | '\\') { '-' } else { c };
    let mapped: String = text.trim().chars().map(dash).collect();
    let mut id = mapped.trim_start_matches('-').to_owned();
    while id.len() > skein_core::limits::ID_BYTES {
        id.pop();
    }
    match id.trim() {
        "" | "." | ".." => "workflow".to_owned(),
        id => id.to_owned(),
    }
}

/// Checks a retry delay, which the engine limits to one day.
pub(crate) fn check_delay(
    given: FieldValue<'_>,
    length: Option<Spanned<Millis>>,
    sink: &mut DiagnosticSink,
) -> Option<Spanned<Millis>> {
    let length = length?;
    if length.value.0 > limits::BACKOFF {
        let message = format!("`{}` is at most {}", given.name, Millis(limits::BACKOFF));
        sink.push(Diagnostic::new(
            Code::BadDuration,
            given.node.source(),
            given.node.first_line_span(),
            message,
        ));
        return None;
    }
    Some(length)
}

/// Refuses a maximum delay that is shorter than the initial one.
pub(crate) fn refuse_short_max_delay(
    first: &Spanned<Millis>,
    most: &Spanned<Millis>,
    sink: &mut DiagnosticSink,
) {
    if most.value < first.value {
        let message = "the maximum delay is shorter than the initial delay";
        let diagnostic = Diagnostic::new(Code::FieldsClash, &sink.source, most.span, message);
        sink.push(diagnostic.with_related(first.span, "the initial delay is here"));
    }
}

/// Reads the dependencies of a step, without duplicates.
pub(crate) fn read_dependencies(
    given: Option<FieldValue<'_>>,
    sink: &mut DiagnosticSink,
) -> Vec<Spanned<StepId>> {
    let Some(given) = given else { return Vec::new() };
    let items = given.read_word_list(sink);
    let mut names: Vec<Spanned<StepId>> =
        items.filter_map(|item| item.read_name(|text| StepId::new(text), sink)).collect();
    if names.len() < 2 {
        return names;
    }
    let places: Vec<_> = names.iter().map(|name| (name.span, &name.value)).collect();
    if warn_duplicates(&places, given.name, sink) {
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.value.clone()));
    }
    names
}

/// Warns of duplicates in a list. Returns true if there are any.
pub(crate) fn warn_duplicates<T: Ord>(
    items: &[(ExprSpan, T)],
    list: &str,
    sink: &mut DiagnosticSink,
) -> bool {
    let mut seen = BTreeMap::new();
    for (span, item) in items {
        if let Some(first) = seen.insert(item, *span) {
            let message = format!("`{list}` contains this twice");
            let diagnostic = Diagnostic::new(Code::IgnoredField, &sink.source.clone(), *span, message);
            sink.push(diagnostic.with_related(first, "first here"));
        }
    }
    seen.len() < items.len()
}

/// Notes that a trigger is kept but starts no runs. `what` names its kind.
pub(crate) fn note_unserved_trigger(span: ExprSpan, what: &str, sink: &mut DiagnosticSink) {
    let message = format!("runs are not started by {what} yet; use `skein run`");
    sink.push(Diagnostic::new(Code::TriggerNotServed, &sink.source, span, message));
}
