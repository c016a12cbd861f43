//! Hooks: what is done beside a run when it starts, succeeds or fails.

use skein_core::ir::HookWhen;

use super::plain;
use crate::{
    code::Code,
    diagnostic::{Diagnostic, Sink},
    read::{Fields, Given},
    swdl::defaults::HOOKS,
};

/// What is done at one of those times.
#[derive(Debug)]
pub(in crate::swdl) struct HookDef<'a> {
    pub when: HookWhen,
    pub notify: Option<Notify<'a>>,
    pub run: Option<Given<'a>>,
}

#[derive(Debug)]
pub(in crate::swdl) struct Notify<'a> {
    pub channel: &'a str,
    pub message: Option<Given<'a>>,
}

impl<'a> HookDef<'a> {
    pub fn all(given: Given<'a>, sink: &mut Sink) -> Vec<HookDef<'a>> {
        let Some(mut fields) = Fields::of(given.node, "`hooks`", sink) else { return Vec::new() };
        let mut hooks = Vec::new();
        for (name, when) in HOOKS {
            let given = fields.optional(name);
            hooks.extend(given.and_then(|given| HookDef::read(given, *when, sink)));
        }
        fields.finish(sink);
        hooks
    }

    fn read(given: Given<'a>, when: HookWhen, sink: &mut Sink) -> Option<HookDef<'a>> {
        let mut fields = Fields::of(given.node, "a hook", sink)?;
        let (notify, run) = (fields.optional("notify"), fields.optional("run"));
        fields.finish(sink);
        let hook = HookDef {
            when,
            notify: notify.and_then(|given| Notify::read(given, sink)),
            run: run.filter(|given| given.words(sink).is_some()),
        };
        if notify.is_none() && run.is_none() {
            let message = format!("`{}` does nothing", given.name);
            let diagnostic = Diagnostic::new(Code::NoValue, given.node.source(), given.node.mark(), message);
            sink.push(diagnostic.hint("give it `notify`, `run` or both"));
        }
        Some(hook)
    }
}

impl<'a> Notify<'a> {
    /// A channel, or a channel and what to say there.
    fn read(given: Given<'a>, sink: &mut Sink) -> Option<Notify<'a>> {
        if given.node.fields().is_none() {
            return Some(Notify { channel: plain(Some(given), sink)?, message: None });
        }
        let mut fields = Fields::of(given.node, "`notify`", sink)?;
        let channel = plain(fields.required("channel", sink), sink);
        let message = fields.optional("message").filter(|given| given.words(sink).is_some());
        fields.finish(sink);
        Some(Notify { channel: channel?, message })
    }
}
