//! Content hashes: the name of a thing is what it holds.

use std::{fmt, io};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A BLAKE3 hash, shown in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    pub const ZERO: Hash = Hash([0; 32]);

    pub fn of(bytes: &[u8]) -> Hash {
        Hash(*blake3::hash(bytes).as_bytes())
    }

    /// The hash of what something is as compact JSON. Never holds the JSON as a whole.
    pub fn of_json<T: Serialize>(value: &T) -> Hash {
        // The serialiser writes a few bytes at a time, and a hasher likes many.
        let mut buffered = io::BufWriter::with_capacity(16 * 1024, blake3::Hasher::new());
        serde_json::to_writer(&mut buffered, value).expect("what is hashed serialises to JSON");
        let Ok(hasher) = buffered.into_inner() else { unreachable!("a hasher takes everything") };
        Hash(*hasher.finalize().as_bytes())
    }

    /// The hash of this one and what follows it.
    pub fn chain<'a>(self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Hash {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        for piece in pieces {
            hasher.update(piece);
        }
        Hash(*hasher.finalize().as_bytes())
    }
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
    fn a_hash_is_of_what_is_written() {
        assert_eq!(Hash::of_json(&json!({"a": [1, 2]})), Hash::of(br#"{"a":[1,2]}"#));
        assert_ne!(Hash::of_json(&json!([1, 2])), Hash::of_json(&json!([2, 1])));
    }

    #[test]
    fn a_hash_survives_json() {
        let hash = Hash::of(b"x").chain([&b"y"[..]]);
        assert_eq!(serde_json::from_value::<Hash>(serde_json::to_value(hash).unwrap()).unwrap(), hash);
    }
}
