//! A DRIVER.md: the program that does the work of a tool, and its call.
//!
//! Owns the fields of AIP-30 that describe them. Does not know if the program is installed.

use std::{collections::BTreeMap, sync::Arc};

use skein_core::time::Millis;

use crate::{
    catalog::{
        definition_fields::{self, BACKOFFS, COSTS, DESCRIPTION_CHARS, NAME_CHARS},
        driver_checks::{
            DriverAuth, DriverHealthCheck, VersionCheck, read_auth, read_health_check, read_version_check,
        },
        remote::{
            HTTP_SERVER_FIELDS, HttpServer, ImplementedTool, McpServer, read_egress_hosts, read_http_server,
            read_implementations, read_mcp_server,
        },
        tool::{read_catalog_id, read_texts},
    },
    diagnostics::{Diagnostic, DiagnosticSink, SourceFile},
    fields::{FieldReader, FieldTable, FieldValue},
    source::parse_front_matter,
};

pub(super) const DRIVER_KINDS: &[(&str, DriverKind)] = &[
    ("cli", DriverKind::Cli),
    ("http", DriverKind::Http),
    ("mcp", DriverKind::Mcp),
    ("sdk", DriverKind::Sdk),
    ("builtin", DriverKind::Builtin),
];

/// The way in which a driver reaches the implementation of its tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DriverKind {
    Builtin,
    Sdk,
    Http,
    Mcp,
    Cli,
}

impl DriverKind {
    pub fn as_str(self) -> &'static str {
        match self {
            DriverKind::Builtin => "builtin",
            DriverKind::Sdk => "sdk",
            DriverKind::Http => "http",
            DriverKind::Mcp => "mcp",
            DriverKind::Cli => "cli",
        }
    }
}

/// A driver as its file describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Aip15Driver {
    pub id: String,
    pub kind: DriverKind,
    pub version: String,
    /// The program of a `cli` driver, and its first arguments.
    pub bin: Option<String>,
    pub bin_args: Vec<String>,
    /// The error code of each exit status; `ok` means that there is no error.
    pub exit_codes: BTreeMap<i32, String>,
    /// The server of an `http` driver. The next field is that of an `mcp` driver.
    pub http: HttpServer,
    pub mcp: Option<McpServer>,
    /// The hosts that it may connect to.
    pub egress: Vec<String>,
    pub version_check: Option<VersionCheck>,
    pub auth: Option<DriverAuth>,
    pub health: Option<DriverHealthCheck>,
    /// The regions in which it works. Empty: anywhere.
    pub regions: Vec<String>,
    pub policy_tags: Vec<String>,
    pub implements: Vec<ImplementedTool>,
    /// The cost of a call, as a criterion of selection.
    pub cost: Option<f64>,
    pub timeout: Option<Millis>,
    /// The operating systems, of which it needs one. Empty: any. The same holds for `arch`.
    pub os: Vec<String>,
    pub arch: Vec<String>,
}

const DRIVER_FIELDS: FieldTable = FieldTable::closed(&[
    "name", "id", "description", "version", "kind", "bin", "bin_args", "output", "implements", "cost_override",
    "timeout_override_ms", "requires", "region", "policy_tags", "version_check", "auth", "server", "network",
    "health_check", "retry_override",
])
.with_more(&[HTTP_SERVER_FIELDS])
.with_unread(DRIVER_UNREAD_FIELDS);

/// Reads a DRIVER.md.
pub fn read_driver(source: Arc<SourceFile>) -> Result<Aip15Driver, Vec<Diagnostic>> {
    let mut sink = DiagnosticSink::new(source);
    let read = parse_front_matter(&mut sink).and_then(|tree| {
        let fields = FieldReader::from_node(tree.root(), "a driver", DRIVER_FIELDS, &mut sink)?;
        Aip15Driver::read(fields, &mut sink)
    });
    match read {
        Some(driver) if !sink.has_errors() => Ok(driver),
        _ => Err(sink.into_diagnostics()),
    }
}

/// Fields that are accepted and not read. The last ones belong to drivers that are servers.
const DRIVER_UNREAD_FIELDS: &[&str] = &[
    "install", "runner", "sandbox", "driver_kind", "examples", "tags", "metadata", "rate_limit", "server_ref",
    "transport", "mcp_tools", "protocol_version", "prompts", "resources", "connection_options",
];

