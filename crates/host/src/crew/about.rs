//! What was settled about a run when it was begun, so that whoever goes on with it does as it was told: where it
//! works, what it may reach, and who its agents and tools are. Kept with the run; changes to a project change nothing.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::secret;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// The file it was read from, as people are shown it.
    pub source: String,
    pub project: PathBuf,
    pub workspace: PathBuf,
    /// Folders beyond those in which steps may work.
    #[serde(default)]
    pub roots: Vec<PathBuf>,
    /// Who began it.
    pub user: String,
    #[serde(default)]
    pub agents: BTreeMap<String, Agent>,
    #[serde(default)]
    pub tools: BTreeMap<String, Tool>,
    #[serde(default)]
    pub secrets: BTreeMap<String, secret::From>,
    /// Variables of the host's environment that workers are given beyond the few they need.
    #[serde(default)]
    pub pass_env: Vec<String>,
}

/// An agent that is a program of the project's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// A program and its arguments. What it is to do comes on its standard input.
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
}

/// A tool that is a program: JSON in on standard input, JSON out on standard output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    pub command: Vec<String>,
}

impl About {
    pub fn value(&self) -> Value {
        serde_json::to_value(self).expect("what was settled serialises to JSON")
    }

    pub fn read(value: &Value) -> Result<About, String> {
        About::deserialize(value)
            .map_err(|error| format!("what was settled about the run cannot be read: {error}"))
    }
}
