//! Content hashes: the name of a thing is what it holds.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// A BLAKE3 hash, shown in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    pub const ZERO: Hash = Hash([0; 32]);

    pub fn of(bytes: &[u8]) -> Hash {
        Hash(*blake3::hash(bytes).as_bytes())
    }

    /// The hash of what something is as JSON, whatever the order of its keys.
    pub fn of_json<T: Serialize>(value: &T) -> Hash {
        let value = serde_json::to_value(value).expect("what is hashed serialises to JSON");
        Hash::of(canonical_json(&value).as_bytes())
    }

    /// The hash of this one and what follows it.
    pub fn chain(self, bytes: &[u8]) -> Hash {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0).update(bytes);
        Hash(*hasher.finalize().as_bytes())
    }
}

/// Compact JSON with the keys of every object in order.
pub fn canonical_json(value: &Value) -> String {
    let mut text = Vec::new();
    write(value, &mut text);
    String::from_utf8(text).expect("JSON is text")
}

fn write(value: &Value, text: &mut Vec<u8>) {
    match value {
        Value::Object(object) => {
            let mut entries: Vec<_> = object.iter().collect();
            entries.sort_unstable_by(|a, b| a.0.cmp(b.0));
            let mut separator = b'{';
            for (key, value) in &entries {
                text.push(std::mem::replace(&mut separator, b','));
                write_leaf(key, text);
                text.push(b':');
                write(value, text);
            }
            text.extend_from_slice(if entries.is_empty() { b"{}" } else { b"}" });
        }
        Value::Array(items) => {
            let mut separator = b'[';
            for item in items {
                text.push(std::mem::replace(&mut separator, b','));
                write(item, text);
            }
            text.extend_from_slice(if items.is_empty() { b"[]" } else { b"]" });
        }
        leaf => write_leaf(leaf, text),
    }
}

fn write_leaf<T: Serialize + ?Sized>(leaf: &T, text: &mut Vec<u8>) {
    serde_json::to_writer(text, leaf).expect("a leaf serialises to JSON");
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Hash, D::Error> {
        let text = String::deserialize(d)?;
        blake3::Hash::from_hex(&text).map(|hash| Hash(*hash.as_bytes())).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_order_of_keys_does_not_matter_and_the_order_of_items_does() {
        assert_eq!(
            Hash::of_json(&json!({"a": 1, "b": {"c": 2, "d": 3}})),
            Hash::of_json(&json!({"b": {"d": 3, "c": 2}, "a": 1}))
        );
        assert_ne!(Hash::of_json(&json!([1, 2])), Hash::of_json(&json!([2, 1])));
    }

    #[test]
    fn canonical_json_is_json_and_empty_things_are_there() {
        let value = json!({"b": [], "a": {}, "c": [1, 2.5, "x\"y", null, {"z": true, "y": [[]]}]});
        let text = canonical_json(&value);
        assert_eq!(text, r#"{"a":{},"b":[],"c":[1,2.5,"x\"y",null,{"y":[[]],"z":true}]}"#);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn a_hash_survives_json() {
        let hash = Hash::of(b"x").chain(b"y");
        assert_eq!(serde_json::from_value::<Hash>(serde_json::to_value(hash).unwrap()).unwrap(), hash);
    }
}
