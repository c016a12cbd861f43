//! The syntax of an AgentCore step: its work, its dependencies and its completion check.

use skein_core::{ids::StepId, ir::WorkerCapability, limits, time::Millis};

use crate::{
    agentcore::{
        defaults::{
            AgentCoreOnFailure, AgentCoreWorkerKind, CAPABILITIES, ON_EXHAUSTED, ON_FAILURE, RESERVED_STEPS,
            worker_kinds,
        },
        syntax::{
            InputRef, OutputDef, parse_folder_name, read_count, read_duration, read_inputs, read_outputs, read_path,
            read_text,
        },
    },
    diagnostics::{Code, Diagnostic, DiagnosticSink},
    extensions::{STEP_BLOCK_FIELDS, StepExtensionBlock},
    fields::{
        FieldReader, FieldTable, FieldValue, Spanned, read_dependencies, warn_duplicates,
        workspace_path::{WorkspacePathError, check_path, check_workspace_path},
    },
    lowering::call_contract::CallContract,
    source::yaml::{YamlField, YamlNode},
};

#[derive(Debug)]
pub(in crate::agentcore) struct AgentCoreStep<'a> {
    pub id: StepId,
    pub field: YamlField<'a>,
    pub description: Option<&'a str>,
    pub does: AgentCoreStepKind<'a>,
    pub depends_on: Vec<Spanned<StepId>>,
    pub timeout: Option<Millis>,
    pub max_retries: u32,
    pub on_failure: AgentCoreOnFailure,
    pub skein: StepExtensionBlock,
    pub border: CallContract<'a>,
}

/// The work of a step: a worker or a call of another workflow.
#[derive(Debug)]
pub(in crate::agentcore) enum AgentCoreStepKind<'a> {
    Work(Box<AgentCoreWork<'a>>),
    Call {
        /// None if it has no value; that has been reported.
        workflow: Option<FieldValue<'a>>,
        exports: Vec<InputRef>,
    },
}

const STEP_FIELDS: FieldTable = FieldTable::closed(&["description", "workflow", "exports"])
    .with_more(&[WORK_FIELDS, &["depends_on", "timeout", "max_retries", "on_failure", "x-skein"]]);

