//! The server of a DRIVER.md: its address, the requests to it, and the part of a response that is the result.
//!
//! Owns the fields of AIP-31 (`http`) and AIP-32 (`mcp`). Sends no requests.

use std::collections::BTreeMap;

use skein_core::tool_call::{self, CallTemplate, CallText, CallTextPiece, JsonPathSegment};

use super::tool::read_texts;
use crate::{
    code::Code,
    diagnostic::{Diagnostic, DiagnosticSink},
    fields::{FieldReader, FieldValue},
    variable::check_variable,
    yaml::YamlNode,
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
    sink.push(Diagnostic::new(
        Code::BadExpression,
        given.node.source(),
        given.node.first_line_span(),
        message,
    ));
}

fn read_template(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<CallText> {
    let raw = given.read_non_empty_text(sink)?.value;
    tool_call::parse_text(raw).map_err(|why| report_bad_template(given, &why, sink)).ok()
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
            Some(Err(why)) => report_bad_template(inner, &why, sink),
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
        sink.push(
            given.diagnose_type(format!("a mapping of headers, and `{name}` is not a valid header name")),
        );
    }
    found
}

/// Headers that Skein sets itself. A driver may not set them.
const OURS: [&str; 5] = ["connection", "content-length", "host", "te", "transfer-encoding"];

fn is_header(name: &str) -> bool {
    let ours = OURS.iter().any(|own| own.eq_ignore_ascii_case(name));
    !name.is_empty()
        && !ours
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
}

fn read_extract_path(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Vec<JsonPathSegment> {
    let Some(text) = given.read_non_empty_text(sink) else { return Vec::new() };
    JsonPathSegment::parse(text.value).unwrap_or_else(|why| {
        report_bad_template(given, &why, sink);
        Vec::new()
    })
}

/// Reads the hosts that a driver may connect to.
pub(super) fn read_egress_hosts(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Vec<String> {
    let Some(mut fields) = FieldReader::from_node(given.node, "`network`", sink) else { return Vec::new() };
    let hosts = fields.optional("egress").map(|given| read_texts(given, sink)).unwrap_or_default();
    fields.allow_fields(&["ingress"]);
    fields.finish(sink);
    hosts
}

pub(super) fn read_http_server(fields: &mut FieldReader<'_>, sink: &mut DiagnosticSink) -> HttpServer {
    let base_url = fields.optional("base_url").and_then(|given| read_address(given, sink));
    let default =
        fields.optional("default_headers").map(|given| read_headers(given, sink)).unwrap_or_default();
    let method = fields.optional("default_method").and_then(|given| given.read_one_of(METHODS, sink));
    let streams = fields.optional("streaming").is_some();
    HttpServer { base_url, headers: default, method: method.map(|method| method.value), streams }
}

pub(super) fn read_http_call(node: YamlNode<'_>, sink: &mut DiagnosticSink) -> Option<HttpCall> {
    let mut fields = FieldReader::from_node(node, "`metadata.http`", sink)?;
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
    let fixed = |wrong: &[char]| {
        read.iter().any(|piece| matches!(piece, CallTextPiece::Text(text) if text.contains(wrong)))
    };
    let begins = matches!(read.first(), Some(CallTextPiece::Text(text)) if text.starts_with('/'));
    if !begins || fixed(&['?', '#', '\\']) || fixed(&[' ', '\t', '\n']) {
        sink.push(
            given.diagnose_type("a path that begins with `/`; put the query string into `query_template`"),
        );
        return None;
    }
    if read.iter().any(|piece| matches!(piece, CallTextPiece::Secret(_))) {
        report_bad_template(
            given,
            "a secret must be in a header, in `query_template` or in `body_template`",
            sink,
        );
        return None;
    }
    Some(read)
}

pub(super) fn read_mcp_server(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<McpServer> {
    let mut fields = FieldReader::from_node(given.node, "`server`", sink)?;
    let kind = fields.required("kind", sink).and_then(|given| given.read_non_empty_text(sink))?.value;
    let server = match kind {
        "binary" => {
            let path = fields.required("path", sink).and_then(|given| given.read_non_empty_text(sink));
            let arguments = fields.optional("args").map(|given| read_texts(given, sink)).unwrap_or_default();
            let env = fields.optional("env").map(|given| read_variables(given, sink)).unwrap_or_default();
            path.map(|path| McpServer::Program { path: path.value.to_owned(), arguments, env })
        }
        "remote" => {
            let url = fields.required("url", sink).and_then(|given| read_address(given, sink));
            let headers =
                fields.optional("headers").map(|given| read_headers(given, sink)).unwrap_or_default();
            url.map(|url| McpServer::Url { url, headers })
        }
        other => {
            fields.allow_fields(&["package", "image", "args", "env"]);
            Some(McpServer::Other(other.to_owned()))
        }
    };
    fields.finish(sink);
    server
}

/// Reads the tool of an MCP server, with the server's names for inputs that the tool names differently.
pub(super) fn read_mcp_call(
    node: YamlNode<'_>,
    sink: &mut DiagnosticSink,
) -> Option<(McpCall, BTreeMap<String, String>)> {
    let mut fields = FieldReader::from_node(node, "`metadata.mcp`", sink)?;
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
    let extract =
        fields.optional("result_extract").map(|given| read_extract_path(given, sink)).unwrap_or_default();
    fields.finish(sink);
    Some((McpCall { tool: name.map(|name| name.value.to_owned()), extract }, renames))
}
