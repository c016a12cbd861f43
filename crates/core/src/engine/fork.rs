//! Fork: which results of a run a new one can begin with, so that it goes on from a step.
//!
//! Owns the choice. Of a graph, what ended well enough to go on and neither is nor comes after the step; of a routed
//! scope, what was visited before the step was first. What was undone, cancelled or made the run fail is done again,
//! and so is what comes after that. Numbers are made anew, so that the fork needs nothing of the run it comes from.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    AttemptId, Error, Halt, InstanceEnd, InstanceIx, InstanceReused, Outcome, Part, Past, Reused, Route,
    RunPhase, StepAt, StepReused, past::End,
};
use crate::{
    ir::{Then, Verdict},
    plan::ScopeEntry,
};

/// What a fork begins with.
#[derive(Debug, Clone, PartialEq)]
pub struct Fork {
    pub reused: Vec<Reused>,
    /// Attempts whose artifacts it needs: in the run that was read, and in the fork.
    pub attempts: Vec<(AttemptId, AttemptId)>,
    /// The steps whose results are reused, by id, in the order in which they ended.
    pub steps: Vec<String>,
    /// Steps that had ended before and are done again all the same; with another plan, all that are done.
    pub again: Vec<(String, Again)>,
    /// Steps of the run that another plan has not.
    pub removed: Vec<String>,
}

/// Why a step that does not come after the one that was named is done again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Again {
    /// It was undone, or could not be.
    Undone,
    /// How it ended made the run fail.
    Failed,
    Cancelled,
    /// What it could not merge is settled anew, for which it must be there.
    Conflict,
    /// It comes after one that is done again.
    After,
    /// It is defined in another way.
    Changed,
    /// It reads parameters, or variables of the workflow, that have other values.
    Inputs,
    /// The agent or the tool that does it is set up in another way.
    Settings,
    /// The run that is forked had no such step.
    New,
    /// It had not ended.
    NotDone,
    /// Someone named it.
    Asked,
}

/// Why there is no such fork.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoFork {
    #[error("the run is not over")]
    NotOver,
    #[error("there is no step `{step}` in it")]
    Unknown { step: String, known: Vec<String> },
    #[error("`{step}` is inside of `{outer}`, which is done as a whole")]
    Inside { step: String, outer: String },
    #[error("the run never came to `{step}`")]
    Never { step: String },
}

impl Past {
    /// What a fork of this run from a step begins with.
    pub fn fork(&self, from: &str) -> Result<Fork, NoFork> {
        if self.state.phase != RunPhase::Closed {
            return Err(NoFork::NotOver);
        }
        let step = self.find(from)?;
        let entry = self.root();
        let ends = self.ends.get(&InstanceIx::ROOT).map_or(&[][..], Vec::as_slice);
        let (kept, again) = if entry.is_routed() {
            self.before(ends, step).ok_or_else(|| NoFork::Never { step: from.to_owned() })?
        } else {
            self.beside(ends, step)
        };
        let name = |step: u32| entry.step(step).id.to_string();
        let mut named = BTreeSet::new();
        let first = kept.iter().map(|end| end.step.at.1).filter(|step| named.insert(*step));
        let steps = first.map(name).collect();
        let own: BTreeMap<u32, u32> = (0..entry.len()).map(|step| (step, step)).collect();
        let (reused, attempts) = Renumber::all(self, &kept, &own);
        let again = again.into_iter().map(|(step, why)| (name(step), why)).collect();
        Ok(Fork { reused, attempts, steps, again, removed: Vec::new() })
    }

    pub(super) fn root(&self) -> &ScopeEntry {
        self.plan.definition.scope(self.plan.definition.root().root)
    }

    /// The step of the root that someone means.
    fn find(&self, text: &str) -> Result<u32, NoFork> {
        let entry = self.root();
        let by_id = |id: &str| (0..).zip(&entry.scope.steps).find(|(_, step)| step.id.as_str() == id);
        if let Some((step, _)) = by_id(text) {
            return Ok(step);
        }
        let step = text.to_owned();
        let first = text.split('/').next().unwrap_or(text);
        let first = first.split(['[', '#']).next().unwrap_or(first);
        if let Some((_, outer)) = by_id(first) {
            return Err(NoFork::Inside { step, outer: outer.id.to_string() });
        }
        let ended = self.ends.values().flatten().map(|end| end.step.at);
        if let Some(at) = ended.into_iter().find(|at| self.id(*at) == text) {
            let outer = entry.step(self.outermost(at)).id.to_string();
            return Err(NoFork::Inside { step, outer });
        }
        let known = entry.scope.steps.iter().map(|step| step.id.to_string());
        Err(NoFork::Unknown { step, known: known.collect() })
    }

