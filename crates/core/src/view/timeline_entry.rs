//! One line of a timeline.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TimelineEntry {
    /// UTC.
    pub at: String,
    /// The number of the event that it tells of.
    pub seq: u64,
    /// The step or instance it is about; empty for the run.
    pub path: String,
    pub text: String,
    pub level: TimelineLevel,
}

/// How much a person should care.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TimelineLevel {
    /// For those who look closely.
    Detail,
    Info,
    /// Someone or something outside is waited for.
    Attention,
    Warning,
    Error,
}
