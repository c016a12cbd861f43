//! A DRIVER.md: which program does the work of a tool, and how it is called.
//!
//! Owns the fields of AIP-30 that say so. Refuses to know whether the program is there.

use std::{collections::BTreeMap, sync::Arc};

use skein_core::{
    call::{self, Piece, Text},
    time::Millis,
};

use super::{
    checks::{Auth, Health, VersionCheck, auth, health, range_of, version_check},
    defaults::{BACKOFFS, COSTS, DESCRIPTION_CHARS, DRIVER_KINDS, NAME_CHARS},
    policy,
    range::Range,
    remote::{
        HttpCall, HttpServer, McpCall, McpServer, egress, http_call, http_server, mcp_call, mcp_server,
    },
    tool::{id, texts},
};
use crate::{
    code::Code,
    detect::front_matter,
    diagnostic::{Diagnostic, Sink},
    read::{Fields, Given},
    source::Source,
};

/// How a driver reaches what does the work.
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
pub struct Driver {
    pub id: String,
    pub kind: DriverKind,
    pub version: String,
    /// The program of a `cli` driver, and the arguments that come first.
    pub bin: Option<String>,
    pub bin_args: Vec<String>,
    /// What an exit status means, as an error code; `ok` is none.
    pub exit_codes: BTreeMap<i32, String>,
    /// The server of an `http` driver, and of an `mcp` driver.
    pub http: HttpServer,
    pub mcp: Option<McpServer>,
    /// The hosts that it may ask.
    pub egress: Vec<String>,
    pub version_check: Option<VersionCheck>,
    pub auth: Option<Auth>,
    pub health: Option<Health>,
    /// Where it does its work. Empty: anywhere.
    pub regions: Vec<String>,
    pub policy_tags: Vec<String>,
    pub implements: Vec<Implements>,
    /// What a call costs, to choose by.
    pub cost: Option<f64>,
    pub timeout: Option<Millis>,
    /// The systems and machines that it needs one of. Empty: any.
    pub os: Vec<String>,
    pub arch: Vec<String>,
}

/// A tool that a driver provides.
#[derive(Debug, Clone, PartialEq)]
pub struct Implements {
    /// Its id, or the path of its file.
    pub tool: String,
    /// The versions of it. None: any.
    pub version: Option<Range>,
    pub argv: Vec<Text>,
    pub timeout: Option<Millis>,
    /// Inputs that it does not take.
    pub drop_inputs: Vec<String>,
    /// Outputs that it does not give.
    pub drop_outputs: Vec<String>,
    /// What its program calls inputs of the tool that it knows under another name.
    pub renames: BTreeMap<String, String>,
    /// A function that a value would have to go through, which only an SDK has.
    pub transform: Option<String>,
    /// What a call of this tool costs.
    pub cost: Option<f64>,
    /// The function of Skein itself that does it, of a `builtin` driver.
    pub function: Option<String>,
    /// The request of an `http` driver.
    pub http: Option<HttpCall>,
    /// The tool of an `mcp` driver's server.
    pub mcp: McpCall,
}

/// Reads a DRIVER.md.
pub fn driver(source: Arc<Source>) -> Result<Driver, Vec<Diagnostic>> {
    let mut sink = Sink::new(source);
    let read = front_matter(&mut sink).and_then(|tree| {
        let fields = Fields::of(tree.root(), "a driver", &mut sink)?;
        Driver::read(fields, &mut sink)
    });
    match read {
        Some(driver) if !sink.has_errors() => Ok(driver),
        _ => Err(sink.finish()),
    }
}

/// What is kept for others and not looked at here. The last ones are of drivers that are servers.
const KEPT: &[&str] = &[
    "install",
    "runner",
    "sandbox",
    "driver_kind",
    "examples",
    "tags",
    "metadata",
    "rate_limit",
    "server_ref",
    "transport",
    "mcp_tools",
    "protocol_version",
    "prompts",
    "resources",
    "connection_options",
];

