//! The values that expressions read during an evaluation.

use std::{borrow::Cow, rc::Rc};

use serde_json::Value;
use skein_core::{
    expr::{EvalError, Expr, ExprEnv, ReferenceRoot, RootLookup, StepProperty},
    plan::RelativeStepPath,
};

use super::{
    ModelEvaluator, TimingRace,
    frame::{ModelFrame, ModelFrameRecord, ModelStep},
};

/// An instance, as the environment of an expression.
struct ModelEnv<'e, 'f, 'a> {
    eval: &'e ModelEvaluator<'a>,
    frame: &'e ModelFrame<'f, 'a>,
}

impl<'a> ModelEvaluator<'a> {
    pub(super) fn evaluate_expr(
        &self,
        frame: &ModelFrame<'_, 'a>,
        expr: &Expr,
    ) -> Result<Result<Value, EvalError>, TimingRace> {
        let value = expr.eval(&ModelEnv { eval: self, frame });
        self.check_unambiguous().map(|()| value)
    }

    pub(super) fn evaluate_condition(
        &self,
        frame: &ModelFrame<'_, 'a>,
        expr: &Expr,
    ) -> Result<Result<bool, EvalError>, TimingRace> {
        let value = expr.eval_bool(&ModelEnv { eval: self, frame });
        self.check_unambiguous().map(|()| value)
    }

    fn check_unambiguous(&self) -> Result<(), TimingRace> {
        if self.unclear.get() { Err(TimingRace("an expression reads a value that is left open")) } else { Ok(()) }
    }
}

impl ExprEnv for ModelEnv<'_, '_, '_> {
    fn lookup(&self, root: &ReferenceRoot) -> RootLookup<'_> {
        match root {
            ReferenceRoot::Input => found_value(self.frame.home.input.clone()),
            ReferenceRoot::Env => found_value(self.frame.home.env.clone()),
            ReferenceRoot::Item => self.enclosing_item().map_or(RootLookup::Absent, |(item, _)| found_value(item)),
            ReferenceRoot::Index => {
                self.enclosing_item().map_or(RootLookup::Absent, |(_, index)| found_value(index.into()))
            }
            ReferenceRoot::Step { id, part } => self.lookup_step(id, *part),
            ReferenceRoot::Context | ReferenceRoot::Run | ReferenceRoot::Workflow => {
                self.eval.unclear.set(true);
                RootLookup::Absent
            }
        }
    }
}

fn found_value(value: Value) -> RootLookup<'static> {
    RootLookup::Found(Cow::Owned(value))
}

impl ModelEnv<'_, '_, '_> {
    fn enclosing_item(&self) -> Option<(Value, u32)> {
        let mut at = Some(self.frame);
        while let Some(frame) = at {
            if frame.item.is_some() {
                return frame.item.clone();
            }
            at = frame.outer;
        }
        None
    }

    fn lookup_step(&self, id: &str, part: StepProperty) -> RootLookup<'static> {
        let Some(place) = self.eval.definition.locate_step(self.frame.scope, id) else {
            return RootLookup::Absent;
        };
        let mut frame = self.frame;
        for _ in 0..place.up {
            match frame.outer {
                Some(outer) => frame = outer,
                None => return RootLookup::Absent,
            }
        }
        match self.descend(frame, &place) {
            Ok(known) => self.read_part(&known, part),
            Err(lookup) => lookup,
        }
    }

    /// Returns the step at a relative path. If the path leads through a scope that has no instance, the lookup is
    /// `NotYet` while its step is running and `Absent` otherwise.
    fn descend(&self, frame: &ModelFrame<'_, '_>, place: &RelativeStepPath) -> Result<ModelStep, RootLookup<'static>> {
        let Some((first, rest)) = place.down.split_first() else {
            return Ok(frame.steps.borrow()[place.step as usize].clone());
        };
        let none = |known: &ModelStep| {
            if known.at_work { RootLookup::NotYet } else { RootLookup::Absent }
        };
        let inner = frame.inner.borrow();
        let holder = &frame.steps.borrow()[first.0 as usize];
        let mut record: Rc<ModelFrameRecord> = inner.get(first).cloned().ok_or_else(|| none(holder))?;
        for down in rest {
            let next = record.inner.get(down).cloned();
            record = next.ok_or_else(|| none(&record.steps[down.0 as usize]))?;
        }
        Ok(record.steps[place.step as usize].clone())
    }

    fn read_part(&self, known: &ModelStep, part: StepProperty) -> RootLookup<'static> {
        match part {
            // A step that the cursor has not reached reads as absent.
            StepProperty::Output if !known.ended => RootLookup::Absent,
            StepProperty::Output => {
                self.eval.unclear.set(self.eval.unclear.get() || known.unclear);
                found_value(known.output.clone())
            }
            StepProperty::Status if known.ended => {
                let words = &self.frame.home.entry.workflow.words;
                found_value(words.step_word(known.status, known.own_failure).into())
            }
            StepProperty::Status | StepProperty::Summary => {
                self.eval.unclear.set(true);
                RootLookup::Absent
            }
        }
    }
}
