//! Steps, and what takes one back.

use skein_core::{ids::StepId, time::Millis};

use super::{
    super::defaults::{ON_FAILURE, OnFailure},
    length,
    retry::RetryPolicy,
};
use crate::{
    border::{Border, CALL, call},
    common::waits_for,
    diagnostic::Sink,
    read::{Fields, Given, Spanned},
    xskein::{Extra, OwnSkein},
    yaml::Node,
};

#[derive(Debug)]
pub(in crate::ioa) struct Step<'a> {
    pub id: Spanned<StepId>,
    pub node: Node<'a>,
    pub agent: Option<Spanned<&'a str>>,
    /// What the agent is asked to do, or the person.
    pub action: Option<Spanned<&'a str>>,
    pub depends_on: Vec<Spanned<StepId>>,
    pub timeout: Option<Millis>,
    pub retry: Option<Box<RetryPolicy>>,
    pub on_failure: Option<Spanned<OnFailure>>,
    pub skein: OwnSkein,
    pub border: Border<'a>,
    /// The workflow that does it instead of the agent.
    pub call: Option<Given<'a>>,
}

impl<'a> Step<'a> {
    pub fn read(node: Node<'a>, sink: &mut Sink) -> Option<Step<'a>> {
        let mut fields = Fields::of(node, "a step", sink)?;
        let id = fields.required("name", sink).and_then(|given| step_id(given, sink));
        let agent = fields.required("agent", sink).and_then(|given| given.words(sink));
        let action = fields.required("action", sink).and_then(|given| given.words(sink));
        let depends_on = waits_for(fields.optional("dependsOn"), sink);
        let timeout = length(fields.optional("timeout"), sink);
        let retry =
            fields.optional("retryPolicy").and_then(|given| RetryPolicy::read(given, sink)).map(Box::new);
        let on_failure = fields.optional("onFailure").and_then(|given| given.one_of(ON_FAILURE, sink));
        let block = fields.optional("x-skein");
        let extra = Extra { gate: true, quorum: true, own: &["input", "output", CALL], ..Extra::default() };
        let skein = OwnSkein::read(block, extra, sink);
        fields.finish_open(sink);
        let (border, call) = (Border::read(block, sink), call(block, sink));
        Some(Step {
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

fn step_id(given: Given<'_>, sink: &mut Sink) -> Option<Spanned<StepId>> {
    given.name(|text| StepId::new(text), sink)
}

/// One entry of `compensation`.
#[derive(Debug)]
pub(in crate::ioa) struct Compensation<'a> {
    pub step: Spanned<StepId>,
    pub action: Option<Spanned<&'a str>>,
    /// None: the agent that did the step.
    pub agent: Option<Spanned<&'a str>>,
}

impl<'a> Compensation<'a> {
    pub fn read(node: Node<'a>, sink: &mut Sink) -> Option<Compensation<'a>> {
        let mut fields = Fields::of(node, "a compensation", sink)?;
        let step = fields.required("step", sink).and_then(|given| step_id(given, sink));
        let action = fields.required("action", sink).and_then(|given| given.words(sink));
        let agent = fields.optional("agent").and_then(|given| given.words(sink));
        fields.finish_open(sink);
        Some(Compensation { step: step?, action, agent })
    }
}
