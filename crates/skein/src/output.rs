//! Where output goes: text for people with colour only on a terminal, one JSON value for programs.

use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use serde_json::Value;
use skein_dialects::{Diagnostic, render};

use crate::exit::Exit;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    #[default]
    Human,
    Json,
}

/// Standard output and standard error, and how to write on them.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    pub format: Format,
    pub paint: Paint,
    paint_errors: Paint,
}

impl Output {
    pub fn new(format: Format) -> Output {
        let paint_errors = Paint(wants_colour(io::stderr().is_terminal()));
        Output { format, paint: Paint(wants_colour(io::stdout().is_terminal())), paint_errors }
    }

    pub fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// What was asked for.
    pub fn text(self, text: &str) {
        write(io::stdout().lock(), text);
    }

    pub fn json(self, value: &Value) {
        let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
        text.push('\n');
        self.text(&text);
    }

    /// Diagnostics for people, on standard error.
    pub fn diagnostics<'a>(self, diagnostics: impl IntoIterator<Item = &'a Diagnostic>) {
        let mut errors = io::stderr().lock();
        for diagnostic in diagnostics {
            write(&mut errors, &render::human(diagnostic, self.paint_errors.0));
            write(&mut errors, "\n\n");
        }
    }

    /// A command that cannot do what was asked, in one line and what to do about it.
    pub fn refuse(self, exit: Exit, message: &str, hint: Option<&str>) -> Exit {
        if self.is_json() {
            self.json(&serde_json::json!({"error": {"message": message, "hint": hint}}));
            return exit;
        }
        let word = self.paint_errors.error("error");
        let hint = hint.map(|hint| format!("\n  = help: {hint}")).unwrap_or_default();
        write(io::stderr().lock(), &format!("{word}: {message}{hint}\n"));
        exit
    }
}

/// A reader that went away wants no more, and that is no error.
fn write(mut to: impl Write, text: &str) {
    if to.write_all(text.as_bytes()).and_then(|()| to.flush()).is_err() {
        std::process::exit(i32::from(Exit::Done as u8));
    }
}

fn wants_colour(terminal: bool) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Colours, or none.
#[derive(Debug, Clone, Copy)]
pub struct Paint(bool);

impl Paint {
    #[cfg(test)]
    pub const PLAIN: Paint = Paint(false);

    fn with(self, style: Style, text: &str) -> String {
        if self.0 { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    pub fn title(self, text: &str) -> String {
        self.with(Style::new().bold(), text)
    }

    pub fn name(self, text: &str) -> String {
        self.with(AnsiColor::Cyan.on_default().bold(), text)
    }

    pub fn faint(self, text: &str) -> String {
        self.with(Style::new().dimmed(), text)
    }

    pub fn warning(self, text: &str) -> String {
        self.with(AnsiColor::Yellow.on_default().bold(), text)
    }

    pub fn error(self, text: &str) -> String {
        self.with(AnsiColor::Red.on_default().bold(), text)
    }
}
