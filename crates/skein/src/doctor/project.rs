//! The project: where it begins, whether what it says is right, and whether what it names is there.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use skein_host::secret::{SecretSource, Secrets};

use super::DoctorFinding;
use crate::{
    config::{self, ProjectConfig},
    project::DiskProject,
};

/// What a look at the project found.
pub struct ProjectFindings {
    /// None if what it says is wrong.
    pub project: Option<DiskProject>,
    pub root: PathBuf,
    pub findings: Vec<DoctorFinding>,
}

pub fn check_project() -> ProjectFindings {
    let root = DiskProject::current_root();
    let mut findings = vec![root_finding(&root)];
    let project = match DiskProject::open(root.clone()) {
        Ok(project) => Some(project),
        Err(wrong) => {
            let line = wrong.primary_label().source.position(wrong.primary_label().span.start).line;
            let message = format!("{}, at {}:{line}", wrong.message, wrong.primary_label().source.name);
            let hint = wrong
                .hint
                .clone()
                .unwrap_or_else(|| format!("`skein explain {}` says more", wrong.code.as_str()));
            findings.push(DoctorFinding::problem(config::NAME, message, hint));
            None
        }
    };
    if let Some(project) = &project {
        findings.extend(check_config(project));
    }
    ProjectFindings { project, root, findings }
}

/// Where it is, and why there.
fn root_finding(root: &Path) -> DoctorFinding {
    let why = if root.join(config::NAME).is_file() {
        "because a skein.toml is there"
    } else if root.join(".git").exists() {
        "because a .git is there"
    } else {
        "the current folder, because there is no skein.toml and no .git above"
    };
    DoctorFinding::ok("folder", format!("{}: {why}", root.display()))
}

fn check_config(project: &DiskProject) -> Vec<DoctorFinding> {
    let config = &project.config;
    let file = project.root.join(config::NAME);
    let message = if file.is_file() { "right, as far as its form goes" } else { "none, and none is needed" };
    let mut findings = vec![DoctorFinding::ok(config::NAME, message)];
    findings.extend(check_secrets(project));
    for root in &config.roots {
        if !project.root.join(root).is_dir() {
            let message = format!("`{root}` of `roots` is not a folder");
            findings.push(DoctorFinding::warning(
                "roots",
                message,
                "correct it, or take it out of skein.toml",
            ));
        }
    }
    findings.extend(config.agents.iter().filter_map(|(name, agent)| check_agent(name, agent, config)));
    findings
}

/// Whether each can be had. A value is read, and forgotten at once.
fn check_secrets(project: &DiskProject) -> Vec<DoctorFinding> {
    let from = |secret: &config::SecretSourceConfig| match secret {
        config::SecretSourceConfig::Env(variable) => SecretSource::Env(variable.clone()),
        config::SecretSourceConfig::File(path) => SecretSource::File(project.root.join(path)),
    };
    let one = |(name, secret): (&String, &config::SecretSourceConfig)| {
        let alone = BTreeMap::from([(name.clone(), from(secret))]);
        match Secrets::load(&alone) {
            Ok(_) => DoctorFinding::ok("secrets", format!("`{name}` can be had from {}", from(secret))),
            Err(errors) => {
                let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
                let hint = format!("steps that ask for `{name}` are refused until it can be had");
                DoctorFinding::warning("secrets", told.join("; "), hint)
            }
        }
    };
    project.config.secrets.iter().map(one).collect()
}

/// An agent that nobody is.
fn check_agent(name: &str, agent: &config::AgentConfig, config: &ProjectConfig) -> Option<DoctorFinding> {
    let message = match agent.worker.as_ref().or(config.default_worker.as_ref()) {
        None => format!("nobody is the agent `{name}`: it has no `worker`, and there is no `default_worker`"),
        Some(worker) if worker == "CUSTOM" && agent.command.is_empty() => {
            format!("the agent `{name}` is CUSTOM and has no `command`")
        }
        Some(_) => return None,
    };
    Some(DoctorFinding::warning(
        "agents",
        message,
        format!("say in `[agents.{name}]` of skein.toml who it is"),
    ))
}
