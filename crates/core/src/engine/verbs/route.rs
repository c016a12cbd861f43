//! Route: chooses a branch, moves the cursor, and completes an instance.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    engine::{
        CursorRoute, Event, ExecutionError, InstanceEnd, InstanceIx, StepAt, code,
        decide::{DecideContext, PendingConsequence, StepEnd},
        state::null,
    },
    ir::{BranchSpec, RunImpact, RunStatus},
};

impl DecideContext<'_> {
    pub(in crate::engine) fn choose_branch(&mut self, at: StepAt, branch: &BranchSpec) {
        let env = self.env(at.0);
        let mut chosen = &branch.default;
        for arm in &branch.arms {
            match arm.when.eval_bool(&env) {
                Ok(false) => {}
                Ok(true) => {
                    chosen = &arm.next;
                    break;
                }
                Err(error) => {
                    let message = format!("a condition cannot be evaluated: {error}");
                    return self.fail_step(at, ExecutionError::invalid(code::CONDITION, message));
                }
            }
        }
        let route = Some(self.scope_entry(at.0).resolve_target(chosen).into());
        self.end_step(at, StepEnd { route, ..StepEnd::from_output(null()) });
    }

    /// Moves the cursor on from a step that has ended.
    pub(in crate::engine) fn move_cursor(&mut self, at: StepAt) {
        match self.state.instance(at.0).cursor {
            Some(CursorRoute::Step(step)) => self.defer_arrival(StepAt(at.0, step)),
            Some(CursorRoute::End) | None => self.complete_instance(at.0),
        }
    }

    /// Ends an instance that was not halted and has nothing left to do.
    pub(in crate::engine) fn complete_instance(&mut self, ix: InstanceIx) {
        let instance = self.state.instance(ix);
        let degraded = instance.verdict != RunImpact::Clean;
        let given = match instance.verdict {
            RunImpact::Failed => Err(instance.error.clone()),
            RunImpact::Clean | RunImpact::Degraded => self.evaluate_instance_output(ix).map_err(Some),
        };
        let failed = if instance.stuck { RunStatus::UndoFailed } else { RunStatus::Failed };
        let end = match given {
            Ok(output) => InstanceEnd { status: RunStatus::Succeeded, output, error: None, degraded },
            Err(error) => InstanceEnd { status: failed, output: null(), error, degraded: false },
        };
        self.end_instance(ix, end);
    }

    pub(in crate::engine) fn end_instance(&mut self, instance: InstanceIx, end: InstanceEnd) {
        self.emit(Event::InstanceEnded { instance, end });
        self.defer_consequence(PendingConsequence::InstanceEnded(instance));
    }

    /// Returns the output of an instance.
    fn evaluate_instance_output(&self, ix: InstanceIx) -> Result<Arc<Value>, ExecutionError> {
        let scope = &self.scope_entry(ix).scope;
        let mut output = match &scope.result {
            None => self.state.instance(ix).last_output.clone(),
            Some(result) => {
                let value = result.eval(&self.env(ix)).map_err(|error| {
                    let message = format!("the workflow's result cannot be evaluated: {error}");
                    ExecutionError::invalid(code::EXPRESSION, message)
                })?;
                Arc::new(value)
            }
        };
        if scope.result.is_none() && !self.scope_entry(ix).is_routed() {
            output = null();
        }
        if !scope.outputs.is_empty() {
            scope.outputs.fill_defaults(Arc::make_mut(&mut output));
            scope.outputs.check(&output).map_err(|error| {
                ExecutionError::invalid(code::OUTPUT_INVALID, format!("the workflow's result: {error}"))
            })?;
        }
        Ok(output)
    }
}
