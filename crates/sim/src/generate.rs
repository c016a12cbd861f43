//! Random workflows over the whole IR, always valid.
//!
//! Owns the drawing of workflows and parameters from a seed. Does not know how they run. A workflow is drawn in a
//! `GeneratorStyle` that resembles one of the formats, or a mixture of all. Most workflows are small, since a defect
//! that needs three steps is found sooner among many small ones. One workflow is handwritten, for phases that random ones
//! hardly ever reach.

mod expressions;
mod scope;
mod step;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use skein_core::{
    ids::{BranchId, StepId, WorkflowId},
    ir::{
        Backoff, BackoffGrowth, ErrorClass, HookAction, HookTiming, LaneSpec, OutputFileSpec, ParallelSpec, RunRetry,
        RunStatus, Schema, ScopeShape, StatusWords, Step, StepKindSpec, StepRetry, StepScope, StepStatus, UndoSpec,
        WorkSpec, WorkerSpec, Workflow, WorkflowContext, WorkflowHook,
    },
    plan::{Plan, check_workflow},
    time::Millis,
};

use crate::rng::Rng;
use scope::ReadableScope;

/// Limits on the size of a generated workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkflowSize {
    /// The maximum number of steps in the root scope.
    root: u32,
    /// The maximum number of steps in an inner scope.
    inner: u32,
    /// The maximum nesting depth of scopes.
    depth: u32,
    /// The approximate total number of steps.
    total: u32,
}

impl WorkflowSize {
    /// Four to six steps on average.
    pub const fn small() -> WorkflowSize {
        WorkflowSize { root: 5, inner: 2, depth: 2, total: 9 }
    }

    pub const fn large() -> WorkflowSize {
        WorkflowSize { root: 14, inner: 4, depth: 3, total: 50 }
    }
}

/// A workflow, the workflows that it calls, and the parameters of a run.
#[derive(Debug, Clone)]
pub struct GeneratedWorkflow {
    pub workflow: Arc<Workflow>,
    pub library: BTreeMap<String, Arc<Workflow>>,
    pub parameters: Value,
}

/// The format whose typical policies a generated workflow follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GeneratorStyle {
    /// Checks, continue or abort, no undo.
    AgentCore,
    /// Undo on failure.
    Ioa,
    /// Conditions satisfy, stop or skip.
    Swdl,
    /// Routed, undo.
    Aip,
    Mixed,
}

struct WorkflowGenerator {
    rng: Rng,
    size: WorkflowSize,
    table: GeneratorStyle,
    /// The number of the next step id.
    ids: usize,
    left: u32,
    /// Workflows that may be called.
    calls: Vec<String>,
    /// True if timeouts of scopes and steps are short enough to be due.
    hurried: bool,
}

/// Generates the workflow of this seed.
pub fn generate_workflow(seed: u64, size: WorkflowSize) -> GeneratedWorkflow {
    let mut rng = Rng::new(seed);
    let called = if rng.chance_percent(25) { rng.next_u32_between(1, 2) } else { 0 };
    let mut library = BTreeMap::new();
    for n in 0..called {
        let name = format!("called-{n}");
        let small = WorkflowSize { root: 2, inner: 1, depth: 1, total: 3 };
        // The second may call the first.
        let calls = library.keys().cloned().collect();
        let mut made = WorkflowGenerator::new(rng.fork(&name), small, calls).draw_workflow(&name, expressions::CALLED);
        let mut rng = rng.fork("budget");
        made.budget = rng.chance_percent(10).then(|| step::draw_budget(&mut rng));
        library.insert(name, Arc::new(made));
    }
    let mut draw = WorkflowGenerator::new(rng.fork("root"), size, library.keys().cloned().collect());
    let mut root = draw.draw_workflow("root", expressions::PARAMETERS);
    add_root_features(&mut draw.rng, &mut root);
    GeneratedWorkflow { workflow: Arc::new(root), library, parameters: draw_parameters(&mut rng.fork("parameters")) }
}

impl WorkflowGenerator {
    fn new(mut rng: Rng, size: WorkflowSize, calls: Vec<String>) -> WorkflowGenerator {
        let table = *rng.pick(&[
            GeneratorStyle::AgentCore,
            GeneratorStyle::Ioa,
            GeneratorStyle::Swdl,
            GeneratorStyle::Aip,
            GeneratorStyle::Mixed,
        ]);
        let hurried = rng.chance_percent(12);
        WorkflowGenerator { rng, size, table, ids: 0, left: size.total, calls, hurried }
    }

    fn draw_workflow(&mut self, name: &str, inputs: usize) -> Workflow {
        let around = ReadableScope::new();
        let most = self.size.root;
        let mut scope = self.draw_scope(&around, self.size.depth, most, true);
        self.draw_root_policies(&mut scope);
        let id = WorkflowId::new(name).expect("generated names are names");
        let mut workflow = Workflow::new(id, scope);
        workflow.inputs = expressions::shared_schema(inputs);
        if self.table == GeneratorStyle::Swdl {
            workflow.words = swdl_words();
        }
        if self.rng.chance_percent(15) {
            workflow.env.insert("LEVEL".into(), expressions::parse_value(&json!("$input.n")));
            workflow.env.insert("PLACE".into(), expressions::parse_value(&json!("here")));
        }
        workflow
    }
}

