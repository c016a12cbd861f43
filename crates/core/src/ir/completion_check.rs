//! The completion check: the worker that decides whether work is done, its iteration limit, and the policy for stalls.

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
    /// True if a step that is still incomplete after the last iteration ends incomplete instead of exhausted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub incomplete_is_an_end: bool,
    /// The file to which an agent writes its decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision_file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub convergence: Option<ConvergencePolicy>,
}

/// The policy for checks that repeatedly find the same things missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvergencePolicy {
    /// The number of equal findings in a row that raises the stage.
    pub stall_threshold: u32,
    /// The highest stage; the first is 1.
    pub max_stage: u32,
    /// True if reaching the highest stage fails the step.
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

/// The text that is appended to the instructions from a stage on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvergenceStage {
    pub stage: u32,
    pub append: String,
}
