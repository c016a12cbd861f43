//! A run for programs that follow it: one line of JSON for each event, as it is recorded.
//!
//! | field | holds |
//! |---|---|
//! | `seq` | the number of the event in the run, from 0, without gaps |
//! | `at` | the time of the event, in UTC to the millisecond |
//! | `path` | the step of the event, or the lane, item, pass or call; empty for the run as a whole |
//! | `event` | an object with one field, which is the name of the event, or a string if the event has no data |

use std::sync::Arc;

use serde::Serialize;
use skein_core::{
    engine::{Event, JournalBatch, JournalError, StepPaths, format_utc},
    plan::{ContentHash, Plan},
    time::Timestamp,
};

/// Encoder of a run as lines of JSON.
pub(crate) struct JsonlEncoder {
    names: StepPaths,
    /// The number of encoded events, and the hash of the last row.
    events: u64,
    chain: ContentHash,
}

#[derive(Serialize)]
struct JsonlLine<'a> {
    seq: u64,
    at: String,
    path: String,
    event: &'a Event,
}

impl JsonlEncoder {
    pub(crate) fn new(plan: &Plan) -> JsonlEncoder {
        let definition = Arc::clone(&plan.definition);
        JsonlEncoder { names: StepPaths::new(definition), events: 0, chain: ContentHash::ZERO }
    }

    /// Returns the lines of the next row of the run's journal, each with a newline.
    pub(crate) fn encode_row(&mut self, batch: &JournalBatch) -> Result<String, JournalError> {
        batch.check(self.events, self.chain)?;
        batch.check_definition(self.names.definition().hash())?;
        let mut lines = String::new();
        for (seq, record) in (batch.seq..).zip(&batch.records) {
            self.names.note_event(&record.event);
            let path = self.names.subject_path(record.event.subject()).unwrap_or_default();
            let line = JsonlLine { seq, at: format_utc_millis(record.at), path, event: &record.event };
            lines += &serde_json::to_string(&line).expect("the keys of an event are texts");
            lines.push('\n');
        }
        (self.events, self.chain) = (self.events + batch.records.len() as u64, batch.chain);
        Ok(lines)
    }
}

/// Formats a time in UTC, to the millisecond.
fn format_utc_millis(time: Timestamp) -> String {
    let whole = format_utc(time);
    format!("{}.{:03}Z", whole.trim_end_matches('Z'), time.0.rem_euclid(1_000))
}
