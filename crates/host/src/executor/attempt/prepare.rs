//! The stages that prepare an attempt before its process: folders, inputs, command, sandbox, baselines.

use std::{ffi::OsString, path::Path, sync::Arc};

use skein_core::{
    engine::{AttemptReport, AttemptRole, Cost},
    ir::WorkerSpec,
};

use super::{
    PrepareOutcome, PreparedAttempt, StageError,
    command::{self, ResultProtocol, WorkerCommand, WorkerEnvironment},
    handoff::{self, excluded_folders, import_artifacts},
    non_retryable,
    recording::{self, RecordingContext},
    sandbox_setup::{self, AttemptPaths},
    spec::AttemptSpec,
};
use crate::{
    executor::{
        agents::{
            agent_context::{self, AgentContext},
            agent_launch::{self, AgentLaunch},
            fallback,
            prompt::{self, PromptContext},
        },
        evidence::{EvidenceCheck, EvidenceContext, protect::WorkspaceProtection},
        executor_context::ExecutorContext,
        programs, tools,
        worktree::{self, AttemptContext, AttemptWorkspace, workspace_usage::OccupancyGuard},
    },
    process::{MarkedWork, ProcessMark, ProcessSpec},
    sandbox::SandboxCover,
    system,
    workspace::{
        AttemptDir, ContextFolder, FolderGrants, RootFolder, RunDir,
        root::{FileIdentity, FilePathError},
    },
};

/// Prepares an attempt, and records its end if that fails.
pub fn prepare_attempt(shared: &Arc<ExecutorContext>, mut job: AttemptSpec) -> PrepareOutcome {
    let opened = open_attempt_folders(shared, &mut job);
    let by = job.relay.substitute_name();
    let report = |error: StageError| AttemptReport { by, ..AttemptReport::new(error.into(), Cost::default()) };
    let preparation = match opened {
        Ok((run, files)) => Preparation { shared, mark: attempt_mark(shared, &job), job: Arc::new(job), run, files },
        Err(error) => return PrepareOutcome::Over(report(error)),
    };
    preparation.run_stages().unwrap_or_else(|error| {
        let report = report(error);
        recording::record_end(shared, &preparation.job, &preparation.recording_context(None), &report);
        PrepareOutcome::Over(report)
    })
}

fn attempt_mark(shared: &ExecutorContext, job: &AttemptSpec) -> ProcessMark {
    ProcessMark { state: shared.mark.clone(), run: job.run.clone(), work: MarkedWork::Attempt(job.attempt) }
}

/// Opens the folders of an attempt, and chooses the agent whose turn it is.
fn open_attempt_folders(shared: &ExecutorContext, job: &mut AttemptSpec) -> Result<(RunDir, AttemptDir), StageError> {
    let run = shared.run_dir(&job.run)?;
    let files = run.create_attempt(job.attempt)?;
    fallback::choose_agent(job, &run, files.root())?;
    Ok((run, files))
}

/// An attempt that is being prepared, with the folders of its run and of its own files.
struct Preparation<'a> {
    shared: &'a Arc<ExecutorContext>,
    job: Arc<AttemptSpec>,
    run: RunDir,
    files: AttemptDir,
    mark: ProcessMark,
}

/// The workspace that the step names, and the folders in which the steps of the run may work.
struct StepFolders {
    grants: FolderGrants,
    base: RootFolder,
    context: Option<ContextFolder>,
}

impl StepFolders {
    fn context_path(&self) -> Option<&Path> {
        self.context.as_ref().map(|context| context.root().path())
    }
}

/// The folder in which the attempt works, after everything is in it that the attempt needs.
struct EnteredWorkspace {
    tree: AttemptWorkspace,
    folder: RootFolder,
    /// The folder of the files that the attempt is asked to write.
    own_files: RootFolder,
    /// The id that only the checker knows.
    check: Option<String>,
    /// The text for an agent beside its instructions and its task.
    briefing: AgentContext,
    /// Notes for the log about what was left out.
    notes: Vec<String>,
}

