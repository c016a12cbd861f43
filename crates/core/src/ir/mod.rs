//! The workflow IR: one form for four formats.
//!
//! Owns the types that a workflow consists of and their JSON. Does not know where they came from (the front ends lower
//! into it) or what they do (the engine). Policies are tables here, filled in by lowering, so that the engine never
//! asks which format it runs. Read `workflow` first, then `scope`, `step` and `policy`.

mod approval;
mod completion_check;
mod evidence;
mod extensions;
mod gate;
mod hooks_triggers_files;
mod policy;
pub mod rules;
mod schema;
mod scope;
mod shared_part;
mod status;
mod step;
mod step_kind;
mod work;
mod workflow;

pub use approval::{ApprovalHold, ApprovalRuling, EscalationLevel};
pub use completion_check::{CompletionCheck, ConvergencePolicy, ConvergenceStage};
pub use evidence::Evidence;
pub use extensions::{
    HandoffFormat, HandoffSpec, OnRetry, SkeinExtensions, StepExtensions, WorkflowExtensions, WorkflowRequirements,
    WorkflowResource,
};
pub use gate::{Approver, GateSpec, GateTimeout, WaitSpec, WaitTimeout};
pub use hooks_triggers_files::{
    HookAction, HookTiming, InputFileSpec, MemorySelection, OutputFileSpec, WorkflowContext, WorkflowHook,
    WorkflowTrigger,
};
pub use policy::{
    Backoff, BackoffGrowth, Budget, BudgetMode, ErrorClass, HoldReason, OnInterrupted, OutcomeAction, OutcomeEffect,
    OutcomeEffects, RunImpact, StepPolicy, StepRetry, TimeoutScope,
};
pub use schema::{Schema, SchemaError};
pub use scope::{RouteTarget, RunRetry, ScopeShape, SiblingPolicy, StepScope, UndoFailurePolicy, UndoPolicy};
pub use shared_part::{SharedPart, SharedStepExtensions, SharedStepPolicy, StaticDefault};
pub use status::{FailureWords, RunStatus, StatusWords, StepStatus};
pub use step::{InputBinding, Step, UndoSpec};
pub use step_kind::{
    ArtifactExport, BranchSpec, CallSpec, EachErrorPolicy, EachSpec, LaneSpec, LoopSpec, LoopTest, ParallelSpec,
    RouteArm, StepKindName, StepKindSpec,
};
pub use work::{InputArtifact, IsolationSpec, OutputArtifact, SummarySpec, WorkSpec, WorkerCapability, WorkerSpec};
pub use workflow::{Workflow, WorkflowOrigin};

pub(crate) use approval::{is_one, one};
use extensions::UI;

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
