//! Tests the JSON Schemas for editors: they accept accepted sources, refuse sources of invalid form, describe every
//! field, and share the definitions of Skein's extensions.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::{document, examples::Examples};
use jsonschema::Validator;
use serde_json::Value;
use skein_dialects::{Dialect, dialect_schema};

const SHARED: &str = include_str!("../../schemas/x-skein.json");

// Refused for reasons beyond a schema: relations between fields, other files, the contents of expressions, or YAML
// syntax.

const AGENTCORE: &[&str] = &[
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
    "settlers-that-cannot.yaml",
    "tag.yaml",
    "twin-step-ids.yaml",
    "two-cycles.yaml",
    "two-inputs-of-one-name.yaml",
    "two-outputs-of-one-name.yaml",
    "unknown-dependency-of-a-shared-workspace.yaml",
    "unknown-dependency.yaml",
];
const AIP15: &[&str] = &[
    "alias-to-a-step.md",
    "branch-target-unknown.md",
    "compensation-not-a-tool.md",
    "compensation-of-a-compensation.md",
    "compensation-of-itself.md",
    "compensation-reads-what-is-not-there.md",
    "compensation-target-unknown.md",
    "condition-is-a-tag.md",
    "conflict-of-an-unknown-step.md",
    "cycle-with-its-ways.md",
    "cycle.md",
    "duplicate-key.md",
    "item-outside-a-map.md",
    "next-in-another-list.md",
    "parallel-branch-next-differs.md",
    "parallel-branch-next-without-the-steps.md",
    "parallel-branch-twice.md",
    "path-with-something-after.md",
    "reads-a-later-step.md",
    "reads-a-sibling-branch.md",
    "reads-inside-a-map.md",
    "reads-undeclared-output.md",
    "reads-unknown-input.md",
    "reads-unknown-step.md",
    "result-reads-unknown.md",
    "settler-that-does-not-follow.md",
    "start-unknown.md",
    "step-id-twice.md",
    "subworkflow-input-missing.md",
    "subworkflow-recursion.md",
    "suspend-timeout-target-unknown.md",
    "suspendable-false.md",
    "tag.md",
    "tool-not-in-the-project.md",
    "unknown-action.md",
    "unreachable-and-reads.md",
    "unreachable.md",
    "what-only-follows.md",
];
const IOA: &[&str] = &[
    "calls-with-the-wrong-values.yaml",
    "compensation-of-an-unknown-step.yaml",
    "compensation-twice.yaml",
    "conflict-settled-by-a-gate.yaml",
    "cycle-of-one.yaml",
    "cycle.yaml",
    "gate-shows-what-cannot-be.yaml",
    "names-that-look-alike.yaml",
    "no-root.yaml",
    "output-that-is-not-declared.yaml",
    "same-name-twice.yaml",
    "same-step-by-alias.yaml",
    "trigger-condition-reads-a-step.yaml",
    "trigger-condition-without-event.yaml",
    "trigger-condition.yaml",
    "unknown-agent.yaml",
    "unknown-dependency.yaml",
    "unknown-domain.yaml",
    "unreachable-behind-a-cycle.yaml",
];
const SWDL: &[&str] = &[
    "calls-that-cannot-be.yaml",
    "command-for-a-shell.yaml",
    "conflict-in-another-list.yaml",
    "cycle.yaml",
    "delay-of-days.yaml",
    "depends-on-itself.yaml",
    "duplicate-id.yaml",
    "expression-as-program.yaml",
    "expression-in-key.yaml",
    "expressions-that-are-none.yaml",
    "fan-out-reads-itself.yaml",
    "hook-reads-too-early.yaml",
    "item-outside-fan-out.yaml",
    "longest-delay-too-short.yaml",
    "nested-expression.yaml",
    "operators-of-other-languages.yaml",
    "override-adds-a-tool.yaml",
    "override-adds-an-approver.yaml",
    "override-changes-how-long-a-gate-waits.yaml",
    "override-changes-what-is-called.yaml",
    "override-lets-anyone-approve.yaml",
    "override-loosens-x-skein.yaml",
    "override-of-what-is-not-there.yaml",
    "override-of-what-is-protected.yaml",
    "override-opens-a-gate.yaml",
    "override-that-is-wrong.yaml",
    "overrides-of-another-shape.yaml",
    "overrides-that-are-no-yaml.yaml",
    "reads-a-stage-that-is-not-before.yaml",
    "reads-undeclared-output.yaml",
    "reads-undeclared-parameter.yaml",
    "reads-unknown-stage.yaml",
    "secrets-are-no-namespace.yaml",
    "unclosed-expression.yaml",
    "unknown-agent.yaml",
    "unknown-dependency.yaml",
];

