//! A run that is shown while it goes on.

use std::{collections::BTreeMap, io, path::PathBuf};

use skein_core::{
    engine::{
        AttemptEnd, AttemptId, Batch, Event, Finding, JournalError, Opening, Outcome, Record, RunState,
        StepAt, apply,
    },
    plan::Plan,
    time::{Millis, Time},
    view::{self, Entry, Timeline},
};

use super::{
    area::{Area, Draw, which},
    lines::{Teller, failed},
    rows::Rows,
    screen::{Screen, Surface},
    style::{Line, Tone, below},
    summary::{Summary, log_lines},
    text::{clean, last_shown},
};
use crate::output::Paint;

/// The end of an attempt's log, if it has one.
pub(crate) type Tail = Box<dyn Fn(AttemptId) -> Option<String>>;

/// What steps left.
pub(crate) type Trees = Box<dyn Fn() -> Vec<(String, PathBuf)>>;

/// What is shown, and how.
pub(crate) struct Options {
    pub(crate) paint: Paint,
    /// The folder that the run works in.
    pub(crate) workspace: Option<String>,
    /// Where its logs and artifacts are.
    pub(crate) kept: Option<String>,
    /// Where steps left trees of their own: the step and the folder of each.
    pub(crate) trees: Trees,
    /// An attempt that takes longer is slow.
    pub(crate) slow: Millis,
    pub(crate) tail: Tail,
    /// Whether some other process goes on with it.
    pub(crate) had: bool,
}

impl Options {
    /// An attempt is slow after a minute, unless told otherwise.
    pub(crate) const SLOW: Millis = Millis::minutes(1);
}

/// A run that is shown while it goes on. Lines are kept until [`tick`](Live::tick) or [`finish`](Live::finish), so that
/// whoever has many rows gives them all and shows them once.
pub(crate) struct Live<S> {
    plan: Plan,
    state: RunState,
    timeline: Timeline,
    rows: Rows,
    area: Area,
    /// The last attempt of each step that went wrong; what succeeded afterwards is not here.
    wrong: BTreeMap<StepAt, AttemptId>,
    /// What is asked at the terminal.
    asked: Option<Opening>,
    now: Time,
    options: Options,
    screen: Screen<S>,
}

impl<S: Surface> Live<S> {
    pub(crate) fn new(plan: Plan, surface: S, options: Options) -> Live<S> {
        Live {
            timeline: Timeline::new(&plan),
            plan,
            state: RunState::new(),
            rows: Rows::new(),
            area: Area::default(),
            wrong: BTreeMap::new(),
            asked: None,
            now: Time(i64::MIN),
            options,
            screen: Screen::new(surface),
        }
    }

    /// What the rows so far add up to.
    pub(crate) fn state(&self) -> &RunState {
        &self.state
    }

    /// The next row of the run's journal. Nothing of a row that is not the next is shown.
    pub(crate) fn row(&mut self, batch: &Batch) -> Result<(), JournalError> {
        self.rows.take(&self.plan, batch)?;
        for record in &batch.records {
            self.record(record);
        }
        Ok(())
    }

    /// The same for a row of which nothing is shown, because it has been before.
    pub(crate) fn recall(&mut self, batch: &Batch) -> Result<(), JournalError> {
        self.rows.take(&self.plan, batch)?;
        for record in &batch.records {
            self.fold(record);
        }
        Ok(())
    }

    /// It is this late.
    pub(crate) fn pass(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    /// Says where a run is that someone goes on with, and what it waits for.
    pub(crate) fn resumed(&mut self) {
        let lines = self.teller().resumed();
        self.screen.print(&lines);
    }

    fn fold(&mut self, record: &Record) -> Option<Entry> {
        apply(&self.plan, &mut self.state, record.at, &record.event);
        self.now = self.now.max(record.at);
        self.area.take(record);
        self.note(&record.event);
        self.timeline.feed(record)
    }

    fn teller(&self) -> Teller<'_> {
        Teller {
            plan: &self.plan,
            state: &self.state,
            names: self.timeline.names(),
            paint: self.options.paint,
            workspace: self.options.workspace.as_deref(),
            ended: self.area.last_ended(),
        }
    }

    fn record(&mut self, record: &Record) {
        let entry = self.fold(record);
        let lines = self.teller().tell(record, entry);
        self.screen.print(&lines);
        let attempt = match record.event {
            Event::StepEnded { at, .. } => self.to_blame(at),
            Event::UndoFailed { at, .. } => self.wrong.get(&at).copied(),
            _ => None,
        };
        if let Some(attempt) = attempt {
            let log = log_lines(self.options.paint, (self.options.tail)(attempt).as_deref());
            log.iter().for_each(|line| self.screen.print(&below(line)));
        }
    }

