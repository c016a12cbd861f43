//! The start of an attempt: what it needs is laid out, and its program and its wall are made ready.
//!
//! Owns the order in which that is done. What its end comes to is in `attempt`.

use std::sync::Arc;

use skein_core::engine::{AttemptEnd, Role};

use super::{
    Shared,
    attempt::{Laid, blocked, never, unkept, wrong},
    command::{Command, Speaks},
    confine::{self, Places},
    environment::{self, Environment},
    evidence::{Ground, Proving},
    hire,
    job::Job,
    prompt::{self, Around},
    protect::Protected,
    tool,
};
use crate::{
    chance,
    wall::Behind,
    worker::{Mark, Task, Work},
    workspace::{
        AttemptDir, Context, Grants, Root, RunDir, find_step,
        root::{Identity, PathError},
    },
};

/// What a command that proves something is not told: it gives nothing back.
const OF_WORKER: [&str; 3] = ["SKEIN_OUTPUT", "SKEIN_ERROR", "SKEIN_INPUTS"];

/// Lays out what an attempt needs. Why it cannot begin, where it cannot.
pub(super) fn lay_out(shared: &Arc<Shared>, job: Job) -> Result<(Task, Laid), AttemptEnd> {
    if let Some(tool) = job.tool() {
        tool::check_inputs(tool, &job.given.inputs)?;
    }
    let about = &job.about;
    let grants = Grants::new(&about.project, &about.workspace, &about.roots, Some(shared.state.path()));
    let grants = grants.map_err(never)?;
    let folder = grants.make_folder(job.isolation.workspace.as_deref()).map_err(never)?;
    let run = RunDir::create(&shared.state, &job.run).map_err(wrong)?;
    let files = run.attempt(job.attempt).map_err(wrong)?;
    let inputs = serde_json::to_vec_pretty(&job.given.inputs).expect("inputs are JSON");
    files.root().replace_unsynced(AttemptDir::INPUTS, &inputs).map_err(wrong)?;
    let context = tell_context(shared, &run, &grants, &job)?;
    take_in(&run, &folder, &job)?;
    let own = context.as_ref().map(Context::root).into_iter().chain([&shared.state]);
    let without: Vec<Identity> = own.map(Root::identity).collect::<Result<_, _>>().map_err(wrong)?;
    // Only the checker of this attempt is told it.
    let check = (job.attempt.role == Role::Check).then(chance::hex::<16>);
    if check.is_some() {
        // What an earlier check decided, or the worker wrote in its place, is not this one's.
        remove_decision(&folder, &job)?;
    }
    let place = context.as_ref().map(|context| context.root().path());
    let places = Places { run: &run, files: &files, folder: &folder, context: place, without: &without };
    let own_files = if job.writes_apart() { files.back().map_err(wrong)? } else { folder.clone() };
    let plain = Around {
        files: &files,
        folder: folder.path(),
        own: own_files.path(),
        check: check.as_deref(),
        goes_on: false,
        answers: false,
    };
    let command = Command::of(&job, |agent| prompt::of(&job, agent, plain)).map_err(never)?;
    let speaks = command.speaks;
    let (mut task, made) = task(shared, &job, command, &places, check.as_deref())?;
    let protected = Protected::of(shared, &job, &run, &folder, &without)?;
    let proving = Proving::of(&job, &run, ground(&task, &job, &places, &own_files).map_err(wrong)?)?;
    let hired = hire::hire(shared, &job, &run, plain, &mut task)?;
    let laid = Laid {
        protected: protected.map(|protected| (protected, shared.company.enter(folder.path()))),
        workspace: job.guard.as_ref().map(|_| grants.folder(None)).transpose().map_err(never)?,
        walled: task.behind.is_some(),
        state: shared.state.path().to_owned(),
        mark: task.mark.clone(),
        job,
        run,
        files,
        folder,
        own_files,
        without,
        speaks,
        hired,
        check,
        made,
        proving,
    };
    Ok((task, laid))
}

/// The program of an attempt behind its wall, and the names of files that were made so that it may write them.
fn task(
    shared: &Arc<Shared>,
    job: &Job,
    command: Command,
    places: &Places<'_>,
    check: Option<&str>,
) -> Result<(Task, Vec<String>), AttemptEnd> {
    let files = places.files;
    let environment = environment::of(job, files, places.context, check, &shared.secrets)
        .map_err(|error| blocked(error.to_string()))?;
    let mark = Mark { state: shared.mark.clone(), run: job.run.clone(), work: Work::Attempt(job.attempt) };
    let mut task = Task::new(command.program, places.folder.path(), files.log(), mark);
    task.arguments = command.arguments;
    task.environment = environment;
    let (behind, made) = confine::behind(shared, job, places).map_err(wrong)?;
    if behind.is_some() {
        let scratch = files.scratch().map_err(wrong)?;
        task.environment.push(("TMPDIR".into(), scratch.path().into()));
    }
    task.behind = behind;
    task.stdin = command.stdin.into();
    task.stdout = (command.speaks != Speaks::File).then(|| files.stdout());
    let limits = [job.limit, job.tool().and_then(|tool| tool.limit)];
    task.limit = limits.into_iter().flatten().min();
    (task.idle, task.start) = (job.idle, job.start);
    task.filter = shared.filter();
    task.tell = shared.tell(job);
    Ok((task, made))
}

/// Where what the attempt comes to is proven: as its worker works, before that is fitted to an agent.
fn ground(task: &Task, job: &Job, places: &Places<'_>, own_files: &Root) -> Result<Ground, PathError> {
    let behind = |behind: &Behind| confine::proving(behind, job, places);
    let told = |(name, _): &&_| !OF_WORKER.iter().any(|own| name == own);
    let environment: Environment = task.environment.iter().filter(told).cloned().collect();
    Ok(Ground {
        folder: places.folder.clone(),
        own_files: own_files.clone(),
        without: places.without.to_vec(),
        environment,
        behind: task.behind.as_ref().map(behind).transpose()?,
        files: places.files.clone(),
        mark: task.mark.clone(),
    })
}

/// Puts the artifacts of others into the workspace.
fn take_in(run: &RunDir, folder: &Root, job: &Job) -> Result<(), AttemptEnd> {
    let Some(snapshot) = &job.snapshot else { return Ok(()) };
    let story = snapshot.story(run);
    for take in &job.takes {
        let at = find_step(&snapshot.plan, &snapshot.state, job.attempt.at.0, &take.from);
        let source = at.map(|at| story.source(at, &take.artifact)).transpose().map_err(never)?.flatten();
        let from = source.as_ref().map(|source| (source.attempt, &source.artifact));
        run.put(from, folder, &take.name).map_err(unkept)?;
    }
    Ok(())
}

/// Brings the context folder up to date with what has been done so far.
fn tell_context(
    shared: &Shared,
    run: &RunDir,
    grants: &Grants,
    job: &Job,
) -> Result<Option<Context>, AttemptEnd> {
    let (Some(snapshot), Some(directory)) = (&job.snapshot, &job.context) else { return Ok(None) };
    let workspace = grants.folder(None).map_err(never)?;
    shared.tell_context(&workspace, directory, &job.run, &snapshot.story(run)).map(Some).map_err(unkept)
}

fn remove_decision(folder: &Root, job: &Job) -> Result<(), AttemptEnd> {
    match &job.decision_file {
        Some(name) => folder.remove(name).map(drop).map_err(never),
        None => Ok(()),
    }
}
