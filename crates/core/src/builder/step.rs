//! One step as a program defines it: the fields common to all kinds, the eight kinds with their own fields, and
//! AIP-15's policies of approval, risk, cost and retry.
//!
//! Steps are referenced by id, and `$end` ends the list that a step is in. Conditions and values use AIP-15's
//! expression language; they are parsed when the workflow is committed.

use std::{fmt, sync::Arc};

use serde_json::{Map, Value};

use crate::{
    builder::aip15,
    ir::{Approver, Backoff, BackoffGrowth, EachErrorPolicy, RunRetry, StepRetry, rules::ApprovalCondition},
    limits,
    time::Millis,
};

/// The argument of [`define_step`].
#[derive(Debug, Clone)]
#[must_use]
pub struct StepDefinition {
    pub id: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub kind: StepKind,
    /// Values in AIP-15's value language: `$` paths, and anything else as it is.
    pub inputs: Map<String, Value>,
    /// A JSON Schema.
    pub outputs: Option<Value>,
    /// A step's id or `$end`. None: the following step that nothing else routes to.
    pub next: Option<String>,
    /// None: the workflow's class.
    pub approval: Option<ApprovalClass>,
    pub risk_level: Option<RiskLevel>,
    pub timeout_ms: Option<u64>,
    pub retry: Option<RetryDefinition>,
    /// The id of the step that undoes this one.
    pub compensation: Option<String>,
    /// Kept unchanged.
    pub metadata: Map<String, Value>,
}

impl StepDefinition {
    pub fn new(id: impl Into<String>, kind: impl Into<StepKind>) -> StepDefinition {
        StepDefinition {
            id: id.into(),
            name: None,
            description: None,
            kind: kind.into(),
            inputs: Map::new(),
            outputs: None,
            next: None,
            approval: None,
            risk_level: None,
            timeout_ms: None,
            retry: None,
            compensation: None,
            metadata: Map::new(),
        }
    }

    pub fn with_input(mut self, name: impl Into<String>, value: impl Into<Value>) -> StepDefinition {
        self.inputs.insert(name.into(), value.into());
        self
    }

    pub fn with_outputs(mut self, schema: impl Into<Value>) -> StepDefinition {
        self.outputs = Some(schema.into());
        self
    }

    pub fn with_next(mut self, next: impl Into<String>) -> StepDefinition {
        self.next = Some(next.into());
        self
    }

    pub fn with_approval(mut self, class: ApprovalClass) -> StepDefinition {
        self.approval = Some(class);
        self
    }

    pub fn with_timeout_ms(mut self, timeout_ms: u64) -> StepDefinition {
        self.timeout_ms = Some(timeout_ms);
        self
    }

    pub fn with_retry(mut self, retry: RetryDefinition) -> StepDefinition {
        self.retry = Some(retry);
        self
    }

    pub fn with_compensation(mut self, step: impl Into<String>) -> StepDefinition {
        self.compensation = Some(step.into());
        self
    }
}

/// A defined step, which can be added to workflows and to other steps.
#[derive(Debug, Clone)]
pub struct StepHandle(Arc<StepDefinition>);

impl StepHandle {
    pub fn id(&self) -> &str {
        &self.0.id
    }

    pub fn definition(&self) -> &StepDefinition {
        &self.0
    }
}

/// Declares one step. The same handle can be used in several workflows.
///
/// ```
/// use serde_json::json;
/// use skein_core::builder::*;
///
/// let charge = define_step(
///     StepDefinition::new("charge-card", ToolStep::tool("stripe-charge"))
///         .with_input("amount", json!("$input.amount"))
///         .with_outputs(json!({"type": "object", "properties": {"chargeId": {"type": "string"}}}))
///         .with_retry(RetryDefinition::exponential(3))
///         .with_timeout_ms(20_000)
///         .with_compensation("refund-card"),
/// );
/// assert_eq!(charge.id(), "charge-card");
/// assert_eq!(charge.definition().kind.word(), "tool");
/// ```
pub fn define_step(definition: StepDefinition) -> StepHandle {
    StepHandle(Arc::new(definition))
}

/// The kind of a step, with its fields.
#[derive(Debug, Clone)]
pub enum StepKind {
    Tool(ToolStep),
    Branch(BranchStep),
    Parallel(ParallelStep),
    Suspend(SuspendStep),
    Approval(ApprovalStep),
    Map(MapStep),
    Loop(LoopStep),
    Subworkflow(SubworkflowStep),
}

