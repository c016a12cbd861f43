//! The audit trail: who allowed, rejected, revealed or changed what, in records that are chained by hash.
//!
//! Owns the form of a record, which is that of AIP-7's governance schema, and how a chain of records is made and
//! checked. Does not know where records are kept and when one is due: stores append a record in the transaction of the
//! journal row that it describes, so that neither exists without the other.

mod canonical;
mod chain;

use serde_json::{Map, Value, json};
use skein_core::{engine::format_utc, time::Timestamp};

pub use chain::{AuditChain, AuditChainError};

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
        let said = fields.into_iter().filter(|(_, value)| !value.is_null());
        object.extend(said.map(|(name, value)| (name.to_owned(), value)));
        object
    }
}

/// Returns the replacement of a value that a record does not show: anyone who has the value can verify that it was this
/// one.
pub fn redact_to_hash(value: &Value) -> Value {
    json!({"$redacted": true, "sha256": canonical::sha256_hex(canonical::to_canonical_json(value).as_bytes())})
}
