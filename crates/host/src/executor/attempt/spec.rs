//! The description of one attempt, copied out of the run when it starts, because the run continues meanwhile.

use std::sync::Arc;

use serde_json::Value;
use skein_core::{
    engine::{
        AttemptAssignment, AttemptId, AttemptInput, AttemptMode, AttemptRole, CheckRecord, EvidenceResult, InstanceIx,
        RunLedger, RunState, StepAt, StepPaths, WaitpointKind, find_budgets,
    },
    ids::{RunId, StepId},
    ir::{
        BudgetMode, ErrorClass, Evidence, HoldReason, InputArtifact, IsolationSpec, OutputArtifact, Schema, Step,
        StepKindSpec, WorkSpec, WorkerCapability, WorkerSpec,
    },
    plan::Plan,
    time::Millis,
};

use super::handoff::{self, StepHandoff};
use crate::{
    executor::{
        agents::{
            RemainingBudget,
            fallback::AgentFallback,
            prompt::{self, AgentContextRequest},
        },
        evidence::ConvergenceGuard,
        worktree::{MergeConflict, WorkspacePolicy},
    },
    executor_api::ActiveRun,
    recording::TIME,
    run_settings::{AgentSettings, RunSettings, ToolServer, ToolSettings},
    workspace::{ContextInput, RunDir},
};

#[derive(Debug)]
pub struct AttemptSpec {
    pub run: RunId,
    pub attempt: AttemptId,
    /// The path of the step.
    pub path: String,
    pub worker: WorkerSpec,
    /// The format's default model, for an agent without a model of its own.
    pub usual_model: Option<String>,
    pub given: Arc<AttemptInput>,
    pub mode: AttemptMode,
    pub stage: u32,
    pub limit: Option<Millis>,
    pub idle: Option<Millis>,
    pub start: Option<Millis>,
    pub isolation: IsolationSpec,
    /// The evidence that the attempt must provide.
    pub evidence: Vec<Evidence>,
    /// The evidence that did not hold in the previous attempt, if this one retries it.
    pub proofs: Vec<EvidenceResult>,
    pub keeping: WorkspacePolicy,
    /// True if the use of workspaces by attempts is tracked.
    pub watched: bool,
    /// The artifacts of other steps that it takes.
    pub takes: Vec<InputArtifact>,
    pub gives: Vec<OutputArtifact>,
    /// The merge conflicts of other steps that it must resolve.
    pub conflicts: Vec<MergeConflict>,
    /// The results of earlier steps that are handed to it.
    pub handed: Vec<StepHandoff>,
    /// The further context that it requests.
    pub wanted: AgentContextRequest,
    /// The result of the work, for the attempt that summarizes it.
    pub result: Option<Arc<Value>>,
    /// The additional prompt for work that does not converge.
    pub overlay: Option<String>,
    /// The instructions that the source adds at this stage.
    pub stage_instructions: Option<String>,
    /// The schema of its output.
    pub outputs: Schema,
    /// The remaining budgets that apply to it.
    pub left: Vec<RemainingBudget>,
    /// True if it waits when its account has reached a limit.
    pub waits: bool,
    /// A person released its quota hold, so it starts although the account's limit is known.
    pub released: bool,
    /// The error of the attempt before it, if this one retries that.
    pub failed: Option<String>,
    /// The check that caused this iteration.
    pub last_check: Option<CheckRecord>,
    /// The commands that are tests, if the step names some.
    pub tests: Option<Vec<Vec<String>>>,
    /// The convergence guard of a check.
    pub guard: Option<ConvergenceGuard>,
    /// The file where a checker writes its decision.
    pub decision_file: Option<String>,
    /// The folder in which steps of the run hand files to one another.
    pub context: Option<String>,
    /// The state of the run at the start, if something needs it.
    pub snapshot: Option<Box<RunStateSnapshot>>,
    /// The variables that the workflow declares.
    pub env: Arc<Value>,
    /// The number of the run's try, and the ordinal among the instances with the same path.
    pub whole: u32,
    pub round: u32,
    /// The choice among several agents.
    pub relay: AgentFallback,
    pub settings: Arc<RunSettings>,
}

