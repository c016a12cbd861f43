//! Lowers IOA to the IR: each step, and the effects of its failure.

use std::collections::{BTreeMap, HashSet};

use skein_core::{
    expr::{Expr, ioa},
    ids::StepId,
    ir::{
        ErrorClass, GateSpec, GateTimeout, HoldReason, InputBinding, OutcomeEffect, OutcomeEffects, SharedStepPolicy,
        Step, StepKindSpec, StepPolicy, StepRetry, TimeoutScope, UndoSpec, WorkSpec, WorkerSpec,
    },
};

use crate::{
    diagnostics::Code,
    extensions::ExtensionBlock,
    fields::{FieldValue, Spanned},
    ioa::{
        defaults::{self, IoaFailurePolicy, IoaOnFailure},
        syntax::{IoaCompensation, IoaStep},
    },
    lowering::{LoweringContext, call_contract, default_on_interrupted},
};

/// Lowers the steps of one workflow.
pub(super) struct IoaStepLowering<'a, 'l> {
    pub lowering: &'a mut LoweringContext<'l>,
    pub policy: IoaFailurePolicy,
    pub skein: &'a ExtensionBlock,
    pub known: HashSet<StepId>,
    pub undo: BTreeMap<&'a StepId, &'a IoaCompensation<'a>>,
    /// The policy of steps with default failure handling, after the first of them.
    pub usual: Option<SharedStepPolicy>,
    /// The input that holds the trigger, which nearly every step receives.
    pub trigger: InputBinding,
}

/// Returns the question of a gate. None for a step that an agent does.
pub(super) fn gate_text<'a>(step: &IoaStep<'a>) -> Option<&'a str> {
    let action = step.action.as_ref()?.value.trim_start();
    match action.strip_prefix(defaults::GATE) {
        Some(text) => Some(text.trim()),
        None => (step.skein.gate() == Some(true)).then_some(action),
    }
}

impl IoaStepLowering<'_, '_> {
    pub(crate) fn lower_step(&mut self, source: &IoaStep<'_>) -> Option<Step> {
        self.lowering.add_step_item(&source.id.value, source.node, "name");
        let gate = gate_text(source);
        let kind = match (gate, source.call) {
            (Some(text), call) => {
                call.into_iter().for_each(|call| self.refuse_gate_call(source, call));
                StepKindSpec::Gate(Box::new(self.lower_gate(source, text)?))
            }
            (None, Some(call)) => call_contract::lower_call(call, self.lowering),
            (None, None) => StepKindSpec::Work(Box::new(lower_work(source.agent.as_ref(), source.action.as_ref()))),
        };
        let mut step = Step::new(source.id.value.clone(), kind);
        step.after = source.depends_on.iter().map(|name| name.value.clone()).collect();
        if gate.is_none() {
            step.inputs = self.lower_inputs(source);
            step.outputs = source.border.output_schema();
        }
        step.policy = match gate {
            Some(_) => lower_gate_policy(source, self.policy).into(),
            None => self.lower_work_policy(source, &step.kind),
        };
        source.skein.apply_to_step(self.skein, &mut step);
        self.lowering.share_policy(&mut step);
        step.undo = self.undo.get(&source.id.value).map(|entry| Box::new(lower_undo(source, entry, &step)));
        Some(step)
    }

    /// Refuses a gate that calls a workflow: a person must decide.
    fn refuse_gate_call(&mut self, source: &IoaStep<'_>, call: FieldValue<'_>) {
        let message = format!("the gate `{}` cannot call a workflow", source.id.value);
        let diagnostic = call.diagnose(Code::FieldsClash, message);
        let hint = "let one step call the workflow, and another be the gate";
        self.lowering.push(diagnostic.with_hint(hint));
    }

    fn lower_gate(&mut self, source: &IoaStep<'_>, text: &str) -> Option<GateSpec> {
        let action = source.node.get("action").unwrap_or(source.node);
        if text.is_empty() {
            let message = format!("the gate `{}` has no question to decide", source.id.value);
            let diagnostic = action.diagnose(Code::NoValue, message);
            self.lowering.push(diagnostic.with_hint(format!("write it after `{}`", defaults::GATE)));
        }
        if source.skein.gate() == Some(false) {
            let message = format!("an action that begins with `{}` is a gate", defaults::GATE);
            let diagnostic = action.diagnose(Code::FieldsClash, message);
            let said = source.node.node_at("/x-skein/gate").first_line_span();
            self.lowering.push(diagnostic.with_related(said, "this says that it is not a gate"));
        }
        Some(GateSpec {
            message: Expr::literal(text).ok()?,
            shows: self.lower_shown_values(source),
            approvers: Vec::new(),
            quorum: 1,
            timeout: source.timeout,
            on_timeout: GateTimeout::Expire,
            on_approve: None,
            on_reject: None,
        })
    }

    /// Lowers the values that a gate shows: those of `x-skein.input`, or the outputs of its dependencies.
    fn lower_shown_values(&mut self, source: &IoaStep<'_>) -> Vec<Expr> {
        if let Some(node) = source.border.input {
            return self.lowering.accept_expression(node, ioa::parse_value(&node.to_json())).into_iter().collect();
        }
        let shown = |id: &StepId| Expr::object([(id.as_str(), output_expr(id))]).ok();
        self.known_dependencies(source).into_iter().filter_map(shown).collect()
    }

