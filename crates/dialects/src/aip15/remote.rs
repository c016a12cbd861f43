//! What a DRIVER.md says of a server: its address, what is sent to it, and what of its answer counts.
//!
//! Owns the fields of AIP-31 (`http`) and AIP-32 (`mcp`). Refuses to ask anyone.

use std::collections::BTreeMap;

use skein_core::call::{self, Part, Piece, Template, Text};

use super::tool::texts;
use crate::{
    code::Code,
    diagnostic::{Diagnostic, Sink},
    read::{Fields, Given},
    variable::check_variable,
    yaml::Node,
};

/// The methods that a request may have.
const METHODS: &[(&str, &str)] =
    &[("GET", "GET"), ("POST", "POST"), ("PUT", "PUT"), ("PATCH", "PATCH"), ("DELETE", "DELETE")];

/// Texts by name, such as headers.
pub type Texts = Vec<(String, Text)>;

/// What all requests of an `http` driver have.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HttpServer {
    /// None: it does not say where.
    pub base_url: Option<Text>,
    pub headers: Texts,
    pub method: Option<&'static str>,
    /// Its answers come in pieces.
    pub streams: bool,
}

/// The request for one tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HttpCall {
    /// The path after the base.
    pub endpoint: Option<Text>,
    pub method: Option<&'static str>,
    pub headers: Texts,
    pub query: Texts,
    /// None: the input itself.
    pub body: Option<Template>,
    /// What of the answer is what the tool gives.
    pub extract: Vec<Part>,
    /// The header in which requests that mean the same say the same.
    pub key_header: Option<String>,
    pub streams: bool,
}

/// Where the server of an `mcp` driver is.
#[derive(Debug, Clone, PartialEq)]
pub enum McpServer {
    /// A program that is spoken to on its standard input and output.
    Program {
        path: String,
        arguments: Vec<String>,
        env: Texts,
    },
    Url {
        url: Text,
        headers: Texts,
    },
    /// Something else that this version does not start.
    Other(String),
}

/// The tool of a server that does the work.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct McpCall {
    /// None: the one that is called as ours.
    pub tool: Option<String>,
    pub extract: Vec<Part>,
}

/// Says that a text cannot be filled in.
fn unfit(given: Given<'_>, why: &str, sink: &mut Sink) {
    let message = format!("`{}` cannot be filled in: {why}", given.name);
    sink.push(Diagnostic::new(Code::BadExpression, given.node.source(), given.node.mark(), message));
}

fn text(given: Given<'_>, sink: &mut Sink) -> Option<Text> {
    let raw = given.words(sink)?.value;
    call::parse(raw).map_err(|why| unfit(given, &why, sink)).ok()
}

/// Where a server is. No value of a call says so.
fn address(given: Given<'_>, sink: &mut Sink) -> Option<Text> {
    let read = text(given, sink)?;
    if read.iter().any(|piece| matches!(piece, Piece::Input { .. })) {
        unfit(given, "an input does not say which server is asked", sink);
        return None;
    }
    Some(read)
}

/// A mapping of names and texts. Numbers and truths are texts here, too.
fn named(given: Given<'_>, sink: &mut Sink) -> Texts {
    let Some(fields) = given.node.fields() else {
        sink.push(given.wrong("a mapping of names and texts"));
        return Texts::new();
    };
    let mut found = Texts::new();
    for field in fields {
        let inner = Given::new(field.key, field.value);
        match inner.node.raw().map(call::parse) {
            Some(Ok(text)) => found.push((field.key.to_owned(), text)),
            Some(Err(why)) => unfit(inner, &why, sink),
            None => sink.push(inner.wrong("text")),
        }
    }
    found
}

/// Variables of the environment of a program.
fn variables(given: Given<'_>, sink: &mut Sink) -> Texts {
    for field in given.node.fields().into_iter().flatten() {
        check_variable(field.key, field.value, field.key_span, sink);
    }
    named(given, sink)
}

/// Headers, whose names are those of HTTP.
fn headers(given: Given<'_>, sink: &mut Sink) -> Texts {
    let found = named(given, sink);
    if let Some((name, _)) = found.iter().find(|(name, _)| !is_header(name)) {
        sink.push(given.wrong(format!("a mapping of headers, and `{name}` is no name of one")));
    }
    found
}

/// What a request is made of is not for drivers to say.
const OURS: [&str; 5] = ["connection", "content-length", "host", "te", "transfer-encoding"];

fn is_header(name: &str) -> bool {
    let ours = OURS.iter().any(|own| own.eq_ignore_ascii_case(name));
    !name.is_empty()
        && !ours
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
}

fn extract(given: Given<'_>, sink: &mut Sink) -> Vec<Part> {
    let Some(text) = given.words(sink) else { return Vec::new() };
    Part::parse(text.value).unwrap_or_else(|why| {
        unfit(given, &why, sink);
        Vec::new()
    })
}

