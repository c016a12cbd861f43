//! A definition as JSON, which is stored once for all its runs, and its nesting depth, which is measured without
//! keeping the JSON.
//!
//! Does not trust stored data: it is checked again, and its hash is computed again.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::ser::{Formatter, Serializer};

use crate::{
    expr::{Expr, ExprNode},
    ir::{Schema, SharedStepExtensions, Step, StepKindSpec, WorkSpec, WorkerSpec, Workflow},
    limits,
    plan::{
        ContentHash,
        check::{CheckedWorkflow, check_workflow},
        definition::PlanDefinition,
        problem::{PlanProblem, ProblemCode, ProblemCollector, ProblemLocation},
    },
    terms::WorkflowTerms,
};

/// The only version so far.
const VERSION: u32 = 1;

/// The limit of JSON parsers, less one level for an enclosing document.
const JSON_DEPTH: usize = limits::DEFINITION_DEPTH;

/// A workflow with everything it calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrozenDefinition {
    pub version: u32,
    pub workflow: Arc<Workflow>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, Arc<Workflow>>,
}

impl FrozenDefinition {
    fn hash(&self) -> ContentHash {
        ContentHash::hash_json(&(self.version, &self.workflow, &self.calls))
    }
}

impl PlanDefinition {
    /// Returns the hash of the workflow and the workflows that it calls, without parameters and the marks of composers.
    pub fn hash(&self) -> ContentHash {
        *self.hash.get_or_init(|| {
            let mut frozen = self.to_frozen();
            for workflow in std::iter::once(&mut frozen.workflow).chain(frozen.calls.values_mut()) {
                if let Some(plain) = workflow.without_ui() {
                    *workflow = Arc::new(plain);
                }
            }
            frozen.hash()
        })
    }

    /// Keeps the hash under which the definition was stored if that counts the marks of composers, too. Earlier versions
    /// stored definitions under such a hash, and journals name it.
    pub fn keep_stored_hash(&self, stored: ContentHash) {
        if self.workflows.iter().any(|entry| entry.workflow.without_ui().is_some()) && self.to_frozen().hash() == stored
        {
            self.hash.get_or_init(|| stored);
        }
    }

    /// Returns the form that is stored.
    pub fn to_frozen(&self) -> FrozenDefinition {
        let stored = self.stored_definition();
        let calls = stored.workflows.iter().filter_map(|entry| Some((entry.name.clone()?, entry.workflow.clone())));
        FrozenDefinition { version: VERSION, workflow: stored.root().workflow.clone(), calls: calls.collect() }
    }

    /// Checks a stored definition as if it were new. A definition keeps the hash that it had when it was stored.
    pub fn from_frozen(frozen: FrozenDefinition) -> CheckedWorkflow {
        if frozen.version != VERSION {
            let message = format!("this stored plan has version {}, expected {VERSION}", frozen.version);
            return refuse_stored_plan(message, Some("it was stored by a newer skein"));
        }
        check_workflow(frozen.workflow, &frozen.calls)
    }

    /// Like [`from_frozen`](Self::from_frozen), for any text.
    pub fn from_frozen_json(json: &str) -> CheckedWorkflow {
        match serde_json::from_str(json) {
            Ok(frozen) => PlanDefinition::from_frozen(frozen),
            Err(error) => refuse_stored_plan(format!("this is not a stored plan: {error}"), None),
        }
    }
}

fn refuse_stored_plan(message: String, hint: Option<&str>) -> CheckedWorkflow {
    let problem = PlanProblem::new(ProblemCode::BadFrozen, ProblemLocation::default(), message);
    CheckedWorkflow { definition: None, problems: vec![problem.with_optional_hint(hint.map(str::to_owned))] }
}

/// Checks that a workflow with everything it calls could be read back once it is written.
pub(super) fn check_depth(
    root: &Arc<Workflow>,
    called: &BTreeMap<String, Arc<Workflow>>,
    terms: &WorkflowTerms,
    problems: &mut ProblemCollector,
) -> Option<()> {
    // Shallow steps need not be measured, and in a large workflow nearly all steps are.
    let mut deep = Workflow::clone(root);
    deep.scope.steps.retain(|step| !is_shallow(step));
    if measure_json_depth(&(VERSION, &deep, called)) <= JSON_DEPTH {
        return Some(());
    }
    let step = terms.step;
    let message = format!("values, expressions and {step}s together nest more than {JSON_DEPTH} levels of JSON");
    let problem = PlanProblem::new(ProblemCode::TooDeep, ProblemLocation::default(), message);
    problems.push(problem.with_hint(format!("put the inner {step}s into a workflow of their own and call it")));
    None
}

