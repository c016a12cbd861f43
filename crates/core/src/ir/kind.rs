//! The eight kinds of step.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Gate, Scope, Target, Wait, Work, is_default};
use crate::{
    expr::Expr,
    ids::{ArtifactName, BranchId, StepId},
};

/// What a step does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Work(Box<Work>),
    Gate(Box<Gate>),
    Wait(Box<Wait>),
    Branch(Box<Branch>),
    Parallel(Box<Parallel>),
    Each(Box<Each>),
    Loop(Box<Loop>),
    Call(Box<Call>),
}

/// A kind without its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KindName {
    Work,
    Gate,
    Wait,
    Branch,
    Parallel,
    Each,
    Loop,
    Call,
}

impl KindName {
    pub const ALL: [KindName; 8] = [
        KindName::Work,
        KindName::Gate,
        KindName::Wait,
        KindName::Branch,
        KindName::Parallel,
        KindName::Each,
        KindName::Loop,
        KindName::Call,
    ];
}

impl Kind {
    pub fn name(&self) -> KindName {
        match self {
            Kind::Work(_) => KindName::Work,
            Kind::Gate(_) => KindName::Gate,
            Kind::Wait(_) => KindName::Wait,
            Kind::Branch(_) => KindName::Branch,
            Kind::Parallel(_) => KindName::Parallel,
            Kind::Each(_) => KindName::Each,
            Kind::Loop(_) => KindName::Loop,
            Kind::Call(_) => KindName::Call,
        }
    }

    /// The scopes inside, in order.
    pub fn scopes(&self) -> Vec<&Arc<Scope>> {
        match self {
            Kind::Parallel(parallel) => parallel.lanes.iter().map(|lane| &lane.scope).collect(),
            Kind::Each(each) => vec![&each.scope],
            Kind::Loop(repeat) => vec![&repeat.scope],
            Kind::Work(_) | Kind::Gate(_) | Kind::Wait(_) | Kind::Branch(_) | Kind::Call(_) => Vec::new(),
        }
    }
}

/// Chooses where the cursor goes. Only in a routed scope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Branch {
    /// Tried in order; the first that is true wins.
    pub arms: Vec<Arm>,
    pub default: Target,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    pub when: Expr,
    pub next: Target,
}

/// Runs its lanes side by side and goes on when all have succeeded; the first that fails cancels the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parallel {
    pub lanes: Vec<Lane>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lane {
    pub id: BranchId,
    pub scope: Arc<Scope>,
}

/// Runs its scope once for each item of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Each {
    pub over: Expr,
    /// How many items may be open at once; none: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub errors: EachErrors,
    pub scope: Arc<Scope>,
}

/// What an item's failure does to the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EachErrors {
    /// Cancels the others and fails the step.
    #[default]
    FailFast,
    /// Lets every item end, then fails the step.
    Finish,
    /// Lets every item end; the step succeeds and says how each went.
    Collect,
}

/// Runs its scope again and again while a condition holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loop {
    #[serde(rename = "while")]
    pub condition: Expr,
    #[serde(default, skip_serializing_if = "is_default")]
    pub test: LoopTest,
    /// A loop that would go on after this many passes fails.
    pub max: u32,
    pub scope: Arc<Scope>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopTest {
    /// Before each pass; true the first time if it reads a step of a pass that has not been.
    #[default]
    First,
    /// After each pass.
    After,
}

/// Runs another workflow, of any format, as one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The name under which the plan holds it.
    pub workflow: String,
    /// Artifacts of the called workflow that become this step's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exports: Vec<Export>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Export {
    pub from: StepId,
    pub artifact: ArtifactName,
    #[serde(rename = "as")]
    pub name: ArtifactName,
}