impl Aip15Driver {
    fn read(mut fields: FieldReader<'_>, sink: &mut DiagnosticSink) -> Option<Aip15Driver> {
        let name = fields.required("name", sink);
        name.and_then(|given| definition_fields::read_short_text(given, NAME_CHARS, sink));
        let id = fields.required("id", sink).and_then(|given| read_catalog_id(given, sink));
        let description = fields.required("description", sink);
        description.and_then(|given| definition_fields::read_short_text(given, DESCRIPTION_CHARS, sink));
        let version = fields.required("version", sink).and_then(|given| definition_fields::read_version(given, sink));
        let kind = fields.required("kind", sink).and_then(|given| given.read_one_of(DRIVER_KINDS, sink));
        let bin = match kind.as_ref().map(|kind| kind.value) {
            Some(DriverKind::Cli) => fields.required("bin", sink),
            _ => fields.optional("bin"),
        };
        let bin = bin.and_then(|given| given.read_non_empty_text(sink));
        let bin_args = fields.optional("bin_args").map(|given| read_texts(given, sink)).unwrap_or_default();
        let exit_codes = fields.optional("output").map(|given| read_exit_codes(given, sink)).unwrap_or_default();
        let implements = fields.required("implements", sink).map(|given| read_implementations(given, sink));
        let cost = fields.optional("cost_override").and_then(|given| read_cost_override(given, sink));
        let timeout = fields.optional("timeout_override_ms").and_then(|given| given.read_millis(1, sink));
        let (os, arch) = fields.optional("requires").map(|given| read_platforms(given, sink)).unwrap_or_default();
        let mut list = |name| fields.optional(name).map(|given| read_texts(given, sink)).unwrap_or_default();
        let (regions, policy_tags) = (list("region"), list("policy_tags"));
        let version_check = fields.optional("version_check").and_then(|given| read_version_check(given, sink));
        let auth = fields.optional("auth").and_then(|given| read_auth(given, sink));
        let http = read_http_server(&fields, sink);
        let mcp = fields.optional("server").and_then(|given| read_mcp_server(given, sink));
        let egress = fields.optional("network").map(|given| read_egress_hosts(given, sink)).unwrap_or_default();
        let health = fields.optional("health_check").and_then(|given| read_health_check(given, sink));
        fields.optional("retry_override").into_iter().for_each(|given| check_retry_override(given, sink));
        fields.finish(sink);
        Some(Aip15Driver {
            id: id?.to_owned(),
            kind: kind?.value,
            version: version?.to_owned(),
            http,
            mcp,
            egress,
            version_check,
            auth,
            health,
            regions,
            policy_tags,
            bin: bin.map(|text| text.value.to_owned()),
            bin_args,
            exit_codes,
            implements: implements?,
            cost,
            timeout: timeout.map(|length| length.value),
            os,
            arch,
        })
    }
}

const RETRY_OVERRIDE_FIELDS: &[&str] = &["max_attempts", "backoff", "initial_ms"];

pub(super) fn check_retry_override(given: FieldValue<'_>, sink: &mut DiagnosticSink) {
    let Some(mut fields) = FieldReader::from_node(given.node, "`retry_override`", RETRY_OVERRIDE_FIELDS, sink) else {
        return;
    };
    fields.required("max_attempts", sink).and_then(|given| given.read_whole_number(1..=10, sink));
    fields.optional("backoff").and_then(|given| given.read_one_of(BACKOFFS, sink));
    fields.optional("initial_ms").and_then(|given| given.read_millis(0, sink));
    fields.finish(sink);
}

