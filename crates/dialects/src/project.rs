//! What surrounds a source: the other files and names that it may refer to. Whoever has a disk implements it.

use std::sync::Arc;

use skein_core::{builder::ApprovalClass, expr::Span, ir::Capability, time::Time};

use crate::{policy::Person, source::Source};

/// How a source names another workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference<'a> {
    /// A path from the folder of the file that names it.
    Path(&'a str),
    /// The id of a workflow of the project.
    Id(&'a str),
}

/// Why a workflow that was named is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFound {
    pub why: String,
    /// Names that would have been found, to guess what was meant.
    pub known: Vec<String>,
}

/// A sort of name that sources use and projects define.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sort {
    Workflow,
    Agent,
    Tool,
    /// Who does the work of tools.
    Driver,
    /// What tools can implement.
    Action,
    /// When something is started.
    Routine,
    Skill,
    /// A server of tools (MCP).
    Server,
    /// A module of context.
    Context,
    Domain,
    Governance,
    /// Who may do what, and who is asked first.
    Policy,
    Role,
    Secret,
}

impl Sort {
    pub const ALL: [Sort; 14] = [
        Sort::Workflow,
        Sort::Agent,
        Sort::Tool,
        Sort::Driver,
        Sort::Action,
        Sort::Routine,
        Sort::Skill,
        Sort::Server,
        Sort::Context,
        Sort::Domain,
        Sort::Governance,
        Sort::Policy,
        Sort::Role,
        Sort::Secret,
    ];

    /// One of them, and many.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Sort::Workflow => ("workflow", "workflows"),
            Sort::Agent => ("agent", "agents"),
            Sort::Tool => ("tool", "tools"),
            Sort::Driver => ("driver", "drivers"),
            Sort::Action => ("action", "actions"),
            Sort::Routine => ("routine", "routines"),
            Sort::Skill => ("skill", "skills"),
            Sort::Server => ("server", "servers"),
            Sort::Context => ("context", "contexts"),
            Sort::Domain => ("domain", "domains"),
            Sort::Governance => ("governance", "governance"),
            Sort::Policy => ("policy", "policies"),
            Sort::Role => ("role", "roles"),
            Sort::Secret => ("secret", "secrets"),
        }
    }
}

/// The least that a project asks before any work, and where it says so.
#[derive(Debug, Clone)]
pub struct Floor {
    pub class: ApprovalClass,
    pub source: Arc<Source>,
    pub span: Span,
}

/// Asked for everything that is not in the source itself.
pub trait Project {
    /// The source of a workflow that another one names. Two names for one file give sources of the same key.
    fn workflow(&self, from: &Source, reference: Reference<'_>) -> Result<Arc<Source>, NotFound>;

    /// The names of a sort that the project defines; if it defines none, nothing can be said about any. A tool or an
    /// action of a known version is there as `id@major`, too.
    fn names(&self, _: Sort) -> Vec<String> {
        Vec::new()
    }

    /// Returns true if there is a file at a path from the folder of a source. Where there is no disk, every file is there.
    fn has_file(&self, _from: &Source, _path: &str) -> bool {
        true
    }

    /// The file that describes a tool: by its id, or by its id and major version as `id@major`.
    fn tool(&self, _: &str) -> Option<Arc<Source>> {
        None
    }

    /// The file that describes an action, by its id as that of a tool.
    fn action(&self, _: &str) -> Option<Arc<Source>> {
        None
    }

    /// The files of the tools that implement an action.
    fn tools_for(&self, _: &str) -> Vec<Arc<Source>> {
        Vec::new()
    }

    /// The files that describe secrets.
    fn secrets(&self) -> Vec<Arc<Source>> {
        Vec::new()
    }

    /// The file of a policy, or of a resource of kind Governance, by its name.
    fn policy(&self, _: &str) -> Option<Arc<Source>> {
        None
    }

    /// The files of all resources of kind Governance.
    fn governance(&self) -> Vec<Arc<Source>> {
        Vec::new()
    }

    /// The least that is asked before any work, whatever its source says.
    fn floor(&self) -> Option<Floor> {
        None
    }

    /// Who would begin a run.
    fn person(&self) -> Person {
        Person::default()
    }

    /// The time, for what is granted for a while.
    fn now(&self) -> Time {
        Time::default()
    }

    /// What an agent may do, where the project says so, and the domain that it is of.
    fn agent(&self, _: &str) -> (Vec<Capability>, Option<String>) {
        (Vec::new(), None)
    }

    /// Overrides for a workflow of this id, where the project has any.
    fn overrides(&self) -> Option<Arc<Source>> {
        None
    }
}

/// A source by itself.
impl Project for () {
    fn workflow(&self, _: &Source, _: Reference<'_>) -> Result<Arc<Source>, NotFound> {
        Err(NotFound { why: "there is no project around this source".to_owned(), known: Vec::new() })
    }
}
