//! Evidence: what must be so before work counts as done, whatever its worker says.
//!
//! Owns the sorts of evidence and their words. How each is looked at is the host's; that nothing is done without it is
//! the engine's.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Evidence {
    /// A program with its arguments, which ends with 0.
    Command(Vec<String>),
    /// A file or a folder of the workspace, which is there.
    File(String),
    /// A pattern of paths: some file that it means is not as it was before the step began.
    Changed(String),
    /// A JSON file that fits the JSON Schema in another.
    Schema { path: String, of: String },
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Evidence::Command(words) => write!(f, "`{}` ends well", words.join(" ")),
            Evidence::File(path) => write!(f, "`{path}` is there"),
            Evidence::Changed(pattern) => write!(f, "`{pattern}` is changed"),
            Evidence::Schema { path, of } => write!(f, "`{of}` fits `{path}`"),
        }
    }
}
