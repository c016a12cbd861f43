//! Ends of steps: checks of the outcome, its effect and the route; and merge conflicts that a conflict resolver
//! handles, with the effects of both ends.

use std::sync::Arc;

use serde_json::{Value, json};
use skein_core::{
    engine::{CursorRoute, Event, ExecutionError, SkipReason, StepAt, StepOutcome, Verdict},
    ir::{
        BudgetMode, ErrorClass, GateSpec, GateTimeout, HoldReason, OutcomeAction, OutcomeEffect, OutcomeEffects,
        RouteTarget, RunImpact as Worst, ScopeShape, Step, StepKindSpec, WaitSpec, WaitTimeout,
    },
    plan::RouteTargetIx,
};

use crate::acceptor::{
    Acceptor, RuleResult, ensure,
    instances::AcceptorArrival,
    state::{AcceptorCompletion, AcceptorStepPhase, AcceptorWaitpointKind},
};

/// The position of the cursor after a step that ended well, if it is not the step's `next`.
type RouteOverride = Option<CursorRoute>;

impl Acceptor {
    pub(super) fn accept_step_ended(&mut self, event: &Event) -> RuleResult {
        let Event::StepEnded { at, outcome, output, error, effect, route, settler } = event else {
            return Err("not the end of a step".into());
        };
        let (at, outcome, effect, error) = (*at, *outcome, *effect, error.as_ref());
        ensure!(self.instance(at.0)?.ended.is_none(), "the instance has ended");
        ensure!(!self.instance(at.0)?.began_undo, "the instance has begun to undo");
        ensure!(self.step_state(at)?.live.is_none(), "an attempt of the step is in flight");
        let detour = self.check_outcome(at, outcome, output, error)?;
        let code = error.and_then(|error| error.code.as_deref());
        let (right, by) = self.determine_effect(at, outcome, code)?;
        ensure!(effect == right, "the effect should be {right:?}");
        ensure!(*settler == by, "its conflict resolver is {by:?}");
        if by.is_some() {
            ensure!(**output == self.step_state(at)?.result, "its output must be kept");
        } else if effect.satisfies && matches!(outcome, StepOutcome::Failed(_) | StepOutcome::Exhausted) {
            let declared = self.scope_entry(at.0).step(at.1).outputs.default_object();
            ensure!(**output == declared, "a failure that satisfies outputs the defaults");
        }
        self.check_route(at, effect, *route, detour)?;
        self.note_step_end(at, outcome, output, error, effect, by)
    }

    pub(super) fn note_step_end(
        &mut self,
        at: StepAt,
        outcome: StepOutcome,
        output: &Arc<Value>,
        error: Option<&ExecutionError>,
        effect: OutcomeEffect,
        settler: Option<u32>,
    ) -> RuleResult {
        let step = Arc::clone(&self.scope_entry(at.0).scope.steps[at.1 as usize]);
        self.completions += 1;
        let order = self.completions;
        let st = self.step_state_mut(at)?;
        st.at = AcceptorStepPhase::Over;
        st.slot = false;
        st.may.clear();
        st.stop = None;
        (st.outcome, st.effect, st.output) = (Some(outcome), Some(effect), (**output).clone());
        st.error = error.cloned();
        st.settler = settler;
        if (outcome == StepOutcome::Succeeded || settler.is_some()) && step.undo.is_some() {
            let visit = st.visit;
            st.completed.push(AcceptorCompletion { visit, order, undone: false });
        }
        let counts = outcome != StepOutcome::Cancelled;
        let inside = self.child_instances(at)?.iter().any(|child| child.ended.as_ref().is_some_and(|end| end.degraded));
        let inst = self.instance_mut(at.0)?;
        if counts {
            inst.worst = inst.worst.max(effect.verdict);
        }
        if counts && inside {
            inst.worst = inst.worst.max(Worst::Degraded);
        }
        if counts && effect.then != OutcomeAction::GoOn && !inst.is_halted() {
            inst.must_halt = Some(at.1);
        }
        if outcome == StepOutcome::Succeeded && inst.cursor.is_some() && !matches!(step.kind, StepKindSpec::Branch(_)) {
            inst.last_output = (**output).clone();
        }
        Ok(())
    }

