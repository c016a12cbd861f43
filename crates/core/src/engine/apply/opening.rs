//! Openings: gates, waits and holds, and what answers them.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    engine::{
        Event, Opening, StepAt,
        fold::Fold,
        state::{Deadline, OpeningKind, OpeningState, null},
        transitions::Phase,
    },
    time::Time,
};

/// Who is asked what.
struct Asked<'a> {
    approvers: &'a [crate::ir::Approver],
    quorum: u32,
    message: &'a str,
    shows: Arc<Value>,
}

impl Fold<'_> {
    pub(in crate::engine) fn opening_event(&mut self, event: &Event) {
        match event {
            Event::StepHeld { at, opening, reason, until, message, approvers, quorum, next } => {
                self.arrive(*at);
                self.state.ready.remove(at);
                self.instance(at.0).queue.remove(&at.1);
                self.free_slot(*at);
                self.set_phase(*at, Phase::Held);
                self.turn_to(*at, *next);
                self.more(*at).held = Some(*reason);
                let kind = OpeningKind::Hold(*reason);
                let asked = Asked { approvers, quorum: *quorum, message, shows: null() };
                self.open(*at, *opening, kind, *until, asked);
            }
            Event::Opened { at, opening, deadline, approvers, quorum, message, shows } => {
                self.arrive(*at);
                let gate = matches!(self.entry(at.0).step(at.1).kind, crate::ir::Kind::Gate(_));
                self.set_phase(*at, if gate { Phase::Gated } else { Phase::Waiting });
                let now = self.now;
                self.more(*at).started = Some(now);
                let kind = if gate { OpeningKind::Gate } else { OpeningKind::Wait };
                let asked = Asked { approvers, quorum: *quorum, message, shows: shows.clone() };
                self.open(*at, *opening, kind, *deadline, asked);
            }
            Event::Escalated { opening, deadline, approvers } => {
                self.drop_opening_deadline(*opening);
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
                self.close(*opening);
                let state = &mut self.state.openings[opening.0 as usize];
                state.decided = Some((by.clone(), now));
                self.state.renewed.extend(grants.iter().map(|grant| (grant.of, grant.from)));
            }
            _ => {}
        }
    }

    fn open(
        &mut self,
        at: StepAt,
        opening: Opening,
        kind: OpeningKind,
        deadline: Option<Time>,
        asked: Asked<'_>,
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
