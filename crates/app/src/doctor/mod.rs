//! Checks of the setup of this machine for running workflows.
//!
//! Owns the findings. Each module checks one area and returns its findings; none of them prints, makes
//! lasting changes, or waits without a limit. Findings never contain the value of a secret.

mod agents;
mod journal;
mod limits;
mod programs;
mod project;
mod sandbox;
mod state;
mod sync;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use skein_host::store::StateRegistry;

use self::{programs::VersionProbes, project::ProjectFindings, state::StateLocation};
use crate::{
    app::App,
    app_error::AppError,
    state::{StateAdmissionError, check_link},
};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DoctorLevel {
    Ok,
    Warning,
    Problem,
}

impl DoctorLevel {
    pub fn label(self) -> &'static str {
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
        DoctorFinding { level: DoctorLevel::Warning, hint: Some(hint.into()), ..DoctorFinding::ok(name, message) }
    }

    pub fn problem(name: &str, message: impl Into<String>, hint: impl Into<String>) -> DoctorFinding {
        DoctorFinding { level: DoctorLevel::Problem, hint: Some(hint.into()), ..DoctorFinding::ok(name, message) }
    }
}

/// The findings of one area, with its title.
pub type DoctorSection = (&'static str, Vec<DoctorFinding>);

/// The findings about this machine, by area.
#[derive(Debug)]
pub struct DoctorReport {
    pub sections: Vec<DoctorSection>,
}

/// Checks everything that does not depend on the front end.
pub fn check_setup(app: &App) -> DoctorReport {
    let ProjectFindings { project, root, findings: about_project } = project::check_project(app.project_root());
    let home = StateLocation::locate(app.state.as_deref(), &root);
    let mut about_state = state::check_state_folder(&home);
    about_state.extend(sync::check_sync(&home));
    let (about_journal, newest) = journal::check_journal(&home);
    let config = project.as_ref().map(|project| &project.config);
    // All programs are started at once, each with its own time limit.
    let probes = VersionProbes::start_all(&root, programs::version_queries(config));
    let answers = probes.wait_all();
    let sections = vec![
        ("Project", about_project),
        ("State", about_state),
        ("Journal", about_journal),
        ("Programs", programs::check_programs(&answers)),
        ("Agents", agents::check_agents(&answers, config)),
        ("Sandbox", sandbox::check_sandbox(config)),
        ("System", limits::check_limits(config, newest)),
    ];
    DoctorReport { sections }
}

/// Registers the state folder as one of this user's own.
pub fn trust_state_folder(app: &App) -> Result<(), AppError> {
    let path = app.state_path();
    let accept = || {
        check_link(app.state.as_deref(), &path)?;
        Ok(StateRegistry::from_environment().accept(&path)?)
    };
    accept().map_err(|why: StateAdmissionError| AppError::refused(why.to_string()))
}

impl DoctorReport {
    pub fn findings(&self) -> impl Iterator<Item = &DoctorFinding> {
        self.sections.iter().flat_map(|(_, findings)| findings)
    }

    pub fn is_healthy(&self) -> bool {
        self.findings().all(|finding| finding.level != DoctorLevel::Problem)
    }

    pub fn to_json(&self) -> Value {
        let to_json = |area: &str, finding: &DoctorFinding| {
            json!({"area": area.to_lowercase(), "name": finding.name, "level": finding.level.label(),
                   "message": finding.message, "hint": finding.hint})
        };
        let findings = self.sections.iter().flat_map(|(area, all)| all.iter().map(|one| to_json(area, one)));
        let findings: Vec<Value> = findings.collect();
        json!({"version": env!("CARGO_PKG_VERSION"), "healthy": self.is_healthy(), "findings": findings})
    }
}

/// Formats a number of bytes for people.
fn format_bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let (mut n, mut unit) = (n as f64, 0);
    while n >= 1024.0 && unit < UNITS.len() - 1 {
        (n, unit) = (n / 1024.0, unit + 1);
    }
    if unit == 0 || n >= 100.0 { format!("{n:.0} {}", UNITS[unit]) } else { format!("{n:.1} {}", UNITS[unit]) }
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
        let formatted = [0, 1023, 1024, 1536, 200 << 20, 3 << 30, u64::MAX].map(format_bytes);
        assert_eq!(formatted, ["0 bytes", "1023 bytes", "1.0 KiB", "1.5 KiB", "200 MiB", "3.0 GiB", "16777216 TiB"]);
    }
}
