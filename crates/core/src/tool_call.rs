//! Calls of tools by drivers: texts with placeholders for values, such as `--ref=${input.ref | default('main')}`, and
//! the path to the part of a response that is the output, such as `$.rows[*].id`.
//!
//! Owns the form of both. A value is only ever data: it fills its placeholder and is never parsed again. Does not know
//! the called service, or the encoding of a value where it is inserted.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One text, as pieces that are joined.
pub type CallText = Vec<CallTextPiece>;

/// A piece of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CallTextPiece {
    Text(String),
    /// A value of the input, by its path, and the default if it is not given.
    Input {
        path: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        default: Option<String>,
    },
    /// A secret, by its name.
    Secret(String),
}

/// A value whose texts may contain placeholders.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CallTemplate {
    Fixed(Value),
    Text(CallText),
    List(Vec<CallTemplate>),
    Object(Vec<(String, CallTemplate)>),
}

/// The values for the placeholders.
#[derive(Clone, Copy)]
pub struct CallTemplateValues<'a> {
    pub inputs: &'a Value,
    pub secret: &'a dyn Fn(&str) -> Option<String>,
}

impl fmt::Debug for CallTemplateValues<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Values").finish_non_exhaustive()
    }
}

/// The reason why a placeholder has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnfilledPlaceholder {
    Input(String),
    Secret(String),
}

impl fmt::Display for UnfilledPlaceholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnfilledPlaceholder::Input(path) => write!(
                f,
                "its driver needs the input `{path}`, which is missing; provide it, or write in the driver \
                 `${{input.{path} | default('')}}`"
            ),
            UnfilledPlaceholder::Secret(name) => write!(f, "the secret `{name}` is not available"),
        }
    }
}

/// The reason why a text has no valid placeholders.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallTextError {
    #[error("`${{` is never closed")]
    Unclosed,
    #[error("`${{{0}}}` names no input; write for example `${{input.name}}`")]
    UnknownReference(String),
    #[error("`{0}` is not a default such as `default('main')`")]
    InvalidDefault(String),
}

pub fn parse_text(text: &str) -> Result<CallText, CallTextError> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((inside, left)) = after.split_once('}') else {
            return Err(CallTextError::Unclosed);
        };
        push_text(&mut pieces, before);
        pieces.push(parse_reference(inside.trim())?);
        rest = left;
    }
    push_text(&mut pieces, rest);
    Ok(pieces)
}

fn push_text(pieces: &mut CallText, text: &str) {
    if !text.is_empty() {
        pieces.push(CallTextPiece::Text(text.to_owned()));
    }
}

/// Parses `input.a.b`, optionally with `| default('text')`; or `secrets.NAME`.
fn parse_reference(inside: &str) -> Result<CallTextPiece, CallTextError> {
    let (path, default) = match inside.split_once('|') {
        Some((path, default)) => (path.trim(), Some(parse_default(default.trim())?)),
        None => (inside, None),
    };
    let names: Vec<String> = path.split('.').map(str::to_owned).collect();
    match names.split_first() {
        Some((first, path)) if first == "input" && !path.is_empty() && path.iter().all(|n| !n.is_empty()) => {
            Ok(CallTextPiece::Input { path: path.to_vec(), default })
        }
        Some((first, [name])) if first == "secrets" && !name.is_empty() && default.is_none() => {
            Ok(CallTextPiece::Secret(name.clone()))
        }
        _ => Err(CallTextError::UnknownReference(inside.to_owned())),
    }
}

fn parse_default(text: &str) -> Result<String, CallTextError> {
    let inner = text.strip_prefix("default(").and_then(|rest| rest.strip_suffix(')')).map(str::trim);
    let quoted = inner.and_then(|inner| {
        let quote = inner.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        inner.strip_prefix(quote)?.strip_suffix(quote)
    });
    quoted.map(str::to_owned).ok_or_else(|| CallTextError::InvalidDefault(text.to_owned()))
}