/// The state of a run at one moment.
#[derive(Debug)]
pub struct RunStateSnapshot {
    pub plan: Plan,
    pub state: RunState,
    pub ledger: RunLedger,
}

impl RunStateSnapshot {
    pub fn capture(running: ActiveRun<'_>) -> RunStateSnapshot {
        RunStateSnapshot { plan: running.plan.clone(), state: running.state.clone(), ledger: running.ledger.clone() }
    }

    pub fn story<'a>(&'a self, run: &'a RunDir) -> ContextInput<'a> {
        ContextInput { plan: &self.plan, state: &self.state, ledger: &self.ledger, run }
    }
}

impl AttemptSpec {
    pub fn new(
        running: ActiveRun<'_>,
        attempt: AttemptId,
        task: &AttemptAssignment,
    ) -> Result<AttemptSpec, MissingWorker> {
        let ActiveRun { run, plan, state, names, settings, .. } = running;
        let scope = names.scope(attempt.at.0);
        let step = plan.definition.scope(scope).step(attempt.at.1);
        let workflow = &plan.definition.workflow_containing(scope).workflow;
        let (worker, work) = worker_for_role(step, attempt.role)?;
        let main = attempt.role == AttemptRole::Main;
        let takes = if main { work.takes.clone() } else { Vec::new() };
        let convergence = work.check.as_ref().and_then(|check| check.convergence.as_ref());
        let last_check = running.ledger.last_check(attempt.at);
        let context = settings.context_directory(plan).map(str::to_owned);
        Ok(AttemptSpec {
            run: run.clone(),
            attempt,
            path: names.step_path(attempt.at),
            worker: worker.clone(),
            usual_model: step.extensions.default_model.clone(),
            given: task.given.clone(),
            mode: task.mode,
            stage: task.stage,
            limit: task.limit,
            idle: step.policy.idle_timeout,
            start: step.policy.start_timeout,
            isolation: IsolationSpec::clone(&work.isolation),
            evidence: if main { work.evidence.clone() } else { Vec::new() },
            proofs: unproven_evidence(state, attempt, task.mode),
            keeping: workspace_policy(step, main),
            watched: false,
            snapshot: (!takes.is_empty() || context.is_some()).then(|| Box::new(RunStateSnapshot::capture(running))),
            context,
            takes,
            gives: if main { work.gives.clone() } else { Vec::new() },
            conflicts: MergeConflict::find_unresolved(plan.definition.scope(scope), state, attempt, |of| {
                names.step_path(of.at)
            }),
            handed: if main { handoff::collect_handoffs(running, step, attempt) } else { Vec::new() },
            wanted: AgentContextRequest::from_step(workflow, step, worker, attempt.role),
            result: match attempt.role {
                AttemptRole::Summary => state.visit_state(attempt.at).map(|more| more.result.clone()),
                AttemptRole::Main | AttemptRole::Check | AttemptRole::Undo => None,
            },
            outputs: if main { step.outputs.clone() } else { Schema::default() },
            left: remaining_budgets(plan, state, attempt),
            waits: step.policy.holds.contains_key(&ErrorClass::RateLimit),
            released: is_quota_released(state, attempt.at),
            failed: previous_error(state, attempt, task.mode),
            last_check: last_check.filter(|_| main && attempt.iteration > 1).cloned(),
            tests: step.extensions.skein.test_commands.clone(),
            overlay: convergence
                .filter(|_| main)
                .and_then(|convergence| prompt::stage_prompt(convergence, task.stage, last_check)),
            stage_instructions: convergence
                .filter(|_| main)
                .and_then(|convergence| prompt::stage_instructions(convergence, task.stage)),
            guard: convergence.filter(|_| attempt.role == AttemptRole::Check).and_then(|convergence| {
                ConvergenceGuard::for_convergence(plan, convergence, settings.context_directory(plan))
            }),
            decision_file: work.check.as_ref().and_then(|check| check.decision_file.clone()),
            env: state.home_instance(attempt.at.0).env.clone(),
            relay: AgentFallback::from_step(step, worker, attempt.role),
            whole: state.start.as_ref().map_or(1, |start| start.attempt),
            round: if settings.record.is_some() || settings.replay.is_some() {
                instance_round(state, names, attempt)
            } else {
                1
            },
            settings: Arc::clone(settings),
        })
    }
}

