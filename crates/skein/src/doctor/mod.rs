//! `skein doctor`: checks the setup of this machine for running workflows.
//!
//! Owns the findings and their output. Each module checks one area and returns its findings; none of them prints, makes
//! lasting changes, or waits without a limit. Findings never contain the value of a secret.

mod agents;
mod journal;
mod limits;
mod programs;
mod project;
mod sandbox;
mod state;
mod sync;
mod terminal;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use self::{programs::VersionProbes, project::ProjectFindings, state::StateLocation};
use crate::{exit::Exit, live::one_line, output::CliOutput};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DoctorLevel {
    Ok,
    Warning,
    Problem,
}

impl DoctorLevel {
    fn label(self) -> &'static str {
        match self {
            DoctorLevel::Ok => "ok",
            DoctorLevel::Warning => "warning",
            DoctorLevel::Problem => "problem",
        }
    }
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoctorFinding {
    /// The subject of the check.
    pub name: String,
    pub level: DoctorLevel,
    pub message: String,
    /// A hint on fixing it.
    pub hint: Option<String>,
}

impl DoctorFinding {
    pub fn ok(name: &str, message: impl Into<String>) -> DoctorFinding {
        DoctorFinding { name: name.to_owned(), level: DoctorLevel::Ok, message: message.into(), hint: None }
    }

    pub fn warning(name: &str, message: impl Into<String>, hint: impl Into<String>) -> DoctorFinding {
        DoctorFinding {
            level: DoctorLevel::Warning,
            hint: Some(hint.into()),
            ..DoctorFinding::ok(name, message)
        }
    }

    pub fn problem(name: &str, message: impl Into<String>, hint: impl Into<String>) -> DoctorFinding {
        DoctorFinding {
            level: DoctorLevel::Problem,
            hint: Some(hint.into()),
            ..DoctorFinding::ok(name, message)
        }
    }
}

/// The findings of one area, with its title.
type DoctorSection = (&'static str, Vec<DoctorFinding>);

/// Runs all checks, and prints the findings.
pub fn run_checks(given: Option<&Path>, output: CliOutput) -> Exit {
    let areas = collect_sections(given, output);
    let worst = areas.iter().flat_map(|(_, findings)| findings).map(|finding| finding.level).max();
    if output.is_json() {
        output.print_json(&sections_to_json(&areas, worst));
    } else {
        output.print_text(&render_sections(&areas, output));
    }
    if worst == Some(DoctorLevel::Problem) { Exit::Broken } else { Exit::Done }
}

fn collect_sections(given: Option<&Path>, output: CliOutput) -> Vec<DoctorSection> {
    let ProjectFindings { project, root, findings: about_project } = project::check_project();
    let home = StateLocation::locate(given, &root);
    let mut about_state = state::check_state_folder(&home);
    about_state.extend(sync::check_sync(&home));
    let (about_journal, newest) = journal::check_journal(&home);
    let config = project.as_ref().map(|project| &project.config);
    // All programs are started at once, each with its own time limit.
    let probes = VersionProbes::start_all(&root, programs::version_queries(config));
    let answers = probes.wait_all();
    vec![
        ("Project", about_project),
        ("State", about_state),
        ("Journal", about_journal),
        ("Programs", programs::check_programs(&answers)),
        ("Agents", agents::check_agents(&answers, config)),
        ("Sandbox", sandbox::check_sandbox(config)),
        ("System", limits::check_limits(config, newest)),
        ("Terminal", terminal::check_terminal(output)),
    ]
}

fn sections_to_json(areas: &[DoctorSection], worst: Option<DoctorLevel>) -> Value {
    let finding = |area: &str, finding: &DoctorFinding| {
        json!({"area": area.to_lowercase(), "name": finding.name, "level": finding.level.label(),
               "message": finding.message, "hint": finding.hint})
    };
    let findings = areas.iter().flat_map(|(area, all)| all.iter().map(move |one| finding(area, one)));
    let findings: Vec<Value> = findings.collect();
    json!({"version": env!("CARGO_PKG_VERSION"), "healthy": worst != Some(DoctorLevel::Problem), "findings": findings})
}

fn render_sections(areas: &[DoctorSection], output: CliOutput) -> String {
    let all = || areas.iter().flat_map(|(_, findings)| findings);
    let width = all().map(|finding| finding.name.width()).max().unwrap_or_default();
    let mut text = String::new();
    for (area, findings) in areas.iter().filter(|(_, findings)| !findings.is_empty()) {
        text += &format!("{}\n", output.paint.title(area));
        text.extend(findings.iter().map(|finding| render_finding(finding, width, output)));
        text.push('\n');
    }
    let count = |level| all().filter(|finding| finding.level == level).count();
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

/// Formats a number of bytes for people.
fn format_bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let (mut n, mut unit) = (n as f64, 0);
    while n >= 1024.0 && unit < UNITS.len() - 1 {
        (n, unit) = (n / 1024.0, unit + 1);
    }
    if unit == 0 || n >= 100.0 {
        format!("{n:.0} {}", UNITS[unit])
    } else {
        format!("{n:.1} {}", UNITS[unit])
    }
}

/// A temporary file, removed when this is dropped.
struct TrialFile(PathBuf);

impl TrialFile {
    fn new(folder: &Path) -> TrialFile {
        TrialFile(folder.join(format!(".skein-doctor-{}", skein_host::host::new_run_id())))
    }
}

impl Drop for TrialFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_as_people_say_them() {
        let told = [0, 1023, 1024, 1536, 200 << 20, 3 << 30, u64::MAX].map(format_bytes);
        assert_eq!(
            told,
            ["0 bytes", "1023 bytes", "1.0 KiB", "1.5 KiB", "200 MiB", "3.0 GiB", "16777216 TiB"]
        );
    }

    #[test]
    fn the_last_line_counts_what_was_found() {
        assert_eq!(render_summary(0, 0), "No problems found.\n");
        assert_eq!(render_summary(0, 1), "No problems found; 1 warning.\n");
        assert_eq!(render_summary(2, 1), "2 problems, 1 warning.\n");
        assert_eq!(render_summary(1, 0), "1 problem.\n");
    }
}
