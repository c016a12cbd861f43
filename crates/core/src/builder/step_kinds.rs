//! The eight step kinds, each with its own fields.
//!
//! Steps are referenced by id, and `$end` ends the list that a step is in. Conditions and values use AIP-15's
//! expression language; they are parsed when the workflow is committed.

use std::fmt;

use serde_json::Value;

use super::step::StepHandle;
use crate::ir::{Approver, EachErrorPolicy};

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

    #[must_use]
    pub fn with_pinned_provider(mut self, driver: impl Into<String>) -> ToolStep {
        self.pinned_provider = Some(driver.into());
        self
    }
}

/// Chooses the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
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

    #[must_use]
    pub fn with_arm(mut self, condition: impl Into<String>, next: impl Into<String>) -> BranchStep {
        self.branches.push(BranchArm { when: condition.into(), next: next.into() });
        self
    }
}

/// Runs lists of steps in parallel and continues when all have ended.
#[derive(Debug, Clone, Default)]
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

    #[must_use]
    pub fn with_lane(mut self, id: impl Into<String>, steps: impl IntoIterator<Item = StepHandle>) -> ParallelStep {
        let lane = ParallelLane { id: id.into(), next: None, steps: steps.into_iter().collect() };
        self.lanes.push(lane);
        self
    }
}

/// Waits for an external event.
#[derive(Debug, Clone, PartialEq, Eq)]
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

    #[must_use]
    pub fn with_timeout(mut self, timeout_ms: u64, then: TimeoutRule) -> SuspendStep {
        self.timeout_ms = Some(timeout_ms);
        self.on_timeout = then;
        self
    }
}

/// Waits for a person's decision, for at most the step's own `timeout_ms`.
#[derive(Debug, Clone, Default)]
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

    #[must_use]
    pub fn with_artifact(mut self, artifact: impl Into<Value>) -> ApprovalStep {
        self.artifacts.push(artifact.into());
        self
    }

    #[must_use]
    pub fn with_role(mut self, role: impl Into<String>) -> ApprovalStep {
        self.approvers.push(Approver::Role(role.into()));
        self
    }

    #[must_use]
    pub fn with_user(mut self, user: impl Into<String>) -> ApprovalStep {
        self.approvers.push(Approver::User(user.into()));
        self
    }

    #[must_use]
    pub fn with_on_timeout(mut self, then: TimeoutRule) -> ApprovalStep {
        self.on_timeout = then;
        self
    }

    #[must_use]
    pub fn with_on_approve(mut self, next: impl Into<String>) -> ApprovalStep {
        self.on_approve = Some(next.into());
        self
    }

    #[must_use]
    pub fn with_on_reject(mut self, next: impl Into<String>) -> ApprovalStep {
        self.on_reject = Some(next.into());
        self
    }
}

/// Runs a list of steps once for each item.
#[derive(Debug, Clone)]
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

    #[must_use]
    pub fn with_parallelism(mut self, items: u32) -> MapStep {
        self.parallelism = Some(items);
        self
    }

    #[must_use]
    pub fn with_on_error(mut self, errors: EachErrorPolicy) -> MapStep {
        self.on_error = errors;
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
