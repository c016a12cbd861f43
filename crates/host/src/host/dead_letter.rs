//! Dead letters: steps that failed permanently, derived from the journal.
//!
//! Owns the decision which ends of a step are dead letters: its work was attempted at least once, and no further
//! attempt follows. A rejected gate, a step that never started, a cancelled one and one whose conflict a resolver
//! handles are not; neither is a composite, because the step inside it has its own dead letter.

use skein_core::{
    engine::{Event, JournalRecord, Publication, StepOutcome},
    ir::{ErrorClass, StepKindSpec},
};

use crate::{executor_api::ActiveRun, store::DeadLetterRow};

/// Returns the dead letter that a record creates, if any. The ledger must already include the record.
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

/// Returns true if a record says that the whole run is retried, which settles its dead letters; false if that failed.
pub(super) fn find_retry_decision(record: &JournalRecord) -> Option<bool> {
    match &record.event {
        Event::RunDecided { retry: Some(_), .. } => Some(true),
        Event::PublicationEnded { item: Publication::Retry, failed: Some(_) } => Some(false),
        _ => None,
    }
}
