//! One step: what is said of every step, and whether a worker or another workflow does it.

use skein_core::{ids::StepId, limits, time::Millis};

use super::{InputRef, Work, artifact, checked_name, length, text};
use crate::{
    agentcore::defaults::{ON_FAILURE, OnFailure, RESERVED_STEPS},
    border::Border,
    code::Code,
    common::waits_for,
    diagnostic::{Diagnostic, Sink},
    read::{Fields, Given, Spanned},
    xskein::{Extra, OwnSkein},
    yaml::Field,
};

#[derive(Debug)]
pub(in crate::agentcore) struct Step<'a> {
    pub id: StepId,
    pub field: Field<'a>,
    pub description: Option<&'a str>,
    pub does: Does<'a>,
    pub depends_on: Vec<Spanned<StepId>>,
    pub timeout: Option<Millis>,
    pub max_retries: u32,
    pub on_failure: OnFailure,
    pub skein: OwnSkein,
    pub border: Border<'a>,
}

/// A step is done by a worker or by another workflow.
#[derive(Debug)]
pub(in crate::agentcore) enum Does<'a> {
    Work(Box<Work<'a>>),
    Call {
        /// None if it has no value, which has been reported.
        workflow: Option<Given<'a>>,
        exports: Vec<InputRef>,
    },
}

impl<'a> Step<'a> {
    pub fn read(field: Field<'a>, sink: &mut Sink) -> Option<Step<'a>> {
        let id = checked_name(field.key, field.key_span, RESERVED_STEPS, |text| StepId::new(text), sink);
        let mut fields = Fields::under(field, "a step", sink)?;
        let description = text(fields.optional("description"), sink);
        let does = Does::read(&mut fields, sink);
        let depends_on = waits_for(fields.optional("depends_on"), sink);
        let timeout = length(fields.optional("timeout"), sink);
        let most = limits::ATTEMPTS - 1;
        let max_retries = fields.optional("max_retries").and_then(|given| given.whole(0..=most, sink));
        let on_failure = fields.optional("on_failure").and_then(|given| given.one_of(ON_FAILURE, sink));
        let block = fields.optional("x-skein");
        let extra = Extra { own: Border::FIELDS, ..Extra::default() };
        let skein = OwnSkein::read(block, extra, sink);
        let border = Border::read(block, sink);
        fields.finish(sink);
        let on_failure = on_failure.map(|word| word.value).unwrap_or_default();
        let max_retries = max_retries.map_or(0, |count| count.value);
        Some(Step {
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
        let given = fields.optional("workflow");
        let exports = fields.optional("exports");
        let Some(workflow) = fields.field("workflow") else {
            if let Some(exports) = fields.field("exports") {
                let message = "a step that a worker does has no `exports`";
                let hint =
                    "what its worker makes are `outputs`; `exports` hands on what another `workflow` made";
                let source = exports.value.source();
                sink.push(Diagnostic::new(Code::FieldsClash, source, exports.key_span, message).hint(hint));
            }
            return Does::Work(Box::new(Work::read(fields, sink)));
        };
        let exports = artifact::read_inputs(exports, "an export", sink);
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
        }
        Does::Call { workflow: given, exports }
    }
}
