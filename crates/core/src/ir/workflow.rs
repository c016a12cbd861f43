//! The workflow itself: its identity and inputs, its scopes of steps, and everything around them: hooks, triggers,
//! context and files. The latter are data for the host; the engine only knows that there are hooks, and files to
//! publish.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    expr::Expr,
    ids::{StepId, WorkflowId},
    ir::{
        Backoff, Budget, Schema, StatusWords, Step, StepKindSpec, UI, WorkflowExtensions, is_default,
        rules::WorkflowRules,
    },
    time::Millis,
};

/// The contents of a source, in the one form that is checked, planned and run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workflow {
    pub id: WorkflowId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The origin of the workflow. Shown to people; the engine never reads it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub origin: WorkflowOrigin,
    /// The schema of a run's input object.
    #[serde(default, skip_serializing_if = "is_default")]
    pub inputs: Schema,
    pub scope: StepScope,
    /// The spending limit of the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// The words for each status in the source's format.
    #[serde(default, skip_serializing_if = "is_default")]
    pub words: StatusWords,
    /// Values that expressions read as `env`; evaluated once, when the run starts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Expr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<WorkflowHook>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<WorkflowTrigger>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub context: WorkflowContext,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files_in: BTreeMap<String, InputFileSpec>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files_out: BTreeMap<String, OutputFileSpec>,
    /// The policies for the start of steps, which are judged when a run is bound.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rules: WorkflowRules,
    /// Settings for the host, and data that is only shown (tags, authors, a composer's marks).
    #[serde(default, rename = "labels", skip_serializing_if = "is_default")]
    pub extensions: WorkflowExtensions,
}

/// The format a workflow was written in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowOrigin {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub dialect: String,
}

impl Workflow {
    /// Visits every step, including nested ones.
    pub fn for_each_step_mut(&mut self, mut visit: impl FnMut(&mut Step)) {
        let mut scopes: Vec<&mut StepScope> = vec![&mut self.scope];
        while let Some(scope) = scopes.pop() {
            for step in &mut scope.steps {
                let step = Arc::make_mut(step);
                visit(step);
                match &mut step.kind {
                    StepKindSpec::Parallel(parallel) => {
                        scopes.extend(parallel.lanes.iter_mut().map(|lane| Arc::make_mut(&mut lane.scope)));
                    }
                    StepKindSpec::Each(each) => scopes.push(Arc::make_mut(&mut each.scope)),
                    StepKindSpec::Loop(repeat) => scopes.push(Arc::make_mut(&mut repeat.scope)),
                    StepKindSpec::Work(_)
                    | StepKindSpec::Gate(_)
                    | StepKindSpec::Wait(_)
                    | StepKindSpec::Branch(_)
                    | StepKindSpec::Call(_) => {}
                }
            }
        }
    }

    /// Returns the workflow without the marks of a composer. None if it has none.
    pub fn without_ui(&self) -> Option<Workflow> {
        let mut has_ui = self.extensions.labels.contains_key(UI);
        let mut scopes = vec![&self.scope];
        while let (false, Some(scope)) = (has_ui, scopes.pop()) {
            has_ui = scope.steps.iter().any(|step| step.extensions.labels.contains_key(UI));
            scopes.extend(scope.steps.iter().flat_map(|step| step.kind.inner_scopes()).map(|inner| &**inner));
        }
        has_ui.then(|| {
            let mut workflow = self.clone();
            workflow.extensions.labels.remove(UI);
            workflow.for_each_step_mut(Step::remove_ui);
            workflow
        })
    }

    /// Creates a workflow with this scope and nothing else.
    pub fn new(id: WorkflowId, scope: StepScope) -> Workflow {
        Workflow {
            id,
            name: None,
            version: None,
            description: None,
            origin: WorkflowOrigin::default(),
            inputs: Schema::default(),
            scope,
            budget: None,
            words: StatusWords::default(),
            env: BTreeMap::new(),
            hooks: Vec::new(),
            triggers: Vec::new(),
            context: WorkflowContext::default(),
            files_in: BTreeMap::new(),
            files_out: BTreeMap::new(),
            rules: WorkflowRules::default(),
            extensions: WorkflowExtensions::default(),
        }
    }
}

