//! What surrounds a source: the other files and names that it may refer to. Whoever has a disk implements it.

use std::sync::Arc;

use skein_core::{builder::ApprovalClass, expr::ExprSpan, ir::WorkerCapability, time::Timestamp};

use crate::{policy::PolicyPrincipal, source::SourceFile};

/// How a source names another workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkflowReference<'a> {
    /// A path from the folder of the file that names it.
    Path(&'a str),
    /// The id of a workflow of the project.
    Id(&'a str),
}

/// Why a workflow that was named is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowNotFound {
    pub why: String,
    /// Names that would have been found, to guess what was meant.
    pub known: Vec<String>,
}

/// A sort of name that sources use and projects define.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CatalogKind {
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

impl CatalogKind {
    pub const ALL: [CatalogKind; 14] = [
        CatalogKind::Workflow,
        CatalogKind::Agent,
        CatalogKind::Tool,
        CatalogKind::Driver,
        CatalogKind::Action,
        CatalogKind::Routine,
        CatalogKind::Skill,
        CatalogKind::Server,
        CatalogKind::Context,
        CatalogKind::Domain,
        CatalogKind::Governance,
        CatalogKind::Policy,
        CatalogKind::Role,
        CatalogKind::Secret,
    ];

    /// One of them, and many.
    pub fn singular_and_plural(self) -> (&'static str, &'static str) {
        match self {
            CatalogKind::Workflow => ("workflow", "workflows"),
            CatalogKind::Agent => ("agent", "agents"),
            CatalogKind::Tool => ("tool", "tools"),
            CatalogKind::Driver => ("driver", "drivers"),
            CatalogKind::Action => ("action", "actions"),
            CatalogKind::Routine => ("routine", "routines"),
            CatalogKind::Skill => ("skill", "skills"),
            CatalogKind::Server => ("server", "servers"),
            CatalogKind::Context => ("context", "contexts"),
            CatalogKind::Domain => ("domain", "domains"),
            CatalogKind::Governance => ("governance", "governance"),
            CatalogKind::Policy => ("policy", "policies"),
            CatalogKind::Role => ("role", "roles"),
            CatalogKind::Secret => ("secret", "secrets"),
        }
    }
}

/// The least that a project asks before any work, and where it says so.
#[derive(Debug, Clone)]
pub struct ApprovalFloor {
    pub class: ApprovalClass,
    pub source: Arc<SourceFile>,
    pub span: ExprSpan,
}

/// Asked for everything that is not in the source itself.
pub trait Project {
    /// The source of a workflow that another one names. Two names for one file give sources of the same key.
    fn resolve_workflow(
        &self,
        from: &SourceFile,
        reference: WorkflowReference<'_>,
    ) -> Result<Arc<SourceFile>, WorkflowNotFound>;

    /// The names of a sort that the project defines; if it defines none, nothing can be said about any. A tool or an
    /// action of a known version is there as `id@major`, too.
    fn catalog_names(&self, _: CatalogKind) -> Vec<String> {
        Vec::new()
    }

    /// Returns true if there is a file at a path from the folder of a source. Where there is no disk, every file is there.
    fn has_file(&self, _from: &SourceFile, _path: &str) -> bool {
        true
    }

    /// The file that describes a tool: by its id, or by its id and major version as `id@major`.
    fn find_tool(&self, _: &str) -> Option<Arc<SourceFile>> {
        None
    }

    /// The file that describes an action, by its id as that of a tool.
    fn find_action(&self, _: &str) -> Option<Arc<SourceFile>> {
        None
    }

    /// The files of the tools that implement an action.
    fn find_tools_for(&self, _: &str) -> Vec<Arc<SourceFile>> {
        Vec::new()
    }

    /// The files that describe secrets.
    fn secret_sources(&self) -> Vec<Arc<SourceFile>> {
        Vec::new()
    }

    /// The file of a policy, or of a resource of kind Governance, by its name.
    fn find_policy(&self, _: &str) -> Option<Arc<SourceFile>> {
        None
    }

    /// The files of all resources of kind Governance.
    fn governance_sources(&self) -> Vec<Arc<SourceFile>> {
        Vec::new()
    }

    /// The least that is asked before any work, whatever its source says.
    fn approval_floor(&self) -> Option<ApprovalFloor> {
        None
    }

    /// Who would begin a run.
    fn current_principal(&self) -> PolicyPrincipal {
        PolicyPrincipal::default()
    }

    /// The time, for what is granted for a while.
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    /// What an agent may do, where the project says so, and the domain that it is of.
    fn agent_profile(&self, _: &str) -> (Vec<WorkerCapability>, Option<String>) {
        (Vec::new(), None)
    }

    /// Overrides for a workflow of this id, where the project has any.
    fn override_source(&self) -> Option<Arc<SourceFile>> {
        None
    }
}

/// A source by itself.
impl Project for () {
    fn resolve_workflow(
        &self,
        _: &SourceFile,
        _: WorkflowReference<'_>,
    ) -> Result<Arc<SourceFile>, WorkflowNotFound> {
        Err(WorkflowNotFound { why: "there is no project around this source".to_owned(), known: Vec::new() })
    }
}
