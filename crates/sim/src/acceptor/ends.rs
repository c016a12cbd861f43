//! Ends of steps: whether the outcome, its effect and the route follow.

use std::sync::Arc;

use serde_json::{Value, json};
use skein_core::{
    engine::{Decision, Error, Event, Outcome, Route, Skip, StepAt},
    ir::{
        BudgetMode, Effect, Effects, ErrorClass, Gate, GateTimeout, HoldReason, Kind, Step, Target, Then,
        Verdict as Worst, Wait, WaitTimeout,
    },
    plan::Next,
};

use super::{
    Acceptor, Verdict,
    arrive::Arrival,
    book::{At, Completed, OpenKind},
    ensure,
};

/// Where the cursor goes after a step that ended well, if not to the step's next.
type Detour = Option<Route>;

impl Acceptor {
    pub(super) fn step_ended(&mut self, event: &Event) -> Verdict {
        let Event::StepEnded { at, outcome, output, error, effect, route, settler } = event else {
            return Err("it is no end of a step".into());
        };
        let (at, outcome, effect, error) = (*at, *outcome, *effect, error.as_ref());
        ensure!(self.inst(at.0)?.ended.is_none(), "the instance has ended");
        ensure!(!self.inst(at.0)?.began_undo, "the instance has begun to undo");
        ensure!(self.st(at)?.live.is_none(), "an attempt of the step is in flight");
        let detour = self.right_outcome(at, outcome, output, error)?;
        let code = error.and_then(|error| error.code.as_deref());
        let (right, by) = self.right_effect(at, outcome, code)?;
        ensure!(effect == right, "the table says {right:?}");
        ensure!(*settler == by, "its conflict goes to {by:?}");
        if by.is_some() {
            ensure!(**output == self.st(at)?.result, "what it gave is kept");
        } else if effect.satisfies && matches!(outcome, Outcome::Failed(_) | Outcome::Exhausted) {
            let declared = self.entry(at.0).step(at.1).outputs.defaults();
            ensure!(**output == declared, "a failure that satisfies gives the declared defaults");
        }
        self.right_route(at, effect, *route, detour)?;
        self.note_end(at, outcome, output, error, effect, by)
    }

    pub(super) fn note_end(
        &mut self,
        at: StepAt,
        outcome: Outcome,
        output: &Arc<Value>,
        error: Option<&Error>,
        effect: Effect,
        settler: Option<u32>,
    ) -> Verdict {
        let step = Arc::clone(&self.entry(at.0).scope.steps[at.1 as usize]);
        self.completions += 1;
        let order = self.completions;
        let st = self.st_mut(at)?;
        st.at = At::Over;
        st.slot = false;
        st.may.clear();
        st.stop = None;
        (st.outcome, st.effect, st.output) = (Some(outcome), Some(effect), (**output).clone());
        st.error = error.cloned();
        st.settler = settler;
        if (outcome == Outcome::Succeeded || settler.is_some()) && step.undo.is_some() {
            let visit = st.visit;
            st.completed.push(Completed { visit, order, undone: false });
        }
        let counts = outcome != Outcome::Cancelled;
        let inside =
            self.children(at)?.iter().any(|child| child.ended.as_ref().is_some_and(|end| end.degraded));
        let inst = self.inst_mut(at.0)?;
        if counts {
            inst.worst = inst.worst.max(effect.verdict);
        }
        if counts && inside {
            inst.worst = inst.worst.max(Worst::Degraded);
        }
        if counts && effect.then != Then::GoOn && !inst.is_halted() {
            inst.must_halt = Some(at.1);
        }
        if outcome == Outcome::Succeeded && inst.cursor.is_some() && !matches!(step.kind, Kind::Branch(_)) {
            inst.last_output = (**output).clone();
        }
        Ok(())
    }

    /// Whether the cursor goes where it should, and moves it.
    fn right_route(&mut self, at: StepAt, effect: Effect, route: Option<Route>, detour: Detour) -> Verdict {
        let inst = self.inst(at.0)?;
        if inst.cursor.is_none() {
            ensure!(route.is_none(), "a graph has no routes");
            return Ok(());
        }
        let stops = effect.then != Then::GoOn || inst.is_halted() || !effect.satisfies;
        if stops || self.going(at.0).is_err() {
            ensure!(!matches!(route, Some(Route::Step(_))), "the cursor cannot go on");
            self.inst_mut(at.0)?.cursor = Some(Route::End);
            return Ok(());
        }
        let next = detour.unwrap_or_else(|| to_route(self.entry(at.0).next[at.1 as usize]));
        ensure!(route == Some(next), "the cursor should go to {next:?}");
        self.inst_mut(at.0)?.cursor = Some(next);
        Ok(())
    }

