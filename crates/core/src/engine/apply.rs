//! Folds one durable fact into the state. Total: it evaluates no expression and no policy and cannot refuse.
//!
//! Owns every change of [`RunState`]. What an event leaves to be done is not worked out here but by `decide`, so
//! that replay is nothing but this.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use super::{
    Assignment, AttemptEnd, AttemptId, Cost, Decision, Event, Halt, InstanceEnd, InstanceIx, Onward, Opening,
    Outcome, Part, Publication, Role, Start, StepAt, UndoTarget, Walk,
    fold::{Fold, new_steps},
    state::{
        Cancel, Completion, Deadline, Instance, InstancePhase, OpeningKind, OpeningState, RunEnd, RunPhase,
        RunState, WalkState, null,
    },
    transitions::Phase,
};
use crate::{
    ir::{Effect, RunStatus, Siblings, Verdict},
    plan::{Plan, ScopeIx},
    time::{Millis, Time},
};

/// Folds one event that happened at this time into the state.
pub fn apply(plan: &Plan, state: &mut RunState, at: Time, event: &Event) {
    state.events += 1;
    state.now = at;
    let mut fold = Fold { plan, state, now: at };
    fold.event(event);
    fold.state.commands.wake = fold.state.deadlines.first().map(|(time, _)| *time);
}

