//! Tamper: someone tried to say what is not theirs to say. The run takes note of it, and goes on as it was.

use crate::{
    engine::{Event, Refusal, decide::Decision},
    limits,
};

impl Decision<'_> {
    pub(in crate::engine) fn tampered(&mut self, by: &str, what: &str) -> Result<(), Refusal> {
        if self.state.end.is_some() {
            return Err(Refusal::Ended);
        }
        // Who tries again and again must not fill the journal.
        if self.state.tampers < limits::TAMPERS {
            self.emit(Event::Tampered { by: by.to_owned(), what: what.to_owned() });
        }
        Ok(())
    }
}
