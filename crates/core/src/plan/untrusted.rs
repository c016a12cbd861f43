//! Steps that hold secrets and are given text that neither the author nor the person who starts the run wrote.
//!
//! Owns what counts as such text: what an agent, a tool or an action gives, what comes with a signal, and what a run is
//! given where a webhook or an event can start it. Not so: parameters that a person gives, what a command or a script
//! of the author prints, what an approver decides, and values that are declared to be no free text.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    definition::ScopeIx,
    problem::{At, Problem, ProblemCode, Problems},
    references,
    sites::{Site, UNDO, sites_of},
    survey::{Reach, Spot, Survey},
    types,
};
use crate::{
    expr::{Expr, Part, Read, Root},
    ids::StepId,
    ir::{Kind, Schema, Step, Trigger, Work, Worker},
};

/// As many places as are worth pointing at for one step.
const SHOWN: usize = 5;

pub(super) fn check(survey: &Survey<'_>, problems: &mut Problems) {
    let mut holders = survey.steps().flat_map(|(scope, i, step)| holders(scope, i, step)).peekable();
    if holders.peek().is_none() {
        return;
    }
    let mut origins = Origins { survey, callers: callers(survey), known: BTreeMap::new() };
    for holder in holders {
        let found = origins.taken_by(&holder);
        if found.is_empty() {
            continue;
        }
        let message = format!("`{}` has secrets and is given text from outside", holder.id);
        let at = survey.at(holder.scope, holder.i, format!("{}isolation.secrets", holder.prefix));
        let hint = "let a script look at it first, declare it as a number, a boolean, one of some words or by a \
                    pattern, or take the secrets away";
        let problem = Problem::new(ProblemCode::UntrustedText, at, message).hint(hint);
        problems.push(
            found
                .into_iter()
                .take(SHOWN)
                .fold(problem, |problem, (at, origin)| problem.related(at, origin.words())),
        );
    }
}

/// Work that is given secrets.
struct Holder<'a> {
    scope: ScopeIx,
    i: u32,
    step: &'a Step,
    /// Its own name, which an undo can have.
    id: &'a StepId,
    work: &'a Work,
    /// What its fields begin with.
    prefix: &'static str,
}

impl Holder<'_> {
    /// Whether something is read of the step that this takes back: it could not be taken back without.
    fn takes_back(&self, read: &Read<'_>) -> bool {
        self.prefix == UNDO && matches!(read.root, Root::Step { id, .. } if **id == *self.step.id.as_str())
    }
}

/// A step, and what takes it back where that is a step of its own: otherwise it is only given what the step was and gave.
fn holders(scope: ScopeIx, i: u32, step: &Step) -> Vec<Holder<'_>> {
    let own = match &step.kind {
        Kind::Work(work) => Some((&step.id, &**work, "")),
        _ => None,
    };
    let undo = step.undo.as_ref().filter(|undo| undo.id != step.id);
    let undo = undo.map(|undo| (&undo.id, &undo.work, UNDO));
    let all = own.into_iter().chain(undo).filter(|(_, work, _)| !work.isolation.secrets.is_empty());
    all.map(|(id, work, prefix)| Holder { scope, i, step, id, work, prefix }).collect()
}

/// Every call of each workflow, by the number of its root.
fn callers(survey: &Survey<'_>) -> BTreeMap<ScopeIx, Vec<(ScopeIx, u32)>> {
    let mut callers: BTreeMap<ScopeIx, Vec<(ScopeIx, u32)>> = BTreeMap::new();
    for (scope, i, step) in survey.steps() {
        if let (Kind::Call(_), Some(root)) =
            (&step.kind, survey.definition.scope(scope).inner[i as usize].first())
        {
            callers.entry(*root).or_default().push((scope, i));
        }
    }
    callers
}

/// Where some text comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    Agent(String),
    Tool(String),
    Signal(String),
    Trigger,
}

