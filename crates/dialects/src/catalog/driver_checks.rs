//! The preconditions of a driver: a version, a login, a health check.
//!
//! Owns the fields of AIP-30 that describe them. Does not evaluate them.

use skein_core::time::Millis;

use crate::{
    catalog::{tool::read_texts, version_range::VersionRange},
    diagnostics::{Code, DiagnosticSink},
    fields::{FieldReader, FieldTable, FieldValue, command::split_plain_command},
};

/// The default timeout of a check.
const PATIENCE: Millis = Millis::from_secs(5);

/// A command that prints its version, and the accepted versions.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionCheck {
    pub command: Vec<String>,
    /// The text before the version in its output.
    pub before: String,
    pub range: VersionRange,
    /// The range as it is written.
    pub written: String,
    pub timeout: Millis,
}

/// The evidence of a login: any one of these is enough.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriverAuth {
    pub env: Vec<String>,
    pub paths: Vec<String>,
    /// The command that a person runs to log in.
    pub login: Option<String>,
    /// The answer that means that the login has expired.
    pub expired: Option<LoginExpiry>,
}

/// The answer of a program or a server to an expired login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginExpiry {
    Exit(i32),
    Status(u16),
    Header(String, String),
}

/// The health check of a driver.
#[derive(Debug, Clone, PartialEq)]
pub struct DriverHealthCheck {
    pub asks: DriverHealthProbe,
    pub timeout: Millis,
}

