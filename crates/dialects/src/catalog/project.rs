//! The environment of a source: the other files and names that it may refer to. A crate with access to a disk
//! implements it.

use std::sync::Arc;

use skein_core::{
    builder::ApprovalClass, expr::ExprSpan, ir::WorkerCapability, ir::rules::PolicyPrincipal, time::Timestamp,
};

use crate::diagnostics::SourceFile;

/// A reference from a source to another workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkflowReference<'a> {
    /// A path relative to the folder of the file that names it.
    Path(&'a str),
    /// The id of a workflow of the project.
    Id(&'a str),
}

/// The reason why a workflow was not found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowNotFound {
    pub why: String,
    /// Names that exist, for suggestions.
    pub known: Vec<String>,
}

/// A kind of name that sources use and projects define.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CatalogKind {
    Workflow,
    Agent,
    Tool,
    /// An implementation of tools.
    Driver,
    /// An operation that tools implement.
    Action,
    /// A schedule that starts something.
    Routine,
    Skill,
    /// A server of tools (MCP).
    Server,
    /// A module of context.
    Context,
    Domain,
    Governance,
    /// Permissions and required approvals.
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

    /// Returns the singular and the plural of its name.
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

/// The minimum approval that a project requires before any work, and its place in the configuration.
#[derive(Debug, Clone)]
pub struct ApprovalFloor {
    pub class: ApprovalClass,
    pub source: Arc<SourceFile>,
    pub span: ExprSpan,
}

/// Provides everything that is not in the source itself.
pub trait Project {
    /// Returns the source of a workflow that another one names. Two names for one file yield sources with the same key.
    fn resolve_workflow(
        &self,
        from: &SourceFile,
        reference: WorkflowReference<'_>,
    ) -> Result<Arc<SourceFile>, WorkflowNotFound>;

    /// Returns the names of a kind that the project defines. If there are none, names of that kind cannot be checked. A
    /// tool or an action of a known version is also listed as `id@major`.
    fn catalog_names(&self, _: CatalogKind) -> Vec<String> {
        Vec::new()
    }

    /// Returns true if there is a file at a path relative to the folder of a source. Without a disk, every file exists.
    fn has_file(&self, _from: &SourceFile, _path: &str) -> bool {
        true
    }

    /// Returns the file that describes a tool: by its id, or by its id and major version as `id@major`.
    fn find_tool(&self, _: &str) -> Option<Arc<SourceFile>> {
        None
    }

    /// Returns the file that describes an action, by its id in the same notation as a tool's.
    fn find_action(&self, _: &str) -> Option<Arc<SourceFile>> {
        None
    }

    /// Returns the files of the tools that implement an action.
    fn find_tools_for(&self, _: &str) -> Vec<Arc<SourceFile>> {
        Vec::new()
    }

    /// Returns the files that describe secrets.
    fn secret_sources(&self) -> Vec<Arc<SourceFile>> {
        Vec::new()
    }

    /// Returns the file of a policy, or of a resource of kind Governance, by its name.
    fn find_policy(&self, _: &str) -> Option<Arc<SourceFile>> {
        None
    }

    /// Returns the files of all resources of kind Governance.
    fn governance_sources(&self) -> Vec<Arc<SourceFile>> {
        Vec::new()
    }

    /// Returns the minimum approval before any work, independent of its source.
    fn approval_floor(&self) -> Option<ApprovalFloor> {
        None
    }

    /// Returns the principal that would start a run.
    fn current_principal(&self) -> PolicyPrincipal {
        PolicyPrincipal::default()
    }

    /// Returns the time, for grants that expire.
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    /// Returns the capabilities of an agent, if the project sets them, and its domain.
    fn agent_profile(&self, _: &str) -> (Vec<WorkerCapability>, Option<String>) {
        (Vec::new(), None)
    }

    /// Returns the overrides for the workflow, if the project has any.
    fn override_source(&self) -> Option<Arc<SourceFile>> {
        None
    }
}

/// A source without a project.
impl Project for () {
    fn resolve_workflow(&self, _: &SourceFile, _: WorkflowReference<'_>) -> Result<Arc<SourceFile>, WorkflowNotFound> {
        Err(WorkflowNotFound { why: "this source is not part of a project".to_owned(), known: Vec::new() })
    }
}
