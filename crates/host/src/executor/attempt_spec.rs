//! One attempt as those who do it need it: taken out of the run when it starts, because the run goes on meanwhile.

use std::sync::Arc;

use serde_json::Value;
use skein_core::{
    engine::{
        AttemptAssignment, AttemptId, AttemptInput, AttemptMode, AttemptRole, EvidenceResult, InstanceIx,
        RunState, StepAt, WaitpointKind, find_budgets,
    },
    ids::RunId,
    ir::{
        BudgetMode, ErrorClass, Evidence, HoldReason, InputArtifact, IsolationSpec, OutputArtifact, Schema,
        Step, StepKindSpec, WorkSpec, WorkerCapability, WorkerSpec,
    },
    plan::Plan,
    time::Millis,
    view::StepPaths,
};

use super::{
    ExecutorContext,
    agent_context::AgentContextRequest,
    convergence_guard::ConvergenceGuard,
    fallback::AgentFallback,
    handoff::{self, StepHandoff},
    remote::RemoteCall,
    run_settings::{AgentSettings, RunSettings, ToolSettings},
    stage_overlay,
    worktree::{MergeConflict, WorkspacePolicy},
};
use crate::{
    agent::{RemainingBudget, ToolServer},
    executor_api::ActiveRun,
    recording::TIME,
    workspace::{CheckRecord, ContextInput, Ledger, RunDir},
};

#[derive(Debug)]
pub struct AttemptSpec {
    pub run: RunId,
    pub attempt: AttemptId,
    /// The path of the step.
    pub path: String,
    pub worker: WorkerSpec,
    /// The model of an agent for which nobody names one, as the format says.
    pub usual_model: Option<String>,
    pub given: Arc<AttemptInput>,
    pub mode: AttemptMode,
    pub stage: u32,
    pub limit: Option<Millis>,
    pub idle: Option<Millis>,
    pub start: Option<Millis>,
    pub isolation: IsolationSpec,
    /// What must be so when it is done.
    pub evidence: Vec<Evidence>,
    /// What was looked at of that after the attempt before it, if it is made because of that.
    pub proofs: Vec<EvidenceResult>,
    pub keeping: WorkspacePolicy,
    /// Whether it must be known who worked in which workspace.
    pub watched: bool,
    /// What it is given of others' artifacts.
    pub takes: Vec<InputArtifact>,
    pub gives: Vec<OutputArtifact>,
    /// What others could not merge, and it is to settle.
    pub conflicts: Vec<MergeConflict>,
    /// What the steps before it hand to it.
    pub handed: Vec<StepHandoff>,
    /// What it asks to be told besides.
    pub wanted: AgentContextRequest,
    /// What its work came to, for whoever sums it up.
    pub result: Option<Arc<Value>>,
    /// What work that does not get nearer to its end is told.
    pub overlay: Option<String>,
    /// The instructions that the source adds at this stage.
    pub stage_instructions: Option<String>,
    /// What its output must look like.
    pub outputs: Schema,
    /// What budgets leave to it.
    pub left: Vec<RemainingBudget>,
    /// Whether it waits when its account has reached a limit.
    pub waits: bool,
    /// A person released its quota hold, so it starts although the account's limit is known.
    pub released: bool,
    /// The error of the attempt before it, if this one retries that.
    pub failed: Option<String>,
    /// The check because of which this iteration is made.
    pub last_check: Option<CheckRecord>,
    /// The commands that are tests, if the step names some.
    pub tests: Option<Vec<Vec<String>>>,
    /// What a check is guarded by.
    pub guard: Option<ConvergenceGuard>,
    /// Where a checker writes what it decided.
    pub decision_file: Option<String>,
    /// The folder in which steps of the run hand files to one another.
    pub context: Option<String>,
    /// The run as it was, where something of it is needed.
    pub snapshot: Option<Box<RunStateSnapshot>>,
    /// The variables that the workflow declares.
    pub env: Arc<Value>,
    /// Which try at the whole run it is of, and which of the instances with its path.
    pub whole: u32,
    pub round: u32,
    /// Which of several agents does it.
    pub relay: AgentFallback,
    pub about: Arc<RunSettings>,
}

/// A run as it was at some moment.
#[derive(Debug)]
pub struct RunStateSnapshot {
    pub plan: Plan,
    pub state: RunState,
    pub ledger: Ledger,
}

