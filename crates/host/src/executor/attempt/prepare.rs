//! Prepares an attempt before its program can start: folders, inputs, environment, sandbox, task.

use std::{ffi::OsString, sync::Arc};

use skein_core::{
    engine::{AttemptEnd, AttemptReport, AttemptRole, Cost},
    ir::WorkerSpec,
};

use super::{PrepareOutcome, PreparedAttempt, blocked_by_secret, file_failure, non_retryable};
use crate::{
    executor::{
        ExecutorContext, agent_context, agent_launch,
        artifacts::{artifact_failure, excluded_folders, import_artifacts},
        attempt_recording,
        attempt_spec::AttemptSpec,
        environment::{self, WorkerEnvironment},
        evidence::{EvidenceCheck, EvidenceContext},
        fallback, handoff,
        prompt::{self, PromptContext},
        protect::WorkspaceProtection,
        sandbox_setup, tool, trusted_programs,
        worker_command::{ResultProtocol, WorkerCommand},
        worktree::{self, AttemptContext, AttemptWorkspace},
    },
    process::{MarkedWork, ProcessMark, ProcessSpec},
    random,
    workspace::{AttemptDir, ContextFolder, FolderGrants, RootFolder, RunDir, root::FilePathError},
};

/// Prepares an attempt, and records its end if that fails.
pub fn prepare_attempt(shared: &Arc<ExecutorContext>, mut job: AttemptSpec) -> PrepareOutcome {
    let found = open_attempt_folders(shared, &mut job);
    let (by, job) = (job.relay.substitute_name(), Arc::new(job));
    let report = |end| AttemptReport { by, ..AttemptReport::new(end, Cost::default()) };
    let (run, files) = match found {
        Ok(found) => found,
        Err(end) => return PrepareOutcome::Over(report(end)),
    };
    prepare_stages(shared, &job, run.clone(), files.clone()).unwrap_or_else(|end| {
        let (report, mark) = (report(end), attempt_mark(shared, &job));
        let around =
            attempt_recording::RecordingContext { run: &run, files: &files, folder: None, mark: &mark };
        attempt_recording::record_end(shared, &job, &around, &report);
        PrepareOutcome::Over(report)
    })
}

fn attempt_mark(shared: &ExecutorContext, job: &AttemptSpec) -> ProcessMark {
    ProcessMark { state: shared.mark.clone(), run: job.run.clone(), work: MarkedWork::Attempt(job.attempt) }
}

/// Opens the folders of an attempt, and chooses the agent whose turn it is.
fn open_attempt_folders(
    shared: &ExecutorContext,
    job: &mut AttemptSpec,
) -> Result<(RunDir, AttemptDir), AttemptEnd> {
    let run = shared.run_dir(&job.run).map_err(file_failure)?;
    let files = run.create_attempt(job.attempt).map_err(file_failure)?;
    fallback::choose_agent(job, &run, files.root())?;
    Ok((run, files))
}