impl StepKind {
    /// The kind's word in AIP-15.
    pub fn word(&self) -> &'static str {
        match self {
            StepKind::Tool(_) => "tool",
            StepKind::Branch(_) => "branch",
            StepKind::Parallel(_) => "parallel",
            StepKind::Suspend(_) => "suspend",
            StepKind::Approval(_) => "approval",
            StepKind::Map(_) => "map",
            StepKind::Loop(_) => "loop",
            StepKind::Subworkflow(_) => "subworkflow",
        }
    }

    /// Returns the lists of steps inside.
    pub fn step_lists(&self) -> Vec<&[StepHandle]> {
        match self {
            StepKind::Parallel(parallel) => parallel.lanes.iter().map(|lane| &lane.steps[..]).collect(),
            StepKind::Map(map) => vec![&map.steps],
            StepKind::Loop(repeat) => vec![&repeat.steps],
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

macro_rules! kinds {
    ($($variant:ident($name:ident),)*) => { $(
        impl From<$name> for StepKind {
            fn from(kind: $name) -> StepKind {
                StepKind::$variant(kind)
            }
        }
    )* };
}

kinds! {
    Tool(ToolStep),
    Branch(BranchStep),
    Parallel(ParallelStep),
    Suspend(SuspendStep),
    Approval(ApprovalStep),
    Map(MapStep),
    Loop(LoopStep),
    Subworkflow(SubworkflowStep),
}

/// Runs one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolStep {
    pub implementation: ToolImplementation,
    /// The only driver that may provide the tool.
    pub pinned_provider: Option<String>,
}

/// The tool to run, by its id or by an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolImplementation {
    Tool(String),
    /// Any tool that implements this action.
    Action(String),
}

impl ToolStep {
    pub fn tool(id: impl Into<String>) -> ToolStep {
        ToolStep { implementation: ToolImplementation::Tool(id.into()), pinned_provider: None }
    }

    pub fn action(reference: impl Into<String>) -> ToolStep {
        ToolStep { implementation: ToolImplementation::Action(reference.into()), pinned_provider: None }
    }
}

/// Chooses the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct BranchStep {
    /// The first arm whose condition is true is taken.
    pub branches: Vec<BranchArm>,
    /// Taken if no arm matches.
    pub default: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchArm {
    pub when: String,
    pub next: String,
}

impl BranchStep {
    /// Creates a branch without arms, which routes to `default`.
    pub fn with_default(default: impl Into<String>) -> BranchStep {
        BranchStep { branches: Vec::new(), default: default.into() }
    }

    pub fn with_arm(mut self, condition: impl Into<String>, next: impl Into<String>) -> BranchStep {
        self.branches.push(BranchArm { when: condition.into(), next: next.into() });
        self
    }
}

/// Runs lists of steps in parallel and continues when all have ended.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct ParallelStep {
    pub lanes: Vec<ParallelLane>,
}

#[derive(Debug, Clone)]
pub struct ParallelLane {
    pub id: String,
    /// Only repeats the target after the lanes: the same as the parallel step's own `next`, or none.
    pub next: Option<String>,
    pub steps: Vec<StepHandle>,
}

impl ParallelStep {
    pub fn new() -> ParallelStep {
        ParallelStep::default()
    }

    pub fn with_lane(mut self, id: impl Into<String>, steps: impl IntoIterator<Item = StepHandle>) -> ParallelStep {
        let lane = ParallelLane { id: id.into(), next: None, steps: steps.into_iter().collect() };
        self.lanes.push(lane);
        self
    }
}

/// Waits for an external event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct SuspendStep {
    /// Any one of these events ends the wait.
    pub on: Vec<String>,
    pub timeout_ms: Option<u64>,
    pub on_timeout: TimeoutRule,
}

/// The action when nothing arrives before the timeout.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TimeoutRule {
    #[default]
    Cancel,
    Continue,
    /// Routes to the step `escalate` if there is one, otherwise asks once more. Only for an approval.
    Escalate,
    Step(String),
}

impl SuspendStep {
    pub fn new<S: Into<String>>(events: impl IntoIterator<Item = S>) -> SuspendStep {
        let on = events.into_iter().map(Into::into).collect();
        SuspendStep { on, timeout_ms: None, on_timeout: TimeoutRule::default() }
    }

    pub fn with_timeout(mut self, timeout_ms: u64, then: TimeoutRule) -> SuspendStep {
        self.timeout_ms = Some(timeout_ms);
        self.on_timeout = then;
        self
    }
}

/// Waits for a person's decision, for at most the step's own `timeout_ms`.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct ApprovalStep {
    pub prompt: String,
    /// The values that the person should review.
    pub artifacts: Vec<Value>,
    /// Any one of these suffices.
    pub approvers: Vec<Approver>,
    pub on_timeout: TimeoutRule,
    pub on_approve: Option<String>,
    /// None: a rejection fails the run.
    pub on_reject: Option<String>,
}

impl ApprovalStep {
    pub fn new(prompt: impl Into<String>) -> ApprovalStep {
        ApprovalStep { prompt: prompt.into(), ..ApprovalStep::default() }
    }

    pub fn with_artifact(mut self, artifact: impl Into<Value>) -> ApprovalStep {
        self.artifacts.push(artifact.into());
        self
    }

    pub fn with_role(mut self, role: impl Into<String>) -> ApprovalStep {
        self.approvers.push(Approver::Role(role.into()));
        self
    }

    pub fn with_on_timeout(mut self, then: TimeoutRule) -> ApprovalStep {
        self.on_timeout = then;
        self
    }

    pub fn with_on_approve(mut self, next: impl Into<String>) -> ApprovalStep {
        self.on_approve = Some(next.into());
        self
    }

