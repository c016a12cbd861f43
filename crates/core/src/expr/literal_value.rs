//! Owns literal values in expressions. Most are texts, which take less memory than a value of any type.

use std::borrow::Cow;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Value")]
pub enum LiteralValue {
    Text(Box<str>),
    /// Never a string.
    Other(Box<Value>),
}

impl LiteralValue {
    pub fn as_str(&self) -> Option<&str> {
        match self {
            LiteralValue::Text(text) => Some(text),
            LiteralValue::Other(_) => None,
        }
    }

    pub fn as_array(&self) -> Option<&Vec<Value>> {
        match self {
            LiteralValue::Text(_) => None,
            LiteralValue::Other(value) => value.as_array(),
        }
    }

    pub fn to_value(&self) -> Cow<'_, Value> {
        match self {
            LiteralValue::Text(text) => Cow::Owned(Value::from(&**text)),
            LiteralValue::Other(value) => Cow::Borrowed(value),
        }
    }
}

impl From<Value> for LiteralValue {
    fn from(value: Value) -> LiteralValue {
        match value {
            Value::String(text) => LiteralValue::Text(text.into()),
            other => LiteralValue::Other(Box::new(other)),
        }
    }
}

impl From<&str> for LiteralValue {
    fn from(text: &str) -> LiteralValue {
        LiteralValue::Text(text.into())
    }
}

impl From<LiteralValue> for Value {
    fn from(constant: LiteralValue) -> Value {
        match constant {
            LiteralValue::Text(text) => Value::String(text.into()),
            LiteralValue::Other(value) => *value,
        }
    }
}

impl Serialize for LiteralValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            LiteralValue::Text(text) => serializer.serialize_str(text),
            LiteralValue::Other(value) => value.serialize(serializer),
        }
    }
}
