//! The four formats that Skein reads.
//!
//! A [`SourceFile`] is parsed to a tree that keeps the place of each value. [`detect_dialect`] determines the format.
//! The module of the format reads the fields and lowers them to the IR. Problems of the plan are mapped back to places
//! in the source. The result is a definition, or [`Diagnostic`]s with the problem, its place, the reason and a hint.
//! This crate never reads a file, a clock or the environment: a [`Project`] provides other files.

mod agentcore;
mod aip15;
mod catalog;
mod check;
mod diagnostics;
mod extensions;
mod fields;
mod ioa;
mod lowering;
mod policy;
mod source;
mod swdl;

pub use catalog::{
    Aip15Action, Aip15Driver, Aip15Tool, ApprovalFloor, CatalogCard, CatalogKind, DriverAuth, DriverHealthCheck,
    DriverHealthProbe, DriverKind, HttpCall, HttpServer, ImplementedTool, LoginExpiry, McpCall, McpServer, NamedTexts,
    Project, SecretDeclaration, SecretExposure, SecretPrincipal, VersionCheck, VersionRange, WorkflowNotFound,
    WorkflowReference, check_routine, parse_approval_class, read_action, read_catalog_card, read_driver, read_secrets,
    read_tool,
};
pub use check::{SourceReport, check_source};
pub use diagnostics::{
    Code, Diagnostic, DiagnosticLabel, DiagnosticSink, SourceFile, SourcePosition, SuggestedFix, render,
};
pub use fields::{DurationError, DurationUnits};
pub use lowering::OverriddenField;
pub use policy::{read_governance, read_policy};
pub use source::{
    DetectedSource, Dialect, SourceMap, detect_dialect, dialect_schema, has_front_matter, is_probably_workflow,
    load_source, markdown_body, read_as_json, read_workflow_id, yaml,
};
