//! AgentCore as it is written: its fields, each read and checked by itself. Refuses to know what they mean together.

use std::collections::BTreeSet;

use skein_core::{
    expr::Span,
    ids::{ArtifactName, StepId},
    ir::Capability,
    limits,
    time::Millis,
};

use super::defaults::{
    CAPABILITIES, ON_EXHAUSTED, ON_FAILURE, OnFailure, RESERVED_ARTIFACTS, RESERVED_STEPS, WORKERS,
    WorkerKind,
};
use crate::{
    code::Code,
    diagnostic::{Diagnostic, Sink},
    duration::Units,
    names::refuse_twins,
    read::{Fields, Given, Spanned},
    xskein::{Extra, Level, XSkein, check_path},
    yaml::{Field, Node},
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
    pub steps: Option<Vec<Step<'a>>>,
    pub skein: XSkein,
}

#[derive(Debug)]
pub(super) struct Step<'a> {
    pub id: StepId,
    pub field: Field<'a>,
    pub description: Option<&'a str>,
    pub does: Does<'a>,
    pub depends_on: Vec<Spanned<StepId>>,
    pub timeout: Option<Millis>,
    pub max_retries: u32,
    pub on_failure: OnFailure,
    pub skein: XSkein,
}

/// A step is done by a worker or by another workflow.
#[derive(Debug)]
pub(super) enum Does<'a> {
    Work(Box<Work<'a>>),
    Call {
        workflow: Option<Given<'a>>,
        exports: Vec<InputRef>,
    },
    /// It says neither, or both, which has been reported.
    Unclear,
}

#[derive(Debug)]
pub(super) struct Work<'a> {
    pub worker: WorkerDef<'a>,
    pub workspace: Option<&'a str>,
    pub max_steps: Option<u32>,
    pub max_command_time: Option<Millis>,
    pub inputs: Vec<InputRef>,
    pub outputs: Vec<OutputDef<'a>>,
    pub check: Option<CheckDef<'a>>,
    pub max_iterations: Option<Spanned<u32>>,
    pub incomplete_is_an_end: bool,
    pub convergence: Option<ConvergenceDef<'a>>,
}

#[derive(Debug)]
pub(super) struct WorkerDef<'a> {
    pub kind: Option<WorkerKind>,
    pub instructions: Option<Given<'a>>,
    pub capabilities: Vec<Capability>,
}

#[derive(Debug)]
pub(super) struct CheckDef<'a> {
    pub worker: WorkerDef<'a>,
    pub timeout: Option<Millis>,
    pub decision_file: Option<&'a str>,
}

#[derive(Debug)]
pub(super) struct ConvergenceDef<'a> {
    pub enabled: bool,
    pub stall_threshold: Option<u32>,
    pub max_stage: Option<u32>,
    pub fail_on_max_stage: Option<bool>,
    pub stages: Vec<(Spanned<u32>, &'a str)>,
    pub allowed_paths: Vec<String>,
    pub ignored_paths: Vec<String>,
    pub diff_base_ref: Option<&'a str>,
    pub diff_base_ref_file: Option<&'a str>,
    pub max_changed_files: Option<u32>,
}

#[derive(Debug)]
pub(super) struct InputRef {
    pub from: Spanned<StepId>,
    pub artifact: ArtifactName,
    pub name: ArtifactName,
}

#[derive(Debug)]
pub(super) struct OutputDef<'a> {
    pub name: ArtifactName,
    pub path: &'a str,
    pub kind: Option<&'a str>,
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

