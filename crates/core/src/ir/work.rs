//! Work: what an agent, a tool or a command is asked to do. Data for the host; the engine starts it and judges its end.

use serde::{Deserialize, Serialize};

use super::{Check, ErrorClass, Evidence, Shared, is_default};
use crate::{
    expr::Expr,
    ids::{ArtifactName, StepId},
    time::Millis,
};

/// A piece of work and what surrounds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    pub worker: Worker,
    /// Decides after each success whether the work is complete; if not, it is done again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<Box<Check>>,
    /// Condenses the outputs for the steps that follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Box<Summary>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub takes: Vec<ArtifactIn>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gives: Vec<ArtifactOut>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub isolation: Shared<Isolation>,
    /// What must be so before it counts as done, whatever its worker says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
}

impl Work {
    pub fn new(worker: Worker) -> Work {
        Work {
            worker,
            check: None,
            summary: None,
            takes: Vec::new(),
            gives: Vec::new(),
            isolation: Shared::default(),
            evidence: Vec::new(),
        }
    }
}

/// Who does it, and with what words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Worker {
    Agent {
        /// A name from the catalog of agents.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The agent program, such as `CODEX_CLI`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        program: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instructions: Option<Expr>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        capabilities: Vec<Capability>,
        /// Skills and servers that it may use.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tools: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_turns: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command_timeout: Option<Millis>,
    },
    Tool {
        tool: String,
        /// The one driver that may provide it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pinned: Option<String>,
    },
    /// Any tool that implements this action.
    Action {
        action: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pinned: Option<String>,
    },
    /// A program and its arguments; an expression fills one argument and is never split.
    Command {
        program: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        arguments: Vec<Expr>,
    },
    /// A script that the source holds as text. Never holds an expression.
    Script {
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        capabilities: Vec<Capability>,
    },
}

impl Worker {
    /// What its failure is, if nobody says more.
    pub fn failure(&self) -> ErrorClass {
        match self {
            Worker::Agent { .. } => ErrorClass::AgentError,
            _ => ErrorClass::Transient,
        }
    }

    /// What is worked out when an attempt starts: the instructions and the arguments.
    pub fn expressions(&self) -> Vec<&Expr> {
        match self {
            Worker::Agent { instructions, .. } => instructions.iter().collect(),
            Worker::Command { arguments, .. } => arguments.iter().collect(),
            Worker::Tool { .. } | Worker::Action { .. } | Worker::Script { .. } => Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    Read,
    Edit,
    RunTests,
    RunCommands,
}

/// Where the work happens and what it may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Isolation {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// A worktree of its own.
    #[serde(skip_serializing_if = "is_default")]
    pub worktree: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub no_network: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub protect: Vec<String>,
    /// Patterns of protected files that it may change all the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unprotect: Vec<String>,
}

/// An artifact of an earlier step that is put into the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactIn {
    pub from: StepId,
    pub artifact: ArtifactName,
    #[serde(rename = "as")]
    pub name: ArtifactName,
}

/// A file or folder of the workspace that is kept when the work ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactOut {
    pub name: ArtifactName,
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// A second, short piece of work after a success. Its failure is only a warning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    pub worker: Worker,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
}
