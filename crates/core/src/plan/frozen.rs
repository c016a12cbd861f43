//! A definition as JSON: what is stored once for all its runs.
//!
//! Refuses to trust it: what is read back is checked again and its hash worked out again.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Hash, canonical_json,
    check::{Checked, check},
    definition::Definition,
    problem::{At, Problem, ProblemCode, Problems},
};
use crate::{ir::Workflow, limits};

/// The one version there is.
const VERSION: u32 = 1;

/// What JSON readers allow, less one level for what may be put around it.
const JSON_DEPTH: usize = limits::DEFINITION_DEPTH;

/// The levels around a step of a called workflow: all, `calls`, the workflow, its scope and the list.
const AROUND_A_STEP: usize = 5;

/// A workflow with everything it calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frozen {
    pub version: u32,
    pub workflow: Arc<Workflow>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, Arc<Workflow>>,
}

impl Definition {
    /// What to store.
    pub fn frozen(&self) -> Frozen {
        let calls =
            self.workflows.iter().filter_map(|entry| Some((entry.name.clone()?, entry.workflow.clone())));
        Frozen { version: VERSION, workflow: self.root().workflow.clone(), calls: calls.collect() }
    }

    /// Checks what was stored as if it were new. A definition has the hash it had when it was stored.
    pub fn from_frozen(frozen: Frozen) -> Checked {
        if frozen.version != VERSION {
            let message = format!("a stored plan has version {VERSION}, this has {}", frozen.version);
            return refused(message, Some("it was stored by a newer skein"));
        }
        check(frozen.workflow, &frozen.calls)
    }

    /// The same from text, whatever the text is.
    pub fn from_frozen_json(json: &str) -> Checked {
        match serde_json::from_str(json) {
            Ok(frozen) => Definition::from_frozen(frozen),
            Err(error) => refused(format!("this is not a stored plan: {error}"), None),
        }
    }
}

fn refused(message: String, hint: Option<&str>) -> Checked {
    let problem = Problem::new(ProblemCode::BadFrozen, At::default(), message);
    Checked { definition: None, problems: vec![problem.maybe_hint(hint.map(str::to_owned))] }
}

/// The hash of a workflow with everything it calls. None if it could be written but not read back.
///
/// A workflow without its steps is one piece, each step is another, and the hash is the chain of all: as JSON in
/// memory, a definition at the limits would take hundreds of megabytes.
pub(super) fn hash(
    root: &Arc<Workflow>,
    called: &BTreeMap<String, Arc<Workflow>>,
    problems: &mut Problems,
) -> Option<Hash> {
    let called = called.iter().map(|(name, workflow)| (Some(name), workflow));
    let hash = std::iter::once((None, root)).chain(called).try_fold(Hash::ZERO, |hash, (name, workflow)| {
        let mut scope = workflow.scope.clone();
        let steps = std::mem::take(&mut scope.steps);
        let bare = Workflow { scope, ..(**workflow).clone() };
        let first = piece(hash, &(name, bare), JSON_DEPTH)?;
        steps.iter().try_fold(first, |hash, step| piece(hash, step, JSON_DEPTH - AROUND_A_STEP))
    });
    if hash.is_none() {
        let message =
            format!("values, expressions and steps together nest more than {JSON_DEPTH} levels of JSON");
        let problem = Problem::new(ProblemCode::TooDeep, At::default(), message);
        problems.push(problem.hint("put the inner steps into a workflow of their own and call it"));
    }
    hash
}

/// The hash with one piece more.
fn piece<T: Serialize>(hash: Hash, piece: &T, depth: usize) -> Option<Hash> {
    let value = serde_json::to_value(piece).ok().filter(|value| depth_is_within(value, depth))?;
    Some(hash.chain(canonical_json(&value).as_bytes()))
}

/// Whether arrays and objects nest no deeper, found out without recursion.
pub(super) fn depth_is_within(value: &Value, most: usize) -> bool {
    let mut todo = vec![(value, 0)];
    while let Some((value, depth)) = todo.pop() {
        if depth > most {
            return false;
        }
        match value {
            Value::Array(items) => todo.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(fields) => todo.extend(fields.values().map(|field| (field, depth + 1))),
            _ => {}
        }
    }
    true
}
