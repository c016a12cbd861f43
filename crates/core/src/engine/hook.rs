//! A hook as it is to be done: its expressions worked out against the run.

use serde_json::Value;

use super::{Error, InstanceIx, code, scope_env::ScopeEnv, state::RunState};
use crate::{
    expr::Expr,
    ir::{ErrorClass, HookAction},
    plan::Plan,
};

/// What a hook wants done, with nothing left to work out.
#[derive(Debug, Clone, PartialEq)]
pub enum Hooked {
    Notify { channel: String, message: Option<Value> },
    Run { program: String, arguments: Vec<Value> },
}

/// The hook of a number, as the root of the run sees things now. None: the workflow has no such hook, or the run has not
/// begun.
pub fn hook(plan: &Plan, state: &RunState, number: u32) -> Option<Result<Hooked, Error>> {
    let hooks = &plan.definition.root().workflow.hooks;
    let hook = hooks.get(usize::try_from(number).ok()?)?;
    state.instances.first()?;
    let env = ScopeEnv::new(plan, state, InstanceIx::ROOT);
    let eval = |expr: &Expr| {
        expr.eval(&env).map_err(|error| {
            Error::new(ErrorClass::Validation, code::EXPRESSION, format!("its arguments: {error}"))
        })
    };
    Some(match &hook.action {
        HookAction::Notify { channel, message } => message
            .as_ref()
            .map(eval)
            .transpose()
            .map(|message| Hooked::Notify { channel: channel.clone(), message }),
        HookAction::Run { program, arguments } => arguments
            .iter()
            .map(eval)
            .collect::<Result<_, _>>()
            .map(|arguments| Hooked::Run { program: program.clone(), arguments }),
    })
}
