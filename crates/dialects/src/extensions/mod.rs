//! The extensions of Skein: the `x-skein` block of every format, its checks, and the steps that it links.

mod block;
pub(crate) mod checks;
pub(crate) mod conflict_resolver;
pub(crate) mod workspace_overlap;

pub(crate) use block::{
    ExtensionBlock, STEP_BLOCK_FIELDS, STEP_ONLY_FIELDS, StepExtensionBlock, WORKFLOW_BLOCK_FIELDS,
};
