//! Workflows made by a program: the two functions of AIP-15, [`define_step`] and [`define_workflow`].
//!
//! Owns the shape of AIP-15's eight kinds of step in Rust and what each becomes in the IR. Refuses to read text
//! other than the expressions inside fields; files are a front end's business. Mistakes are values: whatever is
//! defined, nothing is said before [`WorkflowHandle::commit`], which says all of it.
//!
//! ```
//! use serde_json::json;
//! use skein_core::builder::*;
//!
//! let fetch = define_step(
//!     StepDefinition::new("fetch", ToolStep::tool("pricing-snapshot")).input("url", json!("$input.url")),
//! );
//! let parse = define_step(
//!     StepDefinition::new("parse", ToolStep::tool("html-parse")).input("page", json!("$steps.fetch.html")),
//! );
//! let committed = define_workflow(
//!     WorkflowDefinition::new("pricing", "Reads a price.").input_schema(json!({"properties": {"url": {}}})),
//! )
//! .step(fetch)
//! .step(parse)
//! .commit()
//! .unwrap();
//! let plan = committed.definition.bind(json!({"url": "https://example.org"})).unwrap();
//! assert_eq!(plan.definition.root().names.len(), 2);
//! ```

pub mod aip15;
mod approval_gates;
mod compensation;
mod lower;
mod lower_kind;
mod policy;
mod step;
mod step_kinds;
mod workflow;

pub use policy::{ApprovalClass, BackoffKind, CostClass, RetryDefinition, RiskLevel};
pub use step::{StepDefinition, StepHandle, define_step};
pub use step_kinds::{
    ApprovalStep, BranchArm, BranchStep, LoopStep, MapStep, ParallelLane, ParallelStep, StepKind,
    SubworkflowStep, SuspendStep, TimeoutRule, ToolImplementation, ToolStep,
};
pub use workflow::{CommittedWorkflow, LoweredWorkflow, WorkflowDefinition, WorkflowHandle, define_workflow};