/// The probe of a health check.
#[derive(Debug, Clone, PartialEq)]
pub enum DriverHealthProbe {
    Program { command: Vec<String>, expect: i32 },
    Http { method: &'static str, url: String, expect: u16 },
}

const VERSION_CHECK_FIELDS: &[&str] = &["cmd", "parse", "range", "timeout_ms"];

pub(super) fn read_version_check(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<VersionCheck> {
    let mut fields = FieldReader::from_node(given.node, "`version_check`", VERSION_CHECK_FIELDS, sink)?;
    let command = fields.required("cmd", sink).and_then(|given| read_command(given, sink));
    let before = fields.required("parse", sink).and_then(|given| given.read_non_empty_text(sink));
    let range = fields.required("range", sink);
    let read = range.and_then(|given| read_version_range(given, sink));
    let timeout = fields.optional("timeout_ms").and_then(|given| given.read_millis(100, sink));
    fields.finish(sink);
    Some(VersionCheck {
        command: command?,
        before: literal_prefix(before?.value),
        range: read?,
        written: range?.node.raw_text().unwrap_or_default().to_owned(),
        timeout: timeout.map_or(PATIENCE, |length| length.value),
    })
}

pub(super) fn read_version_range(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<VersionRange> {
    let range = given.node.raw_text().and_then(VersionRange::parse);
    if range.is_none() {
        sink.push(given.diagnose_type("a range of versions, such as `^1.0.0`"));
    }
    range
}

/// Returns the literal text at the start of a pattern.
fn literal_prefix(pattern: &str) -> String {
    let pattern = pattern.trim_start_matches('^');
    pattern.chars().take_while(|c| !matches!(c, '(' | '[' | '.' | '\\' | '*' | '+' | '?' | '{' | '|' | '$')).collect()
}

/// Reads a program and its arguments from one line. No shell evaluates it.
fn read_command(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<Vec<String>> {
    match split_plain_command(given.read_non_empty_text(sink)?.value) {
        Ok(words) => Some(words),
        Err(why) => {
            sink.push(given.diagnose(Code::BadCommand, format!("`{}` is not a valid command: {why}", given.name)));
            None
        }
    }
}

const AUTH_FIELDS: FieldTable = FieldTable::closed(&["ref", "state", "login", "expiry"]).with_unread(&["refresh"]);
const AUTH_STATE_FIELDS: &[&str] = &["env", "paths"];
const LOGIN_FIELDS: FieldTable =
    FieldTable::closed(&["cmd", "interactive"]).with_unread(&["url", "requires_callback_url", "completes_when"]);
const EXPIRY_FIELDS: &[&str] = &["detect"];

pub(super) fn read_auth(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<DriverAuth> {
    let fields = FieldReader::from_node(given.node, "`auth`", AUTH_FIELDS, sink)?;
    fields.optional("ref").and_then(|given| given.read_non_empty_text(sink));
    let state = fields
        .optional("state")
        .and_then(|given| FieldReader::from_node(given.node, "`state`", AUTH_STATE_FIELDS, sink));
    let mut auth = DriverAuth::default();
    if let Some(state) = state {
        auth.env = state.optional("env").map(|given| read_texts(given, sink)).unwrap_or_default();
        auth.paths = state.optional("paths").map(|given| read_texts(given, sink)).unwrap_or_default();
        state.finish(sink);
    }
    let login =
        fields.optional("login").and_then(|given| FieldReader::from_node(given.node, "`login`", LOGIN_FIELDS, sink));
    if let Some(login) = login {
        let line = login.optional("cmd").and_then(|given| given.read_non_empty_text(sink));
        auth.login = line.map(|line| line.value.to_owned());
        login.optional("interactive").and_then(|given| given.read_bool(sink));
        login.finish(sink);
    }
    let expiry =
        fields.optional("expiry").and_then(|given| FieldReader::from_node(given.node, "`expiry`", EXPIRY_FIELDS, sink));
    if let Some(expiry) = expiry {
        auth.expired = expiry.optional("detect").and_then(|given| read_login_expiry(given, sink));
        expiry.finish(sink);
    }
    fields.finish(sink);
    Some(auth)
}

/// Reads an exit status, an HTTP status or a header. `exception` is only for drivers that are code.
fn read_login_expiry(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<LoginExpiry> {
    let text = given.read_non_empty_text(sink)?.value;
    let (what, value) = text.split_once(':').unwrap_or((text, ""));
    let found = match what {
        "exit_code" => value.parse().ok().filter(|status| (1..=255).contains(status)).map(LoginExpiry::Exit),
        "http_status" => value.parse().ok().filter(|status| (100..=599).contains(status)).map(LoginExpiry::Status),
        "header" => value
            .split_once(':')
            .map(|(name, value)| LoginExpiry::Header(name.trim().to_owned(), value.trim().to_owned())),
        "exception" if !value.is_empty() => return None,
        _ => None,
    };
    if found.is_none() {
        sink.push(given.diagnose_type("such as `exit_code:4`, `http_status:401` or `header:X-Login:expired`"));
    }
    found
}

const HEALTH_CHECK_FIELDS: FieldTable =
    FieldTable::closed(&["method", "cmd", "http", "expect_exit", "timeout_ms"]).with_unread(&["every"]);

/// Reads a health check. None also for methods that need no probe.
pub(super) fn read_health_check(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<DriverHealthCheck> {
    let mut fields = FieldReader::from_node(given.node, "`health_check`", HEALTH_CHECK_FIELDS, sink)?;
    let methods = &[("ping", ""), ("exec", "cmd"), ("http", "http"), ("noop", "")];
    let method = fields.required("method", sink).and_then(|given| given.read_one_of(methods, sink));
    let needs = method.map_or("", |method| method.value);
    let line = if needs == "cmd" { fields.required("cmd", sink) } else { fields.optional("cmd") };
    let line = line.and_then(|given| read_command(given, sink));
    let request = if needs == "http" { fields.required("http", sink) } else { fields.optional("http") };
    let request = request.and_then(|given| read_http_probe(given, sink));
    let expect = fields.optional("expect_exit").and_then(|given| given.read_whole_number(0..=255, sink));
    let timeout = fields.optional("timeout_ms").and_then(|given| given.read_millis(100, sink));
    fields.finish(sink);
    let expect = expect.and_then(|expect| i32::try_from(expect.value).ok()).unwrap_or_default();
    let asks = match needs {
        "cmd" => DriverHealthProbe::Program { command: line?, expect },
        "http" => request?,
        _ => return None,
    };
    Some(DriverHealthCheck { asks, timeout: timeout.map_or(PATIENCE, |length| length.value) })
}

const HTTP_PROBE_FIELDS: &[&str] = &["method", "url", "expect_status"];

fn read_http_probe(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<DriverHealthProbe> {
    let mut fields = FieldReader::from_node(given.node, "`http`", HTTP_PROBE_FIELDS, sink)?;
    let methods = &[("GET", "GET"), ("POST", "POST"), ("HEAD", "HEAD")];
    let method = fields.required("method", sink).and_then(|given| given.read_one_of(methods, sink));
    let url = fields.required("url", sink).and_then(|given| given.read_non_empty_text(sink));
    let expect = fields.optional("expect_status").and_then(|given| given.read_whole_number(100..=599, sink));
    fields.finish(sink);
    let expect = expect.and_then(|expect| u16::try_from(expect.value).ok()).unwrap_or(200);
    Some(DriverHealthProbe::Http { method: method?.value, url: url?.value.to_owned(), expect })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pattern_begins_with_is_known() {
        assert_eq!(literal_prefix(r"gh version (\S+)"), "gh version ");
        assert_eq!(literal_prefix(r"^v(\d+)"), "v");
        assert_eq!(literal_prefix(r"(\S+)"), "");
    }
}
