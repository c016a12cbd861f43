//! A definition that is being checked, with the queries that all checks share: the flow of each scope, every expression
//! with its position, and the steps that an expression can see.

use std::{cell::OnceCell, collections::BTreeSet};

use crate::{
    expr::{Expr, ReferenceRoot},
    ids::StepId,
    ir::{
        HookAction, HookTiming, InputBinding, RouteTarget, Schema, ScopeShape, Step, StepKindSpec, WorkSpec,
        WorkerSpec, WorkflowHook, WorkflowTrigger,
    },
    plan::{
        check::WorkflowLibrary,
        definition::{PlanDefinition, RouteTargetIx, ScopeEntry, ScopeIx, WorkflowEntry, detour_targets},
        graph::{GraphClosure, GraphComponents, IndexGraph},
        order::route_targets,
        problem::{FieldPath, FieldRef, FieldRest, PlanField, ProblemLocation},
    },
    terms::WorkflowTerms,
};

/// The order of the steps of one scope.
#[derive(Debug)]
pub(super) struct ScopeFlow {
    pub graph: IndexGraph,
    pub components: GraphComponents,
    /// A bit for each pair of steps. Only built if a check asks for steps that are further apart.
    closure: OnceCell<GraphClosure>,
    doubtful: OnceCell<Vec<bool>>,
}

impl ScopeFlow {
    fn new(entry: &ScopeEntry) -> ScopeFlow {
        let graph = flow_graph(entry);
        let components = graph.find_components();
        ScopeFlow { graph, components, closure: OnceCell::new(), doubtful: OnceCell::new() }
    }

    /// True if one step comes right after another.
    fn is_next(&self, first: u32, then: u32) -> bool {
        self.graph.successors(first).binary_search(&then).is_ok()
    }

    /// True if there is a path from one step to another.
    pub(super) fn is_before(&self, first: u32, then: u32) -> bool {
        let closure = || self.closure.get_or_init(|| self.graph.build_closure(&self.components));
        self.is_next(first, then) || closure().is_before(first, then)
    }
}

/// Finds the steps whose predecessors are uncertain: a name on the way to them is wrong, or no route leads to them.
/// Both are reported where they occur; any other problem with the order would only be a consequence.
fn find_doubtful_steps(entry: &ScopeEntry, graph: &IndexGraph) -> Vec<bool> {
    let is_wrong = |id: &StepId| !entry.by_id.contains_key(id);
    let ScopeShape::Routed { start, .. } = &entry.scope.shape else {
        let loose = entry.scope.steps.iter().map(|step| step.after.iter().any(is_wrong));
        let mut todo: Vec<u32> = (0..).zip(loose).filter_map(|(i, loose)| loose.then_some(i)).collect();
        let mut doubtful = vec![false; entry.len() as usize];
        while let Some(i) = todo.pop() {
            if !std::mem::replace(&mut doubtful[i as usize], true) {
                todo.extend(graph.successors(i));
            }
        }
        return doubtful;
    };
    let mut doubtful = vec![true; entry.len() as usize];
    let mut targets = entry.scope.steps.iter().flat_map(|step| route_targets(step));
    let leads_nowhere = |target: &RouteTarget| matches!(target, RouteTarget::Step(id) if is_wrong(id));
    if !start.as_ref().is_some_and(is_wrong) && !targets.any(|(_, to)| leads_nowhere(to)) {
        graph.find_reachable(entry.start).into_iter().for_each(|i| doubtful[i as usize] = false);
    }
    doubtful
}

/// Returns a graph with an edge from each step to those that can come right after it.
pub(super) fn flow_graph(entry: &ScopeEntry) -> IndexGraph {
    let steps = 0..entry.len();
    match entry.scope.shape {
        ScopeShape::Graph => {
            IndexGraph::new(steps.map(|i| entry.dependents(i).iter().copied().filter(move |to| *to != i)))
        }
        ScopeShape::Routed { .. } => IndexGraph::new(steps.map(|i| route_successors(entry, i))),
    }
}

fn route_successors(entry: &ScopeEntry, i: u32) -> Vec<u32> {
    let step = entry.step(i);
    let decided = match &step.kind {
        StepKindSpec::Branch(_) => true,
        StepKindSpec::Gate(gate) => gate.on_approve.is_some(),
        _ => false,
    };
    let mut to: Vec<u32> = detour_targets(&step.kind).filter_map(|id| entry.by_id.get(id).copied()).collect();
    // A skipped step continues as if nothing had been decided.
    if (!decided || step.when.is_some())
        && let Some(RouteTargetIx::Step(next)) = entry.next.get(i as usize)
    {
        to.push(*next);
    }
    to.sort_unstable();
    to.dedup();
    to
}

