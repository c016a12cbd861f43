//! Lowers AgentCore to the IR.

use skein_core::{
    expr::{Expr, agentcore},
    ids::WorkflowId,
    ir::{
        ArtifactExport, CallSpec, CompletionCheck, ConvergencePolicy, ConvergenceStage, ErrorClass, InputArtifact,
        IsolationSpec, OutcomeEffect, OutcomeEffects, OutputArtifact, ScopeShape, Step, StepKindSpec, StepPolicy,
        StepRetry, StepScope, WorkSpec, WorkerSpec, Workflow, WorkflowContext, WorkflowOrigin,
    },
    plan::{PlanField as P, ProblemCode},
    terms::WorkflowTerms,
    time::Millis,
};

use crate::{
    agentcore::{
        defaults::{self, AgentCoreOnFailure, AgentCoreWorkerKind, status_words},
        rules,
        step_syntax::{AgentCoreStep, AgentCoreStepKind, AgentCoreWork, ConvergenceDef, WorkerDef},
        syntax::{AgentCoreWorkflow, InputRef, OutputDef},
    },
    catalog::Project,
    diagnostics::{Code, Diagnostic, DiagnosticSink},
    extensions::ExtensionBlock,
    lowering::{DialectTerms, LoweredSource, LoweringContext, call_contract, default_on_interrupted, sanitize_id},
    source::{Dialect, FieldRenames, PatternSegment::Field as F, yaml::YamlTree},
};

/// The source fields that the plan's fields of a step are read from.
const STEP: FieldRenames = &[
    (&[F(P::Isolation), F(P::Secrets)], "x-skein.secrets"),
    (&[F(P::SettledBy)], "x-skein.workspace.conflict"),
    (&[F(P::After)], "depends_on"),
    (&[F(P::Policy), F(P::Timeout)], "timeout"),
    (&[F(P::Policy), F(P::Retry)], "max_retries"),
    (&[F(P::Takes)], "inputs"),
    (&[F(P::Gives)], "outputs"),
    (&[F(P::Check), F(P::MaxIterations)], "max_iterations"),
    (&[F(P::Check)], "completion_check"),
    (&[F(P::Workflow)], "workflow"),
    (&[F(P::Inputs)], "x-skein.input"),
    (&[F(P::Outputs)], "x-skein.output"),
];
const WORKFLOW: FieldRenames =
    &[(&[F(P::Inputs)], "x-skein.input"), (&[F(P::Result)], "x-skein.output"), (&[F(P::Outputs)], "x-skein.output")];
const TERMS: DialectTerms = DialectTerms {
    words: WorkflowTerms::IR,
    hints: &[(ProblemCode::Recursion, "use a `completion_check` to repeat a step")],
    stricter: &[],
};

pub(crate) fn lower(tree: YamlTree, sink: &mut DiagnosticSink, project: &dyn Project) -> Option<LoweredSource> {
    let mut lowering = LoweringContext::new(&TERMS, sink, project);
    let workflow = lower_workflow(&tree, &mut lowering);
    let back = lowering.into_source_map(tree, WORKFLOW, STEP);
    Some(LoweredSource::new(workflow?, back, &TERMS))
}

fn lower_workflow(tree: &YamlTree, lowering: &mut LoweringContext<'_>) -> Option<Workflow> {
    let mut source = AgentCoreWorkflow::read(tree.root(), lowering.sink)?;
    let steps = source.steps.take()?;
    rules::check_steps(&steps, lowering.sink);
    lowering.reserve_steps(steps.len());
    let mut lower = AgentCoreStepLowering { lowering, timeout: source.timeout, skein: &source.skein };
    let mut scope = StepScope::new(ScopeShape::Graph, steps.into_iter().map(|step| lower.lower_step(&step)));
    scope.concurrency = source.concurrency;
    scope.timeout = source.timeout;
    rules::warn_shared_workspaces(&scope, lowering);
    let name = source.name.map_or("workflow", |name| name.value);
    let mut workflow = Workflow::new(WorkflowId::new(sanitize_id(name)).ok()?, scope);
    workflow.name = Some(name.to_owned());
    workflow.description = source.description.map(str::to_owned);
    workflow.origin = WorkflowOrigin { dialect: Dialect::AgentCore.as_str().to_owned() };
    workflow.words = status_words();
    workflow.budget.clone_from(&source.skein.budget);
    let directory = source.context_dir.unwrap_or(defaults::CONTEXT_DIR);
    workflow.context = WorkflowContext { directory: Some(directory.to_owned()), ..WorkflowContext::default() };
    source.border.apply_inputs(&mut workflow);
    source.border.apply_outputs(&mut workflow, agentcore::parse_value, lowering);
    Some(workflow)
}

