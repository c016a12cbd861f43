//! Work: a task for an agent, a tool or a command, its completion check and its evidence. Data for the host, which also
//! checks the evidence; the engine starts work and judges its outcome.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    expr::Expr,
    ids::{ArtifactName, StepId},
    ir::{ErrorClass, SharedPart, is_default},
    time::Millis,
};

/// A piece of work and its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkSpec {
    pub worker: WorkerSpec,
    /// Decides after each success whether the work is complete; if not, the work runs again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<Box<CompletionCheck>>,
    /// Summarises the outputs for the steps that follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Box<SummarySpec>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub takes: Vec<InputArtifact>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gives: Vec<OutputArtifact>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub isolation: SharedPart<IsolationSpec>,
    /// The conditions that must hold before the work counts as done, whatever its worker reports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
}

impl WorkSpec {
    pub fn new(worker: WorkerSpec) -> WorkSpec {
        WorkSpec {
            worker,
            check: None,
            summary: None,
            takes: Vec::new(),
            gives: Vec::new(),
            isolation: SharedPart::default(),
            evidence: Vec::new(),
        }
    }
}

/// The worker that does the work, and its instructions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WorkerSpec {
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
        capabilities: Vec<WorkerCapability>,
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
        /// The only driver that may provide it.
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
    /// A script that the source contains as text. Never contains an expression.
    Script {
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        capabilities: Vec<WorkerCapability>,
    },
}

impl WorkerSpec {
    /// The error class of its failure, if none is reported.
    pub fn default_error_class(&self) -> ErrorClass {
        match self {
            WorkerSpec::Agent { .. } => ErrorClass::AgentError,
            _ => ErrorClass::Transient,
        }
    }

    /// Returns the expressions that are evaluated when an attempt starts: the instructions and the arguments.
    pub fn expressions(&self) -> Vec<&Expr> {
        match self {
            WorkerSpec::Agent { instructions, .. } => instructions.iter().collect(),
            WorkerSpec::Command { arguments, .. } => arguments.iter().collect(),
            WorkerSpec::Tool { .. } | WorkerSpec::Action { .. } | WorkerSpec::Script { .. } => Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerCapability {
    Read,
    Edit,
    RunTests,
    RunCommands,
}

/// The location of the work and its access to the rest of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IsolationSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// True if the work gets a worktree of its own.
    #[serde(skip_serializing_if = "is_default")]
    pub worktree: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub no_network: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub protect: Vec<String>,
    /// Patterns of protected files that it may change nevertheless.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unprotect: Vec<String>,
}

/// An artifact of an earlier step that is copied into the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputArtifact {
    pub from: StepId,
    pub artifact: ArtifactName,
    #[serde(rename = "as")]
    pub name: ArtifactName,
}

/// A file or folder of the workspace that is kept when the work ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputArtifact {
    pub name: ArtifactName,
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// A second, short piece of work after a success. Its failure is only a warning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SummarySpec {
    pub worker: WorkerSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompletionCheck {
    pub worker: WorkerSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    pub max_iterations: u32,
    /// True if a step that is still incomplete after the last iteration ends incomplete instead of exhausted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub incomplete_is_an_end: bool,
    /// The file to which an agent writes its decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision_file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub convergence: Option<ConvergencePolicy>,
}

/// The policy for checks that repeatedly find the same things missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvergencePolicy {
    /// The number of equal findings in a row that raises the stage.
    pub stall_threshold: u32,
    /// The highest stage; the first is 1.
    pub max_stage: u32,
    /// True if reaching the highest stage fails the step.
    pub fail_on_max_stage: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<ConvergenceStage>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_paths: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored_paths: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff_base_ref: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff_base_ref_file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_changed_files: Option<u32>,
}

/// The text that is appended to the instructions from a stage on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvergenceStage {
    pub stage: u32,
    pub append: String,
}

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
