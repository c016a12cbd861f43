//! The work of a worker, and its completion check.

use skein_core::{ir::WorkerCapability, limits, time::Millis};

use super::{ConvergenceDef, InputRef, OutputDef, artifact, read_count, read_duration, read_path};
use crate::{
    agentcore::defaults::{AgentCoreWorkerKind, CAPABILITIES, ON_EXHAUSTED, worker_kinds},
    code::Code,
    common::warn_duplicates,
    diagnostic::{Diagnostic, DiagnosticSink},
    fields::{FieldReader, FieldValue, Spanned},
    workspace_path::{WorkspacePathError, check_workspace_path},
};

#[derive(Debug)]
pub(in crate::agentcore) struct AgentCoreWork<'a> {
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
    pub kind: Option<AgentCoreWorkerKind>,
    pub instructions: Option<FieldValue<'a>>,
    pub capabilities: Vec<WorkerCapability>,
}

#[derive(Debug)]
pub(in crate::agentcore) struct CheckDef<'a> {
    pub worker: WorkerDef<'a>,
    pub timeout: Option<Millis>,
    pub decision_file: Option<&'a str>,
}

impl<'a> AgentCoreWork<'a> {
    pub(super) fn read(fields: &mut FieldReader<'a>, sink: &mut DiagnosticSink) -> AgentCoreWork<'a> {
        let exhausted =
            |given: FieldValue<'_>, sink: &mut DiagnosticSink| given.read_one_of(ON_EXHAUSTED, sink);
        AgentCoreWork {
            worker: WorkerDef::read(fields, sink),
            workspace: fields.optional("workspace").and_then(|given| read_workspace(given, sink)),
            max_steps: read_count(fields.optional("max_steps"), 1, sink),
            max_command_time: read_duration(fields.optional("max_command_time"), sink),
            inputs: artifact::read_inputs(fields.optional("inputs"), "an input", sink),
            outputs: artifact::read_outputs(fields.optional("outputs"), sink),
            check: fields
                .optional("completion_check")
                .and_then(|given| CheckDef::read(given, sink))
                .map(Box::new),
            max_iterations: fields
                .optional("max_iterations")
                .and_then(|given| given.read_whole_number(1..=limits::ITERATIONS, sink)),
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
    fn read(fields: &mut FieldReader<'a>, sink: &mut DiagnosticSink) -> WorkerDef<'a> {
        let kind = fields.required("worker", sink).and_then(|given| given.read_one_of(&worker_kinds(), sink));
        let instructions = fields.required("instructions", sink);
        let instructions = instructions.filter(|given| given.read_non_empty_text(sink).is_some());
        let capabilities = fields.required("capabilities", sink).map(|given| read_capabilities(given, sink));
        let kind = kind.map(|kind| kind.value);
        WorkerDef { kind, instructions, capabilities: capabilities.unwrap_or_default() }
    }
}

fn read_capabilities(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Vec<WorkerCapability> {
    let items = given.read_word_list(sink);
    if given.node.items().is_some_and(|items| items.len() == 0) {
        let message = "`capabilities` is empty: the worker may do nothing";
        let hint = "a worker that only reads has `[READ]`";
        sink.push(
            Diagnostic::new(Code::NoValue, given.node.source(), given.node.first_line_span(), message)
                .with_hint(hint),
        );
    }
    let words = items.filter_map(|item| item.read_one_of(CAPABILITIES, sink));
    let words: Vec<_> = words.map(|word| (word.span, word.value)).collect();
    warn_duplicates(&words, "capabilities", sink);
    let mut capabilities: Vec<WorkerCapability> = words.into_iter().map(|(_, word)| word).collect();
    capabilities.sort_unstable();
    capabilities.dedup();
    capabilities
}

/// Reads a workspace, which may be outside of the project. The host decides if a run may use it.
fn read_workspace<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    let path = given.read_text(sink)?.value;
    let at = |code, message: String| {
        Diagnostic::new(code, given.node.source(), given.node.first_line_span(), message)
    };
    match check_workspace_path(path) {
        Ok(()) => Some(path),
        Err(WorkspacePathError::Upwards) => {
            let message = format!("`{path}` is outside of the workspace");
            let hint = format!("a run must be allowed to use it: `--allow-root {path}`");
            sink.push(at(Code::OutsideWorkspace, message).with_hint(hint));
            Some(path)
        }
        Err(WorkspacePathError::Empty) => {
            given.report_empty(sink);
            None
        }
        Err(error) => {
            let message = format!("`workspace` cannot be `{path}`: {}", error.explain());
            let hint = "write a path that starts in the run's workspace, such as `.` or `../other`";
            sink.push(at(Code::BadPath, message).with_hint(hint));
            None
        }
    }
}

impl<'a> CheckDef<'a> {
    fn read(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<CheckDef<'a>> {
        let mut fields = FieldReader::from_node(given.node, "a completion check", sink)?;
        let check = CheckDef {
            worker: WorkerDef::read(&mut fields, sink),
            timeout: read_duration(fields.optional("timeout"), sink),
            decision_file: read_path(fields.optional("decision_file"), sink),
        };
        fields.finish(sink);
        Some(check)
    }
}
