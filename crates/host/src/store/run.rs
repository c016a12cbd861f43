//! Runs as a store knows them: their row, who owns them, and how they are asked for.

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
    /// The frozen definition, kept once however many runs use it.
    pub definition: ContentHash,
    pub frozen: Arc<[u8]>,
    /// What the host must know to go on with it: workspace, roots, who started it. Not the store's to read, but for
    /// the paths of a project that was moved (`sqlite::relocation`).
    pub about: serde_json::Value,
    pub head: RunHead,
    /// The first row of its journal, so that no run is there without the start that was asked for.
    pub first: Option<Arc<JournalBatch>>,
    pub open: Vec<WaitpointRow>,
    /// What of its first row is told in the audit.
    pub audit: Vec<AuditEntry>,
    /// The dead letters that this run does again. Nothing is written if someone has seen to one already.
    pub settles: Vec<(DeadLetterId, DeadLetterSettlement)>,
}

/// The right to append to a run. It ends when someone else claims the run, which the owner learns at its next append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunClaim {
    pub run: RunId,
    /// One more with each claim.
    pub epoch: u64,
}

/// What lists of runs show, written with the append that changed it.
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
    /// Nothing is wanted any more.
    #[serde(default)]
    pub closed: bool,
    /// The run whose results it began with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkOrigin>,
    #[serde(default, skip_serializing_if = "Cost::is_zero")]
    pub cost: Cost,
}

/// A gate, hold or wait that is open.
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

/// Who has a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOwner {
    /// Nobody, and nobody should: it was left on purpose, or it is over.
    Nobody,
    /// This process.
    Here,
    /// Another process, which lives.
    Other(String),
    /// A process that died.
    Dead(String),
}

/// A run as it is listed.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    pub run: RunId,
    pub definition: ContentHash,
    pub about: serde_json::Value,
    pub head: RunHead,
    pub owner: RunOwner,
    pub open: Vec<WaitpointRow>,
    /// Why it was set aside, if it was.
    pub quarantined: Option<String>,
}

/// Runs of a list that is cut off, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct RunList {
    pub rows: Vec<RunRow>,
    /// The number of further runs.
    pub more: u64,
}

/// Which runs are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunSelection {
    /// The newest, at most so many.
    Newest(u32),
    /// Those that are not closed and not set aside.
    Unfinished,
    /// Those of them whose owner died.
    Orphaned,
}
