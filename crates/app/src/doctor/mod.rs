//! Checks of the setup of this machine for running workflows.
//!
//! Owns the findings and the checks of the project: its root, the validity of its configuration, and the existence of
//! everything that it names. `state` checks the state folder and its journal, `machine` everything else. No check prints,
//! makes lasting changes, or waits without a limit. Findings never contain the value of a secret.

mod machine;
mod state;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use skein_host::{secret::Secrets, store::StateRegistry};

use self::state::StateLocation;
use crate::{
    app::App,
    app_error::AppError,
    prepare::secret_source,
    project::{
        DiskProject,
        config::{self, ProjectConfig},
    },
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
pub(crate) type DoctorSection = (&'static str, Vec<DoctorFinding>);

/// The findings about this machine, by area.
#[derive(Debug)]
pub struct DoctorReport {
    pub sections: Vec<DoctorSection>,
}

/// Checks everything that does not depend on the front end.
pub fn check_setup(app: &App) -> DoctorReport {
    let root = app.project_root();
    let (project, project_findings) = check_project(&root);
    let home = StateLocation::locate(app.state.as_deref(), &root);
    let mut state_findings = state::check_state_folder(&home);
    state_findings.extend(state::check_sync(&home));
    let (journal_findings, newest) = state::check_journal(&home);
    let config = project.as_ref().map(|project| &project.config);
    let answers = machine::query_versions(&root, config);
    let sections = vec![
        ("Project", project_findings),
        ("State", state_findings),
        ("Journal", journal_findings),
        ("Programs", machine::check_programs(&answers)),
        ("Agents", machine::check_agents(&answers, config)),
        ("Sandbox", machine::check_sandbox(config)),
        ("System", machine::check_limits(config, newest)),
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

/// Returns the project, if its configuration is valid, and the findings about it.
fn check_project(root: &Path) -> (Option<DiskProject>, Vec<DoctorFinding>) {
    let mut findings = vec![root_finding(root)];
    match DiskProject::open(root.to_owned()) {
        Ok(project) => {
            findings.extend(check_config(&project));
            (Some(project), findings)
        }
        Err(wrong) => {
            let line = wrong.primary_label().source.position(wrong.primary_label().span.start).line;
            let message = format!("{}, at {}:{line}", wrong.message, wrong.primary_label().source.name);
            let hint =
                wrong.hint.clone().unwrap_or_else(|| format!("`skein explain {}` says more", wrong.code.as_str()));
            findings.push(DoctorFinding::problem(config::NAME, message, hint));
            (None, findings)
        }
    }
}

/// Reports the root, and the reason for choosing it.
fn root_finding(root: &Path) -> DoctorFinding {
    let why = if root.join(config::NAME).is_file() {
        "because it contains a skein.toml"
    } else if root.join(".git").exists() {
        "because it contains a .git"
    } else {
        "the current folder, because there is no skein.toml and no .git above"
    };
    DoctorFinding::ok("folder", format!("{}: {why}", root.display()))
}

fn check_config(project: &DiskProject) -> Vec<DoctorFinding> {
    let config = &project.config;
    let file = project.root.join(config::NAME);
    let message = if file.is_file() { "valid" } else { "none; it is optional" };
    let mut findings = vec![DoctorFinding::ok(config::NAME, message)];
    findings.extend(check_secrets(project));
    for root in &config.roots {
        if !project.root.join(root).is_dir() {
            let message = format!("`{root}` of `roots` is not a folder");
            findings.push(DoctorFinding::warning("roots", message, "correct it, or remove it from skein.toml"));
        }
    }
    findings.extend(config.agents.iter().filter_map(|(name, agent)| check_agent(name, agent, config)));
    findings
}

/// Checks that each secret is available. A value is read, and dropped at once.
fn check_secrets(project: &DiskProject) -> Vec<DoctorFinding> {
    let one = |(name, secret): (&String, &config::SecretSourceConfig)| {
        let source = secret_source(secret, &project.root);
        match Secrets::load(&BTreeMap::from([(name.clone(), source.clone())])) {
            Ok(_) => DoctorFinding::ok("secrets", format!("`{name}` is available from {source}")),
            Err(errors) => {
                let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
                let hint = format!("steps that use `{name}` are refused until it is available");
                DoctorFinding::warning("secrets", messages.join("; "), hint)
            }
        }
    };
    project.config.secrets.iter().map(one).collect()
}

/// Reports an agent without a program.
fn check_agent(name: &str, agent: &config::AgentConfig, config: &ProjectConfig) -> Option<DoctorFinding> {
    let message = match agent.worker.as_ref().or(config.default_worker.as_ref()) {
        None => {
            format!("agent `{name}` is not configured: it has no `worker`, and there is no `default_worker`")
        }
        Some(worker) if worker == config::CUSTOM && agent.command.is_empty() => {
            format!("the agent `{name}` is CUSTOM and has no `command`")
        }
        Some(_) => return None,
    };
    Some(DoctorFinding::warning("agents", message, format!("configure it in `[agents.{name}]` of skein.toml")))
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
