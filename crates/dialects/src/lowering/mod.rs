//! The lowering of a format to the IR, as far as the formats share it: its state, its result, approval classes, calls
//! of workflows, and the terms of a format.

pub(crate) mod call_contract;
mod context;
mod dialect_terms;

pub use context::OverriddenField;
pub(crate) use context::{
    ApprovalClaim, ApprovalClaims, ClaimOrigin, LoweredSource, LoweringContext, StepApprovalClaims,
    default_on_interrupted, sanitize_id, warn_ignored,
};
pub(crate) use dialect_terms::DialectTerms;
