//! Tamper: records that a caller without permission tried to change the run. It has no other effect.

use crate::{
    engine::{Event, Refusal, decide::DecideContext},
    limits,
};

impl DecideContext<'_> {
    pub(in crate::engine) fn record_tampering(&mut self, by: &str, what: &str) -> Result<(), Refusal> {
        if self.state.end.is_some() {
            return Err(Refusal::Ended);
        }
        // Repeated tries must not fill the journal.
        if self.state.tampers < limits::TAMPERS {
            self.emit(Event::Tampered { by: by.to_owned(), what: what.to_owned() });
        }
        Ok(())
    }
}
