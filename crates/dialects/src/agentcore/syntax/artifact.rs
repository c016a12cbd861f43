//! The artifacts that steps pass to one another.

use std::collections::BTreeMap;

use skein_core::{
    expr::ExprSpan,
    ids::{ArtifactName, StepId},
};

use super::{parse_folder_name, read_path, read_text};
use crate::{
    agentcore::defaults::RESERVED_ARTIFACTS,
    code::Code,
    diagnostic::{Diagnostic, DiagnosticSink},
    fields::{FieldReader, FieldValue, Spanned, shorten_text},
    names::refuse_twins,
    workspace_path::normalize_path,
};

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
    let inputs: Vec<InputRef> =
        items.into_iter().filter_map(|item| InputRef::read(item, what, sink)).collect();
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

impl InputRef {
    fn read(given: FieldValue<'_>, what: &'static str, sink: &mut DiagnosticSink) -> Option<InputRef> {
        let mut fields = FieldReader::from_node(given.node, what, sink)?;
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

pub(super) fn read_outputs<'a>(
    given: Option<FieldValue<'a>>,
    sink: &mut DiagnosticSink,
) -> Vec<OutputDef<'a>> {
    let items = given.and_then(|given| given.read_list(sink)).unwrap_or_default();
    let mut outputs: Vec<(ExprSpan, ExprSpan, OutputDef<'a>)> = Vec::new();
    let mut places = Vec::new();
    for item in items {
        let Some(mut fields) = FieldReader::from_node(item.node, "an output", sink) else { continue };
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
    let message = format!(
        "`path` cannot be `{}`: an output is one file or one folder, not a pattern",
        shorten_text(path)
    );
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