/// An action beside the run; its failure never changes the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowHook {
    pub when: HookTiming,
    pub action: HookAction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookTiming {
    Start,
    Success,
    Failure,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HookAction {
    Notify {
        channel: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<Expr>,
    },
    Run {
        program: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        arguments: Vec<Expr>,
    },
}

/// A way to start a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WorkflowTrigger {
    Manual {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
    },
    Cron {
        cron: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timezone: Option<String>,
    },
    Interval {
        every: Millis,
    },
    Calendar {
        rule: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timezone: Option<String>,
    },
    Webhook {
        path: String,
    },
    Event {
        event: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        condition: Option<Expr>,
    },
    /// A schedule that is stored elsewhere.
    Routine {
        reference: Value,
    },
}

/// Context that agents receive besides their instructions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkflowContext {
    /// The folder through which steps pass files to one another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemorySelection>,
}

/// The selection of memory entries that agents receive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemorySelection {
    pub scope: String,
    pub min_confidence: f64,
    pub categories: Vec<String>,
    pub max_tokens: u32,
}

/// A file of the workspace that is staged before the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputFileSpec {
    pub path: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub writable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
}

/// A file that is written to the workspace after the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputFileSpec {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub schema: Schema,
}

/// Steps and their order. A run is an instance of its workflow's scope; a lane of a parallel step, an item, a pass of a
/// loop and a call are instances of theirs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepScope {
    #[serde(default, skip_serializing_if = "is_default")]
    pub shape: ScopeShape,
    pub steps: Vec<Arc<Step>>,
    /// The number of its steps that may run at once. None: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Wall-clock time from the start of the instance to its end, undo excluded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    /// The number of step executions that the workflow may have, including items and passes, without retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// The effect of an aborting failure on the running steps.
    #[serde(default, skip_serializing_if = "is_default")]
    pub siblings: SiblingPolicy,
    #[serde(default, skip_serializing_if = "is_default")]
    pub undo: UndoPolicy,
    /// Retry of the whole run; only at the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RunRetry>,
    /// The result of an instance. None: the output of the last step in a routed scope, nothing in a graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Expr>,
    /// The schema of the result.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outputs: Schema,
}

impl StepScope {
    pub fn new(shape: ScopeShape, steps: impl IntoIterator<Item: Into<Arc<Step>>>) -> StepScope {
        StepScope {
            shape,
            steps: steps.into_iter().map(Into::into).collect(),
            concurrency: None,
            timeout: None,
            max_steps: None,
            siblings: SiblingPolicy::default(),
            undo: UndoPolicy::default(),
            retry: None,
            result: None,
            outputs: Schema::default(),
        }
    }
}

/// The order in which the steps of a scope run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ScopeShape {
    /// Each step waits for all of its dependencies.
    #[default]
    Graph,
    /// One cursor starts at a step and follows `next`, arms and decisions.
    Routed {
        /// None: the first step.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start: Option<StepId>,
        /// True if the cursor may come back to a step, bounded by `max_steps`.
        #[serde(default, skip_serializing_if = "is_default")]
        cycles: bool,
    },
}

/// The target of a cursor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteTarget {
    Step(StepId),
    /// The end of this scope: of the run, the lane, the item or the pass.
    End,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SiblingPolicy {
    /// Running steps are stopped.
    #[default]
    Cancel,
    /// Running steps finish; nothing new starts.
    Drain,
}

/// The events after which the completed steps of a workflow are undone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UndoPolicy {
    #[serde(skip_serializing_if = "is_default")]
    pub on_timeout: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub on_cancel: bool,
    /// True if the step whose failure started the undo is undone too.
    #[serde(skip_serializing_if = "is_default")]
    pub failed_step: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub if_one_fails: UndoFailurePolicy,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UndoFailurePolicy {
    /// Continue with the others.
    #[default]
    GoOn,
    /// Leave the others as they are.
    Stop,
}

/// Retry of a whole run, as a new run that is linked to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRetry {
    /// The maximum number of runs, including the first.
    pub attempts: u32,
    pub backoff: Backoff,
    /// True if a run that timed out is retried.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_timeout: bool,
}
