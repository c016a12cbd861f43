//! The tools that a plan needs, and the driver of each.
//!
//! A tool that several steps name is resolved once, with all the inputs that any of them passes: the choice holds for
//! the whole run.

use std::collections::{BTreeMap, BTreeSet};

use skein_core::{
    ir::{Step, StepKindSpec, WorkSpec, WorkerSpec},
    plan::Plan,
};
use skein_dialects::CatalogKind;

use super::{DriverRequest, DriverResolver, ToolResolution};
use crate::project::DiskProject;

/// A tool or an action, and the driver that a step is pinned to.
type ResolutionKey = (CatalogKind, String, Option<String>);

/// The resolutions of a plan, by the tool or action.
#[derive(Debug, Default)]
pub struct ToolResolutions(BTreeMap<ResolutionKey, ToolResolution>);

impl ToolResolutions {
    pub fn resolve_plan(plan: &Plan, project: &DiskProject) -> ToolResolutions {
        let mut wants: BTreeMap<ResolutionKey, BTreeSet<&str>> = BTreeMap::new();
        for step in plan.definition.scopes.iter().flat_map(|entry| &entry.scope.steps) {
            add_wanted(step, &mut wants);
        }
        if wants.is_empty() {
            return ToolResolutions::default();
        }
        let resolver = DriverResolver::load(project);
        let resolve = |(key, inputs): (ResolutionKey, BTreeSet<&str>)| {
            let inputs: Vec<&str> = inputs.into_iter().collect();
            let wanted =
                DriverRequest { sort: key.0, name: &key.1, pinned: key.2.as_deref(), inputs: &inputs };
            let found = resolver.resolve_tool(wanted);
            (key, found)
        };
        ToolResolutions(wants.into_iter().map(resolve).collect())
    }

    /// Returns the resolution of a worker; none if it is not a tool.
    pub fn find_resolution(&self, worker: &WorkerSpec) -> Option<&ToolResolution> {
        self.0.get(&worker_key(worker)?)
    }
}

fn worker_key(worker: &WorkerSpec) -> Option<ResolutionKey> {
    match worker {
        WorkerSpec::Tool { tool, pinned } => Some((CatalogKind::Tool, tool.clone(), pinned.clone())),
        WorkerSpec::Action { action, pinned } => Some((CatalogKind::Action, action.clone(), pinned.clone())),
        _ => None,
    }
}

fn add_wanted<'a>(step: &'a Step, wants: &mut BTreeMap<ResolutionKey, BTreeSet<&'a str>>) {
    let mut one = |work: &WorkSpec, inputs: &'a [skein_core::ir::InputBinding]| {
        if let Some(key) = worker_key(&work.worker) {
            wants.entry(key).or_default().extend(inputs.iter().map(|binding| &*binding.name));
        }
    };
    if let StepKindSpec::Work(work) = &step.kind {
        one(work, &step.inputs);
    }
    if let Some(undo) = &step.undo {
        one(&undo.work, &undo.inputs);
    }
}
