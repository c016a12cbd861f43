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
        BudgetMode, ErrorClass, Evidence, HoldReason, IsolationSpec, Schema, Step, StepKindSpec, WorkSpec,
        WorkerCapability, WorkerSpec,
    },
    plan::Plan,
    time::Millis,
};

use super::handoff::AttemptHandoff;
use crate::{
    executor::{
        agents::{
            RemainingBudget,
            fallback::AgentFallback,
            prompt::{AgentContextRequest, StageGuidance},
        },
        evidence::ConvergenceGuard,
        worktree::WorkspaceTask,
    },
    executor_api::ActiveRun,
    recording::TIME,
    run_settings::{AgentSettings, RunSettings, ToolServer, ToolSettings},
    workspace::{ContextInput, RunDir},
};

#[derive(Debug)]
pub(crate) struct AttemptSpec {
    pub run: RunId,
    pub attempt: AttemptId,
    /// The path of the step.
    pub path: String,
    pub worker: WorkerSpec,
    pub given: Arc<AttemptInput>,
    pub mode: AttemptMode,
    pub timeouts: AttemptTimeouts,
    pub isolation: IsolationSpec,
    /// The variables that the workflow declares.
    pub env: Arc<Value>,
    pub workspace: WorkspaceTask,
    pub handoff: AttemptHandoff,
    pub agent_task: AgentTask,
    pub history: AttemptHistory,
    pub stage: StageGuidance,
    pub outputs: Schema,
    /// The evidence that the attempt must provide.
    pub evidence: Vec<Evidence>,
    pub guard: Option<ConvergenceGuard>,
    /// The file where a checker writes its decision.
    pub decision_file: Option<String>,
    /// The number of the run's try, and the ordinal among the instances with the same path.
    pub whole: u32,
    pub round: u32,
    pub settings: Arc<RunSettings>,
}

/// The time limits of an attempt: in total, of silence, and until the first output.
#[derive(Debug)]
pub(crate) struct AttemptTimeouts {
    pub total: Option<Millis>,
    pub idle: Option<Millis>,
    pub start: Option<Millis>,
}

/// The part of an attempt that only an agent needs.
#[derive(Debug)]
pub(crate) struct AgentTask {
    /// The format's default model, for an agent without a model of its own.
    pub default_model: Option<String>,
    /// The skills, context modules and memory that the step requests.
    pub context: AgentContextRequest,
    /// The commands that are tests, if the step names some.
    pub tests: Option<Vec<Vec<String>>>,
    /// The remaining budgets that apply to it.
    pub budgets: Vec<RemainingBudget>,
    /// True if it waits when its account has reached a limit.
    pub waits_for_quota: bool,
    /// A person released its quota hold, so it starts although the account's limit is known.
    pub quota_released: bool,
    /// The choice among several agents.
    pub fallback: AgentFallback,
}

impl AgentTask {
    fn new(running: ActiveRun<'_>, step: &Step, worker: &WorkerSpec, attempt: AttemptId) -> AgentTask {
        let ActiveRun { plan, state, names, .. } = running;
        let workflow = &plan.definition.workflow_containing(names.scope(attempt.at.0)).workflow;
        AgentTask {
            default_model: step.extensions.default_model.clone(),
            context: AgentContextRequest::from_step(workflow, step, worker, attempt.role),
            tests: step.extensions.skein.test_commands.clone(),
            budgets: remaining_budgets(plan, state, attempt),
            waits_for_quota: step.policy.holds.contains_key(&ErrorClass::RateLimit),
            quota_released: is_quota_released(state, attempt.at),
            fallback: AgentFallback::from_step(step, worker, attempt.role),
        }
    }
}

/// The earlier work that an attempt builds on.
#[derive(Debug, Default)]
pub(crate) struct AttemptHistory {
    /// The error of the attempt before it, if this one retries that.
    pub error: Option<String>,
    /// The evidence that did not hold in the previous attempt, if this one retries it.
    pub unproven: Vec<EvidenceResult>,
    /// The check that caused this iteration.
    pub check: Option<CheckRecord>,
    /// The result of the work, for the attempt that summarizes it.
    pub result: Option<Arc<Value>>,
}

impl AttemptHistory {
    fn new(running: ActiveRun<'_>, attempt: AttemptId, mode: AttemptMode) -> AttemptHistory {
        let visit = running.state.visit_state(attempt.at);
        match attempt.role {
            AttemptRole::Main => {
                let retried = visit.filter(|_| mode == AttemptMode::Again);
                let proofs = retried.into_iter().flat_map(|visit| &visit.proofs);
                AttemptHistory {
                    error: retried.and_then(|visit| Some(visit.error.as_ref()?.message.clone())),
                    unproven: proofs.filter(|proof| !proof.holds).cloned().collect(),
                    check: running.ledger.last_check(attempt.at).filter(|_| attempt.iteration > 1).cloned(),
                    result: None,
                }
            }
            AttemptRole::Summary => {
                AttemptHistory { result: visit.map(|visit| visit.result.clone()), ..AttemptHistory::default() }
            }
            AttemptRole::Check | AttemptRole::Undo => AttemptHistory::default(),
        }
    }
}

