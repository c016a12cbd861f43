//! Step events: entered, attempted, scheduled for retry, held, ended; and the gates, waits and holds that steps open.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use crate::{
    engine::{
        AttemptAssignment, AttemptEnd, AttemptId, AttemptInput, AttemptMode, AttemptRole, CheckFinding, Cost,
        CursorRoute, Event, EvidenceResult, ExecutionError, InstanceIx, NextAction, SkipReason, StepAt, StepOutcome,
        StepReused, Waitpoint,
        apply::StateFold,
        state::{CompletedVisit, Deadline, WaitpointKind, WaitpointState, null},
        transitions::StepPhase,
    },
    ir::{Approver, OutcomeEffect, RunImpact, Step, StepKindSpec, TimeoutScope},
    plan::ContentHash,
    time::{Millis, Timestamp},
};

/// The end of a step, without its output and error.
#[derive(Debug, Clone, Copy)]
struct StepEndEffects {
    outcome: StepOutcome,
    effect: OutcomeEffect,
    route: Option<CursorRoute>,
    settler: Option<u32>,
}

impl StateFold<'_> {
    pub(in crate::engine) fn apply_step_entered(&mut self, at: StepAt, deadline: Option<Timestamp>) {
        self.state.entering.remove(&at);
        self.set_phase(at, StepPhase::Inside);
        let now = self.now;
        let more = self.visit_state_mut(at);
        more.children.clear();
        more.open_children = 0;
        more.failed_children = 0;
        more.child_error = None;
        more.total_attempts += 1;
        more.started.get_or_insert(now);
        self.set_step_deadline(at, deadline);
    }

    fn set_step_deadline(&mut self, at: StepAt, deadline: Option<Timestamp>) {
        let Some(time) = deadline else { return };
        self.visit_state_mut(at).deadline = Some(time);
        self.state.deadlines.insert((time, Deadline::Step(at)));
    }

    pub(in crate::engine) fn apply_attempt_started(
        &mut self,
        attempt: AttemptId,
        mode: AttemptMode,
        given: Option<&Arc<AttemptInput>>,
        deadline: Option<Timestamp>,
    ) {
        self.state.in_flight.insert(attempt);
        if attempt.role == AttemptRole::Undo {
            return self.start_undo_attempt(attempt, mode, given);
        }
        self.state.ready.remove(&attempt.at);
        let now = self.now;
        let more = self.visit_state_mut(attempt.at);
        more.live = Some(attempt);
        more.attempts[attempt.role as usize] = attempt.attempt;
        more.started.get_or_insert(now);
        if attempt.role == AttemptRole::Main {
            more.total_attempts += 1;
            if let Some(given) = given {
                more.given = Some(given.clone());
            }
        }
        let stage = more.next.stage;
        let given = given.or(more.given.as_ref()).cloned().expect("a first attempt says what it is given");
        let phase = match attempt.role {
            AttemptRole::Main => StepPhase::Running,
            AttemptRole::Check => StepPhase::Checking,
            AttemptRole::Summary | AttemptRole::Undo => StepPhase::Summing,
        };
        self.set_phase(attempt.at, phase);
        let limit = self.attempt_time_limit(attempt);
        self.state.commands.runs.insert(attempt, AttemptAssignment { given, mode, stage, limit });
        self.set_step_deadline(attempt.at, deadline);
    }

    /// Adds a cost to the run and to every step around the instance.
    fn add_cost(&mut self, mut ix: InstanceIx, cost: Cost) {
        if cost == Cost::default() {
            return;
        }
        self.state.spent.add(cost);
        while let Some(holder) = self.state.instance(ix).parent {
            self.visit_state_mut(holder).inside.add(cost);
            ix = holder.0;
        }
    }

    pub(in crate::engine) fn apply_attempt_ended(
        &mut self,
        attempt: &AttemptId,
        end: &AttemptEnd,
        cost: Cost,
        proofs: &[EvidenceResult],
    ) {
        self.state.commands.runs.remove(attempt);
        self.state.in_flight.remove(attempt);
        self.add_cost(attempt.at.0, cost);
        if attempt.role == AttemptRole::Undo {
            if let Some(walk) = self.undo_walk_mut(attempt.at) {
                walk.live = None;
                walk.interruptions += u32::from(*end == AttemptEnd::Interrupted);
            }
            return;
        }
        let more = self.visit_state_mut(attempt.at);
        more.cost.add(cost);
        more.live = None;
        if attempt.role == AttemptRole::Main {
            more.proofs = proofs.to_vec();
        }
        more.unmerged = matches!(end, AttemptEnd::Unmerged { .. });
        match (attempt.role, end) {
            (AttemptRole::Main, AttemptEnd::Succeeded { output } | AttemptEnd::Unmerged { output, .. }) => {
                more.result = output.clone();
            }
            (AttemptRole::Summary, AttemptEnd::Succeeded { output }) => {
                more.summary = output.as_str().map(str::to_owned).or_else(|| Some(output.to_string()));
            }
            (_, AttemptEnd::Interrupted) => more.interruptions += 1,
            (AttemptRole::Check, AttemptEnd::Checked { finding, .. }) => {
                more.undecided = if *finding == CheckFinding::Undecided { more.undecided + 1 } else { 0 };
            }
            _ => {}
        }
        if let AttemptEnd::Checked { finding: CheckFinding::Incomplete, reasons, fingerprints, .. } = end
            && let Some(key) = hash_finding(reasons, fingerprints)
        {
            let count = match more.stall {
                Some((last, count)) if last == key => count + 1,
                _ => 1,
            };
            more.stall = Some((key, count));
        }
    }

    /// Makes the step ready for its next attempt.
    pub(in crate::engine) fn apply_step_goes_on(&mut self, at: StepAt, next: NextAction) {
        if next.role == AttemptRole::Undo {
            return self.resume_undo_walk(at, next);
        }
        self.set_next_action(at, next);
        self.make_ready(at);
    }

    /// Sets the next action of a step. A new iteration resets the attempt counters.
    fn set_next_action(&mut self, at: StepAt, next: NextAction) {
        let fresh = self.step_policy(at).retry.fresh_per_iteration;
        let more = self.visit_state_mut(at);
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

    pub(in crate::engine) fn apply_retry_scheduled(&mut self, at: StepAt, due: Timestamp, error: &ExecutionError) {
        if let Some(of) = self.find_undo_walk(at) {
            let walk = self.state.walks.get_mut(&of).expect("a step is undone by a walk that began");
            walk.tries += 1;
            walk.due = Some(due);
            self.state.deadlines.insert((due, Deadline::Undo(of)));
            return;
        }
        self.end_try(at);
        let keeps = self.step_policy(at).keeps_slot;
        if !keeps {
            self.free_slot(at);
        }
        self.set_phase(at, StepPhase::Backoff);
        let more = self.visit_state_mut(at);
        more.tries += 1;
        more.error = Some(error.clone());
        more.due = Some(due);
        self.state.deadlines.insert((due, Deadline::Retry(at)));
    }

    pub(in crate::engine) fn apply_step_ended(&mut self, event: &Event) {
        let Event::StepEnded { at, outcome, output, error, effect, route, settler } = event else { return };
        let end = StepEndEffects { outcome: *outcome, effect: *effect, route: *route, settler: *settler };
        self.record_step_end(*at, end, output, error.as_ref());
    }

    pub(in crate::engine) fn apply_step_reused(&mut self, reused: &StepReused) {
        let StepReused { at, outcome, output, error, effect, route, settler, .. } = reused;
        let end = StepEndEffects { outcome: *outcome, effect: *effect, route: *route, settler: *settler };
        self.record_step_end(*at, end, output, error.as_ref());
        let more = self.visit_state_mut(*at);
        more.reused = true;
        if let Some(attempt) = reused.attempt {
            more.attempts[AttemptRole::Main as usize] = attempt.attempt;
            more.next.iteration = attempt.iteration;
        }
        more.total_attempts = reused.attempts;
        more.summary.clone_from(&reused.summary);
        more.items.clone_from(&reused.items);
        (more.started, more.ended) = (reused.started, Some(reused.ended));
    }

    fn record_step_end(
        &mut self,
        at: StepAt,
        ended: StepEndEffects,
        output: &Arc<Value>,
        error: Option<&ExecutionError>,
    ) {
        let StepEndEffects { outcome, effect, route, settler } = ended;
        // A visit that is skipped by its condition counts too; otherwise a cursor could cycle for ever.
        if !matches!(outcome, StepOutcome::Skipped(SkipReason::Upstream(_))) {
            self.begin_visit(at);
        }
        self.clear_step(at);
        self.free_slot(at);
        self.set_phase(at, StepPhase::Done);
        let now = self.now;
        let more = self.visit_state_mut(at);
        more.ended = Some(now);
        more.error = error.cloned();
        more.settler = settler;
        let step = &mut self.instance_mut(at.0).steps[at.1 as usize];
        step.outcome = Some(outcome);
        step.effect = Some(effect);
        step.output = output.clone();
        self.count_end(at, ended, output, error);
        self.instance_mut(at.0).cursor = route;
        if route.is_none() {
            self.satisfy_dependents(at, effect);
        }
    }

    /// Updates the counters of the instance after a step ended.
    fn count_end(&mut self, at: StepAt, ended: StepEndEffects, output: &Arc<Value>, error: Option<&ExecutionError>) {
        let StepEndEffects { outcome, effect, settler, .. } = ended;
        let entry = self.scope_entry(at.0);
        let step = entry.step(at.1);
        let branch = matches!(step.kind, StepKindSpec::Branch(_));
        let undoable = step.undo.is_some();
        let visit = self.state.step(at).visit;
        let children = self.state.visit_state(at).map_or(&[][..], |more| &more.children);
        let degraded = children.iter().any(|ix| self.state.instance(*ix).end().is_some_and(|end| end.degraded));
        let inside = if degraded { RunImpact::Degraded } else { RunImpact::Clean };
        let order = self.state.completions;
        let instance = self.instance_mut(at.0);
        instance.open = instance.open.saturating_sub(1);
        instance.verdict = instance.verdict.max(effect.verdict).max(inside);
        if effect.verdict == RunImpact::Failed && instance.error.is_none() {
            instance.error = error.cloned().map(|mut error| {
                error.origin.get_or_insert(at);
                error
            });
        }
        if outcome == StepOutcome::Succeeded && !branch {
            instance.last_output = output.clone();
        }
        // The work of a step whose changes could not be merged was completed.
        if undoable && (outcome == StepOutcome::Succeeded || settler.is_some()) {
            instance.completed.push(CompletedVisit { step: at.1, visit, order, output: output.clone() });
            self.state.completions += 1;
        }
    }

    pub(in crate::engine) fn attempt_time_limit(&self, attempt: AttemptId) -> Option<Millis> {
        let step = self.scope_entry(attempt.at.0).step(attempt.at.1);
        attempt_time_limit(step, attempt.role)
    }
}

