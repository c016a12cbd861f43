//! The eight kinds of step.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{GateSpec, RouteTarget, StepScope, WaitSpec, WorkSpec, is_default};
use crate::{
    expr::Expr,
    ids::{ArtifactName, BranchId, StepId},
};

/// The kind of a step, with its contents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKindSpec {
    Work(Box<WorkSpec>),
    Gate(Box<GateSpec>),
    Wait(Box<WaitSpec>),
    Branch(Box<BranchSpec>),
    Parallel(Box<ParallelSpec>),
    Each(Box<EachSpec>),
    Loop(Box<LoopSpec>),
    Call(Box<CallSpec>),
}

/// A kind without its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKindName {
    Work,
    Gate,
    Wait,
    Branch,
    Parallel,
    Each,
    Loop,
    Call,
}

impl StepKindName {
    pub const ALL: [StepKindName; 8] = [
        StepKindName::Work,
        StepKindName::Gate,
        StepKindName::Wait,
        StepKindName::Branch,
        StepKindName::Parallel,
        StepKindName::Each,
        StepKindName::Loop,
        StepKindName::Call,
    ];
}

impl StepKindSpec {
    pub fn name(&self) -> StepKindName {
        match self {
            StepKindSpec::Work(_) => StepKindName::Work,
            StepKindSpec::Gate(_) => StepKindName::Gate,
            StepKindSpec::Wait(_) => StepKindName::Wait,
            StepKindSpec::Branch(_) => StepKindName::Branch,
            StepKindSpec::Parallel(_) => StepKindName::Parallel,
            StepKindSpec::Each(_) => StepKindName::Each,
            StepKindSpec::Loop(_) => StepKindName::Loop,
            StepKindSpec::Call(_) => StepKindName::Call,
        }
    }

    /// Returns the scopes inside, in order.
    pub fn inner_scopes(&self) -> Vec<&Arc<StepScope>> {
        match self {
            StepKindSpec::Parallel(parallel) => parallel.lanes.iter().map(|lane| &lane.scope).collect(),
            StepKindSpec::Each(each) => vec![&each.scope],
            StepKindSpec::Loop(repeat) => vec![&repeat.scope],
            StepKindSpec::Work(_)
            | StepKindSpec::Gate(_)
            | StepKindSpec::Wait(_)
            | StepKindSpec::Branch(_)
            | StepKindSpec::Call(_) => Vec::new(),
        }
    }
}

/// Chooses the target of the cursor. Only in a routed scope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BranchSpec {
    /// Tried in order; the first that is true wins.
    pub arms: Vec<RouteArm>,
    pub default: RouteTarget,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteArm {
    pub when: Expr,
    pub next: RouteTarget,
}

/// Runs its lanes in parallel and continues when all have succeeded. The first that fails cancels the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParallelSpec {
    pub lanes: Vec<LaneSpec>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneSpec {
    pub id: BranchId,
    pub scope: Arc<StepScope>,
}

/// Runs its scope once for each item of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EachSpec {
    pub over: Expr,
    /// The number of items that may be open at once. None: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub errors: EachErrorPolicy,
    pub scope: Arc<StepScope>,
}

/// The effect of an item's failure on the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EachErrorPolicy {
    /// Cancels the others and fails the step.
    #[default]
    FailFast,
    /// Lets every item end, then fails the step.
    Finish,
    /// Lets every item end; the step succeeds and reports the outcome of each.
    Collect,
}

/// Repeats its scope while a condition is true.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoopSpec {
    #[serde(rename = "while")]
    pub condition: Expr,
    #[serde(default, skip_serializing_if = "is_default")]
    pub test: LoopTest,
    /// A loop that would continue after this many passes fails.
    pub max: u32,
    pub scope: Arc<StepScope>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopTest {
    /// Before each pass. True the first time if it reads a step of a pass that has not run.
    #[default]
    First,
    /// After each pass.
    After,
}

/// Runs another workflow, of any format, as one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallSpec {
    /// The name of the workflow in the plan.
    pub workflow: String,
    /// Artifacts of the called workflow that become this step's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exports: Vec<ArtifactExport>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactExport {
    pub from: StepId,
    pub artifact: ArtifactName,
    #[serde(rename = "as")]
    pub name: ArtifactName,
}
