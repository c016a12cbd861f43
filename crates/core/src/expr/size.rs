//! Owns measuring a JSON value: the exact bytes of its compact text, and its depth. Does not recurse.

use serde_json::{Number, Value};

/// The size of a value when written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JsonSize {
    pub bytes: usize,
    /// Levels of arrays and objects; a scalar has none.
    pub depth: usize,
    /// The number of values in it, including itself.
    pub values: usize,
}

/// Returns the size of `value`, or none as soon as it is known to exceed `max` bytes.
pub(super) fn measure_json(value: &Value, max: usize) -> Option<JsonSize> {
    let mut size = JsonSize { bytes: own_bytes(value), depth: 0, values: 1 };
    let mut todo = vec![(value, 1)];
    while let Some((value, depth)) = todo.pop() {
        if size.bytes > max {
            return None;
        }
        // Only members that have members themselves are queued; there may be very many of the others.
        let mut member = |member: &Value| {
            if size.bytes > max {
                return false;
            }
            size.bytes += own_bytes(member);
            size.values += 1;
            member.is_array() || member.is_object()
        };
        match value {
            Value::Array(items) => todo.extend(items.iter().filter(|v| member(v)).map(|v| (v, depth + 1))),
            Value::Object(fields) => todo.extend(fields.values().filter(|v| member(v)).map(|v| (v, depth + 1))),
            _ => continue,
        }
        size.depth = size.depth.max(depth);
    }
    (size.bytes <= max).then_some(size)
}

/// Returns the bytes of a value without its members. Brackets, commas and keys are its own.
fn own_bytes(value: &Value) -> usize {
    match value {
        Value::Null => 4,
        Value::Bool(b) => 5 - usize::from(*b),
        Value::Number(n) => number_bytes(n),
        Value::String(s) => text_bytes(s),
        Value::Array(items) => punctuation_bytes(items.len()),
        Value::Object(fields) => {
            punctuation_bytes(fields.len()) + fields.keys().map(|key| text_bytes(key) + 1).sum::<usize>()
        }
    }
}

/// Returns the bytes of a number. Integers are common, and are counted without writing them.
fn number_bytes(n: &Number) -> usize {
    let digits = |n: u64| 1 + n.checked_ilog10().unwrap_or(0) as usize;
    match (n.as_u64(), n.as_i64()) {
        (Some(n), _) => digits(n),
        (None, Some(n)) => 1 + digits(n.unsigned_abs()),
        (None, None) => n.to_string().len(),
    }
}

/// Returns the bytes of the brackets and commas around `n` members.
fn punctuation_bytes(n: usize) -> usize {
    2 + n.saturating_sub(1)
}

/// Returns the bytes of a string with its quotes and escapes.
pub(super) fn text_bytes(text: &str) -> usize {
    let extra = |b: u8| match b {
        b'"' | b'\\' | 0x08 | 0x09 | 0x0a | 0x0c | 0x0d => 1,
        0x00..0x20 => 5,
        _ => 0,
    };
    2 + text.len() + text.bytes().map(extra).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn agrees_with_the_writer() {
        let odd = "q\" b\\ n\n t\t r\r \u{8}\u{c}\u{1}\u{1f}\u{7f} é 🧶";
        for value in [
            json!(null),
            json!([true, false, null]),
            json!({}),
            json!([]),
            json!([0, 1, 9, 10, -2, -10, 3.5, 1e300, -0.0, u64::MAX, i64::MIN]),
            json!({odd: odd, "a": {"b": [[], {"c": "d"}]}}),
        ] {
            let written = serde_json::to_string(&value).unwrap().len();
            assert_eq!(measure_json(&value, usize::MAX).unwrap().bytes, written, "{value}");
            assert!(measure_json(&value, written).is_some() && measure_json(&value, written - 1).is_none());
        }
    }

    #[test]
    fn counts_levels() {
        assert_eq!(measure_json(&json!(1), 99).unwrap().depth, 0);
        assert_eq!(measure_json(&json!([]), 99).unwrap().depth, 1);
        let size = measure_json(&json!({"a": [{}], "b": 1}), 99).unwrap();
        assert_eq!((size.depth, size.values), (3, 4));
    }
}