/// The hosts that a driver may ask.
pub(super) fn egress(given: Given<'_>, sink: &mut Sink) -> Vec<String> {
    let Some(mut fields) = Fields::of(given.node, "`network`", sink) else { return Vec::new() };
    let hosts = fields.optional("egress").map(|given| texts(given, sink)).unwrap_or_default();
    fields.allow(&["ingress"]);
    fields.finish(sink);
    hosts
}

pub(super) fn http_server(fields: &mut Fields<'_>, sink: &mut Sink) -> HttpServer {
    let base_url = fields.optional("base_url").and_then(|given| address(given, sink));
    let default = fields.optional("default_headers").map(|given| headers(given, sink)).unwrap_or_default();
    let method = fields.optional("default_method").and_then(|given| given.one_of(METHODS, sink));
    let streams = fields.optional("streaming").is_some();
    HttpServer { base_url, headers: default, method: method.map(|method| method.value), streams }
}

pub(super) fn http_call(node: Node<'_>, sink: &mut Sink) -> Option<HttpCall> {
    let mut fields = Fields::of(node, "`metadata.http`", sink)?;
    let endpoint = fields.required("endpoint", sink).and_then(|given| endpoint(given, sink));
    let method = fields.optional("method").and_then(|given| given.one_of(METHODS, sink));
    let mut texts = |name: &'static str, read: fn(Given<'_>, &mut Sink) -> Texts| {
        fields.optional(name).map(|given| read(given, sink)).unwrap_or_default()
    };
    let (own, query) = (texts("headers", headers), texts("query_template", named));
    let body = fields.optional("body_template").and_then(|given| {
        let read = Template::parse(&given.node.json());
        read.map_err(|(text, why)| unfit(given, &format!("`{text}`: {why}"), sink)).ok()
    });
    let extract = fields.optional("response_extract").map(|given| extract(given, sink));
    let key = fields.optional("idempotency_key_header");
    let key = key.and_then(|given| Some((given, given.words(sink)?.value)));
    if let Some((given, name)) = key
        && !is_header(name)
    {
        sink.push(given.wrong("the name of a header"));
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

/// A path that begins at the base. What is asked besides belongs elsewhere.
fn endpoint(given: Given<'_>, sink: &mut Sink) -> Option<Text> {
    let read = text(given, sink)?;
    let fixed =
        |wrong: &[char]| read.iter().any(|piece| matches!(piece, Piece::Text(text) if text.contains(wrong)));
    let begins = matches!(read.first(), Some(Piece::Text(text)) if text.starts_with('/'));
    if !begins || fixed(&['?', '#', '\\']) || fixed(&[' ', '\t', '\n']) {
        sink.push(
            given.wrong("a path that begins with `/`; what follows a `?` belongs into `query_template`"),
        );
        return None;
    }
    if read.iter().any(|piece| matches!(piece, Piece::Secret(_))) {
        unfit(given, "a secret is given in a header, in `query_template` or in `body_template`", sink);
        return None;
    }
    Some(read)
}

pub(super) fn mcp_server(given: Given<'_>, sink: &mut Sink) -> Option<McpServer> {
    let mut fields = Fields::of(given.node, "`server`", sink)?;
    let kind = fields.required("kind", sink).and_then(|given| given.words(sink))?.value;
    let server = match kind {
        "binary" => {
            let path = fields.required("path", sink).and_then(|given| given.words(sink));
            let arguments = fields.optional("args").map(|given| texts(given, sink)).unwrap_or_default();
            let env = fields.optional("env").map(|given| variables(given, sink)).unwrap_or_default();
            path.map(|path| McpServer::Program { path: path.value.to_owned(), arguments, env })
        }
        "remote" => {
            let url = fields.required("url", sink).and_then(|given| address(given, sink));
            let headers = fields.optional("headers").map(|given| headers(given, sink)).unwrap_or_default();
            url.map(|url| McpServer::Url { url, headers })
        }
        other => {
            fields.allow(&["package", "image", "args", "env"]);
            Some(McpServer::Other(other.to_owned()))
        }
    };
    fields.finish(sink);
    server
}

/// With what the server calls inputs that the tool knows under another name.
pub(super) fn mcp_call(node: Node<'_>, sink: &mut Sink) -> Option<(McpCall, BTreeMap<String, String>)> {
    let mut fields = Fields::of(node, "`metadata.mcp`", sink)?;
    let name = fields.optional("tool_name");
    let name = name.or(fields.optional("tool")).and_then(|given| given.words(sink));
    let mut renames = BTreeMap::new();
    if let Some(given) = fields.optional("argument_mapping") {
        for field in given.node.fields().into_iter().flatten() {
            let to = Given::new(field.key, field.value).words(sink);
            renames.extend(to.map(|to| (field.key.to_owned(), to.value.to_owned())));
        }
        if given.node.fields().is_none() {
            sink.push(given.wrong("a mapping of names"));
        }
    }
    let extract = fields.optional("result_extract").map(|given| extract(given, sink)).unwrap_or_default();
    fields.finish(sink);
    Some((McpCall { tool: name.map(|name| name.value.to_owned()), extract }, renames))
}