struct AgentCoreStepLowering<'a, 'l> {
    lowering: &'a mut LoweringContext<'l>,
    timeout: Option<Millis>,
    skein: &'a ExtensionBlock,
}

impl AgentCoreStepLowering<'_, '_> {
    fn lower_step(&mut self, source: &AgentCoreStep<'_>) -> Step {
        self.lowering.add_step_field(&source.id, source.field);
        let kind = match &source.does {
            AgentCoreStepKind::Work(work) => StepKindSpec::Work(Box::new(self.lower_work(source, work))),
            AgentCoreStepKind::Call { workflow, exports } => {
                match workflow.and_then(|given| call_contract::resolve_call_path(given, self.lowering)) {
                    Some(workflow) => StepKindSpec::Call(Box::new(CallSpec {
                        workflow,
                        exports: exports.iter().map(lower_export).collect(),
                    })),
                    None => placeholder_call(exports),
                }
            }
        };
        let mut step = Step::new(source.id.clone(), kind);
        step.description = source.description.map(str::to_owned);
        step.after = source.depends_on.iter().map(|name| name.value.clone()).collect();
        step.inputs = source.border.lower_inputs(agentcore::parse_value, self.lowering).unwrap_or_default();
        step.outputs = source.border.output_schema();
        step.policy = self.lower_policy(source, &step.kind).into();
        source.skein.apply_to_step(self.skein, &mut step);
        self.lowering.share_policy(&mut step);
        step
    }

    fn lower_policy(&self, source: &AgentCoreStep<'_>, kind: &StepKindSpec) -> StepPolicy {
        let retry = match source.on_failure {
            AgentCoreOnFailure::Retry => {
                let attempts = source.max_retries.saturating_add(1);
                let retry = StepRetry::for_classes(&defaults::RETRIED, attempts, defaults::BACKOFF);
                StepRetry { fresh_per_iteration: true, ..retry }
            }
            AgentCoreOnFailure::Continue | AgentCoreOnFailure::Abort => StepRetry::default(),
        };
        StepPolicy {
            timeout: source.timeout.or_else(|| self.default_timeout(kind)),
            effects: lower_effects(source.on_failure),
            keeps_slot: true,
            on_interrupted: default_on_interrupted(kind),
            retry,
            ..StepPolicy::default()
        }
    }

    /// The default timeout of a work step. Only a workflow that may run longer than the default needs it.
    fn default_timeout(&self, kind: &StepKindSpec) -> Option<Millis> {
        let longer = self.timeout.is_some_and(|timeout| timeout > defaults::STEP_TIMEOUT);
        (longer && matches!(kind, StepKindSpec::Work(_))).then_some(defaults::STEP_TIMEOUT)
    }

    fn lower_work(&mut self, step: &AgentCoreStep<'_>, source: &AgentCoreWork<'_>) -> WorkSpec {
        let mut worker = lower_worker(&source.worker);
        if let WorkerSpec::Agent { max_turns, command_timeout, .. } = &mut worker {
            *max_turns = source.max_steps;
            *command_timeout = source.max_command_time;
        }
        let mut work = WorkSpec::new(worker);
        work.check = self.lower_check(step, source).map(Box::new);
        work.takes = source.inputs.iter().map(lower_artifact_input).collect();
        work.gives = source.outputs.iter().map(lower_artifact_output).collect();
        work.isolation =
            IsolationSpec { workspace: source.workspace.map(str::to_owned), ..IsolationSpec::default() }.into();
        work
    }

    fn lower_check(&mut self, step: &AgentCoreStep<'_>, source: &AgentCoreWork<'_>) -> Option<CompletionCheck> {
        let check = source.check.as_ref()?;
        let own = step.timeout.or(self.timeout).map(|time| Millis(time.0 / defaults::CHECK_PART));
        Some(CompletionCheck {
            worker: lower_worker(&check.worker),
            timeout: check.timeout.or_else(|| own.map(|time| time.max(defaults::CHECK_LEAST))),
            max_iterations: self.resolve_max_iterations(step, source),
            incomplete_is_an_end: source.incomplete_is_an_end,
            decision_file: check.decision_file.map(str::to_owned),
            convergence: source.convergence.as_ref().and_then(|source| self.lower_convergence(source)),
        })
    }

