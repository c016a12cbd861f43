//! From IOA to the IR: each step, and what its failure does.

use std::collections::{BTreeMap, HashSet};

use skein_core::{
    expr::{Expr, ioa},
    ids::StepId,
    ir::{
        Binding, Effect, Effects, ErrorClass, Gate, GateTimeout, HoldReason, Kind, Per, Policy, Retry, Step,
        StepPolicy, Undo, Work, Worker,
    },
};

use super::{
    defaults::{self, FailurePolicy, OnFailure},
    syntax::{self, Compensation},
};
use crate::{
    border,
    code::Code,
    common::on_interrupted,
    diagnostic::Diagnostic,
    lowering::Lowering,
    read::{Given, Spanned},
    xskein::XSkein,
};

/// Lowers the steps of one workflow.
pub(super) struct Steps<'a, 'l> {
    pub lowering: &'a mut Lowering<'l>,
    pub policy: FailurePolicy,
    pub skein: &'a XSkein,
    pub known: HashSet<StepId>,
    pub undo: BTreeMap<&'a StepId, &'a Compensation<'a>>,
    /// What holds for a step that says nothing of its failures, once one has been met.
    pub usual: Option<Policy>,
    /// What triggered the run, which nearly every step is given.
    pub trigger: Binding,
}

/// What a gate asks; none for a step that an agent does.
pub(super) fn gate_text<'a>(step: &syntax::Step<'a>) -> Option<&'a str> {
    let action = step.action.as_ref()?.value.trim_start();
    match action.strip_prefix(defaults::GATE) {
        Some(text) => Some(text.trim()),
        None => (step.skein.gate() == Some(true)).then_some(action),
    }
}

impl Steps<'_, '_> {
    pub fn step(&mut self, source: &syntax::Step<'_>) -> Option<Step> {
        self.lowering.step_item(&source.id.value, source.node, "name");
        let gate = gate_text(source);
        let kind = match (gate, source.call) {
            (Some(text), call) => {
                call.into_iter().for_each(|call| self.refuse_call_of_a_gate(source, call));
                Kind::Gate(Box::new(self.gate(source, text)?))
            }
            (None, Some(call)) => border::kind(call, self.lowering),
            (None, None) => Kind::Work(Box::new(work(source.agent.as_ref(), source.action.as_ref()))),
        };
        let mut step = Step::new(source.id.value.clone(), kind);
        step.after = source.depends_on.iter().map(|name| name.value.clone()).collect();
        if gate.is_none() {
            step.inputs = self.inputs(source);
            step.outputs = source.border.outputs();
        }
        step.policy = match gate {
            Some(_) => gate_policy(source, self.policy).into(),
            None => self.work_policy(source, &step.kind),
        };
        source.skein.apply(self.skein, &mut step);
        self.lowering.share(&mut step);
        step.undo = self.undo.get(&source.id.value).map(|entry| Box::new(undo(source, entry, &step)));
        Some(step)
    }

    /// A person decides, and no other workflow.
    fn refuse_call_of_a_gate(&mut self, source: &syntax::Step<'_>, call: Given<'_>) {
        let message = format!("the gate `{}` cannot be another workflow", source.id.value);
        let diagnostic = Diagnostic::new(Code::FieldsClash, call.node.source(), call.node.mark(), message);
        let hint = "let one step call the workflow, and another be the gate";
        self.lowering.push(diagnostic.hint(hint));
    }

    fn gate(&mut self, source: &syntax::Step<'_>, text: &str) -> Option<Gate> {
        let action = source.node.get("action").unwrap_or(source.node);
        if text.is_empty() {
            let message = format!("the gate `{}` does not say what is to be decided", source.id.value);
            let diagnostic = Diagnostic::new(Code::NoValue, action.source(), action.mark(), message);
            self.lowering.push(diagnostic.hint(format!("write it after `{}`", defaults::GATE)));
        }
        if source.skein.gate() == Some(false) {
            let message = format!("an action that begins with `{}` is a gate", defaults::GATE);
            let diagnostic = Diagnostic::new(Code::FieldsClash, action.source(), action.mark(), message);
            let said = source.node.at("/x-skein/gate").mark();
            self.lowering.push(diagnostic.also(said, "this says that it is none"));
        }
        Some(Gate {
            message: Expr::literal(text).ok()?,
            shows: self.shows(source),
            approvers: Vec::new(),
            quorum: 1,
            timeout: source.timeout,
            on_timeout: GateTimeout::Expire,
            on_approve: None,
            on_reject: None,
        })
    }

    /// What a gate shows: what `x-skein.input` says, or what the steps before it gave.
    fn shows(&mut self, source: &syntax::Step<'_>) -> Vec<Expr> {
        if let Some(node) = source.border.input {
            return self.lowering.expression(node, ioa::value(&node.json())).into_iter().collect();
        }
        let shown = |id: &StepId| Expr::object([(id.as_str(), output_of(id))]).ok();
        self.before(source).into_iter().filter_map(shown).collect()
    }

