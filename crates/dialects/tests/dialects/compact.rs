//! Workflows as JSON that is short enough to be read: without what every workflow of the format has, and with small
//! values on one line.

use std::fmt::Write;

use serde_json::{Map, Value};

/// The width of a line that holds a whole value.
const WIDTH: usize = 110;

/// Fields of a step that are always shown.
const OF_A_STEP: &[&str] = &["id", "name", "kind"];

/// Returns a workflow without the fields that are the same in another one, and steps without the fields that are the
/// same in the first step of the other. A field that only the other has is null.
pub(crate) fn difference(mut workflow: Value, other: &Value) -> Value {
    let step = other["scope"]["steps"][0].as_object().expect("there is a step").clone();
    let step = step.into_iter().filter(|(name, _)| !OF_A_STEP.contains(&name.as_str())).collect();
    shorten_steps(&mut workflow, &Value::Object(step));
    let mut other = other.clone();
    // Steps are compared one by one.
    other["scope"].as_object_mut().expect("a scope has fields").shift_remove("steps");
    without(workflow, &other)
}

fn shorten_steps(value: &mut Value, default: &Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| shorten_steps(value, default)),
        Value::Object(fields) => {
            fields.values_mut().for_each(|value| shorten_steps(value, default));
            if fields.contains_key("id") && fields.contains_key("kind") {
                *value = without(std::mem::take(value), default);
            }
        }
        _ => {}
    }
}

fn without(value: Value, default: &Value) -> Value {
    let (fields, defaults) = match (value, default) {
        (Value::Object(fields), Value::Object(defaults)) => (fields, defaults),
        (value, _) => return value,
    };
    let gone = defaults.keys().filter(|name| !fields.contains_key(*name));
    let gone: Vec<_> = gone.map(|name| (name.clone(), Value::Null)).collect();
    let mut shown: Map<String, Value> = fields
        .into_iter()
        .filter(|(name, value)| defaults.get(name) != Some(value))
        .map(|(name, value)| match defaults.get(&name) {
            Some(default) => (name, without(value, default)),
            None => (name, value),
        })
        .collect();
    shown.extend(gone);
    Value::Object(shown)
}

pub(crate) fn print(value: &Value) -> String {
    let mut text = String::new();
    write_value(value, 0, 0, &mut text);
    text.push('\n');
    text
}

/// Writes a value whose line already has some characters.
fn write_value(value: &Value, depth: usize, before: usize, text: &mut String) {
    let line = value.to_string();
    let (open, close, parts): (_, _, Vec<(String, &Value)>) = match value {
        _ if before + line.len() <= WIDTH => return text.push_str(&line),
        Value::Array(values) => ('[', ']', values.iter().map(|value| (String::new(), value)).collect()),
        Value::Object(fields) => {
            let name = |name: &String| format!("{}: ", Value::String(name.clone()));
            ('{', '}', fields.iter().map(|(field, value)| (name(field), value)).collect())
        }
        _ => return text.push_str(&line),
    };
    text.push(open);
    for (i, (name, value)) in parts.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        write!(text, "{comma}\n{:1$}{name}", "", 2 * (depth + 1)).expect("a string can be written to");
        write_value(value, depth + 1, 2 * (depth + 1) + name.len(), text);
    }
    write!(text, "\n{:1$}{close}", "", 2 * depth).expect("a string can be written to");
}

#[test]
fn only_differences_are_shown_and_nothing_is_hidden() {
    let read = |text: &str| serde_json::from_str::<Value>(text).expect("it is JSON");
    let other = read(r#"{"v": 1, "t": {"a": 1, "b": 2}, "scope": {"steps": [{"id": "x", "kind": 1, "p": {"q": 1}}]}}"#);
    let workflow = read(
        r#"{"v": 1, "t": {"a": 3}, "scope": {"steps": [{"id": "x", "kind": 1, "p": {"q": 1}}, {"id": "y", "kind": 1}]}}"#,
    );
    let expected = read(
        r#"{"t": {"a": 3, "b": null}, "scope": {"steps": [{"id": "x", "kind": 1}, {"id": "y", "kind": 1, "p": null}]}}"#,
    );
    assert_eq!(difference(workflow, &other), expected);
}