    /// Resolves `max_iterations`, which is at least 2: with 1, a check that says no would be a plain failure.
    fn resolve_max_iterations(&mut self, step: &AgentCoreStep<'_>, source: &AgentCoreWork<'_>) -> u32 {
        const LEAST: u32 = 2;
        let written = step.field.value.field("max_iterations");
        let (code, span, message) = match (&source.max_iterations, written) {
            (Some(given), _) if given.value >= LEAST => return given.value,
            (Some(given), _) => {
                let message = format!("with a completion check, `max_iterations` must be at least {LEAST}");
                (Code::BadNumber, given.span, message)
            }
            (None, Some(field)) if field.value.is_null() => {
                let message = "`max_iterations` has no value, and a completion check needs one";
                (Code::NoValue, field.key_span, message.to_owned())
            }
            // An invalid value has already been reported.
            (None, Some(_)) => return LEAST,
            (None, None) => {
                let check = step.field.value.field("completion_check");
                let span = check.map_or(step.field.key_span, |field| field.key_span);
                (Code::MissingField, span, "a completion check needs `max_iterations`".to_owned())
            }
        };
        let hint = "set how often the step may be repeated, such as `max_iterations: 5`";
        self.lowering.push(Diagnostic::new(code, step.field.value.source(), span, message).with_hint(hint));
        LEAST
    }

    fn lower_convergence(&mut self, source: &ConvergenceDef<'_>) -> Option<ConvergencePolicy> {
        let max_stage = source.max_stage.unwrap_or(defaults::MAX_STAGE);
        for (stage, _) in &source.stages {
            if stage.value > max_stage {
                let message = format!("there is no stage {}: the highest is {max_stage}", stage.value);
                let source = self.lowering.sink.source.clone();
                self.lowering.push(Diagnostic::new(Code::BadNumber, &source, stage.span, message));
            }
        }
        source.enabled.then(|| ConvergencePolicy {
            stall_threshold: source.stall_threshold.unwrap_or(defaults::STALL_THRESHOLD),
            max_stage,
            fail_on_max_stage: source.fail_on_max_stage.unwrap_or(defaults::FAIL_ON_MAX_STAGE),
            stages: source
                .stages
                .iter()
                .map(|(stage, append)| ConvergenceStage { stage: stage.value, append: (*append).to_owned() })
                .collect(),
            allowed_paths: source.allowed_paths.clone(),
            ignored_paths: source.ignored_paths.clone(),
            diff_base_ref: source.diff_base_ref.map(str::to_owned),
            diff_base_ref_file: source.diff_base_ref_file.map(str::to_owned),
            max_changed_files: source.max_changed_files,
        })
    }
}

fn lower_worker(source: &WorkerDef<'_>) -> WorkerSpec {
    let text = source.instructions.and_then(|given| given.node.raw_text()).unwrap_or_default();
    let capabilities = source.capabilities.clone();
    match source.kind {
        Some(AgentCoreWorkerKind::Agent(program)) => WorkerSpec::Agent {
            name: None,
            program: Some(program.to_owned()),
            model: None,
            // A literal cannot fail here, because the size of a source is limited.
            instructions: Expr::literal(text).ok(),
            capabilities,
            tools: Vec::new(),
            max_turns: None,
            command_timeout: None,
        },
        Some(AgentCoreWorkerKind::Custom) | None => WorkerSpec::Script { text: text.to_owned(), capabilities },
    }
}

/// A stand-in for a call that cannot be resolved. It has the same artifacts, so that no follow-up errors are reported.
fn placeholder_call(exports: &[InputRef]) -> StepKindSpec {
    let mut work = WorkSpec::new(WorkerSpec::Script { text: String::new(), capabilities: Vec::new() });
    let gives =
        |export: &InputRef| OutputArtifact { name: export.name.clone(), path: export.name.to_string(), kind: None };
    work.gives = exports.iter().map(gives).collect();
    StepKindSpec::Work(Box::new(work))
}

/// Lowers `on_failure`. A fatal failure, a stall and a check that never passes abort the workflow in any case.
fn lower_effects(on_failure: AgentCoreOnFailure) -> OutcomeEffects {
    let effects = OutcomeEffects { incomplete: OutcomeEffect::CONTINUE, ..OutcomeEffects::default() };
    match on_failure {
        AgentCoreOnFailure::Abort | AgentCoreOnFailure::Retry => effects,
        AgentCoreOnFailure::Continue => OutcomeEffects {
            failed: OutcomeEffect::CONTINUE,
            timed_out: OutcomeEffect::CONTINUE,
            failed_by_class: [(ErrorClass::Fatal, OutcomeEffect::ABORT)].into(),
            ..effects
        },
    }
}

fn lower_artifact_input(source: &InputRef) -> InputArtifact {
    let InputRef { from, artifact, name, .. } = source;
    InputArtifact { from: from.value.clone(), artifact: artifact.clone(), name: name.clone() }
}

fn lower_export(source: &InputRef) -> ArtifactExport {
    let InputRef { from, artifact, name, .. } = source;
    ArtifactExport { from: from.value.clone(), artifact: artifact.clone(), name: name.clone() }
}

fn lower_artifact_output(source: &OutputDef<'_>) -> OutputArtifact {
    OutputArtifact { name: source.name.clone(), path: source.path.to_owned(), kind: source.kind.map(str::to_owned) }
}