    /// Checks the route of the cursor, and moves the cursor.
    fn check_route(
        &mut self,
        at: StepAt,
        effect: OutcomeEffect,
        route: Option<CursorRoute>,
        detour: RouteOverride,
    ) -> RuleResult {
        let inst = self.instance(at.0)?;
        if inst.cursor.is_none() {
            ensure!(route.is_none(), "a graph has no routes");
            return Ok(());
        }
        let stops = effect.then != OutcomeAction::GoOn || inst.is_halted() || !effect.satisfies;
        if stops || self.check_going(at.0).is_err() {
            ensure!(!matches!(route, Some(CursorRoute::Step(_))), "the cursor cannot advance");
            self.instance_mut(at.0)?.cursor = Some(CursorRoute::End);
            return Ok(());
        }
        let next = detour.unwrap_or_else(|| to_route(self.scope_entry(at.0).next[at.1 as usize]));
        ensure!(route == Some(next), "the cursor should go to {next:?}");
        self.instance_mut(at.0)?.cursor = Some(next);
        Ok(())
    }

    /// Checks that the outcome follows from the history. Returns the detour that comes with it.
    fn check_outcome(
        &mut self,
        at: StepAt,
        outcome: StepOutcome,
        output: &Value,
        error: Option<&ExecutionError>,
    ) -> RuleResult<RouteOverride> {
        let code = error.and_then(|error| error.code.as_deref());
        if let StepOutcome::Failed(class) = outcome {
            let said = error.map(|error| error.class);
            ensure!(said.is_none_or(|said| said == class), "the error is of another class");
        }
        match outcome {
            StepOutcome::Skipped(skip) => return self.check_skip(at, skip, output).map(|()| None),
            StepOutcome::Cancelled => return self.may_end_cancelled(at).map(|()| None),
            // A hold was rejected, regardless of its reason.
            StepOutcome::Rejected if self.step_state(at)?.may_end(outcome) => return Ok(None),
            _ => {}
        }
        if self.arrives_only_to_end(at, outcome, code)? {
            return Ok(None);
        }
        let step = Arc::clone(&self.scope_entry(at.0).scope.steps[at.1 as usize]);
        match &step.kind {
            StepKindSpec::Work(_) => self.check_work_end(at, &step, outcome, output, code).map(|()| None),
            StepKindSpec::Gate(gate) => self.check_gate_end(at, gate, outcome, output),
            StepKindSpec::Wait(wait) => self.check_wait_end(at, wait, outcome, output),
            StepKindSpec::Branch(branch) => {
                self.check_going(at.0)?;
                let mut target = Ok(&branch.default);
                for arm in &branch.arms {
                    match self.evaluate_condition(at.0, &arm.when) {
                        Ok(false) => continue,
                        Ok(true) => target = Ok(&arm.next),
                        Err(_) => target = Err(()),
                    }
                    break;
                }
                let Ok(target) = target else {
                    let failed = outcome == StepOutcome::Failed(ErrorClass::Validation) && code == Some("condition");
                    ensure!(failed, "a condition of the branch is an error");
                    return Ok(None);
                };
                ensure!(outcome == StepOutcome::Succeeded && output.is_null(), "a branch has no output");
                Ok(Some(self.resolve_target(at, target)))
            }
            StepKindSpec::Parallel(_) | StepKindSpec::Each(_) | StepKindSpec::Loop(_) | StepKindSpec::Call(_) => {
                self.check_composite_end(at, &step, outcome, output, code).map(|()| None)
            }
        }
    }

