//! Each stage as a step: an agent's work, a gate, or an each with one step inside.

use std::{collections::BTreeSet, sync::Arc};

use skein_core::{
    expr::{Expr, swdl::Scope},
    ids::StepId,
    ir::{self, Approver, Each, Gate, Kind, Per, Policy, Shape, Step, StepPolicy, Work, Worker},
    limits,
};

use super::{
    expressions::Expressions,
    policy::{Chosen, retry},
    schema,
};
use crate::{
    border,
    code::Code,
    common::on_interrupted,
    diagnostic::Diagnostic,
    project::Sort,
    read::{Given, Unlowered},
    swdl::{
        defaults::{self, OnFailure},
        syntax::{Asked, Called, Does, GateDef, Stage, StagePolicy, Workflow},
    },
    yaml::Node,
};

pub(super) struct Stages<'e, 'a, 'l> {
    pub expressions: &'e mut Expressions<'a, 'l>,
    pub source: &'e Workflow<'a>,
    /// What holds for a stage without an error policy, once one has been met.
    pub usual: Option<Policy>,
}

impl<'a> Stages<'_, 'a, '_> {
    pub fn all(&mut self, stages: Unlowered<Stage<'a>>) -> Vec<Arc<Step>> {
        let roles: BTreeSet<String> =
            self.expressions.lowering.project.names(Sort::Role).into_iter().collect();
        self.warn_of_conditions(&stages);
        self.expressions.lowering.reserve(stages.len());
        stages.into_iter().map(|stage| Arc::new(self.stage(&stage, &roles))).collect()
    }

    fn stage(&mut self, stage: &Stage<'a>, roles: &BTreeSet<String>) -> Step {
        self.expressions.lowering.step_item(&stage.id, stage.node, "id");
        let chosen = Chosen::of(&stage.policy, self.source);
        self.refuse_rollback(chosen);
        let mut step = match &stage.does {
            Does::Agent(asked) => self.agent(stage, asked, chosen),
            Does::Call(called) => self.call(stage, called, chosen),
            Does::Gate(gate) => self.gate(stage, gate, chosen, roles),
            Does::FanOut { source, template } => self.fan_out(stage, *source, template.as_ref(), chosen),
            Does::Unclear => Step::new(stage.id.clone(), Kind::Work(Box::new(nobody()))),
        };
        step.name = stage.name.map(str::to_owned);
        step.description = stage.description.map(str::to_owned);
        step.after.clone_from(&stage.depends_on);
        step.when = stage.condition.and_then(|given| self.expressions.condition(given.node));
        if let Some(ui) = stage.ui {
            step.labels.insert("ui".to_owned(), ui.node.json());
        }
        stage.skein.apply(&self.source.skein, &mut step);
        self.expressions.lowering.share(&mut step);
        step
    }

