//! Files that steps hand to one another.

use std::collections::BTreeMap;

use skein_core::{
    expr::Span,
    ids::{ArtifactName, StepId},
};

use super::{checked_name, path, text};
use crate::{
    agentcore::defaults::RESERVED_ARTIFACTS,
    code::Code,
    diagnostic::{Diagnostic, Sink},
    names::refuse_twins,
    path::normal,
    read::{Fields, Given, Spanned, brief},
};

/// What a step takes from an earlier one, or hands on from the workflow that it runs.
#[derive(Debug)]
pub(in crate::agentcore) struct InputRef {
    /// The whole entry.
    pub place: Span,
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

pub(super) fn read_inputs(given: Option<Given<'_>>, what: &'static str, sink: &mut Sink) -> Vec<InputRef> {
    let items = given.and_then(|given| given.list(sink)).unwrap_or_default();
    let inputs: Vec<InputRef> =
        items.into_iter().filter_map(|item| InputRef::read(item, what, sink)).collect();
    let what = if what == "an export" { "the export" } else { "the input" };
    let named = inputs.iter().map(|input| (input.name.as_str(), input.place));
    refuse_twice(named.clone(), what, sink);
    refuse_twins(named, what, sink);
    inputs
}

/// Two of one name would be one folder.
fn refuse_twice<'a>(names: impl Iterator<Item = (&'a str, Span)>, what: &str, sink: &mut Sink) {
    let mut seen = BTreeMap::new();
    for (name, place) in names {
        if let Some(first) = seen.insert(name, place) {
            let message = format!("{what} `{name}` is here twice");
            let diagnostic = Diagnostic::new(Code::DuplicateName, &sink.source, place, message);
            sink.push(diagnostic.label("again here").also(first, "first here"));
        }
    }
}

fn artifact(given: Given<'_>, sink: &mut Sink) -> Option<ArtifactName> {
    let text = given.text(sink)?;
    checked_name(text.value, text.span, RESERVED_ARTIFACTS, |text| ArtifactName::new(text), sink)
}

impl InputRef {
    fn read(given: Given<'_>, what: &'static str, sink: &mut Sink) -> Option<InputRef> {
        let mut fields = Fields::of(given.node, what, sink)?;
        let from = fields.required("from", sink);
        let from = from.and_then(|given| given.name(|text| StepId::new(text), sink));
        let of = fields.required("artifact", sink).and_then(|given| artifact(given, sink));
        let name = fields.optional("as").map(|given| artifact(given, sink));
        fields.finish(sink);
        let of = of?;
        let name = name.unwrap_or_else(|| Some(of.clone()))?;
        Some(InputRef { place: given.node.mark(), from: from?, artifact: of, name })
    }
}

pub(super) fn read_outputs<'a>(given: Option<Given<'a>>, sink: &mut Sink) -> Vec<OutputDef<'a>> {
    let items = given.and_then(|given| given.list(sink)).unwrap_or_default();
    let mut outputs: Vec<(Span, Span, OutputDef<'a>)> = Vec::new();
    let mut places = Vec::new();
    for item in items {
        let Some(mut fields) = Fields::of(item.node, "an output", sink) else { continue };
        let named = fields.required("name", sink);
        let name = named.and_then(|given| artifact(given, sink));
        let found = fields.required("path", sink);
        let path = path(found, sink).filter(|path| !refuse_pattern(found, path, sink));
        let kind = text(fields.optional("type"), sink);
        fields.finish(sink);
        if let (Some(name), Some(path), Some(named), Some(found)) = (name, path, named, found) {
            places.push(item.node.mark());
            outputs.push((named.span(), found.span(), OutputDef { name, path, kind }));
        }
    }
    let named = outputs.iter().map(|(.., output)| output.name.as_str());
    refuse_twice(named.zip(places), "the output", sink);
    refuse_twins(outputs.iter().map(|(name, _, output)| (output.name.as_str(), *name)), "the output", sink);
    warn_same_path(&outputs, sink);
    outputs.into_iter().map(|(.., output)| output).collect()
}

/// Refuses a path with a wildcard, which would mean a file of that very name. Returns whether it did.
fn refuse_pattern(given: Option<Given<'_>>, path: &str, sink: &mut Sink) -> bool {
    let Some(given) = given.filter(|_| path.contains(['*', '?'])) else { return false };
    let message =
        format!("`path` cannot be `{}`: an output is one file or one folder, not a pattern", brief(path));
    let diagnostic = Diagnostic::new(Code::BadPath, given.node.source(), given.span(), message);
    sink.push(diagnostic.hint("name the folder that the files are in, or one output for each file"));
    true
}

/// Two names for one file are most likely a slip.
fn warn_same_path(outputs: &[(Span, Span, OutputDef<'_>)], sink: &mut Sink) {
    let mut seen = BTreeMap::new();
    for (_, span, output) in outputs {
        if let Some((first, at)) = seen.insert(normal(output.path), (&output.name, *span)) {
            let message = format!("`{first}` and `{}` keep the same file", output.name);
            let diagnostic = Diagnostic::new(Code::SamePath, &sink.source, *span, message);
            sink.push(diagnostic.also(at, "the other is here"));
        }
    }
}
