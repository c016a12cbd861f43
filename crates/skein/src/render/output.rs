//! Output of commands: text for people, coloured only on a terminal, and one JSON value for programs.

use std::{
    io::{self, IsTerminal, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use serde_json::{Value, json};
use skein_app::{app::OperationObserver, app_error::AppError};
use skein_dialects::{Diagnostic, render};
use skein_host::json_text::escape_invisible;

use crate::exit::Exit;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    #[default]
    Human,
    Json,
    // One line of JSON for each event, as it arrives. Not a doc comment, because clap would then list the values in
    // long help.
    Jsonl,
}

/// Standard output and standard error, with the format and the colours to use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CliOutput {
    pub format: OutputFormat,
    pub paint: Paint,
    paint_errors: Paint,
}

impl CliOutput {
    pub(crate) fn new(format: OutputFormat) -> CliOutput {
        let paint_errors = Paint(wants_colour(io::stderr().is_terminal()));
        CliOutput { format, paint: Paint(wants_colour(io::stdout().is_terminal())), paint_errors }
    }

    pub(crate) fn is_json(self) -> bool {
        self.format == OutputFormat::Json
    }

    /// Prints the result of a command: one value for programs, or a text for people.
    pub(crate) fn print_result(self, to_json: impl FnOnce() -> Value, to_text: impl FnOnce() -> String) {
        match self.is_json() {
            true => self.print_json(&to_json()),
            false => self.print_text(&to_text()),
        }
    }

    /// Prints the requested text, which may contain words of untrusted sources.
    pub(crate) fn print_text(self, text: &str) {
        write_text(io::stdout().lock(), &sanitize_text(text, self.paint));
    }

    /// Prints the requested text byte for byte.
    pub(crate) fn print_exact(self, text: &str) {
        write_text(io::stdout().lock(), text);
    }

    pub(crate) fn print_json(self, value: &Value) {
        let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
        text.push('\n');
        self.print_json_text(&text);
    }

    /// Prints JSON, or a part of it. All JSON output goes through this function.
    pub(crate) fn print_json_text(self, text: &str) {
        write_text(io::stdout().lock(), &escape_invisible(text));
    }

    /// Prints diagnostics for people, on standard error.
    pub(crate) fn print_diagnostics<'a>(self, diagnostics: impl IntoIterator<Item = &'a Diagnostic>) {
        let mut errors = io::stderr().lock();
        for diagnostic in diagnostics {
            let text = render::render_text(diagnostic, self.paint_errors.0);
            write_text(&mut errors, &format!("{}\n\n", sanitize_text(&text, self.paint_errors)));
        }
    }

    /// Prints a warning on standard error; the command continues.
    pub(crate) fn warn(self, message: &str) {
        let text = format!("{}: {message}\n", self.paint_errors.warning("warning"));
        write_text(io::stderr().lock(), &sanitize_text(&text, self.paint_errors));
    }

    /// Prints the error of a command and returns its exit status. No other code prints one.
    pub(crate) fn report_error(self, error: &AppError) -> Exit {
        let AppError { kind, message, hint, diagnostics } = error;
        if !diagnostics.is_empty() {
            self.report_diagnostics(diagnostics);
        }
        if !message.is_empty() {
            self.report_message(message, hint.as_deref());
        }
        Exit::from(*kind)
    }

    fn report_diagnostics(self, diagnostics: &[Diagnostic]) {
        if self.is_json() {
            let objects: Vec<_> = diagnostics.iter().map(render::render_json).collect();
            return self.print_json(&json!({"valid": false, "diagnostics": objects}));
        }
        self.print_diagnostics(diagnostics);
    }

    fn report_message(self, message: &str, hint: Option<&str>) {
        if self.is_json() {
            return self.print_json(&json!({"error": {"message": message, "hint": hint}}));
        }
        let word = self.paint_errors.error("error");
        let hint = hint.map(|hint| format!("\n  = help: {hint}")).unwrap_or_default();
        let text = format!("{word}: {message}{hint}\n");
        write_text(io::stderr().lock(), &sanitize_text(&text, self.paint_errors));
    }
}

impl OperationObserver for CliOutput {
    fn warn(&self, message: &str) {
        CliOutput::warn(*self, message);
    }

