//! A definition that is being checked, with what every check asks of it: the flow of each scope, and which step an
//! expression at some spot can see.

use std::cell::OnceCell;

use super::{
    definition::{Definition, Next, ScopeEntry, ScopeIx, detours},
    graph::{Closure, Components, Graph},
    order::targets,
    problem::At,
};
use crate::{
    ids::StepId,
    ir::{Kind, Shape, Step, Target},
};

/// How the steps of one scope follow one another.
#[derive(Debug)]
pub(super) struct Flow {
    pub graph: Graph,
    pub components: Components,
    /// A bit for each pair of steps, so that it is only made where something asks for steps that are further apart.
    closure: OnceCell<Closure>,
    doubtful: OnceCell<Vec<bool>>,
}

impl Flow {
    fn of(entry: &ScopeEntry) -> Flow {
        let graph = flow_graph(entry);
        let components = graph.components();
        Flow { graph, components, closure: OnceCell::new(), doubtful: OnceCell::new() }
    }

    /// Whether one step comes right after another.
    fn is_next(&self, first: u32, then: u32) -> bool {
        self.graph.to(first).binary_search(&then).is_ok()
    }

    /// Whether there is a way from one step to another.
    pub fn is_before(&self, first: u32, then: u32) -> bool {
        let closure = || self.closure.get_or_init(|| self.graph.closure(&self.components));
        self.is_next(first, then) || closure().is_before(first, then)
    }
}

/// Of which steps it cannot be told what comes before them: a name on the way to them is wrong, or no way leads there.
/// Both are said where they are, and whatever else would be said about the order is only what follows.
fn doubtful(entry: &ScopeEntry, graph: &Graph) -> Vec<bool> {
    let is_wrong = |id: &StepId| !entry.by_id.contains_key(id);
    let Shape::Routed { start, .. } = &entry.scope.shape else {
        let loose = entry.scope.steps.iter().map(|step| step.after.iter().any(is_wrong));
        let mut todo: Vec<u32> = (0..).zip(loose).filter_map(|(i, loose)| loose.then_some(i)).collect();
        let mut doubtful = vec![false; entry.len() as usize];
        while let Some(i) = todo.pop() {
            if !std::mem::replace(&mut doubtful[i as usize], true) {
                todo.extend(graph.to(i));
            }
        }
        return doubtful;
    };
    let mut doubtful = vec![true; entry.len() as usize];
    let targets = entry.scope.steps.iter().flat_map(|step| targets(step));
    let leads_nowhere = |target: &Target| matches!(target, Target::Step(id) if is_wrong(id));
    if !start.as_ref().is_some_and(is_wrong) && !targets.into_iter().any(|(_, to)| leads_nowhere(to)) {
        graph.reachable(entry.start).into_iter().for_each(|i| doubtful[i as usize] = false);
    }
    doubtful
}

/// An edge from each step to those that can come right after it.
pub(super) fn flow_graph(entry: &ScopeEntry) -> Graph {
    let steps = 0..entry.len();
    match entry.scope.shape {
        Shape::Graph => {
            Graph::new(steps.map(|i| entry.dependents(i).iter().copied().filter(move |to| *to != i)))
        }
        Shape::Routed { .. } => Graph::new(steps.map(|i| routes(entry, i))),
    }
}

fn routes(entry: &ScopeEntry, i: u32) -> Vec<u32> {
    let step = entry.step(i);
    let decided = match &step.kind {
        Kind::Branch(_) => true,
        Kind::Gate(gate) => gate.on_approve.is_some(),
        _ => false,
    };
    let mut to: Vec<u32> =
        detours(&step.kind).into_iter().filter_map(|id| entry.by_id.get(id).copied()).collect();
    // A step that is skipped goes on as if nothing had been decided.
    if (!decided || step.when.is_some())
        && let Some(Next::Step(next)) = entry.next.get(i as usize)
    {
        to.push(*next);
    }
    to.sort_unstable();
    to.dedup();
    to
}

/// How much an expression can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Nothing has run.
    Start,
    /// What comes before its step.
    Before,
    /// That, and the steps inside its own: the condition of a loop.
    Inside,
    /// That, and its own step, which has ended: an undo.
    Own,
    /// Everything in its scope, which has ended: a result.
    End,
}

/// Where an expression is, and how much it can see from there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    pub scope: ScopeIx,
    /// None: the scope's own.
    pub step: Option<u32>,
    pub reach: Reach,
}

/// A step that can be seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub scope: ScopeIx,
    pub step: u32,
    /// In a graph: whether the reader waits for it only through steps in between.
    pub indirect: bool,
}

/// Why a step cannot be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unseen {
    NoSuchStep,
    Itself,
    /// It is around the reader and has not ended.
    Around,
    NotBefore,
    /// Not before, as far as can be told: something that is wrong with the order is said elsewhere.
    Doubtful,
    SiblingLane,
    InsideEach(StepId),
}

#[derive(Debug)]
pub(super) struct Survey<'a> {
    pub definition: &'a Definition,
    flows: Vec<Flow>,
}

/// One scope on the way from a step out to its workflow's root.
#[derive(Debug, Clone, Copy)]
struct Level {
    scope: ScopeIx,
    step: Option<u32>,
    /// Which scope of `step` the way came out of; none at the start.
    inside: Option<u32>,
}

