//! The approximate size of a value, computed without serialising it.

use serde_json::Value;

/// True if the JSON of a value takes about `most` bytes at most. Stops counting at the limit.
pub(super) fn fits_within(value: &Value, most: usize) -> bool {
    let mut left = most;
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        let own = match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 8,
            Value::String(text) => text.len() + 2,
            Value::Array(items) => {
                rest.extend(items);
                items.len() + 2
            }
            Value::Object(object) => {
                rest.extend(object.values());
                object.keys().map(|key| key.len() + 4).sum::<usize>() + 2
            }
        };
        let Some(after) = left.checked_sub(own) else { return false };
        left = after;
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_counts_keys_texts_and_items() {
        assert!(fits_within(&json!("x".repeat(98)), 100));
        assert!(!fits_within(&json!("x".repeat(99)), 100));
        assert!(!fits_within(&json!({"k".repeat(200): [1, 2, 3]}), 100));
        // Brackets, commas and quotes count: an array takes 2 bytes and 1 for each item, a number 8, a one-letter key
        // 5.
        for (value, size) in
            [(json!([]), 2), (json!([1]), 11), (json!({}), 2), (json!({"k": 1}), 15), (json!(""), 2)]
        {
            assert!(fits_within(&value, size), "{value}");
            assert!(!fits_within(&value, size - 1), "{value}");
        }
    }
}
