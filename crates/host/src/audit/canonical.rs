//! Canonical JSON (keys sorted, no white space), so that a value has exactly one hash, and that hash.

use ring::digest;
use serde_json::Value;

/// Returns a value on one line. It nests no deeper than a parsed value or one made here.
pub(super) fn to_canonical_json(value: &Value) -> String {
    let mut written = String::new();
    write_value(value, &mut written);
    written
}

fn write_value(value: &Value, to: &mut String) {
    match value {
        Value::Array(items) => {
            to.push('[');
            for (n, item) in items.iter().enumerate() {
                to.push_str(if n > 0 { "," } else { "" });
                write_value(item, to);
            }
            to.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            to.push('{');
            for (n, (name, value)) in fields.into_iter().enumerate() {
                to.push_str(if n > 0 { "," } else { "" });
                to.push_str(&Value::from(name.as_str()).to_string());
                to.push(':');
                write_value(value, to);
            }
            to.push('}');
        }
        plain => to.push_str(&plain.to_string()),
    }
}

/// Returns the SHA-256 hash in hexadecimal.
pub(super) fn sha256_hex(bytes: &[u8]) -> String {
    let sum = digest::digest(&digest::SHA256, bytes);
    sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_sorted_at_every_depth_and_nothing_is_blank() {
        let value = json!({"b": [1, {"z": null, "a": "x y"}], "a": true, "\"": 0.5});
        assert_eq!(to_canonical_json(&value), r#"{"\"":0.5,"a":true,"b":[1,{"a":"x y","z":null}]}"#);
    }

    /// The expected value is that of `printf abc | sha256sum`.
    #[test]
    fn the_hash_is_the_one_that_others_compute() {
        assert_eq!(sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
