//! Runs in the store: their rows, owners and selections.

use std::sync::Arc;

use super::{DeadLetterId, DeadLetterSettlement};
use crate::audit::AuditEntry;
use serde::{Deserialize, Serialize};
use skein_core::{
    engine::{Cost, ForkOrigin, JournalBatch, Waitpoint},
    ids::RunId,
    ir::RunStatus,
    plan::ContentHash,
    time::Timestamp,
};

/// A run that does not exist yet.
#[derive(Debug, Clone)]
pub struct NewRun {
    pub run: RunId,
    /// The frozen definition, stored once for all runs that use it.
    pub definition: ContentHash,
    pub frozen: Arc<[u8]>,
    /// The run settings, which the host needs to resume the run: workspace, roots, who started it. The store does not
    /// read them, except for the paths of a project that was moved (`sqlite::relocation`).
    pub about: serde_json::Value,
    pub head: RunHead,
    /// The first row of its journal, so that no run exists without its start event.
    pub first: Option<Arc<JournalBatch>>,
    pub open: Vec<WaitpointRow>,
    /// Audit records for its first row.
    pub audit: Vec<AuditEntry>,
    /// The dead letters that this run repeats. Nothing is written if one of them is already settled.
    pub settles: Vec<(DeadLetterId, DeadLetterSettlement)>,
}

/// The right to append to a run. It ends when another process claims the run; the owner learns that at its next append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunClaim {
    pub run: RunId,
    /// Increases by one with each claim.
    pub epoch: u64,
}

/// The list entry of a run, written with the append that changed it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunHead {
    pub workflow: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub dialect: String,
    pub status: RunStatus,
    pub native_status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// True if the run wants nothing to be running any more.
    #[serde(default)]
    pub closed: bool,
    /// The run whose results it reused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkOrigin>,
    #[serde(default, skip_serializing_if = "Cost::is_zero")]
    pub cost: Cost,
}

/// An open gate, hold or wait.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitpointRow {
    pub opening: Waitpoint,
    /// The path of the step.
    pub step: String,
    pub kind: String,
    pub message: String,
    pub since: Timestamp,
}

/// The owner of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOwner {
    /// No owner, and none is needed: the run was released on purpose, or it has ended.
    Nobody,
    /// This process.
    Here,
    /// Another process, which is alive.
    Other(String),
    /// A process that died.
    Dead(String),
}

/// A run with its stored details, as lists show it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    pub run: RunId,
    pub definition: ContentHash,
    pub about: serde_json::Value,
    pub head: RunHead,
    pub owner: RunOwner,
    pub open: Vec<WaitpointRow>,
    /// The reason for the quarantine, if the run is quarantined.
    pub quarantined: Option<String>,
}

/// A limited list of runs, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct RunList {
    pub rows: Vec<RunRow>,
    /// The number of further runs.
    pub more: u64,
}

/// A selection of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunSelection {
    /// The newest, at most this many.
    Newest(u32),
    /// Runs that are neither closed nor quarantined.
    Unfinished,
    /// Unfinished runs whose owner died.
    Orphaned,
}
