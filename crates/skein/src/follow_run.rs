//! Follows a run that another process owns, by reading its journal as it grows.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{Sender, channel},
    },
};

use skein_app::{file_changes::FileChangeWatcher, state::StateHandle};
use skein_core::ids::RunId;
use skein_host::store::{RunOwner, RunRow, SqliteStore, Store, StoreError};

use crate::{
    output::CliOutput,
    watch::{FollowEnd, FollowEvent, FollowInbox, RunFollowEvent},
};

struct JournalFollower {
    store: Arc<SqliteStore>,
    run: RunId,
    to: Sender<RunFollowEvent>,
    /// The number of events that have been passed on.
    events: u64,
    /// True if the warning about a missing owner was printed.
    told: bool,
    output: CliOutput,
}

/// Sends the events of a run, as its own host would.
pub fn follow_journal(state: &StateHandle, run: &RunId, output: CliOutput) -> io::Result<FollowInbox> {
    let changes = FileChangeWatcher::watch_journal(&state.path)?;
    let (to, told) = channel();
    let (store, run): (_, RunId) = (Arc::clone(&state.store), run.clone());
    let mut reader = JournalFollower { store, run, to, events: 0, told: false, output };
    let body = move || {
        while reader
            .read_new_rows()
            .unwrap_or_else(|error| reader.send_end(FollowEnd::Broken(error.to_string())))
        {
            changes.wait_for_change();
        }
    };
    std::thread::Builder::new().name("follow".into()).spawn(body)?;
    Ok(FollowInbox::new(told))
}

impl JournalFollower {
    /// Passes on new events. Returns true if there may be more.
    fn read_new_rows(&mut self) -> Result<bool, StoreError> {
        // Reads the row first: the event that ends a run is in the journal before the row is closed.
        let row = self.store.find_run(&self.run)?.ok_or_else(|| StoreError::Unknown(self.run.clone()))?;
        let mut listens = true;
        let (to, events) = (&self.to, &mut self.events);
        self.store.read_journal(&self.run, *events, &mut |batch| {
            if batch.seq >= *events {
                *events = batch.seq + batch.records.len() as u64;
                listens = to.send((None, FollowEvent::Row(Arc::new(batch)))).is_ok();
            }
            listens
        })?;
        if !listens {
            return Ok(false);
        }
        if let Some(why) = row.quarantined {
            return Ok(self.send_end(FollowEnd::SetAside(why)));
        }
        if row.head.closed {
            return Ok(self.send_end(FollowEnd::Closed));
        }
        self.warn_if_left(&row);
        Ok(true)
    }

    /// Warns once if no process owns the run, because nothing happens to it then.
    fn warn_if_left(&mut self, row: &RunRow) {
        let left = matches!(row.owner, RunOwner::Nobody | RunOwner::Dead(_));
        if left && !self.told {
            let run = &self.run;
            self.output.warn(&format!("no process is executing run {run}; `skein resume {run}` resumes it"));
        }
        self.told = left;
    }

    fn send_end(&self, over: FollowEnd) -> bool {
        let _ = self.to.send((None, FollowEvent::Over(over)));
        false
    }
}
