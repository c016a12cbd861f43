//! Lowers each stage to a step: work of an agent, a gate, or an each with one step inside; its policy and the task of its
//! agent.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use skein_core::{
    expr::{Expr, swdl::SwdlExprScope},
    ids::StepId,
    ir::{
        self, Approver, Backoff, BackoffGrowth, EachSpec, ErrorClass, GateSpec, HandoffSpec, InputBinding,
        MemorySelection, OutcomeEffect, OutcomeEffects, ScopeShape, SharedStepExtensions, SharedStepPolicy, Step,
        StepExtensions, StepKindSpec, StepPolicy, StepRetry, SummarySpec, TimeoutScope, WorkSpec, WorkerCapability,
        WorkerSpec, WorkflowContext,
    },
    limits,
    time::Millis,
};

use crate::{
    catalog::CatalogKind,
    diagnostics::Code,
    fields::{FieldValue, UnloweredSteps},
    lowering::{call_contract, default_on_interrupted},
    source::yaml::YamlNode,
    swdl::{
        defaults::{self, SwdlOnFailure},
        lower::{expressions::SwdlExpressions, schema},
        syntax::{
            GateDef, MemoryDef, RetryDef, StageContext, StagePolicy, SwdlAgentTask, SwdlCall, SwdlInput, SwdlStage,
            SwdlStageKind, SwdlWorkflow,
        },
    },
};

pub(super) struct SwdlStageLowering<'e, 'a, 'l> {
    pub expressions: &'e mut SwdlExpressions<'a, 'l>,
    pub source: &'e SwdlWorkflow<'a>,
    /// The policy of stages without an error policy, after the first of them.
    pub usual: Option<SharedStepPolicy>,
}

impl<'a> SwdlStageLowering<'_, 'a, '_> {
    pub(crate) fn lower_stages(&mut self, stages: UnloweredSteps<SwdlStage<'a>>) -> Vec<Arc<Step>> {
        let roles: BTreeSet<String> =
            self.expressions.lowering.project.catalog_names(CatalogKind::Role).into_iter().collect();
        self.warn_gate_conditions(&stages);
        self.expressions.lowering.reserve_steps(stages.len());
        stages.into_iter().map(|stage| Arc::new(self.lower_stage(&stage, &roles))).collect()
    }

    fn lower_stage(&mut self, stage: &SwdlStage<'a>, roles: &BTreeSet<String>) -> Step {
        self.expressions.lowering.add_step_item(&stage.id, stage.node, "id");
        let chosen = OnFailureChoice::from_policies(&stage.policy, self.source);
        self.refuse_rollback(chosen);
        let mut step = match &stage.does {
            SwdlStageKind::Agent(asked) => self.lower_agent_stage(stage, asked, chosen),
            SwdlStageKind::Call(called) => self.lower_call_stage(stage, called, chosen),
            SwdlStageKind::Gate(gate) => self.lower_gate_stage(stage, gate, chosen, roles),
            SwdlStageKind::FanOut { source, template } => self.lower_fan_out(stage, *source, template.as_ref(), chosen),
            SwdlStageKind::Unclear => Step::new(stage.id.clone(), StepKindSpec::Work(Box::new(placeholder_work()))),
        };
        step.name = stage.name.map(str::to_owned);
        step.description = stage.description.map(str::to_owned);
        step.after.clone_from(&stage.depends_on);
        step.when = stage.condition.and_then(|given| self.expressions.lower_condition(given.node));
        if let Some(ui) = stage.ui {
            step.extensions.labels.insert("ui".to_owned(), ui.node.to_json());
        }
        stage.skein.apply_to_step(&self.source.skein, &mut step);
        self.expressions.lowering.share_policy(&mut step);
        step
    }

