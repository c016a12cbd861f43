//! The display of a run while it runs and when it ends.
//!
//! Owns the lines of each event, the few lines that show the current activity, and the summary. Does not know stores,
//! processes, clocks and threads: the caller owns the loop, and passes rows of a journal, the last lines of workers and
//! the time. Read `live_view` first, then `event_lines`.

mod activity;
mod event_lines;
mod live_view;
mod screen;
mod summary;
mod text;

#[cfg(test)]
mod tests;

use skein_core::{
    ir::RunStatus,
    view::{StepView, status_word},
};

pub(crate) use crate::render::follow::JsonlEncoder;
pub(crate) use event_lines::error_class_word;
pub(crate) use live_view::{LiveOptions, LiveView};
pub(crate) use screen::{TerminalSize, TerminalSurface};
pub(crate) use text::{format_cost, format_duration, one_line};

use self::text::LineTone;
use crate::render::output::Paint;

/// Returns the status of a run in the word of its format, padded to a number of columns.
pub(crate) fn paint_run_status(status: RunStatus, native: &str, columns: usize, paint: Paint) -> String {
    LineTone::from_run_status(status).paint_text(paint, &format!("{:columns$}", status_word(native)))
}

/// Returns the status of a step in the word of its format, padded to a number of columns.
pub(crate) fn paint_step_status(step: &StepView, columns: usize, paint: Paint) -> String {
    LineTone::from_step_status(step.status)
        .paint_text(paint, &format!("{:>columns$}", status_word(&step.native_status)))
}

/// Returns the end of a log, each line with a mark before it.
pub(crate) fn render_log_end(paint: Paint, log: Option<&str>) -> String {
    summary::render_log_lines(paint, log).iter().map(|line| format!("          {line}\n")).collect()
}
