//! A run of an AgentCore workflow whose workers are played by the test, with real folders.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

use serde_json::{Value, json};
use skein_core::{
    engine::{
        AttemptEnd, AttemptId, AttemptReport, AttemptRole, CheckFinding, Cost, JournalRecord, RunInput, RunLedger,
        RunStart, RunState, TimedInput, decide,
    },
    ids::{ArtifactName, RunId, StepId, WorkflowId},
    ir::*,
    plan::{Plan, check_workflow},
    time::{Millis, Timestamp},
};
use skein_host::workspace::{
    ArtifactLimits, ArtifactManifest, ContextFolder, ContextInput, RootFolder, RunDir, WorkerObservation, WrittenSteps,
    find_step,
};

pub(crate) fn id(text: &str) -> StepId {
    StepId::new(text).unwrap()
}

pub(crate) fn name(text: &str) -> ArtifactName {
    ArtifactName::new(text).unwrap()
}

pub(crate) fn agent(text: &str) -> Step {
    let worker = WorkerSpec::Agent {
        name: None,
        program: Some("CODEX_CLI".into()),
        model: None,
        instructions: None,
        capabilities: vec![WorkerCapability::Read, WorkerCapability::Edit],
        tools: Vec::new(),
        max_turns: None,
        command_timeout: None,
    };
    let mut step = Step::new(id(text), StepKindSpec::Work(Box::new(WorkSpec::new(worker))));
    step.policy.effects.incomplete = OutcomeEffect::CONTINUE;
    step.policy.keeps_slot = true;
    step
}

pub(crate) fn script(text: &str) -> Step {
    let worker = WorkerSpec::Script { text: "true".into(), capabilities: vec![WorkerCapability::Read] };
    Step { kind: StepKindSpec::Work(Box::new(WorkSpec::new(worker))), ..agent(text) }
}

/// Builder methods for a step.
pub(crate) trait Says: Sized {
    fn after(self, steps: &[&str]) -> Self;
    fn gives(self, name: &str, path: &str, kind: Option<&str>) -> Self;
    fn continues(self) -> Self;
    fn retries(self, more: u32) -> Self;
    fn checked(self, max: u32, incomplete_is_an_end: bool, convergence: Option<ConvergencePolicy>) -> Self;
}

fn work(step: &mut Step) -> &mut WorkSpec {
    let StepKindSpec::Work(work) = &mut step.kind else { panic!("{} is no work", step.id) };
    work
}

impl Says for Step {
    fn after(self, steps: &[&str]) -> Step {
        Step { after: steps.iter().map(|step| id(step)).collect(), ..self }
    }

    fn gives(mut self, name: &str, path: &str, kind: Option<&str>) -> Step {
        let gives = OutputArtifact { name: self::name(name), path: path.into(), kind: kind.map(str::to_owned) };
        work(&mut self).gives.push(gives);
        self
    }

    fn continues(mut self) -> Step {
        self.policy.effects.failed = OutcomeEffect::CONTINUE;
        self
    }

    fn retries(mut self, more: u32) -> Step {
        self.policy.retry = StepRetry::for_classes(&ErrorClass::CURABLE, more + 1, Backoff::default());
        self
    }

    fn checked(mut self, max: u32, end: bool, convergence: Option<ConvergencePolicy>) -> Step {
        let worker = work(&mut self).worker.clone();
        work(&mut self).check = Some(Box::new(CompletionCheck {
            worker,
            timeout: None,
            max_iterations: max,
            incomplete_is_an_end: end,
            decision_file: None,
            convergence,
        }));
        self
    }
}

pub(crate) fn workflow(title: &str, steps: Vec<Step>) -> Workflow {
    let mut scope = StepScope::new(ScopeShape::Graph, steps);
    scope.timeout = Some(Millis::from_mins(30));
    scope.concurrency = Some(2);
    let mut workflow = Workflow::new(WorkflowId::new(title).unwrap(), scope);
    workflow.words = StatusWords::from_tables(run_word, step_word);
    workflow.context.directory = Some("./context".into());
    workflow
}

