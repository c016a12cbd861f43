//! A step: its dependencies, its inputs and its kind, of which there are eight, among them gates and waits. Parts that
//! are equal in most steps are shared.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, LazyLock},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    expr::Expr,
    ids::{ArtifactName, BranchId, SignalName, StepId},
    ir::{
        IsolationSpec, RouteTarget, Schema, StepExtensions, StepPolicy, StepRetry, StepScope, UI, WorkSpec, is_default,
        policy::{is_one, one},
    },
    time::Millis,
};

/// One node of a scope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub id: StepId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// In a graph: the steps that must end, with an outcome that satisfies, before this one starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<StepId>,
    /// In a routed scope: the next target of the cursor. None: the next step in order that nothing else routes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<RouteTarget>,
    /// The step is skipped if this is false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Expr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputBinding>,
    /// The schema of its output; properties with a default are filled in.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outputs: Schema,
    pub kind: StepKindSpec,
    #[serde(default, skip_serializing_if = "is_default")]
    pub policy: SharedStepPolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<Box<UndoSpec>>,
    /// Settings for the host, and data that is only shown.
    #[serde(default, rename = "labels", skip_serializing_if = "is_default")]
    pub extensions: SharedStepExtensions,
}

impl Step {
    /// Creates a step of this kind with no dependency, no input and the strictest policy: any failure aborts.
    pub fn new(id: StepId, kind: StepKindSpec) -> Step {
        Step {
            id,
            name: None,
            description: None,
            after: Vec::new(),
            next: None,
            when: None,
            inputs: Vec::new(),
            outputs: Schema::default(),
            kind,
            policy: SharedStepPolicy::default(),
            undo: None,
            extensions: SharedStepExtensions::default(),
        }
    }

    /// Removes the marks of a composer.
    pub fn remove_ui(&mut self) {
        if self.extensions.labels.contains_key(UI) {
            self.extensions.labels.remove(UI);
        }
    }
}

/// One named input of a step and the expression for its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputBinding {
    pub name: Arc<str>,
    pub value: Expr,
    #[serde(default, skip_serializing_if = "is_default")]
    pub schema: Schema,
    /// A required input that is null fails the step before it starts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub required: bool,
}

impl InputBinding {
    /// Creates an input of any value, which may be null.
    pub fn new(name: impl Into<Arc<str>>, value: Expr) -> InputBinding {
        InputBinding { name: name.into(), value, schema: Schema::default(), required: false }
    }
}

/// The work that undoes a step. Evaluated in the scope of that step, and given its output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UndoSpec {
    /// Its name in the source, if it has one of its own.
    pub id: StepId,
    pub work: WorkSpec,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputBinding>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub retry: StepRetry,
}

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

worded_enum! {
    /// A kind without its contents.
    StepKindName {
        Work = "work",
        Gate = "gate",
        Wait = "wait",
        Branch = "branch",
        Parallel = "parallel",
        Each = "each",
        Loop = "loop",
        Call = "call",
    }
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

/// The policy of a step.
pub type SharedStepPolicy = SharedPart<StepPolicy>;

/// The extensions of a step.
pub type SharedStepExtensions = SharedPart<StepExtensions>;

/// A shared part. The default takes no memory, and changing one part changes no other.
#[derive(Debug, Clone)]
pub struct SharedPart<T>(Option<Arc<T>>);

/// A part that has a default if nothing is declared.
pub trait StaticDefault: Clone + Default + PartialEq + 'static {
    /// Returns the default.
    fn static_default() -> &'static Self;
}

static USUAL_POLICY: LazyLock<StepPolicy> = LazyLock::new(StepPolicy::default);
static NO_EXTENSIONS: LazyLock<StepExtensions> = LazyLock::new(StepExtensions::default);
static USUAL_ISOLATION: LazyLock<IsolationSpec> = LazyLock::new(IsolationSpec::default);

impl StaticDefault for StepPolicy {
    fn static_default() -> &'static StepPolicy {
        &USUAL_POLICY
    }
}

impl StaticDefault for StepExtensions {
    fn static_default() -> &'static StepExtensions {
        &NO_EXTENSIONS
    }
}

