//! Every expression of a definition: its position, and the steps that it can see.

use std::collections::BTreeSet;

use super::{
    definition::{PlanDefinition, ScopeEntry, ScopeIx, WorkflowEntry},
    problem::{FieldRef, FieldRest, PlanField},
    survey::{ExprReach, ExprSpot},
};
use crate::{
    expr::{Expr, ReferenceRoot},
    ir::{
        HookAction, HookTiming, InputBinding, Schema, Step, StepKindSpec, WorkSpec, WorkerSpec, WorkflowHook,
        WorkflowTrigger,
    },
};

/// One expression of a definition.
#[derive(Debug)]
pub(super) struct ExprSite<'a> {
    pub spot: ExprSpot,
    pub field: FieldRef<'a>,
    pub expr: &'a Expr,
    /// The schema of its value.
    pub wants: Option<&'a Schema>,
    /// True if the step fails when its value is null.
    pub required: bool,
}

/// Passes all of them to `show`, in the order of the steps.
pub(super) fn visit_sites<'a>(definition: &'a PlanDefinition, show: &mut dyn FnMut(ExprSite<'a>)) {
    let spot = ExprSpot { scope: ScopeIx(0), step: None, reach: ExprReach::Start };
    let mut sites = SiteVisitor { show, spot, undo: false };
    for entry in &definition.workflows {
        sites.visit_workflow(entry);
    }
    for (ix, entry) in (0u32..).map(ScopeIx).zip(&definition.scopes) {
        sites.visit_scope(ix, entry);
    }
}

impl PlanDefinition {
    /// Returns the names below `context` that expressions read, and whether one reads the whole.
    pub fn context_reads(&self) -> (BTreeSet<String>, bool) {
        let (mut names, mut whole) = (BTreeSet::new(), false);
        visit_sites(self, &mut |site| {
            for read in site.expr.reads().iter().filter(|read| *read.root == ReferenceRoot::Context) {
                match read.path.first() {
                    Some(name) => drop(names.insert(name.clone())),
                    None => whole = true,
                }
            }
        });
        (names, whole)
    }
}

/// Returns the expressions of one step.
pub(super) fn step_sites(scope: ScopeIx, i: u32, step: &Step) -> Vec<ExprSite<'_>> {
    let mut found = Vec::new();
    let mut show = |site| found.push(site);
    let spot = ExprSpot { scope, step: Some(i), reach: ExprReach::Before };
    SiteVisitor { show: &mut show, spot, undo: false }.visit_step(step);
    found
}

struct SiteVisitor<'a, 's> {
    show: &'s mut dyn FnMut(ExprSite<'a>),
    spot: ExprSpot,
    undo: bool,
}