impl AttemptSpec {
    /// The agent that does it, if an agent does.
    pub fn agent(&self) -> Option<&AgentSettings> {
        match &self.worker {
            WorkerSpec::Agent { .. } if self.relay.current_substitute().is_some() => self.relay.current_substitute(),
            WorkerSpec::Agent { name, program, .. } => {
                self.settings.agents.get(&AgentSettings::settings_key(name.as_deref(), program.as_deref()))
            }
            _ => None,
        }
    }

    /// True if a coding agent does it, as opposed to an agent that is a program of the project.
    pub(crate) fn uses_coding_agent(&self) -> bool {
        self.agent().is_some_and(|agent| agent.worker.is_some())
    }

    /// The worker's capabilities: the step's, or else the agent's. Empty means that it may read and edit.
    pub fn capabilities(&self) -> &[WorkerCapability] {
        match &self.worker {
            WorkerSpec::Agent { capabilities, .. } | WorkerSpec::Script { capabilities, .. }
                if !capabilities.is_empty() =>
            {
                capabilities
            }
            _ => self.agent().map_or(&[], |agent| &agent.capabilities),
        }
    }

    /// True if it may write only its own files.
    pub(crate) fn is_read_only(&self) -> bool {
        let capabilities = self.capabilities();
        let chosen = matches!(self.worker, WorkerSpec::Agent { .. } | WorkerSpec::Script { .. });
        // Without capabilities it may read and edit. A worker that runs commands or tests leaves files behind.
        chosen && !capabilities.is_empty() && capabilities.iter().all(|c| *c == WorkerCapability::Read)
    }

    /// True if its own files are in the attempt folder. Coding agents replace a file by creating a new one, which is
    /// impossible in a read-only workspace.
    pub(crate) fn writes_in_attempt_folder(&self) -> bool {
        self.uses_coding_agent() && self.is_read_only()
    }

    /// The files that it must write, whatever its capabilities are.
    pub(crate) fn own_files(&self) -> impl Iterator<Item = &str> {
        let decision = self.decision_file.iter().filter(|_| self.attempt.role == AttemptRole::Check);
        decision.map(String::as_str).chain(self.gives.iter().map(|gives| gives.path.as_str()))
    }

    /// The tool servers of its agent. An agent that is a program of the project gets none.
    pub(crate) fn tool_servers(&self) -> Vec<(&str, &ToolServer)> {
        let named = self.wanted.tools.iter().filter(|_| self.uses_coding_agent());
        let named = named.filter_map(|tool| tool.strip_prefix(ToolServer::SORT));
        let found = named.filter_map(|name| self.settings.surroundings.servers.get_key_value(name));
        found.map(|(name, server)| (name.as_str(), server)).collect()
    }

    /// The tool that does it, if a tool does.
    pub fn tool(&self) -> Option<&ToolSettings> {
        self.settings.tools.get(&ToolSettings::settings_key(&self.worker)?)
    }
}

/// Checks, summaries and undos never run in a restored workspace.
fn workspace_policy(step: &Step, main: bool) -> WorkspacePolicy {
    let keeping = WorkspacePolicy::from_step(step);
    WorkspacePolicy { restores: keeping.restores && main, ..keeping }
}

