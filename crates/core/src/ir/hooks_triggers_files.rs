//! Hooks, triggers, context and files of a workflow. They are data for the host; the engine only knows that there are
//! hooks, and files to publish.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Schema, is_default};
use crate::{expr::Expr, time::Millis};

/// An action beside the run; its failure never changes the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowHook {
    pub when: HookTiming,
    pub action: HookAction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookTiming {
    Start,
    Success,
    Failure,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HookAction {
    Notify {
        channel: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<Expr>,
    },
    Run {
        program: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        arguments: Vec<Expr>,
    },
}

/// A way to start a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WorkflowTrigger {
    Manual {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
    },
    Cron {
        cron: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timezone: Option<String>,
    },
    Interval {
        every: Millis,
    },
    Calendar {
        rule: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timezone: Option<String>,
    },
    Webhook {
        path: String,
    },
    Event {
        event: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        condition: Option<Expr>,
    },
    /// A schedule that is stored elsewhere.
    Routine {
        reference: Value,
    },
}

/// Context that agents receive besides their instructions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkflowContext {
    /// The folder through which steps pass files to one another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemorySelection>,
}

/// The selection of memory entries that agents receive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemorySelection {
    pub scope: String,
    pub min_confidence: f64,
    pub categories: Vec<String>,
    pub max_tokens: u32,
}

/// A file of the workspace that is staged before the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputFileSpec {
    pub path: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub writable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
}

/// A file that is written to the workspace after the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputFileSpec {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub schema: Schema,
}
