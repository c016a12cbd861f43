//! The four formats that Skein reads.
//!
//! A [`SourceFile`] is parsed to a tree that keeps the place of each value. [`detect_dialect`] determines the format.
//! The module of the format reads the fields and lowers them to the IR. Problems of the plan are mapped back to places
//! in the source. The result is a definition, or [`Diagnostic`]s with the problem, its place, the reason and a hint.
//! This crate never reads a file, a clock or the environment: a [`Project`] provides other files.

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
