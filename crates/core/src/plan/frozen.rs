//! A definition as JSON: what is stored once for all its runs.
//!
//! Refuses to trust it: what is read back is checked again and its hash worked out again.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    Hash,
    check::{Checked, check},
    definition::Definition,
    depth,
    problem::{At, Problem, ProblemCode, Problems},
};
use crate::{ir::Workflow, limits};

/// The one version there is.
const VERSION: u32 = 1;

/// What JSON readers allow, less one level for what may be put around it.
const JSON_DEPTH: usize = limits::DEFINITION_DEPTH;

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
    /// The hash of the workflow and what it calls, without parameters.
    pub fn hash(&self) -> Hash {
        *self.hash.get_or_init(|| {
            let Frozen { version, workflow, calls } = self.frozen();
            Hash::of_json(&(version, workflow, calls))
        })
    }

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

/// Whether a workflow with everything it calls could be read back once it is written.
pub(super) fn check_depth(
    root: &Arc<Workflow>,
    called: &BTreeMap<String, Arc<Workflow>>,
    problems: &mut Problems,
) -> Option<()> {
    if depth::of(&(VERSION, root, called)) <= JSON_DEPTH {
        return Some(());
    }
    let message =
        format!("values, expressions and steps together nest more than {JSON_DEPTH} levels of JSON");
    let problem = Problem::new(ProblemCode::TooDeep, At::default(), message);
    problems.push(problem.hint("put the inner steps into a workflow of their own and call it"));
    None
}
