//! One line of a timeline.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TimelineEntry {
    /// The time in UTC.
    pub at: String,
    /// The number of the event that it describes.
    pub seq: u64,
    /// The step or instance it is about; empty for the run.
    pub path: String,
    pub text: String,
    pub level: TimelineLevel,
}

/// The importance of a line to a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TimelineLevel {
    /// Details, which short outputs leave out.
    Detail,
    Info,
    /// The run waits for a person or for something outside.
    Attention,
    Warning,
    Error,
}