    /// Warns of a gate with a condition: a skipped gate is not satisfied, unlike other skipped stages.
    fn warn_gate_conditions(&mut self, stages: &[Box<SwdlStage<'a>>]) {
        let may_be_skipped = |stage: &SwdlStage<'a>| match (&stage.does, stage.condition) {
            (SwdlStageKind::Gate(_), Some(condition)) => Some((stage.id.clone(), condition)),
            _ => None,
        };
        let gates: Vec<(StepId, FieldValue<'a>)> = stages.iter().filter_map(|stage| may_be_skipped(stage)).collect();
        if gates.is_empty() {
            return;
        }
        let waited_for: BTreeSet<&StepId> = stages.iter().flat_map(|stage| &stage.depends_on).collect();
        for (id, condition) in gates.into_iter().filter(|(id, _)| waited_for.contains(id)) {
            let message = format!("if its condition is false, stages that depend on `{id}` are skipped");
            let diagnostic = condition.diagnose(Code::SkippedGate, message);
            let hint = "a skipped gate is not approved, so nothing that needs the approval may start";
            self.expressions.lowering.push(diagnostic.with_hint(hint));
        }
    }

    fn lower_agent_stage(
        &mut self,
        stage: &SwdlStage<'a>,
        asked: &SwdlAgentTask<'a>,
        chosen: OnFailureChoice<'a>,
    ) -> Step {
        let mut step = self.lower_agent_task(&stage.id, asked, SwdlExprScope::Stage);
        step.policy = self.lower_agent_policy(stage, &step.kind, chosen);
        step
    }

    /// Lowers a stage that calls a workflow. That has its own timeouts and retries, so the call is only retried if the
    /// stage itself sets a retry.
    fn lower_call_stage(&mut self, stage: &SwdlStage<'a>, called: &SwdlCall<'a>, chosen: OnFailureChoice<'a>) -> Step {
        let kind = call_contract::lower_call(called.workflow, self.expressions.lowering);
        let mut step = Step::new(stage.id.clone(), kind);
        step.inputs = self.lower_inputs(&called.inputs, SwdlExprScope::Stage);
        step.outputs = schema::outputs_schema(called.outputs.as_deref());
        if stage.policy.retry.is_some() {
            step.policy = self.lower_work_policy(&step.kind, &[&stage.policy]).into();
        }
        step.policy.timeout = stage.policy.timeout.map(|(_, timeout)| timeout);
        step.policy.effects = chosen.to_effects();
        step
    }

    /// Lowers the policy of an agent's stage. Stages without an error policy share one value.
    fn lower_agent_policy(
        &mut self,
        stage: &SwdlStage<'a>,
        kind: &StepKindSpec,
        chosen: OnFailureChoice<'a>,
    ) -> SharedStepPolicy {
        let is_usual = stage.policy.is_usual();
        let same = |usual: &&SharedStepPolicy| is_usual && usual.on_interrupted == default_on_interrupted(kind);
        if let Some(usual) = self.usual.as_ref().filter(same) {
            return usual.clone();
        }
        let effects = chosen.to_effects();
        let policy = SharedStepPolicy::from(StepPolicy { effects, ..self.lower_work_policy(kind, &[&stage.policy]) });
        if is_usual {
            self.usual = Some(policy.clone());
        }
        policy
    }

    /// Lowers timeout and retries of work. Each comes from the first policy that has it.
    fn lower_work_policy(&self, kind: &StepKindSpec, policies: &[&StagePolicy<'a>]) -> StepPolicy {
        let timeout = policies.first().and_then(|policy| policy.timeout).map(|(_, timeout)| timeout);
        let own = policies.iter().filter_map(|policy| policy.retry.as_deref()).map(|(_, retry)| retry);
        let sources: Vec<_> = own.chain([&self.source.policy.default_retry]).collect();
        let retry = lower_retry(&sources);
        StepPolicy {
            timeout: Some(timeout.unwrap_or(defaults::STAGE_TIMEOUT)),
            on_interrupted: default_on_interrupted(kind),
            retry,
            ..StepPolicy::default()
        }
    }

    fn lower_gate_stage(
        &mut self,
        stage: &SwdlStage<'a>,
        gate: &GateDef<'a>,
        chosen: OnFailureChoice<'a>,
        roles: &BTreeSet<String>,
    ) -> Step {
        self.warn_gate_policy(stage, gate);
        let message = gate.message.and_then(|given| self.expressions.lower_text(given.node, SwdlExprScope::Stage));
        let name = stage.name.unwrap_or(stage.id.as_str());
        let message = message.or_else(|| Expr::literal(name).ok());
        let approver = |name: &&str| match roles.contains(*name) {
            true => Approver::Role((*name).to_owned()),
            false => Approver::User((*name).to_owned()),
        };
        let timeout = gate.timeout.or(stage.policy.timeout.map(|(_, timeout)| timeout));
        let kind = message.map(|message| {
            StepKindSpec::Gate(Box::new(GateSpec {
                message,
                shows: Vec::new(),
                approvers: gate.approvers.iter().map(approver).collect(),
                quorum: 1,
                timeout: Some(timeout.unwrap_or(defaults::GATE_TIMEOUT)),
                on_timeout: gate.on_timeout.to_gate_timeout(),
                on_approve: None,
                on_reject: None,
            }))
        });
        // This cannot fail: a name is always short enough to be a message.
        let kind = kind.unwrap_or_else(|| StepKindSpec::Work(Box::new(placeholder_work())));
        let mut step = Step::new(stage.id.clone(), kind);
        step.outputs = schema::decision_schema();
        step.policy.effects = chosen.to_gate_effects();
        step
    }

    /// Warns of fields of an error policy that have no effect in a gate.
    fn warn_gate_policy(&mut self, stage: &SwdlStage<'a>, gate: &GateDef<'a>) {
        let retry = stage.policy.retry.as_deref().map(|(given, _)| *given);
        let timeout = stage.policy.timeout.map(|(given, _)| given).filter(|_| gate.timeout.is_some());
        let ignored = [(retry, "a gate is not retried"), (timeout, "the gate has a `timeout` of its own")];
        for (given, why) in ignored.into_iter().filter_map(|(given, why)| given.map(|given| (given, why))) {
            let message = format!("`{}` changes nothing: {why}", given.name);
            self.expressions.lowering.push(given.diagnose(Code::IgnoredField, message));
        }
    }

    fn lower_fan_out(
        &mut self,
        stage: &SwdlStage<'a>,
        source: Option<FieldValue<'a>>,
        template: Option<&(YamlNode<'a>, Box<SwdlAgentTask<'a>>)>,
        chosen: OnFailureChoice<'a>,
    ) -> Step {
        let over = source.and_then(|given| self.expressions.lower_value(given.node, SwdlExprScope::Stage));
        let (Some(over), Some((node, asked))) = (over, template) else {
            return Step::new(stage.id.clone(), StepKindSpec::Work(Box::new(placeholder_work())));
        };
        let item = self.lower_item(stage, *node, asked);
        let each = EachSpec {
            over,
            parallelism: Some(limits::PARALLELISM_DEFAULT),
            errors: ir::EachErrorPolicy::default(),
            scope: Arc::new(single_step_scope(item)),
        };
        let mut step = Step::new(stage.id.clone(), StepKindSpec::Each(Box::new(each)));
        step.outputs = schema::list_schema(schema::outputs_json(asked.outputs.as_deref()));
        step.policy.effects = chosen.to_effects();
        // An item has a default timeout; the whole stage has none, because the number of items is unknown.
        step.policy.timeout = stage.policy.timeout.map(|(_, timeout)| timeout);
        step.policy.timeout_per = TimeoutScope::Step;
        step
    }

    /// Lowers the work for each item. Its name contains a dot, which no stage's name can have.
    fn lower_item(&mut self, stage: &SwdlStage<'a>, node: YamlNode<'a>, asked: &SwdlAgentTask<'a>) -> Step {
        let id = StepId::new(format!("{}.item", stage.id)).unwrap_or_else(|_| stage.id.clone());
        self.expressions.lowering.add_step_item(&id, node, "id");
        let mut step = self.lower_agent_task(&id, asked, SwdlExprScope::FanOut);
        // Users know it by the name of the stage.
        step.extensions.stage = Some(stage.id.to_string());
        step.name = stage.name.map(str::to_owned);
        // The stage's timeout is for all of its items together.
        let retried = StagePolicy { retry: stage.policy.retry.clone(), ..StagePolicy::default() };
        step.policy = self.lower_work_policy(&step.kind, &[&asked.policy, &retried]).into();
        let mut skein = stage.skein.inherit_from(&self.source.skein);
        // So is the stage's budget.
        skein.budget = None;
        skein.apply_to_step(&mut step);
        step
    }

    /// Refuses `rollback`: this format has no compensation of stages.
    fn refuse_rollback(&mut self, chosen: OnFailureChoice<'a>) {
        let Some(given) = chosen.given.filter(|_| chosen.word == SwdlOnFailure::Rollback) else { return };
        let message = "`rollback` is not possible: stages have no compensation";
        let diagnostic = given.diagnose(Code::BadUndo, message);
        let hint = "write `halt`; to undo steps, use AIP-15";
        self.expressions.lowering.push(diagnostic.with_hint(hint).with_word_fix(given.span(), "halt"));
    }
}

/// Builds a scope whose result is that of its only step.
fn single_step_scope(step: Step) -> ir::StepScope {
    let result = Expr::step(step.id.as_str(), Vec::<String>::new());
    let mut scope = ir::StepScope::new(ScopeShape::Graph, vec![step]);
    scope.result = Some(result);
    scope
}

/// A placeholder for work with errors that have been reported.
fn placeholder_work() -> WorkSpec {
    let text = String::new();
    WorkSpec::new(WorkerSpec::Script { text, capabilities: Vec::new() })
}

/// The choice for a stage's failure, its place, and whether the stage itself sets it.
#[derive(Debug, Clone, Copy)]
pub(super) struct OnFailureChoice<'a> {
    pub word: SwdlOnFailure,
    pub given: Option<FieldValue<'a>>,
    own: bool,
}

impl<'a> OnFailureChoice<'a> {
    pub(crate) fn from_policies(stage: &StagePolicy<'a>, source: &SwdlWorkflow<'a>) -> OnFailureChoice<'a> {
        let (found, own) = match (stage.on_failure, source.policy.on_stage_failure) {
            (Some(own), _) => (Some(own), true),
            (None, global) => (global, false),
        };
        let word = found.map(|(_, word)| word).unwrap_or_default();
        OnFailureChoice { word, given: found.map(|(given, _)| given), own }
    }

