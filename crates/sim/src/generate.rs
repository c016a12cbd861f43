//! Random workflows over the whole IR, always valid.
//!
//! Owns the drawing of workflows and parameters from a seed. Refuses to know how they run. A workflow is drawn from a
//! [`Table`] that resembles one of the formats, or a mixture of all; most are small, since a defect that needs three
//! steps is found sooner among many small ones.

mod kind;
mod policy;
mod pool;
mod scope;
mod words;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use skein_core::{
    ids::WorkflowId,
    ir::{
        Context, FileOut, Hook, HookAction, HookWhen, RunRetry, RunStatus, Schema, StepStatus, Words,
        Workflow,
    },
};

use self::scope::Readable;
use crate::rng::Rng;

/// How large a workflow may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Steps of the root scope, at most.
    root: u32,
    /// Steps of an inner scope, at most.
    inner: u32,
    /// Scopes inside one another.
    depth: u32,
    /// Steps in all, about.
    total: u32,
}

impl Size {
    /// Four to six steps on average.
    pub const fn small() -> Size {
        Size { root: 5, inner: 2, depth: 2, total: 9 }
    }

    pub const fn large() -> Size {
        Size { root: 14, inner: 4, depth: 3, total: 50 }
    }
}

/// A workflow, what it calls, and what a run of it is given.
#[derive(Debug, Clone)]
pub struct Generated {
    pub workflow: Arc<Workflow>,
    pub library: BTreeMap<String, Arc<Workflow>>,
    pub parameters: Value,
}

/// Whose habits the policies follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Table {
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

struct Gen {
    rng: Rng,
    size: Size,
    table: Table,
    /// The number of the next step id.
    ids: usize,
    left: u32,
    /// Workflows that may be called.
    calls: Vec<String>,
    /// Whether timeouts of scopes and steps can be due.
    hurried: bool,
}

/// The workflow of this seed.
pub fn workflow(seed: u64, size: Size) -> Generated {
    let mut rng = Rng::new(seed);
    let called = if rng.percent(25) { rng.small(1, 2) } else { 0 };
    let mut library = BTreeMap::new();
    for n in 0..called {
        let name = format!("called-{n}");
        let small = Size { root: 2, inner: 1, depth: 1, total: 3 };
        // The second may call the first.
        let calls = library.keys().cloned().collect();
        let mut made = Gen::new(rng.fork(&name), small, calls).workflow(&name, pool::CALLED);
        let mut rng = rng.fork("budget");
        made.budget = rng.percent(10).then(|| policy::budget(&mut rng));
        library.insert(name, Arc::new(made));
    }
    let mut draw = Gen::new(rng.fork("root"), size, library.keys().cloned().collect());
    let mut root = draw.workflow("root", pool::PARAMETERS);
    surround(&mut draw.rng, &mut root);
    Generated { workflow: Arc::new(root), library, parameters: parameters(&mut rng.fork("parameters")) }
}

impl Gen {
    fn new(mut rng: Rng, size: Size, calls: Vec<String>) -> Gen {
        let table = *rng.pick(&[Table::AgentCore, Table::Ioa, Table::Swdl, Table::Aip, Table::Mixed]);
        let hurried = rng.percent(12);
        Gen { rng, size, table, ids: 0, left: size.total, calls, hurried }
    }

    fn workflow(&mut self, name: &str, inputs: usize) -> Workflow {
        let around = Readable::outermost();
        let most = self.size.root;
        let mut scope = self.scope(&around, self.size.depth, most, true);
        self.root_policies(&mut scope);
        let id = WorkflowId::new(name).expect("generated names are names");
        let mut workflow = Workflow::new(id, scope);
        workflow.inputs = pool::schema(inputs);
        if self.table == Table::Swdl {
            workflow.words = swdl_words();
        }
        if self.rng.percent(15) {
            workflow.env.insert("LEVEL".into(), pool::value(&json!("$input.n")));
            workflow.env.insert("PLACE".into(), pool::value(&json!("here")));
        }
        workflow
    }
}

fn swdl_words() -> Words {
    let mut words = Words::default();
    words.run.insert(RunStatus::Succeeded, "completed".into());
    words.step.insert(StepStatus::Succeeded, "success".into());
    words.step.insert(StepStatus::Waiting, "waiting_for_approval".into());
    words
}

/// What only the root of a run has: hooks, files, a retry of the whole, a budget.
fn surround(rng: &mut Rng, workflow: &mut Workflow) {
    if rng.percent(20) {
        for when in [HookWhen::Start, HookWhen::Success, HookWhen::Failure] {
            if rng.percent(60) {
                workflow.hooks.push(Hook { when, action: hook(rng) });
            }
        }
    }
    if rng.percent(8) {
        let file = FileOut { path: "out.txt".into(), content_type: None, schema: Schema::default() };
        workflow.files_out.insert("out".into(), file);
    }
    if rng.percent(8) {
        workflow.context = Context { directory: Some("context".into()), ..Context::default() };
    }
    if rng.percent(15) {
        workflow.scope.retry = Some(RunRetry {
            attempts: rng.small(1, 3),
            backoff: policy::backoff(rng),
            on_timeout: rng.percent(50),
        });
    }
    if rng.percent(6) {
        workflow.budget = Some(policy::budget(rng));
    }
}

fn hook(rng: &mut Rng) -> HookAction {
    if rng.percent(50) {
        HookAction::Notify { channel: "team".into(), message: None }
    } else {
        HookAction::Run { program: "say".into(), arguments: vec![pool::value(&json!("$input.word"))] }
    }
}

/// What a run is given: small numbers, so that conditions go both ways.
fn parameters(rng: &mut Rng) -> Value {
    let mut given = json!({"n": rng.below(5), "flag": rng.percent(50)});
    let object = given.as_object_mut().expect("it was made as an object");
    if rng.percent(50) {
        object.insert("word".into(), json!(rng.pick(&["a", "b", "c"])));
    }
    if rng.percent(85) {
        let length = rng.below(5);
        object.insert("list".into(), (0..length).map(|_| json!(rng.below(4))).collect());
    }
    if rng.percent(60) {
        let odd = if rng.percent(50) { json!([3, {"n": 1}]) } else { json!(7) };
        object.insert("odd".into(), odd);
    }
    given
}

#[cfg(test)]
mod tests;