/// The state of a run at one moment.
#[derive(Debug)]
pub(crate) struct RunStateSnapshot {
    pub plan: Plan,
    pub state: RunState,
    pub ledger: RunLedger,
}

impl RunStateSnapshot {
    pub(crate) fn capture(running: ActiveRun<'_>) -> RunStateSnapshot {
        RunStateSnapshot { plan: running.plan.clone(), state: running.state.clone(), ledger: running.ledger.clone() }
    }

    pub(crate) fn story<'a>(&'a self, run: &'a RunDir) -> ContextInput<'a> {
        ContextInput { plan: &self.plan, state: &self.state, ledger: &self.ledger, run }
    }
}

impl AttemptSpec {
    pub(crate) fn new(
        running: ActiveRun<'_>,
        attempt: AttemptId,
        task: &AttemptAssignment,
    ) -> Result<AttemptSpec, MissingWorker> {
        let ActiveRun { run, plan, state, names, settings, .. } = running;
        let step = planned_step(running, attempt.at);
        let (worker, work) = worker_for_role(step, attempt.role)?;
        let main = attempt.role == AttemptRole::Main;
        let convergence = work.check.as_ref().and_then(|check| check.convergence.as_ref());
        Ok(AttemptSpec {
            run: run.clone(),
            attempt,
            path: names.step_path(attempt.at),
            worker: worker.clone(),
            given: task.given.clone(),
            mode: task.mode,
            timeouts: AttemptTimeouts {
                total: task.limit,
                idle: step.policy.idle_timeout,
                start: step.policy.start_timeout,
            },
            isolation: IsolationSpec::clone(&work.isolation),
            env: state.home_instance(attempt.at.0).env.clone(),
            workspace: WorkspaceTask::new(running, step, attempt),
            handoff: AttemptHandoff::new(running, step, work, attempt),
            agent_task: AgentTask::new(running, step, worker, attempt),
            history: AttemptHistory::new(running, attempt, task.mode),
            stage: StageGuidance::new(convergence.filter(|_| main), task.stage, running.ledger.last_check(attempt.at)),
            outputs: if main { step.outputs.clone() } else { Schema::default() },
            evidence: if main { work.evidence.clone() } else { Vec::new() },
            guard: convergence.filter(|_| attempt.role == AttemptRole::Check).and_then(|convergence| {
                ConvergenceGuard::for_convergence(plan, convergence, settings.context_directory(plan))
            }),
            decision_file: work.check.as_ref().and_then(|check| check.decision_file.clone()),
            whole: state.start.as_ref().map_or(1, |start| start.attempt),
            round: if settings.record.is_some() || settings.replay.is_some() {
                instance_round(state, names, attempt)
            } else {
                1
            },
            settings: Arc::clone(settings),
        })
    }

    /// The agent that does it, if an agent does.
    pub(crate) fn agent(&self) -> Option<&AgentSettings> {
        match &self.worker {
            WorkerSpec::Agent { .. } if self.agent_task.fallback.current_substitute().is_some() => {
                self.agent_task.fallback.current_substitute()
            }
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
    pub(crate) fn capabilities(&self) -> &[WorkerCapability] {
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
        decision.map(String::as_str).chain(self.handoff.gives.iter().map(|gives| gives.path.as_str()))
    }

    /// The tool servers of its agent. An agent that is a program of the project gets none.
    pub(crate) fn tool_servers(&self) -> Vec<(&str, &ToolServer)> {
        let named = self.agent_task.context.tools.iter().filter(|_| self.uses_coding_agent());
        let named = named.filter_map(|tool| tool.strip_prefix(ToolServer::SORT));
        let found = named.filter_map(|name| self.settings.surroundings.servers.get_key_value(name));
        found.map(|(name, server)| (name.as_str(), server)).collect()
    }

    /// The tool that does it, if a tool does.
    pub(crate) fn tool(&self) -> Option<&ToolSettings> {
        self.settings.tools.get(&ToolSettings::settings_key(&self.worker)?)
    }
}

/// The remaining budgets that pay for an attempt, without those that only warn.
fn remaining_budgets(plan: &Plan, state: &RunState, attempt: AttemptId) -> Vec<RemainingBudget> {
    let budgets = find_budgets(plan, state, attempt.at);
    let counted = budgets.into_iter().filter(|budget| budget.budget.mode != BudgetMode::Warn);
    let remaining = counted.map(|budget| RemainingBudget {
        tokens: budget.tokens_left(),
        micro_usd: budget.micro_usd_left(),
        pause: budget.budget.mode == BudgetMode::Pause,
        whose: budget.whose,
    });
    remaining.collect()
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
pub(crate) struct MissingWorker {
    step: StepId,
    role: AttemptRole,
}

/// The definition of a step in the plan of its run, which includes the rulings of policies.
pub(crate) fn planned_step(running: ActiveRun<'_>, at: StepAt) -> &Step {
    running.plan.definition.scope(running.names.scope(at.0)).step(at.1)
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
