//! Hooks: actions beside a run when it starts, succeeds or fails.

use skein_core::ir::HookTiming;

use super::read_plain_text;
use crate::{
    code::Code,
    diagnostic::{Diagnostic, DiagnosticSink},
    fields::{FieldReader, FieldValue},
    swdl::defaults::HOOKS,
};

/// The actions at one of those times.
#[derive(Debug)]
pub(in crate::swdl) struct HookDef<'a> {
    pub when: HookTiming,
    pub notify: Option<NotifyDef<'a>>,
    pub run: Option<FieldValue<'a>>,
}

#[derive(Debug)]
pub(in crate::swdl) struct NotifyDef<'a> {
    pub channel: &'a str,
    pub message: Option<FieldValue<'a>>,
}

impl<'a> HookDef<'a> {
    pub fn read_all(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Vec<HookDef<'a>> {
        let Some(mut fields) = FieldReader::from_node(given.node, "`hooks`", sink) else { return Vec::new() };
        let mut hooks = Vec::new();
        for (name, when) in HOOKS {
            let given = fields.optional(name);
            hooks.extend(given.and_then(|given| HookDef::read(given, *when, sink)));
        }
        fields.finish(sink);
        hooks
    }

    fn read(given: FieldValue<'a>, when: HookTiming, sink: &mut DiagnosticSink) -> Option<HookDef<'a>> {
        let mut fields = FieldReader::from_node(given.node, "a hook", sink)?;
        let (notify, run) = (fields.optional("notify"), fields.optional("run"));
        fields.finish(sink);
        let hook = HookDef {
            when,
            notify: notify.and_then(|given| NotifyDef::read(given, sink)),
            run: run.filter(|given| given.read_non_empty_text(sink).is_some()),
        };
        if notify.is_none() && run.is_none() {
            let message = format!("`{}` does nothing", given.name);
            let diagnostic =
                Diagnostic::new(Code::NoValue, given.node.source(), given.node.first_line_span(), message);
            sink.push(diagnostic.with_hint("give it `notify`, `run` or both"));
        }
        Some(hook)
    }
}

impl<'a> NotifyDef<'a> {
    /// Reads a channel, or a channel and a message.
    fn read(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<NotifyDef<'a>> {
        if given.node.fields().is_none() {
            return Some(NotifyDef { channel: read_plain_text(Some(given), sink)?, message: None });
        }
        let mut fields = FieldReader::from_node(given.node, "`notify`", sink)?;
        let channel = read_plain_text(fields.required("channel", sink), sink);
        let message = fields.optional("message").filter(|given| given.read_non_empty_text(sink).is_some());
        fields.finish(sink);
        Some(NotifyDef { channel: channel?, message })
    }
}
