//! Parameters from the command line: `k=v` read by the type that is declared for `k`, and a file of them.

use std::path::Path;

use serde_json::{Map, Value};
use skein_core::ir::Schema;

/// Reads what was given; `--param` wins over the file. Why not, where it cannot be read.
pub fn read(pairs: &[String], file: Option<&Path>, schema: &Schema) -> Result<Value, String> {
    let mut parameters = file.map(from_file).transpose()?.unwrap_or_default();
    for pair in pairs {
        let Some((name, text)) = pair.split_once('=') else {
            return Err(format!("`{pair}` is not `name=value`"));
        };
        parameters.insert(name.to_owned(), typed(name, text, schema)?);
    }
    Ok(Value::Object(parameters))
}

fn from_file(path: &Path) -> Result<Map<String, Value>, String> {
    let shown = path.display();
    let source = crate::read::source(path, &shown.to_string()).map_err(|error| error.message.clone())?;
    match serde_json::from_str(&source.text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(format!("`{shown}` is not a JSON object")),
        Err(error) => Err(format!("`{shown}` is not JSON: {error}")),
    }
}

/// Text stays text where text is declared; anything else is read as JSON.
fn typed(name: &str, text: &str, schema: &Schema) -> Result<Value, String> {
    let types = schema.property(name).and_then(|property| property.get("type"));
    let names = |wanted: &str| match types {
        Some(Value::String(one)) => one == wanted,
        Some(Value::Array(several)) => several.iter().any(|one| one == wanted),
        _ => false,
    };
    let json = serde_json::from_str::<Value>(text);
    match json {
        Ok(value) if types.is_none() => Ok(value),
        Err(_) if types.is_none() => Ok(Value::from(text)),
        _ if names("string") => Ok(Value::from(text)),
        Ok(value) => Ok(value),
        Err(_) => Err(format!("the parameter `{name}` cannot be `{text}`: it is not {}", listed(types))),
    }
}

fn listed(types: Option<&Value>) -> String {
    match types {
        Some(Value::String(one)) => format!("of type {one}"),
        Some(Value::Array(several)) => {
            let several: Vec<&str> = several.iter().filter_map(Value::as_str).collect();
            format!("of type {}", several.join(" or "))
        }
        _ => "JSON".to_owned(),
    }
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
        let of = |pair: &str| read(&[pair.to_owned()], None, &schema);
        assert_eq!(of("name=7"), Ok(json!({"name": "7"})));
        assert_eq!(of("name=a=b"), Ok(json!({"name": "a=b"})));
        assert_eq!(of("count=7"), Ok(json!({"count": 7})));
        assert_eq!(of("on=true"), Ok(json!({"on": true})));
        assert_eq!(of("list=[1,2]"), Ok(json!({"list": [1, 2]})));
        assert_eq!(of("maybe=null"), Ok(json!({"maybe": null})));
        assert_eq!(of("any=x"), Ok(json!({"any": "x"})));
        assert_eq!(of("other=3"), Ok(json!({"other": 3})));
        assert_eq!(
            of("count=seven").unwrap_err(),
            "the parameter `count` cannot be `seven`: it is not of type integer"
        );
        assert_eq!(of("count").unwrap_err(), "`count` is not `name=value`");
    }
}
