//! The names that sources use and a project defines, and the files that define them: actions, tools, drivers, secrets and
//! routines of AIP, resources of IOA.

pub(crate) mod action;
mod card;
pub(crate) mod definition_fields;
mod driver;
mod driver_checks;
mod ioa_metadata;
mod name_check;
mod project;
mod remote;
pub(crate) mod routines;
mod secrets;
pub(crate) mod tool;
mod version_range;

pub use action::{Aip15Action, read_action};
pub use card::{CatalogCard, read_catalog_card};
pub use definition_fields::parse_approval_class;
pub use driver::{Aip15Driver, DriverKind, read_driver};
pub use driver_checks::{DriverAuth, DriverHealthCheck, DriverHealthProbe, LoginExpiry, VersionCheck};
pub(crate) use ioa_metadata::IoaMetadata;
pub(crate) use name_check::{NameUse, check_names, warn_unknown_names};
pub use project::{ApprovalFloor, CatalogKind, Project, WorkflowNotFound, WorkflowReference};
pub use remote::{HttpCall, HttpServer, ImplementedTool, McpCall, McpServer, NamedTexts};
pub use routines::check_routine;
pub use secrets::{SecretDeclaration, SecretExposure, SecretPrincipal, read_secrets};
pub use tool::{Aip15Tool, read_tool};
pub use version_range::VersionRange;
