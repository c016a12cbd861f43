//! AgentCore's syntax: reads and checks each field by itself. Does not know their meaning together.

use std::collections::{BTreeMap, HashSet};

use skein_core::{
    expr::ExprSpan,
    ids::{ArtifactName, IdError, StepId},
    time::Millis,
};

use crate::{
    agentcore::{defaults::RESERVED_ARTIFACTS, step_syntax::AgentCoreStep},
    diagnostics::{Code, Diagnostic, DiagnosticSink, shorten_text},
    extensions::{ExtensionBlock, WORKFLOW_BLOCK_FIELDS},
    fields::{
        DurationUnits, FieldReader, FieldValue, Spanned, UnloweredSteps, refuse_twins,
        workspace_path::{self, normalize_path},
    },
    lowering::call_contract::CallContract,
    source::yaml::{YamlNode, YamlScalar},
};

/// A whole source file.
#[derive(Debug)]
pub(super) struct AgentCoreWorkflow<'a> {
    pub name: Option<Spanned<&'a str>>,
    pub description: Option<&'a str>,
    pub timeout: Option<Millis>,
    pub concurrency: Option<u32>,
    pub context_dir: Option<&'a str>,
    /// None if some step has no usable name.
    pub steps: Option<UnloweredSteps<AgentCoreStep<'a>>>,
    pub skein: ExtensionBlock,
    pub border: CallContract<'a>,
}

const WORKFLOW_FIELDS: &[&str] =
    &["name", "version", "x-skein", "description", "timeout", "concurrency", "context_dir", "steps"];

impl<'a> AgentCoreWorkflow<'a> {
    pub(crate) fn read(root: YamlNode<'a>, sink: &mut DiagnosticSink) -> Option<AgentCoreWorkflow<'a>> {
        let mut fields = FieldReader::from_node(root, "a workflow", WORKFLOW_FIELDS, sink)?;
        let name = fields.required("name", sink).and_then(|given| given.read_non_empty_text(sink));
        read_version(&mut fields, sink);
        let block = fields.optional("x-skein");
        let workflow = AgentCoreWorkflow {
            name,
            description: read_text(fields.optional("description"), sink),
            timeout: read_duration(fields.required("timeout", sink), sink),
            concurrency: read_count(fields.optional("concurrency"), 1, sink),
            context_dir: fields.optional("context_dir").and_then(|given| read_context_dir(given, sink)),
            skein: read_extension(block, sink),
            border: CallContract::read(block, sink),
            steps: fields.required("steps", sink).and_then(|given| read_steps(given, sink)),
        };
        fields.finish(sink);
        Some(workflow)
    }
}

/// Reads the version of the format, which is the text `1` and is easily written as a number.
fn read_version(fields: &mut FieldReader<'_>, sink: &mut DiagnosticSink) {
    let Some(given) = fields.required("version", sink) else { return };
    let version = match given.node.raw_text() {
        Some("1") if matches!(given.node.scalar(), Some(YamlScalar::Text(_))) => return,
        // Most likely the only version that exists, without its quotes.
        Some("1" | "1.0") => given.diagnose_type("text"),
        _ => {
            let Some(version) = given.read_text(sink) else { return };
            let message = format!("there is no version `{}` of this format", shorten_text(version.value));
            Diagnostic::new(Code::UnknownWord, given.node.source(), version.span, message)
        }
    };
    sink.push(version.with_hint("write `version: \"1\"`").with_fix(given.span(), "\"1\""));
}

/// Reads `context_dir`. A run replaces the contents of this directory, so it cannot be the workspace itself.
fn read_context_dir<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    let directory = read_path(Some(given), sink).filter(|directory| !directory.is_empty())?;
    if workspace_path::normalize_path(directory).is_empty() {
        let message = format!("`context_dir` cannot be `{directory}`: it is the workspace itself");
        let hint = "name a folder of its own, such as `./context`: each run replaces what is in it";
        sink.push(given.diagnose(Code::BadPath, message).with_hint(hint));
        return None;
    }
    Some(directory)
}