    pub fn with_on_reject(mut self, next: impl Into<String>) -> ApprovalStep {
        self.on_reject = Some(next.into());
        self
    }
}

/// Runs a list of steps once for each item.
#[derive(Debug, Clone)]
#[must_use]
pub struct MapStep {
    /// A value expression that evaluates to a list.
    pub over: Value,
    /// The number of items that run at once. None: four. 0: no limit.
    pub parallelism: Option<u32>,
    pub on_error: EachErrorPolicy,
    pub steps: Vec<StepHandle>,
}

impl MapStep {
    pub fn new(list: impl Into<Value>, steps: impl IntoIterator<Item = StepHandle>) -> MapStep {
        let steps = steps.into_iter().collect();
        MapStep { over: list.into(), parallelism: None, on_error: EachErrorPolicy::default(), steps }
    }

    pub fn with_parallelism(mut self, items: u32) -> MapStep {
        self.parallelism = Some(items);
        self
    }
}

/// Repeats a list of steps while a condition is true.
#[derive(Debug, Clone)]
pub struct LoopStep {
    pub condition: String,
    pub max_iterations: u32,
    pub steps: Vec<StepHandle>,
}

impl LoopStep {
    /// Creates a loop. The condition counts as true the first time if it reads a step inside that has not run.
    pub fn repeat_while(
        condition: impl Into<String>,
        max_iterations: u32,
        steps: impl IntoIterator<Item = StepHandle>,
    ) -> LoopStep {
        LoopStep { condition: condition.into(), max_iterations, steps: steps.into_iter().collect() }
    }
}

/// Runs another workflow as one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubworkflowStep {
    pub workflow: String,
}

impl SubworkflowStep {
    pub fn new(workflow: impl Into<String>) -> SubworkflowStep {
        SubworkflowStep { workflow: workflow.into() }
    }
}

/// The condition under which a step needs approval before it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ApprovalClass {
    Auto,
    Always,
    OnMutate,
    /// As the tool declares.
    #[default]
    PerStep,
    /// As the referenced policy says.
    Policy(String),
}

impl ApprovalClass {
    pub fn word(&self) -> String {
        match self {
            ApprovalClass::Auto => "auto".to_owned(),
            ApprovalClass::Always => "always".to_owned(),
            ApprovalClass::OnMutate => "on-mutate".to_owned(),
            ApprovalClass::PerStep => "per-step".to_owned(),
            ApprovalClass::Policy(reference) => format!("policy:{reference}"),
        }
    }
}

impl From<ApprovalClass> for ApprovalCondition {
    fn from(class: ApprovalClass) -> ApprovalCondition {
        match class {
            ApprovalClass::Auto => ApprovalCondition::Auto,
            ApprovalClass::PerStep => ApprovalCondition::PerStep,
            ApprovalClass::OnMutate => ApprovalCondition::OnMutate,
            ApprovalClass::Always => ApprovalCondition::Always,
            ApprovalClass::Policy(name) => ApprovalCondition::Policy(name),
        }
    }
}

/// The harm that a step or workflow could do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RiskLevel {
    ReadOnly = 0,
    ScopedWrites = 1,
    ExternalEffects = 2,
    Irreversible = 3,
}

/// The expected cost of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CostClass {
    Trivial,
    #[default]
    Metered,
    Expensive,
}

impl CostClass {
    pub(super) fn word(self) -> &'static str {
        match self {
            CostClass::Trivial => "trivial",
            CostClass::Metered => "metered",
            CostClass::Expensive => "expensive",
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BackoffKind {
    Fixed,
    #[default]
    Exponential,
}

/// The number of attempts and the delays between them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct RetryDefinition {
    /// All attempts, including the first.
    pub max_attempts: u32,
    pub backoff: BackoffKind,
    /// None: one second.
    pub initial_ms: Option<u64>,
}

impl RetryDefinition {
    pub fn fixed(max_attempts: u32) -> RetryDefinition {
        RetryDefinition { max_attempts, backoff: BackoffKind::Fixed, initial_ms: None }
    }

    pub fn exponential(max_attempts: u32) -> RetryDefinition {
        RetryDefinition { max_attempts, backoff: BackoffKind::Exponential, initial_ms: None }
    }

    pub fn with_initial_ms(mut self, initial_ms: u64) -> RetryDefinition {
        self.initial_ms = Some(initial_ms);
        self
    }

    fn to_backoff(&self) -> Backoff {
        Backoff {
            initial: self.initial_ms.map_or(aip15::BACKOFF_INITIAL, Millis),
            growth: match self.backoff {
                BackoffKind::Fixed => BackoffGrowth::Constant,
                BackoffKind::Exponential => BackoffGrowth::Exponential(aip15::BACKOFF_GROWTH),
            },
            max: Millis(limits::BACKOFF),
            jitter: false,
        }
    }

    pub(super) fn to_step_retry(&self) -> StepRetry {
        StepRetry::for_classes(&aip15::RETRIED, self.max_attempts, self.to_backoff())
    }

    pub(super) fn to_run_retry(&self) -> RunRetry {
        RunRetry { attempts: self.max_attempts, backoff: self.to_backoff(), on_timeout: false }
    }
}