    /// Returns the effects of a stage with an agent. A stage that its condition skips counts as done.
    pub(crate) fn to_effects(self) -> OutcomeEffects {
        let failed = match self.word {
            SwdlOnFailure::Halt => OutcomeEffect::ABORT,
            SwdlOnFailure::Rollback => OutcomeEffect::UNDO,
            SwdlOnFailure::SkipDependents => OutcomeEffect::SKIP_DEPENDENTS,
            SwdlOnFailure::Continue if self.own => OutcomeEffect::CONTINUE,
            // As the workflow's setting, it lets other stages continue, but not the dependents of this one.
            SwdlOnFailure::Continue => OutcomeEffect { satisfies: false, ..OutcomeEffect::CONTINUE },
        };
        OutcomeEffects { skipped_by_condition: OutcomeEffect::GO_ON, timed_out: failed, ..failure_effects(failed) }
    }

    /// Returns the effects of a gate: only an approval satisfies it, and without one the run does not succeed.
    pub(crate) fn to_gate_effects(self) -> OutcomeEffects {
        let failed = match self.word {
            SwdlOnFailure::Halt => OutcomeEffect::ABORT,
            SwdlOnFailure::Rollback => OutcomeEffect::UNDO,
            SwdlOnFailure::SkipDependents | SwdlOnFailure::Continue => OutcomeEffect::SKIP_DEPENDENTS,
        };
        let halted = if self.word == SwdlOnFailure::Rollback { OutcomeEffect::UNDO } else { OutcomeEffect::ABORT };
        OutcomeEffects { timed_out: halted, ..failure_effects(failed) }
    }
}

