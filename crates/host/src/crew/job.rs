//! One attempt as those who do it need it: taken out of the run when it starts, because the run goes on meanwhile.

use std::sync::Arc;

use serde_json::Value;
use skein_core::{
    engine::{
        Assignment, AttemptId, Given, InstanceIx, Mode, OpeningKind, Proof, Role, RunState, StepAt, purses,
    },
    ids::RunId,
    ir::{
        ArtifactIn, ArtifactOut, BudgetMode, Capability, ErrorClass, Evidence, HoldReason, Isolation, Kind,
        Schema, Step, Work, Worker,
    },
    plan::Plan,
    time::Millis,
    view::Names,
};

use super::{
    Shared,
    about::{About, Agent, Tool},
    briefing::Wanted,
    guard::Guard,
    handoff::{self, Handed},
    overlay,
    relay::Relay,
    remote::Asking,
    tree::{Conflict, Keeping},
};
use crate::{
    agent::{Left, Server},
    hands::Running,
    tape::TIME,
    workspace::{CheckRecord, Ledger, RunDir, Story},
};

#[derive(Debug)]
pub struct Job {
    pub run: RunId,
    pub attempt: AttemptId,
    /// The path of the step.
    pub path: String,
    pub worker: Worker,
    /// The model of an agent for which nobody names one, as the format says.
    pub usual_model: Option<String>,
    pub given: Arc<Given>,
    pub mode: Mode,
    pub stage: u32,
    pub limit: Option<Millis>,
    pub idle: Option<Millis>,
    pub start: Option<Millis>,
    pub isolation: Isolation,
    /// What must be so when it is done.
    pub evidence: Vec<Evidence>,
    /// What was looked at of that after the attempt before it, if it is made because of that.
    pub proofs: Vec<Proof>,
    pub keeping: Keeping,
    /// Whether it must be known who worked in which workspace.
    pub watched: bool,
    /// What it is given of others' artifacts.
    pub takes: Vec<ArtifactIn>,
    pub gives: Vec<ArtifactOut>,
    /// What others could not merge, and it is to settle.
    pub conflicts: Vec<Conflict>,
    /// What the steps before it hand to it.
    pub handed: Vec<Handed>,
    /// What it asks to be told besides.
    pub wanted: Wanted,
    /// What its work came to, for whoever sums it up.
    pub result: Option<Arc<Value>>,
    /// What work that does not get nearer to its end is told.
    pub overlay: Option<String>,
    /// The instructions that the source adds at this stage.
    pub stage_instructions: Option<String>,
    /// What its output must look like.
    pub outputs: Schema,
    /// What budgets leave to it.
    pub left: Vec<Left>,
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
    pub guard: Option<Guard>,
    /// Where a checker writes what it decided.
    pub decision_file: Option<String>,
    /// The folder in which steps of the run hand files to one another.
    pub context: Option<String>,
    /// The run as it was, where something of it is needed.
    pub snapshot: Option<Box<Snapshot>>,
    /// The variables that the workflow declares.
    pub env: Arc<Value>,
    /// Which try at the whole run it is of, and which of the instances with its path.
    pub whole: u32,
    pub round: u32,
    /// Which of several agents does it.
    pub relay: Relay,
    pub about: Arc<About>,
}

/// A run as it was at some moment.
#[derive(Debug)]
pub struct Snapshot {
    pub plan: Plan,
    pub state: RunState,
    pub ledger: Ledger,
}

impl Snapshot {
    pub fn of(running: Running<'_>) -> Snapshot {
        Snapshot { plan: running.plan.clone(), state: running.state.clone(), ledger: running.ledger.clone() }
    }

    pub fn story<'a>(&'a self, run: &'a RunDir) -> Story<'a> {
        Story { plan: &self.plan, state: &self.state, ledger: &self.ledger, run }
    }
}