/// Converts a value to a part of a text.
pub fn to_plain_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl CallTextPiece {
    /// Returns the value of this piece. None: an input that was not given and has no default.
    fn resolve_value<'a>(
        &'a self,
        values: CallTemplateValues<'a>,
    ) -> Result<Option<Cow<'a, Value>>, UnfilledPlaceholder> {
        let text = |text: &str| Some(Cow::Owned(Value::from(text)));
        Ok(match self {
            CallTextPiece::Text(fixed) => text(fixed),
            CallTextPiece::Input { path, default } => {
                let found = path.iter().try_fold(values.inputs, |value, name| value.get(name));
                let found = found.filter(|value| !value.is_null()).map(Cow::Borrowed);
                found.or_else(|| text(default.as_deref()?))
            }
            CallTextPiece::Secret(name) => {
                text(&(values.secret)(name).ok_or_else(|| UnfilledPlaceholder::Secret(name.clone()))?)
            }
        })
    }

    /// Returns the path of the input that this piece refers to.
    fn input_path(&self) -> String {
        match self {
            CallTextPiece::Input { path, .. } => path.join("."),
            CallTextPiece::Text(_) | CallTextPiece::Secret(_) => String::new(),
        }
    }
}

/// Fills the placeholders of a text. Each value goes through `write` first; fixed text does not.
pub fn fill_text(
    text: &[CallTextPiece],
    values: CallTemplateValues<'_>,
    mut write: impl FnMut(&str) -> String,
) -> Result<String, UnfilledPlaceholder> {
    let mut filled = String::new();
    for piece in text {
        match piece {
            CallTextPiece::Text(fixed) => filled.push_str(fixed),
            place => {
                let value =
                    place.resolve_value(values)?.ok_or_else(|| UnfilledPlaceholder::Input(place.input_path()))?;
                filled.push_str(&write(&to_plain_text(&value)));
            }
        }
    }
    Ok(filled)
}

impl CallTemplate {
    /// Parses a value that contains texts. On error, returns the text and the reason.
    pub fn parse(value: &Value) -> Result<CallTemplate, (String, CallTextError)> {
        Ok(match value {
            Value::String(text) => match parse_text(text).map_err(|why| (text.clone(), why))? {
                pieces if pieces.iter().all(|piece| matches!(piece, CallTextPiece::Text(_))) => {
                    CallTemplate::Fixed(value.clone())
                }
                pieces => CallTemplate::Text(pieces),
            },
            Value::Array(items) => CallTemplate::List(items.iter().map(CallTemplate::parse).collect::<Result<_, _>>()?),
            Value::Object(fields) => {
                let field = |(name, value): (&String, &Value)| {
                    CallTemplate::parse(value).map(|template| (name.clone(), template))
                };
                CallTemplate::Object(fields.iter().map(field).collect::<Result<_, _>>()?)
            }
            other => CallTemplate::Fixed(other.clone()),
        })
    }

    /// Returns the value with every placeholder filled. A placeholder that is a whole text becomes the value itself. If
    /// that is an input that was not given, the field or the item is left out.
    pub fn fill(&self, values: CallTemplateValues<'_>) -> Result<Option<Value>, UnfilledPlaceholder> {
        Ok(Some(match self {
            CallTemplate::Fixed(value) => value.clone(),
            CallTemplate::Text(pieces) => match pieces.as_slice() {
                [place] => return Ok(place.resolve_value(values)?.map(Cow::into_owned)),
                pieces => Value::from(fill_text(pieces, values, str::to_owned)?),
            },
            CallTemplate::List(items) => {
                let filled = items.iter().filter_map(|item| item.fill(values).transpose());
                Value::Array(filled.collect::<Result<_, _>>()?)
            }
            CallTemplate::Object(fields) => {
                let filled = fields.iter().filter_map(|(name, field)| {
                    Some(field.fill(values).transpose()?.map(|value| (name.clone(), value)))
                });
                Value::Object(filled.collect::<Result<Map<_, _>, _>>()?)
            }
        }))
    }

