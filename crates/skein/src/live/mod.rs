//! A run as it is shown while it goes on and when it ends.
//!
//! Owns what is said of each event, the few lines that show what runs now, and the summary. Refuses to know stores,
//! processes, clocks and threads: it is given rows of a journal, the last lines of workers and the time, and whoever
//! gives them owns the loop. Read `show` first, then `lines`.

mod area;
mod jsonl;
mod lines;
mod next;
mod rows;
mod screen;
mod show;
mod style;
mod summary;
mod text;

#[cfg(test)]
mod tests;

pub(crate) use jsonl::Jsonl;
pub(crate) use lines::class;
pub(crate) use screen::{Size, Surface};
pub(crate) use show::{Live, Options};
pub(crate) use text::{outermost, quoted, spent, took};

use skein_core::{ir::RunStatus, view::StepView};

use self::style::{Tone, word};
use crate::output::Paint;

/// What others wrote, on one line and with nothing that a terminal would obey.
pub(crate) fn one_line(words: &str) -> String {
    text::clean(words)
}

/// The status of a run in the word of its format, padded to a number of columns.
pub(crate) fn status(status: RunStatus, native: &str, columns: usize, paint: Paint) -> String {
    Tone::of_run(status).paint(paint, &format!("{:columns$}", word(native)))
}

/// The status of a step in the word of its format, padded to a number of columns.
pub(crate) fn step_status(step: &StepView, columns: usize, paint: Paint) -> String {
    Tone::of_step(step.status).paint(paint, &format!("{:>columns$}", word(&step.native_status)))
}

/// The end of a log, each line with a mark before it.
pub(crate) fn log_end(paint: Paint, log: Option<&str>) -> String {
    summary::log_lines(paint, log).iter().map(|line| format!("          {line}\n")).collect()
}