impl Driver {
    fn read(mut fields: Fields<'_>, sink: &mut Sink) -> Option<Driver> {
        let name = fields.required("name", sink);
        name.and_then(|given| policy::short_text(given, NAME_CHARS, sink));
        let id = fields.required("id", sink).and_then(|given| id(given, sink));
        let description = fields.required("description", sink);
        description.and_then(|given| policy::short_text(given, DESCRIPTION_CHARS, sink));
        let version = fields.required("version", sink).and_then(|given| policy::version(given, sink));
        let kind = fields.required("kind", sink).and_then(|given| given.one_of(DRIVER_KINDS, sink));
        let bin = match kind.as_ref().map(|kind| kind.value) {
            Some(DriverKind::Cli) => fields.required("bin", sink),
            _ => fields.optional("bin"),
        };
        let bin = bin.and_then(|given| given.words(sink));
        let bin_args = fields.optional("bin_args").map(|given| texts(given, sink)).unwrap_or_default();
        let exit_codes = fields.optional("output").map(|given| exit_codes(given, sink)).unwrap_or_default();
        let implements = fields.required("implements", sink).map(|given| implements(given, sink));
        let cost = fields.optional("cost_override").and_then(|given| cost(given, sink));
        let timeout = fields.optional("timeout_override_ms").and_then(|given| given.millis(1, sink));
        let (os, arch) = fields.optional("requires").map(|given| requires(given, sink)).unwrap_or_default();
        let mut list = |name| fields.optional(name).map(|given| texts(given, sink)).unwrap_or_default();
        let (regions, policy_tags) = (list("region"), list("policy_tags"));
        let version_check = fields.optional("version_check").and_then(|given| version_check(given, sink));
        let auth = fields.optional("auth").and_then(|given| auth(given, sink));
        let http = http_server(&mut fields, sink);
        let mcp = fields.optional("server").and_then(|given| mcp_server(given, sink));
        let egress = fields.optional("network").map(|given| egress(given, sink)).unwrap_or_default();
        let health = fields.optional("health_check").and_then(|given| health(given, sink));
        fields.optional("retry_override").into_iter().for_each(|given| check_retry(given, sink));
        fields.allow(KEPT);
        fields.finish(sink);
        Some(Driver {
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

fn implements(given: Given<'_>, sink: &mut Sink) -> Vec<Implements> {
    let items = given.list(sink).unwrap_or_default();
    if items.is_empty() {
        let message = "a driver implements at least one tool";
        sink.push(Diagnostic::new(Code::TooFew, given.node.source(), given.node.mark(), message));
    }
    items.into_iter().filter_map(|item| implementation(item, sink)).collect()
}

fn implementation(given: Given<'_>, sink: &mut Sink) -> Option<Implements> {
    let mut fields = Fields::of(given.node, "an entry of `implements`", sink)?;
    let tool = fields.required("tool", sink).and_then(|given| given.words(sink));
    let version = fields.optional("version").and_then(|given| range_of(given, sink));
    let timeout = fields.optional("timeout_override_ms").and_then(|given| given.millis(1, sink));
    let narrowing = fields.optional("schema_narrowing");
    let (drop_inputs, drop_outputs) = narrowing.map(|given| drops(given, sink)).unwrap_or_default();
    let (mut renames, transform) =
        fields.optional("mapping").map(|given| mapping(given, sink)).unwrap_or_default();
    let cost = fields.optional("cost_override").and_then(|given| cost(given, sink));
    let metadata = fields.optional("metadata").map(|given| given.node);
    let argv = metadata.and_then(|node| node.get("cli")?.get("argv"));
    let argv = argv.map(|node| argv_of(Given { name: "argv", node }, sink));
    let function = metadata.and_then(|node| node.get("builtin")?.get("function"));
    let function = function.and_then(|node| Given { name: "function", node }.words(sink));
    let http = metadata.and_then(|node| node.get("http")).and_then(|node| http_call(node, sink));
    let mcp = metadata.and_then(|node| node.get("mcp")).and_then(|node| mcp_call(node, sink));
    let (mcp, more) = mcp.unwrap_or_default();
    renames.extend(more);
    fields.optional("retry_override").into_iter().for_each(|given| check_retry(given, sink));
    fields.finish(sink);
    Some(Implements {
        tool: tool?.value.to_owned(),
        version,
        argv: argv.unwrap_or_default(),
        timeout: timeout.map(|length| length.value),
        drop_inputs,
        drop_outputs,
        renames,
        transform,
        cost,
        function: function.map(|text| text.value.to_owned()),
        http,
        mcp,
    })
}

/// A name is the program's name for an input of the tool; a mapping says of which input a value of the program comes, and
/// perhaps through which function.
fn mapping(given: Given<'_>, sink: &mut Sink) -> (BTreeMap<String, String>, Option<String>) {
    let (mut renames, mut transform) = (BTreeMap::new(), None);
    let Some(fields) = given.node.fields() else {
        sink.push(given.wrong("a mapping of names"));
        return (renames, transform);
    };
    for field in fields {
        let inner = Given { name: field.key, node: field.value };
        if inner.node.fields().is_none() {
            let to = inner.words(sink).map(|to| to.value.to_owned());
            renames.extend(to.map(|to| (field.key.to_owned(), to)));
            continue;
        }
        let Some(mut parts) = Fields::of(inner.node, "an entry of `mapping`", sink) else { continue };
        let from = parts.required("from", sink).and_then(|given| given.words(sink));
        let function = parts.optional("transform").and_then(|given| given.words(sink));
        parts.finish(sink);
        transform = transform.or(function.map(|function| function.value.to_owned()));
        renames.extend(from.map(|from| (from.value.to_owned(), field.key.to_owned())));
    }
    (renames, transform)
}

fn check_retry(given: Given<'_>, sink: &mut Sink) {
    let Some(mut fields) = Fields::of(given.node, "`retry_override`", sink) else { return };
    fields.required("max_attempts", sink).and_then(|given| given.whole(1..=10, sink));
    fields.optional("backoff").and_then(|given| given.one_of(BACKOFFS, sink));
    fields.optional("initial_ms").and_then(|given| given.millis(0, sink));
    fields.finish(sink);
}

fn argv_of(given: Given<'_>, sink: &mut Sink) -> Vec<Text> {
    let mut arguments = Vec::new();
    for item in given.list(sink).unwrap_or_default() {
        let Some(text) = item.node.raw() else {
            sink.push(item.wrong("text"));
            continue;
        };
        match call::parse(text).and_then(shown) {
            Ok(read) => arguments.push(read),
            Err(why) => {
                let message = format!("this argument cannot be filled in: {why}");
                let (source, span) = (item.node.source(), item.node.mark());
                sink.push(Diagnostic::new(Code::BadExpression, source, span, message));
            }
        }
    }
    arguments
}

/// Everyone on the machine sees the arguments of a program.
fn shown(read: Text) -> Result<Text, String> {
    match read.iter().any(|piece| matches!(piece, Piece::Secret(_))) {
        true => {
            Err("a secret is a variable of the program, never an argument; `auth.state.env` names it"
                .to_owned())
        }
        false => Ok(read),
    }
}

/// Inputs that are not taken, and outputs that are not given.
fn drops(given: Given<'_>, sink: &mut Sink) -> (Vec<String>, Vec<String>) {
    let Some(mut fields) = Fields::of(given.node, "`schema_narrowing`", sink) else {
        return Default::default();
    };
    let (inputs, outputs) = (fields.optional("drop_inputs"), fields.optional("drop_outputs"));
    fields.finish(sink);
    let mut list = |given: Option<Given<'_>>| given.map(|given| texts(given, sink)).unwrap_or_default();
    (list(inputs), list(outputs))
}

/// Error codes by exit status. How the output is written is always the same here, so the rest is let be.
fn exit_codes(given: Given<'_>, sink: &mut Sink) -> BTreeMap<i32, String> {
    let codes = given.node.get("exit_codes").filter(|node| !node.is_null());
    let Some(node) = codes else { return BTreeMap::new() };
    let given = Given { name: "exit_codes", node };
    let mut found = BTreeMap::new();
    let Some(fields) = node.fields() else {
        sink.push(given.wrong("a mapping of exit statuses and error codes"));
        return found;
    };
    for field in fields {
        let status = field.key.parse::<i32>().ok().filter(|status| (0..=255).contains(status));
        match (status, field.value.raw()) {
            (Some(0), Some("ok")) => {}
            (Some(status @ 1..), Some(code)) => drop(found.insert(status, code.to_owned())),
            _ => sink.push(given.wrong("a mapping of exit statuses from 1 to 255 and error codes")),
        }
    }
    found
}

fn cost(given: Given<'_>, sink: &mut Sink) -> Option<f64> {
    let mut fields = Fields::of(given.node, "`cost_override`", sink)?;
    let given = fields.optional("cost_units_per_call");
    let units = given.and_then(|given| given.number(sink)).map(|units| units.value);
    if units.is_some_and(|units| !(0.0..=1e12).contains(&units)) {
        sink.extend(given.map(|given| given.wrong("a number from 0 on")));
    }
    fields.optional("cost_class").and_then(|given| given.one_of(COSTS, sink));
    fields.allow(&["currency"]);
    fields.finish(sink);
    units
}

fn requires(given: Given<'_>, sink: &mut Sink) -> (Vec<String>, Vec<String>) {
    let Some(mut fields) = Fields::of(given.node, "`requires`", sink) else { return Default::default() };
    let (os, arch) = (fields.optional("os"), fields.optional("arch"));
    fields.allow(&["min_disk_mb", "min_memory_mb"]);
    fields.finish(sink);
    let mut list = |given: Option<Given<'_>>| given.map(|given| texts(given, sink)).unwrap_or_default();
    (list(os), list(arch))
}

#[cfg(test)]
mod tests {
    use super::{
        super::checks::{Asks, Expired},
        *,
    };

    fn read(more: &str) -> Result<Driver, Vec<String>> {
        let text = format!(
            "---\nname: Desk\nid: desk\ndescription: Does it.\nversion: 1.0.0\n{more}\n---\nProse.\n"
        );
        let said = |all: Vec<Diagnostic>| all.into_iter().map(|one| one.message).collect();
        driver(Source::new("DRIVER.md", text)).map_err(said)
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
        assert!(offer.version.as_ref().is_some_and(|range| range.holds("1.4.0")));
        let what = Piece::Input { path: vec!["what".into()], default: None };
        assert_eq!(offer.argv, [vec![Piece::Text("weigh".into())], vec![what]]);
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
        assert!(check.range.holds("2.41.0") && !check.range.holds("3.0.0"));
        let auth = driver.auth.unwrap();
        assert_eq!((auth.expired, auth.login.as_deref()), (Some(Expired::Exit(4)), Some("gh auth login")));
        let asks = Asks::Program { command: ["gh", "auth", "status"].map(str::to_owned).to_vec(), expect: 0 };
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
        assert_eq!(driver.http.headers[0].1, call::parse("Bearer ${secrets.KEY}").unwrap());
        let call = driver.implements[0].http.as_ref().unwrap();
        assert_eq!((call.method, call.extract.len()), (Some("PUT"), 2));
        assert_eq!(call.key_header.as_deref(), Some("Idempotency-Key"));
        let expired = Expired::Header("X-Login".to_owned(), "expired".to_owned());
        assert_eq!(driver.auth.unwrap().expired, Some(expired));
        assert!(matches!(driver.health.unwrap().asks, Asks::Http { expect: 204, .. }));
    }

    #[test]
    fn what_is_wrong_with_a_driver_is_said() {
        for (more, says) in [
            ("kind: cli\nimplements: [{tool: a}]", "a driver needs `bin`"),
            ("kind: cli\nbin: a\nimplements: []", "at least one tool"),
            ("kind: grpc\nimplements: [{tool: a}]", "`kind` cannot be `grpc`"),
            ("kind: http\nimplements: [{tool: a, version: one}]", "`version` is a range of versions"),
            (
                "kind: cli\nbin: a\nimplements: [{tool: a, metadata: {cli: {argv: [\"${env.X}\"]}}}]",
                "names no input",
            ),
            (
                "kind: cli\nbin: a\nversion_chek: {}\nimplements: [{tool: a}]",
                "a driver has no field `version_chek`",
            ),
            (
                "kind: cli\nbin: a\nversion_check: {cmd: \"a | b\", parse: x, range: ^1}\nimplements: [{tool: a}]",
                "only a shell understands this",
            ),
            ("kind: cli\nbin: a\nhealth_check: {method: exec}\nimplements: [{tool: a}]", "needs `cmd`"),
            (
                "kind: cli\nbin: a\nauth: {expiry: {detect: \"exit_code:x\"}}\nimplements: [{tool: a}]",
                "`exit_code:4`",
            ),
            (
                "kind: cli\nbin: a\nimplements: [{tool: a, metadata: {cli: {argv: [\"${secrets.X}\"]}}}]",
                "never an argument",
            ),
            ("kind: http\nimplements: [{tool: a, metadata: {http: {endpoint: a}}}]", "begins with `/`"),
            (
                "kind: http\nimplements: [{tool: a, metadata: {http: {endpoint: \"/a?b\"}}}]",
                "`query_template`",
            ),
            ("kind: http\nimplements: [{tool: a, metadata: {http: {method: GET}}}]", "needs `endpoint`"),
            ("kind: http\ndefault_headers: {\"a b\": c}\nimplements: [{tool: a}]", "`a b` is no name of one"),
            (
                "kind: http\nimplements: [{tool: a, metadata: {http: {endpoint: /, response_extract: a}}}]",
                "begins with `$`",
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
