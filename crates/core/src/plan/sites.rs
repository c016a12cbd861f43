//! Every expression of a definition: where it is, and how much it can see from there.

use super::{
    definition::{ScopeEntry, ScopeIx, WorkflowEntry},
    survey::{Reach, Spot, Survey},
};
use crate::{
    expr::Expr,
    ir::{Binding, Hook, HookAction, HookWhen, Kind, Schema, Step, Trigger, Work, Worker},
};

/// One expression.
#[derive(Debug)]
pub(super) struct Site<'a> {
    pub spot: Spot,
    pub field: String,
    pub expr: &'a Expr,
    /// What its value must look like.
    pub wants: Option<&'a Schema>,
    /// Whether the step fails when its value is null.
    pub required: bool,
}

/// Shows all of them, in the order of the steps.
pub(super) fn each<'a>(survey: &Survey<'a>, show: &mut dyn FnMut(Site<'a>)) {
    let mut sites = Sites { show, spot: Spot { scope: ScopeIx(0), step: None, reach: Reach::Start } };
    for entry in &survey.definition.workflows {
        sites.workflow(entry);
    }
    for (ix, entry) in survey.scopes() {
        sites.scope(ix, entry);
    }
}

/// Those of one step.
pub(super) fn sites_of(scope: ScopeIx, i: u32, step: &Step) -> Vec<Site<'_>> {
    let mut found = Vec::new();
    let mut show = |site| found.push(site);
    let spot = Spot { scope, step: Some(i), reach: Reach::Before };
    Sites { show: &mut show, spot }.step(step);
    found
}

struct Sites<'a, 's> {
    show: &'s mut dyn FnMut(Site<'a>),
    spot: Spot,
}

impl<'a> Sites<'a, '_> {
    fn add(&mut self, field: String, expr: &'a Expr) {
        (self.show)(Site { spot: self.spot, field, expr, wants: None, required: false });
    }

    fn with_reach(&mut self, reach: Reach, field: &str, expr: &'a Expr) {
        let spot = Spot { reach, ..self.spot };
        (self.show)(Site { spot, field: field.to_owned(), expr, wants: None, required: false });
    }

    fn workflow(&mut self, entry: &'a WorkflowEntry) {
        let workflow = &entry.workflow;
        self.spot = Spot { scope: entry.root, step: None, reach: Reach::Start };
        for (name, value) in &workflow.env {
            self.add(format!("env.{name}"), value);
        }
        for (i, trigger) in workflow.triggers.iter().enumerate() {
            if let Trigger::Event { condition: Some(condition), .. } = trigger {
                self.add(format!("triggers[{i}].condition"), condition);
            }
        }
        for (i, hook) in workflow.hooks.iter().enumerate() {
            self.hook(i, hook);
        }
    }

    fn hook(&mut self, i: usize, hook: &'a Hook) {
        self.spot.reach = match hook.when {
            HookWhen::Start => Reach::Start,
            HookWhen::Success | HookWhen::Failure => Reach::End,
        };
        match &hook.action {
            HookAction::Notify { message, .. } => {
                message.iter().for_each(|message| self.add(format!("hooks[{i}].message"), message));
            }
            HookAction::Run { arguments, .. } => {
                for (j, argument) in arguments.iter().enumerate() {
                    self.add(format!("hooks[{i}].arguments[{j}]"), argument);
                }
            }
        }
    }

    fn scope(&mut self, scope: ScopeIx, entry: &'a ScopeEntry) {
        for (i, step) in (0u32..).zip(&entry.scope.steps) {
            self.spot = Spot { scope, step: Some(i), reach: Reach::Before };
            self.step(step);
        }
        self.spot = Spot { scope, step: None, reach: Reach::End };
        if let Some(result) = &entry.scope.result {
            self.add("result".to_owned(), result);
        }
    }

    fn step(&mut self, step: &'a Step) {
        step.when.iter().for_each(|when| self.add("when".to_owned(), when));
        self.bindings("", &step.inputs);
        self.kind(&step.kind);
        if let Some(undo) = &step.undo {
            self.spot.reach = Reach::Own;
            self.bindings("undo.", &undo.inputs);
            self.work("undo.", &undo.work);
        }
    }

    fn bindings(&mut self, prefix: &str, bindings: &'a [Binding]) {
        for binding in bindings {
            let field = format!("{prefix}inputs.{}", binding.name);
            let (wants, required) = (Some(&binding.schema), binding.required);
            (self.show)(Site { spot: self.spot, field, expr: &binding.value, wants, required });
        }
    }

    fn kind(&mut self, kind: &'a Kind) {
        match kind {
            Kind::Work(work) => self.work("", work),
            Kind::Gate(gate) => {
                self.add("message".to_owned(), &gate.message);
                gate.shows.iter().enumerate().for_each(|(i, show)| self.add(format!("shows[{i}]"), show));
            }
            Kind::Branch(branch) => {
                for (i, arm) in branch.arms.iter().enumerate() {
                    self.add(format!("arms[{i}].when"), &arm.when);
                }
            }
            Kind::Each(each) => self.add("over".to_owned(), &each.over),
            Kind::Loop(repeat) => self.with_reach(Reach::Inside, "while", &repeat.condition),
            Kind::Wait(_) | Kind::Parallel(_) | Kind::Call(_) => {}
        }
    }

    fn work(&mut self, prefix: &str, work: &'a Work) {
        self.worker(prefix, &work.worker);
        if let Some(check) = &work.check {
            self.worker(&format!("{prefix}check."), &check.worker);
        }
        if let Some(summary) = &work.summary {
            self.worker(&format!("{prefix}summary."), &summary.worker);
        }
    }

    fn worker(&mut self, prefix: &str, worker: &'a Worker) {
        let arguments = matches!(worker, Worker::Command { .. });
        // Of plain text there is nothing to say.
        let written = worker.expressions().into_iter().enumerate();
        for (i, expr) in written.filter(|(_, expr)| expr.as_literal().is_none()) {
            let field = if arguments { format!("arguments[{i}]") } else { "instructions".to_owned() };
            self.add(format!("{prefix}{field}"), expr);
        }
    }
}
