//! Texts with places in them, such as `--ref=${input.ref | default('main')}`, and values of such texts.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One text, in pieces that are put together.
pub type Text = Vec<Piece>;

/// A piece of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Piece {
    Text(String),
    /// A value of the input, by its path, and what stands for one that is not given.
    Input {
        path: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        default: Option<String>,
    },
    /// A secret, by its name.
    Secret(String),
}

/// A value whose texts may have places in them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Template {
    Fixed(Value),
    Text(Text),
    List(Vec<Template>),
    Object(Vec<(String, Template)>),
}

/// What fills the places.
#[derive(Clone, Copy)]
pub struct Values<'a> {
    pub inputs: &'a Value,
    pub secret: &'a dyn Fn(&str) -> Option<String>,
}

impl fmt::Debug for Values<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Values").finish_non_exhaustive()
    }
}

/// Why a place stays empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfilled {
    Input(String),
    Secret(String),
}

impl fmt::Display for Unfilled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfilled::Input(path) => write!(
                f,
                "its driver needs the input `{path}`, and none was given; give it, or let the driver say \
                 `${{input.{path} | default('')}}`"
            ),
            Unfilled::Secret(name) => write!(f, "the secret `{name}` is not there"),
        }
    }
}

/// Reads a text. Err: what is wrong with it.
pub fn parse(text: &str) -> Result<Text, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((inside, left)) = after.split_once('}') else {
            return Err("`${` is never closed".to_owned());
        };
        push_text(&mut pieces, before);
        pieces.push(reference(inside.trim())?);
        rest = left;
    }
    push_text(&mut pieces, rest);
    Ok(pieces)
}

fn push_text(pieces: &mut Text, text: &str) {
    if !text.is_empty() {
        pieces.push(Piece::Text(text.to_owned()));
    }
}

/// `input.a.b`, then perhaps `| default('text')`; or `secrets.NAME`.
fn reference(inside: &str) -> Result<Piece, String> {
    let (path, default) = match inside.split_once('|') {
        Some((path, default)) => (path.trim(), Some(default_of(default.trim())?)),
        None => (inside, None),
    };
    let names: Vec<String> = path.split('.').map(str::to_owned).collect();
    match names.split_first() {
        Some((first, path)) if first == "input" && !path.is_empty() && path.iter().all(|n| !n.is_empty()) => {
            Ok(Piece::Input { path: path.to_vec(), default })
        }
        Some((first, [name])) if first == "secrets" && !name.is_empty() && default.is_none() => {
            Ok(Piece::Secret(name.clone()))
        }
        _ => Err(format!("`${{{inside}}}` names no input; write such as `${{input.name}}`")),
    }
}

fn default_of(text: &str) -> Result<String, String> {
    let inner = text.strip_prefix("default(").and_then(|rest| rest.strip_suffix(')')).map(str::trim);
    let quoted = inner.and_then(|inner| {
        let quote = inner.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        inner.strip_prefix(quote)?.strip_suffix(quote)
    });
    quoted.map(str::to_owned).ok_or_else(|| format!("`{text}` is not such as `default('main')`"))
}

/// A value as a part of a text.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Piece {
    /// What fills it. None: an input that was not given, and nothing stands for it.
    fn value<'a>(&'a self, values: Values<'a>) -> Result<Option<Cow<'a, Value>>, Unfilled> {
        let text = |text: &str| Some(Cow::Owned(Value::from(text)));
        Ok(match self {
            Piece::Text(fixed) => text(fixed),
            Piece::Input { path, default } => {
                let found = path.iter().try_fold(values.inputs, |value, name| value.get(name));
                let found = found.filter(|value| !value.is_null()).map(Cow::Borrowed);
                found.or_else(|| text(default.as_deref()?))
            }
            Piece::Secret(name) => {
                text(&(values.secret)(name).ok_or_else(|| Unfilled::Secret(name.clone()))?)
            }
        })
    }

    /// The input that it is a place for.
    fn input(&self) -> String {
        match self {
            Piece::Input { path, .. } => path.join("."),
            Piece::Text(_) | Piece::Secret(_) => String::new(),
        }
    }
}

/// A text with its places filled. Each value goes through `write` first; what is fixed does not.
pub fn fill(
    text: &[Piece],
    values: Values<'_>,
    mut write: impl FnMut(&str) -> String,
) -> Result<String, Unfilled> {
    let mut filled = String::new();
    for piece in text {
        match piece {
            Piece::Text(fixed) => filled.push_str(fixed),
            place => {
                let value = place.value(values)?.ok_or_else(|| Unfilled::Input(place.input()))?;
                filled.push_str(&write(&plain(&value)));
            }
        }
    }
    Ok(filled)
}

