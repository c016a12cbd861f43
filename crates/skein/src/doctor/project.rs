//! The project: where it begins, whether what it says is right, and whether what it names is there.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use skein_host::secret::{From, Secrets};

use super::Finding;
use crate::{
    config::{self, Config},
    project::OnDisk,
};

/// What a look at the project found.
pub struct Looked {
    /// None if what it says is wrong.
    pub project: Option<OnDisk>,
    pub root: PathBuf,
    pub findings: Vec<Finding>,
}

pub fn look() -> Looked {
    let root = OnDisk::root();
    let mut findings = vec![place(&root)];
    let project = match OnDisk::open(root.clone()) {
        Ok(project) => Some(project),
        Err(wrong) => {
            let line = wrong.place().source.position(wrong.place().span.start).line;
            let message = format!("{}, at {}:{line}", wrong.message, wrong.place().source.name);
            let hint = wrong
                .hint
                .clone()
                .unwrap_or_else(|| format!("`skein explain {}` says more", wrong.code.as_str()));
            findings.push(Finding::problem(config::NAME, message, hint));
            None
        }
    };
    if let Some(project) = &project {
        findings.extend(said(project));
    }
    Looked { project, root, findings }
}

/// Where it is, and why there.
fn place(root: &Path) -> Finding {
    let why = if root.join(config::NAME).is_file() {
        "because a skein.toml is there"
    } else if root.join(".git").exists() {
        "because a .git is there"
    } else {
        "the current folder, because there is no skein.toml and no .git above"
    };
    Finding::ok("folder", format!("{}: {why}", root.display()))
}

fn said(project: &OnDisk) -> Vec<Finding> {
    let config = &project.config;
    let file = project.root.join(config::NAME);
    let message = if file.is_file() { "right, as far as its form goes" } else { "none, and none is needed" };
    let mut findings = vec![Finding::ok(config::NAME, message)];
    findings.extend(secrets(project));
    for root in &config.roots {
        if !project.root.join(root).is_dir() {
            let message = format!("`{root}` of `roots` is not a folder");
            findings.push(Finding::warning("roots", message, "correct it, or take it out of skein.toml"));
        }
    }
    findings.extend(config.agents.iter().filter_map(|(name, agent)| nobody(name, agent, config)));
    findings
}

/// Whether each can be had. A value is read, and forgotten at once.
fn secrets(project: &OnDisk) -> Vec<Finding> {
    let from = |secret: &config::Secret| match secret {
        config::Secret::Env(variable) => From::Env(variable.clone()),
        config::Secret::File(path) => From::File(project.root.join(path)),
    };
    let one = |(name, secret): (&String, &config::Secret)| {
        let alone = BTreeMap::from([(name.clone(), from(secret))]);
        match Secrets::load(&alone) {
            Ok(_) => Finding::ok("secrets", format!("`{name}` can be had from {}", from(secret))),
            Err(errors) => {
                let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
                let hint = format!("steps that ask for `{name}` are refused until it can be had");
                Finding::warning("secrets", told.join("; "), hint)
            }
        }
    };
    project.config.secrets.iter().map(one).collect()
}

/// An agent that nobody is.
fn nobody(name: &str, agent: &config::Agent, config: &Config) -> Option<Finding> {
    let message = match agent.worker.as_ref().or(config.default_worker.as_ref()) {
        None => format!("nobody is the agent `{name}`: it has no `worker`, and there is no `default_worker`"),
        Some(worker) if worker == "CUSTOM" && agent.command.is_empty() => {
            format!("the agent `{name}` is CUSTOM and has no `command`")
        }
        Some(_) => return None,
    };
    Some(Finding::warning("agents", message, format!("say in `[agents.{name}]` of skein.toml who it is")))
}
