//! Checks of the project: its root, the validity of its configuration, and the existence of everything that it names.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use skein_host::secret::{SecretSource, Secrets};

use super::DoctorFinding;
use crate::project::{
    DiskProject,
    config::{self, ProjectConfig},
};

/// The project and the findings about it.
pub struct ProjectFindings {
    /// None if its configuration is invalid.
    pub project: Option<DiskProject>,
    pub root: PathBuf,
    pub findings: Vec<DoctorFinding>,
}

pub fn check_project(root: PathBuf) -> ProjectFindings {
    let mut findings = vec![root_finding(&root)];
    let project = match DiskProject::open(root.clone()) {
        Ok(project) => Some(project),
        Err(wrong) => {
            let line = wrong.primary_label().source.position(wrong.primary_label().span.start).line;
            let message = format!("{}, at {}:{line}", wrong.message, wrong.primary_label().source.name);
            let hint =
                wrong.hint.clone().unwrap_or_else(|| format!("`skein explain {}` says more", wrong.code.as_str()));
            findings.push(DoctorFinding::problem(config::NAME, message, hint));
            None
        }
    };
    if let Some(project) = &project {
        findings.extend(check_config(project));
    }
    ProjectFindings { project, root, findings }
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
    let from = |secret: &config::SecretSourceConfig| match secret {
        config::SecretSourceConfig::Env(variable) => SecretSource::Env(variable.clone()),
        config::SecretSourceConfig::File(path) => SecretSource::File(project.root.join(path)),
    };
    let one = |(name, secret): (&String, &config::SecretSourceConfig)| {
        let alone = BTreeMap::from([(name.clone(), from(secret))]);
        match Secrets::load(&alone) {
            Ok(_) => DoctorFinding::ok("secrets", format!("`{name}` is available from {}", from(secret))),
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
        Some(worker) if worker == "CUSTOM" && agent.command.is_empty() => {
            format!("the agent `{name}` is CUSTOM and has no `command`")
        }
        Some(_) => return None,
    };
    Some(DoctorFinding::warning("agents", message, format!("configure it in `[agents.{name}]` of skein.toml")))
}
