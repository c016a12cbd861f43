//! Shared parts of the expression tests: surfaces by name, and environments made of JSON.

use std::borrow::Cow;

use serde_json::{Map, Value};
use skein_core::expr::swdl::SwdlExprScope;
use skein_core::expr::{
    Expr, ExprEnv, ExprParseError, ExprType, ReferenceRoot, RootLookup, StepProperty, TypeEnv, aip15, ioa, swdl,
};

/// Parses `text` with the named surface; the `-value` surfaces take JSON.
pub(crate) fn parse(surface: &str, text: &str) -> Result<Expr, ExprParseError> {
    let json = || serde_json::from_str::<Value>(text).unwrap();
    match surface {
        "aip" => aip15::parse_condition(text),
        "aip-value" => aip15::parse_value(&json()),
        "swdl" => swdl::parse_condition(text, SwdlExprScope::Stage),
        "swdl-item" => swdl::parse_condition(text, SwdlExprScope::FanOut),
        "swdl-template" => swdl::parse_template(text, SwdlExprScope::Stage),
        "swdl-value" => swdl::parse_value(&json(), SwdlExprScope::Stage),
        "ioa" => ioa::parse_condition(text),
        "ioa-value" => ioa::parse_value(&json()),
        other => panic!("no surface {other}"),
    }
}

/// Returns the values that a table line names or contains.
pub(crate) fn bindings(text: &str) -> Result<Map<String, Value>, String> {
    let json = match text {
        "-" => "{}",
        "std" => include_str!("std.json"),
        "schemas" => include_str!("schemas.json"),
        inline => inline,
    };
    serde_json::from_str(json).map_err(|error| error.to_string())
}

/// Roots by name. `steps` maps ids to `{output, status, summary}`; the text `"not yet"` stands for a value that is not
/// available yet.
pub(crate) struct Values(pub Map<String, Value>);

fn find<'a>(all: &'a Map<String, Value>, root: &ReferenceRoot) -> Option<&'a Value> {
    match root {
        ReferenceRoot::Input => all.get("input"),
        ReferenceRoot::Item => all.get("item"),
        ReferenceRoot::Index => all.get("index"),
        ReferenceRoot::Context => all.get("context"),
        ReferenceRoot::Env => all.get("env"),
        ReferenceRoot::Run => all.get("run"),
        ReferenceRoot::Workflow => all.get("workflow"),
        ReferenceRoot::Step { id, part } => all.get("steps")?.get(&**id)?.get(match part {
            StepProperty::Output => "output",
            StepProperty::Status => "status",
            StepProperty::Summary => "summary",
        }),
    }
}

impl ExprEnv for Values {
    fn lookup(&self, root: &ReferenceRoot) -> RootLookup<'_> {
        match find(&self.0, root) {
            None => RootLookup::Absent,
            Some(value) if value == "not yet" => RootLookup::NotYet,
            // The input is borrowed and the rest is owned, so that both are tested.
            Some(value) if *root == ReferenceRoot::Input => RootLookup::Found(Cow::Borrowed(value)),
            Some(value) => RootLookup::Found(Cow::Owned(value.clone())),
        }
    }
}

/// Roots by name, with a schema for each.
pub(crate) struct Schemas(pub Map<String, Value>);

impl TypeEnv for Schemas {
    fn ty_of(&self, root: &ReferenceRoot) -> ExprType {
        find(&self.0, root).map_or(ExprType::Any, ExprType::from_schema)
    }
}
