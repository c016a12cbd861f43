//! The audit records: filtered, exported and verified.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::Path,
};

use rustix::fs::{Mode, OFlags, open};
use serde_json::{Map, Value, json};
use skein_host::{
    audit::{AuditChain, AuditChainError, LINE_BYTES},
    store::{Store, StoredAuditRecord},
};

use crate::{app::App, app_error::AppError, runs::inspect::parse_past_time};

/// Selects records.
#[derive(Debug, Default)]
pub struct AuditFilter {
    /// The run id, or a prefix of it.
    pub run: Option<String>,
    pub actor: Option<String>,
    /// An action such as `gate.approve`, or `gate` for all of them.
    pub action: Option<String>,
    /// A date, a time in UTC, or a duration before now.
    pub since: Option<String>,
}

/// Reads the selected records one by one, until `each` returns false.
pub fn read_records(app: &App, filter: &AuditFilter, each: &mut dyn FnMut(&Value) -> bool) -> Result<(), AppError> {
    // Times in UTC of one format, which can be compared as text.
    let since = filter.since.as_deref().map(parse_past_time).transpose()?;
    read_stored(app, &mut |stored| {
        // An unreadable record is left to `verify` to report.
        let record: Value = serde_json::from_slice(&stored.line).unwrap_or_default();
        !filter.matches_record(&record, since.as_deref()) || each(&record)
    })
}

/// Reads all records as they are stored, one line of JSON each, until `each` returns false.
pub fn export_records(app: &App, each: &mut dyn FnMut(&str) -> bool) -> Result<(), AppError> {
    read_stored(app, &mut |stored| each(&String::from_utf8_lossy(&stored.line)))
}

impl AuditFilter {
    fn matches_record(&self, record: &Value, since: Option<&str>) -> bool {
        let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
        let (path, action) = (text(&record["subject"]["path"]), text(&record["action"]));
        let is_action =
            |wanted: &str| action.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        self.run.as_deref().is_none_or(|run| path.starts_with(run))
            && self.actor.as_deref().is_none_or(|actor| record["actor"]["id"] == actor)
            && self.action.as_deref().is_none_or(is_action)
            && since.is_none_or(|since| *text(&record["ts"]) >= *since)
    }
}

fn read_stored(app: &App, each: &mut dyn FnMut(StoredAuditRecord) -> bool) -> Result<(), AppError> {
    let Some(state) = app.open_existing_state()? else { return Ok(()) };
    Ok(state.store.read_audit(0, each)?)
}

/// The result of a verification.
#[derive(Debug)]
pub struct AuditVerification {
    /// The number of intact records, and the hash of the last one.
    pub count: u64,
    pub head: String,
    /// The first record that is missing, changed or unreadable.
    pub broken: Option<AuditChainError>,
}

impl AuditVerification {
    fn new(chain: AuditChain, broken: Option<AuditChainError>) -> AuditVerification {
        AuditVerification { count: chain.count, head: chain.head.to_string(), broken }
    }

    pub fn to_json(&self) -> Value {
        let broken = self.broken.as_ref().map(|broken| json!({"seq": broken.seq(), "why": broken.to_string()}));
        json!({"whole": broken.is_none(), "records": self.count, "head": self.head, "broken": broken})
    }
}

/// Verifies that all records of the state folder are present, unchanged and in order.
pub fn verify_records(app: &App) -> Result<AuditVerification, AppError> {
    let (mut chain, mut broken) = (AuditChain::default(), None);
    read_stored(app, &mut |stored| {
        broken = check_record(&mut chain, &stored).err();
        broken.is_none()
    })?;
    Ok(AuditVerification::new(chain, broken))
}

/// Verifies a record, and that it is stored under its own number.
fn check_record(chain: &mut AuditChain, stored: &StoredAuditRecord) -> Result<Map<String, Value>, AuditChainError> {
    let seq = chain.count;
    if stored.seq != seq {
        return Err(AuditChainError::Missing { seq, found: stored.seq });
    }
    chain.verify_next(&stored.line)
}

/// Verifies an exported file.
pub fn verify_file(file: &Path) -> Result<AuditVerification, AppError> {
    let unreadable = |error: std::io::Error| AppError::refused(format!("`{}` cannot be read: {error}", file.display()));
    // Opening must not block on a named pipe.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = File::from(open(file, flags, Mode::empty()).map_err(|error| unreadable(error.into()))?);
    if !opened.metadata().map_err(unreadable)?.is_file() {
        return Err(unreadable(std::io::Error::other("it is not a regular file")));
    }
    let mut lines = BufReader::new(opened);
    let mut chain = AuditChain::default();
    loop {
        let mut line = Vec::new();
        lines.by_ref().take(LINE_BYTES + 1).read_until(b'\n', &mut line).map_err(unreadable)?;
        if line.is_empty() {
            return Ok(AuditVerification::new(chain, None));
        }
        let verified = match line.strip_suffix(b"\n") {
            _ if line.len() as u64 > LINE_BYTES => {
                let why = format!("its line has more than {LINE_BYTES} bytes");
                Err(AuditChainError::Unreadable { seq: chain.count, why })
            }
            // An export ends every line with a newline, also the last.
            None => Err(AuditChainError::Unreadable { seq: chain.count, why: "its line has no newline".to_owned() }),
            Some(line) => chain.verify_next(line),
        };
        if let Err(broken) = verified {
            return Ok(AuditVerification::new(chain, Some(broken)));
        }
    }
}
