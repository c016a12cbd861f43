//! Parameters from the command line: `k=v` read by the type that is declared for `k`, and a file of them.

use std::path::Path;

use serde_json::{Map, Value};
use skein_core::ir::Schema;

/// Reads what was given; `--param` wins over the file. Why not, where it cannot be read.
pub fn read(pairs: &[String], file: Option<&Path>, schema: &Schema) -> Result<Value, String> {
    let mut wrong = Vec::new();
    let given = file.map(from_file).transpose();
    let mut parameters = given.unwrap_or_else(|why| {
        wrong.push(why);
        None
    });
    for pair in pairs {
        match pair.split_once('=') {
            Some((name, text)) => {
                parameters.get_or_insert_default().insert(name.to_owned(), typed(name, text, schema));
            }
            None => wrong.push(format!("`{pair}` is not `name=value`")),
        }
    }
    if wrong.is_empty() { Ok(Value::Object(parameters.unwrap_or_default())) } else { Err(wrong.join("; ")) }
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

/// Text stays text where text is declared; anything else is read as JSON. What is none is text, too: whether that fits is
/// said together with everything else that does not.
fn typed(name: &str, text: &str, schema: &Schema) -> Value {
    let is_text = match schema.property(name).and_then(|property| property.get("type")) {
        Some(Value::String(one)) => one == "string",
        Some(Value::Array(several)) => several.iter().any(|one| one == "string"),
        _ => false,
    };
    let json = if is_text { None } else { serde_json::from_str(text).ok() };
    json.unwrap_or_else(|| Value::from(text))
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
        assert_eq!(of("count=seven"), Ok(json!({"count": "seven"})));
        assert_eq!(of("count").unwrap_err(), "`count` is not `name=value`");
    }
}
