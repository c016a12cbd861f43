//! Results of another run: only before anything else, where a step could have ended so, and none that the run failed by.

use skein_core::{
    engine::{InstanceIx, InstanceReused, Outcome, Part, Route, Skip, StepAt, StepReused},
    ir::{Effect, Kind, Shape, Then, Verdict as Worst},
};

use super::{
    Acceptor, Verdict,
    book::{At, Inst},
    ensure,
};

impl Acceptor {
    pub(super) fn instance_reused(&mut self, reused: &InstanceReused) -> Verdict {
        let InstanceReused { parent, part, input, env, why, end } = reused;
        ensure!(self.reuses, "a run takes over results before it does anything, or never");
        if self.st(*parent)?.at != At::Inside {
            self.is_next(*parent)?;
            self.count(*parent)?;
            self.st_mut(*parent)?.at = At::Inside;
        }
        let kind = &self.step(*parent)?.kind;
        let fits = matches!(
            (kind, part),
            (Kind::Parallel(_), Part::Lane(_))
                | (Kind::Each(_), Part::Item(_))
                | (Kind::Loop(_), Part::Pass(_))
                | (Kind::Call(_), Part::Call)
        );
        ensure!(fits, "the step has no such part");
        let ix = InstanceIx(u32::try_from(self.instances.len()).unwrap_or(u32::MAX));
        let which = if let Part::Lane(lane) = part { *lane } else { 0 };
        let scope = self.entry(parent.0).inner(parent.1, which);
        let entry = self.plan.definition.scope(scope);
        let home = if *part == Part::Call { ix } else { self.inst(parent.0)?.home };
        let mut inst = Inst::new(scope, home, entry.scope.steps.len());
        inst.cursor = matches!(entry.scope.shape, Shape::Routed { .. }).then_some(Route::Step(entry.start));
        (inst.parent, inst.part) = (Some(*parent), Some(*part));
        inst.input = input.as_deref().cloned().unwrap_or_default();
        inst.env = (**env).clone();
        inst.halts.extend(why.clone());
        inst.ended = Some(end.clone());
        self.instances.push(inst);
        self.st_mut(*parent)?.children.push(ix);
        Ok(())
    }

    pub(super) fn step_reused(&mut self, reused: &StepReused) -> Verdict {
        let StepReused { at, outcome, output, error, effect, route, items, settler, .. } = reused;
        ensure!(self.reuses, "a run takes over results before it does anything, or never");
        self.right_reuse(reused)?;
        if at.0 == InstanceIx::ROOT {
            ensure!(is_good(*outcome, *effect), "the run failed by it, or it was cancelled");
        }
        if self.st(*at)?.at != At::Inside {
            self.is_next(*at)?;
            if !matches!(outcome, Outcome::Skipped(Skip::Upstream(_))) {
                self.count(*at)?;
            }
        }
        self.st_mut(*at)?.items = items.as_deref().cloned();
        let list = items.as_deref().and_then(|items| items.as_array()).cloned().unwrap_or_default();
        for child in self.st(*at)?.children.clone() {
            let inst = self.inst_mut(child)?;
            if let Some(Part::Item(i)) = inst.part {
                inst.item = list.get(i as usize).map(|item| (item.clone(), i));
            }
        }
        let routed = self.inst(at.0)?.cursor.is_some();
        self.note_end(*at, *outcome, output, error.as_ref(), *effect, *settler)?;
        if routed {
            self.inst_mut(at.0)?.cursor = Some(route.unwrap_or(Route::End));
        }
        Ok(())
    }

    /// Whether such an end does that. Who settles conflicts comes after them, so that they are known by then.
    fn right_reuse(&self, reused: &StepReused) -> Verdict {
        let StepReused { at, outcome, effect, settler, .. } = reused;
        if *outcome == Outcome::Cancelled {
            return Ok(());
        }
        if let Some(by) = settler {
            ensure!(self.settler_of(*at) == Some(*by), "somebody else settles its conflicts");
            ensure!(*effect == Effect::GO_ON, "a conflict that is settled does not count");
            return Ok(());
        }
        let right = self.plain_effect(*at, *outcome)?;
        ensure!(*effect == right, "the table says {right:?}");
        Ok(())
    }

    /// Whether the step could be the next to have a result.
    fn is_next(&self, at: StepAt) -> Verdict {
        let inst = self.inst(at.0)?;
        match inst.cursor {
            Some(cursor) => ensure!(cursor == Route::Step(at.1), "the cursor is at {cursor:?}"),
            None => ensure!(self.st(at)?.at == At::Pending, "the step has a result already"),
        }
        Ok(())
    }
}

/// Whether a run goes on after this and does not fail by it.
fn is_good(outcome: Outcome, effect: Effect) -> bool {
    outcome != Outcome::Cancelled && effect.then == Then::GoOn && effect.verdict != Worst::Failed
}