impl<'a> Survey<'a> {
    pub fn of(definition: &'a Definition) -> Survey<'a> {
        Survey { definition, flows: definition.scopes.iter().map(Flow::of).collect() }
    }

    pub fn scopes(&self) -> impl Iterator<Item = (ScopeIx, &'a ScopeEntry)> + use<'a> {
        (0u32..).map(ScopeIx).zip(&self.definition.scopes)
    }

    /// Every step with where it is.
    pub fn steps(&self) -> impl Iterator<Item = (ScopeIx, u32, &'a Step)> + use<'a> {
        self.scopes()
            .flat_map(|(ix, entry)| (0u32..).zip(&entry.scope.steps).map(move |(i, step)| (ix, i, &**step)))
    }

    pub fn flow(&self, scope: ScopeIx) -> &Flow {
        &self.flows[scope.0 as usize]
    }

    pub fn at(&self, scope: ScopeIx, step: u32, field: impl Into<String>) -> At {
        let id = self.definition.scope(scope).step(step).id.clone();
        At { step: Some(id), ..self.in_workflow(scope, field.into()) }
    }

    fn in_workflow(&self, scope: ScopeIx, field: String) -> At {
        At { workflow: self.definition.workflow_of(scope).name.clone(), ..At::field(field) }
    }

    /// A field of a scope; of an inner one, as a field of the step that holds it.
    pub fn at_scope(&self, scope: ScopeIx, field: &str) -> At {
        let Some((parent, holder, which)) = self.definition.scope(scope).parent else {
            return self.in_workflow(scope, field.to_owned());
        };
        let prefix = match &self.definition.scope(parent).step(holder).kind {
            Kind::Parallel(_) => format!("lanes[{which}]"),
            _ => "scope".to_owned(),
        };
        let dot = if field.is_empty() { "" } else { "." };
        self.at(parent, holder, format!("{prefix}{dot}{field}"))
    }

    pub fn at_spot(&self, spot: Spot, field: &str) -> At {
        match spot.step {
            Some(step) => self.at(spot.scope, step, field),
            None => self.at_scope(spot.scope, field),
        }
    }

    /// Whether a scope is inside an each.
    pub fn has_item(&self, scope: ScopeIx) -> bool {
        let mut at = scope;
        while let Some((parent, holder, _)) = self.definition.scope(at).parent {
            if matches!(self.definition.scope(parent).step(holder).kind, Kind::Each(_)) {
                return true;
            }
            at = parent;
        }
        false
    }

    /// The step that a name means at a spot, if it can have run by then.
    pub fn see(&self, spot: Spot, id: &str) -> Result<Seen, Unseen> {
        let names = &self.definition.workflow_of(spot.scope).names;
        let &(scope, step) = names.get(id).ok_or(Unseen::NoSuchStep)?;
        let (reader, target, each) = self.meet(spot, scope, step);
        let target_step = target.step.unwrap_or(step);
        let hidden = || each.map_or(Ok(()), |each| Err(Unseen::InsideEach(each)));
        let seen = |indirect| Ok(Seen { scope, step, indirect });
        let flow = self.flow(reader.scope);
        match reader.step {
            None if spot.reach == Reach::Start => Err(Unseen::NotBefore),
            None => hidden().and_then(|()| seen(false)),
            Some(own) if own == target_step => {
                self.see_own(spot, (reader, target), flow)?;
                hidden().and_then(|()| seen(false))
            }
            Some(own) if flow.is_before(target_step, own) => {
                hidden()?;
                let routed = self.definition.scope(reader.scope).is_routed();
                seen(!routed && !flow.is_next(target_step, own))
            }
            Some(own) => {
                let entry = self.definition.scope(reader.scope);
                let doubtful = flow.doubtful.get_or_init(|| doubtful(entry, &flow.graph));
                Err(if doubtful[own as usize] { Unseen::Doubtful } else { Unseen::NotBefore })
            }
        }
    }

    /// The levels at which reader and target are in the same scope, and an each around the target below that.
    fn meet(&self, spot: Spot, scope: ScopeIx, step: u32) -> (Level, Level, Option<StepId>) {
        let reader = Level { scope: spot.scope, step: spot.step, inside: None };
        let target = Level { scope, step: Some(step), inside: None };
        if reader.scope == target.scope {
            return (reader, target, None);
        }
        let mut each = None;
        let (readers, targets) = (self.way_out(reader), self.way_out(target));
        for target in &targets {
            if target.inside.is_some()
                && let Some(holder) = target.step.map(|step| self.definition.scope(target.scope).step(step))
                && matches!(holder.kind, Kind::Each(_))
            {
                each = Some(holder.id.clone());
            }
            if let Some(reader) = readers.iter().find(|reader| reader.scope == target.scope) {
                return (*reader, *target, each);
            }
        }
        // Names are of one workflow, so that its root is always shared.
        (readers[readers.len() - 1], targets[targets.len() - 1], each)
    }

    fn way_out(&self, from: Level) -> Vec<Level> {
        let mut way = vec![from];
        let mut at = from.scope;
        while let Some((scope, step, which)) = self.definition.scope(at).parent {
            way.push(Level { scope, step: Some(step), inside: Some(which) });
            at = scope;
        }
        way
    }

    fn see_own(&self, spot: Spot, (reader, target): (Level, Level), flow: &Flow) -> Result<(), Unseen> {
        match (reader.inside, target.inside) {
            (None, None) => {
                let again = reader.step.is_some_and(|own| flow.is_before(own, own));
                if spot.reach == Reach::Own || again { Ok(()) } else { Err(Unseen::Itself) }
            }
            (None, Some(_)) if matches!(spot.reach, Reach::Inside | Reach::Own) => Ok(()),
            (None, Some(_)) => Err(Unseen::NotBefore),
            (Some(_), None) => Err(Unseen::Around),
            (Some(_), Some(_)) => Err(Unseen::SiblingLane),
        }
    }
}
