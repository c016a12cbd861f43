//! `retryPolicy`: the number of retries of a step, and their delays.

use skein_core::{
    ir::{Backoff, BackoffGrowth},
    limits,
    time::Millis,
};

use super::{super::defaults, warn_ignored};
use crate::{
    common::{self, refuse_short_max_delay},
    diagnostic::DiagnosticSink,
    duration::DurationUnits,
    fields::{FieldReader, FieldValue, Spanned},
};

#[derive(Debug, Clone)]
pub(in crate::ioa) struct IoaRetryPolicy {
    /// Attempts after the first.
    pub max_retries: u32,
    pub backoff: Backoff,
}

/// The value of `backoff`: the growth of the delay, or the delay itself.
enum IoaBackoff {
    Growth(BackoffGrowth),
    Delay(Spanned<Millis>),
}

impl IoaRetryPolicy {
    pub fn read(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<IoaRetryPolicy> {
        let mut fields = FieldReader::from_node(given.node, "a retry policy", sink)?;
        let max_retries = fields
            .optional("maxRetries")
            .and_then(|given| given.read_whole_number(0..=limits::ATTEMPTS - 1, sink));
        let says = fields.optional("backoff").and_then(|given| read_backoff(given, sink));
        let initial = read_delay(fields.optional("initialDelay"), sink);
        let most = read_delay(fields.optional("maxDelay"), sink);
        if let (Some(IoaBackoff::Delay(_)), Some(field)) = (&says, fields.field("initialDelay")) {
            let message = "`initialDelay` changes nothing: `backoff` is already a duration";
            warn_ignored(given, field.key_span, message, sink);
        }
        // A misspelt field has its own diagnostic, and that is enough.
        let known = ["backoff", "initialDelay", "maxDelay"];
        if given.node.fields().into_iter().flatten().all(|field| known.contains(&field.key)) {
            let message = "a retry policy without `maxRetries` retries nothing";
            warn_ignored(given, given.node.first_line_span(), message, sink);
        }
        fields.finish_open(sink);
        let backoff = build_backoff(says, initial, most.as_ref(), sink);
        Some(IoaRetryPolicy { max_retries: max_retries.map_or(0, |count| count.value), backoff })
    }
}

/// Reads a word for the growth of the delay, or one duration for every delay.
fn read_backoff(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<IoaBackoff> {
    let is_length = given.node.raw_text().is_some_and(|raw| raw.starts_with(|c: char| c.is_ascii_digit()));
    if is_length {
        return read_delay(Some(given), sink).map(IoaBackoff::Delay);
    }
    given.read_one_of(defaults::BACKOFF, sink).map(|word| IoaBackoff::Growth(word.value))
}

fn read_delay(given: Option<FieldValue<'_>>, sink: &mut DiagnosticSink) -> Option<Spanned<Millis>> {
    let given = given?;
    common::check_delay(given, given.read_duration(DurationUnits::UpToHours, sink), sink)
}

/// Builds the backoff. The default maximum delay never shortens a delay in the source.
fn build_backoff(
    says: Option<IoaBackoff>,
    initial: Option<Spanned<Millis>>,
    most: Option<&Spanned<Millis>>,
    sink: &mut DiagnosticSink,
) -> Backoff {
    let (growth, initial) = match says {
        Some(IoaBackoff::Delay(delay)) => (BackoffGrowth::Constant, Some(delay)),
        Some(IoaBackoff::Growth(growth)) => (growth, initial),
        None => (defaults::DOUBLING, initial),
    };
    if let (Some(first), Some(most)) = (&initial, most) {
        refuse_short_max_delay(first, most, sink);
    }
    let initial = initial.map_or(defaults::INITIAL_DELAY, |initial| initial.value);
    let max = most.map_or(defaults::MAX_DELAY.max(initial), |most| most.value);
    Backoff { initial, growth, max, jitter: false }
}