/// Returns the time limit of one attempt of a step, by role.
fn attempt_time_limit(step: &Step, role: AttemptRole) -> Option<Millis> {
    let StepKindSpec::Work(work) = &step.kind else {
        return step.undo.as_ref().and_then(|undo| undo.timeout).filter(|_| role == AttemptRole::Undo);
    };
    match role {
        AttemptRole::Main => step.policy.timeout.filter(|_| step.policy.timeout_per == TimeoutScope::Attempt),
        AttemptRole::Check => work.check.as_ref().and_then(|check| check.timeout),
        AttemptRole::Summary => work.summary.as_ref().and_then(|summary| summary.timeout),
        AttemptRole::Undo => step.undo.as_ref().and_then(|undo| undo.timeout),
    }
}

/// Hashes a finding: its fingerprints, or its reasons if it has none. Returns `None` if the finding cannot be compared.
fn hash_finding(reasons: &[String], fingerprints: &[String]) -> Option<ContentHash> {
    let (kind, notes) = if fingerprints.is_empty() { ("reason", reasons) } else { ("fingerprint", fingerprints) };
    let notes: BTreeSet<&str> = notes.iter().map(|note| note.trim()).filter(|note| !note.is_empty()).collect();
    (!notes.is_empty()).then(|| ContentHash::hash_json(&(kind, notes)))
}

