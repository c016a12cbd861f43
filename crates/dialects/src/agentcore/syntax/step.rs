//! One step: the fields of every step, and its worker or the workflow that it calls.

use skein_core::{ids::StepId, limits, time::Millis};

use super::{AgentCoreWork, InputRef, artifact, parse_folder_name, read_duration, read_text};
use crate::{
    agentcore::defaults::{AgentCoreOnFailure, ON_FAILURE, RESERVED_STEPS},
    call_contract::CallContract,
    code::Code,
    common::read_dependencies,
    diagnostic::{Diagnostic, DiagnosticSink},
    extension_block::{ExtraFields, StepExtensionBlock},
    fields::{FieldReader, FieldValue, Spanned},
    yaml::YamlField,
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

impl<'a> AgentCoreStep<'a> {
    pub fn read(field: YamlField<'a>, sink: &mut DiagnosticSink) -> Option<AgentCoreStep<'a>> {
        let id = parse_folder_name(field.key, field.key_span, RESERVED_STEPS, |text| StepId::new(text), sink);
        let mut fields = FieldReader::from_field(field, "a step", sink)?;
        let description = read_text(fields.optional("description"), sink);
        let does = AgentCoreStepKind::read(&mut fields, sink);
        let depends_on = read_dependencies(fields.optional("depends_on"), sink);
        let timeout = read_duration(fields.optional("timeout"), sink);
        let most = limits::ATTEMPTS - 1;
        let max_retries =
            fields.optional("max_retries").and_then(|given| given.read_whole_number(0..=most, sink));
        let on_failure = fields.optional("on_failure").and_then(|given| given.read_one_of(ON_FAILURE, sink));
        let block = fields.optional("x-skein");
        let extra = ExtraFields { own: CallContract::FIELDS, ..ExtraFields::default() };
        let skein = StepExtensionBlock::read(block, extra, sink);
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

impl<'a> AgentCoreStepKind<'a> {
    fn read(fields: &mut FieldReader<'a>, sink: &mut DiagnosticSink) -> AgentCoreStepKind<'a> {
        let given = fields.optional("workflow");
        let exports = fields.optional("exports");
        let Some(workflow) = fields.field("workflow") else {
            if let Some(exports) = fields.field("exports") {
                let message = "a step with a worker cannot have `exports`";
                let hint = "declare the files of its worker as `outputs`; `exports` passes on artifacts of a called `workflow`";
                let source = exports.value.source();
                sink.push(
                    Diagnostic::new(Code::FieldsClash, source, exports.key_span, message).with_hint(hint),
                );
            }
            return AgentCoreStepKind::Work(Box::new(AgentCoreWork::read(fields, sink)));
        };
        let exports = artifact::read_inputs(exports, "an export", sink);
        for name in OF_WORK {
            if let Some(field) = fields.field(name) {
                fields.optional(name);
                let message = format!("a step that calls a workflow cannot have `{name}`");
                let diagnostic =
                    Diagnostic::new(Code::FieldsClash, field.value.source(), field.key_span, message);
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