    fn warn_person(&self, message: &str) {
        if !self.is_json() {
            CliOutput::warn(*self, message);
        }
    }

    fn warn_diagnostics(&self, diagnostics: &[&Diagnostic]) {
        if !self.is_json() {
            self.print_diagnostics(diagnostics.iter().copied());
        }
    }
}

/// True if output was lost for another reason than a closed pipe.
static LOST: AtomicBool = AtomicBool::new(false);

/// True if a reader closed its end of a pipe.
static LEFT: AtomicBool = AtomicBool::new(false);

/// Writes text and flushes it. A closed pipe is not an error and does not change the exit status. Any other failure,
/// such as a full disk, is reported once; a run continues all the same.
fn write_text(mut to: impl Write, text: &str) {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        Err(error) if is_broken_pipe(&error) => LEFT.store(true, Ordering::Relaxed),
        Err(error) if !LOST.swap(true, Ordering::Relaxed) => {
            let _ = writeln!(io::stderr(), "error: the output cannot be written: {error}");
        }
        _ => {}
    }
}

/// Returns true if nobody reads the output any more, so that a command that only shows something may end.
pub(crate) fn is_unread() -> bool {
    LEFT.load(Ordering::Relaxed) || LOST.load(Ordering::Relaxed)
}

/// Returns the exit status of a command: `exit`, unless a part of its output could not be written.
pub(crate) fn final_exit(exit: Exit) -> Exit {
    let lost = LOST.load(Ordering::Relaxed);
    if lost && exit == Exit::Done { Exit::Broken } else { exit }
}

/// Returns true if the reader closed its end of the pipe.
pub(crate) fn is_broken_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// Replaces the characters that would control a terminal: the text of a workflow is untrusted, and could move the
/// cursor, hide a line or reverse the direction of reading. Our own colours stay if there are any.
pub(crate) fn sanitize_text(text: &str, paint: Paint) -> String {
    let turns =
        |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut shown = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        let is_safe = match c {
            '\n' | '\t' => true,
            '\u{1b}' => paint.0 && is_colour(&text[at + 1..]),
            c => !c.is_control() && !turns(c),
        };
        shown.push(if is_safe { c } else { '\u{fffd}' });
    }
    shown
}

/// Returns true if the text after an escape character sets a colour and does nothing else.
fn is_colour(rest: &str) -> bool {
    let Some(rest) = rest.strip_prefix('[') else { return false };
    rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('m')
}

fn wants_colour(terminal: bool) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Colours, if they are enabled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint(pub bool);

impl Paint {
    pub(crate) fn apply_style(self, style: Style, text: &str) -> String {
        if self.0 { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    pub(crate) fn title(self, text: &str) -> String {
        self.apply_style(Style::new().bold(), text)
    }

    pub(crate) fn name(self, text: &str) -> String {
        self.apply_style(AnsiColor::Cyan.on_default().bold(), text)
    }

    pub(crate) fn faint(self, text: &str) -> String {
        self.apply_style(Style::new().dimmed(), text)
    }

    pub(crate) fn good(self, text: &str) -> String {
        self.apply_style(AnsiColor::Green.on_default().bold(), text)
    }

    pub(crate) fn warning(self, text: &str) -> String {
        self.apply_style(AnsiColor::Yellow.on_default().bold(), text)
    }

    pub(crate) fn error(self, text: &str) -> String {
        self.apply_style(AnsiColor::Red.on_default().bold(), text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_given_nothing_to_obey() {
        let text = "a\tb\n\u{1b}[31mred\u{1b}[0m \u{1b}[2J \u{1b}]0;title\u{7} \r \u{202e}abc \u{9b}1m";
        let plain =
            "a\tb\n\u{fffd}[31mred\u{fffd}[0m \u{fffd}[2J \u{fffd}]0;title\u{fffd} \u{fffd} \u{fffd}abc \u{fffd}1m";
        assert_eq!(sanitize_text(text, Paint(false)), plain);
        let painted = plain.replace("\u{fffd}[31m", "\u{1b}[31m").replace("\u{fffd}[0m", "\u{1b}[0m");
        assert_eq!(sanitize_text(text, Paint(true)), painted);
    }
}