    fn id(&self, at: StepAt) -> &str {
        self.plan.definition.scope(self.state.instance(at.0).scope).step(at.1).id.as_str()
    }

    /// The step of the root that this one is inside of.
    fn outermost(&self, mut at: StepAt) -> u32 {
        while let Some(parent) = self.state.instance(at.0).parent {
            at = parent;
        }
        at.1
    }

    /// Why a visit cannot be taken as it is.
    pub(super) fn spoilt(&self, end: &End) -> Option<Again> {
        let effect = end.step.effect;
        if self.is_undone(end, true) {
            Some(Again::Undone)
        } else if end.step.outcome == Outcome::Cancelled {
            Some(Again::Cancelled)
        } else if effect.then != Then::GoOn || effect.verdict == Verdict::Failed {
            Some(Again::Failed)
        } else {
            None
        }
    }

    /// Whether something of a visit was undone: with the run, or by a workflow that was called in it.
    fn is_undone(&self, end: &End, with_run: bool) -> bool {
        let home = self.state.instance(end.step.at.0).home == InstanceIx::ROOT;
        let own = home == with_run && self.undone.contains(&end.step.at);
        own || end
            .children
            .iter()
            .flat_map(|child| self.inside(*child))
            .any(|end| self.is_undone(end, with_run))
    }

    pub(super) fn inside(&self, instance: InstanceIx) -> &[End] {
        self.ends.get(&instance).map_or(&[], Vec::as_slice)
    }

    /// Of a routed scope: the visits before the first of this step. None: there was none.
    fn before<'a>(&self, ends: &'a [End], step: u32) -> Option<Chosen<'a>> {
        let first = *self.reached.get(&step)?;
        let before = ends.iter().take_while(|end| end.seq < first);
        let (mut kept, mut again, mut named) = (Vec::new(), Vec::new(), BTreeSet::new());
        for end in before {
            let spoilt = self.spoilt(end).or((!again.is_empty()).then_some(Again::After));
            match spoilt {
                None => kept.push(end),
                Some(why) if named.insert(end.step.at.1) => again.push((end.step.at.1, why)),
                Some(_) => {}
            }
        }
        // Who settles what the last could not merge is not among them.
        if let Some(last) = kept.pop_if(|end| end.step.settler.is_some()) {
            again.insert(0, (last.step.at.1, Again::Conflict));
        }
        Some((kept, again))
    }

    /// Of a graph: the ends of steps that neither are this one nor come after it.
    fn beside<'a>(&self, ends: &'a [End], step: u32) -> Chosen<'a> {
        let entry = self.root();
        let count = entry.scope.steps.len();
        let mut after = vec![false; count];
        spread(entry, &mut after, vec![step]);
        let mut done = vec![false; count];
        ends.iter().for_each(|end| done[end.step.at.1 as usize] = true);
        let spoilt: BTreeMap<u32, Again> =
            ends.iter().filter_map(|end| Some((end.step.at.1, self.spoilt(end)?))).collect();
        let seeds = (0..).zip(&done).filter(|(i, done)| !**done || spoilt.contains_key(i)).map(|(i, _)| i);
        let mut anew = after.clone();
        spread(entry, &mut anew, seeds.collect());
        let mut conflicts = BTreeSet::new();
        let unsettled = |anew: &[bool], end: &&End| {
            end.step.settler.is_some_and(|by| anew[by as usize]) && !anew[end.step.at.1 as usize]
        };
        while let Some(end) = ends.iter().find(|end| unsettled(&anew, end)) {
            conflicts.insert(end.step.at.1);
            spread(entry, &mut anew, vec![end.step.at.1]);
        }
        let (mut kept, mut again) = (Vec::new(), Vec::new());
        for end in ends {
            let step = end.step.at.1;
            match (anew[step as usize], after[step as usize]) {
                (false, _) => kept.push(end),
                (true, true) => {}
                (true, false) if conflicts.contains(&step) => again.push((step, Again::Conflict)),
                (true, false) => again.push((step, spoilt.get(&step).copied().unwrap_or(Again::After))),
            }
        }
        (kept, again)
    }
}