fn swdl_words() -> StatusWords {
    let mut words = StatusWords::default();
    words.run.insert(RunStatus::Succeeded, "completed".into());
    words.step.insert(StepStatus::Succeeded, "success".into());
    words.step.insert(StepStatus::Waiting, "waiting_for_approval".into());
    words
}

/// Adds the features that only the root of a run has: hooks, files, a retry of the whole run, a budget.
fn add_root_features(rng: &mut Rng, workflow: &mut Workflow) {
    if rng.chance_percent(20) {
        for when in [HookTiming::Start, HookTiming::Success, HookTiming::Failure] {
            if rng.chance_percent(60) {
                workflow.hooks.push(WorkflowHook { when, action: draw_hook_action(rng) });
            }
        }
    }
    if rng.chance_percent(8) {
        let file = OutputFileSpec { path: "out.txt".into(), content_type: None, schema: Schema::default() };
        workflow.files_out.insert("out".into(), file);
    }
    if rng.chance_percent(8) {
        workflow.context = WorkflowContext { directory: Some("context".into()), ..WorkflowContext::default() };
    }
    if rng.chance_percent(15) {
        workflow.scope.retry = Some(RunRetry {
            attempts: rng.next_u32_between(1, 3),
            backoff: step::draw_backoff(rng),
            on_timeout: rng.chance_percent(50),
        });
    }
    if rng.chance_percent(6) {
        workflow.budget = Some(step::draw_budget(rng));
    }
}

fn draw_hook_action(rng: &mut Rng) -> HookAction {
    if rng.chance_percent(50) {
        HookAction::Notify { channel: "team".into(), message: None }
    } else {
        HookAction::Run { program: "say".into(), arguments: vec![expressions::parse_value(&json!("$input.word"))] }
    }
}

/// Draws the parameters of a run: small numbers, so that conditions become both true and false.
fn draw_parameters(rng: &mut Rng) -> Value {
    let mut given = json!({"n": rng.next_below(5), "flag": rng.chance_percent(50)});
    let object = given.as_object_mut().expect("it was made as an object");
    if rng.chance_percent(50) {
        object.insert("word".into(), json!(rng.pick(&["a", "b", "c"])));
    }
    if rng.chance_percent(85) {
        let length = rng.next_below(5);
        object.insert("list".into(), (0..length).map(|_| json!(rng.next_below(4))).collect());
    }
    if rng.chance_percent(60) {
        let odd = if rng.chance_percent(50) { json!([3, {"n": 1}]) } else { json!(7) };
        object.insert("odd".into(), odd);
    }
    given
}

/// The id of the workflow.
pub const NAME: &str = "scenario";

/// Builds composites that wait for their slot, fail after a step inside completed, and are undone and retried.
pub fn build_plan() -> Plan {
    let composite = |n: u32| {
        let steps = vec![undoable_step(&format!("first-{n}")), work_step(&format!("second-{n}"))];
        let lane = |name: &str, steps| LaneSpec {
            id: BranchId::new(name).expect("it is a name"),
            scope: Arc::new(StepScope::new(ScopeShape::Routed { start: None, cycles: false }, steps)),
        };
        let lanes = vec![lane("left", steps), lane("right", vec![work_step(&format!("third-{n}"))])];
        with_retry(Step::new(step_id(&format!("both-{n}")), StepKindSpec::Parallel(Box::new(ParallelSpec { lanes }))))
    };
    let mut scope = StepScope::new(ScopeShape::Graph, vec![composite(1), composite(2), composite(3)]);
    scope.concurrency = Some(1);
    let workflow = Workflow::new(WorkflowId::new(NAME).expect("it is a name"), scope);
    let definition = check_workflow(Arc::new(workflow), &()).definition.expect("it is valid");
    definition.bind(json!({})).expect("it takes nothing")
}

fn step_id(name: &str) -> StepId {
    StepId::new(name).expect("it is a name")
}

fn tool_work() -> WorkSpec {
    WorkSpec::new(WorkerSpec::Tool { tool: "tool".into(), pinned: None })
}

fn work_step(name: &str) -> Step {
    Step::new(step_id(name), StepKindSpec::Work(Box::new(tool_work())))
}

fn undoable_step(name: &str) -> Step {
    let undo = UndoSpec {
        id: step_id(&format!("undo-{name}")),
        work: tool_work(),
        inputs: Vec::new(),
        timeout: None,
        retry: StepRetry::default(),
    };
    Step { undo: Some(Box::new(undo)), ..work_step(name) }
}

fn with_retry(mut step: Step) -> Step {
    let backoff = Backoff { initial: Millis(100), growth: BackoffGrowth::Constant, max: Millis(1_000), jitter: false };
    step.policy.retry = StepRetry::for_classes(&ErrorClass::ALL, 4, backoff);
    step
}

#[cfg(test)]
mod tests;
