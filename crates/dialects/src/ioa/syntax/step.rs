//! Steps and their compensations.

use skein_core::{ids::StepId, time::Millis};

use super::{
    super::defaults::{IoaOnFailure, ON_FAILURE},
    read_duration,
    retry::IoaRetryPolicy,
};
use crate::{
    call_contract::{CALL, CallContract, read_call},
    common::read_dependencies,
    diagnostic::DiagnosticSink,
    extension_block::{ExtraFields, StepExtensionBlock},
    fields::{FieldReader, FieldValue, Spanned},
    yaml::YamlNode,
};

#[derive(Debug)]
pub(in crate::ioa) struct IoaStep<'a> {
    pub id: Spanned<StepId>,
    pub node: YamlNode<'a>,
    pub agent: Option<Spanned<&'a str>>,
    /// The task of the agent, or the question to a person.
    pub action: Option<Spanned<&'a str>>,
    pub depends_on: Vec<Spanned<StepId>>,
    pub timeout: Option<Millis>,
    pub retry: Option<Box<IoaRetryPolicy>>,
    pub on_failure: Option<Spanned<IoaOnFailure>>,
    pub skein: StepExtensionBlock,
    pub border: CallContract<'a>,
    /// The workflow that it calls instead of running the agent.
    pub call: Option<FieldValue<'a>>,
}

impl<'a> IoaStep<'a> {
    pub fn read(node: YamlNode<'a>, sink: &mut DiagnosticSink) -> Option<IoaStep<'a>> {
        let mut fields = FieldReader::from_node(node, "a step", sink)?;
        let id = fields.required("name", sink).and_then(|given| read_step_id(given, sink));
        let agent = fields.required("agent", sink).and_then(|given| given.read_non_empty_text(sink));
        let action = fields.required("action", sink).and_then(|given| given.read_non_empty_text(sink));
        let depends_on = read_dependencies(fields.optional("dependsOn"), sink);
        let timeout = read_duration(fields.optional("timeout"), sink);
        let retry =
            fields.optional("retryPolicy").and_then(|given| IoaRetryPolicy::read(given, sink)).map(Box::new);
        let on_failure = fields.optional("onFailure").and_then(|given| given.read_one_of(ON_FAILURE, sink));
        let block = fields.optional("x-skein");
        let extra = ExtraFields {
            gate: true,
            quorum: true,
            own: &["input", "output", CALL],
            ..ExtraFields::default()
        };
        let skein = StepExtensionBlock::read(block, extra, sink);
        fields.finish_open(sink);
        let (border, call) = (CallContract::read(block, sink), read_call(block, sink));
        Some(IoaStep {
            id: id?,
            node,
            agent,
            action,
            depends_on,
            timeout,
            retry,
            on_failure,
            skein,
            border,
            call,
        })
    }
}

fn read_step_id(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<Spanned<StepId>> {
    given.read_name(|text| StepId::new(text), sink)
}

/// One entry of `compensation`.
#[derive(Debug)]
pub(in crate::ioa) struct IoaCompensation<'a> {
    pub step: Spanned<StepId>,
    pub action: Option<Spanned<&'a str>>,
    /// None: the agent of the step.
    pub agent: Option<Spanned<&'a str>>,
}

impl<'a> IoaCompensation<'a> {
    pub fn read(node: YamlNode<'a>, sink: &mut DiagnosticSink) -> Option<IoaCompensation<'a>> {
        let mut fields = FieldReader::from_node(node, "a compensation", sink)?;
        let step = fields.required("step", sink).and_then(|given| read_step_id(given, sink));
        let action = fields.required("action", sink).and_then(|given| given.read_non_empty_text(sink));
        let agent = fields.optional("agent").and_then(|given| given.read_non_empty_text(sink));
        fields.finish_open(sink);
        Some(IoaCompensation { step: step?, action, agent })
    }
}