impl RunStateSnapshot {
    pub fn capture(running: ActiveRun<'_>) -> RunStateSnapshot {
        RunStateSnapshot {
            plan: running.plan.clone(),
            state: running.state.clone(),
            ledger: running.ledger.clone(),
        }
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
        about: Arc<RunSettings>,
    ) -> Result<AttemptSpec, String> {
        let ActiveRun { run, plan, state, names, .. } = running;
        let scope = names.scope(attempt.at.0);
        let step = plan.definition.scope(scope).step(attempt.at.1);
        let workflow = &plan.definition.workflow_containing(scope).workflow;
        let (worker, work) = worker_for_role(step, attempt.role)?;
        let main = attempt.role == AttemptRole::Main;
        let takes = if main { work.takes.clone() } else { Vec::new() };
        let convergence = work.check.as_ref().and_then(|check| check.convergence.as_ref());
        let last_check = running.ledger.last_check(attempt.at);
        let context = about.context_directory(plan).map(str::to_owned);
        Ok(AttemptSpec {
            run: run.clone(),
            attempt,
            path: names.step_path(attempt.at),
            worker: worker.clone(),
            usual_model: default_model(step).map(str::to_owned),
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
            snapshot: (!takes.is_empty() || context.is_some())
                .then(|| Box::new(RunStateSnapshot::capture(running))),
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
            tests: test_commands(step),
            overlay: convergence
                .filter(|_| main)
                .and_then(|convergence| stage_overlay::stage_prompt(convergence, task.stage, last_check)),
            stage_instructions: convergence
                .filter(|_| main)
                .and_then(|convergence| stage_overlay::stage_instructions(convergence, task.stage)),
            guard: convergence.filter(|_| attempt.role == AttemptRole::Check).and_then(|convergence| {
                ConvergenceGuard::for_convergence(plan, convergence, about.context_directory(plan))
            }),
            decision_file: work.check.as_ref().and_then(|check| check.decision_file.clone()),
            env: state.home_instance(attempt.at.0).env.clone(),
            relay: AgentFallback::from_step(step, worker, attempt.role),
            whole: state.start.as_ref().map_or(1, |start| start.attempt),
            round: if about.record.is_some() || about.replay.is_some() {
                instance_round(state, names, attempt)
            } else {
                1
            },
            about,
        })
    }
}

impl AttemptSpec {
    /// The agent that does it, where an agent does.
    pub fn agent(&self) -> Option<&AgentSettings> {
        match &self.worker {
            WorkerSpec::Agent { .. } if self.relay.current_substitute().is_some() => {
                self.relay.current_substitute()
            }
            WorkerSpec::Agent { name, program, .. } => {
                self.about.agents.get(&AgentSettings::settings_key(name.as_deref(), program.as_deref()))
            }
            _ => None,
        }
    }

    /// Whether a coding agent does it that is not a program of the project's own.
    pub fn uses_coding_agent(&self) -> bool {
        self.agent().is_some_and(|agent| agent.worker.is_some())
    }

    /// What its worker may do: what the step says, or else what the agent is for. None: it may read and edit.
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

    /// Whether it may write nothing but what it is given to write.
    pub fn is_read_only(&self) -> bool {
        let capabilities = self.capabilities();
        let chosen = matches!(self.worker, WorkerSpec::Agent { .. } | WorkerSpec::Script { .. });
        // Who names none may read and edit. Whoever runs commands or tests leaves files by it.
        chosen && !capabilities.is_empty() && capabilities.iter().all(|c| *c == WorkerCapability::Read)
    }

    /// Whether its own files are in a folder of ours: coding agents make new files to change one, which nobody can in a
    /// workspace that is only read.
    pub fn writes_in_attempt_folder(&self) -> bool {
        self.uses_coding_agent() && self.is_read_only()
    }

    /// The files that it is to write, whatever it may do else.
    pub fn own_files(&self) -> impl Iterator<Item = &str> {
        let decision = self.decision_file.iter().filter(|_| self.attempt.role == AttemptRole::Check);
        decision.map(String::as_str).chain(self.gives.iter().map(|gives| gives.path.as_str()))
    }