    /// Whether the outcome follows. Gives the detour that comes with it.
    fn right_outcome(
        &mut self,
        at: StepAt,
        outcome: Outcome,
        output: &Value,
        error: Option<&Error>,
    ) -> Result<Detour, String> {
        let code = error.and_then(|error| error.code.as_deref());
        if let Outcome::Failed(class) = outcome {
            let said = error.map(|error| error.class);
            ensure!(said.is_none_or(|said| said == class), "the error is of another class");
        }
        match outcome {
            Outcome::Skipped(skip) => return self.skip(at, skip, output).map(|()| None),
            Outcome::Cancelled => return self.may_end_cancelled(at).map(|()| None),
            // A hold was rejected, whatever it held.
            Outcome::Rejected if self.st(at)?.may_end(outcome) => return Ok(None),
            _ => {}
        }
        if self.arrives_to_end(at, outcome, code)? {
            return Ok(None);
        }
        let step = Arc::clone(&self.entry(at.0).scope.steps[at.1 as usize]);
        match &step.kind {
            Kind::Work(_) => self.right_work_end(at, &step, outcome, output, code).map(|()| None),
            Kind::Gate(gate) => self.right_gate_end(at, gate, outcome, output),
            Kind::Wait(wait) => self.right_wait_end(at, wait, outcome, output),
            Kind::Branch(branch) => {
                self.going(at.0)?;
                let mut target = Ok(&branch.default);
                for arm in &branch.arms {
                    match self.test(at.0, &arm.when) {
                        Ok(false) => continue,
                        Ok(true) => target = Ok(&arm.next),
                        Err(_) => target = Err(()),
                    }
                    break;
                }
                let Ok(target) = target else {
                    let failed =
                        outcome == Outcome::Failed(ErrorClass::Validation) && code == Some("condition");
                    ensure!(failed, "a condition of the branch is an error");
                    return Ok(None);
                };
                ensure!(outcome == Outcome::Succeeded && output.is_null(), "a branch gives nothing");
                Ok(Some(self.to(at, target)))
            }
            Kind::Parallel(_) | Kind::Each(_) | Kind::Loop(_) | Kind::Call(_) => {
                self.right_composite_end(at, &step, outcome, output, code).map(|()| None)
            }
        }
    }

    /// Whether the step arrives only to end. If it has not arrived and is not to end so, it arrives.
    fn arrives_to_end(&mut self, at: StepAt, outcome: Outcome, code: Option<&str>) -> Result<bool, String> {
        let again = self.inst(at.0)?.cursor == Some(Route::Step(at.1)) && self.st(at)?.at == At::Over;
        if self.st(at)?.at != At::Pending && !again {
            ensure!(self.st(at)?.at != At::Over, "the step has ended already");
            return Ok(false);
        }
        self.going(at.0)?;
        match self.arrival(at)? {
            Arrival::TooMany => Err("it is one step too many".into()),
            Arrival::BadCondition => {
                let right = outcome == Outcome::Failed(ErrorClass::Validation) && code == Some("condition");
                ensure!(right, "its condition is an error");
                self.count(at)?;
                Ok(true)
            }
            Arrival::SkippedByCondition => Err("its condition is false".into()),
            Arrival::Ready => {
                self.count(at)?;
                Ok(false)
            }
        }
    }

    fn right_work_end(
        &mut self,
        at: StepAt,
        step: &Step,
        outcome: Outcome,
        output: &Value,
        code: Option<&str>,
    ) -> Verdict {
        let now = self.now;
        let st = self.st(at)?;
        if st.may_end(outcome) {
            if outcome == Outcome::Succeeded {
                ensure!(*output == st.result, "its output is {}", st.result);
            }
            return Ok(());
        }
        if st.timed_out(outcome, now) {
            return Ok(());
        }
        if st.at == At::Ready && step.policy.denied.is_some() && !st.approved {
            let held = step.policy.holds.contains_key(&ErrorClass::Governance);
            let right = outcome == Outcome::Failed(ErrorClass::Governance) && code == Some("policy_denied");
            ensure!(right && !held, "a policy denies it");
            return Ok(());
        }
        if self.is_unanswered(at, step) {
            ensure!(outcome == Outcome::Failed(ErrorClass::Timeout), "nobody answered in time");
            return Ok(());
        }
        if st.at == At::Ready && !st.given && outcome == Outcome::Failed(ErrorClass::Validation) {
            let wrong = self.inputs(at, step).err();
            // Optional inputs that are missing may have to fit as well.
            let unclear = wrong.is_none() && code == Some("input_invalid");
            let worker = wrong.is_none() && code == Some("expression");
            ensure!(wrong == code || unclear || worker, "what is wrong with its inputs is {wrong:?}");
            return Ok(());
        }
        let budget = outcome == Outcome::Failed(ErrorClass::NonRetryable) && code == Some("budget");
        let before_main = matches!(st.at, At::Ready | At::Retrying(_) | At::Between);
        ensure!(
            budget && before_main && self.spent_mode(at)? == Some(BudgetMode::Stop),
            "it cannot end so: {:?} {:?}",
            st.at,
            st.may
        );
        Ok(())
    }