impl Job {
    pub fn of(
        running: Running<'_>,
        attempt: AttemptId,
        task: &Assignment,
        about: Arc<About>,
    ) -> Result<Job, String> {
        let Running { run, plan, state, names, .. } = running;
        let scope = names.scope(attempt.at.0);
        let step = plan.definition.scope(scope).step(attempt.at.1);
        let workflow = &plan.definition.workflow_of(scope).workflow;
        let (worker, work) = worker(step, attempt.role)?;
        let main = attempt.role == Role::Main;
        let takes = if main { work.takes.clone() } else { Vec::new() };
        let convergence = work.check.as_ref().and_then(|check| check.convergence.as_ref());
        let last_check = running.ledger.last_check(attempt.at);
        let context = about.context_directory(plan).map(str::to_owned);
        Ok(Job {
            run: run.clone(),
            attempt,
            path: names.step(attempt.at),
            worker: worker.clone(),
            usual_model: usual(step).map(str::to_owned),
            given: task.given.clone(),
            mode: task.mode,
            stage: task.stage,
            limit: task.limit,
            idle: step.policy.idle_timeout,
            start: step.policy.start_timeout,
            isolation: Isolation::clone(&work.isolation),
            evidence: if main { work.evidence.clone() } else { Vec::new() },
            proofs: unproven(state, attempt, task.mode),
            keeping: keeping(step, main),
            watched: false,
            snapshot: (!takes.is_empty() || context.is_some()).then(|| Box::new(Snapshot::of(running))),
            context,
            takes,
            gives: if main { work.gives.clone() } else { Vec::new() },
            conflicts: Conflict::of(plan.definition.scope(scope), state, attempt, |of| names.step(of.at)),
            handed: if main { handoff::of(running, step, attempt) } else { Vec::new() },
            wanted: Wanted::of(workflow, step, worker, attempt.role),
            result: match attempt.role {
                Role::Summary => state.more(attempt.at).map(|more| more.result.clone()),
                Role::Main | Role::Check | Role::Undo => None,
            },
            outputs: if main { step.outputs.clone() } else { Schema::default() },
            left: left(plan, state, attempt),
            waits: step.policy.holds.contains_key(&ErrorClass::RateLimit),
            released: is_released(state, attempt.at),
            failed: failed(state, attempt, task.mode),
            last_check: last_check.filter(|_| main && attempt.iteration > 1).cloned(),
            tests: tests(step),
            overlay: convergence
                .filter(|_| main)
                .and_then(|convergence| overlay::stage_prompt(convergence, task.stage, last_check)),
            stage_instructions: convergence
                .filter(|_| main)
                .and_then(|convergence| overlay::stage_instructions(convergence, task.stage)),
            guard: convergence.filter(|_| attempt.role == Role::Check).and_then(|convergence| {
                Guard::for_convergence(plan, convergence, about.context_directory(plan))
            }),
            decision_file: work.check.as_ref().and_then(|check| check.decision_file.clone()),
            env: state.home(attempt.at.0).env.clone(),
            relay: Relay::of(step, worker, attempt.role),
            whole: state.start.as_ref().map_or(1, |start| start.attempt),
            round: if about.record.is_some() || about.replay.is_some() {
                round(state, names, attempt)
            } else {
                1
            },
            about,
        })
    }
}

impl Job {
    /// The agent that does it, where an agent does.
    pub fn agent(&self) -> Option<&Agent> {
        match &self.worker {
            Worker::Agent { .. } if self.relay.instead().is_some() => self.relay.instead(),
            Worker::Agent { name, program, .. } => {
                self.about.agents.get(&Agent::key(name.as_deref(), program.as_deref()))
            }
            _ => None,
        }
    }

    /// Whether a coding agent does it that is not a program of the project's own.
    pub fn is_hired(&self) -> bool {
        self.agent().is_some_and(|agent| agent.worker.is_some())
    }

    /// What its worker may do: what the step says, or else what the agent is for. None: it may read and edit.
    pub fn capabilities(&self) -> &[Capability] {
        match &self.worker {
            Worker::Agent { capabilities, .. } | Worker::Script { capabilities, .. }
                if !capabilities.is_empty() =>
            {
                capabilities
            }
            _ => self.agent().map_or(&[], |agent| &agent.capabilities),
        }
    }

    /// Whether it may write nothing but what it is given to write.
    pub fn only_reads(&self) -> bool {
        let capabilities = self.capabilities();
        let chosen = matches!(self.worker, Worker::Agent { .. } | Worker::Script { .. });
        // Who names none may read and edit. Whoever runs commands or tests leaves files by it.
        chosen && !capabilities.is_empty() && capabilities.iter().all(|c| *c == Capability::Read)
    }

    /// Whether its own files are in a folder of ours: coding agents make new files to change one, which nobody can in a
    /// workspace that is only read.
    pub fn writes_apart(&self) -> bool {
        self.is_hired() && self.only_reads()
    }

    /// The files that it is to write, whatever it may do else.
    pub fn own_files(&self) -> impl Iterator<Item = &str> {
        let decision = self.decision_file.iter().filter(|_| self.attempt.role == Role::Check);
        decision.map(String::as_str).chain(self.gives.iter().map(|gives| gives.path.as_str()))
    }

