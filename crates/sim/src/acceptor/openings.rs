//! Gates, waits, holds and signals: what is open, and who may close it.

use std::sync::Arc;

use serde_json::Value;
use skein_core::{
    engine::{Decision, Onward, Opening, Outcome, Role, StepAt},
    ids::SignalName,
    ir::{Approver, ErrorClass, GateTimeout, HoldReason, Kind, StepPolicy},
    limits,
    time::Time,
};

use super::{
    Acceptor, Verdict, after,
    book::{At, May, Open, OpenKind},
    ensure,
};

const BY_TIME: &str = "system:timeout";

/// Who may release a hold for a reason, and how many of them have to.
fn who_releases(policy: &StepPolicy, reason: HoldReason) -> (Vec<Approver>, u32) {
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
    fn open(&mut self, number: Opening, at: StepAt, what: OpenKind, deadline: Option<Time>) -> Verdict {
        ensure!(self.openings.iter().all(|open| open.number != number), "an opening has this number");
        self.openings.push(Open {
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

    fn find(&mut self, number: Opening) -> Result<&mut Open, String> {
        let found = self.openings.iter_mut().find(|open| open.number == number);
        found.ok_or_else(|| "nothing was opened with this number".to_owned())
    }

    pub(super) fn step_held(
        &mut self,
        at: StepAt,
        opening: Opening,
        reason: HoldReason,
        until: Option<Time>,
        asked: (&[Approver], u32),
        next: Onward,
    ) -> Verdict {
        self.ensure_arrived(at)?;
        if !self.drains(at.0) {
            self.going(at.0)?;
        }
        let step = Arc::clone(&self.entry(at.0).scope.steps[at.1 as usize]);
        let spent = self.spent_mode(at)?.is_some();
        let right = who_releases(&step.policy, reason);
        ensure!(asked == (&right.0[..], right.1), "others are to be asked: {right:?}");
        if reason == HoldReason::Governance {
            let timeout = step.policy.escalation.first().and_then(|level| level.timeout);
            ensure!(until == timeout.map(|timeout| self.now.after(timeout)), "its level has another time");
        }
        let st = self.st_mut(at)?;
        let (role, iteration) = (st.role, st.iteration);
        let follows = st.may.iter().any(|may| match may {
            // The time of what governance holds is that of the level.
            May::Hold { reason: other, until: time } => {
                *other == reason && (*time == until || reason == HoldReason::Governance)
            }
            _ => false,
        });
        match st.at {
            // The host may hold what is ready, for any reason; of its own accord only approval and budget do.
            At::Ready | At::Retrying(_) => {}
            At::Between if reason == HoldReason::Budget && !follows => ensure!(spent, "no budget is spent"),
            At::Between => ensure!(follows, "the step is not to be held so: {:?}", st.may),
            ref other => return Err(format!("the step cannot be held: {other:?}")),
        }
        if !st.blocked {
            let same = next.iteration == iteration && (next.role == role || next.role == Role::Main);
            let onward = st.may.contains(&May::GoOn { role: next.role, iteration: next.iteration });
            ensure!(same || onward, "it should go on where it stopped");
        }
        st.at = At::Held(opening);
        st.slot = false;
        self.open(opening, at, OpenKind::Hold(reason), until)?;
        let open = self.find(opening)?;
        open.next = Some((next.role, next.iteration));
        open.quorum = asked.1;
        Ok(())
    }

    pub(super) fn opened(
        &mut self,
        at: StepAt,
        opening: Opening,
        deadline: Option<Time>,
        asked: (&[Approver], u32),
    ) -> Verdict {
        self.ensure_arrived(at)?;
        self.going(at.0)?;
        ensure!(self.st(at)?.at == At::Ready, "the step was opened already");
        let (what, timeout) = match &self.step(at)?.kind {
            Kind::Gate(gate) => {
                ensure!(asked == (&gate.approvers[..], gate.quorum), "others are to be asked");
                (OpenKind::Gate, gate.timeout)
            }
            Kind::Wait(wait) => (OpenKind::Wait, wait.timeout),
            _ => return Err("only a gate or a wait opens".into()),
        };
        let right = timeout.map(|timeout| self.now.after(timeout));
        ensure!(deadline == right, "its time should be up at {right:?}");
        self.st_mut(at)?.at = At::Open(opening);
        self.open(opening, at, what, deadline)?;
        self.find(opening)?.quorum = asked.1;
        Ok(())
    }

    pub(super) fn escalated(
        &mut self,
        opening: Opening,
        deadline: Option<Time>,
        approvers: &[Approver],
    ) -> Verdict {
        let now = self.now;
        let Open { at, what, escalated, deadline: due, closed, .. } = *self.find(opening)?;
        ensure!(!closed, "it was decided already");
        ensure!(due.is_some_and(|due| due <= now), "its time is not up");
        if what == OpenKind::Hold(HoldReason::Governance) {
            let step = self.step(at)?;
            let Some(level) = step.policy.escalation.get(escalated + 1) else {
                return Err("there is nobody else to ask".into());
            };
            ensure!(approvers == level.approvers, "others are to be asked");
            let right = level.timeout.map(|timeout| now.after(timeout));
            ensure!(deadline == right, "its time should be up at {right:?}");
            let open = self.find(opening)?;
            (open.escalated, open.deadline) = (escalated + 1, deadline);
            return Ok(());
        }
        let Kind::Gate(gate) = &self.step(at)?.kind else { return Err("only a gate escalates".into()) };
        let GateTimeout::Escalate { to } = &gate.on_timeout else {
            return Err("it does not escalate".into());
        };
        let right = if to.is_empty() { &gate.approvers } else { to };
        ensure!(approvers == right, "others are to be asked");
        ensure!(!approvers.is_empty(), "an escalation opens nothing to everyone");
        ensure!(escalated == 0, "it was escalated already");
        ensure!(deadline.is_some_and(|deadline| deadline > now), "it has to be open for as long again");
        let open = self.find(opening)?;
        (open.escalated, open.deadline) = (1, deadline);
        Ok(())
    }

    /// One of several who have to approve did.
    pub(super) fn approved(&mut self, opening: Opening, by: &str) -> Verdict {
        let open = self.find(opening)?;
        ensure!(!open.closed, "it was decided already");
        ensure!(open.what != OpenKind::Wait, "a wait is not approved");
        ensure!(!open.approvals.iter().any(|who| who == by), "nobody approves twice");
        open.approvals.push(by.to_owned());
        ensure!(open.approvals.len() < open.quorum as usize, "the last approval decides");
        Ok(())
    }

    pub(super) fn decided(
        &mut self,
        opening: Opening,
        decision: Decision,
        by: &str,
        reason: Option<&str>,
    ) -> Verdict {
        let now = self.now;
        let open = self.find(opening)?;
        ensure!(!open.closed, "it was decided already");
        if by == BY_TIME {
            ensure!(open.deadline.is_some_and(|due| due <= now), "its time is not up");
            let governed = open.what == OpenKind::Hold(HoldReason::Governance);
            ensure!(!governed, "no time releases what governance holds");
        } else if decision == Decision::Approve {
            ensure!(!open.approvals.iter().any(|who| who == by), "nobody approves twice");
            ensure!(open.approvals.len() + 1 == open.quorum as usize, "others have to approve as well");
        }
        open.closed = true;
        let (at, what, next) = (open.at, open.what, open.next);
        match what {
            OpenKind::Wait => Err("a wait is not decided".into()),
            OpenKind::Gate => {
                let st = self.st_mut(at)?;
                ensure!(st.at == At::Open(opening), "the gate is not open");
                st.at = At::Between;
                st.decided = Some((decision, by.to_owned(), reason.map(str::to_owned)));
                Ok(())
            }
            OpenKind::Hold(why) => self.released(at, opening, why, decision, next),
        }
    }

    fn released(
        &mut self,
        at: StepAt,
        opening: Opening,
        why: HoldReason,
        decision: Decision,
        next: Option<(Role, u32)>,
    ) -> Verdict {
        let step = Arc::clone(&self.entry(at.0).scope.steps[at.1 as usize]);
        let st = self.st_mut(at)?;
        ensure!(st.at == At::Held(opening), "the step is not held");
        let blocked = std::mem::take(&mut st.blocked);
        st.released = decision == Decision::Approve;
        st.at = At::Between;
        if decision == Decision::Reject {
            st.may = vec![May::End(Outcome::Rejected)];
            return Ok(());
        }
        let first = step.policy.approval.as_ref().map(skein_core::ir::ApprovalHold::reason);
        let overrules = step.policy.holds.get(&ErrorClass::Governance).copied();
        st.approved |= if step.policy.denied.is_some() { overrules == Some(why) } else { first == Some(why) };
        let fresh = step.policy.retry.fresh_per_iteration;
        if let (true, Kind::Work(work)) = (blocked, &step.kind)
            && let Some(check) = &work.check
        {
            st.may = after::iterate(st, check);
            if let Some(May::GoOn { role, iteration }) = st.may.first().cloned() {
                st.onward(role, iteration, fresh);
                st.at = At::Ready;
            }
            return Ok(());
        }
        if let Some((role, iteration)) = next {
            st.onward(role, iteration, fresh);
        }
        st.at = At::Ready;
        st.may.clear();
        Ok(())
    }

    pub(super) fn signal_kept(&mut self, name: &SignalName, payload: &Arc<Value>) -> Verdict {
        ensure!(self.plan.definition.signals.contains(name), "no step waits for that signal");
        ensure!(self.kept.len() < limits::KEPT_SIGNALS, "too many signals are kept");
        let wanted = self.openings.iter().any(|open| !open.closed && self.waits_for(open, name));
        ensure!(!wanted, "a wait that is open names it");
        self.kept.push((name.clone(), (**payload).clone()));
        Ok(())
    }

    fn waits_for(&self, open: &Open, name: &SignalName) -> bool {
        open.what == OpenKind::Wait
            && self.st(open.at).is_ok_and(|st| st.at == At::Open(open.number))
            && self
                .step(open.at)
                .is_ok_and(|step| matches!(&step.kind, Kind::Wait(wait) if wait.on.contains(name)))
    }

    pub(super) fn signal_taken(
        &mut self,
        opening: Opening,
        name: &SignalName,
        payload: &Arc<Value>,
        kept: bool,
    ) -> Verdict {
        let found = self.openings.iter().find(|open| open.number == opening);
        let open = found.ok_or("nothing was opened with this number")?;
        ensure!(!open.closed, "it took a signal already");
        ensure!(self.waits_for(open, name), "nothing open there waits for that signal");
        let at = open.at;
        if kept {
            let oldest = self.kept.iter().position(|(kept, _)| kept == name);
            let Some(oldest) = oldest else { return Err("no such signal was kept".into()) };
            let (_, held) = self.kept.remove(oldest);
            ensure!(held == **payload, "an older one was kept");
        }
        self.find(opening)?.closed = true;
        let st = self.st_mut(at)?;
        st.at = At::Between;
        st.signal = Some((name.as_str().into(), (**payload).clone()));
        Ok(())
    }
}