impl<'a> AgentCoreStep<'a> {
    pub(crate) fn read(field: YamlField<'a>, sink: &mut DiagnosticSink) -> Option<AgentCoreStep<'a>> {
        let id = parse_folder_name(field.key, field.key_span, RESERVED_STEPS, |text| StepId::new(text), sink);
        let mut fields = FieldReader::from_field(field, "a step", STEP_FIELDS, sink)?;
        let description = read_text(fields.optional("description"), sink);
        let does = AgentCoreStepKind::read(&mut fields, sink);
        let depends_on = read_dependencies(fields.optional("depends_on"), sink);
        let timeout = read_duration(fields.optional("timeout"), sink);
        let most = limits::ATTEMPTS - 1;
        let max_retries = fields.optional("max_retries").and_then(|given| given.read_whole_number(0..=most, sink));
        let on_failure = fields.optional("on_failure").and_then(|given| given.read_one_of(ON_FAILURE, sink));
        let block = fields.optional("x-skein");
        let table = STEP_BLOCK_FIELDS.with_unread(CallContract::FIELDS);
        let skein = StepExtensionBlock::read(block, table, sink);
        let border = CallContract::read(block, sink);
        fields.finish(sink);
        let on_failure = on_failure.map(|word| word.value).unwrap_or_default();
        let max_retries = max_retries.map_or(0, |count| count.value);
        Some(AgentCoreStep {
            id: id?,
            field,
            description,
            does,
            depends_on,
            timeout,
            max_retries,
            on_failure,
            skein,
            border,
        })
    }
}

/// The fields that are only valid in a step with a worker.
const WORK_FIELDS: &[&str] = &[
    "worker", "instructions", "capabilities", "workspace", "max_steps", "max_command_time", "inputs", "outputs",
    "completion_check", "max_iterations", "on_iterations_exhausted", "convergence",
];

impl<'a> AgentCoreStepKind<'a> {
    fn read(fields: &mut FieldReader<'a>, sink: &mut DiagnosticSink) -> AgentCoreStepKind<'a> {
        let given = fields.optional("workflow");
        let exports = fields.optional("exports");
        let Some(workflow) = fields.field("workflow") else {
            if let Some(exports) = fields.field("exports") {
                let message = "a step with a worker cannot have `exports`";
                let hint = "declare the files of its worker as `outputs`; `exports` passes on artifacts of a called `workflow`";
                let source = exports.value.source();
                sink.push(Diagnostic::new(Code::FieldsClash, source, exports.key_span, message).with_hint(hint));
            }
            return AgentCoreStepKind::Work(Box::new(AgentCoreWork::read(fields, sink)));
        };
        let exports = read_inputs(exports, "an export", sink);
        for name in WORK_FIELDS {
            if let Some(field) = fields.field(name) {
                let message = format!("a step that calls a workflow cannot have `{name}`");
                let diagnostic = Diagnostic::new(Code::FieldsClash, field.value.source(), field.key_span, message);
                sink.push(diagnostic.with_related(workflow.key_span, "it calls a workflow because of this"));
            }
        }
        if given.is_none() {
            let message = "`workflow` has no value";
            sink.push(Diagnostic::new(Code::NoValue, workflow.value.source(), workflow.key_span, message));
        }
        AgentCoreStepKind::Call { workflow: given, exports }
    }
}

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
        let exhausted = |given: FieldValue<'_>, sink: &mut DiagnosticSink| given.read_one_of(ON_EXHAUSTED, sink);
        AgentCoreWork {
            worker: WorkerDef::read(fields, sink),
            workspace: fields.optional("workspace").and_then(|given| read_workspace(given, sink)),
            max_steps: read_count(fields.optional("max_steps"), 1, sink),
            max_command_time: read_duration(fields.optional("max_command_time"), sink),
            inputs: read_inputs(fields.optional("inputs"), "an input", sink),
            outputs: read_outputs(fields.optional("outputs"), sink),
            check: fields.optional("completion_check").and_then(|given| CheckDef::read(given, sink)).map(Box::new),
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
        sink.push(given.diagnose(Code::NoValue, message).with_hint(hint));
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
    let at = |code, message: String| given.diagnose(code, message);
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

const CHECK_FIELDS: &[&str] = &["worker", "instructions", "capabilities", "timeout", "decision_file"];

impl<'a> CheckDef<'a> {
    fn read(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<CheckDef<'a>> {
        let mut fields = FieldReader::from_node(given.node, "a completion check", CHECK_FIELDS, sink)?;
        let check = CheckDef {
            worker: WorkerDef::read(&mut fields, sink),
            timeout: read_duration(fields.optional("timeout"), sink),
            decision_file: read_path(fields.optional("decision_file"), sink),
        };
        fields.finish(sink);
        Some(check)
    }
}

#[derive(Debug)]
pub(in crate::agentcore) struct ConvergenceDef<'a> {
    pub node: YamlNode<'a>,
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

const CONVERGENCE_FIELDS: &[&str] = &[
    "enabled", "stall_threshold", "max_stage", "fail_on_max_stage", "stages", "allowed_paths", "ignored_paths",
    "diff_base_ref", "diff_base_ref_file", "max_changed_files",
];

impl<'a> ConvergenceDef<'a> {
    pub(super) fn read(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<ConvergenceDef<'a>> {
        let fields = FieldReader::from_node(given.node, "`convergence`", CONVERGENCE_FIELDS, sink)?;
        let flag = |given: Option<FieldValue<'_>>, sink: &mut DiagnosticSink| {
            given.and_then(|given| given.read_bool(sink)).map(|flag| flag.value)
        };
        let definition = ConvergenceDef {
            node: given.node,
            // An invalid value has already been reported; its author wanted the guard to be enabled.
            enabled: fields.optional("enabled").is_some_and(|given| flag(Some(given), sink).unwrap_or(true)),
            stall_threshold: read_count(fields.optional("stall_threshold"), 1, sink),
            max_stage: read_count(fields.optional("max_stage"), 2, sink),
            fail_on_max_stage: flag(fields.optional("fail_on_max_stage"), sink),
            stages: read_stages(fields.optional("stages"), sink),
            allowed_paths: read_patterns(fields.optional("allowed_paths"), false, sink),
            ignored_paths: read_patterns(fields.optional("ignored_paths"), true, sink),
            diff_base_ref: fields.optional("diff_base_ref").and_then(|given| read_git_ref(given, sink)),
            diff_base_ref_file: read_path(fields.optional("diff_base_ref_file"), sink),
            max_changed_files: read_count(fields.optional("max_changed_files"), 0, sink),
        };
        fields.finish(sink);
        Some(definition)
    }
}

const CONVERGENCE_STAGE_FIELDS: &[&str] = &["stage", "append_instructions"];

fn read_stages<'a>(given: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> Vec<(Spanned<u32>, &'a str)> {
    let mut stages: Vec<(Spanned<u32>, &'a str)> = Vec::new();
    let mut seen = std::collections::BTreeMap::new();
    for item in given.and_then(|given| given.read_list(sink)).unwrap_or_default() {
        let Some(mut fields) = FieldReader::from_node(item.node, "a stage", CONVERGENCE_STAGE_FIELDS, sink) else {
            continue;
        };
        let stage = fields.required("stage", sink).and_then(|given| given.read_whole_number(2..=u32::MAX, sink));
        let append = read_text(fields.optional("append_instructions"), sink);
        fields.finish(sink);
        let Some(stage) = stage else { continue };
        if let Some(first) = seen.insert(stage.value, stage.span) {
            let message = format!("stage {} is defined twice", stage.value);
            let diagnostic = Diagnostic::new(Code::DuplicateName, &sink.source, stage.span, message);
            sink.push(diagnostic.with_related(first, "first here"));
        }
        stages.push((stage, append.unwrap_or_default()));
    }
    stages
}

/// Reads patterns of paths in the workspace. With `control`, they may name files that no worker may change.
fn read_patterns(given: Option<FieldValue<'_>>, control: bool, sink: &mut DiagnosticSink) -> Vec<String> {
    let items = given.and_then(|given| given.read_list(sink)).unwrap_or_default();
    let mut patterns = Vec::new();
    for item in items {
        let Some(text) = item.read_non_empty_text(sink) else { continue };
        match check_workspace_path(text.value) {
            Err(WorkspacePathError::ControlFile(_)) if control => {}
            Ok(()) => {}
            Err(_) => drop(check_path(item, text.value, sink)),
        }
        patterns.push(text.value.to_owned());
    }
    patterns
}

/// Reads the Git revision to compare with: a commit, a branch or a tag. Refuses a text that Git would parse as an
/// option, a range or a reflog entry.
fn read_git_ref<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    let text = given.read_non_empty_text(sink)?.value;
    let refused = |c: char| c.is_whitespace() || c.is_control() || ";|&$<>\"'`\\*?[]{}()!:,".contains(c);
    let why = if text.starts_with('-') {
        "Git would parse it as an option".to_owned()
    } else if text.contains("..") {
        "it is a range, not one commit".to_owned()
    } else if let Some(c) = text.chars().find(|c| refused(*c)) {
        format!("it contains {c:?}")
    } else {
        return Some(text);
    };
    let message = format!("`diff_base_ref` cannot be `{}`: {why}", text.escape_default());
    let hint = "name a commit, a branch or a tag, such as `main` or `HEAD~1`";
    sink.push(given.diagnose(Code::BadName, message).with_hint(hint));
    None
}
