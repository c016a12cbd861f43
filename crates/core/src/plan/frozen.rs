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
use crate::{
    expr::{Expr, Node},
    ir::{Kind, Schema, Step, Work, Worker, Workflow},
    limits,
};

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
    // What cannot nest deeply need not be measured, and of a large workflow that is nearly all.
    let mut deep = Workflow::clone(root);
    deep.scope.steps.retain(|step| !is_shallow(step));
    if depth::of(&(VERSION, &deep, called)) <= JSON_DEPTH {
        return Some(());
    }
    let message =
        format!("values, expressions and steps together nest more than {JSON_DEPTH} levels of JSON");
    let problem = Problem::new(ProblemCode::TooDeep, At::default(), message);
    problems.push(problem.hint("put the inner steps into a workflow of their own and call it"));
    None
}

/// Whether a step holds no other steps, no values of its own, and no expression that holds another.
fn is_shallow(step: &Step) -> bool {
    let Kind::Work(work) = &step.kind else { return false };
    let Work { worker, check: None, summary: None, .. } = &**work else { return false };
    let worker = match worker {
        Worker::Agent { instructions, .. } => instructions.iter().all(is_flat),
        Worker::Command { arguments, .. } => arguments.iter().all(is_flat),
        Worker::Tool { .. } | Worker::Action { .. } | Worker::Script { .. } => true,
    };
    worker
        && step.undo.is_none()
        && step.labels.is_empty()
        && step.outputs == Schema::default()
        && step.when.iter().all(is_flat)
        && step.inputs.iter().all(|input| is_flat(&input.value) && input.schema == Schema::default())
}

fn is_flat(expr: &Expr) -> bool {
    match expr.node() {
        Node::Literal { value, .. } => value.as_str().is_some(),
        Node::Ref { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::{
        ids::{StepId, WorkflowId},
        ir::{Binding, Scope, Shape},
    };

    fn shallow() -> Step {
        let instructions = Some(Expr::literal("Do it.").expect("a text"));
        let worker = Worker::Agent {
            name: Some("one".into()),
            program: None,
            model: None,
            instructions,
            capabilities: Vec::new(),
            tools: Vec::new(),
            max_turns: None,
            command_timeout: None,
        };
        let mut step = Step::new(StepId::new("s").expect("a name"), Kind::Work(Box::new(Work::new(worker))));
        let value = Expr::step::<&str>("t", ["a", "b"]);
        step.inputs = vec![Binding { name: "x".into(), value, schema: Schema::default(), required: true }];
        step
    }

    fn is_refused(step: Step) -> bool {
        let scope = Scope::new(Shape::Graph, [shallow(), step]);
        let workflow = Workflow::new(WorkflowId::new("w").expect("a name"), scope);
        check_depth(&Arc::new(workflow), &BTreeMap::new(), &mut Problems::default()).is_none()
    }

    #[test]
    fn what_is_not_measured_is_far_from_too_deep() {
        let step = shallow();
        assert!(is_shallow(&step));
        assert!(depth::of(&step) < JSON_DEPTH / 4);
    }

    #[test]
    fn one_deep_step_among_shallow_ones_is_found() {
        let nested = (0..JSON_DEPTH).fold(json!(1), |inner, _| json!([inner]));
        let mut labelled = shallow();
        labelled.labels.insert("deep".to_owned(), nested.clone());
        let mut schema = shallow();
        schema.outputs = Schema::new(json!({"const": nested}));
        let mut bound = shallow();
        bound.inputs[0].schema = Schema::new(json!({"const": nested}));
        for step in [labelled, schema, bound] {
            assert!(is_refused(step));
        }
        assert!(!is_refused(shallow()));
    }
}
