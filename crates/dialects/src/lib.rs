//! The four formats that Skein reads.
//!
//! A [`SourceFile`] is read to a tree that knows where each value stands; [`detect`] says which format it is; that
//! format's module reads its fields and lowers them to the IR; the plan's problems are put back at their places in the
//! source. What comes out is a definition, or [`Diagnostic`]s that say what, where, why and what to do. Nothing here
//! reads a file, a clock or the environment: other files are asked of a [`Project`].

mod agentcore;
mod aip15;
mod call_contract;
mod catalog;
mod catalog_card;
mod check;
mod code;
mod common;
mod conflict_resolver;
mod cron;
mod detect;
mod diagnostic;
mod dialect_terms;
mod duration;
mod extension_block;
mod extension_checks;
mod fields;
mod ioa;
mod load;
mod lowering;
mod names;
mod policy;
mod policy_lowering;
mod project;
pub mod render;
mod schema;
mod secret_access;
mod source;
mod source_map;
mod swdl;
mod variable;
mod workspace_overlap;
mod workspace_path;
pub mod yaml;

pub use aip15::{
    Aip15Action, Aip15Driver, Aip15Tool, DriverAuth, DriverHealthCheck, DriverHealthProbe, DriverKind,
    HttpCall, HttpServer, ImplementedTool, LoginExpiry, McpCall, McpServer, NamedTexts, SecretDeclaration,
    SecretExposure, SecretPrincipal, VersionCheck, VersionRange, check_routine, parse_approval_class,
    read_action, read_driver, read_secrets, read_tool,
};
pub use catalog_card::{CatalogCard, read_catalog_card};
pub use check::{SourceReport, check_source};
pub use code::Code;
pub use detect::{
    DetectedSource, Dialect, detect_dialect, has_front_matter, is_probably_workflow, markdown_body,
    read_as_json, read_workflow_id,
};
pub use diagnostic::{Diagnostic, DiagnosticLabel, DiagnosticSink, SuggestedFix};
pub use duration::DurationUnits;
pub use load::load_source;
pub use lowering::OverriddenField;
pub use policy::{
    GrantPolicy, IoaGovernance, PolicyDocument, PolicyPrincipal, PolicyRule, read_governance, read_policy,
};
pub use project::{ApprovalFloor, CatalogKind, Project, WorkflowNotFound, WorkflowReference};
pub use schema::dialect_schema;
pub use source::{SourceFile, SourcePosition};
pub use source_map::SourceMap;