impl<'a> Workflow<'a> {
    pub fn read(root: Node<'a>, sink: &mut Sink) -> Option<Workflow<'a>> {
        let mut fields = Fields::of(root, "a workflow", sink)?;
        let name = fields.required("name", sink).and_then(|given| given.words(sink));
        read_version(&mut fields, sink);
        let workflow = Workflow {
            name,
            description: text(fields.optional("description"), sink),
            timeout: length(fields.required("timeout", sink), sink),
            concurrency: count(fields.optional("concurrency"), 1, sink),
            context_dir: path(fields.optional("context_dir"), sink),
            skein: fields.optional("x-skein").map_or_else(XSkein::default, |given| {
                XSkein::read(given, Level::Workflow, Extra::default(), sink)
            }),
            steps: fields.required("steps", sink).and_then(|given| read_steps(given, sink)),
        };
        fields.finish(sink);
        Some(workflow)
    }
}

/// The version of the language is the text `1`, which is easily written as a number.
fn read_version(fields: &mut Fields<'_>, sink: &mut Sink) {
    let Some(given) = fields.required("version", sink) else { return };
    if let Some(version) = given.text(sink)
        && version.value != "1"
    {
        let message = format!("there is no version `{}` of this format", version.value);
        let diagnostic = Diagnostic::new(Code::UnknownWord, given.node.source(), version.span, message);
        sink.push(diagnostic.hint("write `version: \"1\"`").fix(version.span, "\"1\""));
    }
}

fn read_steps<'a>(given: Given<'a>, sink: &mut Sink) -> Option<Vec<Step<'a>>> {
    let Some(entries) = given.node.fields() else {
        sink.push(given.wrong("a mapping of steps by name"));
        return None;
    };
    if entries.len() == 0 {
        let message = "a workflow needs at least one step";
        sink.push(Diagnostic::new(Code::NoSteps, given.node.source(), given.node.mark(), message));
        return None;
    }
    refuse_twins(entries.clone().map(|field| (field.key, field.key_span)), "the step", sink);
    // A key that is there twice has been reported, and the first counts.
    let mut seen = BTreeSet::new();
    let first = entries.filter(|field| seen.insert(field.key));
    let steps: Vec<Option<Step<'a>>> = first.map(|field| Step::read(field, sink)).collect();
    steps.into_iter().collect()
}

/// Reports a name that cannot be one, or that the format keeps for itself.
fn checked_name<T>(
    text: &str,
    span: Span,
    reserved: &[&str],
    make: impl FnOnce(&str) -> Result<T, skein_core::ids::IdError>,
    sink: &mut Sink,
) -> Option<T> {
    let source = sink.source.clone();
    if reserved.contains(&text) {
        let message = format!("the name `{text}` is kept for files of the context directory");
        sink.push(Diagnostic::new(Code::ReservedName, &source, span, message).hint("choose another name"));
        return None;
    }
    match make(text) {
        Ok(name) => Some(name),
        Err(why) => {
            let message = format!("`{text}` cannot be a name: {why}");
            sink.push(Diagnostic::new(Code::BadName, &source, span, message));
            None
        }
    }
}

