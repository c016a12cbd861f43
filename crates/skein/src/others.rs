//! Watching a run that another process has: its journal is read as it grows.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{Sender, channel},
    },
};

use skein_core::ids::RunId;
use skein_host::store::{Owner, RunRow, Sqlite, Store, StoreError};

use crate::{
    changes::Changes,
    output::Output,
    state::State,
    watch::{Inbox, Note, Of, Over},
};

struct Reader {
    store: Arc<Sqlite>,
    run: RunId,
    to: Sender<Of>,
    /// How many events have been passed on.
    events: u64,
    /// Whether it was said that nobody has it.
    told: bool,
    output: Output,
}

/// Tells what happens to a run, as its own host would.
pub fn listen(state: &State, run: &RunId, output: Output) -> io::Result<Inbox> {
    let changes = Changes::of_journal(&state.path)?;
    let (to, told) = channel();
    let (store, run): (_, RunId) = (Arc::clone(&state.store), run.clone());
    let mut reader = Reader { store, run, to, events: 0, told: false, output };
    let body = move || {
        while reader.look().unwrap_or_else(|error| reader.over(Over::Broken(error.to_string()))) {
            changes.wait();
        }
    };
    std::thread::Builder::new().name("follow".into()).spawn(body)?;
    Ok(Inbox::new(told))
}

impl Reader {
    /// Passes on what is new. Whether there may be more.
    fn look(&mut self) -> Result<bool, StoreError> {
        // The row first: what ends a run is in the journal before its row says so.
        let row = self.store.run(&self.run)?.ok_or_else(|| StoreError::Unknown(self.run.clone()))?;
        let mut listens = true;
        let (to, events) = (&self.to, &mut self.events);
        self.store.read(&self.run, *events, &mut |batch| {
            if batch.seq >= *events {
                *events = batch.seq + batch.records.len() as u64;
                listens = to.send((None, Note::Row(Arc::new(batch)))).is_ok();
            }
            listens
        })?;
        if !listens {
            return Ok(false);
        }
        if let Some(why) = row.quarantined {
            return Ok(self.over(Over::SetAside(why)));
        }
        if row.head.closed {
            return Ok(self.over(Over::Closed));
        }
        self.tell_left(&row);
        Ok(true)
    }

    /// Nothing happens to a run that nobody has; once it is said so.
    fn tell_left(&mut self, row: &RunRow) {
        let left = matches!(row.owner, Owner::Nobody | Owner::Dead(_));
        if left && !self.told {
            let run = &self.run;
            self.output.warn(&format!("nobody goes on with run {run} now; `skein resume {run}` does"));
        }
        self.told = left;
    }

    fn over(&self, over: Over) -> bool {
        let _ = self.to.send((None, Note::Over(over)));
        false
    }
}
