//! Hooks with their expressions evaluated against the run.

use serde_json::Value;

use super::{ExecutionError, InstanceIx, code, scope_env::ScopeEnv, state::RunState};
use crate::{
    expr::Expr,
    ir::{ErrorClass, HookAction},
    plan::Plan,
};

/// A hook action whose expressions are evaluated.
#[derive(Debug, Clone, PartialEq)]
pub enum EvaluatedHook {
    Notify { channel: String, message: Option<Value> },
    Run { program: String, arguments: Vec<Value> },
}

/// Evaluates the hook with this number, in the environment of the root instance. Returns `None` if the workflow has no
/// such hook, or if the run has not started.
pub fn evaluate_hook(plan: &Plan, state: &RunState, number: u32) -> Option<Result<EvaluatedHook, ExecutionError>> {
    let hooks = &plan.definition.root().workflow.hooks;
    let hook = hooks.get(usize::try_from(number).ok()?)?;
    state.instances.first()?;
    let env = ScopeEnv::new(plan, state, InstanceIx::ROOT);
    let eval = |expr: &Expr| {
        expr.eval(&env).map_err(|error| {
            ExecutionError::new(ErrorClass::Validation, code::EXPRESSION, format!("its arguments: {error}"))
        })
    };
    Some(match &hook.action {
        HookAction::Notify { channel, message } => message
            .as_ref()
            .map(eval)
            .transpose()
            .map(|message| EvaluatedHook::Notify { channel: channel.clone(), message }),
        HookAction::Run { program, arguments } => arguments
            .iter()
            .map(eval)
            .collect::<Result<_, _>>()
            .map(|arguments| EvaluatedHook::Run { program: program.clone(), arguments }),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::{
        engine::{Driver, InputToken, RunInput, RunStart, TimedInput},
        expr::swdl,
        ids::{RunId, StepId, WorkflowId},
        ir::{HookTiming, ScopeShape, Step, StepKindSpec, StepScope, WorkSpec, WorkerSpec, Workflow, WorkflowHook},
        plan::check_workflow,
        time::Timestamp,
    };

    fn begun(actions: Vec<HookAction>) -> Driver {
        let script = WorkerSpec::Script { text: "true".into(), capabilities: Vec::new() };
        let step = Step::new(StepId::new("one").unwrap(), StepKindSpec::Work(Box::new(WorkSpec::new(script))));
        let mut workflow = Workflow::new(WorkflowId::new("w").unwrap(), StepScope::new(ScopeShape::Graph, vec![step]));
        workflow.hooks = actions.into_iter().map(|action| WorkflowHook { when: HookTiming::Start, action }).collect();
        let definition = check_workflow(Arc::new(workflow), &()).definition.unwrap();
        let mut driver = Driver::new(definition.bind(json!({"who": "a b"})).unwrap());
        let start = RunStart::new(RunId::new("r1").unwrap());
        let input = RunInput::Start(Box::new(start));
        driver.push_input(InputToken(1), TimedInput { at: Timestamp(0), grant: 0, input });
        driver.poll_append().unwrap();
        driver
    }

    fn filled(text: &str) -> Expr {
        swdl::parse_template(text, swdl::SwdlExprScope::Stage).unwrap()
    }

    #[test]
    fn arguments_are_worked_out_and_the_program_is_as_it_is_written() {
        let run = HookAction::Run {
            program: "note".into(),
            arguments: vec![filled("for ${{ parameters.who }}"), filled("${{ run.id }}")],
        };
        let notify = HookAction::Notify { channel: "chat".into(), message: Some(filled("${{ workflow.id }}")) };
        let driver = begun(vec![run, notify]);
        let hooked = |n| evaluate_hook(driver.plan(), driver.state(), n);
        assert_eq!(
            hooked(0),
            Some(Ok(EvaluatedHook::Run { program: "note".into(), arguments: vec![json!("for a b"), json!("r1")] }))
        );
        assert_eq!(hooked(1), Some(Ok(EvaluatedHook::Notify { channel: "chat".into(), message: Some(json!("w")) })));
        assert_eq!(hooked(2), None);
        assert_eq!(evaluate_hook(driver.plan(), &RunState::new(), 0), None, "it has not begun");
    }
}
