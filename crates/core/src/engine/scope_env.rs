//! The environment of expressions: the names visible from a scope instance, looked up in the state; and hooks with
//! their expressions evaluated in it.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::{
    engine::{ExecutionError, InstanceIx, InstancePart, RunStart, StepAt, code, state::RunState},
    expr::{Expr, ExprEnv, ReferenceRoot, RootLookup, StepProperty as Of},
    ir::{HookAction, StepKindSpec},
    plan::Plan,
    time::{Timestamp, format_utc},
};

/// The environment of one instance.
pub(super) struct ScopeEnv<'a> {
    pub plan: &'a Plan,
    pub state: &'a RunState,
    pub instance: InstanceIx,
    /// A step and the output to use for it instead of the one in the state: the visit that is being undone.
    pub own: Option<(StepAt, &'a Value)>,
    /// A loop before its first pass; the steps inside it have no values yet.
    pub before: Option<StepAt>,
}

impl ExprEnv for ScopeEnv<'_> {
    fn lookup(&self, root: &ReferenceRoot) -> RootLookup<'_> {
        let home = self.state.home_instance(self.instance);
        match root {
            ReferenceRoot::Input => to_lookup(&home.input),
            ReferenceRoot::Step { id, part } => self.lookup_step(id, *part),
            ReferenceRoot::Item => {
                self.find_item().map_or(RootLookup::Absent, |(items, i)| match items.get(i as usize) {
                    Some(item) => to_lookup(item),
                    None => RootLookup::Absent,
                })
            }
            ReferenceRoot::Index => {
                self.find_item().map_or(RootLookup::Absent, |(_, i)| RootLookup::Found(Cow::Owned(json!(i))))
            }
            ReferenceRoot::Context => {
                self.state.start.as_ref().map_or(RootLookup::Absent, |start| to_lookup(&start.context))
            }
            ReferenceRoot::Env => to_lookup(&home.env),
            ReferenceRoot::Run => RootLookup::Found(Cow::Owned(self.run_value())),
            ReferenceRoot::Workflow => RootLookup::Found(Cow::Owned(build_workflow_value(self.plan, home.scope))),
        }
    }
}

fn to_lookup(value: &Value) -> RootLookup<'_> {
    RootLookup::Found(Cow::Borrowed(value))
}

impl<'a> ScopeEnv<'a> {
    pub(super) fn new(plan: &'a Plan, state: &'a RunState, instance: InstanceIx) -> ScopeEnv<'a> {
        ScopeEnv { plan, state, instance, own: None, before: None }
    }

    fn lookup_step(&self, id: &str, part: Of) -> RootLookup<'_> {
        let definition = &self.plan.definition;
        let Some(place) = definition.locate_step(self.state.instance(self.instance).scope, id) else {
            return RootLookup::Absent;
        };
        let mut ix = self.instance;
        for _ in 0..place.up {
            let Some(parent) = self.state.instance(ix).parent else { return RootLookup::Absent };
            ix = parent.0;
        }
        for (holder, which) in &place.down {
            let holder = StepAt(ix, *holder);
            if self.before == Some(holder) {
                return RootLookup::NotYet;
            }
            let Some(inner) = self.find_visible_instance(holder, *which) else { return RootLookup::Absent };
            ix = inner;
        }
        self.lookup_step_part(StepAt(ix, place.step), part)
    }

    /// Returns the instance inside a step whose steps can be referenced from outside: a lane, or the last pass of a
    /// loop.
    fn find_visible_instance(&self, holder: StepAt, which: u32) -> Option<InstanceIx> {
        let children = &self.state.visit_state(holder)?.children;
        let scope = self.plan.definition.scope(self.state.instance(holder.0).scope);
        match scope.step(holder.1).kind {
            StepKindSpec::Parallel(_) => children.get(which as usize).copied(),
            _ => children.last().copied(),
        }
    }

    fn lookup_step_part(&self, at: StepAt, part: Of) -> RootLookup<'_> {
        if let Some((_, output)) = self.own.filter(|(own, _)| *own == at && part == Of::Output) {
            return to_lookup(output);
        }
        let step = self.state.step(at);
        match part {
            Of::Output if step.outcome.is_some() => to_lookup(&step.output),
            Of::Output => RootLookup::Absent,
            Of::Status => {
                let status = self.state.step_status(at);
                let own = step.effect.is_some_and(|effect| effect.as_skipped);
                let scope = self.state.instance(at.0).scope;
                let words = &self.plan.definition.workflow_containing(scope).workflow.words;
                RootLookup::Found(Cow::Owned(Value::from(words.step_word(status, own))))
            }
            Of::Summary => match step.more.as_ref().and_then(|more| more.summary.as_deref()) {
                Some(summary) => RootLookup::Found(Cow::Owned(Value::from(summary))),
                None => RootLookup::Absent,
            },
        }
    }

    /// Returns the list of the innermost each around this instance, and the index of the item in it.
    fn find_item(&self) -> Option<(&Vec<Value>, u32)> {
        let mut ix = self.instance;
        loop {
            let instance = self.state.instance(ix);
            let parent = instance.parent?;
            match instance.part {
                Some(InstancePart::Item(i)) => {
                    return Some((self.state.visit_state(parent)?.items.as_ref()?.as_array()?, i));
                }
                Some(InstancePart::Call) | None => return None,
                Some(InstancePart::Lane(_) | InstancePart::Pass(_)) => ix = parent.0,
            }
        }
    }

    fn run_value(&self) -> Value {
        let Some(start) = &self.state.start else { return Value::Null };
        build_run_value(start, self.state.instance(InstanceIx::ROOT).started)
    }
}

/// Builds the value that expressions read as `run`.
pub(super) fn build_run_value(start: &RunStart, started: Timestamp) -> Value {
    json!({
        "id": start.run.as_str(),
        "started_at": format_utc(started),
        "attempt": start.attempt,
        "retry_of": start.retry_of.as_ref().map(|run| run.as_str()),
    })
}

/// Builds the value that expressions read as `workflow`.
pub(super) fn build_workflow_value(plan: &Plan, scope: crate::plan::ScopeIx) -> Value {
    let workflow = &plan.definition.workflow_containing(scope).workflow;
    json!({
        "id": workflow.id.as_str(),
        "name": workflow.name,
        "version": workflow.version,
        "description": workflow.description,
    })
}

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
        expr.eval(&env).map_err(|error| ExecutionError::invalid(code::EXPRESSION, format!("its arguments: {error}")))
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
    use crate::{
        engine::{Driver, InputToken, RunInput, RunStart, TimedInput},
        expr::swdl,
        ids::{RunId, StepId, WorkflowId},
        ir::{HookTiming, ScopeShape, Step, StepKindSpec, StepScope, WorkSpec, WorkerSpec, Workflow, WorkflowHook},
        plan::check_workflow,
        time::Timestamp,
    };
    use serde_json::json;
    use std::sync::Arc;

    use super::*;

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