fn run_word(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Succeeded => "SUCCEEDED",
        RunStatus::Failed => "FAILED",
        RunStatus::TimedOut => "TIMED_OUT",
        RunStatus::Cancelled => "CANCELLED",
        _ => "RUNNING",
    }
}

fn step_word(status: StepStatus) -> &'static str {
    match status {
        StepStatus::Checking => "CHECKING",
        StepStatus::Succeeded => "SUCCEEDED",
        StepStatus::Failed | StepStatus::TimedOut => "FAILED",
        StepStatus::Incomplete => "INCOMPLETE",
        StepStatus::Skipped => "SKIPPED",
        StepStatus::Cancelled => "CANCELLED",
        _ => "RUNNING",
    }
}

/// A trial run. Each input takes a second, from the same second on.
pub(crate) struct Trial {
    pub dir: tempfile::TempDir,
    plan: Plan,
    pub state: RunState,
    pub records: Vec<JournalRecord>,
    ledger: RunLedger,
    pub run: RunDir,
    pub workspace: RootFolder,
    /// The steps that were written to the live context.
    written: WrittenSteps,
    now: Timestamp,
}

impl Trial {
    pub(crate) fn new(steps: Vec<Step>) -> Trial {
        Trial::calling(steps, &BTreeMap::new())
    }

