//! Settling: everything a run needs beyond its plan is looked up before it begins, and stays as it was found.
//!
//! Owns who the agents and tools of a plan are here, which folders its steps may work in and which secrets they have.
//! What cannot be had is told all at once, and nothing begins.

use std::path::{Path, PathBuf};

use skein_core::{
    ir::{GateTimeout, Kind, Step, Work, Worker},
    plan::Plan,
};
use skein_host::{
    crew::{About, Agent, Tool},
    secret,
    workspace::Grants,
};

use crate::{
    config::{self, Config},
    project::OnDisk,
    tools::{Drivers, Wanted},
};

/// The worker that is a program of the project's own.
const CUSTOM: &str = "CUSTOM";

/// What someone said about this run.
#[derive(Debug)]
pub struct Wishes<'a> {
    pub source: &'a str,
    pub workspace: Option<&'a Path>,
    pub allowed: &'a [PathBuf],
    pub state: &'a Path,
    pub user: String,
}

/// Everything about a run, or all that stands in its way.
pub fn settle(plan: &Plan, project: &OnDisk, wishes: Wishes<'_>) -> Result<About, Vec<String>> {
    let config = &project.config;
    let workspace = wishes.workspace.map_or_else(|| project.root.clone(), Path::to_owned);
    let roots = roots(project, config, wishes.allowed);
    let grants = Grants::new(&project.root, &workspace, &roots, Some(wishes.state));
    let grants = grants.map_err(|error| vec![error.to_string()])?;
    let mut about = About {
        source: wishes.source.to_owned(),
        project: project.root.clone(),
        workspace: grants.workspace().to_owned(),
        roots,
        user: wishes.user,
        agents: Default::default(),
        tools: Default::default(),
        secrets: Default::default(),
        pass_env: config.pass_env.clone(),
        writes: writes(project, config),
        allow_unenforced: config.allow_unenforced,
    };
    let mut problems = Vec::new();
    let drivers = Drivers::of(project);
    for step in plan.definition.scopes.iter().flat_map(|entry| &entry.scope.steps) {
        let own = Settle {
            project,
            config,
            drivers: &drivers,
            grants: &grants,
            about: &mut about,
            problems: &mut problems,
        };
        own.step(step);
    }
    problems.sort();
    problems.dedup();
    if problems.is_empty() { Ok(about) } else { Err(problems) }
}

/// Real paths, because a link could lead elsewhere when it is used. `~` is the home of whoever begins the run.
fn writes(project: &OnDisk, config: &Config) -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let whole = |given: &String| match given.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None => project.root.join(given),
    };
    config.writes.iter().filter_map(|given| std::fs::canonicalize(whole(given)).ok()).collect()
}

/// Folders of the configuration start in the project, those of the command line here.
fn roots(project: &OnDisk, config: &Config, allowed: &[PathBuf]) -> Vec<PathBuf> {
    let configured = config.roots.iter().map(|root| project.root.join(root));
    let given = allowed.iter().map(|root| std::fs::canonicalize(root).unwrap_or_else(|_| root.clone()));
    configured.chain(given).collect()
}

struct Settle<'a> {
    project: &'a OnDisk,
    drivers: &'a Drivers,
    config: &'a Config,
    grants: &'a Grants,
    about: &'a mut About,
    problems: &'a mut Vec<String>,
}

impl Settle<'_> {
    fn step(mut self, step: &Step) {
        match &step.kind {
            Kind::Work(work) => self.work(step, work),
            Kind::Gate(gate)
                if gate.on_timeout == GateTimeout::Approve && !self.config.allow_auto_approve =>
            {
                self.problems.push(format!(
                    "the gate `{}` opens by itself when nobody decides, which this project does not allow; \
                     `allow_auto_approve = true` in skein.toml would",
                    step.id
                ));
            }
            _ => {}
        }
        if let Some(undo) = &step.undo {
            self.work(step, &undo.work);
        }
    }

    fn work(&mut self, step: &Step, work: &Work) {
        let check = work.check.as_ref().map(|check| &check.worker);
        let summary = work.summary.as_ref().map(|summary| &summary.worker);
        for worker in [Some(&work.worker), check, summary].into_iter().flatten() {
            self.worker(step, worker);
        }
        if let Err(error) = self.grants.check(work.isolation.workspace.as_deref()) {
            self.problems.push(format!("`{}`: {error}", step.id));
        }
        for name in &work.isolation.secrets {
            self.secret(step, name);
        }
    }

    fn worker(&mut self, step: &Step, worker: &Worker) {
        match worker {
            Worker::Script { .. } | Worker::Command { .. } => {}
            Worker::Agent { name, program, .. } => match (name, program) {
                (None, Some(program)) => self
                    .problems
                    .push(format!("`{}`: this version does not start {program} yet, only commands", step.id)),
                (name, _) => self.agent(step, name.as_deref().unwrap_or_default()),
            },
            Worker::Tool { tool, pinned } => self.tool(step, tool, pinned.as_deref()),
            Worker::Action { action, .. } => {
                self.problems
                    .push(format!("`{}`: this version cannot run the action `{action}` yet", step.id));
            }
        }
    }

    fn agent(&mut self, step: &Step, name: &str) {
        let Some(agent) = self.config.agents.get(name) else {
            let problem = format!(
                "`{}`: nobody here is the agent `{name}`; `[agents.{name}]` in skein.toml says who it is",
                step.id
            );
            return self.problems.push(problem);
        };
        let worker = agent.worker.as_deref().or(self.config.default_worker.as_deref());
        if worker != Some(CUSTOM) || agent.command.is_empty() {
            let problem = format!(
                "`{}`: this version runs agents that are programs of the project only; \
                 give `[agents.{name}]` the worker CUSTOM and a command",
                step.id
            );
            return self.problems.push(problem);
        }
        let instructions = agent.instructions.clone().or_else(|| self.project.standing(name));
        let found = Agent { command: agent.command.clone(), instructions };
        self.about.agents.insert(name.to_owned(), found);
    }

    fn tool(&mut self, step: &Step, tool: &str, pinned: Option<&str>) {
        let inputs: Vec<&str> = step.inputs.iter().map(|binding| binding.name.as_str()).collect();
        match self.drivers.bind(self.project, Wanted { tool, pinned, inputs: &inputs }) {
            Ok(found) => drop(self.about.tools.insert(Tool::key(tool, pinned), found)),
            Err(why) => self.problems.push(format!("`{}`: {why}", step.id)),
        }
    }

    fn secret(&mut self, step: &Step, name: &str) {
        match self.config.secrets.get(name) {
            Some(from) => {
                let from = match from {
                    config::Secret::Env(variable) => secret::From::Env(variable.clone()),
                    config::Secret::File(path) => secret::From::File(self.about.project.join(path)),
                };
                self.about.secrets.insert(name.to_owned(), from);
            }
            None => self.problems.push(format!(
                "`{}`: there is no secret `{name}`; add it to `[secrets]` in skein.toml",
                step.id
            )),
        }
    }
}
