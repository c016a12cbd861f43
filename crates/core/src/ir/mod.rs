//! The workflow IR: one form for four formats.
//!
//! Owns the types that a workflow consists of and their JSON. Does not know where they came from (the front ends lower
//! into it) or what they do (the engine). Policies are tables here, filled in by lowering, so that the engine never
//! asks which format it runs. Read `workflow` first, then `scope`, `step` and `policy`.

mod extensions;
mod policy;
pub mod rules;
mod schema;
mod status;
mod step;
mod work;
mod workflow;

pub use extensions::{
    HandoffFormat, HandoffSpec, OnRetry, SkeinExtensions, StepExtensions, WorkflowExtensions, WorkflowRequirements,
    WorkflowResource,
};
pub use policy::{
    ApprovalHold, ApprovalRuling, Backoff, BackoffGrowth, Budget, BudgetMode, ErrorClass, EscalationLevel, HoldReason,
    OnInterrupted, OutcomeAction, OutcomeEffect, OutcomeEffects, RunImpact, StepPolicy, StepRetry, TimeoutScope,
};
pub use schema::{Schema, SchemaError};
pub use status::{FailureWords, RunStatus, StatusWords, StepStatus};
pub use step::{
    Approver, ArtifactExport, BranchSpec, CallSpec, EachErrorPolicy, EachSpec, GateSpec, GateTimeout, InputBinding,
    LaneSpec, LoopSpec, LoopTest, ParallelSpec, RouteArm, SharedPart, SharedStepExtensions, SharedStepPolicy,
    StaticDefault, Step, StepKindName, StepKindSpec, UndoSpec, WaitSpec, WaitTimeout,
};
pub use work::{
    CompletionCheck, ConvergencePolicy, ConvergenceStage, Evidence, InputArtifact, IsolationSpec, OutputArtifact,
    SummarySpec, WorkSpec, WorkerCapability, WorkerSpec,
};
pub use workflow::{
    HookAction, HookTiming, InputFileSpec, MemorySelection, OutputFileSpec, RouteTarget, RunRetry, ScopeShape,
    SiblingPolicy, StepScope, UndoFailurePolicy, UndoPolicy, Workflow, WorkflowContext, WorkflowHook, WorkflowOrigin,
    WorkflowTrigger,
};

use extensions::UI;
pub(crate) use policy::{is_one, one};
pub(crate) use schema::value_levels;

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
