//! Redaction of values: in their texts, names and numbers.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::Redactor;

impl Redactor {
    /// Redacts a shared value. Without secrets the same value is returned.
    pub fn redact_shared(&self, value: Arc<Value>) -> Arc<Value> {
        if self.forms.is_none() {
            return value;
        }
        Arc::new(self.redact_value(&value))
    }

    /// Returns a value without secrets. Its shape is kept, but a number that is a secret becomes text.
    pub fn redact_value(&self, value: &Value) -> Value {
        if self.forms.is_none() {
            return value.clone();
        }
        match value {
            Value::Null | Value::Bool(_) => value.clone(),
            Value::Number(number) => {
                let text = number.to_string();
                let shown = self.redact_str(&text);
                if shown == text { value.clone() } else { Value::String(shown) }
            }
            Value::String(text) => Value::String(self.redact_str(text)),
            Value::Array(items) => items.iter().map(|item| self.redact_value(item)).collect(),
            Value::Object(fields) => {
                let mut shown = Map::new();
                for (name, value) in fields {
                    let name = unique_name(&shown, self.redact_str(name));
                    shown.insert(name, self.redact_value(value));
                }
                Value::Object(shown)
            }
        }
    }
}

/// Returns a name that is not taken yet, so that different names stay different.
fn unique_name(taken: &Map<String, Value>, name: String) -> String {
    if !taken.contains_key(&name) {
        return name;
    }
    let mut numbered = (2u64..).map(|n| format!("{name} ({n})"));
    numbered.find(|name| !taken.contains_key(name)).unwrap_or(name)
}
