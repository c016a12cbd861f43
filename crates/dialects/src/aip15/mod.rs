//! AIP-15: a WORKFLOW.md, whose front matter is a list of steps that go on to one another, each a tool, a decision, a
//! wait, or a list of steps of its own.
//!
//! Reading gives the definitions of [`skein_core::builder`], which lowers them: a file and a program that say the same
//! are the same workflow.

mod action;
mod checks;
mod defaults;
mod driver;
mod files;
mod implements;
mod kinds;
mod lower;
mod policy;
mod range;
mod remote;
mod routines;
mod schedule;
mod secrets;
mod step;
mod tool;
mod triggers;
mod value;
mod workflow;

pub use action::{Action, action};
pub use checks::{Asks, Auth, Expired, Health, VersionCheck};
pub use driver::{Driver, DriverKind, driver};
pub use implements::Implements;
pub(crate) use lower::lower;
pub use policy::approval_class;
pub(crate) use policy::version;
pub use range::Range;
pub use remote::{HttpCall, HttpServer, McpCall, McpServer, Texts};
pub use routines::routine;
pub use secrets::{Exposure, Principal, Secret, secrets};
pub(crate) use tool::strictness;
pub use tool::{Tool, tool};