    /// A gate that is not asked stays shut, unlike a stage that is not needed.
    fn warn_of_conditions(&mut self, stages: &[Box<Stage<'a>>]) {
        let may_be_skipped = |stage: &Stage<'a>| match (&stage.does, stage.condition) {
            (Does::Gate(_), Some(condition)) => Some((stage.id.clone(), condition)),
            _ => None,
        };
        let gates: Vec<(StepId, Given<'a>)> =
            stages.iter().filter_map(|stage| may_be_skipped(stage)).collect();
        if gates.is_empty() {
            return;
        }
        let waited_for: BTreeSet<&StepId> = stages.iter().flat_map(|stage| &stage.depends_on).collect();
        for (id, condition) in gates.into_iter().filter(|(id, _)| waited_for.contains(id)) {
            let message = format!("if its condition is false, what waits for `{id}` is skipped");
            let (source, span) = (condition.node.source(), condition.node.mark());
            let diagnostic = Diagnostic::new(Code::SkippedGate, source, span, message);
            let hint = "nobody approved it, so nothing that needs the approval may start";
            self.expressions.lowering.push(diagnostic.hint(hint));
        }
    }

    fn agent(&mut self, stage: &Stage<'a>, asked: &Asked<'a>, chosen: Chosen<'a>) -> Step {
        let mut step = self.asked(&stage.id, asked, Scope::Stage);
        step.policy = self.agent_policy(stage, &step.kind, chosen);
        step
    }

    /// Another workflow has its own times and tries; it is called again only where the stage itself says so.
    fn call(&mut self, stage: &Stage<'a>, called: &Called<'a>, chosen: Chosen<'a>) -> Step {
        let kind = border::kind(called.workflow, self.expressions.lowering);
        let mut step = Step::new(stage.id.clone(), kind);
        step.inputs = self.inputs(&called.inputs, Scope::Stage);
        step.outputs = schema::given(called.outputs.as_deref());
        if stage.policy.retry.is_some() {
            step.policy = self.work_policy(&step.kind, &[&stage.policy]).into();
        }
        step.policy.timeout = stage.policy.timeout.map(|(_, timeout)| timeout);
        step.policy.effects = chosen.effects();
        step
    }

    /// Most stages say nothing of their own, and share what that means.
    fn agent_policy(&mut self, stage: &Stage<'a>, kind: &Kind, chosen: Chosen<'a>) -> Policy {
        let is_usual = stage.policy.is_usual();
        let same = |usual: &&Policy| is_usual && usual.on_interrupted == on_interrupted(kind);
        if let Some(usual) = self.usual.as_ref().filter(same) {
            return usual.clone();
        }
        let effects = chosen.effects();
        let policy = Policy::from(StepPolicy { effects, ..self.work_policy(kind, &[&stage.policy]) });
        if is_usual {
            self.usual = Some(policy.clone());
        }
        policy
    }

    /// How work is tried, by the first of these that says something.
    fn work_policy(&self, kind: &Kind, policies: &[&StagePolicy<'a>]) -> StepPolicy {
        let timeout = policies.first().and_then(|policy| policy.timeout).map(|(_, timeout)| timeout);
        let own = policies.iter().filter_map(|policy| policy.retry.as_deref()).map(|(_, retry)| retry);
        let sources: Vec<_> = own.chain([&self.source.policy.default_retry]).collect();
        let retry = retry(&sources);
        StepPolicy {
            timeout: Some(timeout.unwrap_or(defaults::STAGE_TIMEOUT)),
            on_interrupted: on_interrupted(kind),
            retry,
            ..StepPolicy::default()
        }
    }

    fn gate(
        &mut self,
        stage: &Stage<'a>,
        gate: &GateDef<'a>,
        chosen: Chosen<'a>,
        roles: &BTreeSet<String>,
    ) -> Step {
        self.warn_of_gate(stage, gate);
        let message = gate.message.and_then(|given| self.expressions.text(given.node, Scope::Stage));
        let name = stage.name.unwrap_or(stage.id.as_str());
        let message = message.or_else(|| Expr::literal(name).ok());
        let approver = |name: &&str| match roles.contains(*name) {
            true => Approver::Role((*name).to_owned()),
            false => Approver::User((*name).to_owned()),
        };
        let timeout = gate.timeout.or(stage.policy.timeout.map(|(_, timeout)| timeout));
        let kind = message.map(|message| {
            Kind::Gate(Box::new(Gate {
                message,
                shows: Vec::new(),
                approvers: gate.approvers.iter().map(approver).collect(),
                quorum: 1,
                timeout: Some(timeout.unwrap_or(defaults::GATE_TIMEOUT)),
                on_timeout: gate.on_timeout.lowered(),
                on_approve: None,
                on_reject: None,
            }))
        });
        // A name is always short enough to be a message.
        let kind = kind.unwrap_or_else(|| Kind::Work(Box::new(nobody())));
        let mut step = Step::new(stage.id.clone(), kind);
        step.outputs = schema::decision();
        step.policy.effects = chosen.gate_effects();
        step
    }

    /// What an error policy says and a gate has no use for.
    fn warn_of_gate(&mut self, stage: &Stage<'a>, gate: &GateDef<'a>) {
        let retry = stage.policy.retry.as_deref().map(|(given, _)| *given);
        let timeout = stage.policy.timeout.map(|(given, _)| given).filter(|_| gate.timeout.is_some());
        let ignored = [(retry, "a gate is asked once"), (timeout, "the gate has a `timeout` of its own")];
        for (given, why) in ignored.into_iter().filter_map(|(given, why)| given.map(|given| (given, why))) {
            let message = format!("`{}` changes nothing: {why}", given.name);
            let (source, span) = (given.node.source(), given.node.mark());
            self.expressions.lowering.push(Diagnostic::new(Code::IgnoredField, source, span, message));
        }
    }

    fn fan_out(
        &mut self,
        stage: &Stage<'a>,
        source: Option<Given<'a>>,
        template: Option<&(Node<'a>, Box<Asked<'a>>)>,
        chosen: Chosen<'a>,
    ) -> Step {
        let over = source.and_then(|given| self.expressions.value(given.node, Scope::Stage));
        let (Some(over), Some((node, asked))) = (over, template) else {
            return Step::new(stage.id.clone(), Kind::Work(Box::new(nobody())));
        };
        let item = self.item(stage, *node, asked);
        let each = Each {
            over,
            parallelism: Some(limits::PARALLELISM_DEFAULT),
            errors: ir::EachErrors::default(),
            scope: Arc::new(of_one(item)),
        };
        let mut step = Step::new(stage.id.clone(), Kind::Each(Box::new(each)));
        step.outputs = schema::list(schema::outputs(asked.outputs.as_deref()));
        step.policy.effects = chosen.effects();
        // The time of one item has a default; how many there are nobody knows.
        step.policy.timeout = stage.policy.timeout.map(|(_, timeout)| timeout);
        step.policy.timeout_per = Per::Step;
        step
    }

    /// What is done for each item. Its name has a dot, which no stage's can have.
    fn item(&mut self, stage: &Stage<'a>, node: Node<'a>, asked: &Asked<'a>) -> Step {
        let id = StepId::new(format!("{}.item", stage.id)).unwrap_or_else(|_| stage.id.clone());
        self.expressions.lowering.step_item(&id, node, "id");
        let mut step = self.asked(&id, asked, Scope::FanOut);
        // What people call it is the stage.
        step.labels.insert("stage".to_owned(), stage.id.as_str().into());
        step.name = stage.name.map(str::to_owned);
        // The stage's own time is for all of its items.
        let retried = StagePolicy { retry: stage.policy.retry.clone(), ..StagePolicy::default() };
        step.policy = self.work_policy(&step.kind, &[&asked.policy, &retried]).into();
        let mut skein = stage.skein.over(&self.source.skein);
        // The stage's budget is for all of them, too.
        skein.budget = None;
        skein.apply(&mut step);
        step
    }

    /// Nothing in this format says how a stage is taken back.
    fn refuse_rollback(&mut self, chosen: Chosen<'a>) {
        let Some(given) = chosen.given.filter(|_| chosen.word == OnFailure::Rollback) else { return };
        let message = "`rollback` has nothing to take back: no stage declares a compensation";
        let (source, span) = (given.node.source(), given.node.mark());
        let diagnostic = Diagnostic::new(Code::BadUndo, source, span, message);
        let hint = "write `halt`; a format that can undo steps is AIP-15";
        self.expressions.lowering.push(diagnostic.hint(hint).fix_word(given.span(), "halt"));
    }
}

/// A scope that gives what its only step gives.
fn of_one(step: Step) -> ir::Scope {
    let result = Expr::step(step.id.as_str(), Vec::<String>::new());
    let mut scope = ir::Scope::new(Shape::Graph, vec![step]);
    scope.result = Some(result);
    scope
}

/// Stands for work about which something has been reported.
fn nobody() -> Work {
    let text = String::new();
    Work::new(Worker::Script { text, capabilities: Vec::new() })
}