fn read_steps<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<UnloweredSteps<AgentCoreStep<'a>>> {
    let Some(entries) = given.node.fields() else {
        let diagnostic = given.diagnose_type("a mapping of steps by name");
        sink.push(match given.node.items() {
            Some(_) => diagnostic.with_hint("write the name of each step as a key: `build:`, with its fields below"),
            None => diagnostic,
        });
        return None;
    };
    if entries.len() == 0 {
        let message = "a workflow needs at least one step";
        sink.push(given.diagnose(Code::NoSteps, message));
        return None;
    }
    refuse_twins(entries.clone().map(|field| (field.key, field.key_span)), "the step", sink);
    // A duplicate key has already been reported; the first one counts.
    let mut seen = sink.has_errors().then(HashSet::new);
    let mut steps = Vec::with_capacity(entries.len());
    let mut all = true;
    for field in entries.filter(|field| seen.as_mut().is_none_or(|seen| seen.insert(field.key))) {
        let step = AgentCoreStep::read(field, sink);
        all &= step.is_some();
        steps.extend(step.map(Box::new));
    }
    all.then_some(steps)
}

fn read_extension(given: Option<FieldValue<'_>>, sink: &mut DiagnosticSink) -> ExtensionBlock {
    let table = WORKFLOW_BLOCK_FIELDS.with_unread(CallContract::FIELDS);
    given.map_or_else(ExtensionBlock::default, |given| ExtensionBlock::read(given, table, sink))
}

pub(super) fn read_text<'a>(given: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    given.and_then(|given| given.read_text(sink)).map(|text| text.value)
}

pub(super) fn read_duration(given: Option<FieldValue<'_>>, sink: &mut DiagnosticSink) -> Option<Millis> {
    given.and_then(|given| given.read_duration(DurationUnits::UpToHours, sink)).map(|length| length.value)
}

pub(super) fn read_count(given: Option<FieldValue<'_>>, least: u32, sink: &mut DiagnosticSink) -> Option<u32> {
    given.and_then(|given| given.read_whole_number(least..=u32::MAX, sink)).map(|count| count.value)
}

/// Reads a path in the workspace.
pub(super) fn read_path<'a>(given: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    let given = given?;
    let path = given.read_text(sink)?.value;
    workspace_path::check_path(given, path, sink);
    Some(path)
}

/// Parses a name that becomes a folder. Reports a name that is invalid or reserved.
pub(super) fn parse_folder_name<T>(
    text: &str,
    span: ExprSpan,
    reserved: &[&str],
    make: impl FnOnce(&str) -> Result<T, IdError>,
    sink: &mut DiagnosticSink,
) -> Option<T> {
    let source = sink.source.clone();
    // Some file systems ignore case.
    let owner = match workspace_path::control_file_owner(text) {
        _ if reserved.iter().any(|name| name.eq_ignore_ascii_case(text)) => {
            Some("files of the context directory".to_owned())
        }
        Some(of) => Some(format!("{of}'s own files")),
        None => None,
    };
    if let Some(owner) = owner {
        let message = format!("the name `{text}` is reserved for {owner}");
        sink.push(Diagnostic::new(Code::ReservedName, &source, span, message).with_hint("choose another name"));
        return None;
    }
    match make(text) {
        Ok(name) => Some(name),
        Err(why) => {
            let message = format!("`{}` cannot be a name: {why}", shorten_text(text));
            sink.push(Diagnostic::new(Code::BadName, &source, span, message));
            None
        }
    }
}

/// An artifact that a step takes from an earlier one, or exports from the workflow that it calls.
#[derive(Debug)]
pub(in crate::agentcore) struct InputRef {
    /// The place of the whole entry.
    pub place: ExprSpan,
    pub from: Spanned<StepId>,
    pub artifact: ArtifactName,
    pub name: ArtifactName,
}

#[derive(Debug)]
pub(in crate::agentcore) struct OutputDef<'a> {
    pub name: ArtifactName,
    pub path: &'a str,
    pub kind: Option<&'a str>,
}

pub(super) fn read_inputs(
    given: Option<FieldValue<'_>>,
    what: &'static str,
    sink: &mut DiagnosticSink,
) -> Vec<InputRef> {
    let items = given.and_then(|given| given.read_list(sink)).unwrap_or_default();
    let inputs: Vec<InputRef> = items.into_iter().filter_map(|item| InputRef::read(item, what, sink)).collect();
    let what = if what == "an export" { "the export" } else { "the input" };
    let named = inputs.iter().map(|input| (input.name.as_str(), input.place));
    refuse_duplicate_artifacts(named.clone(), what, sink);
    refuse_twins(named, what, sink);
    inputs
}

