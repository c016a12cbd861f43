//! Names for instances that do not depend on timing.
//!
//! Owns the two paths of an instance, folded from a run's events: the one that is shown (`each[3]`, `both/left`,
//! `again#2`), and its *identity*, which also tells apart the visits of a step and the tries of a composite. Refuses
//! to know anything else about a run.
//!
//! An identity adds to the parent's: `/`, the step, `@n` for its n-th visit, the part (`[i]` an item, `/lane`, `#n`
//! a pass, nothing for a call), and `~n` when that part of that visit begins for the n-th time. The first of
//! each is left out.

use std::{collections::BTreeMap, sync::Arc};

use skein_core::{
    engine::{AttemptId, Event, InstanceIx, Opening, Part, StepAt},
    ir::Kind,
    plan::{Definition, ScopeIx},
};

use crate::outcome::{Asked, Who};

/// Both names of an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Name {
    /// What outcomes are drawn from.
    pub identity: String,
    /// What people see, without what tells tries and visits apart.
    pub shown: String,
}

impl Name {
    /// The name of a part of a step of this instance; `again` says how often that part of that visit has begun.
    pub fn inner(&self, step: &str, visit: u32, part: Part, lane: &str, again: u32) -> Name {
        let slash = if self.shown.is_empty() { "" } else { "/" };
        let part = match part {
            Part::Lane(_) => format!("/{lane}"),
            Part::Item(i) => format!("[{i}]"),
            Part::Pass(n) => format!("#{n}"),
            Part::Call => String::new(),
        };
        let visit = if visit > 1 { format!("@{visit}") } else { String::new() };
        let again = if again > 1 { format!("~{again}") } else { String::new() };
        Name {
            identity: format!("{}/{step}{visit}{part}{again}", self.identity),
            shown: format!("{}{slash}{step}{part}", self.shown),
        }
    }

    /// The shown path of a step of this instance.
    pub fn step(&self, id: &str) -> String {
        if self.shown.is_empty() { id.to_owned() } else { format!("{}/{id}", self.shown) }
    }
}

/// The names of a run's instances and openings so far.
#[derive(Debug)]
pub struct Paths {
    definition: Arc<Definition>,
    instances: Vec<(ScopeIx, Name)>,
    /// How often each step has ended: its visit is one more.
    ended: BTreeMap<StepAt, u32>,
    begun: BTreeMap<(StepAt, u32, Part), u32>,
    opened: BTreeMap<(StepAt, u32), u32>,
    openings: BTreeMap<Opening, (StepAt, u32, u32)>,
}

impl Paths {
    pub fn new(definition: Arc<Definition>) -> Paths {
        let root = (definition.root().root, Name::default());
        Paths {
            definition,
            instances: vec![root],
            ended: BTreeMap::new(),
            begun: BTreeMap::new(),
            opened: BTreeMap::new(),
            openings: BTreeMap::new(),
        }
    }

    /// Takes note of an event. Every event of the run must come by here, in order.
    pub fn observe(&mut self, event: &Event) {
        match event {
            Event::InstanceStarted { parent, part, .. } => self.begin(*parent, *part),
            Event::InstanceReused(reused) => self.begin(reused.parent, reused.part),
            Event::StepReused(reused) => *self.ended.entry(reused.at).or_default() += 1,
            Event::StepEnded { at, .. } => *self.ended.entry(*at).or_default() += 1,
            Event::Opened { at, opening, .. } | Event::StepHeld { at, opening, .. } => {
                let visit = self.visit(*at);
                let nth = self.opened.entry((*at, visit)).or_default();
                *nth += 1;
                self.openings.insert(*opening, (*at, visit, *nth));
            }
            _ => {}
        }
    }

    fn begin(&mut self, parent: StepAt, part: Part) {
        let visit = self.visit(parent);
        let again = self.begun.entry((parent, visit, part)).or_default();
        *again += 1;
        let StepAt(around, step) = parent;
        let (scope, name) = &self.instances[around.0 as usize];
        let entry = self.definition.scope(*scope);
        let which = if let Part::Lane(lane) = part { lane } else { 0 };
        let holder = entry.step(step);
        let lane = match &holder.kind {
            Kind::Parallel(parallel) => {
                parallel.lanes.get(which as usize).map_or("", |lane| lane.id.as_str())
            }
            _ => "",
        };
        let name = name.inner(holder.id.as_str(), visit, part, lane, *again);
        let scope = entry.inner(step, which);
        self.instances.push((scope, name));
    }

    fn visit(&self, at: StepAt) -> u32 {
        self.ended.get(&at).copied().unwrap_or(0) + 1
    }

    pub fn name(&self, instance: InstanceIx) -> &Name {
        &self.instances[instance.0 as usize].1
    }

    /// The name of the newest instance.
    pub fn last(&self) -> &Name {
        &self.instances[self.instances.len() - 1].1
    }

    pub fn scope(&self, instance: InstanceIx) -> ScopeIx {
        self.instances[instance.0 as usize].0
    }

    fn step_id(&self, StepAt(instance, step): StepAt) -> &str {
        self.definition.scope(self.scope(instance)).step(step).id.as_str()
    }

    /// Whose end is asked for.
    pub fn who(&self, attempt: &AttemptId) -> Who<'_> {
        Who {
            path: &self.name(attempt.at.0).identity,
            step: self.step_id(attempt.at),
            visit: attempt.visit,
            iteration: attempt.iteration,
            role: attempt.role,
            attempt: attempt.attempt,
        }
    }

    /// What a gate, wait or hold is, if it has been opened.
    pub fn asked(&self, opening: Opening) -> Option<Asked<'_>> {
        let (at, visit, nth) = *self.openings.get(&opening)?;
        Some(Asked { path: &self.name(at.0).identity, step: self.step_id(at), visit, nth })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_and_tries_are_told_apart_only_where_outcomes_are_drawn() {
        let root = Name::default();
        let item = root.inner("each", 1, Part::Item(3), "", 1);
        assert_eq!((item.identity.as_str(), item.shown.as_str()), ("/each[3]", "each[3]"));
        let lane = item.inner("both", 2, Part::Lane(0), "left", 3);
        assert_eq!(
            (lane.identity.as_str(), lane.shown.as_str()),
            ("/each[3]/both@2/left~3", "each[3]/both/left")
        );
        assert_eq!(lane.step("x"), "each[3]/both/left/x");
        assert_eq!(root.inner("again", 1, Part::Pass(2), "", 1).shown, "again#2");
    }
}
