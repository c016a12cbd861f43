//! Paths: the display names of instances and their steps.
//!
//! Owns the forms `each[3]/child`, `parallel/lane/child`, `loop#2/child` and `call/child`. A path does not distinguish
//! the visits of a step or the tries of a composite; [`StepAt`] does.

use std::sync::Arc;

use crate::{
    engine::{Event, InstanceIx, InstancePart, RunState, StepAt},
    ir::{StatusWords, StepKindName, StepKindSpec},
    plan::{PlanDefinition, ScopeIx},
};

/// The paths of a run's instances, in the order in which they started.
#[derive(Debug, Clone)]
pub struct StepPaths {
    definition: Arc<PlanDefinition>,
    /// The scope of each instance, and its path with a slash at the end; empty for the root.
    instances: Vec<(ScopeIx, String)>,
}

impl StepPaths {
    /// Creates the paths of a run that has only its root.
    pub fn new(definition: Arc<PlanDefinition>) -> StepPaths {
        let root = definition.root().root;
        StepPaths { definition, instances: vec![(root, String::new())] }
    }

    /// Creates the paths of all instances of a run.
    pub fn from_state(definition: &Arc<PlanDefinition>, state: &RunState) -> StepPaths {
        let mut names = StepPaths::new(definition.clone());
        for instance in &state.instances {
            if let (Some(parent), Some(part)) = (instance.parent, instance.part) {
                names.add_instance(parent, part);
            }
        }
        names
    }

    /// The status words of the format that an instance's workflow is written in.
    pub fn words(&self, instance: InstanceIx) -> &StatusWords {
        &self.definition.workflow_containing(self.scope(instance)).workflow.words
    }

    pub fn step_kind(&self, at: StepAt) -> StepKindName {
        self.definition.scope(self.scope(at.0)).step(at.1).kind.name()
    }

    /// Handles an event. Returns true if it added an instance.
    pub fn note_event(&mut self, event: &Event) -> bool {
        let (parent, part) = match event {
            Event::InstanceStarted { parent, part, .. } => (*parent, *part),
            Event::InstanceReused(reused) => (reused.parent, reused.part),
            _ => return false,
        };
        self.add_instance(parent, part);
        true
    }

    /// Adds the path of the next instance.
    fn add_instance(&mut self, parent: StepAt, part: InstancePart) {
        let which = if let InstancePart::Lane(lane) = part { lane } else { 0 };
        let (scope, around) = &self.instances[parent.0.0 as usize];
        let entry = self.definition.scope(*scope);
        let holder = entry.step(parent.1);
        let path = match (part, &holder.kind) {
            (InstancePart::Item(i), _) => format!("{around}{}[{i}]/", holder.id),
            (InstancePart::Pass(n), _) => format!("{around}{}#{n}/", holder.id),
            (InstancePart::Lane(lane), StepKindSpec::Parallel(parallel)) => {
                let lane = parallel.lanes.get(lane as usize).map_or("", |lane| lane.id.as_str());
                format!("{around}{}/{lane}/", holder.id)
            }
            (InstancePart::Lane(_) | InstancePart::Call, _) => format!("{around}{}/", holder.id),
        };
        let scope = entry.inner_scope(parent.1, which);
        self.instances.push((scope, path));
    }

    pub fn definition(&self) -> &PlanDefinition {
        &self.definition
    }

    pub fn scope(&self, instance: InstanceIx) -> ScopeIx {
        self.instances[instance.0 as usize].0
    }

    /// The path of an instance; empty for the root.
    pub fn instance_path(&self, instance: InstanceIx) -> &str {
        let path = &self.instances[instance.0 as usize].1;
        path.strip_suffix('/').unwrap_or(path)
    }

    /// The path of a step.
    pub fn step_path(&self, at: StepAt) -> String {
        format!("{}{}", self.instances[at.0.0 as usize].1, self.step_id(at))
    }

    /// The step's id, which is unique within its scope.
    pub fn step_id(&self, at: StepAt) -> &str {
        self.definition.scope(self.scope(at.0)).step(at.1).id.as_str()
    }
}
