//! Content hashes, which identify data by its contents.

use std::{fmt, io};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A BLAKE3 hash, shown in hexadecimal.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentHash(pub [u8; 32]);

impl ContentHash {
    pub const ZERO: ContentHash = ContentHash([0; 32]);

    pub fn hash_bytes(bytes: &[u8]) -> ContentHash {
        ContentHash(*blake3::hash(bytes).as_bytes())
    }

    /// Returns the hash of a value as compact JSON. Never holds the whole JSON in memory.
    pub fn hash_json<T: Serialize>(value: &T) -> ContentHash {
        // The serialiser writes a few bytes at a time, and a hasher is faster with many.
        let mut buffered = io::BufWriter::with_capacity(16 * 1024, blake3::Hasher::new());
        serde_json::to_writer(&mut buffered, value).expect("what is hashed serialises to JSON");
        let Ok(hasher) = buffered.into_inner() else { unreachable!("a hasher takes everything") };
        ContentHash(*hasher.finalize().as_bytes())
    }

    /// Returns the hash of this hash and the pieces after it.
    pub fn chain<'a>(self, pieces: impl IntoIterator<Item = &'a [u8]>) -> ContentHash {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        for piece in pieces {
            hasher.update(piece);
        }
        ContentHash(*hasher.finalize().as_bytes())
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for ContentHash {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ContentHash {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<ContentHash, D::Error> {
        let text = String::deserialize(d)?;
        blake3::Hash::from_hex(&text).map(|hash| ContentHash(*hash.as_bytes())).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_hash_is_of_what_is_written() {
        assert_eq!(ContentHash::hash_json(&json!({"a": [1, 2]})), ContentHash::hash_bytes(br#"{"a":[1,2]}"#));
        assert_ne!(ContentHash::hash_json(&json!([1, 2])), ContentHash::hash_json(&json!([2, 1])));
    }

    #[test]
    fn a_hash_survives_json() {
        let hash = ContentHash::hash_bytes(b"x").chain([&b"y"[..]]);
        assert_eq!(serde_json::from_value::<ContentHash>(serde_json::to_value(hash).unwrap()).unwrap(), hash);
    }
}
