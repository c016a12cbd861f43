//! Functions of values alone: to put some together, to take some out, to fill a text.

use serde_json::{Map, Value, json};

use super::{super::worker_command::to_plain_text, BuiltinError};

/// Values in each other deeper than this are not put together.
const DEEPEST: usize = 64;

/// A text that a call must give.
pub fn required_text<'a>(inputs: &'a Value, name: &str) -> Result<&'a str, BuiltinError> {
    optional_text(inputs, name)?
        .ok_or_else(|| BuiltinError::invalid_input(format!("it needs the input `{name}`, a text")))
}

/// A text that a call may give.
pub fn optional_text<'a>(inputs: &'a Value, name: &str) -> Result<Option<&'a str>, BuiltinError> {
    match inputs.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(BuiltinError::invalid_input(format!("the input `{name}` is no text"))),
    }
}

/// Puts the objects of `values` together, each over those before it.
pub fn merge_objects(inputs: &Value) -> Result<Value, BuiltinError> {
    let values = inputs.get("values").and_then(Value::as_array);
    let values = values
        .ok_or_else(|| BuiltinError::invalid_input("it needs the input `values`, a list of objects"))?;
    let mut whole = Value::Object(Map::new());
    for value in values {
        if !value.is_object() {
            return Err(BuiltinError::invalid_input("`values` holds something that is no object"));
        }
        merge_into(&mut whole, value, DEEPEST)?;
    }
    Ok(json!({"value": whole}))
}

/// Recursion is bounded by the depth.
fn merge_into(under: &mut Value, value: &Value, depth: usize) -> Result<(), BuiltinError> {
    if depth == 0 {
        return Err(BuiltinError::invalid_input(format!(
            "`values` holds objects in one another more than {DEEPEST} deep"
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

/// Takes values out of `value`: each name of `paths` with what its pointer leads to, or null.
pub fn pick_values(inputs: &Value) -> Result<Value, BuiltinError> {
    let value =
        inputs.get("value").ok_or_else(|| BuiltinError::invalid_input("it needs the input `value`"))?;
    let paths = inputs.get("paths").and_then(Value::as_object);
    let paths = paths.ok_or_else(|| {
        BuiltinError::invalid_input("it needs the input `paths`, names with pointers such as `/a/0`")
    })?;
    let mut picked = Map::new();
    for (name, pointer) in paths {
        let pointer = pointer.as_str().filter(|text| text.is_empty() || text.starts_with('/'));
        let pointer = pointer.ok_or_else(|| {
            BuiltinError::invalid_input(format!("the path `{name}` is no pointer such as `/a/0`"))
        })?;
        picked.insert(name.clone(), value.pointer(pointer).cloned().unwrap_or_default());
    }
    Ok(Value::Object(picked))
}

/// Fills `{{name}}` and `{{name.field}}` of `template` with `values`. A value is put in as it is, and never read again.
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
            BuiltinError::invalid_input(format!("`template` names `{name}`, which `values` has not"))
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
        assert!(wrong(merge_objects(&json!({"values": [1]}))).contains("no object"));
        assert!(wrong(merge_objects(&json!({}))).starts_with("input_invalid"));
        let deep = (0..100).fold(json!({}), |inner, _| json!({"x": inner}));
        assert!(wrong(merge_objects(&json!({"values": [deep.clone(), deep]}))).contains("deep"));
    }

    #[test]
    fn values_are_taken_out_by_pointers() {
        let inputs = json!({"value": {"a": [{"b": 7}]}, "paths": {"n": "/a/0/b", "none": "/x", "all": ""}});
        assert_eq!(pick_values(&inputs).ok(), Some(json!({"n": 7, "none": null, "all": {"a": [{"b": 7}]}})));
        assert!(wrong(pick_values(&json!({"value": 1, "paths": {"n": "a"}}))).contains("no pointer"));
    }

    #[test]
    fn a_value_is_put_into_a_text_and_not_read_again() {
        let inputs =
            json!({"template": "{{ who.name }} owes {{n}}", "values": {"who": {"name": "{{n}}"}, "n": 5}});
        assert_eq!(fill_template(&inputs).ok(), Some(json!({"text": "{{n}} owes 5"})));
        assert!(wrong(fill_template(&json!({"template": "{{x}}", "values": {}}))).contains("`x`"));
        assert!(wrong(fill_template(&json!({"template": "{{x"}))).contains("never closed"));
    }
}
