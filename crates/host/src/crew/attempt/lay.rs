//! Lays out what an attempt needs before its program can start: folders, inputs, environment, wall, task.

use std::sync::Arc;

use skein_core::engine::{AttemptEnd, Cost, Report, Role};

use super::{Begun, Laid, blocked, never, wrong};
use crate::{
    chance,
    crew::{
        Shared,
        artifacts::{take_in, unkept, without},
        briefing,
        command::{Command, Speaks},
        confine,
        environment::{self, Environment},
        evidence::{Ground, Proving},
        handoff, hire,
        job::Job,
        prompt::{self, Around},
        protect::Protected,
        record, relay, tool,
        tree::{self, Place, Visit},
    },
    worker::{Mark, Task, Work},
    workspace::{AttemptDir, Context, Grants, Root, RunDir, root::PathError},
};

/// Lays out what an attempt needs.
pub fn lay_out(shared: &Arc<Shared>, mut job: Job) -> Begun {
    let found = find(shared, &mut job);
    let (by, job) = (job.relay.by(), Arc::new(job));
    let report = |end| Report { by, ..Report::new(end, Cost::default()) };
    let (run, files) = match found {
        Ok(found) => found,
        Err(end) => return Begun::Over(report(end)),
    };
    lay(shared, &job, run.clone(), files.clone()).unwrap_or_else(|end| {
        let (report, mark) = (report(end), mark(shared, &job));
        let around = record::Around { run: &run, files: &files, folder: None, mark: &mark };
        record::end(shared, &job, &around, &report);
        Begun::Over(report)
    })
}

fn mark(shared: &Shared, job: &Job) -> Mark {
    Mark { state: shared.mark.clone(), run: job.run.clone(), work: Work::Attempt(job.attempt) }
}

/// The folders of an attempt, and whose turn it is.
fn find(shared: &Shared, job: &mut Job) -> Result<(RunDir, AttemptDir), AttemptEnd> {
    let run = shared.run_dir(&job.run).map_err(wrong)?;
    let files = run.attempt(job.attempt).map_err(wrong)?;
    relay::choose(job, &run, files.root())?;
    Ok((run, files))
}

fn lay(shared: &Arc<Shared>, job: &Arc<Job>, run: RunDir, files: AttemptDir) -> Result<Begun, AttemptEnd> {
    if let Some(tool) = job.tool() {
        tool::check_inputs(tool, &job.given.inputs)?;
    }
    let grants = job.about.grants(shared.state.path()).map_err(never)?;
    let base = grants.make_folder(job.isolation.workspace.as_deref()).map_err(never)?;
    let mark = mark(shared, job);
    let around = record::Around { run: &run, files: &files, folder: Some(&base), mark: &mark };
    record::begin(shared, job, &around).map_err(|why| never(format!("it cannot be recorded: {why}")))?;
    let context = tell_context(shared, &run, &grants, job)?;
    let place = context.as_ref().map(|context| context.root().path());
    let visit = Visit { shared, job, run: &run, mark: &mark };
    if let Some(report) = tree::finished(visit, &base, place)? {
        record::end(shared, job, &around, &report);
        return Ok(Begun::Over(report));
    }
    write_inputs(job, &files).map_err(wrong)?;
    let mut tree = Place::enter(visit, base.clone(), place)?;
    let folder = tree.folder.clone();
    take_in(&run, &folder, job)?;
    tree.begin(visit, &files)?;
    handoff::copy_logs(&job.handed, &run, &files);
    let check = check(&folder, job)?;
    let own_files = if job.writes_apart() { files.back().map_err(wrong)? } else { folder.clone() };
    let briefing = briefing::of(shared, job);
    let plain = Around {
        files: &files,
        briefing: briefing.text.as_deref(),
        folder: folder.path(),
        own: own_files.path(),
        check: check.as_deref(),
        goes_on: false,
        answers: false,
        put_back: tree.put_back,
        earlier: tree.earlier.as_deref(),
        conflicts: &tree.conflicts,
    };
    let command = Command::of(job, |agent| prompt::of(job, agent, plain)).map_err(never)?;
    let speaks = command.speaks;
    let mut task = task(shared, job, &run, &files, &folder, command);
    task.environment = environment::of(job, &files, place, check.as_deref(), &shared.secrets)
        .map_err(|error| blocked(error.to_string()))?;
    task.environment.extend(told_of_tree(&tree, &files).map_err(wrong)?);
    let own = tree.behind(visit).map_err(never)?;
    let beside = tree.beside(visit).map_err(never)?;
    let places = confine::Places { run: &run, files: &files, folder: &folder, context: place, own, beside };
    let handed = environment::secret_files(job, &run, &shared.secrets).map_err(blocked)?;
    let made = wall_in(shared, job, &places, !handed.is_empty(), &mut task).map_err(wrong)?;
    task.environment.extend(handed);
    let ground = Ground::of(&task, job, &places, &own_files).map_err(wrong)?;
    task.preface = briefing.notes.iter().map(|note| shared.redactor.redact_str(note)).collect();
    let hired = hire::hire(shared, job, &run, plain, &mut task)?;
    let without = without(shared, context.as_ref())?;
    let proving = Proving::of(job, &run, ground, &without)?;
    let protected = Protected::of(shared, job, &run, &files, &folder, &without)?;
    let protected = protected.map(|protected| (protected, shared.company.enter(folder.path())));
    let workspace = looked_at(job, &grants, &tree).map_err(never)?;
    let laid = Laid {
        job: Arc::clone(job),
        run,
        files,
        base,
        folder,
        own_files,
        without,
        speaks,
        hired,
        check,
        workspace,
        made,
        proving,
        protected,
        walled: task.behind.is_some(),
        state: shared.state.path().to_owned(),
        mark,
        tree,
    };
    Ok(Begun::Ready(Box::new((task, laid))))
}

