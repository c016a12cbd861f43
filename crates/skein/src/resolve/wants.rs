//! What a plan wants of tools, and who does each.
//!
//! A tool that several steps name is chosen for once, with all the inputs that any of them gives: what was chosen stays for
//! the whole run.

use std::collections::{BTreeMap, BTreeSet};

use skein_core::{
    ir::{Kind, Step, Work, Worker},
    plan::Plan,
};
use skein_dialects::Sort;

use super::{Resolution, Resolver, Wanted};
use crate::project::OnDisk;

/// A tool or an action, and the driver that a step is pinned to.
type Key = (Sort, String, Option<String>);

/// Who does what a plan wants, by what it names.
#[derive(Debug, Default)]
pub struct Resolutions(BTreeMap<Key, Resolution>);

impl Resolutions {
    pub fn of(plan: &Plan, project: &OnDisk) -> Resolutions {
        let mut wants: BTreeMap<Key, BTreeSet<&str>> = BTreeMap::new();
        for step in plan.definition.scopes.iter().flat_map(|entry| &entry.scope.steps) {
            add(step, &mut wants);
        }
        if wants.is_empty() {
            return Resolutions::default();
        }
        let resolver = Resolver::of(project);
        let resolve = |(key, inputs): (Key, BTreeSet<&str>)| {
            let inputs: Vec<&str> = inputs.into_iter().collect();
            let wanted = Wanted { sort: key.0, name: &key.1, pinned: key.2.as_deref(), inputs: &inputs };
            let found = resolver.resolve(wanted);
            (key, found)
        };
        Resolutions(wants.into_iter().map(resolve).collect())
    }

    /// Who does the work of a worker; none where that is no tool.
    pub fn get(&self, worker: &Worker) -> Option<&Resolution> {
        self.0.get(&key(worker)?)
    }
}

fn key(worker: &Worker) -> Option<Key> {
    match worker {
        Worker::Tool { tool, pinned } => Some((Sort::Tool, tool.clone(), pinned.clone())),
        Worker::Action { action, pinned } => Some((Sort::Action, action.clone(), pinned.clone())),
        _ => None,
    }
}

fn add<'a>(step: &'a Step, wants: &mut BTreeMap<Key, BTreeSet<&'a str>>) {
    let mut one = |work: &Work, inputs: &'a [skein_core::ir::Binding]| {
        if let Some(key) = key(&work.worker) {
            wants.entry(key).or_default().extend(inputs.iter().map(|binding| &*binding.name));
        }
    };
    if let Kind::Work(work) = &step.kind {
        one(work, &step.inputs);
    }
    if let Some(undo) = &step.undo {
        one(&undo.work, &undo.inputs);
    }
}
