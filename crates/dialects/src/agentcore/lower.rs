//! From AgentCore to the IR.

use skein_core::{
    expr::{Expr, agentcore},
    ids::WorkflowId,
    ir::{
        ArtifactIn, ArtifactOut, Call, Check, Context, Convergence, Effect, Effects, ErrorClass, Export,
        Isolation, Kind, Origin, Retry, Scope, Shape, Stage, Step, StepPolicy, Work, Worker, Workflow,
    },
    plan::ProblemCode,
    time::Millis,
};

use super::{
    defaults::{self, OnFailure, WorkerKind},
    rules,
    syntax::{self, ConvergenceDef, Does, WorkerDef},
    words::words,
};
use crate::{
    border,
    code::Code,
    common::{id_like, on_interrupted},
    detect::Dialect,
    diagnostic::{Diagnostic, Sink},
    lowering::{Lowered, Lowering},
    places::Renames,
    problem::Voice,
    project::Project,
    xskein::XSkein,
    yaml::Tree,
};

/// Where the plan's fields of a step stand.
const STEP: Renames = &[
    ("isolation.secrets", "x-skein.secrets"),
    ("settled_by", "x-skein.workspace.conflict"),
    ("after", "depends_on"),
    ("policy.timeout", "timeout"),
    ("policy.retry", "max_retries"),
    ("takes", "inputs"),
    ("gives", "outputs"),
    ("check.max_iterations", "max_iterations"),
    ("check.convergence", "convergence"),
    ("check", "completion_check"),
    ("workflow", "workflow"),
    ("inputs", "x-skein.input"),
    ("outputs", "x-skein.output"),
];
const WORKFLOW: Renames =
    &[("inputs", "x-skein.input"), ("result", "x-skein.output"), ("outputs", "x-skein.output")];
const VOICE: Voice = Voice {
    words: &[],
    hints: &[(ProblemCode::Recursion, "a step is repeated with a `completion_check`")],
    stricter: &[],
};

pub(crate) fn lower(tree: Tree, sink: &mut Sink, project: &dyn Project) -> Option<Lowered> {
    let mut lowering = Lowering::new(&VOICE, sink, project);
    let workflow = lower_workflow(&tree, &mut lowering);
    let back = lowering.places(tree, WORKFLOW, STEP);
    Some(Lowered::new(workflow?, back, &VOICE))
}

fn lower_workflow(tree: &Tree, lowering: &mut Lowering<'_>) -> Option<Workflow> {
    let mut source = syntax::Workflow::read(tree.root(), lowering.sink)?;
    let steps = source.steps.take()?;
    rules::check(&steps, lowering.sink);
    lowering.reserve(steps.len());
    let mut lower = Steps { lowering, timeout: source.timeout, skein: &source.skein };
    let mut scope = Scope::new(Shape::Graph, steps.into_iter().map(|step| lower.step(&step)));
    scope.concurrency = source.concurrency;
    scope.timeout = source.timeout;
    rules::warn_shared(&scope, lowering);
    let name = source.name.map_or("workflow", |name| name.value);
    let mut workflow = Workflow::new(WorkflowId::new(id_like(name)).ok()?, scope);
    workflow.name = Some(name.to_owned());
    workflow.description = source.description.map(str::to_owned);
    workflow.origin = Origin { dialect: Dialect::AgentCore.as_str().to_owned() };
    workflow.words = words();
    workflow.budget.clone_from(&source.skein.budget);
    let directory = source.context_dir.unwrap_or(defaults::CONTEXT_DIR);
    workflow.context = Context { directory: Some(directory.to_owned()), ..Context::default() };
    source.border.takes(&mut workflow);
    source.border.gives(&mut workflow, agentcore::value, lowering);
    Some(workflow)
}

struct Steps<'a, 'l> {
    lowering: &'a mut Lowering<'l>,
    timeout: Option<Millis>,
    skein: &'a XSkein,
}

