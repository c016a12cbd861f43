//! What a worker is asked to do, and how it is checked that it is done.

use skein_core::{ir::Capability, limits, time::Millis};

use super::{ConvergenceDef, InputRef, OutputDef, artifact, count, length, path};
use crate::{
    agentcore::defaults::{CAPABILITIES, ON_EXHAUSTED, WorkerKind, workers},
    code::Code,
    common::warn_twice,
    diagnostic::{Diagnostic, Sink},
    path::{PathError, below},
    read::{Fields, Given, Spanned},
};

#[derive(Debug)]
pub(in crate::agentcore) struct Work<'a> {
    pub worker: WorkerDef<'a>,
    pub workspace: Option<&'a str>,
    pub max_steps: Option<u32>,
    pub max_command_time: Option<Millis>,
    pub inputs: Vec<InputRef>,
    pub outputs: Vec<OutputDef<'a>>,
    pub check: Option<Box<CheckDef<'a>>>,
    pub max_iterations: Option<Spanned<u32>>,
    pub incomplete_is_an_end: bool,
    pub convergence: Option<Box<ConvergenceDef<'a>>>,
}

#[derive(Debug)]
pub(in crate::agentcore) struct WorkerDef<'a> {
    pub kind: Option<WorkerKind>,
    pub instructions: Option<Given<'a>>,
    pub capabilities: Vec<Capability>,
}

#[derive(Debug)]
pub(in crate::agentcore) struct CheckDef<'a> {
    pub worker: WorkerDef<'a>,
    pub timeout: Option<Millis>,
    pub decision_file: Option<&'a str>,
}

impl<'a> Work<'a> {
    pub(super) fn read(fields: &mut Fields<'a>, sink: &mut Sink) -> Work<'a> {
        let exhausted = |given: Given<'_>, sink: &mut Sink| given.one_of(ON_EXHAUSTED, sink);
        Work {
            worker: WorkerDef::read(fields, sink),
            workspace: fields.optional("workspace").and_then(|given| read_workspace(given, sink)),
            max_steps: count(fields.optional("max_steps"), 1, sink),
            max_command_time: length(fields.optional("max_command_time"), sink),
            inputs: artifact::read_inputs(fields.optional("inputs"), "an input", sink),
            outputs: artifact::read_outputs(fields.optional("outputs"), sink),
            check: fields
                .optional("completion_check")
                .and_then(|given| CheckDef::read(given, sink))
                .map(Box::new),
            max_iterations: fields
                .optional("max_iterations")
                .and_then(|given| given.whole(1..=limits::ITERATIONS, sink)),
            incomplete_is_an_end: fields
                .optional("on_iterations_exhausted")
                .and_then(|given| exhausted(given, sink))
                .is_some_and(|word| word.value),
            convergence: fields
                .optional("convergence")
                .and_then(|given| ConvergenceDef::read(given, sink))
                .map(Box::new),
        }
    }
}

impl<'a> WorkerDef<'a> {
    fn read(fields: &mut Fields<'a>, sink: &mut Sink) -> WorkerDef<'a> {
        let kind = fields.required("worker", sink).and_then(|given| given.one_of(&workers(), sink));
        let instructions = fields.required("instructions", sink);
        let instructions = instructions.filter(|given| given.words(sink).is_some());
        let capabilities = fields.required("capabilities", sink).map(|given| read_capabilities(given, sink));
        let kind = kind.map(|kind| kind.value);
        WorkerDef { kind, instructions, capabilities: capabilities.unwrap_or_default() }
    }
}

fn read_capabilities(given: Given<'_>, sink: &mut Sink) -> Vec<Capability> {
    let items = given.list_of_words(sink);
    if given.node.items().is_some_and(|items| items.len() == 0) {
        let message = "`capabilities` names nothing that the worker may do";
        let hint = "a worker that only reads has `[READ]`";
        sink.push(Diagnostic::new(Code::NoValue, given.node.source(), given.node.mark(), message).hint(hint));
    }
    let words = items.filter_map(|item| item.one_of(CAPABILITIES, sink));
    let words: Vec<_> = words.map(|word| (word.span, word.value)).collect();
    warn_twice(&words, "capabilities", sink);
    let mut capabilities: Vec<Capability> = words.into_iter().map(|(_, word)| word).collect();
    capabilities.sort_unstable();
    capabilities.dedup();
    capabilities
}

/// A workspace may lie beside the project; whether it may be used is for whoever runs it to say.
fn read_workspace<'a>(given: Given<'a>, sink: &mut Sink) -> Option<&'a str> {
    let path = given.text(sink)?.value;
    let at = |code, message: String| Diagnostic::new(code, given.node.source(), given.node.mark(), message);
    match below(path) {
        Ok(()) => Some(path),
        Err(PathError::Upwards) => {
            let message = format!("`{path}` is outside of the workspace");
            let hint = format!("a run must be allowed to use it: `--allow-root {path}`");
            sink.push(at(Code::OutsideWorkspace, message).hint(hint));
            Some(path)
        }
        Err(PathError::Empty) => {
            given.empty(sink);
            None
        }
        Err(error) => {
            let message = format!("`workspace` cannot be `{path}`: {}", error.why());
            let hint = "write a path that starts in the run's workspace, such as `.` or `../other`";
            sink.push(at(Code::BadPath, message).hint(hint));
            None
        }
    }
}

impl<'a> CheckDef<'a> {
    fn read(given: Given<'a>, sink: &mut Sink) -> Option<CheckDef<'a>> {
        let mut fields = Fields::of(given.node, "a completion check", sink)?;
        let check = CheckDef {
            worker: WorkerDef::read(&mut fields, sink),
            timeout: length(fields.optional("timeout"), sink),
            decision_file: path(fields.optional("decision_file"), sink),
        };
        fields.finish(sink);
        Some(check)
    }
}
