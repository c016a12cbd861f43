//! Paths: the names that instances and their steps are shown by.
//!
//! Owns the forms `each[3]/child`, `parallel/lane/child`, `loop#2/child` and `call/child`. A path does not tell apart
//! the visits of a step or the tries at a composite; [`StepAt`] does.

use std::sync::Arc;

use crate::{
    engine::{Event, InstanceIx, Part, RunState, StepAt},
    ir::{Kind, KindName, Words},
    plan::{Definition, ScopeIx},
};

/// The names of a run's instances, in the order in which those began.
#[derive(Debug, Clone)]
pub struct Names {
    definition: Arc<Definition>,
    /// The scope of each instance, and its path with a slash at the end; empty for the root.
    instances: Vec<(ScopeIx, String)>,
}

impl Names {
    /// Of a run that has only its root.
    pub fn new(definition: Arc<Definition>) -> Names {
        let root = definition.root().root;
        Names { definition, instances: vec![(root, String::new())] }
    }

    /// Of a run as it is.
    pub fn of(definition: &Arc<Definition>, state: &RunState) -> Names {
        let mut names = Names::new(definition.clone());
        for instance in &state.instances {
            if let (Some(parent), Some(part)) = (instance.parent, instance.part) {
                names.begin(parent, part);
            }
        }
        names
    }

    /// The words of the format that an instance's workflow is written in.
    pub fn words(&self, instance: InstanceIx) -> &Words {
        &self.definition.workflow_of(self.scope(instance)).workflow.words
    }

    /// The kind of a step.
    pub fn step_kind(&self, at: StepAt) -> KindName {
        self.definition.scope(self.scope(at.0)).step(at.1).kind.name()
    }

    /// Takes note of an event. Whether an instance came to be with it.
    pub fn feed(&mut self, event: &Event) -> bool {
        let (parent, part) = match event {
            Event::InstanceStarted { parent, part, .. } => (*parent, *part),
            Event::InstanceReused(reused) => (reused.parent, reused.part),
            _ => return false,
        };
        self.begin(parent, part);
        true
    }

    /// The next instance has begun.
    fn begin(&mut self, parent: StepAt, part: Part) {
        let which = if let Part::Lane(lane) = part { lane } else { 0 };
        let (scope, around) = &self.instances[parent.0.0 as usize];
        let entry = self.definition.scope(*scope);
        let holder = entry.step(parent.1);
        let path = match (part, &holder.kind) {
            (Part::Item(i), _) => format!("{around}{}[{i}]/", holder.id),
            (Part::Pass(n), _) => format!("{around}{}#{n}/", holder.id),
            (Part::Lane(lane), Kind::Parallel(parallel)) => {
                let lane = parallel.lanes.get(lane as usize).map_or("", |lane| lane.id.as_str());
                format!("{around}{}/{lane}/", holder.id)
            }
            (Part::Lane(_) | Part::Call, _) => format!("{around}{}/", holder.id),
        };
        let scope = entry.inner(parent.1, which);
        self.instances.push((scope, path));
    }

    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    pub fn scope(&self, instance: InstanceIx) -> ScopeIx {
        self.instances[instance.0 as usize].0
    }

    /// The path of an instance: empty for the root.
    pub fn instance(&self, instance: InstanceIx) -> &str {
        let path = &self.instances[instance.0 as usize].1;
        path.strip_suffix('/').unwrap_or(path)
    }

    /// The path of a step.
    pub fn step(&self, at: StepAt) -> String {
        format!("{}{}", self.instances[at.0.0 as usize].1, self.id(at))
    }

    /// The step's id, which is its name among the steps beside it.
    pub fn id(&self, at: StepAt) -> &str {
        self.definition.scope(self.scope(at.0)).step(at.1).id.as_str()
    }
}
