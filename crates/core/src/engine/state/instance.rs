//! A scope that is being gone through: its steps, what could start, and what can be undone.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{StepState, is_default, null};
use crate::{
    engine::{
        CursorRoute, ExecutionError, HaltReason, InstanceEnd, InstanceIx, InstancePart, StepAt,
        event::is_null,
    },
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
    /// What the workflow was given, and its `env`. Only in a home.
    #[serde(default = "null", skip_serializing_if = "is_null")]
    pub input: Arc<Value>,
    #[serde(default = "null", skip_serializing_if = "is_null")]
    pub env: Arc<Value>,
    /// Instances that belong to this workflow, itself included. Only in a home.
    #[serde(default, skip_serializing_if = "is_default")]
    pub members: Vec<InstanceIx>,
    /// Step executions of the workflow. Only in a home.
    #[serde(default, skip_serializing_if = "is_default")]
    pub executed: u32,
    /// Steps that have not ended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub open: u32,
    /// Steps that are neither pending nor over.
    #[serde(default, skip_serializing_if = "is_default")]
    pub live: u32,
    /// Steps that are at work, and those that wait to be.
    #[serde(default, skip_serializing_if = "is_default")]
    pub slots: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub queue: BTreeSet<u32>,
    pub verdict: RunImpact,
    /// The first failure that counts against it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub error: Option<ExecutionError>,
    #[serde(default = "null", skip_serializing_if = "is_null")]
    pub last_output: Arc<Value>,
    /// Where the cursor goes from the step that ended last. Only in a routed scope.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cursor: Option<CursorRoute>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub completed: Vec<CompletedVisit>,
    /// Whether what was completed is to be undone because of how it was halted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub undo_asked: bool,
    /// Whether something in it could not be undone.
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
    /// Nothing more starts. `undo`: what was completed is undone when nothing is live.
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
    /// Its place among all completions of the run.
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

    /// Why it started nothing more, if it was halted.
    pub fn halt_reason(&self) -> Option<&HaltReason> {
        match &self.phase {
            InstancePhase::Going => None,
            InstancePhase::Halted { why, .. } | InstancePhase::Undoing { why } => Some(why),
            InstancePhase::Ended { why, .. } => why.as_ref(),
        }
    }
}