/// The steps that an expression can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExprReach {
    /// None: nothing has run.
    Start,
    /// The steps that come before its step.
    Before,
    /// Those, and the steps inside its own: the condition of a loop.
    Inside,
    /// Those, and its own step, which has ended: an undo.
    Own,
    /// Everything in its scope, which has ended: a result.
    End,
}

/// The position of an expression, and the steps that it can see from there.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExprSpot {
    pub scope: ScopeIx,
    /// None: the scope itself.
    pub step: Option<u32>,
    pub reach: ExprReach,
}

/// A step that an expression can see.
#[derive(Debug, Clone, Copy)]
pub(super) struct VisibleStep {
    pub scope: ScopeIx,
    pub step: u32,
    /// In a graph: true if the reader waits for it only through other steps.
    pub indirect: bool,
}

/// The reason why an expression cannot see a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VisibilityError {
    NoSuchStep,
    Itself,
    /// It contains the reader and has not ended.
    Around,
    NotBefore,
    /// Not before, as far as is known: a problem with the order is reported elsewhere.
    Doubtful,
    SiblingLane,
    InsideEach(StepId),
}

pub(super) struct PlanSurvey<'a> {
    pub definition: &'a PlanDefinition,
    flows: Vec<ScopeFlow>,
    library: &'a dyn WorkflowLibrary,
}

/// One scope on the path from a step out to its workflow's root.
#[derive(Debug, Clone, Copy)]
struct ScopeLevel {
    scope: ScopeIx,
    step: Option<u32>,
    /// The index of the scope of `step` that the path came out of; none at the start.
    inside: Option<u32>,
}

