//! The audit trail: who allowed, rejected, revealed or changed what, in records that are chained by hash.
//!
//! Owns the form of a record, which is that of AIP-7's governance schema, and how a chain of records is made and checked,
//! one record at a time: each holds its number and the hash of the previous record, and is hashed with both, in canonical
//! JSON. Does not know where records are kept and when one is due: stores append a record in the transaction of the
//! journal row that it describes, so that neither exists without the other.

use ring::digest;
use serde_json::{Map, Value, json};
use skein_core::{engine::format_utc, time::Timestamp};

/// The schema that the records name.
const SCHEMA: &str = "agentgovernance/v1";
const DOCTYPE: &str = "audit-event";

/// The maximum length of a record's line. A record contains the reasons that people give for a decision.
pub const LINE_BYTES: u64 = 32 * 1024 * 1024;

/// A record before it is added to the chain.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    pub at: Timestamp,
    pub actor: AuditActor,
    /// The action: a noun, a dot and a verb.
    pub action: &'static str,
    pub subject: AuditSubject,
    /// The input and the result of the action, or null if there is none.
    pub input: Value,
    pub output: Value,
}

/// The actor of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditActor {
    pub id: String,
    pub role: Option<&'static str>,
}

/// The subject of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSubject {
    pub kind: &'static str,
    pub name: String,
    /// The location: a run, or a run, a slash and the path of a step. `None` if no run was started.
    pub path: Option<String>,
}

impl AuditActor {
    /// Creates a person, by their system user name.
    pub fn from_user(id: &str) -> AuditActor {
        AuditActor { id: id.to_owned(), role: None }
    }

    pub fn with_role(id: &str, role: &'static str) -> AuditActor {
        AuditActor { id: id.to_owned(), role: Some(role) }
    }
}

impl AuditEntry {
    /// Returns the fields of the record, except for its place in the chain.
    fn to_object(&self) -> Map<String, Value> {
        let mut actor = json!({"id": self.actor.id});
        if let Some(role) = self.actor.role {
            actor["role"] = json!(role);
        }
        let mut subject = json!({"kind": self.subject.kind, "ref": self.subject.name});
        if let Some(path) = &self.subject.path {
            subject["path"] = json!(path);
        }
        let mut object = Map::new();
        let fields = [
            ("$schema", json!(SCHEMA)),
            ("doctype", json!(DOCTYPE)),
            ("ts", json!(format_utc(self.at))),
            ("actor", actor),
            ("action", json!(self.action)),
            ("subject", subject),
            ("input", self.input.clone()),
            ("output", self.output.clone()),
        ];
        let present = fields.into_iter().filter(|(_, value)| !value.is_null());
        object.extend(present.map(|(name, value)| (name.to_owned(), value)));
        object
    }
}

/// Returns the replacement of a value that a record does not show: anyone who has the value can verify that it was this
/// one.
pub(crate) fn redact_to_hash(value: &Value) -> Value {
    json!({"$redacted": true, "sha256": sha256_hex(to_canonical_json(value).as_bytes())})
}

/// Returns a value on one line. It nests no deeper than a parsed value or one made here.
fn to_canonical_json(value: &Value) -> String {
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
fn sha256_hex(bytes: &[u8]) -> String {
    let sum = digest::digest(&digest::SHA256, bytes);
    sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

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
    pub(crate) fn from_last_record(seq: u64, line: &[u8]) -> AuditChain {
        let object = serde_json::from_slice::<Map<String, Value>>(line).unwrap_or_default();
        let hash = object.get("hash").and_then(Value::as_str);
        AuditChain { count: seq.saturating_add(1), head: hash.map_or_else(|| sha256_hex(line), str::to_owned) }
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
        (seq, to_canonical_json(&Value::Object(object)))
    }

    /// Checks that a line is the next record, and returns it.
    pub fn verify_next(&mut self, line: &[u8]) -> Result<Map<String, Value>, AuditChainError> {
        let seq = self.count;
        let unreadable = |why: String| AuditChainError::Unreadable { seq, why };
        let mut object: Map<String, Value> =
            serde_json::from_slice(line).map_err(|error| unreadable(error.to_string()))?;
        if to_canonical_json(&Value::Object(object.clone())).as_bytes() != line {
            return Err(AuditChainError::Changed { seq });
        }
        let recorded = object.shift_remove("hash");
        let found = hash_record(&object);
        if recorded.as_ref().and_then(Value::as_str) != Some(&found) {
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
    sha256_hex(to_canonical_json(&Value::Object(object.clone())).as_bytes())
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
        let forged = to_canonical_json(&Value::Object(record));
        let broken = check([lines[0].as_bytes(), forged.as_bytes(), lines[2].as_bytes()]).unwrap_err();
        assert_eq!(broken, AuditChainError::Apart { seq: 2 });
    }

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