    /// True if the step ends on arrival. A step that has not arrived and does not end on arrival arrives here.
    fn arrives_only_to_end(&mut self, at: StepAt, outcome: StepOutcome, code: Option<&str>) -> RuleResult<bool> {
        let again = self.instance(at.0)?.cursor == Some(CursorRoute::Step(at.1))
            && self.step_state(at)?.at == AcceptorStepPhase::Over;
        if self.step_state(at)?.at != AcceptorStepPhase::Pending && !again {
            ensure!(self.step_state(at)?.at != AcceptorStepPhase::Over, "the step has ended already");
            return Ok(false);
        }
        self.check_going(at.0)?;
        match self.evaluate_arrival(at)? {
            AcceptorArrival::TooMany => Err("the step limit is reached".into()),
            AcceptorArrival::BadCondition => {
                let right = outcome == StepOutcome::Failed(ErrorClass::Validation) && code == Some("condition");
                ensure!(right, "its condition is an error");
                self.count_execution(at)?;
                Ok(true)
            }
            AcceptorArrival::SkippedByCondition => Err("its condition is false".into()),
            AcceptorArrival::Ready => {
                self.count_execution(at)?;
                Ok(false)
            }
        }
    }

    fn check_work_end(
        &mut self,
        at: StepAt,
        step: &Step,
        outcome: StepOutcome,
        output: &Value,
        code: Option<&str>,
    ) -> RuleResult {
        let now = self.now;
        let st = self.step_state(at)?;
        if st.may_end(outcome) {
            if outcome == StepOutcome::Succeeded {
                ensure!(*output == st.result, "its output is {}", st.result);
            }
            return Ok(());
        }
        if st.may_end_timed_out(outcome, now) {
            return Ok(());
        }
        if st.at == AcceptorStepPhase::Ready && step.policy.denied.is_some() && !st.approved {
            let held = step.policy.holds.contains_key(&ErrorClass::Governance);
            let right = outcome == StepOutcome::Failed(ErrorClass::Governance) && code == Some("policy_denied");
            ensure!(right && !held, "a policy denies it");
            return Ok(());
        }
        if self.is_unanswered(at, step) {
            ensure!(outcome == StepOutcome::Failed(ErrorClass::Timeout), "nobody answered in time");
            return Ok(());
        }
        if st.at == AcceptorStepPhase::Ready && !st.given && outcome == StepOutcome::Failed(ErrorClass::Validation) {
            let wrong = self.evaluate_inputs(at, step).err();
            // Missing optional inputs may have to match the schema as well.
            let unclear = wrong.is_none() && code == Some("input_invalid");
            let worker = wrong.is_none() && code == Some("expression");
            ensure!(wrong == code || unclear || worker, "the code of its inputs is {wrong:?}");
            return Ok(());
        }
        let budget = outcome == StepOutcome::Failed(ErrorClass::NonRetryable) && code == Some("budget");
        let before_main =
            matches!(st.at, AcceptorStepPhase::Ready | AcceptorStepPhase::Retrying(_) | AcceptorStepPhase::Between);
        ensure!(
            budget && before_main && self.spent_budget_mode(at)? == Some(BudgetMode::Stop),
            "it cannot end this way: {:?} {:?}",
            st.at,
            st.may
        );
        Ok(())
    }

    fn check_gate_end(
        &self,
        at: StepAt,
        gate: &GateSpec,
        outcome: StepOutcome,
        output: &Value,
    ) -> RuleResult<RouteOverride> {
        let st = self.step_state(at)?;
        let decided = match (&st.decided, &gate.on_timeout, self.is_waitpoint_late(at)) {
            (Some((decision, by, _)), ..) => Some((*decision, by.clone())),
            (None, GateTimeout::Reject, true) => Some((Verdict::Reject, "system:timeout".to_owned())),
            (None, GateTimeout::Approve, true) => Some((Verdict::Approve, "system:timeout".to_owned())),
            (None, GateTimeout::Expire, true) => {
                ensure!(outcome == StepOutcome::Failed(ErrorClass::Timeout), "the gate expired");
                return Ok(None);
            }
            (None, GateTimeout::Go(target), true) => {
                ensure!(outcome == StepOutcome::Succeeded, "a gate that continues succeeds");
                return Ok(Some(self.resolve_target(at, target)));
            }
            _ => return Err("nobody has decided".into()),
        };
        let Some((decision, by)) = decided else { return Err("nobody has decided".into()) };
        let (right, target) = match (decision, &gate.on_approve, &gate.on_reject) {
            (Verdict::Approve, target, _) => (StepOutcome::Succeeded, target.as_ref()),
            (Verdict::Reject, _, Some(target)) => (StepOutcome::Succeeded, Some(target)),
            (Verdict::Reject, _, None) => (StepOutcome::Rejected, None),
        };
        ensure!(outcome == right, "the decision makes it {right:?}");
        if outcome == StepOutcome::Succeeded {
            let word = if decision == Verdict::Approve { "approve" } else { "reject" };
            let same = output["decision"] == word && output["approver"] == by.as_str();
            ensure!(same, "its output should say `{word}` by `{by}`");
        }
        Ok(target.map(|target| self.resolve_target(at, target)))
    }

