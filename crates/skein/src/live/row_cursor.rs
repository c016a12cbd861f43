//! Verification that rows belong to a run: each follows the one before it, and the first starts a run of this plan.

use skein_core::{
    engine::{Event, JournalBatch, JournalError},
    plan::{ContentHash, Plan},
};

/// The position in a journal.
#[derive(Debug)]
pub(super) struct JournalRowCursor {
    events: u64,
    chain: ContentHash,
}

impl JournalRowCursor {
    pub(super) fn new() -> JournalRowCursor {
        JournalRowCursor { events: 0, chain: ContentHash::ZERO }
    }

    /// Accepts the next row, or returns the reason why it is not the next.
    pub(super) fn accept_row(&mut self, plan: &Plan, batch: &JournalBatch) -> Result<(), JournalError> {
        batch.check(self.events, self.chain)?;
        let begins = match batch.records.first().map(|record| &record.event) {
            Some(Event::RunStarted { definition, .. }) => *definition == plan.definition.hash(),
            Some(Event::Quarantined { .. }) => true,
            _ => false,
        };
        if batch.seq == 0 && !begins {
            return Err(JournalError::OtherPlan);
        }
        self.events = batch.seq.saturating_add(batch.records.len() as u64);
        self.chain = batch.chain;
        Ok(())
    }
}
