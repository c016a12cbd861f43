//! The audit: who allowed, refused, revealed or changed what, in records that follow one another by hash.
//!
//! Owns the form of a record, which is that of AIP-7's governance schema, and how a chain of them is made and checked.
//! Refuses to know where they are kept and when one is due: stores append them in the transaction of the journal's row
//! that they tell of, so that neither can be there without the other.

mod canonical;
mod chain;

use serde_json::{Map, Value, json};
use skein_core::{engine::format_utc, time::Timestamp};

pub use chain::{AuditChain, AuditChainError};

/// What the records say that they are.
const SCHEMA: &str = "agentgovernance/v1";
const DOCTYPE: &str = "audit-event";

/// The longest line that a record can have: what people say about a decision is in it.
pub const LINE_BYTES: u64 = 32 * 1024 * 1024;

/// A record that has no place in the chain yet.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    pub at: Timestamp,
    pub actor: AuditActor,
    /// What was done: a noun, a dot and a verb.
    pub action: &'static str,
    pub subject: AuditSubject,
    /// What it was done with, and what came of it; null where there is nothing to say.
    pub input: Value,
    pub output: Value,
}

/// Who did it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditActor {
    pub id: String,
    pub role: Option<&'static str>,
}

/// What it was done to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSubject {
    pub kind: &'static str,
    pub name: String,
    /// Where: a run, or a run, a slash and the path of a step. None: no run was begun.
    pub path: Option<String>,
}

impl AuditActor {
    /// A person, by the name that the system knows.
    pub fn from_user(id: &str) -> AuditActor {
        AuditActor { id: id.to_owned(), role: None }
    }

    pub fn with_role(id: &str, role: &'static str) -> AuditActor {
        AuditActor { id: id.to_owned(), role: Some(role) }
    }
}

impl AuditEntry {
    /// All but its place in the chain.
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
        let said = fields.into_iter().filter(|(_, value)| !value.is_null());
        object.extend(said.map(|(name, value)| (name.to_owned(), value)));
        object
    }
}

/// What stands in a record for a value that it does not show: whoever has the value can tell that it was this one.
pub fn redact_to_hash(value: &Value) -> Value {
    json!({"$redacted": true, "sha256": canonical::sha256_hex(canonical::to_canonical_json(value).as_bytes())})
}
