//! What the expression tests share: surfaces by name, and environments made of JSON.

use std::borrow::Cow;

use serde_json::{Map, Value};
use skein_core::expr::swdl::Scope;
use skein_core::expr::{Env, Expr, Lookup, ParseError, Part, Root, Ty, TypeEnv, aip15, ioa, swdl};

/// Parses `text` as the named surface would; the `-value` ones take JSON.
pub fn parse(surface: &str, text: &str) -> Result<Expr, ParseError> {
    let json = || serde_json::from_str::<Value>(text).unwrap();
    match surface {
        "aip" => aip15::condition(text),
        "aip-value" => aip15::value(&json()),
        "swdl" => swdl::condition(text, Scope::Stage),
        "swdl-item" => swdl::condition(text, Scope::FanOut),
        "swdl-template" => swdl::template(text, Scope::Stage),
        "swdl-value" => swdl::value(&json(), Scope::Stage),
        "ioa" => ioa::condition(text),
        "ioa-value" => ioa::value(&json()),
        other => panic!("no surface {other}"),
    }
}

/// The values that a table's line names, or writes out.
pub fn bindings(text: &str) -> Result<Map<String, Value>, String> {
    let json = match text {
        "-" => "{}",
        "std" => include_str!("std.json"),
        "schemas" => include_str!("schemas.json"),
        inline => inline,
    };
    serde_json::from_str(json).map_err(|error| error.to_string())
}

/// Roots by their names. `steps` maps ids to `{output, status, summary}`; the text `"not yet"` is just that.
pub struct Values(pub Map<String, Value>);

fn find<'a>(all: &'a Map<String, Value>, root: &Root) -> Option<&'a Value> {
    match root {
        Root::Input => all.get("input"),
        Root::Item => all.get("item"),
        Root::Index => all.get("index"),
        Root::Context => all.get("context"),
        Root::Env => all.get("env"),
        Root::Run => all.get("run"),
        Root::Workflow => all.get("workflow"),
        Root::Step { id, part } => all.get("steps")?.get(&**id)?.get(match part {
            Part::Output => "output",
            Part::Status => "status",
            Part::Summary => "summary",
        }),
    }
}

impl Env for Values {
    fn lookup(&self, root: &Root) -> Lookup<'_> {
        match find(&self.0, root) {
            None => Lookup::Absent,
            Some(value) if value == "not yet" => Lookup::NotYet,
            // The input is lent and the rest is given away, so that both are tried.
            Some(value) if *root == Root::Input => Lookup::Found(Cow::Borrowed(value)),
            Some(value) => Lookup::Found(Cow::Owned(value.clone())),
        }
    }
}

/// The same, with a schema for each root.
pub struct Schemas(pub Map<String, Value>);

impl TypeEnv for Schemas {
    fn ty_of(&self, root: &Root) -> Ty {
        find(&self.0, root).map_or(Ty::Any, Ty::of_schema)
    }
}
