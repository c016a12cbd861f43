//! The examples that people are shown are right, and show every field.

mod project;

use std::{collections::BTreeSet, fs, path::Path};

use project::Folder;
use serde_json::Value;
use skein_core::expr::Span;
use skein_dialects::{Dialect, Sink, Source, check, render, schema, yaml::parse};

/// The examples of a format, each as its name and text.
fn examples(dialect: Dialect) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(dialect.as_str());
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let files =
        entries.map(|entry| entry.expect("a folder can be listed").path()).filter(|path| path.is_file());
    let read = |path: std::path::PathBuf| {
        let name =
            path.file_name().and_then(|name| name.to_str()).expect("names of examples are text").to_owned();
        (name, fs::read_to_string(&path).expect("an example can be read"))
    };
    let mut examples: Vec<(String, String)> = files.map(read).collect();
    examples.sort();
    examples
}

/// Checks every example of a format.
fn all_are_right(dialect: Dialect) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(dialect.as_str());
    for (name, text) in examples(dialect) {
        let report = check(Source::new(name.as_str(), text), &Folder::of(&folder));
        let errors: Vec<String> = report
            .diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.is_error())
            .map(|diagnostic| render::human(diagnostic, false))
            .collect();
        assert!(errors.is_empty(), "{}", errors.join("\n"));
        assert_eq!(report.dialect, Some(dialect), "{name}");
        assert!(report.definition.is_some(), "{name} has no plan");
    }
}

/// The names of all fields in a value.
fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.keys().cloned());
            fields.values().for_each(|inner| keys(inner, found));
        }
        Value::Array(items) => items.iter().for_each(|inner| keys(inner, found)),
        _ => {}
    }
}

/// The names of all fields that a schema knows.
fn known(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            let properties = fields.get("properties").and_then(Value::as_object);
            found.extend(properties.into_iter().flat_map(|properties| properties.keys().cloned()));
            fields.values().for_each(|inner| known(inner, found));
        }
        Value::Array(items) => items.iter().for_each(|inner| known(inner, found)),
        _ => {}
    }
}

/// Fields of a format that none of its examples has.
fn not_shown(dialect: Dialect) -> BTreeSet<String> {
    let mut shown = BTreeSet::new();
    for (name, text) in examples(dialect) {
        let window = Span::new(0, text.len());
        let tree = parse(window, &mut Sink::new(Source::new(name, text))).expect("an example is YAML");
        keys(&tree.root().json(), &mut shown);
    }
    let schema: Value =
        serde_json::from_str(schema(dialect).expect("there is a schema")).expect("a schema is JSON");
    let mut all = BTreeSet::new();
    known(&schema, &mut all);
    all.difference(&shown).cloned().collect()
}

#[test]
fn agentcore_examples() {
    all_are_right(Dialect::AgentCore);
    assert_eq!(not_shown(Dialect::AgentCore), BTreeSet::new(), "every field is in some example");
    let without_agents = examples(Dialect::AgentCore).into_iter().filter(|(_, text)| {
        !["CODEX_CLI", "CLAUDE_CODE", "OPENCODE"].iter().any(|agent| text.contains(agent))
    });
    assert!(without_agents.count() >= 2, "some examples need no agent");
}