    /// Returns the dependencies that exist, without the step itself.
    fn known_dependencies<'s>(&self, source: &'s IoaStep<'_>) -> Vec<&'s StepId> {
        let names = source.depends_on.iter().map(|name| &name.value);
        let known = names.filter(|id| self.known.contains(*id) && **id != source.id.value);
        let mut before: Vec<_> = known.collect();
        before.sort();
        before.dedup();
        before
    }

    /// Lowers the inputs of an agent: those of `x-skein.input`, or the trigger and the outputs of its dependencies. A
    /// called workflow declares its inputs, so it has no default ones.
    fn lower_inputs(&mut self, source: &IoaStep<'_>) -> Vec<InputBinding> {
        if let Some(bindings) = source.border.lower_inputs(ioa::parse_value, self.lowering) {
            return bindings;
        }
        if source.call.is_some() {
            return Vec::new();
        }
        let before = self.known_dependencies(source).into_iter().map(output_binding);
        std::iter::once(self.trigger.clone()).chain(before).collect()
    }

    /// Lowers the policy of work. Steps with default failure handling share one value.
    fn lower_work_policy(&mut self, source: &IoaStep<'_>, kind: &StepKindSpec) -> SharedStepPolicy {
        let is_usual = source.on_failure.is_none() && source.timeout.is_none() && source.retry.is_none();
        if let Some(usual) = self.usual.as_ref().filter(|_| is_usual) {
            return usual.clone();
        }
        let retry = lower_retry(source);
        let policy = SharedStepPolicy::from(StepPolicy {
            timeout: source.timeout,
            timeout_per: TimeoutScope::Step,
            effects: lower_effects(source.on_failure.as_ref().map(|word| word.value), self.policy, false),
            holds: [(ErrorClass::Governance, HoldReason::Governance)].into(),
            on_interrupted: default_on_interrupted(kind),
            retry,
            ..StepPolicy::default()
        });
        if is_usual {
            self.usual = Some(policy.clone());
        }
        policy
    }
}

fn lower_gate_policy(source: &IoaStep<'_>, policy: IoaFailurePolicy) -> StepPolicy {
    let effects = lower_effects(source.on_failure.as_ref().map(|word| word.value), policy, true);
    StepPolicy { effects, ..StepPolicy::default() }
}

fn lower_work(agent: Option<&Spanned<&str>>, action: Option<&Spanned<&str>>) -> WorkSpec {
    WorkSpec::new(WorkerSpec::Agent {
        name: agent.map(|agent| agent.value.to_owned()),
        program: None,
        model: None,
        // A literal cannot fail here, because the size of a source is limited.
        instructions: action.and_then(|action| Expr::literal(action.value).ok()),
        capabilities: Vec::new(),
        tools: Vec::new(),
        max_turns: None,
        command_timeout: None,
    })
}

fn lower_retry(source: &IoaStep<'_>) -> StepRetry {
    match &source.retry {
        Some(policy) if policy.max_retries > 0 => {
            StepRetry::for_classes(&defaults::RETRIED, policy.max_retries + 1, policy.backoff.clone())
        }
        _ => StepRetry::default(),
    }
}

/// Lowers a compensation. It has the timeout, the retries and the isolation of its step.
fn lower_undo(source: &IoaStep<'_>, entry: &IoaCompensation<'_>, step: &Step) -> UndoSpec {
    let mut work = lower_work(entry.agent.as_ref().or(source.agent.as_ref()), entry.action.as_ref());
    if let StepKindSpec::Work(own) = &step.kind {
        work.isolation.clone_from(&own.isolation);
    }
    UndoSpec {
        id: source.id.value.clone(),
        work,
        inputs: vec![trigger_binding(), output_binding(&source.id.value)],
        timeout: source.timeout,
        retry: lower_retry(source),
    }
}

pub(super) fn trigger_binding() -> InputBinding {
    InputBinding::new("trigger", Expr::input::<&str>([]))
}

fn output_binding(id: &StepId) -> InputBinding {
    InputBinding::new(["steps.", id.as_str(), ".output"].concat(), output_expr(id))
}

fn output_expr(id: &StepId) -> Expr {
    Expr::step::<&str>(id.as_str(), [])
}

/// Lowers the effects of a failure: the step's `onFailure`, else the workflow's `failurePolicy`. Only an approval
/// satisfies a gate, and only the workflow's policy applies when nobody decides.
fn lower_effects(step: Option<IoaOnFailure>, workflow: IoaFailurePolicy, is_gate: bool) -> OutcomeEffects {
    let policy = match workflow {
        IoaFailurePolicy::Compensate => OutcomeEffect::UNDO,
        // With `retry`, the run fails and another one follows.
        IoaFailurePolicy::Retry | IoaFailurePolicy::Abort => OutcomeEffect::ABORT,
    };
    let effect = match step {
        Some(IoaOnFailure::Abort) => OutcomeEffect::ABORT,
        Some(IoaOnFailure::Skip) => OutcomeEffect::SKIP,
        Some(IoaOnFailure::Compensate) => OutcomeEffect::UNDO,
        None => policy,
    };
    let effect = OutcomeEffect { satisfies: effect.satisfies && !is_gate, ..effect };
    let timed_out = if is_gate { policy } else { effect };
    OutcomeEffects { failed: effect, rejected: effect, timed_out, ..OutcomeEffects::default() }
}
