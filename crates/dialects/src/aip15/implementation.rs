//! An entry of `implements` in a DRIVER.md: a tool that the driver provides, and the call for it.

use std::collections::BTreeMap;

use skein_core::{
    time::Millis,
    tool_call::{self, CallText, CallTextPiece},
};

use super::{
    driver::{check_retry_override, read_cost_override},
    driver_checks::read_version_range,
    remote::{HttpCall, McpCall, read_http_call, read_mcp_call},
    tool::read_texts,
    version_range::VersionRange,
};
use crate::{
    code::Code,
    diagnostic::{Diagnostic, DiagnosticSink},
    fields::{FieldReader, FieldValue},
};

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
        sink.push(Diagnostic::new(Code::TooFew, given.node.source(), given.node.first_line_span(), message));
    }
    items.into_iter().filter_map(|item| read_implementation(item, sink)).collect()
}

fn read_implementation(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<ImplementedTool> {
    let mut fields = FieldReader::from_node(given.node, "an entry of `implements`", sink)?;
    let tool = fields.required("tool", sink).and_then(|given| given.read_non_empty_text(sink));
    let version = fields.optional("version").and_then(|given| read_version_range(given, sink));
    let timeout = fields.optional("timeout_override_ms").and_then(|given| given.read_millis(1, sink));
    let narrowing = fields.optional("schema_narrowing");
    let (drop_inputs, drop_outputs) =
        narrowing.map(|given| read_dropped_fields(given, sink)).unwrap_or_default();
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

/// Reads `mapping`. A text is the program's name for an input of the tool. A mapping names the input that a value of
/// the program comes from, and perhaps a function that converts it.
fn read_mapping(
    given: FieldValue<'_>,
    sink: &mut DiagnosticSink,
) -> (BTreeMap<String, String>, Option<String>) {
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
        let Some(mut parts) = FieldReader::from_node(inner.node, "an entry of `mapping`", sink) else {
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
        match tool_call::parse_text(text).and_then(refuse_secrets) {
            Ok(read) => arguments.push(read),
            Err(why) => {
                let message = format!("this argument cannot be filled in: {why}");
                let (source, span) = (item.node.source(), item.node.first_line_span());
                sink.push(Diagnostic::new(Code::BadExpression, source, span, message));
            }
        }
    }
    arguments
}

/// Refuses secrets in arguments: every user of the machine can see the arguments of a program.
fn refuse_secrets(read: CallText) -> Result<CallText, String> {
    match read.iter().any(|piece| matches!(piece, CallTextPiece::Secret(_))) {
        true => Err(
            "a secret is passed in an environment variable, never an argument; name it in `auth.state.env`"
                .to_owned(),
        ),
        false => Ok(read),
    }
}

/// Reads the inputs that the driver does not take and the outputs that it does not return.
fn read_dropped_fields(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> (Vec<String>, Vec<String>) {
    let Some(mut fields) = FieldReader::from_node(given.node, "`schema_narrowing`", sink) else {
        return Default::default();
    };
    let (inputs, outputs) = (fields.optional("drop_inputs"), fields.optional("drop_outputs"));
    fields.finish(sink);
    let mut list =
        |given: Option<FieldValue<'_>>| given.map(|given| read_texts(given, sink)).unwrap_or_default();
    (list(inputs), list(outputs))
}
