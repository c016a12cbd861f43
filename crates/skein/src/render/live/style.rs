//! The form of a line: a status word, a duration, the step, and a text.

use anstyle::{AnsiColor, Style};
use skein_core::{
    ir::{RunStatus, StepStatus},
    time::Millis,
};

use super::text::{clean_text, format_duration};
use crate::render::output::Paint;

/// The number of columns before the text of a line.
pub(super) const INDENT: usize = WORD + 13;

/// The number of columns of the word.
pub(super) const WORD: usize = 12;

/// The importance of a line, shown as a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineTone {
    Good,
    Bad,
    Care,
    /// A person is asked.
    Asks,
    Faint,
    Plain,
}

impl LineTone {
    pub(super) fn paint_text(self, paint: Paint, text: &str) -> String {
        let style = match self {
            LineTone::Good => AnsiColor::Green.on_default().bold(),
            LineTone::Bad => AnsiColor::Red.on_default().bold(),
            LineTone::Care => AnsiColor::Yellow.on_default().bold(),
            LineTone::Asks => AnsiColor::Magenta.on_default().bold(),
            LineTone::Faint => Style::new().dimmed(),
            LineTone::Plain => Style::new().bold(),
        };
        paint.apply_style(style, text)
    }

    pub(super) fn from_step_status(status: StepStatus) -> LineTone {
        match status {
            StepStatus::Succeeded => LineTone::Good,
            StepStatus::Failed | StepStatus::TimedOut => LineTone::Bad,
            StepStatus::Incomplete | StepStatus::Cancelled | StepStatus::Undone => LineTone::Care,
            StepStatus::Waiting => LineTone::Asks,
            StepStatus::Skipped => LineTone::Faint,
            StepStatus::Pending | StepStatus::Ready | StepStatus::Running | StepStatus::Checking => LineTone::Plain,
        }
    }

    pub(super) fn from_run_status(status: RunStatus) -> LineTone {
        match status {
            RunStatus::Succeeded => LineTone::Good,
            RunStatus::Failed | RunStatus::TimedOut | RunStatus::UndoFailed => LineTone::Bad,
            RunStatus::Cancelled | RunStatus::Undone | RunStatus::Undoing => LineTone::Care,
            RunStatus::Waiting => LineTone::Asks,
            RunStatus::Queued | RunStatus::Running => LineTone::Plain,
        }
    }
}

/// The parts of a line.
#[derive(Debug)]
pub(super) struct StyledLine {
    pub(super) tone: LineTone,
    pub(super) word: String,
    pub(super) took: Option<Millis>,
    /// The step; empty for the run.
    pub(super) path: String,
    /// Details of the step, such as its attempt.
    pub(super) aside: String,
    pub(super) text: String,
}

impl StyledLine {
    pub(super) fn new(tone: LineTone, word: impl Into<String>) -> StyledLine {
        let (path, aside, text) = (String::new(), String::new(), String::new());
        StyledLine { tone, word: word.into(), took: None, path, aside, text }
    }

    /// Renders the line with a newline. Untrusted text is sanitised here, before our own colours are added.
    pub(super) fn render_line(&self, paint: Paint) -> String {
        let word = self.tone.paint_text(paint, &format!("{:>WORD$}", self.word));
        let length = match self.took {
            Some(length) => format!("[{}]", format_duration(length)),
            None => " ".repeat(11),
        };
        let mut parts = String::new();
        if !self.path.is_empty() {
            parts = paint.name(&clean_text(&self.path));
        }
        if !self.aside.is_empty() {
            parts += &format!(" {}", paint.faint(&format!("({})", clean_text(&self.aside))));
        }
        let text = clean_text(&self.text);
        parts += match (parts.is_empty(), text.is_empty()) {
            (_, true) | (true, _) => "",
            (false, false) => ": ",
        };
        format!("{word} {length} {parts}{text}").trim_end().to_owned() + "\n"
    }
}

/// Returns a line that belongs to the one above it.
pub(super) fn indent_line(text: &str) -> String {
    format!("{:INDENT$}{text}\n", "")
}