/// The approvers, the quorum and the message of a new waitpoint.
struct WaitpointRequest<'a> {
    approvers: &'a [Approver],
    quorum: u32,
    message: &'a str,
    shows: Arc<Value>,
}

impl StateFold<'_> {
    pub(in crate::engine) fn apply_waitpoint_event(&mut self, event: &Event) {
        match event {
            Event::StepHeld { at, opening, reason, until, message, approvers, quorum, next } => {
                self.begin_visit(*at);
                self.state.ready.remove(at);
                self.instance_mut(at.0).queue.remove(&at.1);
                self.free_slot(*at);
                self.set_phase(*at, StepPhase::Held);
                self.set_next_action(*at, *next);
                self.visit_state_mut(*at).held = Some(*reason);
                let kind = WaitpointKind::Hold(*reason);
                let request = WaitpointRequest { approvers, quorum: *quorum, message, shows: null() };
                self.open_waitpoint(*at, *opening, kind, *until, request);
            }
            Event::Opened { at, opening, deadline, approvers, quorum, message, shows } => {
                self.begin_visit(*at);
                let gate = matches!(self.scope_entry(at.0).step(at.1).kind, StepKindSpec::Gate(_));
                self.set_phase(*at, if gate { StepPhase::Gated } else { StepPhase::Waiting });
                let now = self.now;
                self.visit_state_mut(*at).started = Some(now);
                let kind = if gate { WaitpointKind::Gate } else { WaitpointKind::Wait };
                let request = WaitpointRequest { approvers, quorum: *quorum, message, shows: shows.clone() };
                self.open_waitpoint(*at, *opening, kind, *deadline, request);
            }
            Event::Escalated { opening, deadline, approvers } => {
                self.drop_waitpoint_deadline(*opening);
                let state = &mut self.state.openings[opening.0 as usize];
                state.deadline = *deadline;
                state.approvers.clone_from(approvers);
                state.escalations += 1;
                self.state.deadlines.extend(deadline.map(|time| (time, Deadline::Opening(*opening))));
            }
            Event::Approved { opening, by, .. } => {
                let now = self.now;
                self.state.openings[opening.0 as usize].approvals.push((by.clone(), now));
            }
            Event::Decided { opening, by, grants, .. } => {
                let now = self.now;
                self.close_waitpoint(*opening);
                let state = &mut self.state.openings[opening.0 as usize];
                state.decided = Some((by.clone(), now));
                self.state.renewed.extend(grants.iter().map(|grant| (grant.of, grant.from)));
            }
            _ => {}
        }
    }

    fn open_waitpoint(
        &mut self,
        at: StepAt,
        opening: Waitpoint,
        kind: WaitpointKind,
        deadline: Option<Timestamp>,
        request: WaitpointRequest<'_>,
    ) {
        self.visit_state_mut(at).opening = Some(opening);
        if let StepKindSpec::Wait(wait) = &self.scope_entry(at.0).step(at.1).kind
            && kind == WaitpointKind::Wait
        {
            for name in &wait.on {
                self.state.waits.entry(name.clone()).or_default().insert(opening);
            }
        }
        self.state.openings.push(WaitpointState {
            at,
            kind,
            approvers: request.approvers.to_vec(),
            quorum: request.quorum,
            approvals: Vec::new(),
            message: request.message.to_owned(),
            shows: request.shows,
            deadline,
            escalations: 0,
            opened: self.now,
            decided: None,
            closed: false,
        });
        if let Some(time) = deadline {
            self.state.deadlines.insert((time, Deadline::Opening(opening)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_repetition_do_not_matter() {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(hash_finding(&[], &words(&["b", "a", "a "])), hash_finding(&words(&["other"]), &words(&["a", "b"])));
        assert_ne!(hash_finding(&words(&["a"]), &[]), hash_finding(&[], &words(&["a"])));
        assert_eq!(hash_finding(&words(&[" "]), &[]), None);
    }
}
