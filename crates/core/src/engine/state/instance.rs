//! The state of a scope instance: its steps, its queue, and the visits that can be undone.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{StepState, is_default, null};
use crate::{
    engine::{CursorRoute, ExecutionError, HaltReason, InstanceEnd, InstanceIx, InstancePart, StepAt, event::is_null},
    ir::RunImpact,
    plan::ScopeIx,
    time::Timestamp,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceState {
    pub scope: ScopeIx,
    #[serde(default, skip_serializing_if = "is_default")]
    pub parent: Option<StepAt>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub part: Option<InstancePart>,
    /// The instance of the workflow it belongs to: itself for a run's root and for a call.
    pub home: InstanceIx,
    pub phase: InstancePhase,
    pub steps: Vec<StepState>,
    /// The input of the workflow, and its `env`. Only in a home.
    #[serde(default = "null", skip_serializing_if = "is_null")]
    pub input: Arc<Value>,
    #[serde(default = "null", skip_serializing_if = "is_null")]
    pub env: Arc<Value>,
    /// Instances that belong to this workflow, including itself. Only in a home.
    #[serde(default, skip_serializing_if = "is_default")]
    pub members: Vec<InstanceIx>,
    /// The number of step executions of the workflow. Only in a home.
    #[serde(default, skip_serializing_if = "is_default")]
    pub executed: u32,
    /// The number of steps that have not ended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub open: u32,
    /// The number of steps that are neither pending nor ended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub live: u32,
    /// The number of slots in use, and the steps that wait for a slot.
    #[serde(default, skip_serializing_if = "is_default")]
    pub slots: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub queue: BTreeSet<u32>,
    pub verdict: RunImpact,
    /// The first failure that counts against the instance.
    #[serde(default, skip_serializing_if = "is_default")]
    pub error: Option<ExecutionError>,
    #[serde(default = "null", skip_serializing_if = "is_null")]
    pub last_output: Arc<Value>,
    /// The next target of the cursor after the last step that ended. Only in a routed scope.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cursor: Option<CursorRoute>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub completed: Vec<CompletedVisit>,
    /// True if the halt requires completed steps to be undone.
    #[serde(default, skip_serializing_if = "is_default")]
    pub undo_asked: bool,
    /// True if an undo in it failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stuck: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub deadline: Option<Timestamp>,
    pub started: Timestamp,
    #[serde(default, skip_serializing_if = "is_default")]
    pub ended: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum InstancePhase {
    Going,
    /// Nothing more starts. `undo`: completed steps are undone when nothing is live.
    Halted {
        why: HaltReason,
        undo: bool,
    },
    Undoing {
        why: HaltReason,
    },
    Ended {
        why: Option<HaltReason>,
        end: InstanceEnd,
    },
}

/// A visit of a step that can be undone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompletedVisit {
    pub step: u32,
    pub visit: u32,
    /// Its position among all completions of the run.
    pub order: u64,
    #[serde(default = "null", skip_serializing_if = "is_null")]
    pub output: Arc<Value>,
}

impl InstanceState {
    pub fn is_going(&self) -> bool {
        matches!(self.phase, InstancePhase::Going)
    }

    pub fn end(&self) -> Option<&InstanceEnd> {
        match &self.phase {
            InstancePhase::Ended { end, .. } => Some(end),
            _ => None,
        }
    }

    /// The reason why it was halted, if it was.
    pub fn halt_reason(&self) -> Option<&HaltReason> {
        match &self.phase {
            InstancePhase::Going => None,
            InstancePhase::Halted { why, .. } | InstancePhase::Undoing { why } => Some(why),
            InstancePhase::Ended { why, .. } => why.as_ref(),
        }
    }
}
