//! Waitpoint events: gates, waits and holds, and the decisions that close them.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    engine::{
        Event, StepAt, Waitpoint,
        fold::StateFold,
        state::{Deadline, WaitpointKind, WaitpointState, null},
        transitions::StepPhase,
    },
    time::Timestamp,
};

/// The approvers, the quorum and the message of a new waitpoint.
struct WaitpointRequest<'a> {
    approvers: &'a [crate::ir::Approver],
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
                let asked = WaitpointRequest { approvers, quorum: *quorum, message, shows: null() };
                self.open_waitpoint(*at, *opening, kind, *until, asked);
            }
            Event::Opened { at, opening, deadline, approvers, quorum, message, shows } => {
                self.begin_visit(*at);
                let gate = matches!(self.scope_entry(at.0).step(at.1).kind, crate::ir::StepKindSpec::Gate(_));
                self.set_phase(*at, if gate { StepPhase::Gated } else { StepPhase::Waiting });
                let now = self.now;
                self.visit_state_mut(*at).started = Some(now);
                let kind = if gate { WaitpointKind::Gate } else { WaitpointKind::Wait };
                let asked = WaitpointRequest { approvers, quorum: *quorum, message, shows: shows.clone() };
                self.open_waitpoint(*at, *opening, kind, *deadline, asked);
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
        asked: WaitpointRequest<'_>,
    ) {
        self.visit_state_mut(at).opening = Some(opening);
        if let crate::ir::StepKindSpec::Wait(wait) = &self.scope_entry(at.0).step(at.1).kind
            && kind == WaitpointKind::Wait
        {
            for name in &wait.on {
                self.state.waits.entry(name.clone()).or_default().insert(opening);
            }
        }
        self.state.openings.push(WaitpointState {
            at,
            kind,
            approvers: asked.approvers.to_vec(),
            quorum: asked.quorum,
            approvals: Vec::new(),
            message: asked.message.to_owned(),
            shows: asked.shows,
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
