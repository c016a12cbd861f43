//! The completion check: who decides that work is done, how often it may say no, and what happens when it stalls.

use serde::{Deserialize, Serialize};

use super::{WorkerSpec, is_default};
use crate::time::Millis;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompletionCheck {
    pub worker: WorkerSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    pub max_iterations: u32,
    /// Whether a step that is still incomplete after the last iteration ends incomplete instead of exhausted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub incomplete_is_an_end: bool,
    /// The file in which an agent writes its decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision_file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub convergence: Option<ConvergencePolicy>,
}

/// What is done when check after check finds the same things missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvergencePolicy {
    /// This many equal findings in a row raise the stage.
    pub stall_threshold: u32,
    /// The highest stage; the first is 1.
    pub max_stage: u32,
    /// Whether reaching the highest stage fails the step.
    pub fail_on_max_stage: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<ConvergenceStage>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_paths: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored_paths: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff_base_ref: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff_base_ref_file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_changed_files: Option<u32>,
}

/// What is added to the instructions from a stage on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvergenceStage {
    pub stage: u32,
    pub append: String,
}
