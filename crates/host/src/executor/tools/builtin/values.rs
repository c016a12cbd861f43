//! Functions of values alone: merge objects, pick values, fill a template.

use serde_json::{Map, Value, json};

use super::BuiltinError;
use crate::executor::attempt::command::to_plain_text;

/// The maximum nesting depth of merged values.
const DEEPEST: usize = 64;

/// A required text input.
pub fn required_text<'a>(inputs: &'a Value, name: &str) -> Result<&'a str, BuiltinError> {
    optional_text(inputs, name)?
        .ok_or_else(|| BuiltinError::invalid_input(format!("the input `{name}` is required and must be a string")))
}

/// An optional text input.
pub fn optional_text<'a>(inputs: &'a Value, name: &str) -> Result<Option<&'a str>, BuiltinError> {
    match inputs.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(BuiltinError::invalid_input(format!("the input `{name}` must be a string"))),
    }
}

/// Merges the objects of `values`. Later objects override earlier ones.
pub fn merge_objects(inputs: &Value) -> Result<Value, BuiltinError> {
    let values = inputs.get("values").and_then(Value::as_array);
    let values = values
        .ok_or_else(|| BuiltinError::invalid_input("the input `values` is required and must be a list of objects"))?;
    let mut whole = Value::Object(Map::new());
    for value in values {
        if !value.is_object() {
            return Err(BuiltinError::invalid_input("every item of `values` must be an object"));
        }
        merge_into(&mut whole, value, DEEPEST)?;
    }
    Ok(json!({"value": whole}))
}

/// Recursion is bounded by `depth`.
fn merge_into(under: &mut Value, value: &Value, depth: usize) -> Result<(), BuiltinError> {
    if depth == 0 {
        return Err(BuiltinError::invalid_input(format!(
            "the objects in `values` are nested more than {DEEPEST} levels deep"
        )));
    }
    match (under, value) {
        (Value::Object(under), Value::Object(fields)) => {
            for (name, value) in fields {
                merge_into(under.entry(name).or_insert(Value::Null), value, depth - 1)?;
            }
        }
        (under, value) => *under = value.clone(),
    }
    Ok(())
}

/// Picks values out of `value`: for each name in `paths`, the value at its pointer, or null.
pub fn pick_values(inputs: &Value) -> Result<Value, BuiltinError> {
    let value = inputs.get("value").ok_or_else(|| BuiltinError::invalid_input("the input `value` is required"))?;
    let paths = inputs.get("paths").and_then(Value::as_object);
    let paths = paths.ok_or_else(|| {
        BuiltinError::invalid_input("the input `paths` is required: an object of JSON pointers such as `/a/0`")
    })?;
    let mut picked = Map::new();
    for (name, pointer) in paths {
        let pointer = pointer.as_str().filter(|text| text.is_empty() || text.starts_with('/'));
        let pointer = pointer.ok_or_else(|| {
            BuiltinError::invalid_input(format!("the path `{name}` is not a JSON pointer such as `/a/0`"))
        })?;
        picked.insert(name.clone(), value.pointer(pointer).cloned().unwrap_or_default());
    }
    Ok(Value::Object(picked))
}

/// Fills `{{name}}` and `{{name.field}}` of `template` with `values`. An inserted value is not expanded again.
pub fn fill_template(inputs: &Value) -> Result<Value, BuiltinError> {
    let template = required_text(inputs, "template")?;
    let values = inputs.get("values").unwrap_or(&Value::Null);
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, left)) = after.split_once("}}") else {
            return Err(BuiltinError::invalid_input("`template` has a `{{` that is never closed"));
        };
        let name = name.trim();
        let found = name.split('.').try_fold(values, |value, part| value.get(part));
        let found = found.ok_or_else(|| {
            BuiltinError::invalid_input(format!("`template` refers to `{name}`, which is not in `values`"))
        })?;
        filled.push_str(before);
        filled.push_str(&to_plain_text(found));
        if filled.len() > skein_core::limits::VALUE_BYTES {
            return Err(BuiltinError::invalid_input(format!(
                "the text is more than {} bytes",
                skein_core::limits::VALUE_BYTES
            )));
        }
        rest = left;
    }
    filled.push_str(rest);
    Ok(json!({"text": filled}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(done: Result<Value, BuiltinError>) -> String {
        done.err().map(|wrong| format!("{} {}", wrong.code, wrong.message)).unwrap_or_default()
    }

    #[test]
    fn objects_are_put_together_from_the_first_to_the_last() {
        let values = json!({"values": [{"a": {"b": 1, "c": 2}, "l": [1]}, {"a": {"b": 3}, "l": [2]}]});
        assert_eq!(merge_objects(&values).ok(), Some(json!({"value": {"a": {"b": 3, "c": 2}, "l": [2]}})));
        assert!(wrong(merge_objects(&json!({"values": [1]}))).contains("must be an object"));
        assert!(wrong(merge_objects(&json!({}))).starts_with("input_invalid"));
        let deep = (0..100).fold(json!({}), |inner, _| json!({"x": inner}));
        assert!(wrong(merge_objects(&json!({"values": [deep.clone(), deep]}))).contains("deep"));
    }

    #[test]
    fn values_are_taken_out_by_pointers() {
        let inputs = json!({"value": {"a": [{"b": 7}]}, "paths": {"n": "/a/0/b", "none": "/x", "all": ""}});
        assert_eq!(pick_values(&inputs).ok(), Some(json!({"n": 7, "none": null, "all": {"a": [{"b": 7}]}})));
        assert!(wrong(pick_values(&json!({"value": 1, "paths": {"n": "a"}}))).contains("not a JSON pointer"));
    }

    #[test]
    fn a_value_is_put_into_a_text_and_not_read_again() {
        let inputs = json!({"template": "{{ who.name }} owes {{n}}", "values": {"who": {"name": "{{n}}"}, "n": 5}});
        assert_eq!(fill_template(&inputs).ok(), Some(json!({"text": "{{n}} owes 5"})));
        assert!(wrong(fill_template(&json!({"template": "{{x}}", "values": {}}))).contains("`x`"));
        assert!(wrong(fill_template(&json!({"template": "{{x"}))).contains("never closed"));
    }
}
