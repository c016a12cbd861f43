//! The stages that prepare an attempt before its process: folders, inputs, command, sandbox, baselines.

use std::{
    ffi::OsString,
    path::Path,
    sync::{Arc, OnceLock},
};

use skein_core::{
    engine::{AttemptReport, AttemptRole, Cost},
    ir::WorkerSpec,
};

use super::{
    AttemptContext, EnteredWorkspace, FileBaselines, PrepareOutcome, PreparedAttempt, StageError,
    command::{self, ResultProtocol, WorkerCommand, WorkerEnvironment},
    handoff::{self, excluded_folders, import_artifacts},
    non_retryable, recording, sandbox_setup,
    spec::AttemptSpec,
};
use crate::{
    executor::{
        ExecutorContext,
        agents::{
            agent_launch, fallback,
            prompt::{self, PromptContext},
        },
        evidence::{EvidenceCheck, EvidenceContext, protect::WorkspaceProtection},
        programs, tools,
        worktree::{self, AttemptWorkspace},
    },
    process::ProcessSpec,
    sandbox::SandboxCover,
    system,
    workspace::{AttemptDir, ContextFolder, FolderGrants, RootFolder, root::FilePathError},
};

/// Prepares an attempt, and records its end if that fails.
pub(crate) fn prepare_attempt(shared: &Arc<ExecutorContext>, job: AttemptSpec) -> PrepareOutcome {
    let opened = AttemptContext::open(shared, job).map_err(StageError::from);
    let attempt = match opened.and_then(fallback::choose_agent) {
        Ok(attempt) => Arc::new(attempt),
        Err(error) => return PrepareOutcome::Over(AttemptReport::new(error.into(), Cost::default())),
    };
    attempt.run_stages().unwrap_or_else(|error| {
        let by = attempt.job.agent_task.fallback.substitute_name();
        let report = AttemptReport { by, ..AttemptReport::new(error.into(), Cost::default()) };
        recording::record_end(&attempt, None, &report);
        PrepareOutcome::Over(report)
    })
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

/// The process to start, and the facts about it that are needed when it has ended.
struct PreparedTask {
    task: ProcessSpec,
    speaks: ResultProtocol,
    /// The copies that cover pinned programs in the sandbox.
    covers: Vec<SandboxCover>,
    /// Empty files that were created so that the sandboxed worker can write them.
    made: Vec<String>,
}

impl AttemptContext {
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
    fn run_stages(self: &Arc<AttemptContext>) -> Result<PrepareOutcome, StageError> {
        self.check_inputs()?;
        let mut folders = self.open_workspace()?;
        self.begin_recording(&folders)?;
        folders.context = self.update_context_folder(&folders.grants)?;
        if let Some(report) = self.finish_interrupted_merge(&folders)? {
            return Ok(PrepareOutcome::Over(report));
        }
        self.write_inputs()?;
        let entered = self.enter_workspace(&folders)?;
        let mut prepared = self.build_task(&entered)?;
        self.add_environment(&folders, &entered, &mut prepared.task)?;
        let evidence = self.enter_sandbox(&folders, &entered, &mut prepared)?;
        let agent = agent_launch::prepare_agent_launch(PromptContext::new(self, &entered), &mut prepared.task)?;
        self.keep_prompt(&entered, &prepared.task)?;
        let baselines = self.take_baselines(&folders, &entered, evidence, &mut prepared.task)?;
        let PreparedTask { task, speaks, made, .. } = prepared;
        let attempt = PreparedAttempt {
            attempt: Arc::clone(self),
            base: folders.base,
            workspace: entered,
            baselines,
            speaks,
            agent,
            made,
            sandboxed: task.sandbox.is_some(),
            last_message: OnceLock::new(),
        };
        Ok(PrepareOutcome::Ready(Box::new((task, attempt))))
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
        recording::begin_recording(self, &folders.base)
            .map_err(|why| non_retryable(format!("the attempt cannot be recorded: {why}")))
    }

    /// Returns the report of work that an earlier attempt did, if only its merge was interrupted.
    fn finish_interrupted_merge(&self, folders: &StepFolders) -> Result<Option<AttemptReport>, StageError> {
        let report = worktree::finish_interrupted_merge(self, &folders.base, folders.context_path())?;
        if let Some(report) = &report {
            recording::record_end(self, Some(&folders.base), report);
        }
        Ok(report)
    }

    fn write_inputs(&self) -> Result<(), StageError> {
        let inputs = serde_json::to_vec_pretty(&self.job.given.inputs).expect("inputs are JSON");
        Ok(self.files.root().write_new(AttemptDir::INPUTS, &inputs)?)
    }

    /// Enters the shared workspace or a worktree, and puts the results of other steps into it.
    fn enter_workspace(&self, folders: &StepFolders) -> Result<EnteredWorkspace, StageError> {
        let mut tree = AttemptWorkspace::enter(self, folders.base.clone(), folders.context_path())?;
        let folder = tree.folder.clone();
        let taken = import_artifacts(self, &folder)?;
        tree.begin_attempt(self)?;
        handoff::copy_logs(self);
        let check = self.issue_check_id(&folder)?;
        let own_files = match self.job.writes_in_attempt_folder() {
            true => self.files.worker_output()?,
            false => folder.clone(),
        };
        let briefing = prompt::build_agent_context(self);
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
        let (job, files) = (&self.job, &self.files);
        let prompt = |agent: &_| prompt::build_prompt(agent, PromptContext::new(self, entered));
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
        task.limit = [job.timeouts.total, job.tool().and_then(|tool| tool.limit)].into_iter().flatten().min();
        (task.idle, task.start) = (job.timeouts.idle, job.timeouts.start);
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
        task.environment = command::build_environment(self, context, check).map_err(StageError::blocked_by_secret)?;
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
        let (task, folder, context) = (&mut prepared.task, &entered.folder, folders.context_path());
        let own = entered.tree.sandbox_paths(self).map_err(non_retryable)?;
        let beside = entered.tree.conflict_paths(self).map_err(non_retryable)?;
        let secrets = command::write_secret_files(self).map_err(StageError::blocked_by_secret)?;
        let (mut sandbox, made) = sandbox_setup::build_sandbox(self, folder, context, &(own, beside))?;
        if let Some(sandbox) = &mut sandbox {
            if !secrets.is_empty() {
                sandbox.spec.shows.push(self.run.secrets_folder(self.job.attempt)?.sandbox_place()?);
            }
            sandbox_setup::show_programs(&mut sandbox.spec, &task.program, &task.environment)?;
            sandbox.spec.covers = std::mem::take(&mut prepared.covers);
            task.environment.push(("TMPDIR".into(), self.files.make_scratch()?.path().into()));
        }
        (task.sandbox, prepared.made) = (sandbox, made);
        task.environment.extend(secrets);
        Ok(EvidenceContext::from_task(self, task, entered)?)
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
    ) -> Result<FileBaselines, StageError> {
        let folder = &entered.folder;
        let without = excluded_folders(&self.shared, folders.context.as_ref())?;
        let proving = EvidenceCheck::prepare(self, evidence, &without)?;
        let protected = WorkspaceProtection::prepare(self, folder, &without)?;
        task.preface.extend(protected.as_ref().and_then(WorkspaceProtection::coverage_note));
        let protected = protected.map(|protected| (protected, self.shared.company.enter_folder(folder.path())));
        let guarded = match &self.job.guard {
            Some(_) => {
                let workspace = folders.grants.open_folder(None).map_err(non_retryable)?;
                Some(entered.tree.resolve_shared_folder(&workspace).map_err(non_retryable)?)
            }
            None => None,
        };
        Ok(FileBaselines { without, proving, protected, guarded })
    }

    /// Updates the context folder to the present state of the run.
    pub(crate) fn update_context_folder(&self, grants: &FolderGrants) -> Result<Option<ContextFolder>, StageError> {
        let (Some(snapshot), Some(directory)) = (&self.job.handoff.snapshot, &self.job.handoff.context) else {
            return Ok(None);
        };
        let workspace = grants.open_folder(None).map_err(non_retryable)?;
        let story = snapshot.story(&self.run);
        Ok(Some(self.shared.write_context_folder(&workspace, directory, &self.job.run, &story)?))
    }
}