/// What is taken over, and what had ended and is not.
type Chosen<'a> = (Vec<&'a End>, Vec<(u32, Again)>);

/// Marks these steps and all that come after them.
pub(super) fn spread(entry: &ScopeEntry, marked: &mut [bool], mut rest: Vec<u32>) {
    while let Some(step) = rest.pop() {
        if !std::mem::replace(&mut marked[step as usize], true) {
            rest.extend(entry.dependents(step));
        }
    }
}

/// Gives instances the numbers that they have in the fork.
pub(super) struct Renumber<'a> {
    past: &'a Past,
    /// The numbers of the root's steps, before and now.
    mapped: &'a BTreeMap<u32, u32>,
    numbers: BTreeMap<InstanceIx, InstanceIx>,
    reused: Vec<Reused>,
    attempts: Vec<(AttemptId, AttemptId)>,
}

impl<'a> Renumber<'a> {
    pub(super) fn all(
        past: &'a Past,
        kept: &[&'a End],
        mapped: &'a BTreeMap<u32, u32>,
    ) -> (Vec<Reused>, Vec<(AttemptId, AttemptId)>) {
        let numbers = BTreeMap::from([(InstanceIx::ROOT, InstanceIx::ROOT)]);
        let mut renumber = Renumber { past, mapped, numbers, reused: Vec::new(), attempts: Vec::new() };
        kept.iter().for_each(|end| renumber.count(end));
        kept.iter().for_each(|end| renumber.take(end));
        (renumber.reused, renumber.attempts)
    }

    /// The instances that are taken over with a visit: not those of a call that has undone itself.
    fn children(&self, end: &'a End) -> &'a [InstanceIx] {
        if self.past.is_undone(end, false) { &[] } else { &end.children }
    }

    fn count(&mut self, end: &'a End) {
        for child in self.children(end) {
            let next = InstanceIx(u32::try_from(self.numbers.len()).expect("instances are limited"));
            self.numbers.insert(*child, next);
            self.past.inside(*child).iter().for_each(|end| self.count(end));
        }
    }

    fn take(&mut self, end: &'a End) {
        for child in self.children(end) {
            self.take_instance(*child);
            self.past.inside(*child).iter().for_each(|end| self.take(end));
        }
        let at = self.step(end.step.at).expect("what is taken over has its number");
        let attempt = end.step.attempt.map(|attempt| AttemptId { at, ..attempt });
        self.attempts.extend(end.step.attempt.zip(attempt));
        let error = end.step.error.as_ref().map(|error| self.error(error));
        let (route, settler) = self.beside(end);
        let step = StepReused { at, attempt, error, route, settler, ..end.step.clone() };
        self.reused.push(Reused::Step(Box::new(step)));
    }

    fn take_instance(&mut self, ix: InstanceIx) {
        let instance = self.past.state.instance(ix);
        let (Some(parent), Some(part), Some(end)) = (instance.parent, instance.part, instance.end()) else {
            return;
        };
        let why = instance.halt().map(|why| match why {
            Halt::Limit { error } => Halt::Limit { error: self.error(error) },
            other => other.clone(),
        });
        let end = InstanceEnd { error: end.error.as_ref().map(|error| self.error(error)), ..end.clone() };
        self.reused.push(Reused::Instance(Box::new(InstanceReused {
            parent: self.step(parent).expect("what is around it has its number"),
            part,
            input: (part == Part::Call).then(|| instance.input.clone()),
            env: instance.env.clone(),
            why,
            end,
        })));
    }

    /// Returns the route and the settler of a visit, in the numbers of the fork.
    fn beside(&self, end: &End) -> (Option<Route>, Option<u32>) {
        let StepReused { at, route, settler, .. } = &end.step;
        let now = |step: u32| match at.0 {
            InstanceIx::ROOT => self.mapped.get(&step).copied(),
            _ => Some(step),
        };
        let route = route.and_then(|route| match route {
            Route::Step(step) => now(step).map(Route::Step),
            Route::End => Some(Route::End),
        });
        (route, settler.and_then(now))
    }

    fn step(&self, at: StepAt) -> Option<StepAt> {
        let ix = *self.numbers.get(&at.0)?;
        let step = if at.0 == InstanceIx::ROOT { *self.mapped.get(&at.1)? } else { at.1 };
        Some(StepAt(ix, step))
    }

    fn error(&self, error: &Error) -> Error {
        Error { origin: error.origin.and_then(|at| self.step(at)), ..error.clone() }
    }
}