/// True if a step contains no other steps, no values of its own, and no nested expression.
fn is_shallow(step: &Step) -> bool {
    let StepKindSpec::Work(work) = &step.kind else { return false };
    let WorkSpec { worker, check: None, summary: None, .. } = &**work else { return false };
    let worker = match worker {
        WorkerSpec::Agent { instructions, .. } => instructions.iter().all(is_flat),
        WorkerSpec::Command { arguments, .. } => arguments.iter().all(is_flat),
        WorkerSpec::Tool { .. } | WorkerSpec::Action { .. } | WorkerSpec::Script { .. } => true,
    };
    worker
        && step.undo.is_none()
        && step.extensions == SharedStepExtensions::default()
        && step.outputs == Schema::default()
        && step.when.iter().all(is_flat)
        && step.inputs.iter().all(|input| is_flat(&input.value) && input.schema == Schema::default())
}

fn is_flat(expr: &Expr) -> bool {
    match expr.node() {
        ExprNode::Literal { value, .. } => value.as_str().is_some(),
        ExprNode::Ref { .. } => true,
        _ => false,
    }
}

/// Returns the levels of arrays and objects of a value.
fn measure_json_depth<T: Serialize + ?Sized>(value: &T) -> usize {
    let mut depth = JsonDepth::default();
    let mut serializer = Serializer::with_formatter(io::sink(), &mut depth);
    value.serialize(&mut serializer).expect("what is measured serialises to JSON");
    depth.deepest
}

/// Counts levels as they are opened and closed.
#[derive(Default)]
struct JsonDepth {
    now: usize,
    deepest: usize,
}

impl JsonDepth {
    fn open(&mut self) -> io::Result<()> {
        self.now += 1;
        self.deepest = self.deepest.max(self.now);
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        self.now -= 1;
        Ok(())
    }
}

impl Formatter for &mut JsonDepth {
    fn begin_array<W: Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.open()
    }

    fn end_array<W: Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.close()
    }

    fn begin_object<W: Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.open()
    }

    fn end_object<W: Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.close()
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        ids::{StepId, WorkflowId},
        ir::{InputBinding, ScopeShape, StepScope},
    };
    use serde_json::json;
    use std::collections::BTreeMap;

    use super::measure_json_depth;
    use super::*;

    #[derive(serde::Serialize)]
    enum Sort {
        Plain,
        One(u8),
        Two(u8, u8),
        Named { list: Vec<Sort> },
    }

    #[test]
    fn levels_are_those_of_the_json() {
        assert_eq!(measure_json_depth(&json!("[[[")), 0);
        assert_eq!(measure_json_depth(&json!({"a": [1, {"b": []}], "c": 2})), 4);
        assert_eq!(measure_json_depth(&(1, Some("x"), json!([[1], 2]))), 3);
        assert_eq!(
            [measure_json_depth(&Sort::Plain), measure_json_depth(&Sort::One(1)), measure_json_depth(&Sort::Two(1, 2))],
            [0, 1, 2]
        );
        // {"Named":{"list":[{"One":1}]}}
        assert_eq!(measure_json_depth(&Sort::Named { list: vec![Sort::One(1), Sort::Plain] }), 4);
    }

    fn shallow() -> Step {
        let instructions = Some(Expr::literal("Do it.").expect("a text"));
        let worker = WorkerSpec::Agent {
            name: Some("one".into()),
            program: None,
            model: None,
            instructions,
            capabilities: Vec::new(),
            tools: Vec::new(),
            max_turns: None,
            command_timeout: None,
        };
        let mut step =
            Step::new(StepId::new("s").expect("a name"), StepKindSpec::Work(Box::new(WorkSpec::new(worker))));
        let value = Expr::step::<&str>("t", ["a", "b"]);
        step.inputs = vec![InputBinding { name: "x".into(), value, schema: Schema::default(), required: true }];
        step
    }

    fn is_refused(step: Step) -> bool {
        let scope = StepScope::new(ScopeShape::Graph, [shallow(), step]);
        let workflow = Workflow::new(WorkflowId::new("w").expect("a name"), scope);
        let problems = &mut ProblemCollector::default();
        check_depth(&Arc::new(workflow), &BTreeMap::new(), &WorkflowTerms::IR, problems).is_none()
    }

    #[test]
    fn what_is_not_measured_is_far_from_too_deep() {
        let step = shallow();
        assert!(is_shallow(&step));
        assert!(measure_json_depth(&step) < JSON_DEPTH / 4);
    }

    #[test]
    fn one_deep_step_among_shallow_ones_is_found() {
        let nested = (0..JSON_DEPTH).fold(json!(1), |inner, _| json!([inner]));
        let mut labelled = shallow();
        labelled.extensions.labels.insert("deep".to_owned(), nested.clone());
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