impl Template {
    /// Reads a value with texts in it. Err: the text, and what is wrong with it.
    pub fn parse(value: &Value) -> Result<Template, (String, String)> {
        Ok(match value {
            Value::String(text) => match parse(text).map_err(|why| (text.clone(), why))? {
                pieces if pieces.iter().all(|piece| matches!(piece, Piece::Text(_))) => {
                    Template::Fixed(value.clone())
                }
                pieces => Template::Text(pieces),
            },
            Value::Array(items) => {
                Template::List(items.iter().map(Template::parse).collect::<Result<_, _>>()?)
            }
            Value::Object(fields) => {
                let field = |(name, value): (&String, &Value)| {
                    Template::parse(value).map(|template| (name.clone(), template))
                };
                Template::Object(fields.iter().map(field).collect::<Result<_, _>>()?)
            }
            other => Template::Fixed(other.clone()),
        })
    }

    /// The value, with every place filled. A place that is all of a text becomes the value itself; where that is an input
    /// that was not given, the field or the item is left out.
    pub fn fill(&self, values: Values<'_>) -> Result<Option<Value>, Unfilled> {
        Ok(Some(match self {
            Template::Fixed(value) => value.clone(),
            Template::Text(pieces) => match pieces.as_slice() {
                [place] => return Ok(place.value(values)?.map(Cow::into_owned)),
                pieces => Value::from(fill(pieces, values, str::to_owned)?),
            },
            Template::List(items) => {
                let filled = items.iter().filter_map(|item| item.fill(values).transpose());
                Value::Array(filled.collect::<Result<_, _>>()?)
            }
            Template::Object(fields) => {
                let filled = fields.iter().filter_map(|(name, field)| {
                    Some(field.fill(values).transpose()?.map(|value| (name.clone(), value)))
                });
                Value::Object(filled.collect::<Result<Map<_, _>, _>>()?)
            }
        }))
    }

    /// Every secret that it has a place for.
    pub fn secrets(&self, found: &mut Vec<String>) {
        match self {
            Template::Fixed(_) => {}
            Template::Text(pieces) => secrets(pieces, found),
            Template::List(items) => items.iter().for_each(|item| item.secrets(found)),
            Template::Object(fields) => fields.iter().for_each(|(_, field)| field.secrets(found)),
        }
    }
}

/// Every secret that a text has a place for.
pub fn secrets(text: &[Piece], found: &mut Vec<String>) {
    found.extend(text.iter().filter_map(|piece| match piece {
        Piece::Secret(name) => Some(name.clone()),
        Piece::Text(_) | Piece::Input { .. } => None,
    }));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn input(path: &[&str], default: Option<&str>) -> Piece {
        let path = path.iter().map(ToString::to_string).collect();
        Piece::Input { path, default: default.map(str::to_owned) }
    }

    fn secret(name: &str) -> Option<String> {
        (name == "KEY").then(|| "k3y".to_owned())
    }

    #[test]
    fn values_fill_parts_of_a_text() {
        assert_eq!(parse("plain"), Ok(vec![Piece::Text("plain".into())]));
        assert_eq!(
            parse("--ref=${input.ref | default('main')}.git"),
            Ok(vec![Piece::Text("--ref=".into()), input(&["ref"], Some("main")), Piece::Text(".git".into())])
        );
        assert_eq!(parse("${ input.a.b }"), Ok(vec![input(&["a", "b"], None)]));
        assert_eq!(parse("${secrets.KEY}"), Ok(vec![Piece::Secret("KEY".into())]));
        assert_eq!(parse("$HOME costs $5"), Ok(vec![Piece::Text("$HOME costs $5".into())]));
        for wrong in [
            "${input.a",
            "${secret.a}",
            "${input}",
            "${input.a | upper}",
            "${input.a|default(x)}",
            "${secrets.a.b}",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_value_stays_a_value() {
        let inputs = json!({"who": "a\"}, \"x\": {\"", "n": 3, "list": [1]});
        let values = Values { inputs: &inputs, secret: &secret };
        let read = |value: Value| Template::parse(&value).unwrap().fill(values).unwrap();
        assert_eq!(
            read(
                json!({"to": "${input.who}", "n": "${input.n}", "t": "n=${input.n}", "l": ["${input.list}", 7]})
            ),
            Some(json!({"to": "a\"}, \"x\": {\"", "n": 3, "t": "n=3", "l": [[1], 7]}))
        );
        assert_eq!(read(json!({"a": "${input.none}", "b": ["${input.none}"]})), Some(json!({"b": []})));
        assert_eq!(read(json!({"a": "${input.none | default('x')}"})), Some(json!({"a": "x"})));
        assert_eq!(read(json!("Bearer ${secrets.KEY}")), Some(json!("Bearer k3y")));
        let missing = Template::parse(&json!("a ${input.none}")).unwrap().fill(values);
        assert_eq!(missing, Err(Unfilled::Input("none".into())));
        let missing = Template::parse(&json!("${secrets.OTHER}")).unwrap().fill(values);
        assert_eq!(missing, Err(Unfilled::Secret("OTHER".into())));
    }

    #[test]
    fn what_is_put_in_is_not_read_again() {
        let inputs = json!({"a": "${input.b}", "b": "secret"});
        let values = Values { inputs: &inputs, secret: &secret };
        let filled = fill(&parse("<${input.a}>").unwrap(), values, |value| value.to_uppercase());
        assert_eq!(filled.as_deref(), Ok("<${INPUT.B}>"));
    }
}