    fn right_gate_end(
        &self,
        at: StepAt,
        gate: &Gate,
        outcome: Outcome,
        output: &Value,
    ) -> Result<Detour, String> {
        let st = self.st(at)?;
        let decided = match (&st.decided, &gate.on_timeout, self.is_late(at)) {
            (Some((decision, by, _)), ..) => Some((*decision, by.clone())),
            (None, GateTimeout::Reject, true) => Some((Decision::Reject, "system:timeout".to_owned())),
            (None, GateTimeout::Approve, true) => Some((Decision::Approve, "system:timeout".to_owned())),
            (None, GateTimeout::Expire, true) => {
                ensure!(outcome == Outcome::Failed(ErrorClass::Timeout), "the gate expired");
                return Ok(None);
            }
            (None, GateTimeout::Go(target), true) => {
                ensure!(outcome == Outcome::Succeeded, "a gate that goes on succeeds");
                return Ok(Some(self.to(at, target)));
            }
            _ => return Err("nobody has decided".into()),
        };
        let Some((decision, by)) = decided else { return Err("nobody has decided".into()) };
        let (right, target) = match (decision, &gate.on_approve, &gate.on_reject) {
            (Decision::Approve, target, _) => (Outcome::Succeeded, target.as_ref()),
            (Decision::Reject, _, Some(target)) => (Outcome::Succeeded, Some(target)),
            (Decision::Reject, _, None) => (Outcome::Rejected, None),
        };
        ensure!(outcome == right, "the decision makes it {right:?}");
        if outcome == Outcome::Succeeded {
            let word = if decision == Decision::Approve { "approve" } else { "reject" };
            let same = output["decision"] == word && output["approver"] == by.as_str();
            ensure!(same, "its output should say `{word}` by `{by}`");
        }
        Ok(target.map(|target| self.to(at, target)))
    }

    fn right_wait_end(
        &self,
        at: StepAt,
        wait: &Wait,
        outcome: Outcome,
        output: &Value,
    ) -> Result<Detour, String> {
        let st = self.st(at)?;
        let (right, said, target) = match (&st.signal, &wait.on_timeout, self.is_late(at)) {
            (Some((name, payload)), ..) => {
                (Outcome::Succeeded, Some(json!({"eventName": name, "eventPayload": payload})), None)
            }
            (None, WaitTimeout::Expire, true) => (Outcome::Failed(ErrorClass::Timeout), None, None),
            (None, WaitTimeout::Continue, true) => {
                (Outcome::Succeeded, Some(json!({"eventName": null, "eventPayload": null})), None)
            }
            (None, WaitTimeout::Go(target), true) => (Outcome::Succeeded, None, Some(target)),
            _ => return Err("no signal came".into()),
        };
        ensure!(outcome == right, "that makes it {right:?}");
        ensure!(said.is_none_or(|said| said == *output), "its output should be the signal");
        Ok(target.map(|target| self.to(at, target)))
    }

    /// Whether everybody was asked about what governance holds, and the time of the last is up.
    fn is_unanswered(&self, at: StepAt, step: &Step) -> bool {
        let At::Held(number) = self.st(at).map_or(At::Pending, |st| st.at.clone()) else { return false };
        let Some(open) = self.openings.iter().find(|open| open.number == number) else { return false };
        open.what == OpenKind::Hold(HoldReason::Governance)
            && open.deadline.is_some_and(|due| due <= self.now)
            && open.escalated + 1 >= step.policy.escalation.len()
    }

    fn is_late(&self, at: StepAt) -> bool {
        let At::Open(number) = self.st(at).map_or(At::Pending, |st| st.at.clone()) else { return false };
        let open = self.openings.iter().find(|open| open.number == number);
        open.and_then(|open| open.deadline).is_some_and(|due| due <= self.now)
    }

    fn to(&self, at: StepAt, target: &Target) -> Route {
        to_route(self.entry(at.0).target(target))
    }
}

fn to_route(next: Next) -> Route {
    match next {
        Next::Step(step) => Route::Step(step),
        Next::End => Route::End,
    }
}

/// The row of the table for an outcome.
pub(super) fn effect_of(effects: &Effects, outcome: Outcome) -> Effect {
    match outcome {
        Outcome::Succeeded => effects.succeeded,
        Outcome::Incomplete => effects.incomplete,
        Outcome::Exhausted => effects.exhausted,
        Outcome::Failed(class) => match (effects.failed_by_class.get(&class), class) {
            (Some(effect), _) => *effect,
            (None, ErrorClass::Timeout) => effects.timed_out,
            (None, _) => effects.failed,
        },
        Outcome::Rejected => effects.rejected,
        Outcome::Skipped(Skip::Condition) => effects.skipped_by_condition,
        Outcome::Skipped(Skip::Upstream(_)) => effects.skipped_by_upstream,
        Outcome::Cancelled => Effect::BLOCK,
    }
}
