//! `skein doctor`: what there is here to run workflows with, and what stands in the way.
//!
//! Owns the findings and how they are told. Each file beside this looks at one thing and tells what it found; none of
//! them changes anything that stays, prints, or waits without an end. No value of a secret is ever in a finding.

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

use self::{programs::Probes, project::Looked, state::Home};
use crate::{exit::Exit, live::one_line, output::Output};

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Ok,
    Warning,
    Problem,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Problem => "problem",
        }
    }
}

/// What was found out about one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is about.
    pub name: String,
    pub level: Level,
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Finding {
    pub fn ok(name: &str, message: impl Into<String>) -> Finding {
        Finding { name: name.to_owned(), level: Level::Ok, message: message.into(), hint: None }
    }

    pub fn warning(name: &str, message: impl Into<String>, hint: impl Into<String>) -> Finding {
        Finding { level: Level::Warning, hint: Some(hint.into()), ..Finding::ok(name, message) }
    }

    pub fn problem(name: &str, message: impl Into<String>, hint: impl Into<String>) -> Finding {
        Finding { level: Level::Problem, hint: Some(hint.into()), ..Finding::ok(name, message) }
    }
}

/// What belongs together.
type Area = (&'static str, Vec<Finding>);

/// Looks at everything, and tells it.
pub fn look(given: Option<&Path>, output: Output) -> Exit {
    let areas = areas(given, output);
    let worst = areas.iter().flat_map(|(_, findings)| findings).map(|finding| finding.level).max();
    if output.is_json() {
        output.json(&object(&areas, worst));
    } else {
        output.text(&text(&areas, output));
    }
    if worst == Some(Level::Problem) { Exit::Broken } else { Exit::Done }
}

fn areas(given: Option<&Path>, output: Output) -> Vec<Area> {
    let Looked { project, root, findings: about_project } = project::look();
    let home = Home::of(given, &root);
    let mut about_state = state::look(&home);
    about_state.extend(sync::look(&home));
    let (about_journal, newest) = journal::look(&home);
    let config = project.as_ref().map(|project| &project.config);
    // All programs are asked at once, and each has its own time.
    let probes = Probes::start(&root, programs::wanted(config));
    let answers = probes.answers();
    vec![
        ("Project", about_project),
        ("State", about_state),
        ("Journal", about_journal),
        ("Programs", programs::look(&answers)),
        ("Agents", agents::look(&answers, config)),
        ("Sandbox", sandbox::look(config)),
        ("System", limits::look(config, newest)),
        ("Terminal", terminal::look(output)),
    ]
}

fn object(areas: &[Area], worst: Option<Level>) -> Value {
    let finding = |area: &str, finding: &Finding| {
        json!({"area": area.to_lowercase(), "name": finding.name, "level": finding.level.word(),
               "message": finding.message, "hint": finding.hint})
    };
    let findings = areas.iter().flat_map(|(area, all)| all.iter().map(move |one| finding(area, one)));
    let findings: Vec<Value> = findings.collect();
    json!({"version": env!("CARGO_PKG_VERSION"), "healthy": worst != Some(Level::Problem), "findings": findings})
}

fn text(areas: &[Area], output: Output) -> String {
    let all = || areas.iter().flat_map(|(_, findings)| findings);
    let width = all().map(|finding| finding.name.width()).max().unwrap_or_default();
    let mut text = String::new();
    for (area, findings) in areas.iter().filter(|(_, findings)| !findings.is_empty()) {
        text += &format!("{}\n", output.paint.title(area));
        text.extend(findings.iter().map(|finding| lines(finding, width, output)));
        text.push('\n');
    }
    let count = |level| all().filter(|finding| finding.level == level).count();
    text + &summary(count(Level::Problem), count(Level::Warning))
}

fn lines(finding: &Finding, width: usize, output: Output) -> String {
    let word = format!("{:7}", finding.level.word());
    let word = match finding.level {
        Level::Ok => output.paint.good(&word),
        Level::Warning => output.paint.warning(&word),
        Level::Problem => output.paint.error(&word),
    };
    let pad = " ".repeat(width.saturating_sub(finding.name.width()));
    let name = output.paint.name(&finding.name);
    let hint = finding.hint.as_ref().map(|hint| format!("  {:7}  {:width$}  → {}\n", "", "", one_line(hint)));
    format!("  {word}  {name}{pad}  {}\n{}", one_line(&finding.message), hint.unwrap_or_default())
}

fn summary(problems: usize, warnings: usize) -> String {
    let many = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    match (problems, warnings) {
        (0, 0) => "All is well.\n".to_owned(),
        (0, warnings) => format!("Nothing stands in the way; {}.\n", many(warnings, "warning")),
        (problems, 0) => format!("{}.\n", many(problems, "problem")),
        (problems, warnings) => format!("{}, {}.\n", many(problems, "problem"), many(warnings, "warning")),
    }
}

/// So many bytes, as a person says it.
fn bytes(n: u64) -> String {
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

/// A file of our own for a moment, gone when this is dropped.
struct Trial(PathBuf);

impl Trial {
    fn within(folder: &Path) -> Trial {
        Trial(folder.join(format!(".skein-doctor-{}", skein_host::host::new_id())))
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_as_people_say_them() {
        let told = [0, 1023, 1024, 1536, 200 << 20, 3 << 30, u64::MAX].map(bytes);
        assert_eq!(
            told,
            ["0 bytes", "1023 bytes", "1.0 KiB", "1.5 KiB", "200 MiB", "3.0 GiB", "16777216 TiB"]
        );
    }

    #[test]
    fn the_last_line_counts_what_was_found() {
        assert_eq!(summary(0, 0), "All is well.\n");
        assert_eq!(summary(0, 1), "Nothing stands in the way; 1 warning.\n");
        assert_eq!(summary(2, 1), "2 problems, 1 warning.\n");
        assert_eq!(summary(1, 0), "1 problem.\n");
    }
}