impl Steps<'_, '_> {
    fn step(&mut self, source: &syntax::Step<'_>) -> Step {
        self.lowering.step_field(&source.id, source.field);
        let kind = match &source.does {
            Does::Work(work) => Kind::Work(Box::new(self.work(source, work))),
            Does::Call { workflow, exports } => {
                match workflow.and_then(|given| border::by_path(given, self.lowering)) {
                    Some(workflow) => {
                        Kind::Call(Box::new(Call { workflow, exports: exports.iter().map(export).collect() }))
                    }
                    None => not_called(exports),
                }
            }
        };
        let mut step = Step::new(source.id.clone(), kind);
        step.description = source.description.map(str::to_owned);
        step.after = source.depends_on.iter().map(|name| name.value.clone()).collect();
        step.inputs = source.border.inputs(agentcore::value, self.lowering).unwrap_or_default();
        step.outputs = source.border.outputs();
        step.policy = self.policy(source, &step.kind).into();
        source.skein.apply(self.skein, &mut step);
        self.lowering.share(&mut step);
        step
    }

    fn policy(&self, source: &syntax::Step<'_>, kind: &Kind) -> StepPolicy {
        let retry = match source.on_failure {
            OnFailure::Retry => {
                let attempts = source.max_retries.saturating_add(1);
                let retry = Retry::of(&defaults::RETRIED, attempts, defaults::BACKOFF);
                Retry { fresh_per_iteration: true, ..retry }
            }
            OnFailure::Continue | OnFailure::Abort => Retry::default(),
        };
        StepPolicy {
            timeout: source.timeout.or_else(|| self.default_timeout(kind)),
            effects: effects(source.on_failure),
            keeps_slot: true,
            on_interrupted: on_interrupted(kind),
            retry,
            ..StepPolicy::default()
        }
    }

    /// Only a workflow that may run longer than a step's default needs it.
    fn default_timeout(&self, kind: &Kind) -> Option<Millis> {
        let longer = self.timeout.is_some_and(|timeout| timeout > defaults::STEP_TIMEOUT);
        (longer && matches!(kind, Kind::Work(_))).then_some(defaults::STEP_TIMEOUT)
    }

    fn work(&mut self, step: &syntax::Step<'_>, source: &syntax::Work<'_>) -> Work {
        let mut worker = worker(&source.worker);
        if let Worker::Agent { max_turns, command_timeout, .. } = &mut worker {
            *max_turns = source.max_steps;
            *command_timeout = source.max_command_time;
        }
        let mut work = Work::new(worker);
        work.check = self.check(step, source).map(Box::new);
        work.takes = source.inputs.iter().map(artifact_in).collect();
        work.gives = source.outputs.iter().map(artifact_out).collect();
        work.isolation =
            Isolation { workspace: source.workspace.map(str::to_owned), ..Isolation::default() }.into();
        work
    }

    fn check(&mut self, step: &syntax::Step<'_>, source: &syntax::Work<'_>) -> Option<Check> {
        let check = source.check.as_ref()?;
        let own = step.timeout.or(self.timeout).map(|time| Millis(time.0 / defaults::CHECK_PART));
        Some(Check {
            worker: worker(&check.worker),
            timeout: check.timeout.or_else(|| own.map(|time| time.max(defaults::CHECK_LEAST))),
            max_iterations: self.max_iterations(step, source),
            incomplete_is_an_end: source.incomplete_is_an_end,
            decision_file: check.decision_file.map(str::to_owned),
            convergence: source.convergence.as_ref().and_then(|source| self.convergence(source)),
        })
    }

    /// A check that may only say no once would be a plain failure.
    fn max_iterations(&mut self, step: &syntax::Step<'_>, source: &syntax::Work<'_>) -> u32 {
        const LEAST: u32 = 2;
        let written = step.field.value.field("max_iterations");
        let (code, span, message) = match (&source.max_iterations, written) {
            (Some(given), _) if given.value >= LEAST => return given.value,
            (Some(given), _) => {
                let message = format!("`max_iterations` is at least {LEAST} with a completion check");
                (Code::BadNumber, given.span, message)
            }
            (None, Some(field)) if field.value.is_null() => {
                let message = "`max_iterations` has no value, and a completion check needs one";
                (Code::NoValue, field.key_span, message.to_owned())
            }
            // It has been reported.
            (None, Some(_)) => return LEAST,
            (None, None) => {
                let check = step.field.value.field("completion_check");
                let span = check.map_or(step.field.key_span, |field| field.key_span);
                (Code::MissingField, span, "a completion check needs `max_iterations`".to_owned())
            }
        };
        let hint = "say how often the step may be done again, such as `max_iterations: 5`";
        self.lowering.push(Diagnostic::new(code, step.field.value.source(), span, message).hint(hint));
        LEAST
    }

