//! Dead letters: steps that failed for good, as the journal tells of them.
//!
//! Owns which end of a step is one: its work was tried at least once, and no further try is to come. A gate that was
//! rejected, a step that never began, one that was cancelled and one whose conflict another settles are none; neither is
//! a composite, whose letter is that of the step inside it.

use skein_core::{
    engine::{Event, JournalRecord, Publication, StepOutcome},
    ir::{ErrorClass, StepKindSpec},
};

use crate::{executor_api::ActiveRun, store::DeadLetterRow};

/// The dead letter that a record tells of, if it does. The ledger has been fed with it.
pub(super) fn find_dead_letter(
    running: ActiveRun<'_>,
    number: u64,
    record: &JournalRecord,
) -> Option<DeadLetterRow> {
    let Event::StepEnded { at, outcome, error, settler: None, .. } = &record.event else { return None };
    let class = match (outcome, error) {
        (StepOutcome::Failed(class), _) => *class,
        (StepOutcome::Exhausted, Some(error)) => error.class,
        (StepOutcome::Exhausted, None) => ErrorClass::NonRetryable,
        _ => return None,
    };
    let scope = running.plan.definition.scope(running.names.scope(at.0));
    let attempts = running.ledger.attempt_count(*at);
    if !matches!(scope.step(at.1).kind, StepKindSpec::Work(_)) || attempts == 0 {
        return None;
    }
    Some(DeadLetterRow {
        number,
        step: running.names.step_path(*at),
        class,
        code: error.as_ref().and_then(|error| error.code.clone()),
        message: error.as_ref().map(|error| error.message.clone()).unwrap_or_default(),
        attempts,
        attempt: running.ledger.last_attempt(*at),
        at: record.at,
    })
}

/// Whether a record says that the whole run is tried again, so that nobody need care; or that it is not, after all.
pub(super) fn find_retry_decision(record: &JournalRecord) -> Option<bool> {
    match &record.event {
        Event::RunDecided { retry: Some(_), .. } => Some(true),
        Event::PublicationEnded { item: Publication::Retry, failed: Some(_) } => Some(false),
        _ => None,
    }
}
