//! Lowers hooks. Their commands are split before their expressions are parsed.

use std::collections::BTreeMap;

use skein_core::{
    expr::{ExprSpan, swdl::SwdlExprScope},
    ir::{HookAction, WorkflowHook},
};

use super::expressions::SwdlExpressions;
use crate::{
    code::Code,
    diagnostic::Diagnostic,
    fields::FieldValue,
    swdl::{
        command::{CommandSplitError, split_command},
        syntax::HookDef,
    },
};

/// The place of each field of a hook in the plan: the node, and the offset in that node's text.
pub(super) type HookLocations = BTreeMap<String, (u32, Option<u32>)>;

pub(super) fn lower_hooks(
    source: &[HookDef<'_>],
    expressions: &mut SwdlExpressions<'_, '_>,
) -> (Vec<WorkflowHook>, HookLocations) {
    let mut hooks = Vec::new();
    let mut parts = HookLocations::new();
    for hook in source {
        if let Some(notify) = &hook.notify {
            let field = format!("hooks[{}].message", hooks.len());
            parts.extend(notify.message.map(|given| (field, (given.node.number(), Some(0)))));
            let message =
                notify.message.and_then(|given| expressions.lower_text(given.node, SwdlExprScope::Stage));
            let action = HookAction::Notify { channel: notify.channel.to_owned(), message };
            hooks.push(WorkflowHook { when: hook.when, action });
        }
        if let Some(given) = hook.run {
            let place = format!("hooks[{}].arguments", hooks.len());
            let action = lower_command(given, &place, expressions, &mut parts);
            hooks.extend(action.map(|action| WorkflowHook { when: hook.when, action }));
        }
    }
    (hooks, parts)
}

fn lower_command(
    given: FieldValue<'_>,
    field: &str,
    expressions: &mut SwdlExpressions<'_, '_>,
    parts: &mut HookLocations,
) -> Option<HookAction> {
    let words = match split_command(given.node.raw_text().unwrap_or_default()) {
        Ok(words) => words,
        Err((error, span)) => {
            expressions.lowering.push(diagnose_command(given, error, span));
            return None;
        }
    };
    let (program, rest) = words.split_first()?;
    let mut arguments = Vec::new();
    for (i, word) in rest.iter().enumerate() {
        let start = word.start.and_then(|start| u32::try_from(start).ok());
        parts.insert(format!("{field}[{i}]"), (given.node.number(), start));
        arguments.push(expressions.lower_part(given.node, &word.text, word.start, word.span)?);
    }
    Some(HookAction::Run { program: program.text.clone(), arguments })
}

fn diagnose_command(given: FieldValue<'_>, error: CommandSplitError, span: ExprSpan) -> Diagnostic {
    let line = given.node.raw_text().unwrap_or_default();
    let part = line.get(span.start as usize..span.end as usize).unwrap_or_default();
    let (code, message, hint) = match error {
        CommandSplitError::Empty => {
            (Code::BadCommand, format!("`{}` names no program", given.name), "start with a program")
        }
        CommandSplitError::Unclosed => (
            Code::BadCommand,
            format!("`{part}` is never closed"),
            "close it, or write it between other quotes",
        ),
        CommandSplitError::Shell => (
            Code::BadCommand,
            format!("`{part}` is shell syntax, and no shell is used"),
            "put it in single quotes to pass it literally, or put the commands into a script and run that",
        ),
        CommandSplitError::Program => (
            Code::ExpressionAsProgram,
            "an expression cannot be the program".to_owned(),
            "write the program out; its arguments may have expressions",
        ),
        CommandSplitError::Script => (
            Code::ExpressionAsProgram,
            "a shell would run the value of this expression".to_owned(),
            "pass it as a separate argument: `sh -c 'echo \"$1\"' hook ${{ … }}`",
        ),
    };
    Diagnostic::new(code, given.node.source(), given.node.locate_part(span), message).with_hint(hint)
}
