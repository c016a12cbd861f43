//! What expressions read during an evaluation.

use std::{borrow::Cow, rc::Rc};

use serde_json::Value;
use skein_core::{
    expr::{Env, EvalError, Expr, Lookup, Part, Root},
    plan::Place,
};

use super::{
    Eval, Race,
    frame::{Frame, Known, Record},
};

/// An instance, for expressions.
struct Here<'e, 'f, 'a> {
    eval: &'e Eval<'a>,
    frame: &'e Frame<'f, 'a>,
}

impl<'a> Eval<'a> {
    pub(super) fn value(&self, frame: &Frame<'_, 'a>, expr: &Expr) -> Result<Result<Value, EvalError>, Race> {
        let value = expr.eval(&Here { eval: self, frame });
        self.was_clear().map(|()| value)
    }

    pub(super) fn test(&self, frame: &Frame<'_, 'a>, expr: &Expr) -> Result<Result<bool, EvalError>, Race> {
        let value = expr.test(&Here { eval: self, frame });
        self.was_clear().map(|()| value)
    }

    fn was_clear(&self) -> Result<(), Race> {
        if self.unclear.get() { Err(Race("an expression reads what the rules leave open")) } else { Ok(()) }
    }
}

impl Env for Here<'_, '_, '_> {
    fn lookup(&self, root: &Root) -> Lookup<'_> {
        match root {
            Root::Input => found(self.frame.home.input.clone()),
            Root::Env => found(self.frame.home.env.clone()),
            Root::Item => self.item().map_or(Lookup::Absent, |(item, _)| found(item)),
            Root::Index => self.item().map_or(Lookup::Absent, |(_, index)| found(index.into())),
            Root::Step { id, part } => self.step(id, *part),
            Root::Context | Root::Run | Root::Workflow => {
                self.eval.unclear.set(true);
                Lookup::Absent
            }
        }
    }
}

fn found(value: Value) -> Lookup<'static> {
    Lookup::Found(Cow::Owned(value))
}

impl Here<'_, '_, '_> {
    fn item(&self) -> Option<(Value, u32)> {
        let mut at = Some(self.frame);
        while let Some(frame) = at {
            if frame.item.is_some() {
                return frame.item.clone();
            }
            at = frame.outer;
        }
        None
    }

    fn step(&self, id: &str, part: Part) -> Lookup<'static> {
        let Some(place) = self.eval.definition.locate(self.frame.scope, id) else { return Lookup::Absent };
        let mut frame = self.frame;
        for _ in 0..place.up {
            match frame.outer {
                Some(outer) => frame = outer,
                None => return Lookup::Absent,
            }
        }
        match self.descend(frame, &place) {
            Ok(known) => self.read(&known, part),
            Err(lookup) => lookup,
        }
    }

    /// The step that is meant. A scope whose step is at work and has made none is one that has not been yet; one
    /// that will never be reads as nothing.
    fn descend(&self, frame: &Frame<'_, '_>, place: &Place) -> Result<Known, Lookup<'static>> {
        let Some((first, rest)) = place.down.split_first() else {
            return Ok(frame.steps.borrow()[place.step as usize].clone());
        };
        let none = |known: &Known| {
            if known.at_work { Lookup::NotYet } else { Lookup::Absent }
        };
        let inner = frame.inner.borrow();
        let holder = &frame.steps.borrow()[first.0 as usize];
        let mut record: Rc<Record> = inner.get(first).cloned().ok_or_else(|| none(holder))?;
        for down in rest {
            let next = record.inner.get(down).cloned();
            record = next.ok_or_else(|| none(&record.steps[down.0 as usize]))?;
        }
        Ok(record.steps[place.step as usize].clone())
    }

    fn read(&self, known: &Known, part: Part) -> Lookup<'static> {
        match part {
            // A step that the cursor has not come to reads as nothing.
            Part::Output if !known.ended => Lookup::Absent,
            Part::Output => {
                self.eval.unclear.set(self.eval.unclear.get() || known.unclear);
                found(known.output.clone())
            }
            Part::Status if known.ended => {
                let words = &self.frame.home.entry.workflow.words;
                found(words.step(known.status, known.own_failure).into())
            }
            Part::Status | Part::Summary => {
                self.eval.unclear.set(true);
                Lookup::Absent
            }
        }
    }
}
