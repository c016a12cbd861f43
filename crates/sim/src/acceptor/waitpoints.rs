//! Gates, waits, holds and signals: the open waitpoints, and the actors that may close them.

use std::sync::Arc;

use serde_json::Value;
use skein_core::{
    engine::{AttemptRole, NextAction, StepAt, StepOutcome, Verdict, Waitpoint},
    ids::SignalName,
    ir::{Approver, ErrorClass, GateTimeout, HoldReason, StepKindSpec, StepPolicy},
    limits,
    time::Timestamp,
};

use super::{
    Acceptor, RuleResult, attempts, ensure,
    state::{AcceptorStepPhase, AcceptorWaitpoint, AcceptorWaitpointKind, AllowedFollowUp},
};

const BY_TIME: &str = "system:timeout";

/// The people who may release a hold for a reason, and the number of approvals it needs.
fn find_releasers(policy: &StepPolicy, reason: HoldReason) -> (Vec<Approver>, u32) {
    let first = policy.approval.as_ref().filter(|approval| approval.reason() == reason);
    let quorum = first.map_or(1, |first| first.quorum);
    let level = policy.escalation.first().filter(|_| reason == HoldReason::Governance);
    let people = match (level, first) {
        (Some(level), _) => level.approvers.clone(),
        (None, Some(first)) => first.approvers.clone(),
        (None, None) => Vec::new(),
    };
    (people, quorum)
}

impl Acceptor {
    fn open_waitpoint(
        &mut self,
        number: Waitpoint,
        at: StepAt,
        what: AcceptorWaitpointKind,
        deadline: Option<Timestamp>,
    ) -> RuleResult {
        ensure!(self.openings.iter().all(|open| open.number != number), "another waitpoint has this number");
        self.openings.push(AcceptorWaitpoint {
            number,
            at,
            what,
            next: None,
            deadline,
            escalated: 0,
            quorum: 1,
            approvals: Vec::new(),
            closed: false,
        });
        Ok(())
    }

    fn find_waitpoint(&mut self, number: Waitpoint) -> RuleResult<&mut AcceptorWaitpoint> {
        let found = self.openings.iter_mut().find(|open| open.number == number);
        found.ok_or_else(|| "there is no waitpoint with this number".into())
    }

    pub(super) fn accept_step_held(
        &mut self,
        at: StepAt,
        opening: Waitpoint,
        reason: HoldReason,
        until: Option<Timestamp>,
        asked: (&[Approver], u32),
        next: NextAction,
    ) -> RuleResult {
        self.ensure_arrived(at)?;
        if !self.is_draining(at.0) {
            self.check_going(at.0)?;
        }
        let step = Arc::clone(&self.scope_entry(at.0).scope.steps[at.1 as usize]);
        let spent = self.spent_budget_mode(at)?.is_some();
        let right = find_releasers(&step.policy, reason);
        ensure!(asked == (&right.0[..], right.1), "the approvers should be {right:?}");
        if reason == HoldReason::Governance {
            let timeout = step.policy.escalation.first().and_then(|level| level.timeout);
            ensure!(
                until == timeout.map(|timeout| self.now.saturating_add(timeout)),
                "the deadline is not that of its level"
            );
        }
        let st = self.step_state_mut(at)?;
        let (role, iteration) = (st.role, st.iteration);
        let follows = st.may.iter().any(|may| match may {
            // The deadline of a governance hold is that of its escalation level.
            AllowedFollowUp::Hold { reason: other, until: time } => {
                *other == reason && (*time == until || reason == HoldReason::Governance)
            }
            _ => false,
        });
        match st.at {
            // The host may hold a ready step for any reason. The engine itself holds one only for approval or budget.
            AcceptorStepPhase::Ready | AcceptorStepPhase::Retrying(_) => {}
            AcceptorStepPhase::Between if reason == HoldReason::Budget && !follows => {
                ensure!(spent, "no budget is spent")
            }
            AcceptorStepPhase::Between => ensure!(follows, "the step may not be held now: {:?}", st.may),
            ref other => return Err(format!("the step cannot be held: {other:?}").into()),
        }
        if !st.blocked {
            let same = next.iteration == iteration && (next.role == role || next.role == AttemptRole::Main);
            let onward = st.may.contains(&AllowedFollowUp::GoOn { role: next.role, iteration: next.iteration });
            ensure!(same || onward, "it should continue where it stopped");
        }
        st.at = AcceptorStepPhase::Held(opening);
        st.slot = false;
        self.open_waitpoint(opening, at, AcceptorWaitpointKind::Hold(reason), until)?;
        let open = self.find_waitpoint(opening)?;
        open.next = Some((next.role, next.iteration));
        open.quorum = asked.1;
        Ok(())
    }

