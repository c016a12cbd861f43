//! Checks that schemas and formats agree: changes examples in many small ways. If a format accepts a variant, its
//! schema must accept it, too. Both must agree about unknown fields.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use jsonschema::Validator;
use serde_json::{Value, json};
use skein_dialects::{Dialect, dialect_schema};

use crate::{document, examples::Examples};

/// A format: its own checks and its schema.
struct Judges {
    dialect: Dialect,
    examples: Examples,
    validator: Validator,
}

impl Judges {
    fn of(dialect: Dialect) -> Judges {
        let document = serde_json::from_str(dialect_schema(dialect)).expect("a schema is JSON");
        let validator = jsonschema::draft202012::new(&document).expect("a schema is one");
        Judges { dialect, examples: Examples::of(dialect), validator }
    }

    /// Returns every example, with its places. Places of a form that occurred before are left out.
    fn places(&self) -> Vec<(PathBuf, Value, Vec<String>)> {
        let mut seen = BTreeSet::new();
        let mut all = Vec::new();
        for path in self.examples.files() {
            let value = document::read(&path).expect("an example can be read");
            let mut found = Vec::new();
            places(&value, "", &mut found);
            found.retain(|at| seen.insert(at.replace(|c: char| c.is_ascii_digit(), "")));
            all.push((path, value, found));
        }
        all
    }

    fn accepts(&self, path: &Path, value: &Value) -> bool {
        let text = match self.dialect {
            Dialect::Aip15 => format!("---\n{value}\n---\n"),
            _ => value.to_string(),
        };
        self.examples.check_text(path, &text).is_valid()
    }

    /// True if the schema refuses a value that the format accepts.
    fn disagree(&self, path: &Path, value: &Value) -> bool {
        !self.validator.is_valid(value) && self.accepts(path, value)
    }
}

/// Collects every place in a value, as a JSON pointer.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, inner)| places(inner, &format!("{at}/{}", escaped(name)), found));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, inner)| places(inner, &format!("{at}/{n}"), found));
        }
        _ => {}
    }
}

fn unknown_fields(dialect: Dialect) {
    let judges = Judges::of(dialect);
    let mut wrong = Vec::new();
    for (path, value, places) in judges.places() {
        for at in places {
            let mut changed = value.clone();
            let Some(Value::Object(fields)) = changed.pointer_mut(&at) else { continue };
            // With another field it is an ordinary value, and its contents may be an invalid path.
            if fields.get("kind") == Some(&json!("literal")) {
                continue;
            }
            fields.insert("zzz".to_owned(), json!({}));
            let (accepted, valid) = (judges.accepts(&path, &changed), judges.validator.is_valid(&changed));
            if accepted != valid {
                wrong.push(format!("{}: {at}: {accepted}, and by the schema {valid}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn other_values(dialect: Dialect) {
    let odd = [json!("x y"), json!(7), json!(true), json!(["zz"]), json!({})];
    let judges = Judges::of(dialect);
    let mut wrong = Vec::new();
    for (path, value, places) in judges.places() {
        for at in places {
            for odd in &odd {
                let mut changed = value.clone();
                *changed.pointer_mut(&at).expect("the place is there") = odd.clone();
                if judges.disagree(&path, &changed) {
                    wrong.push(format!("{}: {at} as {odd}", path.display()));
                }
            }
            let (parent, name) = at.rsplit_once('/').unwrap_or_default();
            let mut changed = value.clone();
            if let Some(Value::Object(fields)) = changed.pointer_mut(parent)
                && fields.remove(name).is_some()
                && judges.disagree(&path, &changed)
            {
                wrong.push(format!("{}: {at} left out", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "only the schema refuses\n{}", wrong.join("\n"));
}

#[test]
fn agentcore() {
    unknown_fields(Dialect::AgentCore);
    other_values(Dialect::AgentCore);
}

#[test]
fn aip15() {
    unknown_fields(Dialect::Aip15);
    other_values(Dialect::Aip15);
}

#[test]
fn ioa() {
    unknown_fields(Dialect::Ioa);
    other_values(Dialect::Ioa);
}

#[test]
fn swdl() {
    unknown_fields(Dialect::Swdl);
    other_values(Dialect::Swdl);
}
