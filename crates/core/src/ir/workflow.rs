//! The workflow itself: its identity, inputs, root scope, and everything around it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Budget, InputFileSpec, OutputFileSpec, Schema, StatusWords, StepScope, WorkflowContext, WorkflowHook,
    WorkflowTrigger, is_default,
};
use crate::{expr::Expr, ids::WorkflowId};

/// The contents of a source, in the one form that is checked, planned and run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workflow {
    pub id: WorkflowId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The origin of the workflow. Shown to people; the engine never reads it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub origin: WorkflowOrigin,
    /// The schema of a run's input object.
    #[serde(default, skip_serializing_if = "is_default")]
    pub inputs: Schema,
    pub scope: StepScope,
    /// The spending limit of the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// The words for each status in the source's format.
    #[serde(default, skip_serializing_if = "is_default")]
    pub words: StatusWords,
    /// Values that expressions read as `env`; evaluated once, when the run starts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Expr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<WorkflowHook>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<WorkflowTrigger>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub context: WorkflowContext,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files_in: BTreeMap<String, InputFileSpec>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files_out: BTreeMap<String, OutputFileSpec>,
    /// Other data of the source (tags, authors, a composer's marks), kept but not interpreted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Value>,
}

/// The format a workflow was written in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowOrigin {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub dialect: String,
}

impl Workflow {
    /// Creates a workflow with this scope and nothing else.
    pub fn new(id: WorkflowId, scope: StepScope) -> Workflow {
        Workflow {
            id,
            name: None,
            version: None,
            description: None,
            origin: WorkflowOrigin::default(),
            inputs: Schema::default(),
            scope,
            budget: None,
            words: StatusWords::default(),
            env: BTreeMap::new(),
            hooks: Vec::new(),
            triggers: Vec::new(),
            context: WorkflowContext::default(),
            files_in: BTreeMap::new(),
            files_out: BTreeMap::new(),
            labels: BTreeMap::new(),
        }
    }
}