impl Origin {
    fn words(&self) -> String {
        match self {
            Origin::Agent(step) => format!("an agent writes this in `{step}`"),
            Origin::Tool(step) => format!("the tool of `{step}` may fetch this from anywhere"),
            Origin::Signal(step) => format!("whoever sends the signal that `{step}` waits for writes this"),
            Origin::Trigger => "whoever can cause the trigger writes this".to_owned(),
        }
    }
}

/// What the origin of something is asked about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    Step(ScopeIx, u32),
    /// One parameter of a workflow, or all.
    Input(ScopeIx, Option<String>),
}

struct Origins<'a> {
    survey: &'a Survey<'a>,
    callers: BTreeMap<ScopeIx, Vec<(ScopeIx, u32)>>,
    /// Also what is being found out, so that a workflow that calls itself has an end.
    known: BTreeMap<Asked, Option<Origin>>,
}

impl<'a> Origins<'a> {
    /// All that a step is given from outside, and where that is written.
    fn taken_by(&mut self, holder: &Holder<'_>) -> Vec<(At, Origin)> {
        let mut found = Vec::new();
        let sites = sites_of(holder.scope, holder.i, holder.step);
        for site in sites.iter().filter(|site| is_given(site, holder)) {
            for read in site.expr.reads().iter().filter(|read| !holder.takes_back(read)) {
                if let Some(origin) = self.of_read(site.spot, read) {
                    found.push((references::at(self.survey, site, &read.at, read.span), origin));
                }
            }
        }
        found.extend(self.artifacts(holder));
        found
    }

    fn artifacts(&mut self, holder: &Holder<'_>) -> Vec<(At, Origin)> {
        let Holder { scope, i, work, prefix, .. } = *holder;
        let spot = Spot { scope, step: Some(i), reach: Reach::Before };
        let mut found = Vec::new();
        for (n, taken) in work.takes.iter().enumerate() {
            let Ok(seen) = self.survey.see(spot, taken.from.as_str()) else { continue };
            if let Some(origin) = self.of_step(seen.scope, seen.step) {
                found.push((self.survey.at(scope, i, format!("{prefix}takes[{n}]")), origin));
            }
        }
        found
    }

    fn of_read(&mut self, spot: Spot, read: &Read<'_>) -> Option<Origin> {
        let definition = self.survey.definition;
        match read.root {
            Root::Input => {
                let entry = definition.workflow_of(spot.scope);
                if is_no_text(&entry.workflow.inputs, read.path) {
                    return None;
                }
                self.asked(Asked::Input(entry.root, read.path.first().cloned()))
            }
            Root::Step { part: Part::Status, .. } => None,
            Root::Step { id, part } => {
                let seen = self.survey.see(spot, id).ok()?;
                let schema = types::output_schema(definition, definition.scope(seen.scope), seen.step);
                if *part == Part::Output && is_no_text(schema, read.path) {
                    return None;
                }
                self.of_step(seen.scope, seen.step)
            }
            Root::Item => {
                let (scope, i, over) = self.around(spot.scope)?;
                self.of_expr(Spot { scope, step: Some(i), reach: Reach::Before }, over)
            }
            Root::Index | Root::Context | Root::Env | Root::Run | Root::Workflow => None,
        }
    }

    /// The list that the items here are of.
    fn around(&self, scope: ScopeIx) -> Option<(ScopeIx, u32, &'a Expr)> {
        let mut at = scope;
        loop {
            let (parent, holder, _) = self.survey.definition.scope(at).parent?;
            if let Kind::Each(each) = &self.survey.definition.scope(parent).step(holder).kind {
                return Some((parent, holder, &each.over));
            }
            at = parent;
        }
    }

    fn of_expr(&mut self, spot: Spot, expr: &Expr) -> Option<Origin> {
        expr.reads().iter().find_map(|read| self.of_read(spot, read))
    }

    fn of_step(&mut self, scope: ScopeIx, i: u32) -> Option<Origin> {
        self.asked(Asked::Step(scope, i))
    }

