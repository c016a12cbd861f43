//! `retryPolicy`: how often a step is tried again, and when.

use skein_core::{
    ir::{Backoff, Growth},
    limits,
    time::Millis,
};

use super::{super::defaults, ignored};
use crate::{
    common::{self, refuse_short_longest},
    diagnostic::Sink,
    duration::Units,
    read::{Fields, Given, Spanned},
};

#[derive(Debug, Clone)]
pub(in crate::ioa) struct RetryPolicy {
    /// Attempts after the first.
    pub max_retries: u32,
    pub backoff: Backoff,
}

/// What `backoff` says: how the delay grows, or the delay itself.
enum Says {
    Growth(Growth),
    Delay(Spanned<Millis>),
}

impl RetryPolicy {
    pub fn read(given: Given<'_>, sink: &mut Sink) -> Option<RetryPolicy> {
        let mut fields = Fields::of(given.node, "a retry policy", sink)?;
        let max_retries =
            fields.optional("maxRetries").and_then(|given| given.whole(0..=limits::ATTEMPTS - 1, sink));
        let says = fields.optional("backoff").and_then(|given| read_backoff(given, sink));
        let initial = delay(fields.optional("initialDelay"), sink);
        let most = delay(fields.optional("maxDelay"), sink);
        if let (Some(Says::Delay(_)), Some(field)) = (&says, fields.field("initialDelay")) {
            let message = "`initialDelay` changes nothing: `backoff` is already a length of time";
            ignored(given, field.key_span, message, sink);
        }
        // What is misspelt is said to be so, and that is enough.
        let known = ["backoff", "initialDelay", "maxDelay"];
        if given.node.fields().into_iter().flatten().all(|field| known.contains(&field.key)) {
            let message = "a retry policy without `maxRetries` retries nothing";
            ignored(given, given.node.mark(), message, sink);
        }
        fields.finish_open(sink);
        let backoff = backoff(says, initial, most.as_ref(), sink);
        Some(RetryPolicy { max_retries: max_retries.map_or(0, |count| count.value), backoff })
    }
}

/// A word for how the delay grows, or one length of time for every delay.
fn read_backoff(given: Given<'_>, sink: &mut Sink) -> Option<Says> {
    let is_length = given.node.raw().is_some_and(|raw| raw.starts_with(|c: char| c.is_ascii_digit()));
    if is_length {
        return delay(Some(given), sink).map(Says::Delay);
    }
    given.one_of(defaults::BACKOFF, sink).map(|word| Says::Growth(word.value))
}

fn delay(given: Option<Given<'_>>, sink: &mut Sink) -> Option<Spanned<Millis>> {
    let given = given?;
    common::delay(given, given.duration(Units::UpToHours, sink), sink)
}

/// The default of the longest delay never shortens what is written out.
fn backoff(
    says: Option<Says>,
    initial: Option<Spanned<Millis>>,
    most: Option<&Spanned<Millis>>,
    sink: &mut Sink,
) -> Backoff {
    let (growth, initial) = match says {
        Some(Says::Delay(delay)) => (Growth::Constant, Some(delay)),
        Some(Says::Growth(growth)) => (growth, initial),
        None => (defaults::DOUBLING, initial),
    };
    if let (Some(first), Some(most)) = (&initial, most) {
        refuse_short_longest(first, most, sink);
    }
    let initial = initial.map_or(defaults::INITIAL_DELAY, |initial| initial.value);
    let max = most.map_or(defaults::MAX_DELAY.max(initial), |most| most.value);
    Backoff { initial, growth, max, jitter: false }
}