    pub(super) fn accept_opened(
        &mut self,
        at: StepAt,
        opening: Waitpoint,
        deadline: Option<Timestamp>,
        asked: (&[Approver], u32),
    ) -> RuleResult {
        self.ensure_arrived(at)?;
        self.check_going(at.0)?;
        ensure!(self.step_state(at)?.at == AcceptorStepPhase::Ready, "the step was opened already");
        let (what, timeout) = match &self.step_definition(at)?.kind {
            StepKindSpec::Gate(gate) => {
                ensure!(asked == (&gate.approvers[..], gate.quorum), "the approvers are wrong");
                (AcceptorWaitpointKind::Gate, gate.timeout)
            }
            StepKindSpec::Wait(wait) => (AcceptorWaitpointKind::Wait, wait.timeout),
            _ => return Err("only a gate or a wait opens".into()),
        };
        let right = timeout.map(|timeout| self.now.saturating_add(timeout));
        ensure!(deadline == right, "its deadline should be {right:?}");
        self.step_state_mut(at)?.at = AcceptorStepPhase::Open(opening);
        self.open_waitpoint(opening, at, what, deadline)?;
        self.find_waitpoint(opening)?.quorum = asked.1;
        Ok(())
    }

    pub(super) fn accept_escalated(
        &mut self,
        opening: Waitpoint,
        deadline: Option<Timestamp>,
        approvers: &[Approver],
    ) -> RuleResult {
        let now = self.now;
        let AcceptorWaitpoint { at, what, escalated, deadline: due, closed, .. } = *self.find_waitpoint(opening)?;
        ensure!(!closed, "it was decided already");
        ensure!(due.is_some_and(|due| due <= now), "its deadline has not passed");
        if what == AcceptorWaitpointKind::Hold(HoldReason::Governance) {
            let step = self.step_definition(at)?;
            let Some(level) = step.policy.escalation.get(escalated + 1) else {
                return Err("there is no further level".into());
            };
            ensure!(approvers == level.approvers, "the approvers are wrong");
            let right = level.timeout.map(|timeout| now.saturating_add(timeout));
            ensure!(deadline == right, "its deadline should be {right:?}");
            let open = self.find_waitpoint(opening)?;
            (open.escalated, open.deadline) = (escalated + 1, deadline);
            return Ok(());
        }
        let StepKindSpec::Gate(gate) = &self.step_definition(at)?.kind else {
            return Err("only a gate escalates".into());
        };
        let GateTimeout::Escalate { to } = &gate.on_timeout else {
            return Err("it does not escalate".into());
        };
        let right = if to.is_empty() { &gate.approvers } else { to };
        ensure!(approvers == right, "the approvers are wrong");
        ensure!(!approvers.is_empty(), "an escalation must name approvers");
        ensure!(escalated == 0, "it was escalated already");
        ensure!(deadline.is_some_and(|deadline| deadline > now), "the new deadline must be later");
        let open = self.find_waitpoint(opening)?;
        (open.escalated, open.deadline) = (1, deadline);
        Ok(())
    }

    /// Accepts one of several required approvals.
    pub(super) fn accept_approved(&mut self, opening: Waitpoint, by: &str) -> RuleResult {
        let open = self.find_waitpoint(opening)?;
        ensure!(!open.closed, "it was decided already");
        ensure!(open.what != AcceptorWaitpointKind::Wait, "a wait is not approved");
        ensure!(!open.approvals.iter().any(|who| who == by), "the same person approved twice");
        open.approvals.push(by.to_owned());
        ensure!(open.approvals.len() < open.quorum as usize, "the last approval decides");
        Ok(())
    }

