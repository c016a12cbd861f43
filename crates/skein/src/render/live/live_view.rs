//! The live display of a run.

use std::{collections::BTreeMap, io, path::PathBuf};

use skein_core::{
    engine::{
        AttemptEnd, AttemptId, CheckFinding, Event, JournalBatch, JournalError, JournalRecord, RunProjection, RunState,
        StepAt, StepOutcome, Waitpoint,
    },
    plan::Plan,
    time::{Millis, Timestamp},
    view,
};

use super::{
    activity::{ActivityArea, DrawContext, describe_attempt},
    event_lines::{EventRenderer, has_failed},
    screen::{LiveScreen, TerminalSurface},
    summary::{RunSummaryText, render_log_lines},
    text::{LineTone, StyledLine, indent_line, last_visible_part, one_line},
};
use crate::render::output::Paint;

/// Returns the end of an attempt's log, if it has one.
pub(crate) type LogTailFn = Box<dyn Fn(AttemptId) -> Option<String>>;

/// Returns the worktrees that steps left.
pub(crate) type WorktreeListFn = Box<dyn Fn() -> Vec<(String, PathBuf)>>;

/// The options of the display.
pub(crate) struct LiveOptions {
    pub(crate) paint: Paint,
    /// The folder that the run works in.
    pub(crate) workspace: Option<String>,
    /// The folder of its logs and artifacts.
    pub(crate) logs_folder: Option<String>,
    /// Returns the worktrees that steps left: the step and the folder of each.
    pub(crate) worktrees: WorktreeListFn,
    /// An attempt that takes longer is slow.
    pub(crate) slow: Millis,
    pub(crate) tail: LogTailFn,
    /// True if another process owns the run.
    pub(crate) owned_elsewhere: bool,
}

impl LiveOptions {
    /// An attempt is slow after a minute by default.
    pub(crate) const SLOW: Millis = Millis::from_mins(1);
}

/// The live display of a run. Lines are kept until [`tick`](LiveView::tick) or [`finish`](LiveView::finish), so that a
/// caller can pass many rows and show them at once.
pub(crate) struct LiveView<S> {
    projection: RunProjection,
    area: ActivityArea,
    /// The last failed attempt of each step, unless the step succeeded afterwards.
    wrong: BTreeMap<StepAt, AttemptId>,
    /// The waitpoint that is prompted for at the terminal.
    prompted: Option<Waitpoint>,
    now: Timestamp,
    options: LiveOptions,
    screen: LiveScreen<S>,
}

impl<S: TerminalSurface> LiveView<S> {
    pub(crate) fn new(plan: Plan, surface: S, options: LiveOptions) -> LiveView<S> {
        LiveView {
            projection: RunProjection::new(plan),
            area: ActivityArea::default(),
            wrong: BTreeMap::new(),
            prompted: None,
            now: Timestamp(i64::MIN),
            options,
            screen: LiveScreen::new(surface),
        }
    }

    /// Returns the state after the rows so far.
    pub(crate) fn state(&self) -> &RunState {
        self.projection.state()
    }

    /// Shows the next row of the run's journal. A row that is not the next is refused, and not shown.
    pub(crate) fn show_row(&mut self, batch: &JournalBatch) -> Result<(), JournalError> {
        self.projection.begin_row(batch)?;
        for record in &batch.records {
            self.show_record(record);
        }
        Ok(())
    }

    /// Applies a row without showing it, because it was shown before.
    pub(crate) fn load_row(&mut self, batch: &JournalBatch) -> Result<(), JournalError> {
        self.projection.begin_row(batch)?;
        for record in &batch.records {
            self.fold_record(record);
        }
        Ok(())
    }

    /// Advances the time of the display.
    pub(crate) fn advance_time(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    /// Shows the title of a resumed run, and its open waitpoints.
    pub(crate) fn show_resumed(&mut self) {
        let lines = self.event_renderer().render_resumed();
        self.screen.print_lines(&lines);
    }

    fn fold_record(&mut self, record: &JournalRecord) {
        self.projection.apply_record(record);
        self.now = self.now.max(record.at);
        self.area.apply_record(record);
        self.note_failure(&record.event);
    }

    fn event_renderer(&self) -> EventRenderer<'_> {
        EventRenderer {
            run: &self.projection,
            paint: self.options.paint,
            workspace: self.options.workspace.as_deref(),
            ended: self.area.last_ended(),
        }
    }

    fn show_record(&mut self, record: &JournalRecord) {
        self.fold_record(record);
        let lines = self.event_renderer().render_event(record);
        self.screen.print_lines(&lines);
        let attempt = match record.event {
            Event::StepEnded { at, .. } => self.find_failed_attempt(at),
            Event::UndoFailed { at, .. } => self.wrong.get(&at).copied(),
            _ => None,
        };
        if let Some(attempt) = attempt {
            let log = render_log_lines(self.options.paint, (self.options.tail)(attempt).as_deref());
            log.iter().for_each(|line| self.screen.print_lines(&indent_line(line)));
        }
    }

