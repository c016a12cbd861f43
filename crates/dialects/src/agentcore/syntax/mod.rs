//! AgentCore as it is written: its fields, each read and checked by itself. Refuses to know what they mean together.

mod artifact;
mod convergence;
mod step;
mod work;

use std::collections::HashSet;

use skein_core::{expr::Span, ids::IdError, time::Millis};

pub(super) use self::{
    artifact::{InputRef, OutputDef},
    convergence::ConvergenceDef,
    step::{Does, Step},
    work::{Work, WorkerDef},
};
use crate::{
    border::Border,
    code::Code,
    diagnostic::{Diagnostic, Sink},
    duration::Units,
    names::refuse_twins,
    path,
    read::{Fields, Given, Spanned, Unlowered, brief},
    xskein::{Extra, Level, XSkein, check_path},
    yaml::{Node, Scalar},
};

/// A whole source.
#[derive(Debug)]
pub(super) struct Workflow<'a> {
    pub name: Option<Spanned<&'a str>>,
    pub description: Option<&'a str>,
    pub timeout: Option<Millis>,
    pub concurrency: Option<u32>,
    pub context_dir: Option<&'a str>,
    /// None if some step has no name that can be used.
    pub steps: Option<Unlowered<Step<'a>>>,
    pub skein: XSkein,
    pub border: Border<'a>,
}

impl<'a> Workflow<'a> {
    pub fn read(root: Node<'a>, sink: &mut Sink) -> Option<Workflow<'a>> {
        let mut fields = Fields::of(root, "a workflow", sink)?;
        let name = fields.required("name", sink).and_then(|given| given.words(sink));
        read_version(&mut fields, sink);
        let block = fields.optional("x-skein");
        let workflow = Workflow {
            name,
            description: text(fields.optional("description"), sink),
            timeout: length(fields.required("timeout", sink), sink),
            concurrency: count(fields.optional("concurrency"), 1, sink),
            context_dir: fields.optional("context_dir").and_then(|given| read_context_dir(given, sink)),
            skein: read_skein(block, sink),
            border: Border::read(block, sink),
            steps: fields.required("steps", sink).and_then(|given| read_steps(given, sink)),
        };
        fields.finish(sink);
        Some(workflow)
    }
}

/// The version of the language is the text `1`, which is easily written as a number.
fn read_version(fields: &mut Fields<'_>, sink: &mut Sink) {
    let Some(given) = fields.required("version", sink) else { return };
    let version = match given.node.raw() {
        Some("1") if matches!(given.node.scalar(), Some(Scalar::Text(_))) => return,
        // Most likely the only version there is, without its quotes.
        Some("1" | "1.0") => given.wrong("text"),
        _ => {
            let Some(version) = given.text(sink) else { return };
            let message = format!("there is no version `{}` of this format", brief(version.value));
            Diagnostic::new(Code::UnknownWord, given.node.source(), version.span, message)
        }
    };
    sink.push(version.hint("write `version: \"1\"`").fix(given.span(), "\"1\""));
}

/// What an earlier run left in this directory is replaced, so that it cannot be the workspace itself.
fn read_context_dir<'a>(given: Given<'a>, sink: &mut Sink) -> Option<&'a str> {
    let directory = path(Some(given), sink).filter(|directory| !directory.is_empty())?;
    if path::normal(directory).is_empty() {
        let message = format!("`context_dir` cannot be `{directory}`: it is the workspace itself");
        let hint = "name a folder of its own, such as `./context`: each run replaces what is in it";
        sink.push(Diagnostic::new(Code::BadPath, given.node.source(), given.node.mark(), message).hint(hint));
        return None;
    }
    Some(directory)
}

fn read_steps<'a>(given: Given<'a>, sink: &mut Sink) -> Option<Unlowered<Step<'a>>> {
    let Some(entries) = given.node.fields() else {
        let diagnostic = given.wrong("a mapping of steps by name");
        sink.push(match given.node.items() {
            Some(_) => {
                diagnostic.hint("write the name of each step as a key: `build:`, with its fields below")
            }
            None => diagnostic,
        });
        return None;
    };
    if entries.len() == 0 {
        let message = "a workflow needs at least one step";
        sink.push(Diagnostic::new(Code::NoSteps, given.node.source(), given.node.mark(), message));
        return None;
    }
    refuse_twins(entries.clone().map(|field| (field.key, field.key_span)), "the step", sink);
    // A key that is there twice has been reported, and the first counts.
    let mut seen = sink.has_errors().then(HashSet::new);
    let mut steps = Vec::with_capacity(entries.len());
    let mut all = true;
    for field in entries.filter(|field| seen.as_mut().is_none_or(|seen| seen.insert(field.key))) {
        let step = Step::read(field, sink);
        all &= step.is_some();
        steps.extend(step.map(Box::new));
    }
    all.then_some(steps)
}

fn read_skein(given: Option<Given<'_>>, sink: &mut Sink) -> XSkein {
    let extra = Extra { own: Border::FIELDS, ..Extra::default() };
    given.map_or_else(XSkein::default, |given| XSkein::read(given, Level::Workflow, extra, sink))
}

fn text<'a>(given: Option<Given<'a>>, sink: &mut Sink) -> Option<&'a str> {
    given.and_then(|given| given.text(sink)).map(|text| text.value)
}

fn length(given: Option<Given<'_>>, sink: &mut Sink) -> Option<Millis> {
    given.and_then(|given| given.duration(Units::UpToHours, sink)).map(|length| length.value)
}

fn count(given: Option<Given<'_>>, least: u32, sink: &mut Sink) -> Option<u32> {
    given.and_then(|given| given.whole(least..=u32::MAX, sink)).map(|count| count.value)
}

/// A path of the workspace.
fn path<'a>(given: Option<Given<'a>>, sink: &mut Sink) -> Option<&'a str> {
    let given = given?;
    let path = given.text(sink)?.value;
    check_path(given, path, sink);
    Some(path)
}

/// A name that becomes a folder. Reports one that cannot be a name, or that is kept for other things.
fn checked_name<T>(
    text: &str,
    span: Span,
    reserved: &[&str],
    make: impl FnOnce(&str) -> Result<T, IdError>,
    sink: &mut Sink,
) -> Option<T> {
    let source = sink.source.clone();
    // On some file systems a name is the same in capitals.
    let owner = match path::control(text) {
        _ if reserved.iter().any(|name| name.eq_ignore_ascii_case(text)) => {
            Some("files of the context directory".to_owned())
        }
        Some(of) => Some(format!("{of}'s own files")),
        None => None,
    };
    if let Some(owner) = owner {
        let message = format!("the name `{text}` is kept for {owner}");
        sink.push(Diagnostic::new(Code::ReservedName, &source, span, message).hint("choose another name"));
        return None;
    }
    match make(text) {
        Ok(name) => Some(name),
        Err(why) => {
            let message = format!("`{}` cannot be a name: {why}", brief(text));
            sink.push(Diagnostic::new(Code::BadName, &source, span, message));
            None
        }
    }
}