    pub(super) fn accept_decided(
        &mut self,
        opening: Waitpoint,
        decision: Verdict,
        by: &str,
        reason: Option<&str>,
    ) -> RuleResult {
        let now = self.now;
        let open = self.find_waitpoint(opening)?;
        ensure!(!open.closed, "it was decided already");
        if by == BY_TIME {
            ensure!(open.deadline.is_some_and(|due| due <= now), "its deadline has not passed");
            let governed = open.what == AcceptorWaitpointKind::Hold(HoldReason::Governance);
            ensure!(!governed, "a timeout releases no governance hold");
        } else if decision == Verdict::Approve {
            ensure!(!open.approvals.iter().any(|who| who == by), "the same person approved twice");
            ensure!(open.approvals.len() + 1 == open.quorum as usize, "more approvals are needed");
        }
        open.closed = true;
        let (at, what, next) = (open.at, open.what, open.next);
        match what {
            AcceptorWaitpointKind::Wait => Err("a wait is not decided".into()),
            AcceptorWaitpointKind::Gate => {
                let st = self.step_state_mut(at)?;
                ensure!(st.at == AcceptorStepPhase::Open(opening), "the gate is not open");
                st.at = AcceptorStepPhase::Between;
                st.decided = Some((decision, by.to_owned(), reason.map(str::to_owned)));
                Ok(())
            }
            AcceptorWaitpointKind::Hold(why) => self.close_hold(at, opening, why, decision, next),
        }
    }

    fn close_hold(
        &mut self,
        at: StepAt,
        opening: Waitpoint,
        why: HoldReason,
        decision: Verdict,
        next: Option<(AttemptRole, u32)>,
    ) -> RuleResult {
        let step = Arc::clone(&self.scope_entry(at.0).scope.steps[at.1 as usize]);
        let st = self.step_state_mut(at)?;
        ensure!(st.at == AcceptorStepPhase::Held(opening), "the step is not held");
        let blocked = std::mem::take(&mut st.blocked);
        st.released = decision == Verdict::Approve;
        st.at = AcceptorStepPhase::Between;
        if decision == Verdict::Reject {
            st.may = vec![AllowedFollowUp::End(StepOutcome::Rejected)];
            return Ok(());
        }
        let first = step.policy.approval.as_ref().map(skein_core::ir::ApprovalHold::reason);
        let overrules = step.policy.holds.get(&ErrorClass::Governance).copied();
        st.approved |= if step.policy.denied.is_some() { overrules == Some(why) } else { first == Some(why) };
        let fresh = step.policy.retry.fresh_per_iteration;
        if let (true, StepKindSpec::Work(work)) = (blocked, &step.kind)
            && let Some(check) = &work.check
        {
            st.may = attempts::allowed_next_iteration(st, check);
            if let Some(AllowedFollowUp::GoOn { role, iteration }) = st.may.first().cloned() {
                st.advance_to_role(role, iteration, fresh);
                st.at = AcceptorStepPhase::Ready;
            }
            return Ok(());
        }
        if let Some((role, iteration)) = next {
            st.advance_to_role(role, iteration, fresh);
        }
        st.at = AcceptorStepPhase::Ready;
        st.may.clear();
        Ok(())
    }

    pub(super) fn accept_signal_kept(&mut self, name: &SignalName, payload: &Arc<Value>) -> RuleResult {
        ensure!(self.plan.definition.signals.contains(name), "no step waits for that signal");
        ensure!(self.kept.len() < limits::KEPT_SIGNALS, "too many signals are kept");
        let wanted = self.openings.iter().any(|open| !open.closed && self.waits_for_signal(open, name));
        ensure!(!wanted, "an open wait takes it");
        self.kept.push((name.clone(), (**payload).clone()));
        Ok(())
    }

    fn waits_for_signal(&self, open: &AcceptorWaitpoint, name: &SignalName) -> bool {
        open.what == AcceptorWaitpointKind::Wait
            && self.step_state(open.at).is_ok_and(|st| st.at == AcceptorStepPhase::Open(open.number))
            && self
                .step_definition(open.at)
                .is_ok_and(|step| matches!(&step.kind, StepKindSpec::Wait(wait) if wait.on.contains(name)))
    }

    pub(super) fn accept_signal_taken(
        &mut self,
        opening: Waitpoint,
        name: &SignalName,
        payload: &Arc<Value>,
        kept: bool,
    ) -> RuleResult {
        let found = self.openings.iter().find(|open| open.number == opening);
        let open = found.ok_or("there is no waitpoint with this number")?;
        ensure!(!open.closed, "it took a signal already");
        ensure!(self.waits_for_signal(open, name), "nothing open there waits for that signal");
        let at = open.at;
        if kept {
            let oldest = self.kept.iter().position(|(kept, _)| kept == name);
            let Some(oldest) = oldest else { return Err("no such signal was kept".into()) };
            let (_, held) = self.kept.remove(oldest);
            ensure!(held == **payload, "an older signal was kept");
        }
        self.find_waitpoint(opening)?.closed = true;
        let st = self.step_state_mut(at)?;
        st.at = AcceptorStepPhase::Between;
        st.signal = Some((name.as_str().into(), (**payload).clone()));
        Ok(())
    }
}
