//! One attempt as those who do it need it: taken out of the run when it starts, because the run goes on meanwhile.

use std::sync::Arc;

use serde_json::Value;
use skein_core::{
    engine::{Assignment, AttemptId, Given, Mode, Role, RunState},
    ids::RunId,
    ir::{ArtifactIn, ArtifactOut, Isolation, Kind, Step, Work, Worker},
    plan::Plan,
    time::Millis,
};

use super::{
    about::{About, Tool},
    guard::Guard,
    overlay,
};
use crate::{
    hands::Running,
    workspace::{Ledger, RunDir, Story},
};

#[derive(Debug)]
pub struct Job {
    pub run: RunId,
    pub attempt: AttemptId,
    /// The path of the step.
    pub path: String,
    pub worker: Worker,
    pub given: Arc<Given>,
    pub mode: Mode,
    pub stage: u32,
    pub limit: Option<Millis>,
    pub idle: Option<Millis>,
    pub start: Option<Millis>,
    pub isolation: Isolation,
    /// What it is given of others' artifacts.
    pub takes: Vec<ArtifactIn>,
    pub gives: Vec<ArtifactOut>,
    /// What work that does not get nearer to its end is told.
    pub overlay: Option<String>,
    /// What a check is guarded by.
    pub guard: Option<Guard>,
    /// Where a checker writes what it decided.
    pub decision_file: Option<String>,
    /// The folder in which steps of the run hand files to one another.
    pub context: Option<String>,
    /// The run as it was, where something of it is needed.
    pub snapshot: Option<Box<Snapshot>>,
    /// The variables that the workflow declares.
    pub env: Arc<Value>,
    pub about: About,
}

/// A run as it was at some moment.
#[derive(Debug)]
pub struct Snapshot {
    pub plan: Plan,
    pub state: RunState,
    pub ledger: Ledger,
}

impl Snapshot {
    pub fn of(running: Running<'_>) -> Snapshot {
        Snapshot { plan: running.plan.clone(), state: running.state.clone(), ledger: running.ledger.clone() }
    }

    pub fn story<'a>(&'a self, run: &'a RunDir) -> Story<'a> {
        Story { plan: &self.plan, state: &self.state, ledger: &self.ledger, run }
    }
}

impl Job {
    pub fn of(running: Running<'_>, attempt: AttemptId, task: &Assignment) -> Result<Job, String> {
        let Running { run, plan, state, about, names, .. } = running;
        let step = plan.definition.scope(names.scope(attempt.at.0)).step(attempt.at.1);
        let (worker, work) = worker(step, attempt.role)?;
        let main = attempt.role == Role::Main;
        let takes = if main { work.takes.clone() } else { Vec::new() };
        let convergence = work.check.as_ref().and_then(|check| check.convergence.as_ref());
        let (reasons, marks) = running.ledger.last_check(attempt.at).unwrap_or_default();
        let context = plan.definition.root().workflow.context.directory.clone();
        Ok(Job {
            run: run.clone(),
            attempt,
            path: names.step(attempt.at),
            worker: worker.clone(),
            given: task.given.clone(),
            mode: task.mode,
            stage: task.stage,
            limit: task.limit,
            idle: step.policy.idle_timeout,
            start: step.policy.start_timeout,
            isolation: work.isolation.clone(),
            snapshot: (!takes.is_empty() || context.is_some()).then(|| Box::new(Snapshot::of(running))),
            context,
            takes,
            gives: if main { work.gives.clone() } else { Vec::new() },
            overlay: convergence
                .filter(|_| main)
                .and_then(|convergence| overlay::of(convergence, task.stage, reasons, marks)),
            guard: convergence
                .filter(|_| attempt.role == Role::Check)
                .and_then(|convergence| Guard::of(plan, convergence)),
            decision_file: work.check.as_ref().and_then(|check| check.decision_file.clone()),
            env: state.home(attempt.at.0).env.clone(),
            about: About::read(about)?,
        })
    }
}

impl Job {
    /// The tool that does it, where a tool does.
    pub fn tool(&self) -> Option<&Tool> {
        match &self.worker {
            Worker::Tool { tool, pinned } => self.about.tools.get(&Tool::key(tool, pinned.as_deref())),
            _ => None,
        }
    }
}

/// Who does this part of a step's work.
fn worker(step: &Step, role: Role) -> Result<(&Worker, &Work), String> {
    let missing = || format!("`{}` has nobody to do its {}", step.id, role.as_str());
    if role == Role::Undo {
        let undo = step.undo.as_ref().ok_or_else(missing)?;
        return Ok((&undo.work.worker, &undo.work));
    }
    let Kind::Work(work) = &step.kind else { return Err(missing()) };
    let worker = match role {
        Role::Main | Role::Undo => Some(&work.worker),
        Role::Check => work.check.as_ref().map(|check| &check.worker),
        Role::Summary => work.summary.as_ref().map(|summary| &summary.worker),
    };
    worker.map(|worker| (worker, &**work)).ok_or_else(missing)
}