impl<'a> SiteVisitor<'a, '_> {
    fn show_field(&mut self, field: PlanField, expr: &'a Expr) {
        self.show_expr(field, FieldRest::Whole, expr);
    }

    fn show_expr(&mut self, field: PlanField, rest: FieldRest<'a>, expr: &'a Expr) {
        self.show_grouped_expr(None, field, rest, expr);
    }

    fn show_grouped_expr(&mut self, group: Option<PlanField>, field: PlanField, rest: FieldRest<'a>, expr: &'a Expr) {
        let field = FieldRef { undo: self.undo, group, field, rest };
        (self.show)(ExprSite { spot: self.spot, field, expr, wants: None, required: false });
    }

    fn visit_workflow(&mut self, entry: &'a WorkflowEntry) {
        let workflow = &entry.workflow;
        self.spot = ExprSpot { scope: entry.root, step: None, reach: ExprReach::Start };
        for (name, value) in &workflow.env {
            self.show_expr(PlanField::Env, FieldRest::Name(name), value);
        }
        for (i, trigger) in workflow.triggers.iter().enumerate() {
            if let WorkflowTrigger::Event { condition: Some(condition), .. } = trigger {
                self.show_expr(PlanField::Triggers, FieldRest::ItemField(i, PlanField::Condition), condition);
            }
        }
        for (i, hook) in workflow.hooks.iter().enumerate() {
            self.visit_hook(i, hook);
        }
    }

    fn visit_hook(&mut self, i: usize, hook: &'a WorkflowHook) {
        self.spot.reach = match hook.when {
            HookTiming::Start => ExprReach::Start,
            HookTiming::Success | HookTiming::Failure => ExprReach::End,
        };
        match &hook.action {
            HookAction::Notify { message, .. } => {
                let rest = FieldRest::ItemField(i, PlanField::Message);
                message.iter().for_each(|message| self.show_expr(PlanField::Hooks, rest, message));
            }
            HookAction::Run { arguments, .. } => {
                for (j, argument) in arguments.iter().enumerate() {
                    let rest = FieldRest::ItemFieldItem(i, PlanField::Arguments, j);
                    self.show_expr(PlanField::Hooks, rest, argument);
                }
            }
        }
    }

    fn visit_scope(&mut self, scope: ScopeIx, entry: &'a ScopeEntry) {
        for (i, step) in (0u32..).zip(&entry.scope.steps) {
            self.spot = ExprSpot { scope, step: Some(i), reach: ExprReach::Before };
            self.visit_step(step);
        }
        self.spot = ExprSpot { scope, step: None, reach: ExprReach::End };
        if let Some(result) = &entry.scope.result {
            self.show_field(PlanField::Result, result);
        }
    }

    fn visit_step(&mut self, step: &'a Step) {
        step.when.iter().for_each(|when| self.show_field(PlanField::When, when));
        self.visit_bindings(&step.inputs);
        self.visit_kind(&step.kind);
        if let Some(undo) = &step.undo {
            (self.spot.reach, self.undo) = (ExprReach::Own, true);
            self.visit_bindings(&undo.inputs);
            self.visit_work(&undo.work);
            self.undo = false;
        }
    }

    fn visit_bindings(&mut self, bindings: &'a [InputBinding]) {
        for binding in bindings {
            let field =
                FieldRef { undo: self.undo, ..FieldRef::new(PlanField::Inputs, FieldRest::Name(&binding.name)) };
            let (wants, required) = (Some(&binding.schema), binding.required);
            (self.show)(ExprSite { spot: self.spot, field, expr: &binding.value, wants, required });
        }
    }

    fn visit_kind(&mut self, kind: &'a StepKindSpec) {
        match kind {
            StepKindSpec::Work(work) => self.visit_work(work),
            StepKindSpec::Gate(gate) => {
                self.show_field(PlanField::Message, &gate.message);
                gate.shows
                    .iter()
                    .enumerate()
                    .for_each(|(i, show)| self.show_expr(PlanField::Shows, FieldRest::Item(i), show));
            }
            StepKindSpec::Branch(branch) => {
                for (i, arm) in branch.arms.iter().enumerate() {
                    self.show_expr(PlanField::Arms, FieldRest::ItemField(i, PlanField::When), &arm.when);
                }
            }
            StepKindSpec::Each(each) => self.show_field(PlanField::Over, &each.over),
            StepKindSpec::Loop(repeat) => {
                let outside = std::mem::replace(&mut self.spot.reach, ExprReach::Inside);
                self.show_field(PlanField::While, &repeat.condition);
                self.spot.reach = outside;
            }
            StepKindSpec::Wait(_) | StepKindSpec::Parallel(_) | StepKindSpec::Call(_) => {}
        }
    }

    fn visit_work(&mut self, work: &'a WorkSpec) {
        self.visit_worker(None, &work.worker);
        if let Some(check) = &work.check {
            self.visit_worker(Some(PlanField::Check), &check.worker);
        }
        if let Some(summary) = &work.summary {
            self.visit_worker(Some(PlanField::Summary), &summary.worker);
        }
    }

    fn visit_worker(&mut self, group: Option<PlanField>, worker: &'a WorkerSpec) {
        // Plain text needs no checks.
        let is_written = |expr: &&'a Expr| expr.as_literal().is_none();
        match worker {
            WorkerSpec::Agent { instructions, .. } => {
                instructions
                    .iter()
                    .filter(is_written)
                    .for_each(|e| self.show_grouped_expr(group, PlanField::Instructions, FieldRest::Whole, e));
            }
            WorkerSpec::Command { arguments, .. } => {
                let written = arguments.iter().enumerate().filter(|(_, expr)| is_written(expr));
                written.for_each(|(i, expr)| {
                    self.show_grouped_expr(group, PlanField::Arguments, FieldRest::Item(i), expr);
                });
            }
            WorkerSpec::Tool { .. } | WorkerSpec::Action { .. } | WorkerSpec::Script { .. } => {}
        }
    }
}