    /// Collects every secret that it refers to.
    pub fn collect_secrets(&self, found: &mut Vec<String>) {
        match self {
            CallTemplate::Fixed(_) => {}
            CallTemplate::Text(pieces) => collect_text_secrets(pieces, found),
            CallTemplate::List(items) => items.iter().for_each(|item| item.collect_secrets(found)),
            CallTemplate::Object(fields) => fields.iter().for_each(|(_, field)| field.collect_secrets(found)),
        }
    }
}

/// Collects every secret that a text refers to.
pub fn collect_text_secrets(text: &[CallTextPiece], found: &mut Vec<String>) {
    found.extend(text.iter().filter_map(|piece| match piece {
        CallTextPiece::Secret(name) => Some(name.clone()),
        CallTextPiece::Text(_) | CallTextPiece::Input { .. } => None,
    }));
}

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

    fn input(path: &[&str], default: Option<&str>) -> CallTextPiece {
        let path = path.iter().map(ToString::to_string).collect();
        CallTextPiece::Input { path, default: default.map(str::to_owned) }
    }

    fn secret(name: &str) -> Option<String> {
        (name == "KEY").then(|| "k3y".to_owned())
    }

    #[test]
    fn values_fill_parts_of_a_text() {
        assert_eq!(parse_text("plain"), Ok(vec![CallTextPiece::Text("plain".into())]));
        assert_eq!(
            parse_text("--ref=${input.ref | default('main')}.git"),
            Ok(vec![
                CallTextPiece::Text("--ref=".into()),
                input(&["ref"], Some("main")),
                CallTextPiece::Text(".git".into())
            ])
        );
        assert_eq!(parse_text("${ input.a.b }"), Ok(vec![input(&["a", "b"], None)]));
        assert_eq!(parse_text("${secrets.KEY}"), Ok(vec![CallTextPiece::Secret("KEY".into())]));
        assert_eq!(parse_text("$HOME costs $5"), Ok(vec![CallTextPiece::Text("$HOME costs $5".into())]));
        for wrong in
            ["${input.a", "${secret.a}", "${input}", "${input.a | upper}", "${input.a|default(x)}", "${secrets.a.b}"]
        {
            assert!(parse_text(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_value_stays_a_value() {
        let inputs = json!({"who": "a\"}, \"x\": {\"", "n": 3, "list": [1]});
        let values = CallTemplateValues { inputs: &inputs, secret: &secret };
        let read = |value: Value| CallTemplate::parse(&value).unwrap().fill(values).unwrap();
        assert_eq!(
            read(json!({"to": "${input.who}", "n": "${input.n}", "t": "n=${input.n}", "l": ["${input.list}", 7]})),
            Some(json!({"to": "a\"}, \"x\": {\"", "n": 3, "t": "n=3", "l": [[1], 7]}))
        );
        assert_eq!(read(json!({"a": "${input.none}", "b": ["${input.none}"]})), Some(json!({"b": []})));
        assert_eq!(read(json!({"a": "${input.none | default('x')}"})), Some(json!({"a": "x"})));
        assert_eq!(read(json!("Bearer ${secrets.KEY}")), Some(json!("Bearer k3y")));
        let missing = CallTemplate::parse(&json!("a ${input.none}")).unwrap().fill(values);
        assert_eq!(missing, Err(UnfilledPlaceholder::Input("none".into())));
        let missing = CallTemplate::parse(&json!("${secrets.OTHER}")).unwrap().fill(values);
        assert_eq!(missing, Err(UnfilledPlaceholder::Secret("OTHER".into())));
    }

    #[test]
    fn what_is_put_in_is_not_read_again() {
        let inputs = json!({"a": "${input.b}", "b": "secret"});
        let values = CallTemplateValues { inputs: &inputs, secret: &secret };
        let filled = fill_text(&parse_text("<${input.a}>").unwrap(), values, |value| value.to_uppercase());
        assert_eq!(filled.as_deref(), Ok("<${INPUT.B}>"));
    }
}