impl<'a> Step<'a> {
    fn read(field: Field<'a>, sink: &mut Sink) -> Option<Step<'a>> {
        let id = checked_name(field.key, field.key_span, RESERVED_STEPS, |text| StepId::new(text), sink);
        let mut fields = Fields::under(field, "a step", sink)?;
        let description = text(fields.optional("description"), sink);
        let does = Does::read(&mut fields, sink);
        let depends_on = names(fields.optional("depends_on"), sink);
        let timeout = length(fields.optional("timeout"), sink);
        let max_retries = count(fields.optional("max_retries"), 0, sink).unwrap_or(0);
        let on_failure = fields.optional("on_failure").and_then(|given| given.one_of(ON_FAILURE, sink));
        let skein = fields
            .optional("x-skein")
            .map_or_else(XSkein::default, |given| XSkein::read(given, Level::Step, Extra::default(), sink));
        fields.finish(sink);
        let on_failure = on_failure.map(|word| word.value).unwrap_or_default();
        Some(Step { id: id?, field, description, does, depends_on, timeout, max_retries, on_failure, skein })
    }
}

fn names(given: Option<Given<'_>>, sink: &mut Sink) -> Vec<Spanned<StepId>> {
    let items = given.and_then(|given| given.list(sink)).unwrap_or_default();
    items.into_iter().filter_map(|item| item.name(|text| StepId::new(text), sink)).collect()
}

/// The fields of a step that only mean something when a worker does it.
const OF_WORK: &[&str] = &[
    "worker",
    "instructions",
    "capabilities",
    "workspace",
    "max_steps",
    "max_command_time",
    "inputs",
    "outputs",
    "completion_check",
    "max_iterations",
    "on_iterations_exhausted",
    "convergence",
];

impl<'a> Does<'a> {
    fn read(fields: &mut Fields<'a>, sink: &mut Sink) -> Does<'a> {
        let Some(workflow) = fields.field("workflow") else {
            return Does::Work(Box::new(Work::read(fields, sink)));
        };
        let given = fields.optional("workflow");
        let exports = read_inputs(fields.optional("exports"), sink);
        for name in OF_WORK {
            if let Some(field) = fields.field(name) {
                fields.optional(name);
                let message = format!("a step that runs another workflow has no `{name}`");
                let diagnostic =
                    Diagnostic::new(Code::FieldsClash, field.value.source(), field.key_span, message);
                sink.push(diagnostic.also(workflow.key_span, "it runs a workflow because of this"));
            }
        }
        if given.is_none() {
            let message = "`workflow` has no value";
            sink.push(Diagnostic::new(Code::NoValue, workflow.value.source(), workflow.key_span, message));
            return Does::Unclear;
        }
        Does::Call { workflow: given, exports }
    }
}

impl<'a> Work<'a> {
    fn read(fields: &mut Fields<'a>, sink: &mut Sink) -> Work<'a> {
        let exhausted = |given: Given<'_>, sink: &mut Sink| given.one_of(ON_EXHAUSTED, sink);
        Work {
            worker: WorkerDef::read(fields, sink),
            workspace: fields.optional("workspace").and_then(|given| read_workspace(given, sink)),
            max_steps: count(fields.optional("max_steps"), 1, sink),
            max_command_time: length(fields.optional("max_command_time"), sink),
            inputs: read_inputs(fields.optional("inputs"), sink),
            outputs: read_outputs(fields.optional("outputs"), sink),
            check: fields.optional("completion_check").and_then(|given| CheckDef::read(given, sink)),
            max_iterations: fields
                .optional("max_iterations")
                .and_then(|given| given.whole(1..=limits::ITERATIONS, sink)),
            incomplete_is_an_end: fields
                .optional("on_iterations_exhausted")
                .and_then(|given| exhausted(given, sink))
                .is_some_and(|word| word.value),
            convergence: fields.optional("convergence").and_then(|given| ConvergenceDef::read(given, sink)),
        }
    }
}

impl<'a> WorkerDef<'a> {
    fn read(fields: &mut Fields<'a>, sink: &mut Sink) -> WorkerDef<'a> {
        let kind = fields.required("worker", sink).and_then(|given| given.one_of(WORKERS, sink));
        let instructions = fields.required("instructions", sink);
        let instructions = instructions.filter(|given| given.words(sink).is_some());
        let capabilities = fields.required("capabilities", sink).map(|given| read_capabilities(given, sink));
        let kind = kind.map(|kind| kind.value);
        WorkerDef { kind, instructions, capabilities: capabilities.unwrap_or_default() }
    }
}

fn read_capabilities(given: Given<'_>, sink: &mut Sink) -> Vec<Capability> {
    let Some(items) = given.list(sink) else { return Vec::new() };
    if items.is_empty() {
        let message = "`capabilities` names nothing that the worker may do";
        let hint = "a worker that only reads has `[READ]`";
        sink.push(Diagnostic::new(Code::NoValue, given.node.source(), given.node.mark(), message).hint(hint));
    }
    let words = items.into_iter().filter_map(|item| item.one_of(CAPABILITIES, sink));
    let mut capabilities: Vec<Capability> = words.map(|word| word.value).collect();
    capabilities.sort_unstable();
    capabilities.dedup();
    capabilities
}

/// A workspace may lie beside the project; whether it may be used is for whoever runs it to say.
fn read_workspace<'a>(given: Given<'a>, sink: &mut Sink) -> Option<&'a str> {
    let path = given.text(sink)?.value;
    if let Err(error) = crate::path::relative(path) {
        let message = format!("`workspace` cannot be `{path}`: {}", error.why());
        let hint = "write a path that starts in the run's workspace, such as `.` or `../other`";
        sink.push(Diagnostic::new(Code::BadPath, given.node.source(), given.node.mark(), message).hint(hint));
        return None;
    }
    if crate::path::below(path).is_err() {
        let message = format!("`{path}` is outside of the workspace");
        let hint = format!("a run must be allowed to use it: `--allow-root {path}`");
        let diagnostic =
            Diagnostic::new(Code::OutsideWorkspace, given.node.source(), given.node.mark(), message);
        sink.push(diagnostic.hint(hint));
    }
    Some(path)
}

fn read_inputs(given: Option<Given<'_>>, sink: &mut Sink) -> Vec<InputRef> {
    let items = given.and_then(|given| given.list(sink)).unwrap_or_default();
    items.into_iter().filter_map(|item| InputRef::read(item, sink)).collect()
}

fn artifact(given: Given<'_>, sink: &mut Sink) -> Option<ArtifactName> {
    let text = given.text(sink)?;
    checked_name(text.value, text.span, RESERVED_ARTIFACTS, |text| ArtifactName::new(text), sink)
}

impl InputRef {
    fn read(given: Given<'_>, sink: &mut Sink) -> Option<InputRef> {
        let mut fields = Fields::of(given.node, "an input", sink)?;
        let from = fields.required("from", sink);
        let from = from.and_then(|given| given.name(|text| StepId::new(text), sink));
        let of = fields.required("artifact", sink).and_then(|given| artifact(given, sink));
        let name = fields.optional("as").and_then(|given| artifact(given, sink));
        fields.finish(sink);
        let of = of?;
        Some(InputRef { from: from?, name: name.unwrap_or_else(|| of.clone()), artifact: of })
    }
}

fn read_outputs<'a>(given: Option<Given<'a>>, sink: &mut Sink) -> Vec<OutputDef<'a>> {
    let items = given.and_then(|given| given.list(sink)).unwrap_or_default();
    let mut outputs: Vec<(Span, OutputDef<'a>)> = Vec::new();
    for item in items {
        let Some(mut fields) = Fields::of(item.node, "an output", sink) else { continue };
        let given = fields.required("name", sink);
        let name = given.and_then(|given| artifact(given, sink));
        let path = path(fields.required("path", sink), sink);
        let kind = text(fields.optional("type"), sink);
        fields.finish(sink);
        if let (Some(name), Some(path), Some(given)) = (name, path, given) {
            outputs.push((given.node.span(), OutputDef { name, path, kind }));
        }
    }
    refuse_twins(outputs.iter().map(|(span, output)| (output.name.as_str(), *span)), "the output", sink);
    outputs.into_iter().map(|(_, output)| output).collect()
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

impl<'a> ConvergenceDef<'a> {
    fn read(given: Given<'a>, sink: &mut Sink) -> Option<ConvergenceDef<'a>> {
        let mut fields = Fields::of(given.node, "`convergence`", sink)?;
        let flag = |given: Option<Given<'_>>, sink: &mut Sink| {
            given.and_then(|given| given.flag(sink)).map(|flag| flag.value)
        };
        let definition = ConvergenceDef {
            enabled: flag(fields.optional("enabled"), sink).unwrap_or(false),
            stall_threshold: count(fields.optional("stall_threshold"), 1, sink),
            max_stage: count(fields.optional("max_stage"), 2, sink),
            fail_on_max_stage: flag(fields.optional("fail_on_max_stage"), sink),
            stages: read_stages(fields.optional("stages"), sink),
            allowed_paths: patterns(fields.optional("allowed_paths"), sink),
            ignored_paths: patterns(fields.optional("ignored_paths"), sink),
            diff_base_ref: text(fields.optional("diff_base_ref"), sink),
            diff_base_ref_file: path(fields.optional("diff_base_ref_file"), sink),
            max_changed_files: count(fields.optional("max_changed_files"), 0, sink),
        };
        fields.finish(sink);
        Some(definition)
    }
}

fn read_stages<'a>(given: Option<Given<'a>>, sink: &mut Sink) -> Vec<(Spanned<u32>, &'a str)> {
    let mut stages = Vec::new();
    for item in given.and_then(|given| given.list(sink)).unwrap_or_default() {
        let Some(mut fields) = Fields::of(item.node, "a stage", sink) else { continue };
        let stage = fields.required("stage", sink).and_then(|given| given.whole(2..=u32::MAX, sink));
        let append = text(fields.optional("append_instructions"), sink);
        fields.finish(sink);
        stages.extend(stage.map(|stage| (stage, append.unwrap_or_default())));
    }
    stages
}

/// Patterns of paths in the workspace.
fn patterns(given: Option<Given<'_>>, sink: &mut Sink) -> Vec<String> {
    let items = given.and_then(|given| given.list(sink)).unwrap_or_default();
    items.into_iter().filter_map(|item| path(Some(item), sink)).map(str::to_owned).collect()
}