    pub(crate) fn calling(steps: Vec<Step>, library: &BTreeMap<String, Arc<Workflow>>) -> Trial {
        let checked = check_workflow(Arc::new(workflow("main", steps)), library);
        let definition = checked.definition.unwrap_or_else(|| panic!("{:#?}", checked.problems));
        let plan = definition.bind(Value::Null).unwrap();
        let dir = tempfile::tempdir().unwrap();
        for folder in ["state", "work", "live"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        let state = RootFolder::open(&dir.path().join("state")).unwrap();
        let run = RunDir::create(&state, &RunId::new("run-1").unwrap()).unwrap();
        let workspace = RootFolder::open(&dir.path().join("work")).unwrap();
        let trial = Trial {
            dir,
            plan,
            state: RunState::new(),
            records: Vec::new(),
            ledger: RunLedger::default(),
            run,
            workspace,
            written: WrittenSteps::default(),
            now: Timestamp(1_700_000_000_000),
        };
        let run = RunId::new("run-1").unwrap();
        trial.say(RunInput::Start(Box::new(RunStart::new(run))))
    }

    pub(crate) fn say(mut self, input: RunInput) -> Trial {
        let mut events = Vec::new();
        decide(&self.plan, &mut self.state, &TimedInput { at: self.now, grant: 100, input }, &mut events).unwrap();
        for event in events {
            let record = JournalRecord { at: self.now, event };
            self.ledger.apply_record(&record);
            self.records.push(record);
        }
        self.now = self.now.saturating_add(Millis::from_secs(1));
        self.tell();
        self
    }

    /// Writes all new facts to a second context.
    fn tell(&mut self) {
        self.tell_of(&self.now());
    }

    /// Returns the present state of the run, to be written later.
    pub(crate) fn now(&self) -> (RunState, RunLedger) {
        (self.state.clone(), self.ledger.clone())
    }

    /// Writes an earlier state of the run to the second context.
    pub(crate) fn tell_of(&mut self, (state, ledger): &(RunState, RunLedger)) {
        let live = ContextFolder::open(&RootFolder::open(&self.live_path()).unwrap(), ".").unwrap();
        let story = ContextInput { plan: &self.plan, state, ledger, run: &self.run };
        live.write(&story, &mut self.written).unwrap();
    }

    pub(crate) fn live_path(&self) -> PathBuf {
        self.dir.path().join("live")
    }

    pub(crate) fn file(self, path: &str, text: &str) -> Trial {
        let path = self.dir.path().join("work").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// Returns the active attempt of a step.
    fn attempt(&self, step: &str) -> AttemptId {
        let of = |attempt: &&AttemptId| {
            let scope = self.state.instance(attempt.at.0).scope;
            self.plan.definition.scope(scope).step(attempt.at.1).id.as_str() == step
        };
        *self.state.in_flight().iter().find(of).unwrap_or_else(|| panic!("nothing of {step} is in flight"))
    }

    fn end(self, step: &str, end: AttemptEnd) -> Trial {
        let attempt = self.attempt(step);
        let cost = Cost { tokens: 5_000, micro_usd: None };
        self.say(RunInput::Finished { attempt, report: AttemptReport::new(end, cost) })
    }

    /// A worker succeeds: its artifacts are kept before the success is reported.
    pub(crate) fn ok(self, step: &str) -> Trial {
        let attempt = self.attempt(step);
        if attempt.role == AttemptRole::Main {
            self.keep(attempt);
        }
        self.end(step, AttemptEnd::Succeeded { output: Arc::new(json!({})) })
    }

    fn keep(&self, attempt: AttemptId) -> ArtifactManifest {
        let scope = self.state.instance(attempt.at.0).scope;
        let StepKindSpec::Work(work) = &self.plan.definition.scope(scope).step(attempt.at.1).kind else { panic!() };
        let limits = ArtifactLimits::default();
        self.run.keep_artifacts(attempt, &self.workspace, &work.gives, &[], limits).unwrap()
    }

    pub(crate) fn seen(self, step: &str, files: &[&str], summary: &str) -> Trial {
        let files_changed = files.iter().map(ToString::to_string).collect();
        let seen = WorkerObservation { command: None, files_changed, summary: Some(summary.into()) };
        self.run.create_attempt(self.attempt(step)).unwrap().save_observation(&seen).unwrap();
        self
    }

    pub(crate) fn fail(self, step: &str, message: &str) -> Trial {
        let end =
            AttemptEnd::Failed { class: ErrorClass::Transient, code: None, message: message.into(), retry_at: None };
        self.end(step, end)
    }

    pub(crate) fn stopped(self, step: &str) -> Trial {
        self.end(step, AttemptEnd::Stopped)
    }

    pub(crate) fn found(self, step: &str, finding: CheckFinding, fingerprints: &[&str]) -> Trial {
        let fingerprints = fingerprints.iter().map(ToString::to_string).collect();
        self.end(step, AttemptEnd::Checked { finding, reasons: vec!["not yet".into()], fingerprints, output: None })
    }

    /// Time passes until a retry is due.
    pub(crate) fn wait(mut self) -> Trial {
        self.now = self.now.saturating_add(Millis::from_mins(1));
        self.say(RunInput::Wake)
    }

    pub(crate) fn context(&self) -> ContextFolder {
        ContextFolder::open(&self.workspace, "./context").unwrap()
    }

    pub(crate) fn context_path(&self) -> PathBuf {
        self.dir.path().join("work/context")
    }

    pub(crate) fn story<T>(&self, then: impl FnOnce(&ContextInput<'_>) -> T) -> T {
        then(&ContextInput { plan: &self.plan, state: &self.state, ledger: &self.ledger, run: &self.run })
    }

    pub(crate) fn write(&self) {
        self.story(|story| self.context().write(story, &mut WrittenSteps::default())).unwrap();
    }

    /// Returns the attempt that produced an artifact of a root step.
    pub(crate) fn source(&self, step: &str, artifact: &str) -> Option<String> {
        let root = skein_core::engine::InstanceIx::ROOT;
        let at = find_step(&self.plan, &self.state, root, &id(step)).unwrap();
        let source = self.story(|story| story.find_artifact_source(at, &name(artifact))).unwrap();
        source.map(|source| source.attempt.to_string())
    }
}
