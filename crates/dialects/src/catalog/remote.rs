//! The tools that a DRIVER.md implements, and its server: the address, the requests to it, and the part of a response that
//! is the result.
//!
//! Owns the fields of AIP-31 (`http`) and AIP-32 (`mcp`). Sends no requests.

use std::collections::BTreeMap;

use skein_core::{
    time::Millis,
    tool_call::{self, CallTemplate, CallText, CallTextPiece, JsonPathSegment},
};

use crate::{
    catalog::{
        driver::{check_retry_override, read_cost_override},
        driver_checks::read_version_range,
        tool::read_texts,
        version_range::VersionRange,
    },
    diagnostics::{Code, DiagnosticSink},
    fields::{FieldReader, FieldTable, FieldValue, check_variable},
    source::yaml::YamlNode,
};

/// The methods that a request may have.
const METHODS: &[(&str, &str)] =
    &[("GET", "GET"), ("POST", "POST"), ("PUT", "PUT"), ("PATCH", "PATCH"), ("DELETE", "DELETE")];

/// Texts by name, such as headers.
pub type NamedTexts = Vec<(String, CallText)>;

/// The settings that all requests of an `http` driver share.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HttpServer {
    /// None if the driver sets no address.
    pub base_url: Option<CallText>,
    pub headers: NamedTexts,
    pub method: Option<&'static str>,
    /// True if its responses are streamed.
    pub streams: bool,
}

/// The request for one tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HttpCall {
    /// The path below the base URL.
    pub endpoint: Option<CallText>,
    pub method: Option<&'static str>,
    pub headers: NamedTexts,
    pub query: NamedTexts,
    /// None: the body is the input itself.
    pub body: Option<CallTemplate>,
    /// The part of the response that is the tool's output.
    pub extract: Vec<JsonPathSegment>,
    /// The header that holds the idempotency key.
    pub key_header: Option<String>,
    pub streams: bool,
}

/// The server of an `mcp` driver.
#[derive(Debug, Clone, PartialEq)]
pub enum McpServer {
    /// A program that communicates on its standard input and output.
    Program {
        path: String,
        arguments: Vec<String>,
        env: NamedTexts,
    },
    Url {
        url: CallText,
        headers: NamedTexts,
    },
    /// A kind of server that this version does not start.
    Other(String),
}

/// The tool of an MCP server that does the work.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct McpCall {
    /// None: the server's tool has the same name as the Skein tool.
    pub tool: Option<String>,
    pub extract: Vec<JsonPathSegment>,
}

/// Reports a text that is not a valid template.
fn report_bad_template(given: FieldValue<'_>, why: &str, sink: &mut DiagnosticSink) {
    let message = format!("`{}` cannot be filled in: {why}", given.name);
    sink.push(given.diagnose(Code::BadExpression, message));
}

