//! Evidence: conditions that must hold before work counts as done, whatever its worker reports.
//!
//! Owns the kinds of evidence and their words. Does not know how each is checked, which is the host's job, or how it is
//! enforced, which is the engine's.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Evidence {
    /// A program with its arguments, which must exit with 0.
    Command(Vec<String>),
    /// A file or folder of the workspace, which must exist.
    File(String),
    /// A path pattern: some matching file must have changed since the step began.
    Changed(String),
    /// A JSON file that must match the JSON Schema in another.
    Schema { path: String, of: String },
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Evidence::Command(words) => write!(f, "`{}` succeeds", words.join(" ")),
            Evidence::File(path) => write!(f, "`{path}` exists"),
            Evidence::Changed(pattern) => write!(f, "`{pattern}` has changed"),
            Evidence::Schema { path, of } => write!(f, "`{of}` matches `{path}`"),
        }
    }
}