/// Refuses two artifacts of one name, which would share one folder.
fn refuse_duplicate_artifacts<'a>(
    names: impl Iterator<Item = (&'a str, ExprSpan)>,
    what: &str,
    sink: &mut DiagnosticSink,
) {
    let mut seen = BTreeMap::new();
    for (name, place) in names {
        if let Some(first) = seen.insert(name, place) {
            let message = format!("{what} `{name}` is defined twice");
            let diagnostic = Diagnostic::new(Code::DuplicateName, &sink.source, place, message);
            sink.push(diagnostic.with_label("again here").with_related(first, "first here"));
        }
    }
}

fn read_artifact_name(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<ArtifactName> {
    let text = given.read_text(sink)?;
    parse_folder_name(text.value, text.span, RESERVED_ARTIFACTS, |text| ArtifactName::new(text), sink)
}

const INPUT_FIELDS: &[&str] = &["from", "artifact", "as"];

impl InputRef {
    fn read(given: FieldValue<'_>, what: &'static str, sink: &mut DiagnosticSink) -> Option<InputRef> {
        let mut fields = FieldReader::from_node(given.node, what, INPUT_FIELDS, sink)?;
        let from = fields.required("from", sink);
        let from = from.and_then(|given| given.read_name(|text| StepId::new(text), sink));
        let of = fields.required("artifact", sink).and_then(|given| read_artifact_name(given, sink));
        let name = fields.optional("as").map(|given| read_artifact_name(given, sink));
        fields.finish(sink);
        let of = of?;
        let name = name.unwrap_or_else(|| Some(of.clone()))?;
        Some(InputRef { place: given.node.first_line_span(), from: from?, artifact: of, name })
    }
}

const OUTPUT_FIELDS: &[&str] = &["name", "path", "type"];

pub(super) fn read_outputs<'a>(given: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> Vec<OutputDef<'a>> {
    let items = given.and_then(|given| given.read_list(sink)).unwrap_or_default();
    let mut outputs: Vec<(ExprSpan, ExprSpan, OutputDef<'a>)> = Vec::new();
    let mut places = Vec::new();
    for item in items {
        let Some(mut fields) = FieldReader::from_node(item.node, "an output", OUTPUT_FIELDS, sink) else { continue };
        let named = fields.required("name", sink);
        let name = named.and_then(|given| read_artifact_name(given, sink));
        let found = fields.required("path", sink);
        let path = read_path(found, sink).filter(|path| !refuse_pattern(found, path, sink));
        let kind = read_text(fields.optional("type"), sink);
        fields.finish(sink);
        if let (Some(name), Some(path), Some(named), Some(found)) = (name, path, named, found) {
            places.push(item.node.first_line_span());
            outputs.push((named.span(), found.span(), OutputDef { name, path, kind }));
        }
    }
    let named = outputs.iter().map(|(.., output)| output.name.as_str());
    refuse_duplicate_artifacts(named.zip(places), "the output", sink);
    refuse_twins(outputs.iter().map(|(name, _, output)| (output.name.as_str(), *name)), "the output", sink);
    warn_same_path(&outputs, sink);
    outputs.into_iter().map(|(.., output)| output).collect()
}

/// Refuses a path with a wildcard, which would mean a file of that literal name. Returns true if it was refused.
fn refuse_pattern(given: Option<FieldValue<'_>>, path: &str, sink: &mut DiagnosticSink) -> bool {
    let Some(given) = given.filter(|_| path.contains(['*', '?'])) else { return false };
    let message =
        format!("`path` cannot be `{}`: an output is one file or one folder, not a pattern", shorten_text(path));
    let diagnostic = Diagnostic::new(Code::BadPath, given.node.source(), given.span(), message);
    sink.push(diagnostic.with_hint("name the folder that the files are in, or one output for each file"));
    true
}

/// Warns of two outputs with the same path, which are probably a mistake.
fn warn_same_path(outputs: &[(ExprSpan, ExprSpan, OutputDef<'_>)], sink: &mut DiagnosticSink) {
    let mut seen = BTreeMap::new();
    for (_, span, output) in outputs {
        if let Some((first, at)) = seen.insert(normalize_path(output.path), (&output.name, *span)) {
            let message = format!("`{first}` and `{}` have the same path", output.name);
            let diagnostic = Diagnostic::new(Code::SamePath, &sink.source, *span, message);
            sink.push(diagnostic.with_related(at, "the other is here"));
        }
    }
}