    /// The steps that this one waits for by name and that are there.
    fn before<'s>(&self, source: &'s syntax::Step<'_>) -> Vec<&'s StepId> {
        let names = source.depends_on.iter().map(|name| &name.value);
        let known = names.filter(|id| self.known.contains(*id) && **id != source.id.value);
        let mut before: Vec<_> = known.collect();
        before.sort();
        before.dedup();
        before
    }

    /// What an agent is given: what `x-skein.input` says, or the trigger and what the steps before it gave. Another workflow
    /// takes what it declares, so that it is given nothing by itself.
    fn inputs(&mut self, source: &syntax::Step<'_>) -> Vec<Binding> {
        if let Some(bindings) = source.border.inputs(ioa::value, self.lowering) {
            return bindings;
        }
        if source.call.is_some() {
            return Vec::new();
        }
        let before = self.before(source).into_iter().map(output_binding);
        std::iter::once(self.trigger.clone()).chain(before).collect()
    }

    /// Most steps say nothing of their own, and share what that means.
    fn work_policy(&mut self, source: &syntax::Step<'_>, kind: &Kind) -> Policy {
        let is_usual = source.on_failure.is_none() && source.timeout.is_none() && source.retry.is_none();
        if let Some(usual) = self.usual.as_ref().filter(|_| is_usual) {
            return usual.clone();
        }
        let retry = retry(source);
        let policy = Policy::from(StepPolicy {
            timeout: source.timeout,
            timeout_per: Per::Step,
            effects: effects(source.on_failure.as_ref().map(|word| word.value), self.policy, false),
            holds: [(ErrorClass::Governance, HoldReason::Governance)].into(),
            on_interrupted: on_interrupted(kind),
            retry,
            ..StepPolicy::default()
        });
        if is_usual {
            self.usual = Some(policy.clone());
        }
        policy
    }
}

fn gate_policy(source: &syntax::Step<'_>, policy: FailurePolicy) -> StepPolicy {
    let effects = effects(source.on_failure.as_ref().map(|word| word.value), policy, true);
    StepPolicy { effects, ..StepPolicy::default() }
}

fn work(agent: Option<&Spanned<&str>>, action: Option<&Spanned<&str>>) -> Work {
    Work::new(Worker::Agent {
        name: agent.map(|agent| agent.value.to_owned()),
        program: None,
        model: None,
        // A text without expressions is one for as long as sources are limited.
        instructions: action.and_then(|action| Expr::literal(action.value).ok()),
        capabilities: Vec::new(),
        tools: Vec::new(),
        max_turns: None,
        command_timeout: None,
    })
}

fn retry(source: &syntax::Step<'_>) -> Retry {
    match &source.retry {
        Some(policy) if policy.max_retries > 0 => {
            Retry::of(&defaults::RETRIED, policy.max_retries + 1, policy.backoff.clone())
        }
        _ => Retry::default(),
    }
}

/// What takes a step back works as the step did: as long, as often, and with nothing more in reach.
fn undo(source: &syntax::Step<'_>, entry: &Compensation<'_>, step: &Step) -> Undo {
    let mut work = work(entry.agent.as_ref().or(source.agent.as_ref()), entry.action.as_ref());
    if let Kind::Work(own) = &step.kind {
        work.isolation.clone_from(&own.isolation);
    }
    Undo {
        id: source.id.value.clone(),
        work,
        inputs: vec![trigger_binding(), output_binding(&source.id.value)],
        timeout: source.timeout,
        retry: retry(source),
    }
}

pub(super) fn trigger_binding() -> Binding {
    Binding::new("trigger", Expr::input::<&str>([]))
}

fn output_binding(id: &StepId) -> Binding {
    Binding::new(["steps.", id.as_str(), ".output"].concat(), output_of(id))
}

fn output_of(id: &StepId) -> Expr {
    Expr::step::<&str>(id.as_str(), [])
}

/// What a step's failure does: what it says itself, else what the workflow says. A gate lets nobody pass but by an
/// approval, and what happens when nobody decides is for the workflow alone to say.
fn effects(step: Option<OnFailure>, workflow: FailurePolicy, is_gate: bool) -> Effects {
    let policy = match workflow {
        FailurePolicy::Compensate => Effect::UNDO,
        // The run fails, and another follows it.
        FailurePolicy::Retry | FailurePolicy::Abort => Effect::ABORT,
    };
    let effect = match step {
        Some(OnFailure::Abort) => Effect::ABORT,
        Some(OnFailure::Skip) => Effect::SKIP,
        Some(OnFailure::Compensate) => Effect::UNDO,
        None => policy,
    };
    let effect = Effect { satisfies: effect.satisfies && !is_gate, ..effect };
    let timed_out = if is_gate { policy } else { effect };
    Effects { failed: effect, rejected: effect, timed_out, ..Effects::default() }
}
