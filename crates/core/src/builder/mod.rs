//! Builder for workflows made by a program: AIP-15's two functions, [`define_step`] and [`define_workflow`].
//!
//! Owns the Rust form of AIP-15's eight step kinds and their lowering to the IR. Parses no text other than the
//! expressions inside fields; reading files is a front end's job. Definitions cannot fail: [`WorkflowHandle::commit`]
//! reports all mistakes at once.
//!
//! ```
//! use serde_json::json;
//! use skein_core::builder::*;
//!
//! let fetch = define_step(
//!     StepDefinition::new("fetch", ToolStep::tool("pricing-snapshot")).with_input("url", json!("$input.url")),
//! );
//! let parse = define_step(
//!     StepDefinition::new("parse", ToolStep::tool("html-parse")).with_input("page", json!("$steps.fetch.html")),
//! );
//! let committed = define_workflow(
//!     WorkflowDefinition::new("pricing", "Reads a price.").with_input_schema(json!({"properties": {"url": {}}})),
//! )
//! .step(fetch)
//! .step(parse)
//! .commit()
//! .unwrap();
//! let plan = committed.definition.bind(json!({"url": "https://example.org"})).unwrap();
//! assert_eq!(plan.definition.root().names.len(), 2);
//! ```

pub mod aip15;
mod lower;
mod lower_kind;
mod step;
mod workflow;

pub use step::{
    ApprovalClass, ApprovalStep, BackoffKind, BranchArm, BranchStep, CostClass, LoopStep, MapStep, ParallelLane,
    ParallelStep, RetryDefinition, RiskLevel, StepDefinition, StepHandle, StepKind, SubworkflowStep, SuspendStep,
    TimeoutRule, ToolImplementation, ToolStep, define_step,
};
pub use workflow::{CommittedWorkflow, LoweredWorkflow, WorkflowDefinition, WorkflowHandle, define_workflow};
