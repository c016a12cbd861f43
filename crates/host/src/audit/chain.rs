//! The chain: each record holds its number and the hash of the previous record, and is hashed with both.
//!
//! Owns how a record is appended and how a chain is checked, one record at a time without keeping any.

use serde_json::{Map, Value};

use super::{AuditEntry, canonical};

/// The previous hash of the first record.
const GENESIS: &str = "GENESIS";
/// The name of the hash algorithm.
const ALGORITHM: &str = "sha256";

/// The end of a chain: the number of records, and the hash of the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditChain {
    pub count: u64,
    pub head: String,
}

impl Default for AuditChain {
    fn default() -> AuditChain {
        AuditChain { count: 0, head: GENESIS.to_owned() }
    }
}

/// The first invalid record of a chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuditChainError {
    #[error("record {seq} cannot be read: {why}")]
    Unreadable { seq: u64, why: String },
    #[error("record {seq} was changed: its hash does not match")]
    Changed { seq: u64 },
    #[error("record {seq} is missing: record {found} is in its place")]
    Missing { seq: u64, found: u64 },
    #[error("record {seq} does not link to the record before it: one of the two was changed or replaced")]
    Apart { seq: u64 },
}

impl AuditChainError {
    /// Returns the number of the record.
    pub fn seq(&self) -> u64 {
        match self {
            AuditChainError::Unreadable { seq, .. }
            | AuditChainError::Changed { seq }
            | AuditChainError::Missing { seq, .. }
            | AuditChainError::Apart { seq } => *seq,
        }
    }
}

impl AuditChain {
    /// Returns the chain that ends with this record. An unreadable record is continued, too, with the hash of its
    /// bytes: a changed past does not stop runs, and a check names that record.
    pub fn from_last_record(seq: u64, line: &[u8]) -> AuditChain {
        let object = serde_json::from_slice::<Map<String, Value>>(line).unwrap_or_default();
        let hash = object.get("hash").and_then(Value::as_str);
        AuditChain {
            count: seq.saturating_add(1),
            head: hash.map_or_else(|| canonical::sha256_hex(line), str::to_owned),
        }
    }

    /// Appends an entry to the chain. Returns its number and its line.
    pub fn seal_entry(&mut self, entry: &AuditEntry) -> (u64, String) {
        let (seq, mut object) = (self.count, entry.to_object());
        object.insert("seq".to_owned(), seq.into());
        object.insert("prevHash".to_owned(), self.head.as_str().into());
        object.insert("hashAlg".to_owned(), ALGORITHM.into());
        let hash = hash_record(&object);
        object.insert("hash".to_owned(), hash.as_str().into());
        self.count += 1;
        self.head = hash;
        (seq, canonical::to_canonical_json(&Value::Object(object)))
    }

    /// Checks that a line is the next record, and returns it.
    pub fn verify_next(&mut self, line: &[u8]) -> Result<Map<String, Value>, AuditChainError> {
        let seq = self.count;
        let unreadable = |why: String| AuditChainError::Unreadable { seq, why };
        let mut object: Map<String, Value> =
            serde_json::from_slice(line).map_err(|error| unreadable(error.to_string()))?;
        if canonical::to_canonical_json(&Value::Object(object.clone())).as_bytes() != line {
            return Err(AuditChainError::Changed { seq });
        }
        let said = object.shift_remove("hash");
        let found = hash_record(&object);
        if said.as_ref().and_then(Value::as_str) != Some(&found) {
            return Err(AuditChainError::Changed { seq });
        }
        match object.get("seq").and_then(Value::as_u64) {
            Some(number) if number == seq => {}
            Some(found) => return Err(AuditChainError::Missing { seq, found }),
            None => return Err(unreadable("it has no sequence number".to_owned())),
        }
        if object.get("prevHash").and_then(Value::as_str) != Some(&self.head) {
            return Err(AuditChainError::Apart { seq });
        }
        object.insert("hash".to_owned(), found.as_str().into());
        (self.count, self.head) = (seq + 1, found);
        Ok(object)
    }
}