/// Where it is told what an earlier try changed, and what could not be merged.
fn told_of_tree(tree: &Place, files: &AttemptDir) -> Result<Environment, PathError> {
    let mut told = Environment::new();
    if tree.earlier.is_some() {
        told.push(("SKEIN_CHANGES".into(), files.earlier().into()));
    }
    if !tree.conflicts.is_empty() {
        let conflicts = serde_json::to_vec_pretty(&tree.conflicts).expect("it is plain data");
        files.root().write_new(AttemptDir::CONFLICTS, &conflicts)?;
        told.push(("SKEIN_CONFLICTS".into(), files.conflicts().into()));
    }
    Ok(told)
}

fn write_inputs(job: &Job, files: &AttemptDir) -> Result<(), PathError> {
    let inputs = serde_json::to_vec_pretty(&job.given.inputs).expect("inputs are JSON");
    files.root().write_new(AttemptDir::INPUTS, &inputs)
}

/// Builds the wall around the task, with a place for what it writes by the way. What was made so that it can be written.
fn wall_in(
    shared: &Shared,
    job: &Job,
    places: &confine::Places<'_>,
    has_secret_files: bool,
    task: &mut Task,
) -> Result<Vec<String>, PathError> {
    let (mut behind, made) = confine::behind(shared, job, places)?;
    if let Some(behind) = behind.as_mut().filter(|_| has_secret_files) {
        behind.wall.shows.push(places.run.secrets(job.attempt)?.path().to_owned());
    }
    if behind.is_some() {
        let scratch = places.files.scratch()?;
        task.environment.push(("TMPDIR".into(), scratch.path().into()));
    }
    task.behind = behind;
    Ok(made)
}

/// Where it is looked which files were changed, if anyone looks.
fn looked_at(job: &Job, grants: &Grants, tree: &Place) -> Result<Option<Root>, String> {
    if job.guard.is_none() {
        return Ok(None);
    }
    let workspace = grants.folder(None).map_err(|error| error.to_string())?;
    tree.of_shared(&workspace).map(Some).map_err(|error| error.to_string())
}

/// What only the checker of this attempt is told, so that nobody else can decide for it.
fn check(folder: &Root, job: &Job) -> Result<Option<String>, AttemptEnd> {
    if job.attempt.role != Role::Check {
        return Ok(None);
    }
    // What an earlier check decided, or the worker wrote in its place, is not this one's.
    remove_decision(folder, job)?;
    Ok(Some(chance::hex::<16>()))
}

/// The program, with what it reads and how long it may take.
fn task(
    shared: &Shared,
    job: &Job,
    run: &RunDir,
    files: &AttemptDir,
    folder: &Root,
    command: Command,
) -> Task {
    let mut task = Task::new(command.program, folder.path(), files.log(), mark(shared, job));
    task.notes = Some(run.notes());
    task.arguments = command.arguments;
    task.stdin = command.stdin.into();
    task.stdout = (command.speaks != Speaks::File).then(|| files.stdout());
    let limits = [job.limit, job.tool().and_then(|tool| tool.limit)];
    task.limit = limits.into_iter().flatten().min();
    (task.idle, task.start) = (job.idle, job.start);
    task.filter = shared.filter();
    task.tell = shared.tell(job);
    task
}

/// Brings the context folder up to date with what has been done so far.
pub fn tell_context(
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
