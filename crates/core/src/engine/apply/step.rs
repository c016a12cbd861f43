//! Steps: entered, attempted, tried again, ended.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    engine::{
        Assignment, AttemptEnd, AttemptId, Cost, Event, InstanceIx, Onward, Outcome, Proof, Role, Route,
        StepAt, StepReused,
        fold::Fold,
        state::{Completion, Deadline},
        transitions::Phase,
    },
    ir::{Effect, Verdict},
    time::{Millis, Time},
};

/// How a step ended, without what it gave.
#[derive(Debug, Clone, Copy)]
struct Ended {
    outcome: Outcome,
    effect: Effect,
    route: Option<Route>,
    settler: Option<u32>,
}

impl Fold<'_> {
    pub(in crate::engine) fn step_entered(&mut self, at: StepAt, deadline: Option<Time>) {
        self.state.entering.remove(&at);
        self.set_phase(at, Phase::Inside);
        let now = self.now;
        let more = self.more(at);
        more.children.clear();
        more.open_children = 0;
        more.failed_children = 0;
        more.child_error = None;
        more.total_attempts += 1;
        more.started.get_or_insert(now);
        self.set_step_deadline(at, deadline);
    }

    pub(in crate::engine) fn set_step_deadline(&mut self, at: StepAt, deadline: Option<Time>) {
        let Some(time) = deadline else { return };
        self.more(at).deadline = Some(time);
        self.state.deadlines.insert((time, Deadline::Step(at)));
    }

    pub(in crate::engine) fn attempt_started(
        &mut self,
        attempt: AttemptId,
        mode: crate::engine::Mode,
        given: Option<&Arc<crate::engine::Given>>,
        deadline: Option<Time>,
    ) {
        self.state.in_flight.insert(attempt);
        if attempt.role == Role::Undo {
            return self.undo_started(attempt, mode, given);
        }
        self.state.ready.remove(&attempt.at);
        let now = self.now;
        let more = self.more(attempt.at);
        more.live = Some(attempt);
        more.attempts[attempt.role as usize] = attempt.attempt;
        more.started.get_or_insert(now);
        if attempt.role == Role::Main {
            more.total_attempts += 1;
            if let Some(given) = given {
                more.given = Some(given.clone());
            }
        }
        let stage = more.next.stage;
        let given = given.or(more.given.as_ref()).cloned().expect("a first attempt says what it is given");
        let phase = match attempt.role {
            Role::Main => Phase::Running,
            Role::Check => Phase::Checking,
            Role::Summary | Role::Undo => Phase::Summing,
        };
        self.set_phase(attempt.at, phase);
        let limit = self.limit_of(attempt);
        self.state.commands.runs.insert(attempt, Assignment { given, mode, stage, limit });
        self.set_step_deadline(attempt.at, deadline);
    }

    /// What is spent in an instance is spent by the run, and by every step around it.
    fn spent(&mut self, mut ix: InstanceIx, cost: Cost) {
        if cost == Cost::default() {
            return;
        }
        self.state.spent.add(cost);
        while let Some(holder) = self.state.instance(ix).parent {
            self.more(holder).inside.add(cost);
            ix = holder.0;
        }
    }

    pub(in crate::engine) fn attempt_ended(
        &mut self,
        attempt: &AttemptId,
        end: &AttemptEnd,
        cost: Cost,
        proofs: &[Proof],
    ) {
        self.state.commands.runs.remove(attempt);
        self.state.in_flight.remove(attempt);
        self.spent(attempt.at.0, cost);
        if attempt.role == Role::Undo {
            if let Some(walk) = self.walk(attempt.at) {
                walk.live = None;
                walk.interruptions += u32::from(*end == AttemptEnd::Interrupted);
            }
            return;
        }
        let more = self.more(attempt.at);
        more.cost.add(cost);
        more.live = None;
        if attempt.role == Role::Main {
            more.proofs = proofs.to_vec();
        }
        more.unmerged = matches!(end, AttemptEnd::Unmerged { .. });
        match (attempt.role, end) {
            (Role::Main, AttemptEnd::Succeeded { output } | AttemptEnd::Unmerged { output, .. }) => {
                more.result = output.clone();
            }
            (Role::Summary, AttemptEnd::Succeeded { output }) => {
                more.summary = output.as_str().map(str::to_owned).or_else(|| Some(output.to_string()));
            }
            (_, AttemptEnd::Interrupted) => more.interruptions += 1,
            (Role::Check, AttemptEnd::Checked { finding, .. }) => {
                more.undecided =
                    if *finding == crate::engine::Finding::Undecided { more.undecided + 1 } else { 0 };
            }
            _ => {}
        }
        if let AttemptEnd::Checked {
            finding: crate::engine::Finding::Incomplete, reasons, fingerprints, ..
        } = end
            && let Some(key) = crate::engine::stall::key(reasons, fingerprints)
        {
            let count = match more.stall {
                Some((last, count)) if last == key => count + 1,
                _ => 1,
            };
            more.stall = Some((key, count));
        }
    }

    /// The step goes back to waiting for its next attempt.
    pub(in crate::engine) fn goes_on(&mut self, at: StepAt, next: Onward) {
        if next.role == Role::Undo {
            return self.undo_goes_on(at, next);
        }
        self.turn_to(at, next);
        self.make_ready(at);
    }

    /// What comes next is this. A new iteration counts its attempts anew.
    pub(in crate::engine) fn turn_to(&mut self, at: StepAt, next: Onward) {
        let fresh = self.policy(at).retry.fresh_per_iteration;
        let more = self.more(at);
        if next.iteration != more.next.iteration {
            more.attempts = [0; 4];
            if fresh {
                more.tries = 0;
            }
        }
        if next.stage != more.next.stage
            && let Some((_, count)) = &mut more.stall
        {
            *count = 0;
        }
        more.next = next;
    }

    pub(in crate::engine) fn retry_scheduled(&mut self, at: StepAt, due: Time, error: &crate::engine::Error) {
        if let Some(of) = self.walk_at(at) {
            let walk = self.state.walks.get_mut(&of).expect("a step is undone by a walk that began");
            walk.tries += 1;
            walk.due = Some(due);
            self.state.deadlines.insert((due, Deadline::Undo(of)));
            return;
        }
        self.end_try(at);
        let keeps = self.policy(at).keeps_slot;
        if !keeps {
            self.free_slot(at);
        }
        self.set_phase(at, Phase::Backoff);
        let more = self.more(at);
        more.tries += 1;
        more.error = Some(error.clone());
        more.due = Some(due);
        self.state.deadlines.insert((due, Deadline::Retry(at)));
    }

    pub(in crate::engine) fn step_ended(&mut self, event: &Event) {
        let Event::StepEnded { at, outcome, output, error, effect, route, settler } = event else { return };
        let end = Ended { outcome: *outcome, effect: *effect, route: *route, settler: *settler };
        self.end(*at, end, output, error.as_ref());
    }

    pub(in crate::engine) fn step_reused(&mut self, reused: &StepReused) {
        let StepReused { at, outcome, output, error, effect, route, settler, .. } = reused;
        let end = Ended { outcome: *outcome, effect: *effect, route: *route, settler: *settler };
        self.end(*at, end, output, error.as_ref());
        let more = self.more(*at);
        more.reused = true;
        if let Some(attempt) = reused.attempt {
            more.attempts[Role::Main as usize] = attempt.attempt;
            more.next.iteration = attempt.iteration;
        }
        more.total_attempts = reused.attempts;
        more.summary.clone_from(&reused.summary);
        more.items.clone_from(&reused.items);
        (more.started, more.ended) = (reused.started, Some(reused.ended));
    }

    fn end(&mut self, at: StepAt, ended: Ended, output: &Arc<Value>, error: Option<&crate::engine::Error>) {
        let Ended { outcome, effect, route, settler } = ended;
        // A condition that is false counts too, or a cursor could go round for ever.
        if !matches!(outcome, Outcome::Skipped(crate::engine::Skip::Upstream(_))) {
            self.arrive(at);
        }
        self.clear_step(at);
        self.free_slot(at);
        self.set_phase(at, Phase::Done);
        let now = self.now;
        let more = self.more(at);
        more.ended = Some(now);
        more.error = error.cloned();
        more.settler = settler;
        let step = &mut self.instance(at.0).steps[at.1 as usize];
        step.outcome = Some(outcome);
        step.effect = Some(effect);
        step.output = output.clone();
        self.count_end(at, ended, output, error);
        self.instance(at.0).cursor = route;
        if route.is_none() {
            self.satisfy_dependents(at, effect);
        }
    }

    /// What a step's end means for the counters of its instance.
    fn count_end(
        &mut self,
        at: StepAt,
        ended: Ended,
        output: &Arc<Value>,
        error: Option<&crate::engine::Error>,
    ) {
        let Ended { outcome, effect, settler, .. } = ended;
        let entry = self.entry(at.0);
        let step = entry.step(at.1);
        let branch = matches!(step.kind, crate::ir::Kind::Branch(_));
        let undoable = step.undo.is_some();
        let visit = self.state.step(at).visit;
        let children = self.state.more(at).map_or(&[][..], |more| &more.children);
        let degraded =
            children.iter().any(|ix| self.state.instance(*ix).end().is_some_and(|end| end.degraded));
        let inside = if degraded { Verdict::Degraded } else { Verdict::Clean };
        let order = self.state.completions;
        let instance = self.instance(at.0);
        instance.open = instance.open.saturating_sub(1);
        instance.verdict = instance.verdict.max(effect.verdict).max(inside);
        if effect.verdict == Verdict::Failed && instance.error.is_none() {
            instance.error = error.cloned().map(|mut error| {
                error.origin.get_or_insert(at);
                error
            });
        }
        if outcome == Outcome::Succeeded && !branch {
            instance.last_output = output.clone();
        }
        // What only could not be merged was done.
        if undoable && (outcome == Outcome::Succeeded || settler.is_some()) {
            instance.completed.push(Completion { step: at.1, visit, order, output: output.clone() });
            self.state.completions += 1;
        }
    }

    pub(in crate::engine) fn limit_of(&self, attempt: AttemptId) -> Option<Millis> {
        let step = self.entry(attempt.at.0).step(attempt.at.1);
        crate::engine::limit::of(step, attempt.role)
    }
}