impl<'a> PlanSurvey<'a> {
    pub(super) fn new(definition: &'a PlanDefinition, library: &'a dyn WorkflowLibrary) -> PlanSurvey<'a> {
        PlanSurvey { definition, flows: definition.scopes.iter().map(ScopeFlow::new).collect(), library }
    }

    /// Returns the terms of the format that a scope was written in.
    pub(super) fn terms(&self, scope: ScopeIx) -> &'static WorkflowTerms {
        self.library.workflow_terms(self.definition.workflow_containing(scope).name.as_deref())
    }

    pub(super) fn scopes(&self) -> impl Iterator<Item = (ScopeIx, &'a ScopeEntry)> + use<'a> {
        (0u32..).map(ScopeIx).zip(&self.definition.scopes)
    }

    /// Returns every step with its position.
    pub(super) fn steps(&self) -> impl Iterator<Item = (ScopeIx, u32, &'a Step)> + use<'a> {
        self.scopes().flat_map(|(ix, entry)| (0u32..).zip(&entry.scope.steps).map(move |(i, step)| (ix, i, &**step)))
    }

    pub(super) fn flow(&self, scope: ScopeIx) -> &ScopeFlow {
        &self.flows[scope.0 as usize]
    }

    pub(super) fn step_location(&self, scope: ScopeIx, step: u32, field: impl Into<FieldPath>) -> ProblemLocation {
        let id = self.definition.scope(scope).step(step).id.clone();
        ProblemLocation { step: Some(id), ..self.workflow_location(scope, field.into()) }
    }

    fn workflow_location(&self, scope: ScopeIx, field: FieldPath) -> ProblemLocation {
        ProblemLocation {
            workflow: self.definition.workflow_containing(scope).name.clone(),
            ..ProblemLocation::from_field(field)
        }
    }

    /// Returns the location of a field of a scope; for an inner one, as a field of the step that contains it.
    pub(super) fn scope_location(&self, scope: ScopeIx, field: impl Into<FieldPath>) -> ProblemLocation {
        let Some((parent, holder, which)) = self.definition.scope(scope).parent else {
            return self.workflow_location(scope, field.into());
        };
        let prefix = match &self.definition.scope(parent).step(holder).kind {
            StepKindSpec::Parallel(_) => FieldPath::from(PlanField::Lanes).item(which as usize),
            _ => PlanField::Scope.into(),
        };
        self.step_location(parent, holder, prefix.join(field))
    }

    pub(super) fn spot_location(&self, spot: ExprSpot, field: impl Into<FieldPath>) -> ProblemLocation {
        match spot.step {
            Some(step) => self.step_location(spot.scope, step, field),
            None => self.scope_location(spot.scope, field),
        }
    }

    /// True if a scope is inside an each.
    pub(super) fn has_item(&self, scope: ScopeIx) -> bool {
        let mut at = scope;
        while let Some((parent, holder, _)) = self.definition.scope(at).parent {
            if matches!(self.definition.scope(parent).step(holder).kind, StepKindSpec::Each(_)) {
                return true;
            }
            at = parent;
        }
        false
    }

    /// Returns the step that a name means at a spot, if it can have run by then.
    pub(super) fn find_visible_step(&self, spot: ExprSpot, id: &str) -> Result<VisibleStep, VisibilityError> {
        let names = &self.definition.workflow_containing(spot.scope).names;
        let &(scope, step) = names.get(id).ok_or(VisibilityError::NoSuchStep)?;
        let (reader, target, each) = self.find_common_scope(spot, scope, step);
        let target_step = target.step.unwrap_or(step);
        let hidden = || each.map_or(Ok(()), |each| Err(VisibilityError::InsideEach(each)));
        let seen = |indirect| Ok(VisibleStep { scope, step, indirect });
        let flow = self.flow(reader.scope);
        match reader.step {
            None if spot.reach == ExprReach::Start => Err(VisibilityError::NotBefore),
            None => hidden().and_then(|()| seen(false)),
            Some(own) if own == target_step => {
                self.check_own_step(spot, (reader, target), flow)?;
                hidden().and_then(|()| seen(false))
            }
            Some(own) if flow.is_before(target_step, own) => {
                hidden()?;
                let routed = self.definition.scope(reader.scope).is_routed();
                seen(!routed && !flow.is_next(target_step, own))
            }
            Some(own) => {
                let entry = self.definition.scope(reader.scope);
                let doubtful = flow.doubtful.get_or_init(|| find_doubtful_steps(entry, &flow.graph));
                Err(if doubtful[own as usize] { VisibilityError::Doubtful } else { VisibilityError::NotBefore })
            }
        }
    }

    /// Returns the levels at which reader and target are in the same scope, and an each around the target below them.
    fn find_common_scope(&self, spot: ExprSpot, scope: ScopeIx, step: u32) -> (ScopeLevel, ScopeLevel, Option<StepId>) {
        let reader = ScopeLevel { scope: spot.scope, step: spot.step, inside: None };
        let target = ScopeLevel { scope, step: Some(step), inside: None };
        if reader.scope == target.scope {
            return (reader, target, None);
        }
        let mut each = None;
        let (readers, targets) = (self.levels_outward(reader), self.levels_outward(target));
        for target in &targets {
            if target.inside.is_some()
                && let Some(holder) = target.step.map(|step| self.definition.scope(target.scope).step(step))
                && matches!(holder.kind, StepKindSpec::Each(_))
            {
                each = Some(holder.id.clone());
            }
            if let Some(reader) = readers.iter().find(|reader| reader.scope == target.scope) {
                return (*reader, *target, each);
            }
        }
        // All names are of one workflow, so its root is always shared.
        (readers[readers.len() - 1], targets[targets.len() - 1], each)
    }

    fn levels_outward(&self, from: ScopeLevel) -> Vec<ScopeLevel> {
        let mut way = vec![from];
        let mut at = from.scope;
        while let Some((scope, step, which)) = self.definition.scope(at).parent {
            way.push(ScopeLevel { scope, step: Some(step), inside: Some(which) });
            at = scope;
        }
        way
    }

    fn check_own_step(
        &self,
        spot: ExprSpot,
        (reader, target): (ScopeLevel, ScopeLevel),
        flow: &ScopeFlow,
    ) -> Result<(), VisibilityError> {
        match (reader.inside, target.inside) {
            (None, None) => {
                let again = reader.step.is_some_and(|own| flow.is_before(own, own));
                if spot.reach == ExprReach::Own || again { Ok(()) } else { Err(VisibilityError::Itself) }
            }
            (None, Some(_)) if matches!(spot.reach, ExprReach::Inside | ExprReach::Own) => Ok(()),
            (None, Some(_)) => Err(VisibilityError::NotBefore),
            (Some(_), None) => Err(VisibilityError::Around),
            (Some(_), Some(_)) => Err(VisibilityError::SiblingLane),
        }
    }
}

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