    /// The attempt because of which a step ended as it did. One of an earlier visit has nothing to do with it.
    fn to_blame(&self, at: StepAt) -> Option<AttemptId> {
        let visit = self.state.step(at).visit;
        self.wrong.get(&at).copied().filter(|attempt| attempt.visit == visit)
    }

    /// Remembers what went wrong, so that its log can be shown.
    fn note(&mut self, event: &Event) {
        match event {
            Event::AttemptEnded { attempt, end, .. } => {
                let bad = match end {
                    AttemptEnd::Failed { .. } | AttemptEnd::TimedOut => true,
                    AttemptEnd::Checked { finding, .. } => *finding != Finding::Complete,
                    // What it printed has nothing to do with what others changed.
                    AttemptEnd::Succeeded { .. }
                    | AttemptEnd::Unmerged { .. }
                    | AttemptEnd::Stopped
                    | AttemptEnd::Interrupted
                    | AttemptEnd::Blocked { .. }
                    | AttemptEnd::HandedOver { .. } => false,
                };
                if bad {
                    self.wrong.insert(attempt.at, *attempt);
                }
            }
            Event::StepEnded {
                at,
                outcome: Outcome::Succeeded | Outcome::Cancelled | Outcome::Skipped(_),
                ..
            }
            | Event::StepUndone { at, .. } => {
                self.wrong.remove(at);
            }
            _ => {}
        }
    }

    /// What a worker said last.
    pub(crate) fn output(&mut self, attempt: AttemptId, last_line: &str) {
        self.area.said(attempt, &last_shown(last_line));
    }

    /// Shows what there is to show at this time. Errors are those of all writes since it was called last.
    pub(crate) fn tick(&mut self, now: Time) -> io::Result<()> {
        self.pass(now);
        let Some(room) = self.screen.room() else {
            self.tell_slow();
            return self.screen.draw(Vec::new());
        };
        if let Some(opening) = self.asked {
            // What is drawn again and again would hide what is typed.
            let question = self.teller().question(opening, room.columns);
            return self.screen.draw(vec![question]);
        }
        let draw = Draw {
            state: &self.state,
            names: self.timeline.names(),
            paint: self.options.paint,
            now: self.now,
            slow: self.options.slow,
            room,
        };
        let going = !self.state.instances.is_empty() && self.state.end.is_none();
        let lines = if going { self.area.draw(draw) } else { Vec::new() };
        self.screen.draw(lines)
    }

    /// Asks the oldest question that is open, until someone answers it, here or elsewhere.
    pub(crate) fn ask(&mut self) {
        let is_open = |opening: &Opening| self.state.opening(*opening).is_some_and(|it| !it.closed);
        if self.state.end.is_none() && self.asked.as_ref().is_some_and(is_open) {
            return;
        }
        self.asked = self.area.question(&self.state);
        let Some(opening) = self.asked else { return };
        let shows = self.teller().shows(opening);
        self.screen.print(&shows);
        if self.screen.room().is_none() {
            // Where nothing can be drawn, the question stays above its answer.
            let question = self.teller().question(opening, usize::MAX);
            self.screen.print(&below(&question));
        }
    }

    /// What was asked last, to which someone has just typed an answer. It is asked until it is closed.
    pub(crate) fn answered(&mut self) -> Option<Opening> {
        self.screen.forget();
        self.asked
    }

    /// A line for whoever is at the terminal.
    pub(crate) fn say(&mut self, text: &str) {
        self.screen.print(&below(&clean(text)));
    }

    /// Where nothing is drawn again, a slow attempt has a line, once.
    fn tell_slow(&mut self) {
        for (attempt, length) in self.area.newly_slow(self.now, self.options.slow) {
            let line = Line {
                took: Some(length),
                path: self.timeline.names().step(attempt.at),
                aside: which(attempt).unwrap_or_default(),
                text: "still at work".to_owned(),
                ..Line::new(Tone::Care, "SLOW")
            };
            self.screen.print(&line.shown(self.options.paint));
        }
    }

    /// Leaves only the lines that stay, and says how it all went.
    pub(crate) fn finish(&mut self) -> io::Result<String> {
        self.screen.draw(Vec::new())?;
        let view = view::run(&self.plan, &self.state);
        let logs = view.steps.iter().filter(|step| failed(step));
        let logs = logs.filter_map(|step| Some((step.at, self.to_blame(step.at)?))).collect();
        let summary =
            Summary { view: &view, state: &self.state, now: self.now, logs, options: &self.options };
        Ok(summary.text())
    }
}