fn failure_effects(failed: OutcomeEffect) -> OutcomeEffects {
    OutcomeEffects { failed, exhausted: failed, rejected: failed, ..OutcomeEffects::default() }
}

/// Lowers retries. Each field comes from the first source that has it.
pub(super) fn lower_retry(sources: &[&RetryDef<'_>]) -> StepRetry {
    let attempts = first_defined(sources, |retry| retry.max_attempts).unwrap_or(defaults::MAX_ATTEMPTS);
    // One attempt means no retries.
    if attempts == 1 {
        return StepRetry::default();
    }
    let length = |of: fn(&RetryDef<'_>) -> Option<Millis>, default| first_defined(sources, of).unwrap_or(default);
    let backoff = Backoff {
        initial: length(|retry| retry.initial_interval, defaults::INITIAL_INTERVAL),
        growth: BackoffGrowth::Exponential(
            first_defined(sources, |retry| retry.backoff_multiplier).unwrap_or(defaults::BACKOFF_MULTIPLIER),
        ),
        max: length(|retry| retry.max_interval, defaults::MAX_INTERVAL),
        jitter: false,
    };
    let never = first_defined(sources, |retry| retry.non_retryable_errors.clone()).unwrap_or_default();
    let mut retry = StepRetry::for_classes(&defaults::RETRIED, attempts, backoff);
    retry.attempts.insert(ErrorClass::Validation, attempts.min(defaults::VALIDATION_ATTEMPTS));
    retry.never = never.into_iter().map(str::to_owned).collect();
    retry
}

fn first_defined<'a, T>(sources: &[&RetryDef<'a>], of: impl Fn(&RetryDef<'a>) -> Option<T>) -> Option<T> {
    sources.iter().find_map(|retry| of(retry))
}

impl<'a> SwdlStageLowering<'_, 'a, '_> {
    /// Lowers a task to a step with an agent.
    pub(crate) fn lower_agent_task(&mut self, id: &StepId, asked: &SwdlAgentTask<'a>, scope: SwdlExprScope) -> Step {
        let kind = StepKindSpec::Work(Box::new(self.lower_work(asked, scope)));
        let mut step = Step::new(id.clone(), kind);
        step.inputs = self.lower_inputs(&asked.inputs, scope);
        step.outputs = schema::outputs_schema(asked.outputs.as_deref());
        step.extensions = self.lower_extensions(asked);
        step
    }

    pub(crate) fn lower_inputs(&mut self, inputs: &[SwdlInput<'a>], scope: SwdlExprScope) -> Vec<InputBinding> {
        let mut bindings = Vec::new();
        for input in inputs {
            let value = input.source.and_then(|given| self.expressions.lower_value(given.node, scope));
            bindings.extend(value.map(|value| InputBinding {
                name: input.name.into(),
                value,
                schema: schema::input_schema(input),
                required: input.required,
            }));
        }
        bindings
    }

    fn lower_work(&mut self, asked: &SwdlAgentTask<'a>, scope: SwdlExprScope) -> WorkSpec {
        let roles = &asked.roles;
        let instructions = roles.instructions.and_then(|given| self.expressions.lower_text(given.node, scope));
        let agent = |instructions, capabilities, tools| WorkerSpec::Agent {
            name: roles.agent.map(|(_, name)| name.to_owned()),
            program: None,
            model: roles.model.map(str::to_owned),
            instructions,
            capabilities,
            tools,
            max_turns: None,
            command_timeout: None,
        };
        let tools = roles.tools.iter().map(|(_, tool)| (*tool).to_owned()).collect();
        let mut work = WorkSpec::new(agent(instructions, Vec::new(), tools));
        let summary = asked.handoff.summary_prompt.map(|given| SummarySpec {
            worker: agent(self.expressions.lower_text(given.node, scope), vec![WorkerCapability::Read], Vec::new()),
            timeout: Some(defaults::SUMMARY_TIMEOUT),
        });
        work.summary = summary.map(Box::new);
        work
    }

    /// Lowers the settings that the host passes to the agent and to later stages. Default values are left out.
    fn lower_extensions(&self, asked: &SwdlAgentTask<'a>) -> SharedStepExtensions {
        static DEFAULT_MODEL: LazyLock<SharedStepExtensions> = LazyLock::new(|| {
            let default_model = Some(defaults::MODEL.to_owned());
            StepExtensions { default_model, ..StepExtensions::default() }.into()
        });
        let mut extensions = match asked.roles.model {
            Some(_) => SharedStepExtensions::default(),
            None => DEFAULT_MODEL.clone(),
        };
        if let Some(context) = &asked.context {
            extensions.context = Some(lower_stage_context(&self.source.context, context));
        }
        let handoff = HandoffSpec {
            format: asked.handoff.format.unwrap_or_default(),
            include_run_log: asked.handoff.include_run_log.unwrap_or_default(),
        };
        if handoff != HandoffSpec::default() {
            extensions.handoff = Some(handoff);
        }
        extensions
    }
}

/// Lowers the context of a stage: its modules, which follow the workflow's, and its memory merged over the workflow's.
fn lower_stage_context(all: &StageContext<'_>, own: &StageContext<'_>) -> WorkflowContext {
    let modules = own.modules.iter().map(|(_, module)| (*module).to_owned()).collect();
    let sources: Vec<&MemoryDef<'_>> = own.memory.iter().chain(&all.memory).collect();
    WorkflowContext { directory: None, modules, memory: (!sources.is_empty()).then(|| lower_memory(&sources)) }
}

/// Lowers the selection of memories. Each field comes from the first source that has it.
pub(super) fn lower_memory(sources: &[&MemoryDef<'_>]) -> MemorySelection {
    let scope = sources.iter().find_map(|memory| memory.project_scope);
    let categories = sources.iter().find_map(|memory| memory.categories.clone()).unwrap_or_default();
    let confidence = sources.iter().find_map(|memory| memory.min_confidence);
    let tokens = sources.iter().find_map(|memory| memory.max_tokens);
    MemorySelection {
        scope: scope.unwrap_or(defaults::MEMORY_SCOPE).to_owned(),
        min_confidence: confidence.unwrap_or(defaults::MEMORY_MIN_CONFIDENCE),
        categories: categories.into_iter().map(str::to_owned).collect(),
        max_tokens: tokens.unwrap_or(defaults::MEMORY_MAX_TOKENS),
    }
}