    fn check_wait_end(
        &self,
        at: StepAt,
        wait: &WaitSpec,
        outcome: StepOutcome,
        output: &Value,
    ) -> RuleResult<RouteOverride> {
        let st = self.step_state(at)?;
        let (right, said, target) = match (&st.signal, &wait.on_timeout, self.is_waitpoint_late(at)) {
            (Some((name, payload)), ..) => {
                (StepOutcome::Succeeded, Some(json!({"eventName": name, "eventPayload": payload})), None)
            }
            (None, WaitTimeout::Expire, true) => (StepOutcome::Failed(ErrorClass::Timeout), None, None),
            (None, WaitTimeout::Continue, true) => {
                (StepOutcome::Succeeded, Some(json!({"eventName": null, "eventPayload": null})), None)
            }
            (None, WaitTimeout::Go(target), true) => (StepOutcome::Succeeded, None, Some(target)),
            _ => return Err("no signal came".into()),
        };
        ensure!(outcome == right, "the outcome should be {right:?}");
        ensure!(said.is_none_or(|said| said == *output), "its output should be the signal");
        Ok(target.map(|target| self.resolve_target(at, target)))
    }

    /// True if every level of a governance hold was asked and the deadline of the last level has passed.
    fn is_unanswered(&self, at: StepAt, step: &Step) -> bool {
        let AcceptorStepPhase::Held(number) =
            self.step_state(at).map_or(AcceptorStepPhase::Pending, |st| st.at.clone())
        else {
            return false;
        };
        let Some(open) = self.openings.iter().find(|open| open.number == number) else { return false };
        open.what == AcceptorWaitpointKind::Hold(HoldReason::Governance)
            && open.deadline.is_some_and(|due| due <= self.now)
            && open.escalated + 1 >= step.policy.escalation.len()
    }

    fn is_waitpoint_late(&self, at: StepAt) -> bool {
        let AcceptorStepPhase::Open(number) =
            self.step_state(at).map_or(AcceptorStepPhase::Pending, |st| st.at.clone())
        else {
            return false;
        };
        let open = self.openings.iter().find(|open| open.number == number);
        open.and_then(|open| open.deadline).is_some_and(|due| due <= self.now)
    }

    fn resolve_target(&self, at: StepAt, target: &RouteTarget) -> CursorRoute {
        to_route(self.scope_entry(at.0).resolve_target(target))
    }
}

fn to_route(next: RouteTargetIx) -> CursorRoute {
    match next {
        RouteTargetIx::Step(step) => CursorRoute::Step(step),
        RouteTargetIx::End => CursorRoute::End,
    }
}

/// The effect that the table defines for an outcome.
pub(super) fn find_effect(effects: &OutcomeEffects, outcome: StepOutcome) -> OutcomeEffect {
    match outcome {
        StepOutcome::Succeeded => effects.succeeded,
        StepOutcome::Incomplete => effects.incomplete,
        StepOutcome::Exhausted => effects.exhausted,
        StepOutcome::Failed(class) => match (effects.failed_by_class.get(&class), class) {
            (Some(effect), _) => *effect,
            (None, ErrorClass::Timeout) => effects.timed_out,
            (None, _) => effects.failed,
        },
        StepOutcome::Rejected => effects.rejected,
        StepOutcome::Skipped(SkipReason::Condition) => effects.skipped_by_condition,
        StepOutcome::Skipped(SkipReason::Upstream(_)) => effects.skipped_by_upstream,
        StepOutcome::Cancelled => OutcomeEffect::BLOCK,
    }
}

