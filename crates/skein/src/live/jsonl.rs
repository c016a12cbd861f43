//! A run for programs that follow it: one line of JSON for each event, as it is recorded.
//!
//! | field | holds |
//! |---|---|
//! | `seq` | the number of the event in the run, from 0, without gaps |
//! | `at` | the time of the event, in UTC to the millisecond |
//! | `path` | the step of the event, or the lane, item, pass or call; empty for the run as a whole |
//! | `event` | an object with one field, which is the name of the event, or a string if the event has no data |

use serde::Serialize;
use skein_core::{
    engine::{Event, InstanceIx, JournalBatch, JournalError, StepAt, UndoWalk, Waitpoint, format_utc},
    plan::Plan,
    time::Timestamp,
    view::StepPaths,
};

use super::row_cursor::JournalRowCursor;

/// Encoder of a run as lines of JSON.
pub(crate) struct JsonlEncoder {
    plan: Plan,
    rows: JournalRowCursor,
    names: StepPaths,
    /// The number of instances that have started.
    instances: u32,
    /// The step of each waitpoint.
    openings: Vec<StepAt>,
}

#[derive(Serialize)]
struct JsonlLine<'a> {
    seq: u64,
    at: String,
    path: String,
    event: &'a Event,
}

/// The subject of an event.
enum JsonlSubject {
    Run,
    Instance(InstanceIx),
    Step(StepAt),
}

impl JsonlEncoder {
    pub(crate) fn new(plan: Plan) -> JsonlEncoder {
        let names = StepPaths::new(plan.definition.clone());
        JsonlEncoder { plan, rows: JournalRowCursor::new(), names, instances: 0, openings: Vec::new() }
    }

    /// Returns the lines of the next row of the run's journal, each with a newline.
    pub(crate) fn encode_row(&mut self, batch: &JournalBatch) -> Result<String, JournalError> {
        self.rows.accept_row(&self.plan, batch)?;
        let mut lines = String::new();
        for (seq, record) in (batch.seq..).zip(&batch.records) {
            let about = self.find_subject(&record.event);
            let path = match about {
                JsonlSubject::Run => String::new(),
                JsonlSubject::Instance(ix) => self.names.instance_path(ix).to_owned(),
                JsonlSubject::Step(at) => self.names.step_path(at),
            };
            let line = JsonlLine { seq, at: format_utc_millis(record.at), path, event: &record.event };
            lines += &serde_json::to_string(&line).expect("the keys of an event are texts");
            lines.push('\n');
        }
        Ok(lines)
    }

    fn find_subject(&mut self, event: &Event) -> JsonlSubject {
        match event {
            Event::RunStarted { .. } => {
                self.instances = 1;
                JsonlSubject::Run
            }
            Event::CancelAsked { .. }
            | Event::RunDecided { .. }
            | Event::PublicationEnded { .. }
            | Event::Closed
            | Event::Quarantined { .. }
            | Event::Tampered { .. }
            | Event::SignalKept { .. } => JsonlSubject::Run,
            Event::InstanceStarted { .. } | Event::InstanceReused(_) => {
                self.names.note_event(event);
                self.instances += 1;
                JsonlSubject::Instance(InstanceIx(self.instances - 1))
            }
            Event::InstanceHalted { instance, .. } | Event::InstanceEnded { instance, .. } => {
                JsonlSubject::Instance(*instance)
            }
            Event::UndoBegan { of, .. } | Event::UndoEnded { of, .. } => match of {
                UndoWalk::Workflow(instance) => JsonlSubject::Instance(*instance),
                UndoWalk::Composite(at) => JsonlSubject::Step(*at),
            },
            Event::StepHeld { at, .. } | Event::Opened { at, .. } => {
                self.openings.push(*at);
                JsonlSubject::Step(*at)
            }
            Event::Escalated { opening, .. }
            | Event::Approved { opening, .. }
            | Event::Decided { opening, .. }
            | Event::SignalTaken { opening, .. } => self.waitpoint_subject(*opening),
            Event::AttemptStarted { attempt, .. }
            | Event::StopAsked { attempt, .. }
            | Event::AttemptEnded { attempt, .. } => JsonlSubject::Step(attempt.at),
            Event::StepReady { at }
            | Event::StepExpanded { at, .. }
            | Event::StepOverdue { at }
            | Event::StepEntered { at, .. }
            | Event::StepGoesOn { at, .. }
            | Event::RetryScheduled { at, .. }
            | Event::StepEnded { at, .. }
            | Event::StepUndone { at, .. }
            | Event::UndoFailed { at, .. } => JsonlSubject::Step(*at),
            Event::StepReused(reused) => JsonlSubject::Step(reused.at),
        }
    }

    fn waitpoint_subject(&self, opening: Waitpoint) -> JsonlSubject {
        self.openings.get(opening.0 as usize).map_or(JsonlSubject::Run, |at| JsonlSubject::Step(*at))
    }
}

/// Formats a time in UTC, to the millisecond.
fn format_utc_millis(time: Timestamp) -> String {
    let whole = format_utc(time);
    format!("{}.{:03}Z", whole.trim_end_matches('Z'), time.0.rem_euclid(1_000))
}
