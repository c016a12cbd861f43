//! Lays out what an attempt needs before its program can start: folders, inputs, environment, sandbox, task.

use std::{ffi::OsString, sync::Arc};

use skein_core::{
    engine::{AttemptEnd, Cost, Report, Role},
    ir::Worker,
};

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
        trusted,
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
    let taken = take_in(&run, &folder, job)?;
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
    let mut command = Command::of(job, |agent| prompt::of(job, agent, plain)).map_err(never)?;
    if let (Worker::Script { .. }, Some(shell)) = (&job.worker, command.program.to_str()) {
        // The workflow names no program here, so this is one of the engine's own.
        command.program = trusted::find_program(shell).map_err(never)?.into();
    }
    let words: Vec<OsString> = [&command.program].into_iter().chain(&command.arguments).cloned().collect();
    let covers = job.about.check_pinned(&run, &words, folder.path()).map_err(never)?;
    let speaks = command.speaks;
    let mut task = task(shared, job, &run, &files, &folder, command);
    task.environment = environment::of(job, &files, place, check.as_deref(), &shared.secrets)
        .map_err(|error| blocked(error.to_string()))?;
    task.environment.extend(told_of_tree(&tree, &files).map_err(wrong)?);
    let own = tree.behind(visit).map_err(never)?;
    let beside = tree.beside(visit).map_err(never)?;
    let places = confine::Places { run: &run, files: &files, folder: &folder, context: place, own, beside };
    let handed = environment::secret_files(job, &run, &shared.secrets).map_err(blocked)?;
    let made = put_into_sandbox(shared, job, &places, !handed.is_empty(), &mut task).map_err(wrong)?;
    if let Some(sandbox) = &mut task.sandbox {
        sandbox.spec.covers = covers;
    }
    task.environment.extend(handed);
    let ground = Ground::of(&task, job, &places, &own_files).map_err(wrong)?;
    let notes = briefing.notes.iter().chain(&taken);
    task.preface = notes.map(|note| shared.redactor.redact_str(note)).collect();
    let hired = hire::hire(shared, job, &run, plain, &mut task)?;
    keep_prompt(shared, job, &files, &task, check.as_deref()).map_err(wrong)?;
    let without = without(shared, context.as_ref())?;
    let proving = Proving::of(job, &run, ground, &without)?;
    let protected = Protected::of(shared, job, &run, &files, &folder, &without)?;
    task.preface.extend(protected.as_ref().and_then(Protected::note));
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
        sandboxed: task.sandbox.is_some(),
        state: shared.state.path().to_owned(),
        mark,
        redactor: shared.redactor.fresh(),
        tree,
        last_words: Default::default(),
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

/// Keeps what an agent or a shell is told to do, for people: without secrets, and without what only a checker may know.
fn keep_prompt(
    shared: &Shared,
    job: &Job,
    files: &AttemptDir,
    task: &Task,
    check: Option<&str>,
) -> Result<(), PathError> {
    let text = match &job.worker {
        Worker::Agent { .. } => String::from_utf8_lossy(&task.stdin).into_owned(),
        Worker::Script { text, .. } => text.clone(),
        Worker::Command { .. } | Worker::Tool { .. } | Worker::Action { .. } => return Ok(()),
    };
    let text = check.map_or(text.clone(), |check| text.replace(check, "CHECK_ID"));
    files.root().write_new(AttemptDir::PROMPT, shared.redactor.redact_str(&text).as_bytes())
}

/// Puts the task into its sandbox, with a place for temporary files. Returns the names of files that were made so that they
/// can be written.
fn put_into_sandbox(
    shared: &Shared,
    job: &Job,
    places: &confine::Places<'_>,
    has_secret_files: bool,
    task: &mut Task,
) -> Result<Vec<String>, PathError> {
    let (mut sandbox, made) = confine::sandbox(shared, job, places)?;
    if let Some(sandbox) = &mut sandbox {
        if has_secret_files {
            sandbox.spec.shows.push(places.run.secrets(job.attempt)?.sandbox_place()?);
        }
        confine::show_programs(&mut sandbox.spec, &task.program, &task.environment)?;
        task.environment.push(("TMPDIR".into(), places.files.scratch()?.path().into()));
    }
    task.sandbox = sandbox;
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