/// Reads the error codes by exit status. The format of the output is fixed, so the other fields are ignored.
fn read_exit_codes(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> BTreeMap<i32, String> {
    let codes = given.node.get("exit_codes").filter(|node| !node.is_null());
    let Some(node) = codes else { return BTreeMap::new() };
    let given = FieldValue::new("exit_codes", node);
    let mut found = BTreeMap::new();
    let Some(fields) = node.fields() else {
        sink.push(given.diagnose_type("a mapping of exit statuses and error codes"));
        return found;
    };
    for field in fields {
        let status = field.key.parse::<i32>().ok().filter(|status| (0..=255).contains(status));
        match (status, field.value.raw_text()) {
            (Some(0), Some("ok")) => {}
            (Some(status @ 1..), Some(code)) => drop(found.insert(status, code.to_owned())),
            _ => sink.push(given.diagnose_type("a mapping of exit statuses from 1 to 255 and error codes")),
        }
    }
    found
}

const COST_OVERRIDE_FIELDS: FieldTable =
    FieldTable::closed(&["cost_units_per_call", "cost_class"]).with_unread(&["currency"]);

pub(super) fn read_cost_override(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<f64> {
    let fields = FieldReader::from_node(given.node, "`cost_override`", COST_OVERRIDE_FIELDS, sink)?;
    let given = fields.optional("cost_units_per_call");
    let units = given.and_then(|given| given.read_number(sink)).map(|units| units.value);
    if units.is_some_and(|units| !(0.0..=1e12).contains(&units)) {
        sink.extend(given.map(|given| given.diagnose_type("a number from 0 on")));
    }
    fields.optional("cost_class").and_then(|given| given.read_one_of(COSTS, sink));
    fields.finish(sink);
    units
}

const PLATFORM_FIELDS: FieldTable = FieldTable::closed(&["os", "arch"]).with_unread(&["min_disk_mb", "min_memory_mb"]);

fn read_platforms(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> (Vec<String>, Vec<String>) {
    let Some(fields) = FieldReader::from_node(given.node, "`requires`", PLATFORM_FIELDS, sink) else {
        return Default::default();
    };
    let (os, arch) = (fields.optional("os"), fields.optional("arch"));
    fields.finish(sink);
    let mut list = |given: Option<FieldValue<'_>>| given.map(|given| read_texts(given, sink)).unwrap_or_default();
    (list(os), list(arch))
}

#[cfg(test)]
mod tests {
    use skein_core::tool_call::{self, CallTextPiece};

    use super::{
        super::driver_checks::{DriverHealthProbe, LoginExpiry},
        *,
    };

    fn read(more: &str) -> Result<Aip15Driver, Vec<String>> {
        let text = format!("---\nname: Desk\nid: desk\ndescription: Does it.\nversion: 1.0.0\n{more}\n---\nProse.\n");
        let said = |all: Vec<Diagnostic>| all.into_iter().map(|one| one.message).collect();
        read_driver(SourceFile::new("DRIVER.md", text)).map_err(said)
    }

    #[test]
    fn a_driver_says_how_its_program_is_called() {
        let driver = read(
            "kind: cli\nbin: ./desk.sh\nbin_args: [--json]\ntimeout_override_ms: 900\n\
             output: {exit_codes: {3: not_found, \"4\": rate_limited}}\n\
             implements:\n  - tool: weigh\n    version: ^1\n    metadata: {cli: {argv: [weigh, \"${input.what}\"]}}\n",
        )
        .unwrap();
        assert_eq!((driver.kind, driver.bin.as_deref()), (DriverKind::Cli, Some("./desk.sh")));
        assert_eq!(driver.exit_codes, [(3, "not_found".to_owned()), (4, "rate_limited".to_owned())].into());
        assert_eq!(driver.timeout, Some(Millis(900)));
        let offer = &driver.implements[0];
        assert!(offer.version.as_ref().is_some_and(|range| range.contains("1.4.0")));
        let what = CallTextPiece::Input { path: vec!["what".into()], default: None };
        assert_eq!(offer.argv, [vec![CallTextPiece::Text("weigh".into())], vec![what]]);
    }

    #[test]
    fn a_driver_says_when_it_can_be_used_and_what_it_calls_things() {
        let driver = read(
            "kind: cli\nbin: gh\nregion: [EU]\npolicy_tags: [gdpr]\noutput: {exit_codes: {0: ok, 1: ok}}\n\
             version_check: {cmd: gh --version, parse: 'gh version (\\S+)', range: '>=2.40 <3', timeout_ms: 200}\n\
             auth: {state: {env: [GH_TOKEN], paths: [~/.config/gh]}, login: {cmd: gh auth login}, expiry: {detect: \"exit_code:4\"}}\n\
             health_check: {method: exec, cmd: gh auth status}\n\
             implements:\n  - tool: a\n    mapping: {title: subject, size: {from: aspect}}\n    cost_override: {cost_units_per_call: 2.5}\n",
        )
        .unwrap();
        let check = driver.version_check.unwrap();
        assert_eq!((check.before.as_str(), check.timeout), ("gh version ", Millis(200)));
        assert!(check.range.contains("2.41.0") && !check.range.contains("3.0.0"));
        let auth = driver.auth.unwrap();
        assert_eq!((auth.expired, auth.login.as_deref()), (Some(LoginExpiry::Exit(4)), Some("gh auth login")));
        let asks =
            DriverHealthProbe::Program { command: ["gh", "auth", "status"].map(str::to_owned).to_vec(), expect: 0 };
        assert_eq!(driver.health.unwrap().asks, asks);
        let (offer, name) = (&driver.implements[0], str::to_owned);
        assert_eq!(offer.renames, [(name("title"), name("subject")), (name("aspect"), name("size"))].into());
        assert_eq!((offer.cost, driver.exit_codes.get(&1).map(String::as_str)), (Some(2.5), Some("ok")));
    }

    #[test]
    fn a_driver_says_what_is_sent_to_its_server() {
        let driver = read(
            "kind: http\nbase_url: https://api.example.org/v1\ndefault_headers: {Authorization: 'Bearer ${secrets.KEY}'}\n\
             network: {egress: [api.example.org]}\nauth: {expiry: {detect: 'header:X-Login:expired'}}\n\
             health_check: {method: http, http: {method: GET, url: 'https://api.example.org/up', expect_status: 204}}\n\
             implements:\n  - tool: a\n    metadata: {http: {endpoint: '/a/${input.id}', method: PUT, query_template: {n: '${input.n}'},\n\
             \x20     body_template: {to: ['${input.to}']}, response_extract: '$.data[0]', idempotency_key_header: Idempotency-Key}}\n",
        )
        .unwrap();
        assert_eq!(driver.egress, ["api.example.org"]);
        assert_eq!(driver.http.headers[0].1, tool_call::parse_text("Bearer ${secrets.KEY}").unwrap());
        let call = driver.implements[0].http.as_ref().unwrap();
        assert_eq!((call.method, call.extract.len()), (Some("PUT"), 2));
        assert_eq!(call.key_header.as_deref(), Some("Idempotency-Key"));
        let expired = LoginExpiry::Header("X-Login".to_owned(), "expired".to_owned());
        assert_eq!(driver.auth.unwrap().expired, Some(expired));
        assert!(matches!(driver.health.unwrap().asks, DriverHealthProbe::Http { expect: 204, .. }));
    }

    #[test]
    fn what_is_wrong_with_a_driver_is_said() {
        for (more, says) in [
            ("kind: cli\nimplements: [{tool: a}]", "a driver needs `bin`"),
            ("kind: cli\nbin: a\nimplements: []", "at least one tool"),
            ("kind: grpc\nimplements: [{tool: a}]", "`kind` cannot be `grpc`"),
            ("kind: http\nimplements: [{tool: a, version: one}]", "`version` is a range of versions"),
            ("kind: cli\nbin: a\nimplements: [{tool: a, metadata: {cli: {argv: [\"${env.X}\"]}}}]", "names no input"),
            ("kind: cli\nbin: a\nversion_chek: {}\nimplements: [{tool: a}]", "a driver has no field `version_chek`"),
            (
                "kind: cli\nbin: a\nversion_check: {cmd: \"a | b\", parse: x, range: ^1}\nimplements: [{tool: a}]",
                "this is shell syntax",
            ),
            ("kind: cli\nbin: a\nhealth_check: {method: exec}\nimplements: [{tool: a}]", "needs `cmd`"),
            ("kind: cli\nbin: a\nauth: {expiry: {detect: \"exit_code:x\"}}\nimplements: [{tool: a}]", "`exit_code:4`"),
            (
                "kind: cli\nbin: a\nimplements: [{tool: a, metadata: {cli: {argv: [\"${secrets.X}\"]}}}]",
                "never an argument",
            ),
            ("kind: http\nimplements: [{tool: a, metadata: {http: {endpoint: a}}}]", "begins with `/`"),
            ("kind: http\nimplements: [{tool: a, metadata: {http: {endpoint: \"/a?b\"}}}]", "`query_template`"),
            ("kind: http\nimplements: [{tool: a, metadata: {http: {method: GET}}}]", "needs `endpoint`"),
            ("kind: http\ndefault_headers: {\"a b\": c}\nimplements: [{tool: a}]", "`a b` is not a valid header name"),
            (
                "kind: http\nimplements: [{tool: a, metadata: {http: {endpoint: /, response_extract: a}}}]",
                "must start with `$`",
            ),
            ("kind: mcp\nserver: {kind: remote}\nimplements: [{tool: a}]", "`server` needs `url`"),
            ("kind: cli\nbin: a\nimplements: [{tool: a, mapping: [b]}]", "`mapping` is a mapping of names"),
            ("kind: cli\nbin: a\noutput: {exit_codes: {0: fine}}\nimplements: [{tool: a}]", "from 1 to 255"),
        ] {
            let said = read(more).unwrap_err();
            assert!(said.iter().any(|one| one.contains(says)), "{more}: {said:?}");
        }
    }
}
