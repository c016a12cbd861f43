//! `skein doctor`: checks the setup of this machine for running workflows.

use std::{
    env,
    io::{self, IsTerminal},
};

use rustix::termios::tcgetwinsize;
use skein_app::{
    app::App,
    app_error::AppError,
    doctor::{self, DoctorFinding, DoctorLevel, DoctorReport},
};
use unicode_width::UnicodeWidthStr;

use crate::{
    exit::Exit,
    render::{live::one_line, output::CliOutput},
};

#[derive(Debug, clap::Args)]
pub(super) struct DoctorArguments {
    /// Accept a state folder that was copied, restored or created by an older version
    #[arg(long)]
    trust_state: bool,
}

pub(super) fn run(arguments: &DoctorArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    if arguments.trust_state {
        doctor::trust_state_folder(app)?;
    }
    let mut report = doctor::check_setup(app);
    report.sections.push(("Terminal", check_terminal(output)));
    output.print_result(|| report.to_json(), || render_sections(&report, output));
    Ok(if report.is_healthy() { Exit::Done } else { Exit::Broken })
}

fn render_sections(report: &DoctorReport, output: CliOutput) -> String {
    let width = report.findings().map(|finding| finding.name.width()).max().unwrap_or_default();
    let mut text = String::new();
    for (area, findings) in report.sections.iter().filter(|(_, findings)| !findings.is_empty()) {
        text += &format!("{}\n", output.paint.title(area));
        text.extend(findings.iter().map(|finding| render_finding(finding, width, output)));
        text.push('\n');
    }
    let count = |level| report.findings().filter(|finding| finding.level == level).count();
    text + &render_summary(count(DoctorLevel::Problem), count(DoctorLevel::Warning))
}

fn render_finding(finding: &DoctorFinding, width: usize, output: CliOutput) -> String {
    let word = format!("{:7}", finding.level.label());
    let word = match finding.level {
        DoctorLevel::Ok => output.paint.good(&word),
        DoctorLevel::Warning => output.paint.warning(&word),
        DoctorLevel::Problem => output.paint.error(&word),
    };
    let pad = " ".repeat(width.saturating_sub(finding.name.width()));
    let name = output.paint.name(&finding.name);
    let hint = finding.hint.as_ref().map(|hint| format!("  {:7}  {:width$}  → {}\n", "", "", one_line(hint)));
    format!("  {word}  {name}{pad}  {}\n{}", one_line(&finding.message), hint.unwrap_or_default())
}

fn render_summary(problems: usize, warnings: usize) -> String {
    let many = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    match (problems, warnings) {
        (0, 0) => "No problems found.\n".to_owned(),
        (0, warnings) => format!("No problems found; {}.\n", many(warnings, "warning")),
        (problems, 0) => format!("{}.\n", many(problems, "problem")),
        (problems, warnings) => format!("{}, {}.\n", many(problems, "problem"), many(warnings, "warning")),
    }
}

/// With fewer columns, most lines are cut.
const NARROW: u16 = 60;

/// Checks the terminal: its size, its colours, and its character encoding.
fn check_terminal(output: CliOutput) -> Vec<DoctorFinding> {
    vec![check_size(), check_colour(output), check_encoding()]
}

fn check_size() -> DoctorFinding {
    if !io::stdout().is_terminal() {
        return DoctorFinding::ok(
            "size",
            "standard output is not a terminal: a run is shown line by line, without prompts",
        );
    }
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col == 0 => DoctorFinding::ok("size", "unknown: a run is shown line by line"),
        Ok(size) if size.ws_col < NARROW => {
            let message = format!("{} columns, {} rows", size.ws_col, size.ws_row);
            DoctorFinding::warning("size", message, format!("use at least {NARROW} columns to see whole lines"))
        }
        Ok(size) => DoctorFinding::ok("size", format!("{} columns, {} rows", size.ws_col, size.ws_row)),
        Err(error) => DoctorFinding::ok("size", format!("unknown: {error}")),
    }
}

fn check_colour(output: CliOutput) -> DoctorFinding {
    let set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    let message = match output.paint.0 {
        true => "on",
        false if set("NO_COLOR") => "off, because NO_COLOR is set",
        false if env::var_os("TERM").is_some_and(|term| term == "dumb") => "off, because TERM is `dumb`",
        false => "off, because standard output is not a terminal",
    };
    DoctorFinding::ok("colour", message)
}

/// Reports the encoding. The first of these variables that is set counts.
fn check_encoding() -> DoctorFinding {
    let named = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| {
        let value = env::var(name).ok().filter(|value| !value.is_empty())?;
        Some((*name, value))
    });
    match named {
        Some((name, value)) if !value.to_lowercase().replace('-', "").contains("utf8") => {
            let hint = format!("`{name}=C.UTF-8`, if lines and dots look wrong");
            DoctorFinding::warning("letters", format!("{name} is `{value}`, which is not UTF-8"), hint)
        }
        Some((name, value)) => DoctorFinding::ok("letters", format!("{name} is `{value}`")),
        None => DoctorFinding::ok("letters", "no LANG is set; UTF-8 is printed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_what_was_found() {
        assert_eq!(render_summary(0, 0), "No problems found.\n");
        assert_eq!(render_summary(0, 1), "No problems found; 1 warning.\n");
        assert_eq!(render_summary(2, 1), "2 problems, 1 warning.\n");
        assert_eq!(render_summary(1, 0), "1 problem.\n");
    }
}