    /// The servers of tools that its agent is given. A program of the project's own takes none.
    pub fn tool_servers(&self) -> Vec<(&str, &ToolServer)> {
        let named = self.wanted.tools.iter().filter(|_| self.uses_coding_agent());
        let named = named.filter_map(|tool| tool.strip_prefix(ToolServer::SORT));
        let found = named.filter_map(|name| self.about.surroundings.servers.get_key_value(name));
        found.map(|(name, server)| (name.as_str(), server)).collect()
    }

    /// The tool that does it, where a tool does.
    pub fn tool(&self) -> Option<&ToolSettings> {
        self.about.tools.get(&ToolSettings::settings_key(&self.worker)?)
    }

    /// The call by which it is done, where no program does it alone.
    pub(super) fn remote_call<'a>(&'a self, shared: &'a ExecutorContext) -> Option<RemoteCall<'a>> {
        let tool = self.tool().filter(|tool| tool.is_remote_or_builtin())?;
        Some(RemoteCall { shared, job: self, tool })
    }
}

/// What is checked, summed up or undone is never tried in a workspace that is put back.
fn workspace_policy(step: &Step, main: bool) -> WorkspacePolicy {
    let keeping = WorkspacePolicy::from_step(step);
    WorkspacePolicy { restores: keeping.restores && main, ..keeping }
}

/// What the budgets leave out of which an attempt is paid, of those that stop what spends them.
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

/// Returns true if the last hold of a step was for a quota, and a person released it, not its time.
fn is_quota_released(state: &RunState, at: StepAt) -> bool {
    let last = state.openings.iter().rev().find(|opening| opening.at == at);
    let decided = last.filter(|last| last.kind == WaitpointKind::Hold(HoldReason::Quota));
    decided.and_then(|last| last.decided.as_ref()).is_some_and(|(by, _)| by != TIME)
}

/// Which of the instances with the same path an attempt is of: a composite that is tried again has new ones.
fn instance_round(state: &RunState, names: &StepPaths, attempt: AttemptId) -> u32 {
    let InstanceIx(ix) = attempt.at.0;
    let path = names.instance_path(attempt.at.0);
    let known = u32::try_from(state.instances.len()).unwrap_or(u32::MAX);
    let same = (0..ix.min(known)).filter(|other| names.instance_path(InstanceIx(*other)) == path);
    u32::try_from(same.count()).unwrap_or(u32::MAX).saturating_add(1)
}

/// Why the attempt before this one failed, if it is made because of that.
fn previous_error(state: &RunState, attempt: AttemptId, mode: AttemptMode) -> Option<String> {
    let more = state
        .visit_state(attempt.at)
        .filter(|_| mode == AttemptMode::Again && attempt.role == AttemptRole::Main)?;
    more.error.as_ref().map(|error| error.message.clone())
}

/// What was not proven of the attempt before this one.
fn unproven_evidence(state: &RunState, attempt: AttemptId, mode: AttemptMode) -> Vec<EvidenceResult> {
    let more = state
        .visit_state(attempt.at)
        .filter(|_| mode == AttemptMode::Again && attempt.role == AttemptRole::Main);
    let proofs = more.map(|more| more.proofs.iter()).into_iter().flatten();
    proofs.filter(|proof| !proof.holds).cloned().collect()
}

/// What the format says is the model where nobody names one.
fn default_model(step: &Step) -> Option<&str> {
    step.labels.get("default_model")?.as_str()
}

/// Whether a coding agent has models of the usual name. Others would not know it.
pub(super) fn takes_default_model(word: &str) -> bool {
    word == "CLAUDE_CODE"
}

/// The model of a step's agent for which nobody names one.
pub fn default_agent_model<'a>(step: &'a Step, word: &str) -> Option<&'a str> {
    default_model(step).filter(|_| takes_default_model(word))
}

/// What the source says are tests of a step.
pub fn test_commands(step: &Step) -> Option<Vec<Vec<String>>> {
    serde_json::from_value(step.skein_extension("test_commands")?.clone()).ok()
}

/// Who does this part of a step's work.
pub(crate) fn worker_for_role(step: &Step, role: AttemptRole) -> Result<(&WorkerSpec, &WorkSpec), String> {
    let missing = || format!("`{}` has nobody to do its {}", step.id, role.as_str());
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