/// Hashes a record without its own hash.
fn hash_record(object: &Map<String, Value>) -> String {
    canonical::sha256_hex(canonical::to_canonical_json(&Value::Object(object.clone())).as_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use skein_core::time::Timestamp;

    use super::*;
    use crate::audit::{AuditActor, AuditSubject};

    fn lines() -> Vec<String> {
        let entry = |n: i64| AuditEntry {
            at: Timestamp(1_800_000_000_000 + n),
            actor: if n == 1 {
                AuditActor::with_role("system:timeout", "system")
            } else {
                AuditActor::from_user("ada")
            },
            action: "gate.approve",
            subject: AuditSubject { kind: "gate", name: "x".into(), path: (n > 0).then(|| format!("r/{n}")) },
            input: json!({"event": n, "reason": "because \"ü\""}),
            output: Value::Null,
        };
        let mut chain = AuditChain::default();
        (0..3).map(|n| chain.seal_entry(&entry(n)).1).collect()
    }

    fn check<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Result<AuditChain, AuditChainError> {
        let mut chain = AuditChain::default();
        for line in lines {
            chain.verify_next(line)?;
        }
        Ok(chain)
    }

    #[test]
    fn a_chain_begins_with_nothing_and_each_record_names_the_one_before() {
        let lines = lines();
        let whole = check(lines.iter().map(String::as_bytes)).unwrap();
        assert_eq!(whole.count, 3);
        let records: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(records[0]["prevHash"], "GENESIS");
        assert_eq!((&records[1]["prevHash"], &records[2]["prevHash"]), (&records[0]["hash"], &records[1]["hash"]));
        assert_eq!(records[2]["hash"], whole.head);
        assert_eq!(records[1]["actor"], json!({"id": "system:timeout", "role": "system"}));
        assert!(records[0].get("output").is_none() && records[0]["subject"].get("path").is_none());
        assert_eq!(AuditChain::from_last_record(2, lines[2].as_bytes()), whole, "it goes on where it ended");
    }

    /// Flips every bit of every byte of every record.
    #[test]
    fn whatever_is_flipped_names_its_record() {
        let lines = lines();
        for (n, line) in lines.iter().enumerate() {
            for (at, bit) in (0..line.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                let mut changed: Vec<Vec<u8>> = lines.iter().map(|line| line.clone().into_bytes()).collect();
                changed[n][at] ^= 1 << bit;
                let broken = check(changed.iter().map(Vec::as_slice)).expect_err("it was changed");
                assert_eq!(broken.seq(), n as u64, "byte {at}, bit {bit}: {broken}");
            }
        }
    }

    #[test]
    fn what_is_taken_out_doubled_swapped_or_written_anew_is_found() {
        let lines = lines();
        let of = |order: &[usize]| check(order.iter().map(|n| lines[*n].as_bytes()));
        assert_eq!(of(&[1, 2]).unwrap_err(), AuditChainError::Missing { seq: 0, found: 1 });
        assert_eq!(of(&[0, 2]).unwrap_err(), AuditChainError::Missing { seq: 1, found: 2 });
        assert_eq!(of(&[0, 0]).unwrap_err(), AuditChainError::Missing { seq: 1, found: 0 });
        assert_eq!(of(&[0, 1]).map(|chain| chain.count), Ok(2), "an end that is cut off is not seen");
        // A rewritten record with a valid hash of its own no longer matches the next record.
        let mut record: Map<String, Value> = serde_json::from_str(&lines[1]).unwrap();
        record.shift_remove("hash");
        record["actor"] = json!({"id": "eve"});
        let new = hash_record(&record);
        record.insert("hash".into(), new.into());
        let forged = canonical::to_canonical_json(&Value::Object(record));
        let broken = check([lines[0].as_bytes(), forged.as_bytes(), lines[2].as_bytes()]).unwrap_err();
        assert_eq!(broken, AuditChainError::Apart { seq: 2 });
    }
}