    /// The servers of tools that its agent is given. A program of the project's own takes none.
    pub fn servers(&self) -> Vec<(&str, &Server)> {
        let named = self.wanted.tools.iter().filter(|_| self.is_hired());
        let named = named.filter_map(|tool| tool.strip_prefix(Server::SORT));
        let found = named.filter_map(|name| self.about.surroundings.servers.get_key_value(name));
        found.map(|(name, server)| (name.as_str(), server)).collect()
    }

    /// The tool that does it, where a tool does.
    pub fn tool(&self) -> Option<&Tool> {
        self.about.tools.get(&Tool::key(&self.worker)?)
    }

    /// The call by which it is done, where no program does it alone.
    pub(super) fn asking<'a>(&'a self, shared: &'a Shared) -> Option<Asking<'a>> {
        let tool = self.tool().filter(|tool| tool.is_asked())?;
        Some(Asking { shared, job: self, tool })
    }
}

/// What is checked, summed up or undone is never tried in a workspace that is put back.
fn keeping(step: &Step, main: bool) -> Keeping {
    let keeping = Keeping::of(step);
    Keeping { restores: keeping.restores && main, ..keeping }
}

/// What the budgets leave out of which an attempt is paid, of those that stop what spends them.
fn left(plan: &Plan, state: &RunState, attempt: AttemptId) -> Vec<Left> {
    let purses = purses(plan, state, attempt.at);
    let counted = purses.into_iter().filter(|purse| purse.budget.mode != BudgetMode::Warn);
    let left = counted.map(|purse| Left {
        tokens: purse.tokens_left(),
        micro_usd: purse.micro_usd_left(),
        pause: purse.budget.mode == BudgetMode::Pause,
        whose: purse.whose,
    });
    left.collect()
}

/// Returns true if the last hold of a step was for a quota, and a person released it, not its time.
fn is_released(state: &RunState, at: StepAt) -> bool {
    let last = state.openings.iter().rev().find(|opening| opening.at == at);
    let decided = last.filter(|last| last.kind == OpeningKind::Hold(HoldReason::Quota));
    decided.and_then(|last| last.decided.as_ref()).is_some_and(|(by, _)| by != TIME)
}

/// Which of the instances with the same path an attempt is of: a composite that is tried again has new ones.
fn round(state: &RunState, names: &Names, attempt: AttemptId) -> u32 {
    let InstanceIx(ix) = attempt.at.0;
    let path = names.instance(attempt.at.0);
    let known = u32::try_from(state.instances.len()).unwrap_or(u32::MAX);
    let same = (0..ix.min(known)).filter(|other| names.instance(InstanceIx(*other)) == path);
    u32::try_from(same.count()).unwrap_or(u32::MAX).saturating_add(1)
}

/// Why the attempt before this one failed, if it is made because of that.
fn failed(state: &RunState, attempt: AttemptId, mode: Mode) -> Option<String> {
    let more = state.more(attempt.at).filter(|_| mode == Mode::Again && attempt.role == Role::Main)?;
    more.error.as_ref().map(|error| error.message.clone())
}

/// What was not proven of the attempt before this one.
fn unproven(state: &RunState, attempt: AttemptId, mode: Mode) -> Vec<Proof> {
    let more = state.more(attempt.at).filter(|_| mode == Mode::Again && attempt.role == Role::Main);
    let proofs = more.map(|more| more.proofs.iter()).into_iter().flatten();
    proofs.filter(|proof| !proof.holds).cloned().collect()
}

/// What the format says is the model where nobody names one.
fn usual(step: &Step) -> Option<&str> {
    step.labels.get("default_model")?.as_str()
}

/// Whether a coding agent has models of the usual name. Others would not know it.
pub(super) fn takes_usual(word: &str) -> bool {
    word == "CLAUDE_CODE"
}

/// The model of a step's agent for which nobody names one.
pub fn usual_model<'a>(step: &'a Step, word: &str) -> Option<&'a str> {
    usual(step).filter(|_| takes_usual(word))
}

/// What the source says are tests of a step.
pub fn tests(step: &Step) -> Option<Vec<Vec<String>>> {
    serde_json::from_value(step.skein("test_commands")?.clone()).ok()
}

/// Who does this part of a step's work.
pub(crate) fn worker(step: &Step, role: Role) -> Result<(&Worker, &Work), String> {
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
