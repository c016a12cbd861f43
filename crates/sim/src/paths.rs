//! Names for instances that do not depend on timing.
//!
//! Owns the two paths of an instance, folded from a run's events: the shown path (`each[3]`, `both/left`, `again#2`),
//! and the *identity*, which also distinguishes the visits of a step and the tries of a composite. Does not know
//! anything else about a run.
//!
//! An identity appends to that of the parent: `/`, the step, `@n` for its n-th visit, the part (`[i]` an item, `/lane`,
//! `#n` a pass, nothing for a call), and `~n` if that part of that visit begins for the n-th time. `@1` and `~1` are
//! left out.

use std::{collections::BTreeMap, sync::Arc};

use skein_core::{
    engine::{AttemptId, Event, InstanceIx, InstancePart, StepAt, Waitpoint},
    ir::StepKindSpec,
    plan::{PlanDefinition, ScopeIx},
};

use crate::outcome::{AttemptIdentity, WaitpointIdentity};

/// The two paths of an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstancePathPair {
    /// The path from which outcomes are drawn.
    pub identity: String,
    /// The path that people see, which does not distinguish tries and visits.
    pub shown: String,
}

impl InstancePathPair {
    /// The paths of a part of a step of this instance; `again` is the number of times that part of that visit has
    /// begun.
    pub fn child_paths(&self, step: &str, visit: u32, part: InstancePart, lane: &str, again: u32) -> InstancePathPair {
        let slash = if self.shown.is_empty() { "" } else { "/" };
        let part = match part {
            InstancePart::Lane(_) => format!("/{lane}"),
            InstancePart::Item(i) => format!("[{i}]"),
            InstancePart::Pass(n) => format!("#{n}"),
            InstancePart::Call => String::new(),
        };
        let visit = if visit > 1 { format!("@{visit}") } else { String::new() };
        let again = if again > 1 { format!("~{again}") } else { String::new() };
        InstancePathPair {
            identity: format!("{}/{step}{visit}{part}{again}", self.identity),
            shown: format!("{}{slash}{step}{part}", self.shown),
        }
    }

    /// The shown path of a step of this instance.
    pub fn step_path(&self, id: &str) -> String {
        if self.shown.is_empty() { id.to_owned() } else { format!("{}/{id}", self.shown) }
    }
}

/// The paths of a run's instances and waitpoints so far.
#[derive(Debug)]
pub struct RunPathIndex {
    definition: Arc<PlanDefinition>,
    instances: Vec<(ScopeIx, InstancePathPair)>,
    /// The number of times each step has ended; its current visit is one more.
    ended: BTreeMap<StepAt, u32>,
    begun: BTreeMap<(StepAt, u32, InstancePart), u32>,
    opened: BTreeMap<(StepAt, u32), u32>,
    openings: BTreeMap<Waitpoint, (StepAt, u32, u32)>,
}

impl RunPathIndex {
    pub fn new(definition: Arc<PlanDefinition>) -> RunPathIndex {
        let root = (definition.root().root, InstancePathPair::default());
        RunPathIndex {
            definition,
            instances: vec![root],
            ended: BTreeMap::new(),
            begun: BTreeMap::new(),
            opened: BTreeMap::new(),
            openings: BTreeMap::new(),
        }
    }

    /// Records an event. Must be called with every event of the run, in order.
    pub fn observe(&mut self, event: &Event) {
        match event {
            Event::InstanceStarted { parent, part, .. } => self.add_instance(*parent, *part),
            Event::InstanceReused(reused) => self.add_instance(reused.parent, reused.part),
            Event::StepReused(reused) => *self.ended.entry(reused.at).or_default() += 1,
            Event::StepEnded { at, .. } => *self.ended.entry(*at).or_default() += 1,
            Event::Opened { at, opening, .. } | Event::StepHeld { at, opening, .. } => {
                let visit = self.current_visit(*at);
                let nth = self.opened.entry((*at, visit)).or_default();
                *nth += 1;
                self.openings.insert(*opening, (*at, visit, *nth));
            }
            _ => {}
        }
    }

    fn add_instance(&mut self, parent: StepAt, part: InstancePart) {
        let visit = self.current_visit(parent);
        let again = self.begun.entry((parent, visit, part)).or_default();
        *again += 1;
        let StepAt(around, step) = parent;
        let (scope, name) = &self.instances[around.0 as usize];
        let entry = self.definition.scope(*scope);
        let which = if let InstancePart::Lane(lane) = part { lane } else { 0 };
        let holder = entry.step(step);
        let lane = match &holder.kind {
            StepKindSpec::Parallel(parallel) => parallel.lanes.get(which as usize).map_or("", |lane| lane.id.as_str()),
            _ => "",
        };
        let name = name.child_paths(holder.id.as_str(), visit, part, lane, *again);
        let scope = entry.inner_scope(step, which);
        self.instances.push((scope, name));
    }

    fn current_visit(&self, at: StepAt) -> u32 {
        self.ended.get(&at).copied().unwrap_or(0) + 1
    }

    pub fn instance_paths(&self, instance: InstanceIx) -> &InstancePathPair {
        &self.instances[instance.0 as usize].1
    }

    /// The paths of the newest instance.
    pub fn last_paths(&self) -> &InstancePathPair {
        &self.instances[self.instances.len() - 1].1
    }

    pub fn instance_scope(&self, instance: InstanceIx) -> ScopeIx {
        self.instances[instance.0 as usize].0
    }

    fn step_id(&self, StepAt(instance, step): StepAt) -> &str {
        self.definition.scope(self.instance_scope(instance)).step(step).id.as_str()
    }

    /// The identity of an attempt.
    pub fn attempt_identity(&self, attempt: &AttemptId) -> AttemptIdentity<'_> {
        AttemptIdentity {
            path: &self.instance_paths(attempt.at.0).identity,
            step: self.step_id(attempt.at),
            visit: attempt.visit,
            iteration: attempt.iteration,
            role: attempt.role,
            attempt: attempt.attempt,
        }
    }

    /// The identity of a gate, wait or hold, if it has been opened.
    pub fn waitpoint_identity(&self, opening: Waitpoint) -> Option<WaitpointIdentity<'_>> {
        let (at, visit, nth) = *self.openings.get(&opening)?;
        Some(WaitpointIdentity { path: &self.instance_paths(at.0).identity, step: self.step_id(at), visit, nth })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_and_tries_are_told_apart_only_where_outcomes_are_drawn() {
        let root = InstancePathPair::default();
        let item = root.child_paths("each", 1, InstancePart::Item(3), "", 1);
        assert_eq!((item.identity.as_str(), item.shown.as_str()), ("/each[3]", "each[3]"));
        let lane = item.child_paths("both", 2, InstancePart::Lane(0), "left", 3);
        assert_eq!((lane.identity.as_str(), lane.shown.as_str()), ("/each[3]/both@2/left~3", "each[3]/both/left"));
        assert_eq!(lane.step_path("x"), "each[3]/both/left/x");
        assert_eq!(root.child_paths("again", 1, InstancePart::Pass(2), "", 1).shown, "again#2");
    }
}