impl StaticDefault for IsolationSpec {
    fn static_default() -> &'static IsolationSpec {
        &USUAL_ISOLATION
    }
}

impl<T: StaticDefault> SharedPart<T> {
    /// Shares the value of `last` if it is equal; otherwise the next part may share this one.
    pub fn share_if_equal(&mut self, last: &mut SharedPart<T>) {
        if self == last {
            self.0.clone_from(&last.0);
        } else {
            last.0.clone_from(&self.0);
        }
    }
}

impl<T> Default for SharedPart<T> {
    fn default() -> SharedPart<T> {
        SharedPart(None)
    }
}

impl<T: StaticDefault> Deref for SharedPart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(own) => own,
            None => T::static_default(),
        }
    }
}

impl<T: StaticDefault> DerefMut for SharedPart<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl<T: StaticDefault> PartialEq for SharedPart<T> {
    fn eq(&self, other: &SharedPart<T>) -> bool {
        std::ptr::eq(&raw const **self, &raw const **other) || **self == **other
    }
}

impl<T: StaticDefault> From<T> for SharedPart<T> {
    fn from(part: T) -> SharedPart<T> {
        SharedPart((part != *T::static_default()).then(|| Arc::new(part)))
    }
}

impl<T: StaticDefault + Serialize> Serialize for SharedPart<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        T::serialize(self, serializer)
    }
}

impl<'de, T: StaticDefault + Deserialize<'de>> Deserialize<'de> for SharedPart<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SharedPart<T>, D::Error> {
        T::deserialize(deserializer).map(SharedPart::from)
    }
}

/// Waits for a person. Opens only by a decision of an authorised person, or by a timeout that allows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateSpec {
    pub message: Expr,
    /// The values that the person should review.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shows: Vec<Expr>,
    /// Any one of these suffices. Empty: anyone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<Approver>,
    /// The number of different people who must approve. A single rejection rejects.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub quorum: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    pub on_timeout: GateTimeout,
    /// The target to route to instead of `next`. Only in a routed scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_approve: Option<RouteTarget>,
    /// None: a rejection fails the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_reject: Option<RouteTarget>,
}

impl GateSpec {
    /// Returns the approvers that an escalation asks: those it names, or else the same as before. None if the gate does
    /// not escalate.
    pub fn escalation_approvers(&self) -> Option<&[Approver]> {
        match &self.on_timeout {
            GateTimeout::Escalate { to } if to.is_empty() => Some(&self.approvers),
            GateTimeout::Escalate { to } => Some(to),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approver {
    Role(String),
    User(String),
}

/// The action of a gate when nobody decides in time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GateTimeout {
    /// The step ends as timed out.
    Expire,
    Reject,
    /// Opens by itself, only if the host allows it.
    Approve,
    /// Cancels the workflow that the gate belongs to.
    Cancel,
    Go(RouteTarget),
    /// Asks others for as long again, then cancels. If none are named, the same people are asked again.
    Escalate {
        to: Vec<Approver>,
    },
}

/// Waits for an external event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitSpec {
    /// Any one of these signals ends the wait.
    pub on: Vec<SignalName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    pub on_timeout: WaitTimeout,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitTimeout {
    /// The step ends as timed out.
    Expire,
    /// Cancels the workflow that the wait belongs to.
    Cancel,
    /// The step succeeds without a signal.
    Continue,
    Go(RouteTarget),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Millis;

    #[test]
    fn policies_that_are_the_same_are_shared_until_one_changes() {
        let timed = |seconds| {
            let timeout = Some(Millis::from_secs(seconds));
            SharedStepPolicy::from(StepPolicy { timeout, ..StepPolicy::default() })
        };
        let (mut one, mut two, mut other, mut last) = (timed(5), timed(5), timed(6), SharedStepPolicy::default());
        one.share_if_equal(&mut last);
        two.share_if_equal(&mut last);
        assert!(std::ptr::eq(&raw const *one, &raw const *two));
        other.share_if_equal(&mut last);
        assert_eq!((other.timeout, last.timeout), (Some(Millis::from_secs(6)), Some(Millis::from_secs(6))));
        two.timeout = None;
        assert_eq!((one.timeout, two == SharedStepPolicy::default()), (Some(Millis::from_secs(5)), true));
    }
}
