//! Error policies, of one stage and of the workflow.

use skein_core::{limits, time::Millis};

use crate::{
    diagnostics::{Code, DiagnosticSink},
    fields::{DurationUnits, FieldReader, FieldValue, Spanned, check_delay, refuse_short_max_delay},
    swdl::{
        defaults::{ERRORS_MOST, MULTIPLIER_MOST, ON_FAILURE, ON_STAGE_FAILURE, SwdlOnFailure},
        syntax::{read_duration, read_plain_texts},
    },
};

/// The `error_policy` of a stage.
#[derive(Debug, Default)]
pub(in crate::swdl) struct StagePolicy<'a> {
    pub retry: Option<Box<(FieldValue<'a>, RetryDef<'a>)>>,
    pub on_failure: Option<(FieldValue<'a>, SwdlOnFailure)>,
    pub timeout: Option<(FieldValue<'a>, Millis)>,
}

impl StagePolicy<'_> {
    /// True if it sets nothing.
    pub(crate) fn is_usual(&self) -> bool {
        self.retry.is_none() && self.on_failure.is_none() && self.timeout.is_none()
    }
}

/// The `error_policy` of the workflow.
#[derive(Debug, Default)]
pub(in crate::swdl) struct WorkflowPolicy<'a> {
    pub default_retry: RetryDef<'a>,
    pub on_stage_failure: Option<(FieldValue<'a>, SwdlOnFailure)>,
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

const STAGE_POLICY_FIELDS: &[&str] = &["timeout", "retry", "on_failure"];
const ITEM_POLICY_FIELDS: &[&str] = &["timeout", "retry"];

impl<'a> StagePolicy<'a> {
    pub(crate) fn read(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> StagePolicy<'a> {
        let Some(mut fields) = FieldReader::from_node(given.node, "an error policy", STAGE_POLICY_FIELDS, sink) else {
            return StagePolicy::default();
        };
        let mut policy = StagePolicy::read_item_fields(&mut fields, sink);
        policy.on_failure = fields
            .optional("on_failure")
            .and_then(|given| given.read_one_of(ON_FAILURE, sink).map(|word| (given, word.value)));
        fields.finish(sink);
        policy
    }

    /// Reads the policy of an item of a fan-out. It has no `on_failure`: the failure of an item is that of the stage.
    pub(crate) fn read_item(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> StagePolicy<'a> {
        let Some(mut fields) =
            FieldReader::from_node(given.node, "the error policy of an item", ITEM_POLICY_FIELDS, sink)
        else {
            return StagePolicy::default();
        };
        let policy = StagePolicy::read_item_fields(&mut fields, sink);
        fields.finish(sink);
        policy
    }

    fn read_item_fields(fields: &mut FieldReader<'a>, sink: &mut DiagnosticSink) -> StagePolicy<'a> {
        let timeout = fields.optional("timeout");
        StagePolicy {
            retry: fields.optional("retry").map(|given| Box::new((given, RetryDef::read(given, sink)))),
            on_failure: None,
            timeout: timeout.and_then(|given| read_duration(Some(given), sink).map(|length| (given, length))),
        }
    }
}

const WORKFLOW_POLICY_FIELDS: &[&str] = &["default_retry", "on_stage_failure"];

impl<'a> WorkflowPolicy<'a> {
    pub(crate) fn read(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> WorkflowPolicy<'a> {
        let Some(fields) = FieldReader::from_node(given.node, "the error policy", WORKFLOW_POLICY_FIELDS, sink) else {
            return WorkflowPolicy::default();
        };
        let retry = fields.optional("default_retry");
        let on_stage_failure = fields.optional("on_stage_failure");
        let policy = WorkflowPolicy {
            default_retry: retry.map_or_else(RetryDef::default, |given| RetryDef::read(given, sink)),
            on_stage_failure: on_stage_failure
                .and_then(|given| given.read_one_of(ON_STAGE_FAILURE, sink).map(|word| (given, word.value))),
        };
        fields.finish(sink);
        policy
    }
}

const RETRY_FIELDS: &[&str] =
    &["max_attempts", "non_retryable_errors", "initial_interval", "max_interval", "backoff_multiplier"];

impl<'a> RetryDef<'a> {
    fn read(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> RetryDef<'a> {
        let Some(fields) = FieldReader::from_node(given.node, "a retry policy", RETRY_FIELDS, sink) else {
            return RetryDef::default();
        };
        let attempts = fields.optional("max_attempts");
        let errors = fields.optional("non_retryable_errors");
        let delay = |given: Option<FieldValue<'_>>, sink: &mut DiagnosticSink| {
            let given = given?;
            check_delay(given, given.read_duration(DurationUnits::UpToDays, sink), sink)
        };
        let first = delay(fields.optional("initial_interval"), sink);
        let most = delay(fields.optional("max_interval"), sink);
        if let (Some(first), Some(most)) = (&first, &most) {
            refuse_short_max_delay(first, most, sink);
        }
        let retry = RetryDef {
            max_attempts: attempts
                .and_then(|given| given.read_whole_number(1..=limits::ATTEMPTS, sink))
                .map(|attempts| attempts.value),
            initial_interval: first.map(|length| length.value),
            backoff_multiplier: fields.optional("backoff_multiplier").and_then(|given| read_multiplier(given, sink)),
            max_interval: most.map(|length| length.value),
            non_retryable_errors: errors.map(|given| read_errors(given, sink)),
        };
        fields.finish(sink);
        retry
    }
}

/// Reads error codes. The workflow's list applies to every stage, so its length is limited.
fn read_errors<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Vec<&'a str> {
    let errors = read_plain_texts(Some(given), sink);
    if errors.len() > ERRORS_MOST {
        let message = format!("`{}` names at most {ERRORS_MOST} errors, not {}", given.name, errors.len());
        sink.push(given.diagnose(Code::TooBig, message));
        return Vec::new();
    }
    errors
}

/// Reads a factor, in thousandths.
fn read_multiplier(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<u32> {
    let Spanned { value, .. } = given.read_number(sink)?;
    if !(0.001..=MULTIPLIER_MOST).contains(&value) {
        let message = format!("`{}` is more than 0 and at most {MULTIPLIER_MOST}, not {value}", given.name);
        sink.push(given.diagnose(Code::BadNumber, message));
        return None;
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was just checked")]
    Some((value * 1_000.0).round() as u32)
}
