//! The four formats that Skein reads.
//!
//! A [`Source`] is read to a tree that knows where each value stands; [`detect`] says which format it is; that
//! format's module reads its fields and lowers them to the IR; the plan's problems are put back at their places in the
//! source. What comes out is a definition, or [`Diagnostic`]s that say what, where, why and what to do. Nothing here
//! reads a file, a clock or the environment: other files are asked of a [`Project`].

mod agentcore;
mod aip15;
mod border;
mod card;
mod catalog;
mod check;
mod code;
mod common;
mod detect;
mod diagnostic;
mod duration;
mod extension;
mod govern;
mod ioa;
mod load;
mod lowering;
mod names;
mod overlap;
mod path;
mod places;
mod policy;
mod problem;
mod project;
mod read;
pub mod render;
mod reveal;
mod schedule;
mod schema;
mod settle;
mod source;
mod swdl;
mod variable;
mod xskein;
pub mod yaml;

pub use aip15::{
    Action, Asks, Auth, Driver, DriverKind, Expired, Exposure, Health, HttpCall, HttpServer, Implements,
    McpCall, McpServer, Principal, Range, Secret, Texts, Tool, VersionCheck, action, approval_class, driver,
    routine, secrets, tool,
};
pub use card::{Card, card};
pub use check::{Report, check};
pub use code::Code;
pub use detect::{
    Detected, Dialect, body, data, detect, has_front_matter, is_probably_workflow, workflow_id,
};
pub use diagnostic::{Diagnostic, Fix, Label, Sink};
pub use duration::Units;
pub use load::load;
pub use lowering::Overridden;
pub use places::Places;
pub use policy::{Governance, Grants, Person, Policy, Rule, governance, policy};
pub use project::{Floor, NotFound, Project, Reference, Sort};
pub use schema::schema;
pub use source::{Position, Source};