    /// Returns the attempt that made a step fail. An attempt of an earlier visit does not count.
    fn find_failed_attempt(&self, at: StepAt) -> Option<AttemptId> {
        let visit = self.state().step(at).visit;
        self.wrong.get(&at).copied().filter(|attempt| attempt.visit == visit)
    }

    /// Remembers failed attempts, so that their logs can be shown.
    fn note_failure(&mut self, event: &Event) {
        match event {
            Event::AttemptEnded { attempt, end, .. } => {
                let bad = match end {
                    AttemptEnd::Failed { .. } | AttemptEnd::TimedOut => true,
                    AttemptEnd::Checked { finding, .. } => *finding != CheckFinding::Complete,
                    // The log of an unmerged attempt does not explain the changes of other steps.
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
                outcome: StepOutcome::Succeeded | StepOutcome::Cancelled | StepOutcome::Skipped(_),
                ..
            }
            | Event::StepUndone { at, .. } => {
                self.wrong.remove(at);
            }
            _ => {}
        }
    }

    /// Sets the last line of a worker.
    pub(crate) fn show_output(&mut self, attempt: AttemptId, last_line: &str) {
        self.area.set_last_line(attempt, &last_visible_part(last_line));
    }

    /// Draws the display at this time. Returns the first error of all writes since the last call.
    pub(crate) fn tick(&mut self, now: Timestamp) -> io::Result<()> {
        self.advance_time(now);
        let Some(room) = self.screen.room() else {
            self.print_slow();
            return self.screen.draw_lines(Vec::new());
        };
        if let Some(waitpoint) = self.prompted {
            // Redrawn lines would hide the typed text.
            let question = self.event_renderer().render_question(waitpoint, room.columns);
            return self.screen.draw_lines(vec![question]);
        }
        let draw = DrawContext {
            state: self.projection.state(),
            names: self.projection.names(),
            paint: self.options.paint,
            now: self.now,
            slow: self.options.slow,
            room,
        };
        let going = !self.state().instances.is_empty() && self.state().end.is_none();
        let lines = if going { self.area.draw_lines(draw) } else { Vec::new() };
        self.screen.draw_lines(lines)
    }

    /// Prompts for the oldest open gate or hold, until it is decided, here or elsewhere.
    pub(crate) fn ask_question(&mut self) {
        let is_open = |waitpoint: &Waitpoint| self.state().waitpoint(*waitpoint).is_some_and(|it| !it.closed);
        if self.state().end.is_none() && self.prompted.as_ref().is_some_and(is_open) {
            return;
        }
        self.prompted = self.area.find_open_question(self.state());
        let Some(waitpoint) = self.prompted else { return };
        let shows = self.event_renderer().render_gate_content(waitpoint);
        self.screen.print_lines(&shows);
        if self.screen.room().is_none() {
            // If nothing can be drawn, the prompt stays above its answer.
            let question = self.event_renderer().render_question(waitpoint, usize::MAX);
            self.screen.print_lines(&indent_line(&question));
        }
    }

    /// Returns the prompted waitpoint, for which an answer was just typed. It is prompted for until it is closed.
    pub(crate) fn take_answered(&mut self) -> Option<Waitpoint> {
        self.screen.forget_drawn();
        self.prompted
    }

    /// Shows a line to the person at the terminal.
    pub(crate) fn show_message(&mut self, text: &str) {
        self.screen.print_lines(&indent_line(&one_line(text)));
    }

    /// Prints a line for a slow attempt, once, if nothing is drawn.
    fn print_slow(&mut self) {
        for (attempt, length) in self.area.take_newly_slow(self.now, self.options.slow) {
            let line = StyledLine {
                took: Some(length),
                path: self.projection.names().step_path(attempt.at),
                aside: describe_attempt(attempt).unwrap_or_default(),
                text: "still running".to_owned(),
                ..StyledLine::new(LineTone::Care, "SLOW")
            };
            self.screen.print_lines(&line.render_line(self.options.paint));
        }
    }

    /// Removes the drawn lines, and returns the summary.
    pub(crate) fn finish(&mut self) -> io::Result<String> {
        self.screen.draw_lines(Vec::new())?;
        let view = view::view_run(self.projection.plan(), self.state());
        let logs = view.steps.iter().filter(|step| has_failed(step));
        let logs = logs.filter_map(|step| Some((step.at, self.find_failed_attempt(step.at)?))).collect();
        let summary = RunSummaryText { view: &view, state: self.state(), now: self.now, logs, options: &self.options };
        Ok(summary.render_text())
    }
}
