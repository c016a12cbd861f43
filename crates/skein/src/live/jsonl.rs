//! A run for programs that follow it: one line of JSON for each event, as it is recorded.
//!
//! | field | holds |
//! |---|---|
//! | `seq` | the number of the event in the run, from 0, without gaps |
//! | `at` | when it was decided, in UTC to the millisecond |
//! | `path` | the step that it is about, or the lane, item, pass or call; empty for the run as a whole |
//! | `event` | an object with one field, which is the name of the event, or a text if the event says nothing more |

use serde::Serialize;
use skein_core::{
    engine::{Batch, Event, InstanceIx, JournalError, Opening, StepAt, Walk, utc},
    plan::Plan,
    time::Time,
    view::Names,
};

use super::rows::Rows;

/// A run that is written as lines of JSON.
pub(crate) struct Jsonl {
    plan: Plan,
    rows: Rows,
    names: Names,
    /// How many instances have begun.
    instances: u32,
    /// The step of each opening.
    openings: Vec<StepAt>,
}

#[derive(Serialize)]
struct Line<'a> {
    seq: u64,
    at: String,
    path: String,
    event: &'a Event,
}

/// What an event is about.
enum About {
    Run,
    Instance(InstanceIx),
    Step(StepAt),
}

impl Jsonl {
    pub(crate) fn new(plan: Plan) -> Jsonl {
        let names = Names::new(plan.definition.clone());
        Jsonl { plan, rows: Rows::new(), names, instances: 0, openings: Vec::new() }
    }

    /// The lines of the next row of the run's journal, with their ends.
    pub(crate) fn row(&mut self, batch: &Batch) -> Result<String, JournalError> {
        self.rows.take(&self.plan, batch)?;
        let mut lines = String::new();
        for (seq, record) in (batch.seq..).zip(&batch.records) {
            let about = self.about(&record.event);
            let path = match about {
                About::Run => String::new(),
                About::Instance(ix) => self.names.instance(ix).to_owned(),
                About::Step(at) => self.names.step(at),
            };
            let line = Line { seq, at: exact(record.at), path, event: &record.event };
            lines += &serde_json::to_string(&line).expect("the keys of an event are texts");
            lines.push('\n');
        }
        Ok(lines)
    }

    fn about(&mut self, event: &Event) -> About {
        match event {
            Event::RunStarted { .. } => {
                self.instances = 1;
                About::Run
            }
            Event::CancelAsked { .. }
            | Event::RunDecided { .. }
            | Event::PublicationEnded { .. }
            | Event::Closed
            | Event::Quarantined { .. }
            | Event::Tampered { .. }
            | Event::SignalKept { .. } => About::Run,
            Event::InstanceStarted { .. } | Event::InstanceReused(_) => {
                self.names.feed(event);
                self.instances += 1;
                About::Instance(InstanceIx(self.instances - 1))
            }
            Event::InstanceHalted { instance, .. } | Event::InstanceEnded { instance, .. } => {
                About::Instance(*instance)
            }
            Event::UndoBegan { of, .. } | Event::UndoEnded { of, .. } => match of {
                Walk::Workflow(instance) => About::Instance(*instance),
                Walk::Composite(at) => About::Step(*at),
            },
            Event::StepHeld { at, .. } | Event::Opened { at, .. } => {
                self.openings.push(*at);
                About::Step(*at)
            }
            Event::Escalated { opening, .. }
            | Event::Approved { opening, .. }
            | Event::Decided { opening, .. }
            | Event::SignalTaken { opening, .. } => self.opened(*opening),
            Event::AttemptStarted { attempt, .. }
            | Event::StopAsked { attempt, .. }
            | Event::AttemptEnded { attempt, .. } => About::Step(attempt.at),
            Event::StepReady { at }
            | Event::StepExpanded { at, .. }
            | Event::StepOverdue { at }
            | Event::StepEntered { at, .. }
            | Event::StepGoesOn { at, .. }
            | Event::RetryScheduled { at, .. }
            | Event::StepEnded { at, .. }
            | Event::StepUndone { at, .. }
            | Event::UndoFailed { at, .. } => About::Step(*at),
            Event::StepReused(reused) => About::Step(reused.at),
        }
    }

    fn opened(&self, opening: Opening) -> About {
        self.openings.get(opening.0 as usize).map_or(About::Run, |at| About::Step(*at))
    }
}

/// A time in UTC, to the millisecond.
fn exact(time: Time) -> String {
    let whole = utc(time);
    format!("{}.{:03}Z", whole.trim_end_matches('Z'), time.0.rem_euclid(1_000))
}