    fn convergence(&mut self, source: &ConvergenceDef<'_>) -> Option<Convergence> {
        let max_stage = source.max_stage.unwrap_or(defaults::MAX_STAGE);
        for (stage, _) in &source.stages {
            if stage.value > max_stage {
                let message = format!("there is no stage {}: the highest is {max_stage}", stage.value);
                let source = self.lowering.sink.source.clone();
                self.lowering.push(Diagnostic::new(Code::BadNumber, &source, stage.span, message));
            }
        }
        source.enabled.then(|| Convergence {
            stall_threshold: source.stall_threshold.unwrap_or(defaults::STALL_THRESHOLD),
            max_stage,
            fail_on_max_stage: source.fail_on_max_stage.unwrap_or(defaults::FAIL_ON_MAX_STAGE),
            stages: source
                .stages
                .iter()
                .map(|(stage, append)| Stage { stage: stage.value, append: (*append).to_owned() })
                .collect(),
            allowed_paths: source.allowed_paths.clone(),
            ignored_paths: source.ignored_paths.clone(),
            diff_base_ref: source.diff_base_ref.map(str::to_owned),
            diff_base_ref_file: source.diff_base_ref_file.map(str::to_owned),
            max_changed_files: source.max_changed_files,
        })
    }
}

fn worker(source: &WorkerDef<'_>) -> Worker {
    let text = source.instructions.and_then(|given| given.node.raw()).unwrap_or_default();
    let capabilities = source.capabilities.clone();
    match source.kind {
        Some(WorkerKind::Agent(program)) => Worker::Agent {
            name: None,
            program: Some(program.to_owned()),
            model: None,
            // A text without expressions is one for as long as sources are limited.
            instructions: Expr::literal(text).ok(),
            capabilities,
            tools: Vec::new(),
            max_turns: None,
            command_timeout: None,
        },
        Some(WorkerKind::Custom) | None => Worker::Script { text: text.to_owned(), capabilities },
    }
}

/// Stands for a call that cannot be made: it gives the same, so that nothing else is said about it.
fn not_called(exports: &[syntax::InputRef]) -> Kind {
    let mut work = Work::new(Worker::Script { text: String::new(), capabilities: Vec::new() });
    let gives = |export: &syntax::InputRef| ArtifactOut {
        name: export.name.clone(),
        path: export.name.to_string(),
        kind: None,
    };
    work.gives = exports.iter().map(gives).collect();
    Kind::Work(Box::new(work))
}

/// A fatal failure, a stall and a check that is never content stop the workflow whatever the step says.
fn effects(on_failure: OnFailure) -> Effects {
    let effects = Effects { incomplete: Effect::CONTINUE, ..Effects::default() };
    match on_failure {
        OnFailure::Abort | OnFailure::Retry => effects,
        OnFailure::Continue => Effects {
            failed: Effect::CONTINUE,
            timed_out: Effect::CONTINUE,
            failed_by_class: [(ErrorClass::Fatal, Effect::ABORT)].into(),
            ..effects
        },
    }
}

fn artifact_in(source: &syntax::InputRef) -> ArtifactIn {
    let syntax::InputRef { from, artifact, name, .. } = source;
    ArtifactIn { from: from.value.clone(), artifact: artifact.clone(), name: name.clone() }
}

fn export(source: &syntax::InputRef) -> Export {
    let syntax::InputRef { from, artifact, name, .. } = source;
    Export { from: from.value.clone(), artifact: artifact.clone(), name: name.clone() }
}

fn artifact_out(source: &syntax::OutputDef<'_>) -> ArtifactOut {
    ArtifactOut {
        name: source.name.clone(),
        path: source.path.to_owned(),
        kind: source.kind.map(str::to_owned),
    }
}
