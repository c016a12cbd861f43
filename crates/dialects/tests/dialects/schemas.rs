//! The JSON Schemas that editors are given: they accept what is accepted, refuse what is refused for its shape, say
//! something about every field, and have the same definitions of what Skein adds.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::document;
use jsonschema::Validator;
use serde_json::Value;
use skein_dialects::{Dialect, schema};

const SHARED: &str = include_str!("../../schemas/x-skein.json");

/// Refused for what fields mean together, for other files, or as YAML: more than a schema can say.
const BEYOND_SHAPE: &[&str] = &[
    "call-in-a-circle.yaml",
    "call-of-a-broken-file.yaml",
    "call-of-a-missing-file.yaml",
    "call-of-itself.yaml",
    "conflict-of-an-unknown-step.yaml",
    "context-dir-that-is-the-workspace.yaml",
    "cycle.yaml",
    "duplicate-field.yaml",
    "duplicate-key.yaml",
    "exports-of-nothing.yaml",
    "input-from-an-unknown-step.yaml",
    "input-from-itself.yaml",
    "input-not-in-depends-on.yaml",
    "input-of-an-unknown-artifact.yaml",
    "self-dependency.yaml",
    "tag.yaml",
    "twin-step-ids.yaml",
    "two-cycles.yaml",
    "two-inputs-of-one-name.yaml",
    "two-outputs-of-one-name.yaml",
    "unknown-dependency.yaml",
];

fn document(dialect: Dialect) -> Value {
    serde_json::from_str(schema(dialect).expect("there is a schema")).expect("a schema is JSON")
}

fn validator(dialect: Dialect) -> Validator {
    jsonschema::draft202012::new(&document(dialect)).expect("a schema is one")
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.expect("a folder can be listed").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

fn name(path: &Path) -> String {
    path.file_name().and_then(|name| name.to_str()).expect("names of cases are text").to_owned()
}

#[test]
fn what_is_accepted_is_valid() {
    let validator = validator(Dialect::AgentCore);
    let all = files("tests/inputs/agentcore/accepted").into_iter().chain(files("../../examples/agentcore"));
    let mut wrong = Vec::new();
    for path in all {
        let value = document::read(&path).expect("what is accepted can be read");
        wrong.extend(
            validator
                .iter_errors(&value)
                .map(|error| format!("{}: {}: {error}", path.display(), error.instance_path())),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_refused_for_its_shape_is_not() {
    let validator = validator(Dialect::AgentCore);
    let refused = files("tests/inputs/agentcore/refused").into_iter();
    let readable = refused.filter_map(|path| document::read(&path).map(|value| (name(&path), value)));
    let accepted: BTreeSet<String> =
        readable.filter(|(_, value)| validator.is_valid(value)).map(|(name, _)| name).collect();
    assert_eq!(accepted, BEYOND_SHAPE.iter().map(|name| (*name).to_owned()).collect());
}

/// Every schema inside a schema, with where it is.
fn walk(value: &Value, at: &str, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(fields) => {
            found.push((at.to_owned(), value.clone()));
            fields.iter().for_each(|(name, inner)| walk(inner, &format!("{at}/{name}"), found));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, inner)| walk(inner, &format!("{at}/{n}"), found));
        }
        _ => {}
    }
}

#[test]
fn every_field_is_described_and_every_object_is_closed() {
    for dialect in Dialect::ALL.into_iter().filter(|dialect| schema(*dialect).is_some()) {
        let mut found = Vec::new();
        walk(&document(dialect), "", &mut found);
        for (at, part) in &found {
            let is_field = at.rsplit('/').nth(1) == Some("properties") && !at.contains("/then/");
            let described = part.get("description").is_some() || part.get("$ref").is_some();
            assert!(!is_field || described, "{dialect}: {at} has no description");
            let shared = at.starts_with("/$defs/skein");
            let closed = ["additionalProperties", "unevaluatedProperties"];
            let has_fields =
                part.get("properties").is_some_and(Value::is_object) && part.get("type").is_some();
            if has_fields && !shared {
                assert!(closed.iter().any(|word| part.get(word).is_some()), "{dialect}: {at} is open");
            }
        }
    }
}

#[test]
fn what_skein_adds_is_the_same_in_every_format() {
    let shared: Value = serde_json::from_str(SHARED).expect("it is JSON");
    for dialect in Dialect::ALL.into_iter().filter(|dialect| schema(*dialect).is_some()) {
        let document = document(dialect);
        for (name, part) in shared["$defs"].as_object().expect("definitions are an object") {
            assert_eq!(&document["$defs"][name], part, "{dialect}: `{name}` is not as in x-skein.json");
        }
    }
}