    fn asked(&mut self, asked: Asked) -> Option<Origin> {
        if let Some(known) = self.known.get(&asked) {
            return known.clone();
        }
        self.known.insert(asked.clone(), None);
        let origin = match &asked {
            Asked::Step(scope, i) => self.find_step(*scope, *i),
            Asked::Input(root, name) => self.find_input(*root, name.as_deref()),
        };
        self.known.insert(asked, origin.clone());
        origin
    }

    fn find_step(&mut self, scope: ScopeIx, i: u32) -> Option<Origin> {
        let entry = self.survey.definition.scope(scope);
        let step = entry.step(i);
        let id = step.id.to_string();
        match &step.kind {
            Kind::Work(work) => match &work.worker {
                Worker::Agent { .. } => Some(Origin::Agent(id)),
                // Which driver it has is not known here; without a network, none can fetch.
                Worker::Tool { .. } | Worker::Action { .. } => {
                    (!work.isolation.no_network).then_some(Origin::Tool(id))
                }
                Worker::Command { .. } | Worker::Script { .. } => None,
            },
            Kind::Wait(_) => Some(Origin::Signal(id)),
            Kind::Gate(_) | Kind::Branch(_) => None,
            Kind::Parallel(_) | Kind::Each(_) | Kind::Loop(_) | Kind::Call(_) => {
                entry.inner[i as usize].iter().find_map(|inner| self.of_scope(*inner))
            }
        }
    }

    /// A scope gives its result, or what some of its steps give.
    fn of_scope(&mut self, scope: ScopeIx) -> Option<Origin> {
        let entry = self.survey.definition.scope(scope);
        match &entry.scope.result {
            Some(result) => self.of_expr(Spot { scope, step: None, reach: Reach::End }, result),
            None => (0..entry.len()).find_map(|i| self.of_step(scope, i)),
        }
    }

    /// A run's own parameters come from whoever starts it; a called workflow's, from its callers.
    fn find_input(&mut self, root: ScopeIx, name: Option<&str>) -> Option<Origin> {
        let definition = self.survey.definition;
        let entry = definition.workflow_of(root);
        let from_outside =
            |trigger: &Trigger| matches!(trigger, Trigger::Webhook { .. } | Trigger::Event { .. });
        if entry.name.is_none() && entry.workflow.triggers.iter().any(from_outside) {
            return Some(Origin::Trigger);
        }
        let callers = self.callers.get(&root).cloned().unwrap_or_default();
        callers.into_iter().find_map(|(scope, i)| {
            let spot = Spot { scope, step: Some(i), reach: Reach::Before };
            let inputs = definition.scope(scope).step(i).inputs.iter();
            let mut given = inputs.filter(|input| name.is_none_or(|name| *input.name == *name));
            given.find_map(|input| self.of_expr(spot, &input.value))
        })
    }
}

/// Whether an expression is about what this work is given, and not about whether it is done.
fn is_given(site: &Site<'_>, holder: &Holder<'_>) -> bool {
    !site.field.is("when") && site.field.undo == (holder.prefix == UNDO)
}

/// Whether what a path leads to is declared to be something that no words can be put into.
fn is_no_text(schema: &Schema, path: &[String]) -> bool {
    let mut at = schema.document();
    for name in path {
        at = at.and_then(|schema| schema.get("properties")?.get(name));
    }
    let Some(schema) = at.and_then(Value::as_object) else { return false };
    let harmless = |word: &Value| matches!(word.as_str(), Some("integer" | "number" | "boolean" | "null"));
    let typed = match schema.get("type") {
        Some(Value::Array(words)) => !words.is_empty() && words.iter().all(harmless),
        Some(word) => harmless(word),
        None => false,
    };
    let pattern = schema.get("pattern").and_then(Value::as_str);
    let shaped = pattern.is_some_and(|pattern| pattern.starts_with('^') && pattern.ends_with('$'));
    typed || shaped || schema.contains_key("enum") || schema.contains_key("const")
}