fn beyond_shape(dialect: Dialect) -> &'static [&'static str] {
    match dialect {
        Dialect::AgentCore => AGENTCORE,
        Dialect::Aip15 => AIP15,
        Dialect::Ioa => IOA,
        Dialect::Swdl => SWDL,
    }
}

fn document(dialect: Dialect) -> Value {
    serde_json::from_str(dialect_schema(dialect)).expect("a schema is JSON")
}

fn validator(dialect: Dialect) -> Validator {
    jsonschema::draft202012::new(&document(dialect)).expect("a schema is one")
}

/// Returns the cases of a format, accepted or refused.
fn inputs(dialect: Dialect, sort: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/inputs").join(dialect.as_str()).join(sort);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder can be listed").path()).collect();
    files.retain(|path| path.is_file() && !name(path).ends_with(".snap"));
    files.sort();
    assert!(files.len() > 20, "{} cases in {}", files.len(), folder.display());
    files
}

fn name(path: &Path) -> String {
    path.file_name().and_then(|name| name.to_str()).expect("names of cases are text").to_owned()
}

#[test]
fn what_is_accepted_is_valid() {
    let mut wrong = Vec::new();
    for dialect in Dialect::ALL {
        let validator = validator(dialect);
        for path in inputs(dialect, "accepted").into_iter().chain(Examples::of(dialect).files()) {
            let value = document::read(&path).expect("what is accepted can be read");
            let errors = validator.iter_errors(&value);
            wrong.extend(errors.map(|error| format!("{}: {}: {error}", path.display(), error.instance_path())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_refused_for_its_shape_is_not() {
    for dialect in Dialect::ALL {
        let validator = validator(dialect);
        let refused = inputs(dialect, "refused").into_iter();
        let readable = refused.filter_map(|path| document::read(&path).map(|value| (name(&path), value)));
        let accepted: BTreeSet<String> =
            readable.filter(|(_, value)| validator.is_valid(value)).map(|(name, _)| name).collect();
        let beyond: BTreeSet<String> = beyond_shape(dialect).iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(accepted, beyond, "{dialect}");
    }
}

/// Collects every schema inside a schema, with its place.
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
fn every_field_is_described_and_every_object_says_whether_others_may_add_to_it() {
    for dialect in Dialect::ALL {
        let mut found = Vec::new();
        walk(&document(dialect), "", &mut found);
        for (at, part) in &found {
            let is_field = at.rsplit('/').nth(1) == Some("properties") && !at.contains("/then/");
            let described = part.get("description").is_some() || part.get("$ref").is_some();
            assert!(!is_field || described, "{dialect}: {at} has no description");
            let shared = at.starts_with("/$defs/skein");
            let closed = ["additionalProperties", "unevaluatedProperties"];
            let has_fields = part.get("properties").is_some_and(Value::is_object) && part.get("type").is_some();
            if has_fields && !shared {
                assert!(closed.iter().any(|word| part.get(word).is_some()), "{dialect}: {at} does not say");
            }
        }
    }
}

#[test]
fn what_skein_adds_is_the_same_in_every_format() {
    let shared: Value = serde_json::from_str(SHARED).expect("it is JSON");
    for dialect in Dialect::ALL {
        let document = document(dialect);
        for (name, part) in shared["$defs"].as_object().expect("definitions are an object") {
            assert_eq!(&document["$defs"][name], part, "{dialect}: `{name}` is not as in x-skein.json");
        }
    }
}

#[test]
fn every_agent_is_offered() {
    let schema: Value = serde_json::from_str(dialect_schema(Dialect::AgentCore)).expect("it is JSON");
    let offered = schema["$defs"]["worker"]["enum"].as_array().expect("it is a list");
    let known = skein_core::agents::KNOWN.iter().map(|agent| agent.word).chain(["CUSTOM"]);
    assert!(known.eq(offered.iter().filter_map(Value::as_str)), "{offered:?}");
}
