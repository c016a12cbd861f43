//! Parameters from the command line: `k=v`, parsed by the type that is declared for `k`, and a file of them.

use std::path::Path;

use serde_json::{Map, Value};
use skein_core::ir::Schema;
use skein_host::json_text::parse_exact;

use crate::{app_error::AppError, project::source_file};

/// Reads the given parameters; `--param` wins over the file. Returns all reasons if some cannot be read.
pub fn read_parameters(pairs: &[String], file: Option<&Path>, schema: &Schema) -> Result<Value, AppError> {
    let mut wrong = Vec::new();
    let given = file.map(read_parameter_file).transpose();
    let mut parameters = given.unwrap_or_else(|error| {
        wrong.push(error.message);
        None
    });
    for pair in pairs {
        match pair.split_once('=') {
            Some((name, text)) => {
                parameters.get_or_insert_default().insert(name.to_owned(), parse_parameter(name, text, schema));
            }
            None => wrong.push(format!("`{pair}` is not `name=value`")),
        }
    }
    match wrong.is_empty() {
        true => Ok(Value::Object(parameters.unwrap_or_default())),
        false => Err(AppError::usage(wrong.join("; "))),
    }
}

fn read_parameter_file(path: &Path) -> Result<Map<String, Value>, AppError> {
    let shown = path.display();
    let source =
        source_file::read_source(path, &shown.to_string()).map_err(|error| AppError::usage(error.message.clone()))?;
    match parse_exact(&source.text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(AppError::usage(format!("`{shown}` is not a JSON object"))),
        Err(error) => Err(AppError::usage(format!("`{shown}` is not JSON: {error}"))),
    }
}

/// Keeps the text if a string is declared; parses anything else as JSON. Text that is not JSON stays text: the schema
/// check reports it together with all other problems.
fn parse_parameter(name: &str, text: &str, schema: &Schema) -> Value {
    let is_text = match schema.property(name).and_then(|property| property.get("type")) {
        Some(Value::String(one)) => one == "string",
        Some(Value::Array(several)) => several.iter().any(|one| one == "string"),
        _ => false,
    };
    let json = if is_text { None } else { parse_exact(text).ok() };
    json.unwrap_or_else(|| Value::from(text))
}

/// Returns true if a workflow with these inputs takes a parameter of this name: it declares it, or takes any.
pub fn accepts_parameter(inputs: &Schema, name: &str) -> bool {
    let Some(document) = inputs.document() else { return false };
    let takes_others = match document.get("additionalProperties") {
        Some(others) => *others != Value::Bool(false),
        // An object without declared properties is unrestricted, such as the payload of an event.
        None => document.get("properties").is_none() || document.get("patternProperties").is_some(),
    };
    inputs.property(name).is_some() || takes_others
}

/// Returns a hint on passing a list or an object that was passed as plain text.
pub fn suggest_json(name: &str, given: &Value, inputs: &Schema) -> Option<String> {
    let text = given.get(name)?.as_str()?;
    let items: Vec<&str> = text.split(',').map(str::trim).collect();
    let example = match inputs.property(name)?.get("type")?.as_str()? {
        "array" => serde_json::to_string(&items).ok()?,
        "object" => "{\"name\": \"value\"}".to_owned(),
        _ => return None,
    };
    Some(format!("pass JSON: `--param '{name}={example}'`"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_parameter_is_read_by_its_declared_type() {
        let schema = Schema::new(json!({"properties": {
            "name": {"type": "string"}, "count": {"type": "integer"}, "on": {"type": "boolean"},
            "list": {"type": "array"}, "maybe": {"type": ["null", "number"]}, "any": {},
        }}));
        let of = |pair: &str| read_parameters(&[pair.to_owned()], None, &schema).map_err(|error| error.message);
        assert_eq!(of("name=7"), Ok(json!({"name": "7"})));
        assert_eq!(of("name=a=b"), Ok(json!({"name": "a=b"})));
        assert_eq!(of("count=7"), Ok(json!({"count": 7})));
        assert_eq!(of("on=true"), Ok(json!({"on": true})));
        assert_eq!(of("list=[1,2]"), Ok(json!({"list": [1, 2]})));
        assert_eq!(of("maybe=null"), Ok(json!({"maybe": null})));
        assert_eq!(of("any=x"), Ok(json!({"any": "x"})));
        assert_eq!(of("other=3"), Ok(json!({"other": 3})));
        assert_eq!(of("count=seven"), Ok(json!({"count": "seven"})));
        assert_eq!(of("count").unwrap_err(), "`count` is not `name=value`");
    }

    #[test]
    fn other_parameters_are_taken_only_where_the_workflow_says_so() {
        let takes = |inputs: Value| accepts_parameter(&Schema::new(inputs), "x");
        assert!(takes(json!({"properties": {"x": {}}})));
        assert!(takes(json!({"type": "object"})));
        assert!(takes(json!({"properties": {"y": {}}, "additionalProperties": {"type": "string"}})));
        assert!(takes(json!({"properties": {"y": {}}, "patternProperties": {"^x": {}}})));
        assert!(!takes(json!({"properties": {"y": {}}})));
        assert!(!takes(json!({"properties": {"y": {}}, "additionalProperties": false})));
        assert!(!accepts_parameter(&Schema::default(), "x"));
    }
}
