//! The form of a line: a word that says how it went, how long it took, what it is about.

use anstyle::{AnsiColor, Style};
use skein_core::{
    ir::{RunStatus, StepStatus},
    time::Millis,
};

use super::text::{clean, took};
use crate::output::Paint;

/// How many columns come before the text of a line.
pub(super) const INDENT: usize = WORD + 13;

/// How many columns the word has.
pub(super) const WORD: usize = 12;

/// How much a person should care, as a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Good,
    Bad,
    Care,
    /// Someone is asked.
    Asks,
    Faint,
    Plain,
}

impl Tone {
    pub(super) fn paint(self, paint: Paint, text: &str) -> String {
        let style = match self {
            Tone::Good => AnsiColor::Green.on_default().bold(),
            Tone::Bad => AnsiColor::Red.on_default().bold(),
            Tone::Care => AnsiColor::Yellow.on_default().bold(),
            Tone::Asks => AnsiColor::Magenta.on_default().bold(),
            Tone::Faint => Style::new().dimmed(),
            Tone::Plain => Style::new().bold(),
        };
        paint.with(style, text)
    }

    pub(super) fn of_step(status: StepStatus) -> Tone {
        match status {
            StepStatus::Succeeded => Tone::Good,
            StepStatus::Failed | StepStatus::TimedOut => Tone::Bad,
            StepStatus::Incomplete | StepStatus::Cancelled | StepStatus::Undone => Tone::Care,
            StepStatus::Waiting => Tone::Asks,
            StepStatus::Skipped => Tone::Faint,
            StepStatus::Pending | StepStatus::Ready | StepStatus::Running | StepStatus::Checking => {
                Tone::Plain
            }
        }
    }

    pub(super) fn of_run(status: RunStatus) -> Tone {
        match status {
            RunStatus::Succeeded => Tone::Good,
            RunStatus::Failed | RunStatus::TimedOut | RunStatus::UndoFailed => Tone::Bad,
            RunStatus::Cancelled | RunStatus::Undone | RunStatus::Undoing => Tone::Care,
            RunStatus::Waiting => Tone::Asks,
            RunStatus::Queued | RunStatus::Running => Tone::Plain,
        }
    }
}

/// A status as people write it.
pub(super) fn word(status: &str) -> String {
    status.replace('_', " ")
}

/// What a line says.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) tone: Tone,
    pub(super) word: String,
    pub(super) took: Option<Millis>,
    /// The step; empty for the run.
    pub(super) path: String,
    /// What belongs to the step, such as its attempt.
    pub(super) aside: String,
    pub(super) text: String,
}

impl Line {
    pub(super) fn new(tone: Tone, word: impl Into<String>) -> Line {
        let (path, aside, text) = (String::new(), String::new(), String::new());
        Line { tone, word: word.into(), took: None, path, aside, text }
    }

    /// The line with its end. What others wrote is made harmless here, before our own colours come to it.
    pub(super) fn shown(&self, paint: Paint) -> String {
        let word = self.tone.paint(paint, &format!("{:>WORD$}", self.word));
        let length = match self.took {
            Some(length) => format!("[{}]", took(length)),
            None => " ".repeat(11),
        };
        let mut parts = String::new();
        if !self.path.is_empty() {
            parts = paint.name(&clean(&self.path));
        }
        if !self.aside.is_empty() {
            parts += &format!(" {}", paint.faint(&format!("({})", clean(&self.aside))));
        }
        let text = clean(&self.text);
        parts += match (parts.is_empty(), text.is_empty()) {
            (_, true) | (true, _) => "",
            (false, false) => ": ",
        };
        format!("{word} {length} {parts}{text}").trim_end().to_owned() + "\n"
    }
}

/// A line that belongs to the one above it.
pub(super) fn below(text: &str) -> String {
    format!("{:INDENT$}{text}\n", "")
}
