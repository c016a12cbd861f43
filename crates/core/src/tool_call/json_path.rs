//! The path to the part of a response that is a tool's output: `$`, `$.data[0].url`, `$.rows[*].id`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One segment of a path into a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum JsonPathSegment {
    Name(String),
    Index(usize),
    /// Applies the rest of the path to each item of a list.
    Each,
}

/// The reason why a text is not a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonPathError {
    #[error("it must start with `$`")]
    NoRoot,
    #[error("a name must follow a dot")]
    NoName,
    #[error("`{0}` is not a path segment")]
    NotASegment(String),
    #[error("`[{0}]` is neither a number nor `*`")]
    NotAnIndex(String),
}

impl JsonPathSegment {
    pub fn parse(text: &str) -> Result<Vec<JsonPathSegment>, JsonPathError> {
        let mut rest = text.trim().strip_prefix('$').ok_or(JsonPathError::NoRoot)?;
        let mut parts = Vec::new();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('.') {
                let end = after.find(['.', '[']).unwrap_or(after.len());
                if end == 0 {
                    return Err(JsonPathError::NoName);
                }
                parts.push(JsonPathSegment::Name(after[..end].to_owned()));
                rest = &after[end..];
                continue;
            }
            let inside = rest.strip_prefix('[').and_then(|after| after.split_once(']'));
            let (inside, left) = inside.ok_or_else(|| JsonPathError::NotASegment(rest.to_owned()))?;
            let number = || inside.parse().map_err(|_| JsonPathError::NotAnIndex(inside.to_owned()));
            parts.push(if inside == "*" { JsonPathSegment::Each } else { JsonPathSegment::Index(number()?) });
            rest = left;
        }
        Ok(parts)
    }

    /// Returns the value at a path. None if there is none.
    pub fn select_value(parts: &[JsonPathSegment], value: &Value) -> Option<Value> {
        let Some((part, rest)) = parts.split_first() else { return Some(value.clone()) };
        match part {
            JsonPathSegment::Name(name) => JsonPathSegment::select_value(rest, value.get(name)?),
            JsonPathSegment::Index(index) => JsonPathSegment::select_value(rest, value.get(index)?),
            JsonPathSegment::Each => {
                value.as_array()?.iter().map(|item| JsonPathSegment::select_value(rest, item)).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_part_is_found_by_its_way() {
        let value = json!({"data": [{"id": 1, "tags": ["a"]}, {"id": 2, "tags": []}]});
        let at = |text: &str| JsonPathSegment::select_value(&JsonPathSegment::parse(text).unwrap(), &value);
        assert_eq!(at("$"), Some(value.clone()));
        assert_eq!(at("$.data[1].id"), Some(json!(2)));
        assert_eq!(at("$.data[*].id"), Some(json!([1, 2])));
        assert_eq!(at("$.data[*].tags[0]"), None, "one of them has none");
        assert_eq!(at("$.none"), None);
        for wrong in ["data", "$.", "$data", "$.data[", "$.data[?(@.id==1)]", "$..id"] {
            assert!(JsonPathSegment::parse(wrong).is_err(), "{wrong}");
        }
    }
}
