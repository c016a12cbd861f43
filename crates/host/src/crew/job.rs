//! One attempt as those who do it need it: taken out of the run when it starts, because the run goes on meanwhile.

use std::sync::Arc;

use serde_json::Value;
use skein_core::{
    engine::{Assignment, AttemptId, Given, InstanceIx, Mode, Role, RunState, StepAt},
    ids::{ArtifactName, RunId, StepId},
    ir::{ArtifactIn, ArtifactOut, Isolation, Kind, Step, Work, Worker},
    plan::Plan,
    time::Millis,
};

use super::about::About;
use crate::hands::Running;

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
    /// What it is given of others' artifacts, and of which attempt each is.
    pub takes: Vec<(ArtifactIn, Option<(AttemptId, ArtifactName)>)>,
    pub gives: Vec<ArtifactOut>,
    /// Where a checker writes what it decided.
    pub decision_file: Option<String>,
    /// The variables that the workflow declares.
    pub env: Arc<Value>,
    pub about: About,
}

impl Job {
    pub fn of(running: Running<'_>, attempt: AttemptId, task: &Assignment) -> Result<Job, String> {
        let Running { run, plan, state, about, names } = running;
        let step = plan.definition.scope(names.scope(attempt.at.0)).step(attempt.at.1);
        let (worker, work) = worker(step, attempt.role)?;
        let main = attempt.role == Role::Main;
        let takes = if main { work.takes.clone() } else { Vec::new() };
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
            takes: takes
                .into_iter()
                .map(|take| (take.clone(), giver(plan, state, attempt.at.0, &take)))
                .collect(),
            gives: if main { work.gives.clone() } else { Vec::new() },
            decision_file: work.check.as_ref().and_then(|check| check.decision_file.clone()),
            env: state.home(attempt.at.0).env.clone(),
            about: About::read(about)?,
        })
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

/// The attempt that gave an artifact, and its name there. None: nobody gave it.
fn giver(
    plan: &Plan,
    state: &RunState,
    instance: InstanceIx,
    take: &ArtifactIn,
) -> Option<(AttemptId, ArtifactName)> {
    let (mut instance, mut from, mut artifact) = (instance, take.from.clone(), take.artifact.clone());
    // A call gives what a step inside it gave; calls nest only so deep.
    loop {
        let at = find(plan, state, instance, &from)?;
        let step = plan.definition.scope(state.instance(at.0).scope).step(at.1);
        let Kind::Call(call) = &step.kind else {
            return Some((last_main(state, at)?, artifact));
        };
        let export = call.exports.iter().find(|export| export.name == artifact)?;
        (from, artifact) = (export.from.clone(), export.artifact.clone());
        instance = *state.more(at)?.children.last()?;
    }
}

fn find(plan: &Plan, state: &RunState, instance: InstanceIx, id: &StepId) -> Option<StepAt> {
    let entry = plan.definition.scope(state.instance(instance).scope);
    entry.by_id.get(id).map(|step| StepAt(instance, *step))
}

/// The last attempt at the work of a step.
fn last_main(state: &RunState, at: StepAt) -> Option<AttemptId> {
    let more = state.more(at)?;
    let attempt = more.attempts[Role::Main as usize];
    let id = AttemptId {
        at,
        visit: state.step(at).visit,
        iteration: more.next.iteration,
        role: Role::Main,
        attempt,
    };
    (attempt > 0).then_some(id)
}
