//! What expressions read, from the acceptor's own notes.

use std::borrow::Cow;

use serde_json::Value;
use skein_core::{
    engine::{InstanceIx, Outcome, Part as InstancePart, Skip, StepAt},
    expr::{Env, EvalError, Expr, Lookup, Part, Root},
    ir::{ErrorClass, StepStatus},
    plan::{Place, ScopeEntry},
};

use super::{
    Acceptor,
    book::{Inst, St},
};

struct Here<'a> {
    book: &'a Acceptor,
    instance: InstanceIx,
}

impl Acceptor {
    pub(super) fn inst(&self, ix: InstanceIx) -> Result<&Inst, String> {
        self.instances.get(ix.0 as usize).ok_or_else(|| format!("there is no instance {}", ix.0))
    }

    pub(super) fn inst_mut(&mut self, ix: InstanceIx) -> Result<&mut Inst, String> {
        self.instances.get_mut(ix.0 as usize).ok_or_else(|| format!("there is no instance {}", ix.0))
    }

    pub(super) fn entry(&self, ix: InstanceIx) -> &ScopeEntry {
        self.plan.definition.scope(self.instances[ix.0 as usize].scope)
    }

    pub(super) fn step(&self, at: StepAt) -> Result<&skein_core::ir::Step, String> {
        self.st(at)?;
        Ok(self.entry(at.0).step(at.1))
    }

    pub(super) fn st(&self, StepAt(ix, step): StepAt) -> Result<&St, String> {
        self.inst(ix)?.steps.get(step as usize).ok_or_else(|| format!("there is no step {step} in {}", ix.0))
    }

    pub(super) fn st_mut(&mut self, StepAt(ix, step): StepAt) -> Result<&mut St, String> {
        let found = self.inst_mut(ix)?.steps.get_mut(step as usize);
        found.ok_or_else(|| format!("there is no step {step} in {}", ix.0))
    }

    pub(super) fn value(&self, instance: InstanceIx, expr: &Expr) -> Result<Value, EvalError> {
        expr.eval(&Here { book: self, instance })
    }

    pub(super) fn test(&self, instance: InstanceIx, expr: &Expr) -> Result<bool, EvalError> {
        expr.test(&Here { book: self, instance })
    }

    /// The instance around, in the same workflow.
    fn outer(&self, ix: InstanceIx) -> Option<InstanceIx> {
        let inst = &self.instances[ix.0 as usize];
        if inst.home == ix { None } else { inst.parent.map(|parent| parent.0) }
    }
}

impl Env for Here<'_> {
    fn lookup(&self, root: &Root) -> Lookup<'_> {
        let home = &self.book.instances[self.book.instances[self.instance.0 as usize].home.0 as usize];
        match root {
            Root::Input => Lookup::Found(Cow::Borrowed(&home.input)),
            Root::Env => Lookup::Found(Cow::Borrowed(&home.env)),
            Root::Item => self.item().map_or(Lookup::Absent, |(item, _)| found(item.clone())),
            Root::Index => self.item().map_or(Lookup::Absent, |(_, index)| found((*index).into())),
            Root::Context => {
                self.book.start.as_ref().map_or(Lookup::Absent, |start| found(start.context.clone()))
            }
            Root::Step { id, part } => self.step(id, *part),
            Root::Run | Root::Workflow => Lookup::Absent,
        }
    }
}

fn found(value: Value) -> Lookup<'static> {
    Lookup::Found(Cow::Owned(value))
}

impl Here<'_> {
    fn item(&self) -> Option<&(Value, u32)> {
        let mut at = Some(self.instance);
        while let Some(ix) = at {
            if let Some(item) = &self.book.instances[ix.0 as usize].item {
                return Some(item);
            }
            at = self.book.outer(ix);
        }
        None
    }

    fn step(&self, id: &str, part: Part) -> Lookup<'static> {
        let scope = self.book.instances[self.instance.0 as usize].scope;
        let Some(place) = self.book.plan.definition.locate(scope, id) else { return Lookup::Absent };
        let mut ix = self.instance;
        for _ in 0..place.up {
            match self.book.outer(ix) {
                Some(outer) => ix = outer,
                None => return Lookup::Absent,
            }
        }
        match self.descend(ix, &place) {
            Ok(ix) => self.read(ix, place.step, part),
            Err(lookup) => lookup,
        }
    }

    fn descend(&self, mut ix: InstanceIx, place: &Place) -> Result<InstanceIx, Lookup<'static>> {
        for (step, which) in &place.down {
            let holder = &self.book.instances[ix.0 as usize].steps[*step as usize];
            let lane = |ix: &&InstanceIx| match self.book.instances[ix.0 as usize].part {
                Some(InstancePart::Lane(lane)) => lane == *which,
                _ => true,
            };
            ix = match holder.children.iter().rev().find(lane) {
                Some(ix) => *ix,
                None if holder.is_live() => return Err(Lookup::NotYet),
                None => return Err(Lookup::Absent),
            };
        }
        Ok(ix)
    }

    fn read(&self, ix: InstanceIx, step: u32, part: Part) -> Lookup<'static> {
        let st = &self.book.instances[ix.0 as usize].steps[step as usize];
        let inst = &self.book.instances[ix.0 as usize];
        let words = &self.book.plan.definition.workflow_of(inst.scope).workflow.words;
        let Some(outcome) = st.outcome else {
            // What was never reached in something that has ended is shown as skipped.
            let skipped = part == Part::Status && inst.ended.is_some();
            return if skipped {
                found(words.step(StepStatus::Skipped, false).into())
            } else {
                Lookup::Absent
            };
        };
        match part {
            Part::Output => found(st.output.clone()),
            Part::Status => {
                let own = st.effect.is_some_and(|effect| effect.as_skipped) && outcome != Outcome::Succeeded;
                let status = if own { StepStatus::Skipped } else { shown(outcome) };
                found(words.step(status, own).into())
            }
            Part::Summary => Lookup::Absent,
        }
    }
}

fn shown(outcome: Outcome) -> StepStatus {
    match outcome {
        Outcome::Succeeded => StepStatus::Succeeded,
        Outcome::Incomplete => StepStatus::Incomplete,
        Outcome::Failed(ErrorClass::Timeout) => StepStatus::TimedOut,
        Outcome::Exhausted | Outcome::Failed(_) | Outcome::Rejected => StepStatus::Failed,
        Outcome::Skipped(Skip::Condition | Skip::Upstream(_)) => StepStatus::Skipped,
        Outcome::Cancelled => StepStatus::Cancelled,
    }
}
