//! The workflow IR: one form for four formats.
//!
//! Owns the types that a workflow consists of and their JSON. Does not know where they came from (the front ends lower
//! into it) or what they do (the engine). Policies are tables here, filled in by lowering, so that the engine never
//! asks which format it runs. Read `workflow` first, then `scope`, `step` and `policy`.

mod extensions;
mod gate;
mod policy;
pub mod rules;
mod schema;
mod scope;
mod status;
mod step;
mod work;
mod workflow;

pub use extensions::{
    HandoffFormat, HandoffSpec, OnRetry, SkeinExtensions, StepExtensions, WorkflowExtensions, WorkflowRequirements,
    WorkflowResource,
};
pub use gate::{ApprovalHold, ApprovalRuling, Approver, EscalationLevel, GateSpec, GateTimeout, WaitSpec, WaitTimeout};
pub use policy::{
    Backoff, BackoffGrowth, Budget, BudgetMode, ErrorClass, HoldReason, OnInterrupted, OutcomeAction, OutcomeEffect,
    OutcomeEffects, RunImpact, StepPolicy, StepRetry, TimeoutScope,
};
pub use schema::{Schema, SchemaError};
pub use scope::{RouteTarget, RunRetry, ScopeShape, SiblingPolicy, StepScope, UndoFailurePolicy, UndoPolicy};
pub use status::{FailureWords, RunStatus, StatusWords, StepStatus};
pub use step::{
    ArtifactExport, BranchSpec, CallSpec, EachErrorPolicy, EachSpec, InputBinding, LaneSpec, LoopSpec, LoopTest,
    ParallelSpec, RouteArm, SharedPart, SharedStepExtensions, SharedStepPolicy, StaticDefault, Step, StepKindName,
    StepKindSpec, UndoSpec,
};
pub use work::{
    CompletionCheck, ConvergencePolicy, ConvergenceStage, Evidence, InputArtifact, IsolationSpec, OutputArtifact,
    SummarySpec, WorkSpec, WorkerCapability, WorkerSpec,
};
pub use workflow::{
    HookAction, HookTiming, InputFileSpec, MemorySelection, OutputFileSpec, Workflow, WorkflowContext, WorkflowHook,
    WorkflowOrigin, WorkflowTrigger,
};

use extensions::UI;
pub(crate) use gate::{is_one, one};
pub(crate) use schema::value_levels;

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