impl Acceptor {
    /// The index of the step that resolves this step's merge conflicts, by its name in the plan.
    pub(super) fn find_conflict_resolver(&self, at: StepAt) -> Option<u32> {
        let entry = self.scope_entry(at.0);
        let by = entry.step(at.1).policy.settled_by.as_ref()?;
        let place = entry.scope.steps.iter().position(|step| step.id == *by)?;
        u32::try_from(place).ok()
    }

    fn steps_resolved_by(&self, at: StepAt) -> Vec<StepAt> {
        let steps = 0..u32::try_from(self.scope_entry(at.0).scope.steps.len()).unwrap_or(u32::MAX);
        let of = steps.map(|step| StepAt(at.0, step));
        of.filter(|of| self.find_conflict_resolver(*of) == Some(at.1)).collect()
    }

    pub(super) fn is_conflict_resolver(&self, at: StepAt) -> bool {
        !self.steps_resolved_by(at).is_empty()
    }

    /// The steps whose conflicts this one has to resolve.
    pub(super) fn unresolved_conflicts(&self, at: StepAt) -> RuleResult<Vec<StepAt>> {
        let mut unsettled = Vec::new();
        for of in self.steps_resolved_by(at) {
            let st = self.step_state(of)?;
            if st.at == AcceptorStepPhase::Over && st.settler.is_some() {
                unsettled.push(of);
            }
        }
        Ok(unsettled)
    }

    /// Returns the effect of this end, and the step that has to resolve its conflict, if any.
    pub(super) fn determine_effect(
        &self,
        at: StepAt,
        outcome: StepOutcome,
        code: Option<&str>,
    ) -> RuleResult<(OutcomeEffect, Option<u32>)> {
        let failed = outcome == StepOutcome::Failed(ErrorClass::NonRetryable) && code == Some("merge_conflict");
        let conflict = failed && self.step_state(at)?.unmerged;
        if let Some(by) = self.find_conflict_resolver(at).filter(|_| conflict) {
            let routed = matches!(self.scope_entry(at.0).scope.shape, ScopeShape::Routed { .. });
            let comes = routed || self.step_state(StepAt(at.0, by))?.at == AcceptorStepPhase::Pending;
            let inst = self.instance(at.0)?;
            if comes && !inst.is_halted() && inst.must_halt.is_none() {
                return Ok((OutcomeEffect::GO_ON, Some(by)));
            }
        }
        Ok((self.plain_effect(at, outcome)?, None))
    }

    /// Returns the effect of an end whose conflict is not passed to a resolver.
    pub(super) fn plain_effect(&self, at: StepAt, outcome: StepOutcome) -> RuleResult<OutcomeEffect> {
        let plain = find_effect(&self.scope_entry(at.0).step(at.1).policy.effects, outcome);
        let unsettled = self.unresolved_conflicts(at)?;
        Ok(match outcome {
            StepOutcome::Succeeded | StepOutcome::Cancelled => plain,
            StepOutcome::Skipped(SkipReason::Condition) if self.is_conflict_resolver(at) && unsettled.is_empty() => {
                OutcomeEffect::GO_ON
            }
            _ => {
                let mut worst = plain;
                for of in unsettled {
                    let effects = &self.scope_entry(of.0).step(of.1).policy.effects;
                    let failed = find_effect(effects, StepOutcome::Failed(ErrorClass::NonRetryable));
                    worst.then = worst.then.max(failed.then);
                    worst.verdict = worst.verdict.max(failed.verdict);
                    worst.satisfies &= failed.satisfies;
                }
                worst
            }
        })
    }
}
