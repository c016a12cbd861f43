//! The values that expressions read, from the acceptor's own bookkeeping.

use std::borrow::Cow;

use serde_json::Value;
use skein_core::{
    engine::{InstanceIx, InstancePart, SkipReason, StepAt, StepOutcome},
    expr::{EvalError, Expr, ExprEnv, ReferenceRoot, RootLookup, StepProperty},
    ir::{ErrorClass, StepStatus},
    plan::{RelativeStepPath, ScopeEntry},
};

use super::{
    Acceptor, RuleResult,
    state::{AcceptorInstance, AcceptorStep},
};

struct AcceptorEnv<'a> {
    book: &'a Acceptor,
    instance: InstanceIx,
}

impl Acceptor {
    pub(super) fn instance(&self, ix: InstanceIx) -> RuleResult<&AcceptorInstance> {
        self.instances.get(ix.0 as usize).ok_or_else(|| format!("there is no instance {}", ix.0).into())
    }

    pub(super) fn instance_mut(&mut self, ix: InstanceIx) -> RuleResult<&mut AcceptorInstance> {
        self.instances.get_mut(ix.0 as usize).ok_or_else(|| format!("there is no instance {}", ix.0).into())
    }

    pub(super) fn scope_entry(&self, ix: InstanceIx) -> &ScopeEntry {
        self.plan.definition.scope(self.instances[ix.0 as usize].scope)
    }

    pub(super) fn step_definition(&self, at: StepAt) -> RuleResult<&skein_core::ir::Step> {
        self.step_state(at)?;
        Ok(self.scope_entry(at.0).step(at.1))
    }

    pub(super) fn step_state(&self, StepAt(ix, step): StepAt) -> RuleResult<&AcceptorStep> {
        self.instance(ix)?.steps.get(step as usize).ok_or_else(|| format!("there is no step {step} in {}", ix.0).into())
    }

    pub(super) fn step_state_mut(&mut self, StepAt(ix, step): StepAt) -> RuleResult<&mut AcceptorStep> {
        let found = self.instance_mut(ix)?.steps.get_mut(step as usize);
        found.ok_or_else(|| format!("there is no step {step} in {}", ix.0).into())
    }

    pub(super) fn evaluate_expr(&self, instance: InstanceIx, expr: &Expr) -> Result<Value, EvalError> {
        expr.eval(&AcceptorEnv { book: self, instance })
    }

    pub(super) fn evaluate_condition(&self, instance: InstanceIx, expr: &Expr) -> Result<bool, EvalError> {
        expr.eval_bool(&AcceptorEnv { book: self, instance })
    }

    /// The enclosing instance in the same workflow.
    fn outer_instance(&self, ix: InstanceIx) -> Option<InstanceIx> {
        let inst = &self.instances[ix.0 as usize];
        if inst.home == ix { None } else { inst.parent.map(|parent| parent.0) }
    }
}

impl ExprEnv for AcceptorEnv<'_> {
    fn lookup(&self, root: &ReferenceRoot) -> RootLookup<'_> {
        let home = &self.book.instances[self.book.instances[self.instance.0 as usize].home.0 as usize];
        match root {
            ReferenceRoot::Input => RootLookup::Found(Cow::Borrowed(&home.input)),
            ReferenceRoot::Env => RootLookup::Found(Cow::Borrowed(&home.env)),
            ReferenceRoot::Item => {
                self.enclosing_item().map_or(RootLookup::Absent, |(item, _)| found_value(item.clone()))
            }
            ReferenceRoot::Index => {
                self.enclosing_item().map_or(RootLookup::Absent, |(_, index)| found_value((*index).into()))
            }
            ReferenceRoot::Context => {
                self.book.start.as_ref().map_or(RootLookup::Absent, |start| found_value(start.context.clone()))
            }
            ReferenceRoot::Step { id, part } => self.lookup_step(id, *part),
            ReferenceRoot::Run | ReferenceRoot::Workflow => RootLookup::Absent,
        }
    }
}

fn found_value(value: Value) -> RootLookup<'static> {
    RootLookup::Found(Cow::Owned(value))
}

impl AcceptorEnv<'_> {
    fn enclosing_item(&self) -> Option<&(Value, u32)> {
        let mut at = Some(self.instance);
        while let Some(ix) = at {
            if let Some(item) = &self.book.instances[ix.0 as usize].item {
                return Some(item);
            }
            at = self.book.outer_instance(ix);
        }
        None
    }

    fn lookup_step(&self, id: &str, part: StepProperty) -> RootLookup<'static> {
        let scope = self.book.instances[self.instance.0 as usize].scope;
        let Some(place) = self.book.plan.definition.locate_step(scope, id) else { return RootLookup::Absent };
        let mut ix = self.instance;
        for _ in 0..place.up {
            match self.book.outer_instance(ix) {
                Some(outer) => ix = outer,
                None => return RootLookup::Absent,
            }
        }
        match self.descend(ix, &place) {
            Ok(ix) => self.read_part(ix, place.step, part),
            Err(lookup) => lookup,
        }
    }

    fn descend(&self, mut ix: InstanceIx, place: &RelativeStepPath) -> Result<InstanceIx, RootLookup<'static>> {
        for (step, which) in &place.down {
            let holder = &self.book.instances[ix.0 as usize].steps[*step as usize];
            let lane = |ix: &&InstanceIx| match self.book.instances[ix.0 as usize].part {
                Some(InstancePart::Lane(lane)) => lane == *which,
                _ => true,
            };
            ix = match holder.children.iter().rev().find(lane) {
                Some(ix) => *ix,
                None if holder.is_live() => return Err(RootLookup::NotYet),
                None => return Err(RootLookup::Absent),
            };
        }
        Ok(ix)
    }

    fn read_part(&self, ix: InstanceIx, step: u32, part: StepProperty) -> RootLookup<'static> {
        let st = &self.book.instances[ix.0 as usize].steps[step as usize];
        let inst = &self.book.instances[ix.0 as usize];
        let words = &self.book.plan.definition.workflow_containing(inst.scope).workflow.words;
        let Some(outcome) = st.outcome else {
            // A step that was never reached in an ended instance reads as skipped.
            let skipped = part == StepProperty::Status && inst.ended.is_some();
            return if skipped {
                found_value(words.step_word(StepStatus::Skipped, false).into())
            } else {
                RootLookup::Absent
            };
        };
        match part {
            StepProperty::Output => found_value(st.output.clone()),
            StepProperty::Status => {
                let own = st.effect.is_some_and(|effect| effect.as_skipped) && outcome != StepOutcome::Succeeded;
                let status = if own { StepStatus::Skipped } else { shown_status(outcome) };
                found_value(words.step_word(status, own).into())
            }
            StepProperty::Summary => RootLookup::Absent,
        }
    }
}

fn shown_status(outcome: StepOutcome) -> StepStatus {
    match outcome {
        StepOutcome::Succeeded => StepStatus::Succeeded,
        StepOutcome::Incomplete => StepStatus::Incomplete,
        StepOutcome::Failed(ErrorClass::Timeout) => StepStatus::TimedOut,
        StepOutcome::Exhausted | StepOutcome::Failed(_) | StepOutcome::Rejected => StepStatus::Failed,
        StepOutcome::Skipped(SkipReason::Condition | SkipReason::Upstream(_)) => StepStatus::Skipped,
        StepOutcome::Cancelled => StepStatus::Cancelled,
    }
}
