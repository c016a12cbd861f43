//! Hooks: their commands are split before their expressions are read.

use std::collections::BTreeMap;

use skein_core::{
    expr::{Span, swdl::Scope},
    ir::{Hook, HookAction},
};

use super::expressions::Expressions;
use crate::{
    code::Code,
    diagnostic::Diagnostic,
    read::Given,
    swdl::{
        command::{CommandError, split},
        syntax::HookDef,
    },
};

/// Where each of the plan's fields of a hook stands: the node, and where it starts in that node's text.
pub(super) type Parts = BTreeMap<String, (u32, Option<u32>)>;

pub(super) fn lower(source: &[HookDef<'_>], expressions: &mut Expressions<'_, '_>) -> (Vec<Hook>, Parts) {
    let mut hooks = Vec::new();
    let mut parts = Parts::new();
    for hook in source {
        if let Some(notify) = &hook.notify {
            let field = format!("hooks[{}].message", hooks.len());
            parts.extend(notify.message.map(|given| (field, (given.node.number(), Some(0)))));
            let message = notify.message.and_then(|given| expressions.text(given.node, Scope::Stage));
            let action = HookAction::Notify { channel: notify.channel.to_owned(), message };
            hooks.push(Hook { when: hook.when, action });
        }
        if let Some(given) = hook.run {
            let place = format!("hooks[{}].arguments", hooks.len());
            let action = command(given, &place, expressions, &mut parts);
            hooks.extend(action.map(|action| Hook { when: hook.when, action }));
        }
    }
    (hooks, parts)
}

fn command(
    given: Given<'_>,
    field: &str,
    expressions: &mut Expressions<'_, '_>,
    parts: &mut Parts,
) -> Option<HookAction> {
    let words = match split(given.node.raw().unwrap_or_default()) {
        Ok(words) => words,
        Err((error, span)) => {
            expressions.lowering.push(refused(given, error, span));
            return None;
        }
    };
    let (program, rest) = words.split_first()?;
    let mut arguments = Vec::new();
    for (i, word) in rest.iter().enumerate() {
        let start = word.start.and_then(|start| u32::try_from(start).ok());
        parts.insert(format!("{field}[{i}]"), (given.node.number(), start));
        arguments.push(expressions.part(given.node, &word.text, word.start, word.span)?);
    }
    Some(HookAction::Run { program: program.text.clone(), arguments })
}

fn refused(given: Given<'_>, error: CommandError, span: Span) -> Diagnostic {
    let line = given.node.raw().unwrap_or_default();
    let part = line.get(span.start as usize..span.end as usize).unwrap_or_default();
    let (code, message, hint) = match error {
        CommandError::Empty => {
            (Code::BadCommand, format!("`{}` names no program", given.name), "start with a program")
        }
        CommandError::Unclosed => (
            Code::BadCommand,
            format!("`{part}` is never closed"),
            "close it, or write it between other quotes",
        ),
        CommandError::Shell => (
            Code::BadCommand,
            format!("`{part}` means something only to a shell, and no shell reads this"),
            "put it in single quotes to pass it as it is, or put the commands into a script and run that",
        ),
        CommandError::Program => (
            Code::ExpressionAsProgram,
            "an expression cannot be the program".to_owned(),
            "write the program out; its arguments may have expressions",
        ),
        CommandError::Script => (
            Code::ExpressionAsProgram,
            "a shell would run the value of this expression".to_owned(),
            "give it as an argument of its own: `sh -c 'echo \"$1\"' hook ${{ … }}`",
        ),
    };
    Diagnostic::new(code, given.node.source(), given.node.within(span), message).hint(hint)
}
