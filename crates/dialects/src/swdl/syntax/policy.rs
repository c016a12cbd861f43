//! What happens when something goes wrong: of one stage, and of all of them.

use skein_core::{limits, time::Millis};

use super::{length, plains};
use crate::{
    code::Code,
    common::{self, refuse_short_longest},
    diagnostic::{Diagnostic, Sink},
    duration::Units,
    read::{Fields, Given, Spanned},
    swdl::defaults::{ERRORS_MOST, MULTIPLIER_MOST, ON_FAILURE, ON_STAGE_FAILURE, OnFailure},
};

/// The `error_policy` of a stage.
#[derive(Debug, Default)]
pub(in crate::swdl) struct StagePolicy<'a> {
    pub retry: Option<Box<(Given<'a>, RetryDef<'a>)>>,
    pub on_failure: Option<(Given<'a>, OnFailure)>,
    pub timeout: Option<(Given<'a>, Millis)>,
}

impl StagePolicy<'_> {
    /// Whether it says nothing.
    pub fn is_usual(&self) -> bool {
        self.retry.is_none() && self.on_failure.is_none() && self.timeout.is_none()
    }
}

/// The `error_policy` of the workflow.
#[derive(Debug, Default)]
pub(in crate::swdl) struct WorkflowPolicy<'a> {
    pub default_retry: RetryDef<'a>,
    pub on_stage_failure: Option<(Given<'a>, OnFailure)>,
}

#[derive(Debug, Clone, Default)]
pub(in crate::swdl) struct RetryDef<'a> {
    pub max_attempts: Option<u32>,
    pub initial_interval: Option<Millis>,
    /// In thousandths.
    pub backoff_multiplier: Option<u32>,
    pub max_interval: Option<Millis>,
    pub non_retryable_errors: Option<Vec<&'a str>>,
}

impl<'a> StagePolicy<'a> {
    pub fn read(given: Given<'a>, sink: &mut Sink) -> StagePolicy<'a> {
        let Some(mut fields) = Fields::of(given.node, "an error policy", sink) else {
            return StagePolicy::default();
        };
        let mut policy = StagePolicy::of_item(&mut fields, sink);
        policy.on_failure = fields
            .optional("on_failure")
            .and_then(|given| given.one_of(ON_FAILURE, sink).map(|word| (given, word.value)));
        fields.finish(sink);
        policy
    }

    /// What an item of a fan-out may say: its failure is the stage's.
    pub fn read_item(given: Given<'a>, sink: &mut Sink) -> StagePolicy<'a> {
        let Some(mut fields) = Fields::of(given.node, "the error policy of an item", sink) else {
            return StagePolicy::default();
        };
        let policy = StagePolicy::of_item(&mut fields, sink);
        fields.finish(sink);
        policy
    }

    fn of_item(fields: &mut Fields<'a>, sink: &mut Sink) -> StagePolicy<'a> {
        let timeout = fields.optional("timeout");
        StagePolicy {
            retry: fields.optional("retry").map(|given| Box::new((given, RetryDef::read(given, sink)))),
            on_failure: None,
            timeout: timeout.and_then(|given| length(Some(given), sink).map(|length| (given, length))),
        }
    }
}

impl<'a> WorkflowPolicy<'a> {
    pub fn read(given: Given<'a>, sink: &mut Sink) -> WorkflowPolicy<'a> {
        let Some(mut fields) = Fields::of(given.node, "the error policy", sink) else {
            return WorkflowPolicy::default();
        };
        let retry = fields.optional("default_retry");
        let on_stage_failure = fields.optional("on_stage_failure");
        let policy = WorkflowPolicy {
            default_retry: retry.map_or_else(RetryDef::default, |given| RetryDef::read(given, sink)),
            on_stage_failure: on_stage_failure
                .and_then(|given| given.one_of(ON_STAGE_FAILURE, sink).map(|word| (given, word.value))),
        };
        fields.finish(sink);
        policy
    }
}

impl<'a> RetryDef<'a> {
    fn read(given: Given<'a>, sink: &mut Sink) -> RetryDef<'a> {
        let Some(mut fields) = Fields::of(given.node, "a retry policy", sink) else {
            return RetryDef::default();
        };
        let attempts = fields.optional("max_attempts");
        let errors = fields.optional("non_retryable_errors");
        let delay = |given: Option<Given<'_>>, sink: &mut Sink| {
            let given = given?;
            common::delay(given, given.duration(Units::UpToDays, sink), sink)
        };
        let first = delay(fields.optional("initial_interval"), sink);
        let most = delay(fields.optional("max_interval"), sink);
        if let (Some(first), Some(most)) = (&first, &most) {
            refuse_short_longest(first, most, sink);
        }
        let retry = RetryDef {
            max_attempts: attempts
                .and_then(|given| given.whole(1..=limits::ATTEMPTS, sink))
                .map(|attempts| attempts.value),
            initial_interval: first.map(|length| length.value),
            backoff_multiplier: fields
                .optional("backoff_multiplier")
                .and_then(|given| read_multiplier(given, sink)),
            max_interval: most.map(|length| length.value),
            non_retryable_errors: errors.map(|given| read_errors(given, sink)),
        };
        fields.finish(sink);
        retry
    }
}

/// Codes of errors. The workflow's are every stage's, so that there cannot be any number of them.
fn read_errors<'a>(given: Given<'a>, sink: &mut Sink) -> Vec<&'a str> {
    let errors = plains(Some(given), sink);
    if errors.len() > ERRORS_MOST {
        let message = format!("`{}` names at most {ERRORS_MOST} errors, not {}", given.name, errors.len());
        sink.push(Diagnostic::new(Code::TooBig, given.node.source(), given.node.mark(), message));
        return Vec::new();
    }
    errors
}

/// A factor in thousandths.
fn read_multiplier(given: Given<'_>, sink: &mut Sink) -> Option<u32> {
    let Spanned { value, .. } = given.number(sink)?;
    if !(0.001..=MULTIPLIER_MOST).contains(&value) {
        let message = format!("`{}` is more than 0 and at most {MULTIPLIER_MOST}, not {value}", given.name);
        sink.push(Diagnostic::new(Code::BadNumber, given.node.source(), given.node.mark(), message));
        return None;
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was just checked")]
    Some((value * 1_000.0).round() as u32)
}