fn prepare_stages(
    shared: &Arc<ExecutorContext>,
    job: &Arc<AttemptSpec>,
    run: RunDir,
    files: AttemptDir,
) -> Result<PrepareOutcome, AttemptEnd> {
    if let Some(tool) = job.tool() {
        tool::check_inputs(tool, &job.given.inputs)?;
    }
    let grants = job.about.workspace_grants(shared.state.path()).map_err(non_retryable)?;
    let base = grants.make_folder(job.isolation.workspace.as_deref()).map_err(non_retryable)?;
    let mark = attempt_mark(shared, job);
    let around =
        attempt_recording::RecordingContext { run: &run, files: &files, folder: Some(&base), mark: &mark };
    attempt_recording::begin_recording(shared, job, &around)
        .map_err(|why| non_retryable(format!("the attempt cannot be recorded: {why}")))?;
    let context = update_context_folder(shared, &run, &grants, job)?;
    let place = context.as_ref().map(|context| context.root().path());
    let visit = AttemptContext { shared, job, run: &run, mark: &mark };
    if let Some(report) = worktree::finish_interrupted_merge(visit, &base, place)? {
        attempt_recording::record_end(shared, job, &around, &report);
        return Ok(PrepareOutcome::Over(report));
    }
    write_inputs(job, &files).map_err(file_failure)?;
    let mut tree = AttemptWorkspace::enter(visit, base.clone(), place)?;
    let folder = tree.folder.clone();
    let taken = import_artifacts(&run, &folder, job)?;
    tree.begin_attempt(visit, &files)?;
    handoff::copy_logs(&job.handed, &run, &files);
    let check = issue_check_id(&folder, job)?;
    let own_files = if job.writes_in_attempt_folder() {
        files.worker_output().map_err(file_failure)?
    } else {
        folder.clone()
    };
    let briefing = agent_context::build_agent_context(shared, job);
    let plain = PromptContext {
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
    let mut command = WorkerCommand::from_spec(job, |agent| prompt::build_prompt(job, agent, plain))
        .map_err(non_retryable)?;
    if let (WorkerSpec::Script { .. }, Some(shell)) = (&job.worker, command.program.to_str()) {
        // The workflow names no program here, so the shell is one of the engine's trusted programs.
        command.program = trusted_programs::find_program(shell).map_err(non_retryable)?.into();
    }
    let words: Vec<OsString> = [&command.program].into_iter().chain(&command.arguments).cloned().collect();
    let covers = job.about.check_pinned(&run, &words, folder.path()).map_err(non_retryable)?;
    let speaks = command.speaks;
    let mut task = build_task(shared, job, &run, &files, &folder, command);
    task.environment = environment::build_environment(job, &files, place, check.as_deref(), &shared.secrets)
        .map_err(|error| blocked_by_secret(error.to_string()))?;
    task.environment.extend(worktree_variables(&tree, &files).map_err(file_failure)?);
    let own = tree.sandbox_paths(visit).map_err(non_retryable)?;
    let beside = tree.conflict_paths(visit).map_err(non_retryable)?;
    let places = sandbox_setup::AttemptPaths {
        run: &run,
        files: &files,
        folder: &folder,
        context: place,
        own,
        beside,
    };
    let handed = environment::write_secret_files(job, &run, &shared.secrets).map_err(blocked_by_secret)?;
    let made = put_into_sandbox(shared, job, &places, !handed.is_empty(), &mut task).map_err(file_failure)?;
    if let Some(sandbox) = &mut task.sandbox {
        sandbox.spec.covers = covers;
    }
    task.environment.extend(handed);
    let ground = EvidenceContext::from_task(&task, job, &places, &own_files).map_err(file_failure)?;
    let notes = briefing.notes.iter().chain(&taken);
    task.preface = notes.map(|note| shared.redactor.redact_str(note)).collect();
    let hired = agent_launch::prepare_agent_launch(shared, job, &run, plain, &mut task)?;
    keep_prompt(shared, job, &files, &task, check.as_deref()).map_err(file_failure)?;
    let without = excluded_folders(shared, context.as_ref())?;
    let proving = EvidenceCheck::prepare(job, &run, ground, &without)?;
    let protected = WorkspaceProtection::prepare(shared, job, &run, &files, &folder, &without)?;
    task.preface.extend(protected.as_ref().and_then(WorkspaceProtection::coverage_note));
    let protected = protected.map(|protected| (protected, shared.company.enter_folder(folder.path())));
    let workspace = find_guarded_folder(job, &grants, &tree).map_err(non_retryable)?;
    let laid = PreparedAttempt {
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
        redactor: shared.redactor.new_stream(),
        tree,
        last_words: Default::default(),
    };
    Ok(PrepareOutcome::Ready(Box::new((task, laid))))
}

/// Variables with the paths of the earlier attempt's changes and of the merge conflicts.
fn worktree_variables(
    tree: &AttemptWorkspace,
    files: &AttemptDir,
) -> Result<WorkerEnvironment, FilePathError> {
    let mut told = WorkerEnvironment::new();
    if tree.earlier.is_some() {
        told.push(("SKEIN_CHANGES".into(), files.earlier_changes_path().into()));
    }
    if !tree.conflicts.is_empty() {
        let conflicts = serde_json::to_vec_pretty(&tree.conflicts).expect("it is plain data");
        files.root().write_new(AttemptDir::CONFLICTS, &conflicts)?;
        told.push(("SKEIN_CONFLICTS".into(), files.conflicts_path().into()));
    }
    Ok(told)
}

fn write_inputs(job: &AttemptSpec, files: &AttemptDir) -> Result<(), FilePathError> {
    let inputs = serde_json::to_vec_pretty(&job.given.inputs).expect("inputs are JSON");
    files.root().write_new(AttemptDir::INPUTS, &inputs)
}

/// Keeps the prompt or script for people, without secrets and without the check id that only a checker may know.
fn keep_prompt(
    shared: &ExecutorContext,
    job: &AttemptSpec,
    files: &AttemptDir,
    task: &ProcessSpec,
    check: Option<&str>,
) -> Result<(), FilePathError> {
    let text = match &job.worker {
        WorkerSpec::Agent { .. } => String::from_utf8_lossy(&task.stdin).into_owned(),
        WorkerSpec::Script { text, .. } => text.clone(),
        WorkerSpec::Command { .. } | WorkerSpec::Tool { .. } | WorkerSpec::Action { .. } => return Ok(()),
    };
    let text = check.map_or(text.clone(), |check| text.replace(check, "CHECK_ID"));
    files.root().write_new(AttemptDir::PROMPT, shared.redactor.redact_str(&text).as_bytes())
}

/// Puts the task into its sandbox, with a folder for temporary files. Returns the names of the files that were created
/// so that the worker can write them.
fn put_into_sandbox(
    shared: &ExecutorContext,
    job: &AttemptSpec,
    places: &sandbox_setup::AttemptPaths<'_>,
    has_secret_files: bool,
    task: &mut ProcessSpec,
) -> Result<Vec<String>, FilePathError> {
    let (mut sandbox, made) = sandbox_setup::build_sandbox(shared, job, places)?;
    if let Some(sandbox) = &mut sandbox {
        if has_secret_files {
            sandbox.spec.shows.push(places.run.secrets_folder(job.attempt)?.sandbox_place()?);
        }
        sandbox_setup::show_programs(&mut sandbox.spec, &task.program, &task.environment)?;
        task.environment.push(("TMPDIR".into(), places.files.make_scratch()?.path().into()));
    }
    task.sandbox = sandbox;
    Ok(made)
}

/// The folder where the guard looks for changed files, if there is a guard.
fn find_guarded_folder(
    job: &AttemptSpec,
    grants: &FolderGrants,
    tree: &AttemptWorkspace,
) -> Result<Option<RootFolder>, String> {
    if job.guard.is_none() {
        return Ok(None);
    }
    let workspace = grants.open_folder(None).map_err(|error| error.to_string())?;
    tree.resolve_shared_folder(&workspace).map(Some).map_err(|error| error.to_string())
}

/// Issues an id that only the checker of this attempt knows, so that no other process can decide for it.
fn issue_check_id(folder: &RootFolder, job: &AttemptSpec) -> Result<Option<String>, AttemptEnd> {
    if job.attempt.role != AttemptRole::Check {
        return Ok(None);
    }
    // Removes a decision of an earlier check, or one that the worker wrote in its place.
    remove_decision(folder, job)?;
    Ok(Some(random::random_hex::<16>()))
}

/// Builds the process spec: program, stdin, output files and time limits.
fn build_task(
    shared: &ExecutorContext,
    job: &AttemptSpec,
    run: &RunDir,
    files: &AttemptDir,
    folder: &RootFolder,
    command: WorkerCommand,
) -> ProcessSpec {
    let mut task =
        ProcessSpec::new(command.program, folder.path(), files.log_path(), attempt_mark(shared, job));
    task.notes = Some(run.notes_path());
    task.arguments = command.arguments;
    task.stdin = command.stdin.into();
    task.stdout = (command.speaks != ResultProtocol::File).then(|| files.stdout_path());
    let limits = [job.limit, job.tool().and_then(|tool| tool.limit)];
    task.limit = limits.into_iter().flatten().min();
    (task.idle, task.start) = (job.idle, job.start);
    task.filter = shared.redaction_filter();
    task.tell = shared.line_callback(job);
    task
}

/// Updates the context folder to the present state of the run.
pub fn update_context_folder(
    shared: &ExecutorContext,
    run: &RunDir,
    grants: &FolderGrants,
    job: &AttemptSpec,
) -> Result<Option<ContextFolder>, AttemptEnd> {
    let (Some(snapshot), Some(directory)) = (&job.snapshot, &job.context) else { return Ok(None) };
    let workspace = grants.open_folder(None).map_err(non_retryable)?;
    shared
        .write_context_folder(&workspace, directory, &job.run, &snapshot.story(run))
        .map(Some)
        .map_err(artifact_failure)
}

fn remove_decision(folder: &RootFolder, job: &AttemptSpec) -> Result<(), AttemptEnd> {
    match &job.decision_file {
        Some(name) => folder.remove(name).map(drop).map_err(non_retryable),
        None => Ok(()),
    }
}
