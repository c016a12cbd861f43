//! Owns a value that stands in an expression as it is. Most are texts, which take less room than what any value may be.

use std::borrow::Cow;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Value")]
pub enum Constant {
    Text(Box<str>),
    /// Never a text.
    Other(Box<Value>),
}

impl Constant {
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Constant::Text(text) => Some(text),
            Constant::Other(_) => None,
        }
    }

    pub fn as_array(&self) -> Option<&Vec<Value>> {
        match self {
            Constant::Text(_) => None,
            Constant::Other(value) => value.as_array(),
        }
    }

    pub fn value(&self) -> Cow<'_, Value> {
        match self {
            Constant::Text(text) => Cow::Owned(Value::from(&**text)),
            Constant::Other(value) => Cow::Borrowed(value),
        }
    }
}

impl From<Value> for Constant {
    fn from(value: Value) -> Constant {
        match value {
            Value::String(text) => Constant::Text(text.into()),
            other => Constant::Other(Box::new(other)),
        }
    }
}

impl From<&str> for Constant {
    fn from(text: &str) -> Constant {
        Constant::Text(text.into())
    }
}

impl From<Constant> for Value {
    fn from(constant: Constant) -> Value {
        match constant {
            Constant::Text(text) => Value::String(text.into()),
            Constant::Other(value) => *value,
        }
    }
}

impl Serialize for Constant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Constant::Text(text) => serializer.serialize_str(text),
            Constant::Other(value) => value.serialize(serializer),
        }
    }
}