fn read_template(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<CallText> {
    let raw = given.read_non_empty_text(sink)?.value;
    tool_call::parse_text(raw).map_err(|why| report_bad_template(given, &why.to_string(), sink)).ok()
}

/// Reads the address of a server. It must not depend on an input of the call.
fn read_address(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<CallText> {
    let read = read_template(given, sink)?;
    if read.iter().any(|piece| matches!(piece, CallTextPiece::Input { .. })) {
        report_bad_template(given, "an input cannot choose the server", sink);
        return None;
    }
    Some(read)
}

/// Reads a mapping of names to texts. Numbers and booleans are taken as texts.
fn read_named_texts(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> NamedTexts {
    let Some(fields) = given.node.fields() else {
        sink.push(given.diagnose_type("a mapping of names and texts"));
        return NamedTexts::new();
    };
    let mut found = NamedTexts::new();
    for field in fields {
        let inner = FieldValue::new(field.key, field.value);
        match inner.node.raw_text().map(tool_call::parse_text) {
            Some(Ok(text)) => found.push((field.key.to_owned(), text)),
            Some(Err(why)) => report_bad_template(inner, &why.to_string(), sink),
            None => sink.push(inner.diagnose_type("text")),
        }
    }
    found
}

/// Reads environment variables of a program.
fn read_variables(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> NamedTexts {
    for field in given.node.fields().into_iter().flatten() {
        check_variable(field.key, field.value, field.key_span, sink);
    }
    read_named_texts(given, sink)
}

/// Reads headers and checks that their names are valid in HTTP.
fn read_headers(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> NamedTexts {
    let found = read_named_texts(given, sink);
    if let Some((name, _)) = found.iter().find(|(name, _)| !is_header(name)) {
        sink.push(given.diagnose_type(format!("a mapping of headers, and `{name}` is not a valid header name")));
    }
    found
}

/// Headers that Skein sets itself. A driver may not set them.
const OURS: [&str; 5] = ["connection", "content-length", "host", "te", "transfer-encoding"];

fn is_header(name: &str) -> bool {
    let ours = OURS.iter().any(|own| own.eq_ignore_ascii_case(name));
    !name.is_empty() && !ours && name.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
}

fn read_extract_path(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Vec<JsonPathSegment> {
    let Some(text) = given.read_non_empty_text(sink) else { return Vec::new() };
    JsonPathSegment::parse(text.value).unwrap_or_else(|why| {
        report_bad_template(given, &why.to_string(), sink);
        Vec::new()
    })
}

const NETWORK_FIELDS: FieldTable = FieldTable::closed(&["egress"]).with_unread(&["ingress"]);

/// Reads the hosts that a driver may connect to.
pub(super) fn read_egress_hosts(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Vec<String> {
    let Some(fields) = FieldReader::from_node(given.node, "`network`", NETWORK_FIELDS, sink) else {
        return Vec::new();
    };
    let hosts = fields.optional("egress").map(|given| read_texts(given, sink)).unwrap_or_default();
    fields.finish(sink);
    hosts
}

/// The fields of a driver that describe its HTTP server.
pub(super) const HTTP_SERVER_FIELDS: &[&str] = &["base_url", "default_headers", "default_method", "streaming"];

pub(super) fn read_http_server(fields: &FieldReader<'_>, sink: &mut DiagnosticSink) -> HttpServer {
    let base_url = fields.optional("base_url").and_then(|given| read_address(given, sink));
    let default = fields.optional("default_headers").map(|given| read_headers(given, sink)).unwrap_or_default();
    let method = fields.optional("default_method").and_then(|given| given.read_one_of(METHODS, sink));
    let streams = fields.optional("streaming").is_some();
    HttpServer { base_url, headers: default, method: method.map(|method| method.value), streams }
}

const HTTP_CALL_FIELDS: &[&str] = &[
    "endpoint", "method", "headers", "query_template", "body_template", "response_extract", "idempotency_key_header",
    "streaming",
];

pub(super) fn read_http_call(node: YamlNode<'_>, sink: &mut DiagnosticSink) -> Option<HttpCall> {
    let mut fields = FieldReader::from_node(node, "`metadata.http`", HTTP_CALL_FIELDS, sink)?;
    let endpoint = fields.required("endpoint", sink).and_then(|given| read_endpoint(given, sink));
    let method = fields.optional("method").and_then(|given| given.read_one_of(METHODS, sink));
    let mut texts = |name: &'static str, read: fn(FieldValue<'_>, &mut DiagnosticSink) -> NamedTexts| {
        fields.optional(name).map(|given| read(given, sink)).unwrap_or_default()
    };
    let (own, query) = (texts("headers", read_headers), texts("query_template", read_named_texts));
    let body = fields.optional("body_template").and_then(|given| {
        let read = CallTemplate::parse(&given.node.to_json());
        read.map_err(|(text, why)| report_bad_template(given, &format!("`{text}`: {why}"), sink)).ok()
    });
    let extract = fields.optional("response_extract").map(|given| read_extract_path(given, sink));
    let key = fields.optional("idempotency_key_header");
    let key = key.and_then(|given| Some((given, given.read_non_empty_text(sink)?.value)));
    if let Some((given, name)) = key
        && !is_header(name)
    {
        sink.push(given.diagnose_type("the name of a header"));
    }
    let streams = fields.optional("streaming").is_some();
    fields.finish(sink);
    Some(HttpCall {
        endpoint,
        method: method.map(|method| method.value),
        headers: own,
        query,
        body,
        extract: extract.unwrap_or_default(),
        key_header: key.map(|(_, name)| name.to_owned()),
        streams,
    })
}

/// Reads a path below the base URL. A query string belongs into `query_template`.
fn read_endpoint(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<CallText> {
    let read = read_template(given, sink)?;
    let fixed =
        |wrong: &[char]| read.iter().any(|piece| matches!(piece, CallTextPiece::Text(text) if text.contains(wrong)));
    let begins = matches!(read.first(), Some(CallTextPiece::Text(text)) if text.starts_with('/'));
    if !begins || fixed(&['?', '#', '\\']) || fixed(&[' ', '\t', '\n']) {
        sink.push(given.diagnose_type("a path that begins with `/`; put the query string into `query_template`"));
        return None;
    }
    if read.iter().any(|piece| matches!(piece, CallTextPiece::Secret(_))) {
        report_bad_template(given, "a secret must be in a header, in `query_template` or in `body_template`", sink);
        return None;
    }
    Some(read)
}

const MCP_PROGRAM_FIELDS: &[&str] = &["path", "args", "env"];
const MCP_URL_FIELDS: &[&str] = &["url", "headers"];
/// The fields of servers that this version does not start.
const MCP_OTHER_FIELDS: &[&str] = &["package", "image", "args", "env"];
const MCP_SERVER_FIELDS: FieldTable =
    FieldTable::closed(&["kind"]).with_more(&[MCP_PROGRAM_FIELDS, MCP_URL_FIELDS, MCP_OTHER_FIELDS]);

pub(super) fn read_mcp_server(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<McpServer> {
    let mut fields = FieldReader::from_node(given.node, "`server`", MCP_SERVER_FIELDS, sink)?;
    let kind = fields.required("kind", sink).and_then(|given| given.read_non_empty_text(sink))?.value;
    let table = match kind {
        "binary" => MCP_SERVER_FIELDS.for_kind(&[MCP_PROGRAM_FIELDS]),
        "remote" => MCP_SERVER_FIELDS.for_kind(&[MCP_URL_FIELDS]),
        _ => MCP_SERVER_FIELDS.for_kind(&[]).with_unread(MCP_OTHER_FIELDS),
    };
    fields.narrow("`server`", table, sink);
    let server = match kind {
        "binary" => {
            let path = fields.required("path", sink).and_then(|given| given.read_non_empty_text(sink));
            let arguments = fields.optional("args").map(|given| read_texts(given, sink)).unwrap_or_default();
            let env = fields.optional("env").map(|given| read_variables(given, sink)).unwrap_or_default();
            path.map(|path| McpServer::Program { path: path.value.to_owned(), arguments, env })
        }
        "remote" => {
            let url = fields.required("url", sink).and_then(|given| read_address(given, sink));
            let headers = fields.optional("headers").map(|given| read_headers(given, sink)).unwrap_or_default();
            url.map(|url| McpServer::Url { url, headers })
        }
        other => Some(McpServer::Other(other.to_owned())),
    };
    fields.finish(sink);
    server
}

const MCP_CALL_FIELDS: &[&str] = &["tool_name", "tool", "argument_mapping", "result_extract"];

/// Reads the tool of an MCP server, with the server's names for inputs that the tool names differently.
pub(super) fn read_mcp_call(
    node: YamlNode<'_>,
    sink: &mut DiagnosticSink,
) -> Option<(McpCall, BTreeMap<String, String>)> {
    let fields = FieldReader::from_node(node, "`metadata.mcp`", MCP_CALL_FIELDS, sink)?;
    let name = fields.optional("tool_name");
    let name = name.or(fields.optional("tool")).and_then(|given| given.read_non_empty_text(sink));
    let mut renames = BTreeMap::new();
    if let Some(given) = fields.optional("argument_mapping") {
        for field in given.node.fields().into_iter().flatten() {
            let to = FieldValue::new(field.key, field.value).read_non_empty_text(sink);
            renames.extend(to.map(|to| (field.key.to_owned(), to.value.to_owned())));
        }
        if given.node.fields().is_none() {
            sink.push(given.diagnose_type("a mapping of names"));
        }
    }
    let extract = fields.optional("result_extract").map(|given| read_extract_path(given, sink)).unwrap_or_default();
    fields.finish(sink);
    Some((McpCall { tool: name.map(|name| name.value.to_owned()), extract }, renames))
}

/// A tool that a driver provides.
#[derive(Debug, Clone, PartialEq)]
pub struct ImplementedTool {
    /// Its id, or the path of its file.
    pub tool: String,
    /// The accepted versions of it. None: any.
    pub version: Option<VersionRange>,
    pub argv: Vec<CallText>,
    pub timeout: Option<Millis>,
    /// Inputs of the tool that the driver does not take.
    pub drop_inputs: Vec<String>,
    /// Outputs of the tool that the driver does not return.
    pub drop_outputs: Vec<String>,
    /// The program's names for inputs of the tool, by the tool's names.
    pub renames: BTreeMap<String, String>,
    /// A function that converts a value. Only an SDK has such functions.
    pub transform: Option<String>,
    /// The cost of a call of this tool.
    pub cost: Option<f64>,
    /// The function of Skein that a `builtin` driver calls.
    pub function: Option<String>,
    /// The request of an `http` driver.
    pub http: Option<HttpCall>,
    /// The tool of the server that an `mcp` driver calls.
    pub mcp: McpCall,
}

pub(super) fn read_implementations(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Vec<ImplementedTool> {
    let items = given.read_list(sink).unwrap_or_default();
    if items.is_empty() {
        let message = "a driver implements at least one tool";
        sink.push(given.diagnose(Code::TooFew, message));
    }
    items.into_iter().filter_map(|item| read_implementation(item, sink)).collect()
}

const IMPLEMENTATION_FIELDS: &[&str] = &[
    "tool", "version", "timeout_override_ms", "schema_narrowing", "mapping", "cost_override", "metadata",
    "retry_override",
];

fn read_implementation(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<ImplementedTool> {
    let mut fields = FieldReader::from_node(given.node, "an entry of `implements`", IMPLEMENTATION_FIELDS, sink)?;
    let tool = fields.required("tool", sink).and_then(|given| given.read_non_empty_text(sink));
    let version = fields.optional("version").and_then(|given| read_version_range(given, sink));
    let timeout = fields.optional("timeout_override_ms").and_then(|given| given.read_millis(1, sink));
    let narrowing = fields.optional("schema_narrowing");
    let (drop_inputs, drop_outputs) = narrowing.map(|given| read_dropped_fields(given, sink)).unwrap_or_default();
    let (mut renames, transform) =
        fields.optional("mapping").map(|given| read_mapping(given, sink)).unwrap_or_default();
    let cost = fields.optional("cost_override").and_then(|given| read_cost_override(given, sink));
    let metadata = fields.optional("metadata").map(|given| given.node);
    let argv = metadata.and_then(|node| node.get("cli")?.get("argv"));
    let argv = argv.map(|node| read_argv(FieldValue::new("argv", node), sink));
    let function = metadata.and_then(|node| node.get("builtin")?.get("function"));
    let function = function.and_then(|node| FieldValue::new("function", node).read_non_empty_text(sink));
    let http = metadata.and_then(|node| node.get("http")).and_then(|node| read_http_call(node, sink));
    let mcp = metadata.and_then(|node| node.get("mcp")).and_then(|node| read_mcp_call(node, sink));
    let (mcp, more) = mcp.unwrap_or_default();
    renames.extend(more);
    fields.optional("retry_override").into_iter().for_each(|given| check_retry_override(given, sink));
    fields.finish(sink);
    Some(ImplementedTool {
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

const MAPPING_FIELDS: &[&str] = &["from", "transform"];

/// Reads `mapping`. A text is the program's name for an input of the tool. A mapping names the input that a value of
/// the program comes from, and perhaps a function that converts it.
fn read_mapping(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> (BTreeMap<String, String>, Option<String>) {
    let (mut renames, mut transform) = (BTreeMap::new(), None);
    let Some(fields) = given.node.fields() else {
        sink.push(given.diagnose_type("a mapping of names"));
        return (renames, transform);
    };
    for field in fields {
        let inner = FieldValue::new(field.key, field.value);
        if inner.node.fields().is_none() {
            let to = inner.read_non_empty_text(sink).map(|to| to.value.to_owned());
            renames.extend(to.map(|to| (field.key.to_owned(), to)));
            continue;
        }
        let Some(mut parts) = FieldReader::from_node(inner.node, "an entry of `mapping`", MAPPING_FIELDS, sink) else {
            continue;
        };
        let from = parts.required("from", sink).and_then(|given| given.read_non_empty_text(sink));
        let function = parts.optional("transform").and_then(|given| given.read_non_empty_text(sink));
        parts.finish(sink);
        transform = transform.or(function.map(|function| function.value.to_owned()));
        renames.extend(from.map(|from| (from.value.to_owned(), field.key.to_owned())));
    }
    (renames, transform)
}

fn read_argv(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Vec<CallText> {
    let mut arguments = Vec::new();
    for item in given.read_list(sink).unwrap_or_default() {
        let Some(text) = item.node.raw_text() else {
            sink.push(item.diagnose_type("text"));
            continue;
        };
        let why = match tool_call::parse_text(text) {
            Ok(read) if !has_secret(&read) => {
                arguments.push(read);
                continue;
            }
            Ok(_) => SECRET_ARGUMENT.to_owned(),
            Err(why) => why.to_string(),
        };
        let message = format!("this argument cannot be filled in: {why}");
        sink.push(item.diagnose(Code::BadExpression, message));
    }
    arguments
}

/// The reason why an argument has no secrets: every user of the machine can see the arguments of a program.
const SECRET_ARGUMENT: &str =
    "a secret is passed in an environment variable, never an argument; name it in `auth.state.env`";

fn has_secret(text: &CallText) -> bool {
    text.iter().any(|piece| matches!(piece, CallTextPiece::Secret(_)))
}

const NARROWING_FIELDS: &[&str] = &["drop_inputs", "drop_outputs"];

/// Reads the inputs that the driver does not take and the outputs that it does not return.
fn read_dropped_fields(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> (Vec<String>, Vec<String>) {
    let Some(fields) = FieldReader::from_node(given.node, "`schema_narrowing`", NARROWING_FIELDS, sink) else {
        return Default::default();
    };
    let (inputs, outputs) = (fields.optional("drop_inputs"), fields.optional("drop_outputs"));
    fields.finish(sink);
    let mut list = |given: Option<FieldValue<'_>>| given.map(|given| read_texts(given, sink)).unwrap_or_default();
    (list(inputs), list(outputs))
}