/// The remaining budgets that pay for an attempt, without those that only warn.
fn remaining_budgets(plan: &Plan, state: &RunState, attempt: AttemptId) -> Vec<RemainingBudget> {
    let purses = find_budgets(plan, state, attempt.at);
    let counted = purses.into_iter().filter(|purse| purse.budget.mode != BudgetMode::Warn);
    let left = counted.map(|purse| RemainingBudget {
        tokens: purse.tokens_left(),
        micro_usd: purse.micro_usd_left(),
        pause: purse.budget.mode == BudgetMode::Pause,
        whose: purse.whose,
    });
    left.collect()
}

/// True if the last hold of a step was for a quota and a person released it before its time was over.
fn is_quota_released(state: &RunState, at: StepAt) -> bool {
    let last = state.openings.iter().rev().find(|opening| opening.at == at);
    let decided = last.filter(|last| last.kind == WaitpointKind::Hold(HoldReason::Quota));
    decided.and_then(|last| last.decided.as_ref()).is_some_and(|(by, _)| by != TIME)
}

/// The ordinal among the instances with the same path. A composite that is retried has new instances.
fn instance_round(state: &RunState, names: &StepPaths, attempt: AttemptId) -> u32 {
    let InstanceIx(ix) = attempt.at.0;
    let path = names.instance_path(attempt.at.0);
    let known = u32::try_from(state.instances.len()).unwrap_or(u32::MAX);
    let same = (0..ix.min(known)).filter(|other| names.instance_path(InstanceIx(*other)) == path);
    u32::try_from(same.count()).unwrap_or(u32::MAX).saturating_add(1)
}

/// The error of the previous attempt, if this one retries it.
fn previous_error(state: &RunState, attempt: AttemptId, mode: AttemptMode) -> Option<String> {
    let more =
        state.visit_state(attempt.at).filter(|_| mode == AttemptMode::Again && attempt.role == AttemptRole::Main)?;
    more.error.as_ref().map(|error| error.message.clone())
}

/// The evidence that did not hold in the previous attempt.
fn unproven_evidence(state: &RunState, attempt: AttemptId, mode: AttemptMode) -> Vec<EvidenceResult> {
    let more =
        state.visit_state(attempt.at).filter(|_| mode == AttemptMode::Again && attempt.role == AttemptRole::Main);
    let proofs = more.map(|more| more.proofs.iter()).into_iter().flatten();
    proofs.filter(|proof| !proof.holds).cloned().collect()
}

/// True if a coding agent knows the default model's name. Others do not.
pub(crate) fn takes_default_model(word: &str) -> bool {
    word == "CLAUDE_CODE"
}

/// The default model of a step's agent.
pub fn default_agent_model<'a>(step: &'a Step, word: &str) -> Option<&'a str> {
    step.extensions.default_model.as_deref().filter(|_| takes_default_model(word))
}

/// A step has no worker for a role that it is asked to play.
#[derive(Debug, thiserror::Error)]
#[error("`{step}` has no worker for its {}", role.as_str())]
pub struct MissingWorker {
    step: StepId,
    role: AttemptRole,
}

/// The worker for one role of a step, with its work spec.
pub(crate) fn worker_for_role(step: &Step, role: AttemptRole) -> Result<(&WorkerSpec, &WorkSpec), MissingWorker> {
    let missing = || MissingWorker { step: step.id.clone(), role };
    if role == AttemptRole::Undo {
        let undo = step.undo.as_ref().ok_or_else(missing)?;
        return Ok((&undo.work.worker, &undo.work));
    }
    let StepKindSpec::Work(work) = &step.kind else { return Err(missing()) };
    let worker = match role {
        AttemptRole::Main | AttemptRole::Undo => Some(&work.worker),
        AttemptRole::Check => work.check.as_ref().map(|check| &check.worker),
        AttemptRole::Summary => work.summary.as_ref().map(|summary| &summary.worker),
    };
    worker.map(|worker| (worker, &**work)).ok_or_else(missing)
}
