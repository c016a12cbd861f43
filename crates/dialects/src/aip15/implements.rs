//! An entry of `implements` in a DRIVER.md: a tool that the driver provides, and how it is called for that.

use std::collections::BTreeMap;

use skein_core::{
    call::{self, Piece, Text},
    time::Millis,
};

use super::{
    checks::range_of,
    driver::{check_retry, cost},
    range::Range,
    remote::{HttpCall, McpCall, http_call, mcp_call},
    tool::texts,
};
use crate::{
    code::Code,
    diagnostic::{Diagnostic, Sink},
    read::{Fields, Given},
};

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

pub(super) fn implements(given: Given<'_>, sink: &mut Sink) -> Vec<Implements> {
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
    let argv = argv.map(|node| argv_of(Given::new("argv", node), sink));
    let function = metadata.and_then(|node| node.get("builtin")?.get("function"));
    let function = function.and_then(|node| Given::new("function", node).words(sink));
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
        let inner = Given::new(field.key, field.value);
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
