//! Every expression of a definition: where it is, and how much it can see from there.

use std::{borrow::Cow, collections::BTreeSet, fmt};

use super::{
    definition::{Definition, ScopeEntry, ScopeIx, WorkflowEntry},
    survey::{Reach, Spot},
};
use crate::{
    expr::{Expr, Root},
    ir::{Binding, Hook, HookAction, HookWhen, Kind, Schema, Step, Trigger, Work, Worker},
};

/// One expression.
#[derive(Debug)]
pub(super) struct Site<'a> {
    pub spot: Spot,
    pub field: Field<'a>,
    pub expr: &'a Expr,
    /// What its value must look like.
    pub wants: Option<&'a Schema>,
    /// Whether the step fails when its value is null.
    pub required: bool,
}

/// The field that holds an expression. Written out only where something is said about it.
#[derive(Debug, PartialEq)]
pub(super) struct Field<'a> {
    /// Whether it is one of what takes the step back.
    pub undo: bool,
    group: &'static str,
    name: Cow<'a, str>,
}

impl Field<'_> {
    /// The name of the input that it is, if it is one of the step itself.
    pub fn input(&self) -> Option<&str> {
        (!self.undo && self.group == INPUTS).then_some(&*self.name)
    }

    pub fn is(&self, name: &str) -> bool {
        !self.undo && self.group.is_empty() && self.name == name
    }
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let undo = if self.undo { UNDO } else { "" };
        write!(f, "{undo}{}{}", self.group, self.name)
    }
}

/// How fields begin that are what a step is given.
const INPUTS: &str = "inputs.";

/// How fields begin that are about taking a step back.
pub(super) const UNDO: &str = "undo.";

/// Shows all of them, in the order of the steps.
pub(super) fn each<'a>(definition: &'a Definition, show: &mut dyn FnMut(Site<'a>)) {
    let spot = Spot { scope: ScopeIx(0), step: None, reach: Reach::Start };
    let mut sites = Sites { show, spot, undo: false };
    for entry in &definition.workflows {
        sites.workflow(entry);
    }
    for (ix, entry) in (0u32..).map(ScopeIx).zip(&definition.scopes) {
        sites.scope(ix, entry);
    }
}

impl Definition {
    /// The names below `context` that expressions read, and whether one reads the whole.
    pub fn context_reads(&self) -> (BTreeSet<String>, bool) {
        let (mut names, mut whole) = (BTreeSet::new(), false);
        each(self, &mut |site| {
            for read in site.expr.reads().iter().filter(|read| *read.root == Root::Context) {
                match read.path.first() {
                    Some(name) => drop(names.insert(name.clone())),
                    None => whole = true,
                }
            }
        });
        (names, whole)
    }
}

/// Those of one step.
pub(super) fn sites_of(scope: ScopeIx, i: u32, step: &Step) -> Vec<Site<'_>> {
    let mut found = Vec::new();
    let mut show = |site| found.push(site);
    let spot = Spot { scope, step: Some(i), reach: Reach::Before };
    Sites { show: &mut show, spot, undo: false }.step(step);
    found
}

struct Sites<'a, 's> {
    show: &'s mut dyn FnMut(Site<'a>),
    spot: Spot,
    undo: bool,
}

impl<'a> Sites<'a, '_> {
    fn field(&self, group: &'static str, name: impl Into<Cow<'a, str>>) -> Field<'a> {
        Field { undo: self.undo, group, name: name.into() }
    }

    fn add(&mut self, name: impl Into<Cow<'a, str>>, expr: &'a Expr) {
        self.add_to("", name, expr);
    }

    fn add_to(&mut self, group: &'static str, name: impl Into<Cow<'a, str>>, expr: &'a Expr) {
        let field = self.field(group, name);
        (self.show)(Site { spot: self.spot, field, expr, wants: None, required: false });
    }

    fn with_reach(&mut self, reach: Reach, name: &'static str, expr: &'a Expr) {
        let (spot, field) = (Spot { reach, ..self.spot }, self.field("", name));
        (self.show)(Site { spot, field, expr, wants: None, required: false });
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
            self.add("result", result);
        }
    }

    fn step(&mut self, step: &'a Step) {
        step.when.iter().for_each(|when| self.add("when", when));
        self.bindings(&step.inputs);
        self.kind(&step.kind);
        if let Some(undo) = &step.undo {
            (self.spot.reach, self.undo) = (Reach::Own, true);
            self.bindings(&undo.inputs);
            self.work(&undo.work);
            self.undo = false;
        }
    }

    fn bindings(&mut self, bindings: &'a [Binding]) {
        for binding in bindings {
            let field = self.field(INPUTS, &*binding.name);
            let (wants, required) = (Some(&binding.schema), binding.required);
            (self.show)(Site { spot: self.spot, field, expr: &binding.value, wants, required });
        }
    }

    fn kind(&mut self, kind: &'a Kind) {
        match kind {
            Kind::Work(work) => self.work(work),
            Kind::Gate(gate) => {
                self.add("message", &gate.message);
                gate.shows.iter().enumerate().for_each(|(i, show)| self.add(format!("shows[{i}]"), show));
            }
            Kind::Branch(branch) => {
                for (i, arm) in branch.arms.iter().enumerate() {
                    self.add(format!("arms[{i}].when"), &arm.when);
                }
            }
            Kind::Each(each) => self.add("over", &each.over),
            Kind::Loop(repeat) => self.with_reach(Reach::Inside, "while", &repeat.condition),
            Kind::Wait(_) | Kind::Parallel(_) | Kind::Call(_) => {}
        }
    }

    fn work(&mut self, work: &'a Work) {
        self.worker("", &work.worker);
        if let Some(check) = &work.check {
            self.worker("check.", &check.worker);
        }
        if let Some(summary) = &work.summary {
            self.worker("summary.", &summary.worker);
        }
    }

    fn worker(&mut self, group: &'static str, worker: &'a Worker) {
        // Of plain text there is nothing to say.
        let is_written = |expr: &&'a Expr| expr.as_literal().is_none();
        match worker {
            Worker::Agent { instructions, .. } => {
                instructions.iter().filter(is_written).for_each(|e| self.add_to(group, "instructions", e));
            }
            Worker::Command { arguments, .. } => {
                let written = arguments.iter().enumerate().filter(|(_, expr)| is_written(expr));
                written.for_each(|(i, expr)| self.add_to(group, format!("arguments[{i}]"), expr));
            }
            Worker::Tool { .. } | Worker::Action { .. } | Worker::Script { .. } => {}
        }
    }
}
