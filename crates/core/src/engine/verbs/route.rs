//! Route: a branch chooses, a cursor moves, an instance comes to its end.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    engine::{
        Error, Event, InstanceEnd, InstanceIx, Route, StepAt, code,
        decide::{Decision, End, Todo},
        state::null,
    },
    ir::{Branch, ErrorClass, RunStatus, Verdict},
};

impl Decision<'_> {
    pub(in crate::engine) fn choose(&mut self, at: StepAt, branch: &Branch) {
        let env = self.env(at.0);
        let mut chosen = &branch.default;
        for arm in &branch.arms {
            match arm.when.test(&env) {
                Ok(false) => {}
                Ok(true) => {
                    chosen = &arm.next;
                    break;
                }
                Err(error) => {
                    let message = format!("a condition cannot be evaluated: {error}");
                    return self.fail_step(at, Error::new(ErrorClass::Validation, code::CONDITION, message));
                }
            }
        }
        let route = Some(self.entry(at.0).target(chosen).into());
        self.end_step(at, End { route, ..End::with(null()) });
    }

    /// The cursor goes on from a step that has ended.
    pub(in crate::engine) fn move_cursor(&mut self, at: StepAt) {
        match self.state.instance(at.0).cursor {
            Some(Route::Step(step)) => self.arrive_later(StepAt(at.0, step)),
            Some(Route::End) | None => self.complete(at.0),
        }
    }

    /// An instance that was not halted has nothing left to do.
    pub(in crate::engine) fn complete(&mut self, ix: InstanceIx) {
        let instance = self.state.instance(ix);
        let degraded = instance.verdict != Verdict::Clean;
        let given = match instance.verdict {
            Verdict::Failed => Err(instance.error.clone()),
            Verdict::Clean | Verdict::Degraded => self.output_of(ix).map_err(Some),
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
        self.later(Todo::InstanceEnded(instance));
    }

    /// What an instance gives.
    fn output_of(&self, ix: InstanceIx) -> Result<Arc<Value>, Error> {
        let scope = &self.entry(ix).scope;
        let mut output = match &scope.result {
            None => self.state.instance(ix).last_output.clone(),
            Some(result) => {
                let value = result.eval(&self.env(ix)).map_err(|error| {
                    Error::new(
                        ErrorClass::Validation,
                        code::EXPRESSION,
                        format!("the workflow's result cannot be evaluated: {error}"),
                    )
                })?;
                Arc::new(value)
            }
        };
        if scope.result.is_none() && !self.entry(ix).is_routed() {
            output = null();
        }
        if !scope.outputs.is_empty() {
            scope.outputs.fill(Arc::make_mut(&mut output));
            scope.outputs.check(&output).map_err(|error| {
                Error::new(
                    ErrorClass::Validation,
                    code::OUTPUT_INVALID,
                    format!("the workflow's result: {error}"),
                )
            })?;
        }
        Ok(output)
    }
}
