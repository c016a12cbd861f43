//! AgentCore's syntax: reads and checks each field by itself. Does not know their meaning together.

mod artifact;
mod convergence;
mod step;
mod work;

use std::collections::HashSet;

use skein_core::{expr::ExprSpan, ids::IdError, time::Millis};

pub(super) use self::{
    artifact::{InputRef, OutputDef},
    convergence::ConvergenceDef,
    step::{AgentCoreStep, AgentCoreStepKind},
    work::{AgentCoreWork, WorkerDef},
};
use crate::{
    call_contract::CallContract,
    code::Code,
    diagnostic::{Diagnostic, DiagnosticSink},
    duration::DurationUnits,
    extension_block::{ExtensionBlock, ExtensionLevel, ExtraFields, check_path},
    fields::{FieldReader, FieldValue, Spanned, UnloweredSteps, shorten_text},
    names::refuse_twins,
    workspace_path,
    yaml::{YamlNode, YamlScalar},
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

impl<'a> AgentCoreWorkflow<'a> {
    pub fn read(root: YamlNode<'a>, sink: &mut DiagnosticSink) -> Option<AgentCoreWorkflow<'a>> {
        let mut fields = FieldReader::from_node(root, "a workflow", sink)?;
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
        sink.push(
            Diagnostic::new(Code::BadPath, given.node.source(), given.node.first_line_span(), message)
                .with_hint(hint),
        );
        return None;
    }
    Some(directory)
}

fn read_steps<'a>(
    given: FieldValue<'a>,
    sink: &mut DiagnosticSink,
) -> Option<UnloweredSteps<AgentCoreStep<'a>>> {
    let Some(entries) = given.node.fields() else {
        let diagnostic = given.diagnose_type("a mapping of steps by name");
        sink.push(match given.node.items() {
            Some(_) => {
                diagnostic.with_hint("write the name of each step as a key: `build:`, with its fields below")
            }
            None => diagnostic,
        });
        return None;
    };
    if entries.len() == 0 {
        let message = "a workflow needs at least one step";
        sink.push(Diagnostic::new(Code::NoSteps, given.node.source(), given.node.first_line_span(), message));
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
    let extra = ExtraFields { own: CallContract::FIELDS, ..ExtraFields::default() };
    given.map_or_else(ExtensionBlock::default, |given| {
        ExtensionBlock::read(given, ExtensionLevel::Workflow, extra, sink)
    })
}

fn read_text<'a>(given: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    given.and_then(|given| given.read_text(sink)).map(|text| text.value)
}

fn read_duration(given: Option<FieldValue<'_>>, sink: &mut DiagnosticSink) -> Option<Millis> {
    given.and_then(|given| given.read_duration(DurationUnits::UpToHours, sink)).map(|length| length.value)
}

fn read_count(given: Option<FieldValue<'_>>, least: u32, sink: &mut DiagnosticSink) -> Option<u32> {
    given.and_then(|given| given.read_whole_number(least..=u32::MAX, sink)).map(|count| count.value)
}

/// Reads a path in the workspace.
fn read_path<'a>(given: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    let given = given?;
    let path = given.read_text(sink)?.value;
    check_path(given, path, sink);
    Some(path)
}

/// Parses a name that becomes a folder. Reports a name that is invalid or reserved.
fn parse_folder_name<T>(
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
        sink.push(
            Diagnostic::new(Code::ReservedName, &source, span, message).with_hint("choose another name"),
        );
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
