//! Lowers each stage to a step: work of an agent, a gate, or an each with one step inside.

use std::{collections::BTreeSet, sync::Arc};

use skein_core::{
    expr::{Expr, swdl::SwdlExprScope},
    ids::StepId,
    ir::{
        self, Approver, EachSpec, GateSpec, ScopeShape, SharedStepPolicy, Step, StepKindSpec, StepPolicy,
        TimeoutScope, WorkSpec, WorkerSpec,
    },
    limits,
};

use super::{
    expressions::SwdlExpressions,
    policy::{OnFailureChoice, lower_retry},
    schema,
};
use crate::{
    call_contract,
    code::Code,
    common::default_on_interrupted,
    diagnostic::Diagnostic,
    fields::{FieldValue, UnloweredSteps},
    project::CatalogKind,
    swdl::{
        defaults::{self, SwdlOnFailure},
        syntax::{GateDef, StagePolicy, SwdlAgentTask, SwdlCall, SwdlStage, SwdlStageKind, SwdlWorkflow},
    },
    yaml::YamlNode,
};

pub(super) struct SwdlStageLowering<'e, 'a, 'l> {
    pub expressions: &'e mut SwdlExpressions<'a, 'l>,
    pub source: &'e SwdlWorkflow<'a>,
    /// The policy of stages without an error policy, after the first of them.
    pub usual: Option<SharedStepPolicy>,
}

impl<'a> SwdlStageLowering<'_, 'a, '_> {
    pub fn lower_stages(&mut self, stages: UnloweredSteps<SwdlStage<'a>>) -> Vec<Arc<Step>> {
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
            SwdlStageKind::FanOut { source, template } => {
                self.lower_fan_out(stage, *source, template.as_ref(), chosen)
            }
            SwdlStageKind::Unclear => {
                Step::new(stage.id.clone(), StepKindSpec::Work(Box::new(placeholder_work())))
            }
        };
        step.name = stage.name.map(str::to_owned);
        step.description = stage.description.map(str::to_owned);
        step.after.clone_from(&stage.depends_on);
        step.when = stage.condition.and_then(|given| self.expressions.lower_condition(given.node));
        if let Some(ui) = stage.ui {
            step.labels.insert("ui".to_owned(), ui.node.to_json());
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
        let gates: Vec<(StepId, FieldValue<'a>)> =
            stages.iter().filter_map(|stage| may_be_skipped(stage)).collect();
        if gates.is_empty() {
            return;
        }
        let waited_for: BTreeSet<&StepId> = stages.iter().flat_map(|stage| &stage.depends_on).collect();
        for (id, condition) in gates.into_iter().filter(|(id, _)| waited_for.contains(id)) {
            let message = format!("if its condition is false, stages that depend on `{id}` are skipped");
            let (source, span) = (condition.node.source(), condition.node.first_line_span());
            let diagnostic = Diagnostic::new(Code::SkippedGate, source, span, message);
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
    fn lower_call_stage(
        &mut self,
        stage: &SwdlStage<'a>,
        called: &SwdlCall<'a>,
        chosen: OnFailureChoice<'a>,
    ) -> Step {
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
        let same =
            |usual: &&SharedStepPolicy| is_usual && usual.on_interrupted == default_on_interrupted(kind);
        if let Some(usual) = self.usual.as_ref().filter(same) {
            return usual.clone();
        }
        let effects = chosen.to_effects();
        let policy =
            SharedStepPolicy::from(StepPolicy { effects, ..self.lower_work_policy(kind, &[&stage.policy]) });
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
        let message =
            gate.message.and_then(|given| self.expressions.lower_text(given.node, SwdlExprScope::Stage));
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
            let (source, span) = (given.node.source(), given.node.first_line_span());
            self.expressions.lowering.push(Diagnostic::new(Code::IgnoredField, source, span, message));
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
        step.labels.insert("stage".to_owned(), stage.id.as_str().into());
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
        let (source, span) = (given.node.source(), given.node.first_line_span());
        let diagnostic = Diagnostic::new(Code::BadUndo, source, span, message);
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
