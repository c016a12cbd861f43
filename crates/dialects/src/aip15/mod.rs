//! AIP-15: a WORKFLOW.md, whose front matter is a list of steps with transitions to one another. Each step is a tool, a
//! decision, a wait or a nested list of steps.
//!
//! Reading yields the definitions of [`skein_core::builder`], which lowers them: a file and a program with the same
//! definitions are the same workflow.

mod action;
mod defaults;
mod driver;
mod driver_checks;
mod files;
mod implementation;
mod lower;
mod policy;
mod remote;
mod routines;
mod schedule;
mod secrets;
mod step;
mod step_kinds;
mod tool;
mod triggers;
mod value;
mod version_range;
mod workflow;

pub use action::{Aip15Action, read_action};
pub use driver::{Aip15Driver, DriverKind, read_driver};
pub use driver_checks::{DriverAuth, DriverHealthCheck, DriverHealthProbe, LoginExpiry, VersionCheck};
pub use implementation::ImplementedTool;
pub(crate) use lower::lower;
pub use policy::parse_approval_class;
pub(crate) use policy::read_version;
pub use remote::{HttpCall, HttpServer, McpCall, McpServer, NamedTexts};
pub use routines::check_routine;
pub use secrets::{SecretDeclaration, SecretExposure, SecretPrincipal, read_secrets};
pub(crate) use tool::approval_strictness;
pub use tool::{Aip15Tool, read_tool};
pub use version_range::VersionRange;