impl Fold<'_> {
    fn event(&mut self, event: &Event) {
        match event {
            Event::RunStarted { start, definition, parameters, env, deadline, publish } => {
                self.state.definition = *definition;
                self.run_started(start, parameters, env, *deadline, publish);
            }
            Event::InstanceStarted { parent, part, input, env, deadline } => {
                self.instance_started(*parent, *part, input.as_ref(), env, *deadline);
            }
            Event::InstanceHalted { instance, why, undo } => self.instance_halted(*instance, why, *undo),
            Event::InstanceEnded { instance, end } => self.instance_ended(*instance, end),
            Event::StepReady { at } => {
                self.arrive(*at);
                self.make_ready(*at);
            }
            Event::StepOverdue { at } => {
                self.drop_step_deadline(*at);
                self.more(*at).stopping = Some(super::Stop::Timeout);
            }
            Event::StepExpanded { at, items } => self.more(*at).items = Some(items.clone()),
            Event::StepEntered { at, deadline } => self.step_entered(*at, *deadline),
            Event::AttemptStarted { attempt, mode, given, deadline } => {
                self.attempt_started(*attempt, *mode, given.as_ref(), *deadline);
            }
            Event::StopAsked { attempt, why } => {
                self.state.commands.runs.remove(attempt);
                self.more(attempt.at).stopping = Some(*why);
                self.set_phase(attempt.at, Phase::Stopping);
            }
            Event::AttemptEnded { attempt, end, cost } => self.attempt_ended(attempt, end, *cost),
            Event::StepGoesOn { at, next } => self.goes_on(*at, *next),
            Event::RetryScheduled { at, due, error } => self.retry_scheduled(*at, *due, error),
            Event::StepHeld { .. }
            | Event::Opened { .. }
            | Event::Escalated { .. }
            | Event::Decided { .. } => {
                self.opening_event(event);
            }
            Event::SignalKept { name, payload } => {
                self.state.signals.push_back((name.clone(), payload.clone()))
            }
            Event::SignalTaken { opening, name, kept, .. } => {
                self.close(*opening);
                if *kept && let Some(i) = self.state.signals.iter().position(|(kept, _)| kept == name) {
                    self.state.signals.remove(i);
                }
            }
            Event::StepEnded { .. } => self.step_ended(event),
            Event::CancelAsked { by, reason } => {
                let cancel = Cancel { by: by.clone(), reason: reason.clone(), at: self.now };
                self.state.cancel.get_or_insert(cancel);
            }
            Event::UndoBegan { of, targets, uncertain } => self.undo_began(*of, targets, uncertain),
            Event::StepUndone { at, .. } => self.undo_step_over(*at, true),
            Event::UndoFailed { at, .. } => self.undo_step_over(*at, false),
            Event::UndoEnded { of, clean } => self.undo_ended(*of, *clean),
            Event::RunDecided { status, output, error, degraded, publish, retry } => {
                self.state.phase = RunPhase::Decided;
                let end = RunEnd {
                    status: *status,
                    output: output.clone(),
                    error: error.clone(),
                    degraded: *degraded,
                    at: self.now,
                    retry: *retry,
                };
                self.state.end = Some(end);
                self.state.commands.publish.extend(publish);
            }
            Event::PublicationEnded { item, .. } => {
                self.state.commands.publish.remove(item);
            }
            Event::Closed => self.state.phase = RunPhase::Closed,
            Event::Quarantined { message } => {
                self.state.phase = RunPhase::Quarantined;
                self.state.quarantine = Some(message.clone());
                self.state.deadlines.clear();
                self.state.in_flight.clear();
                self.state.ready.clear();
                self.state.entering.clear();
                self.state.undoable.clear();
                self.state.commands = super::Commands::default();
            }
        }
    }

    fn run_started(
        &mut self,
        start: &Start,
        parameters: &Arc<Value>,
        env: &Arc<Value>,
        deadline: Option<Time>,
        publish: &[Publication],
    ) {
        self.state.phase = RunPhase::Going;
        self.state.start = Some(Box::new(start.clone()));
        self.state.commands.publish.extend(publish);
        let root = self.plan.definition.root().root;
        self.add_instance(root, None, None, parameters.clone(), env.clone(), deadline);
    }

    fn instance_started(
        &mut self,
        parent: StepAt,
        part: Part,
        input: Option<&Arc<Value>>,
        env: &Arc<Value>,
        deadline: Option<Time>,
    ) {
        let which = if let Part::Lane(lane) = part { lane } else { 0 };
        let scope = self.entry(parent.0).inner(parent.1, which);
        let input = input.cloned().unwrap_or_else(null);
        let ix = self.add_instance(scope, Some(parent), Some(part), input, env.clone(), deadline);
        let more = self.more(parent);
        more.children.push(ix);
        more.open_children += 1;
    }

    fn add_instance(
        &mut self,
        scope: ScopeIx,
        parent: Option<StepAt>,
        part: Option<Part>,
        input: Arc<Value>,
        env: Arc<Value>,
        deadline: Option<Time>,
    ) -> InstanceIx {
        let ix = InstanceIx(u32::try_from(self.state.instances.len()).expect("instances are limited"));
        let home = match (parent, part) {
            (Some(parent), Some(Part::Lane(_) | Part::Item(_) | Part::Pass(_))) => {
                self.state.instance(parent.0).home
            }
            _ => ix,
        };
        let steps = new_steps(self.plan.definition.scope(scope));
        let open = u32::try_from(steps.len()).expect("steps are limited");
        self.state.phases[Phase::Pending as usize] += open;
        self.state.instances.push(Instance {
            scope,
            parent,
            part,
            home,
            phase: InstancePhase::Going,
            steps,
            input,
            env,
            members: Vec::new(),
            executed: 0,
            open,
            live: 0,
            slots: 0,
            queue: BTreeSet::new(),
            verdict: Verdict::Clean,
            error: None,
            last_output: null(),
            cursor: None,
            completed: Vec::new(),
            undo_asked: false,
            stuck: false,
            deadline,
            started: self.now,
            ended: None,
        });
        self.state.instances[home.0 as usize].members.push(ix);
        if let Some(time) = deadline {
            self.state.deadlines.insert((time, Deadline::Instance(ix)));
        }
        ix
    }

    fn instance_halted(&mut self, ix: InstanceIx, why: &Halt, undo: bool) {
        self.forget_unstarted(ix);
        let drain = self.entry(ix).scope.siblings == Siblings::Drain && matches!(why, Halt::Failed { .. });
        // What is drained still has to be done in time.
        if !drain {
            self.drop_instance_deadline(ix);
            self.instance(ix).queue.clear();
        }
        self.instance(ix).undo_asked = undo;
        self.instance(ix).phase = InstancePhase::Halted { why: why.clone(), undo };
    }

    fn instance_ended(&mut self, ix: InstanceIx, end: &InstanceEnd) {
        self.drop_instance_deadline(ix);
        let now = self.now;
        let instance = self.instance(ix);
        let why = instance.halt().cloned();
        let outer = why == Some(Halt::Outer);
        instance.phase = InstancePhase::Ended { why, end: end.clone() };
        instance.ended = Some(now);
        let stuck = instance.stuck;
        let (parent, home) = (instance.parent, instance.home);
        if stuck && home != ix {
            self.instance(home).stuck = true;
        }
        let Some(parent) = parent else { return };
        let more = self.more(parent);
        more.open_children -= 1;
        if end.status != RunStatus::Succeeded && !outer {
            more.failed_children += 1;
            if more.child_error.is_none() {
                more.child_error.clone_from(&end.error);
            }
        }
    }

    fn drop_instance_deadline(&mut self, ix: InstanceIx) {
        if let Some(time) = self.instance(ix).deadline.take() {
            self.state.deadlines.remove(&(time, Deadline::Instance(ix)));
        }
    }

    fn step_entered(&mut self, at: StepAt, deadline: Option<Time>) {
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

    fn set_step_deadline(&mut self, at: StepAt, deadline: Option<Time>) {
        let Some(time) = deadline else { return };
        self.more(at).deadline = Some(time);
        self.state.deadlines.insert((time, Deadline::Step(at)));
    }

    fn attempt_started(
        &mut self,
        attempt: AttemptId,
        mode: super::Mode,
        given: Option<&Arc<super::Given>>,
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

    fn attempt_ended(&mut self, attempt: &AttemptId, end: &AttemptEnd, cost: Cost) {
        self.state.commands.runs.remove(attempt);
        self.state.in_flight.remove(attempt);
        self.state.spent.add(cost);
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
        match (attempt.role, end) {
            (Role::Main, AttemptEnd::Succeeded { output }) => more.result = output.clone(),
            (Role::Summary, AttemptEnd::Succeeded { output }) => {
                more.summary = output.as_str().map(str::to_owned).or_else(|| Some(output.to_string()));
            }
            (_, AttemptEnd::Interrupted) => more.interruptions += 1,
            (Role::Check, AttemptEnd::Checked { finding, .. }) => {
                more.undecided = if *finding == super::Finding::Undecided { more.undecided + 1 } else { 0 };
            }
            (Role::Check, AttemptEnd::Succeeded { .. }) => more.undecided = 0,
            _ => {}
        }
        if let AttemptEnd::Checked { finding: super::Finding::Incomplete, reasons, fingerprints } = end
            && let Some(key) = super::stall::key(reasons, fingerprints)
        {
            let count = match more.stall {
                Some((last, count)) if last == key => count + 1,
                _ => 1,
            };
            more.stall = Some((key, count));
        }
    }

    /// The step goes back to waiting for its next attempt.
    fn goes_on(&mut self, at: StepAt, next: Onward) {
        if next.role == Role::Undo {
            return self.undo_goes_on(at, next);
        }
        self.turn_to(at, next);
        self.make_ready(at);
    }

    /// What comes next is this. A new iteration counts its attempts anew.
    fn turn_to(&mut self, at: StepAt, next: Onward) {
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

    fn retry_scheduled(&mut self, at: StepAt, due: Time, error: &super::Error) {
        if let Some(of) = self.walk_at(at) {
            let walk = self.state.walks.get_mut(&of).expect("a step is undone by a walk that began");
            walk.tries += 1;
            walk.due = Some(due);
            self.state.deadlines.insert((due, Deadline::Undo(of)));
            return;
        }
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

    fn opening_event(&mut self, event: &Event) {
        match event {
            Event::StepHeld { at, opening, reason, until, message, approvers, next } => {
                self.arrive(*at);
                self.state.ready.remove(at);
                self.instance(at.0).queue.remove(&at.1);
                self.free_slot(*at);
                self.set_phase(*at, Phase::Held);
                self.turn_to(*at, *next);
                self.more(*at).held = Some(*reason);
                let kind = OpeningKind::Hold(*reason);
                self.open(*at, *opening, kind, *until, approvers, message, null());
            }
            Event::Opened { at, opening, deadline, approvers, message, shows } => {
                self.arrive(*at);
                let gate = matches!(self.entry(at.0).step(at.1).kind, crate::ir::Kind::Gate(_));
                self.set_phase(*at, if gate { Phase::Gated } else { Phase::Waiting });
                let now = self.now;
                self.more(*at).started = Some(now);
                let kind = if gate { OpeningKind::Gate } else { OpeningKind::Wait };
                self.open(*at, *opening, kind, *deadline, approvers, message, shows.clone());
            }
            Event::Escalated { opening, deadline, approvers } => {
                self.drop_opening_deadline(*opening);
                let state = &mut self.state.openings[opening.0 as usize];
                state.deadline = Some(*deadline);
                state.approvers.clone_from(approvers);
                state.escalated = true;
                self.state.deadlines.insert((*deadline, Deadline::Opening(*opening)));
            }
            Event::Decided { opening, decision, by, .. } => {
                let now = self.now;
                self.close(*opening);
                let state = &mut self.state.openings[opening.0 as usize];
                state.decided = Some((by.clone(), now));
                let budget = state.kind == OpeningKind::Hold(crate::ir::HoldReason::Budget);
                let at = state.at;
                if budget && *decision == Decision::Approve {
                    self.more(at).waived_budget = true;
                }
            }
            _ => {}
        }
    }

    #[expect(clippy::too_many_arguments, reason = "an opening is made here and nowhere else")]
    fn open(
        &mut self,
        at: StepAt,
        opening: Opening,
        kind: OpeningKind,
        deadline: Option<Time>,
        approvers: &[crate::ir::Approver],
        message: &str,
        shows: Arc<Value>,
    ) {
        self.more(at).opening = Some(opening);
        if let crate::ir::Kind::Wait(wait) = &self.entry(at.0).step(at.1).kind
            && kind == OpeningKind::Wait
        {
            for name in &wait.on {
                self.state.waits.entry(name.clone()).or_default().insert(opening);
            }
        }
        self.state.openings.push(OpeningState {
            at,
            kind,
            approvers: approvers.to_vec(),
            message: message.to_owned(),
            shows,
            deadline,
            escalated: false,
            opened: self.now,
            decided: None,
            closed: false,
        });
        if let Some(time) = deadline {
            self.state.deadlines.insert((time, Deadline::Opening(opening)));
        }
    }

    fn step_ended(&mut self, event: &Event) {
        let Event::StepEnded { at, outcome, output, summary, error, effect, route } = event else { return };
        // A condition that is false counts too, or a cursor could go round for ever.
        if !matches!(outcome, Outcome::Skipped(super::Skip::Upstream(_))) {
            self.arrive(*at);
        }
        self.clear_step(*at);
        self.free_slot(*at);
        self.set_phase(*at, Phase::Done);
        let now = self.now;
        let more = self.more(*at);
        more.ended = Some(now);
        more.error.clone_from(error);
        if let Some(summary) = summary {
            more.summary = Some(summary.clone());
        }
        let step = &mut self.instance(at.0).steps[at.1 as usize];
        step.outcome = Some(*outcome);
        step.effect = Some(*effect);
        step.output = output.clone();
        self.count_end(*at, *outcome, output, *effect, error.as_ref());
        self.instance(at.0).cursor = *route;
        if effect.satisfies && route.is_none() {
            self.satisfy_dependents(*at);
        }
    }

    /// What a step's end means for the counters of its instance.
    fn count_end(
        &mut self,
        at: StepAt,
        outcome: Outcome,
        output: &Arc<Value>,
        effect: Effect,
        error: Option<&super::Error>,
    ) {
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
        if outcome == Outcome::Succeeded {
            if !branch {
                instance.last_output = output.clone();
            }
            if undoable {
                instance.completed.push(Completion { step: at.1, visit, order, output: output.clone() });
                self.state.completions += 1;
            }
        }
    }

    fn undo_began(&mut self, of: Walk, targets: &[UndoTarget], uncertain: &[StepAt]) {
        self.state.phase = RunPhase::Going;
        self.state.end = None;
        match of {
            Walk::Workflow(ix) => {
                self.drop_instance_deadline(ix);
                let instance = self.instance(ix);
                let why = instance.halt().cloned().unwrap_or_else(|| ended_badly(instance));
                instance.phase = InstancePhase::Undoing { why };
                instance.ended = None;
            }
            Walk::Composite(at) => self.set_phase(at, Phase::Unwinding),
        }
        let undone = self.state.walks.get(&of).map_or(0, |walk| walk.undone);
        let walk = WalkState {
            targets: targets.to_vec(),
            at: 0,
            live: None,
            mode: super::Mode::Fresh,
            given: None,
            attempts: 0,
            tries: 0,
            interruptions: 0,
            due: None,
            undone,
            failed: 0,
            uncertain: uncertain.to_vec(),
            ended: false,
        };
        self.state.walks.insert(of, walk);
        self.next_undo(of);
    }

    /// Makes the walk's present target the one that is being undone.
    fn next_undo(&mut self, of: Walk) {
        let walk = &self.state.walks[&of];
        if let Some(target) = walk.targets.get(walk.at).copied() {
            self.state.undoable.insert(of);
            self.state.undoing.insert(target.at, of);
            self.set_phase(target.at, Phase::Undoing);
            self.more(target.at).undo_turns += 1;
        }
    }

    fn walk(&mut self, at: StepAt) -> Option<&mut WalkState> {
        let of = self.walk_at(at)?;
        self.state.walks.get_mut(&of)
    }

    fn undo_goes_on(&mut self, at: StepAt, next: Onward) {
        let Some(of) = self.walk_at(at) else { return };
        self.state.undoable.insert(of);
        let walk = self.state.walks.get_mut(&of).expect("a step is undone by a walk that began");
        walk.mode = next.mode;
        if let Some(due) = walk.due.take() {
            self.state.deadlines.remove(&(due, Deadline::Undo(of)));
        }
    }

    fn undo_started(&mut self, attempt: AttemptId, mode: super::Mode, given: Option<&Arc<super::Given>>) {
        let Some(of) = self.walk_at(attempt.at) else { return };
        self.state.undoable.remove(&of);
        let limit = self.limit_of(attempt);
        let walk = self.state.walks.get_mut(&of).expect("a step is undone by a walk that began");
        walk.live = Some(attempt);
        walk.attempts = attempt.attempt;
        if let Some(given) = given {
            walk.given = Some(given.clone());
        }
        let given = walk.given.clone().expect("a first attempt says what it is given");
        self.state.commands.runs.insert(attempt, Assignment { given, mode, stage: 1, limit });
    }

    fn undo_step_over(&mut self, at: StepAt, undone: bool) {
        let Some(of) = self.walk_at(at) else { return };
        self.state.undoable.remove(&of);
        self.state.undoing.remove(&at);
        let walk = self.state.walks.get_mut(&of).expect("a step is undone by a walk that began");
        let target = walk.targets[walk.at];
        walk.at += 1;
        (walk.attempts, walk.tries, walk.interruptions) = (0, 0, 0);
        (walk.mode, walk.given) = (super::Mode::Fresh, None);
        if undone {
            walk.undone += 1;
        } else {
            walk.failed += 1;
        }
        let completed = &mut self.instance(at.0).completed;
        if undone {
            completed.retain(|done| (done.step, done.visit) != (at.1, target.visit));
        }
        // A step is undone when all of its visits are.
        let left = !undone || completed.iter().any(|done| done.step == at.1);
        self.set_phase(at, if left { Phase::Stuck } else { Phase::Undone });
        self.next_undo(of);
    }

    fn undo_ended(&mut self, of: Walk, clean: bool) {
        self.state.undoable.remove(&of);
        let walk = self.state.walks.get_mut(&of).expect("a walk ends after it began");
        walk.ended = true;
        let rest: Vec<UndoTarget> = walk.targets[walk.at.min(walk.targets.len())..].to_vec();
        for target in rest {
            self.state.undoing.remove(&target.at);
            if self.state.step(target.at).phase == Phase::Undoing {
                self.set_phase(target.at, Phase::Done);
            }
        }
        let home = match of {
            Walk::Workflow(ix) => ix,
            Walk::Composite(at) => self.state.instance(at.0).home,
        };
        if matches!(of, Walk::Workflow(_)) || !clean {
            self.instance(home).stuck = !clean;
        }
    }

    fn limit_of(&self, attempt: AttemptId) -> Option<Millis> {
        let step = self.entry(attempt.at.0).step(attempt.at.1);
        super::limit::of(step, attempt.role)
    }
}

/// Why an instance is over that was never halted: one of its steps failed it.
fn ended_badly(instance: &Instance) -> Halt {
    let error = instance.end().and_then(|end| end.error.clone());
    let unknown = || super::Error {
        class: crate::ir::ErrorClass::NonRetryable,
        code: None,
        message: "it ended in a way that fails the workflow".to_owned(),
        origin: None,
    };
    Halt::Limit { error: error.unwrap_or_else(unknown) }
}