/// The process to start, and the facts about it that are needed when it has ended.
struct PreparedTask {
    task: ProcessSpec,
    speaks: ResultProtocol,
    /// The copies that cover pinned programs in the sandbox.
    covers: Vec<SandboxCover>,
    /// Empty files that were created so that the sandboxed worker can write them.
    made: Vec<String>,
}

/// The state of the files before the process starts, with which they are compared after it.
struct Baselines {
    without: Vec<FileIdentity>,
    proving: Option<EvidenceCheck>,
    protected: Option<(WorkspaceProtection, OccupancyGuard)>,
    /// The folder where the guard of a check looks for changed files.
    guarded: Option<RootFolder>,
}

impl Preparation<'_> {
    /// The stages, in their order. Each one depends on those before it:
    ///
    /// - The inputs are checked before anything is touched.
    /// - The recording scans the workspace before Skein or the worker changes a file in it.
    /// - The context folder is written before the workspace is entered: it is not part of any snapshot.
    /// - A merge that a crash interrupted is finished before a worktree is entered, because the work is done.
    /// - Artifacts are imported before the snapshot of the workspace, so that they are not changes of the attempt.
    /// - The command is built after that: its programs are looked up and compared in the folder as it is now.
    /// - The sandbox comes after all folders and files that it names, and after the secrets that it shows.
    /// - Evidence commands get the environment and the sandbox from before the task is adapted to an agent.
    /// - The baselines of evidence and protection come last: what Skein wrote is not a change of the attempt.
    fn run_stages(&self) -> Result<PrepareOutcome, StageError> {
        self.check_inputs()?;
        let mut folders = self.open_workspace()?;
        self.begin_recording(&folders)?;
        folders.context = update_context_folder(self.shared, &self.run, &folders.grants, &self.job)?;
        if let Some(report) = self.finish_interrupted_merge(&folders)? {
            return Ok(PrepareOutcome::Over(report));
        }
        self.write_inputs()?;
        let entered = self.enter_workspace(&folders)?;
        let mut prepared = self.build_task(&entered)?;
        self.add_environment(&folders, &entered, &mut prepared.task)?;
        let evidence = self.enter_sandbox(&folders, &entered, &mut prepared)?;
        let agent = self.launch_agent(&entered, &mut prepared.task)?;
        self.keep_prompt(&entered, &prepared.task)?;
        let baselines = self.take_baselines(&folders, &entered, evidence, &mut prepared.task)?;
        Ok(self.finish_preparation(folders, entered, prepared, agent, baselines))
    }

    fn attempt_context(&self) -> AttemptContext<'_> {
        AttemptContext { shared: self.shared, job: &self.job, run: &self.run, mark: &self.mark }
    }

    fn recording_context<'a>(&'a self, folder: Option<&'a RootFolder>) -> RecordingContext<'a> {
        RecordingContext { run: &self.run, files: &self.files, folder, mark: &self.mark }
    }

    fn prompt_context<'a>(&'a self, entered: &'a EnteredWorkspace) -> PromptContext<'a> {
        PromptContext {
            files: &self.files,
            briefing: entered.briefing.text.as_deref(),
            folder: entered.folder.path(),
            own: entered.own_files.path(),
            check: entered.check.as_deref(),
            goes_on: false,
            answers: false,
            put_back: entered.tree.put_back,
            earlier: entered.tree.earlier.as_deref(),
            conflicts: &entered.tree.conflicts,
        }
    }

    /// Checks the inputs of a tool against its schema.
    fn check_inputs(&self) -> Result<(), StageError> {
        match self.job.tool() {
            Some(tool) => tools::check_inputs(tool, &self.job.given.inputs),
            None => Ok(()),
        }
    }

    fn open_workspace(&self) -> Result<StepFolders, StageError> {
        let grants = self.job.settings.workspace_grants(self.shared.state.path()).map_err(non_retryable)?;
        let base = grants.make_folder(self.job.isolation.workspace.as_deref()).map_err(non_retryable)?;
        Ok(StepFolders { grants, base, context: None })
    }

    fn begin_recording(&self, folders: &StepFolders) -> Result<(), StageError> {
        let context = self.recording_context(Some(&folders.base));
        recording::begin_recording(self.shared, &self.job, &context)
            .map_err(|why| non_retryable(format!("the attempt cannot be recorded: {why}")))
    }

    /// Returns the report of work that an earlier attempt did, if only its merge was interrupted.
    fn finish_interrupted_merge(&self, folders: &StepFolders) -> Result<Option<AttemptReport>, StageError> {
        let (visit, context) = (self.attempt_context(), folders.context_path());
        let report = worktree::finish_interrupted_merge(visit, &folders.base, context)?;
        if let Some(report) = &report {
            let context = self.recording_context(Some(&folders.base));
            recording::record_end(self.shared, &self.job, &context, report);
        }
        Ok(report)
    }

    fn write_inputs(&self) -> Result<(), StageError> {
        let inputs = serde_json::to_vec_pretty(&self.job.given.inputs).expect("inputs are JSON");
        Ok(self.files.root().write_new(AttemptDir::INPUTS, &inputs)?)
    }

    /// Enters the shared workspace or a worktree, and puts the results of other steps into it.
    fn enter_workspace(&self, folders: &StepFolders) -> Result<EnteredWorkspace, StageError> {
        let (job, visit) = (&*self.job, self.attempt_context());
        let mut tree = AttemptWorkspace::enter(visit, folders.base.clone(), folders.context_path())?;
        let folder = tree.folder.clone();
        let taken = import_artifacts(&self.run, &folder, job)?;
        tree.begin_attempt(visit, &self.files)?;
        handoff::copy_logs(&job.handed, &self.run, &self.files);
        let check = self.issue_check_id(&folder)?;
        let own_files = match job.writes_in_attempt_folder() {
            true => self.files.worker_output()?,
            false => folder.clone(),
        };
        let briefing = agent_context::build_agent_context(self.shared, job);
        let notes = briefing.notes.iter().chain(&taken).cloned().collect();
        Ok(EnteredWorkspace { tree, folder, own_files, check, briefing, notes })
    }

    /// Issues an id that only the checker of this attempt knows, so that no other process can decide for it.
    fn issue_check_id(&self, folder: &RootFolder) -> Result<Option<String>, StageError> {
        if self.job.attempt.role != AttemptRole::Check {
            return Ok(None);
        }
        // Removes a decision of an earlier check, or one that the worker wrote in its place.
        if let Some(name) = &self.job.decision_file {
            folder.remove(name).map_err(non_retryable)?;
        }
        Ok(Some(system::random_hex::<16>()))
    }

    /// Builds the process spec: program, stdin, output files and time limits. Its programs must be unchanged since the
    /// run began.
    fn build_task(&self, entered: &EnteredWorkspace) -> Result<PreparedTask, StageError> {
        let (job, files) = (&*self.job, &self.files);
        let prompt = |agent: &_| prompt::build_prompt(job, agent, self.prompt_context(entered));
        let mut command = WorkerCommand::from_spec(job, prompt).map_err(non_retryable)?;
        if let (WorkerSpec::Script { .. }, Some(shell)) = (&job.worker, command.program.to_str()) {
            // The workflow names no program here, so the shell is one of the engine's trusted programs.
            command.program = programs::find_program(shell).map_err(non_retryable)?.into();
        }
        let words: Vec<OsString> = [&command.program].into_iter().chain(&command.arguments).cloned().collect();
        let covers = job.settings.check_pinned(&self.run, &words, entered.folder.path()).map_err(non_retryable)?;
        let WorkerCommand { program, arguments, stdin, speaks } = command;
        let mut task = ProcessSpec::new(program, entered.folder.path(), files.log_path(), self.mark.clone());
        task.notes = Some(self.run.notes_path());
        task.arguments = arguments;
        task.stdin = stdin.into();
        task.stdout = (speaks != ResultProtocol::File).then(|| files.stdout_path());
        task.limit = [job.limit, job.tool().and_then(|tool| tool.limit)].into_iter().flatten().min();
        (task.idle, task.start) = (job.idle, job.start);
        task.filter = self.shared.redaction_filter();
        task.tell = self.shared.line_callback(job);
        task.preface = entered.notes.iter().map(|note| self.shared.redactor.redact_str(note)).collect();
        Ok(PreparedTask { task, speaks, covers, made: Vec::new() })
    }

    fn add_environment(
        &self,
        folders: &StepFolders,
        entered: &EnteredWorkspace,
        task: &mut ProcessSpec,
    ) -> Result<(), StageError> {
        let (context, check) = (folders.context_path(), entered.check.as_deref());
        task.environment = command::build_environment(&self.job, &self.files, context, check, &self.shared.secrets)
            .map_err(StageError::blocked_by_secret)?;
        task.environment.extend(self.worktree_variables(&entered.tree)?);
        Ok(())
    }

    /// Variables with the paths of the earlier attempt's changes and of the merge conflicts.
    fn worktree_variables(&self, tree: &AttemptWorkspace) -> Result<WorkerEnvironment, FilePathError> {
        let mut variables = WorkerEnvironment::new();
        if tree.earlier.is_some() {
            variables.push(("SKEIN_CHANGES".into(), self.files.earlier_changes_path().into()));
        }
        if !tree.conflicts.is_empty() {
            let conflicts = serde_json::to_vec_pretty(&tree.conflicts).expect("it is plain data");
            self.files.root().write_new(AttemptDir::CONFLICTS, &conflicts)?;
            variables.push(("SKEIN_CONFLICTS".into(), self.files.conflicts_path().into()));
        }
        Ok(variables)
    }

    /// Puts the task into its sandbox, with its secret files and a folder for temporary files. Returns the environment
    /// in which its evidence is checked.
    fn enter_sandbox(
        &self,
        folders: &StepFolders,
        entered: &EnteredWorkspace,
        prepared: &mut PreparedTask,
    ) -> Result<EvidenceContext, StageError> {
        let (job, visit, task) = (&*self.job, self.attempt_context(), &mut prepared.task);
        let places = AttemptPaths {
            run: &self.run,
            files: &self.files,
            folder: &entered.folder,
            context: folders.context_path(),
            own: entered.tree.sandbox_paths(visit).map_err(non_retryable)?,
            beside: entered.tree.conflict_paths(visit).map_err(non_retryable)?,
        };
        let secrets =
            command::write_secret_files(job, &self.run, &self.shared.secrets).map_err(StageError::blocked_by_secret)?;
        let (mut sandbox, made) = sandbox_setup::build_sandbox(self.shared, job, &places)?;
        if let Some(sandbox) = &mut sandbox {
            if !secrets.is_empty() {
                sandbox.spec.shows.push(self.run.secrets_folder(job.attempt)?.sandbox_place()?);
            }
            sandbox_setup::show_programs(&mut sandbox.spec, &task.program, &task.environment)?;
            sandbox.spec.covers = std::mem::take(&mut prepared.covers);
            task.environment.push(("TMPDIR".into(), self.files.make_scratch()?.path().into()));
        }
        (task.sandbox, prepared.made) = (sandbox, made);
        task.environment.extend(secrets);
        Ok(EvidenceContext::from_task(task, job, &places, &entered.own_files)?)
    }

    /// Adapts the task to the coding agent of the attempt, if one does the work.
    fn launch_agent(
        &self,
        entered: &EnteredWorkspace,
        task: &mut ProcessSpec,
    ) -> Result<Option<AgentLaunch>, StageError> {
        let prompt = self.prompt_context(entered);
        agent_launch::prepare_agent_launch(self.shared, &self.job, &self.run, prompt, task)
    }

    /// Keeps the prompt or script for people, without secrets and without the check id that only a checker may know.
    fn keep_prompt(&self, entered: &EnteredWorkspace, task: &ProcessSpec) -> Result<(), StageError> {
        let text = match &self.job.worker {
            WorkerSpec::Agent { .. } => String::from_utf8_lossy(&task.stdin).into_owned(),
            WorkerSpec::Script { text, .. } => text.clone(),
            WorkerSpec::Command { .. } | WorkerSpec::Tool { .. } | WorkerSpec::Action { .. } => return Ok(()),
        };
        let text = match &entered.check {
            Some(check) => text.replace(check, "CHECK_ID"),
            None => text,
        };
        let text = self.shared.redactor.redact_str(&text);
        Ok(self.files.root().write_new(AttemptDir::PROMPT, text.as_bytes())?)
    }

    fn take_baselines(
        &self,
        folders: &StepFolders,
        entered: &EnteredWorkspace,
        evidence: EvidenceContext,
        task: &mut ProcessSpec,
    ) -> Result<Baselines, StageError> {
        let (shared, job, folder) = (self.shared, &*self.job, &entered.folder);
        let without = excluded_folders(shared, folders.context.as_ref())?;
        let proving = EvidenceCheck::prepare(job, &self.run, evidence, &without)?;
        let protected = WorkspaceProtection::prepare(shared, job, &self.run, &self.files, folder, &without)?;
        task.preface.extend(protected.as_ref().and_then(WorkspaceProtection::coverage_note));
        let protected = protected.map(|protected| (protected, shared.company.enter_folder(folder.path())));
        let guarded = match &job.guard {
            Some(_) => {
                let workspace = folders.grants.open_folder(None).map_err(non_retryable)?;
                Some(entered.tree.resolve_shared_folder(&workspace).map_err(non_retryable)?)
            }
            None => None,
        };
        Ok(Baselines { without, proving, protected, guarded })
    }

    fn finish_preparation(
        &self,
        folders: StepFolders,
        entered: EnteredWorkspace,
        prepared: PreparedTask,
        agent: Option<AgentLaunch>,
        baselines: Baselines,
    ) -> PrepareOutcome {
        let attempt = PreparedAttempt {
            job: Arc::clone(&self.job),
            run: self.run.clone(),
            files: self.files.clone(),
            base: folders.base,
            folder: entered.folder,
            own_files: entered.own_files,
            without: baselines.without,
            speaks: prepared.speaks,
            agent,
            check: entered.check,
            guarded: baselines.guarded,
            made: prepared.made,
            proving: baselines.proving,
            protected: baselines.protected,
            sandboxed: prepared.task.sandbox.is_some(),
            state: self.shared.state.path().to_owned(),
            mark: self.mark.clone(),
            redactor: self.shared.redactor.new_stream(),
            tree: entered.tree,
            last_message: Default::default(),
        };
        PrepareOutcome::Ready(Box::new((prepared.task, attempt)))
    }
}

/// Updates the context folder to the present state of the run.
pub fn update_context_folder(
    shared: &ExecutorContext,
    run: &RunDir,
    grants: &FolderGrants,
    job: &AttemptSpec,
) -> Result<Option<ContextFolder>, StageError> {
    let (Some(snapshot), Some(directory)) = (&job.snapshot, &job.context) else { return Ok(None) };
    let workspace = grants.open_folder(None).map_err(non_retryable)?;
    Ok(Some(shared.write_context_folder(&workspace, directory, &job.run, &snapshot.story(run))?))
}
