//! Timeout: fires each deadline that is due, once.

use super::decision::WaitpointDecision;
use crate::{
    engine::{
        AttemptMode, AttemptRole, AttemptStopReason, Event, HaltReason, InstanceIx, NextAction, StepAt, UndoWalk,
        Verdict, Waitpoint,
        decide::DecideContext,
        state::{Deadline, WaitpointKind},
        transitions::StepPhase,
    },
    ir::HoldReason,
};

/// The maximum number of deadlines that one wake-up handles; the rest are due again at once.
const MAX_DEADLINES_PER_WAKE: usize = 1_000;

impl DecideContext<'_> {
    pub(in crate::engine) fn fire_deadlines(&mut self) {
        for _ in 0..MAX_DEADLINES_PER_WAKE {
            let Some((_, deadline)) = self.state.deadlines.first().filter(|(time, _)| *time <= self.now).copied()
            else {
                return;
            };
            match deadline {
                Deadline::Instance(ix) => self.time_out_instance(ix),
                Deadline::Step(at) => self.stop_overdue_step(at),
                Deadline::Retry(at) => self.retry_step(at),
                Deadline::Opening(opening) => self.time_out_waitpoint(opening),
                Deadline::Undo(of) => self.retry_undo_attempt(of),
            }
            self.follow_consequences();
        }
    }

    fn time_out_instance(&mut self, ix: InstanceIx) {
        let undo = self.scope_entry(ix).scope.undo.on_timeout && self.state.instance(ix).home == ix;
        self.halt_instance(ix, HaltReason::TimedOut, undo);
    }

    /// Stops a step whose timeout expired.
    fn stop_overdue_step(&mut self, at: StepAt) {
        self.emit(Event::StepOverdue { at });
        let step = self.state.step(at);
        match step.phase {
            StepPhase::Running | StepPhase::Checking | StepPhase::Summing => {
                let attempt = step.more.as_ref().and_then(|more| more.live).expect("it is in flight");
                self.emit(Event::StopAsked { attempt, why: AttemptStopReason::Timeout });
            }
            StepPhase::Inside => {
                self.halt_children(at, &HaltReason::TimedOut);
            }
            StepPhase::Stopping | StepPhase::Unwinding => {}
            _ => self.time_out_step(at),
        }
    }

    fn retry_step(&mut self, at: StepAt) {
        let next = self.state.visit_state(at).expect("it failed before").next;
        self.emit(Event::StepGoesOn {
            at,
            next: NextAction { role: AttemptRole::Main, mode: AttemptMode::Again, ..next },
        });
    }

    fn retry_undo_attempt(&mut self, of: UndoWalk) {
        let walk = &self.state.walks[&of];
        let at = walk.targets[walk.at].at;
        let next = NextAction { role: AttemptRole::Undo, iteration: 1, mode: AttemptMode::Again, stage: 1 };
        self.emit(Event::StepGoesOn { at, next });
    }

    fn time_out_waitpoint(&mut self, opening: Waitpoint) {
        let state = self.state.waitpoint(opening).expect("it has a deadline");
        let at = state.at;
        match state.kind {
            WaitpointKind::Hold(HoldReason::Governance) => self.escalate_hold(at, opening),
            WaitpointKind::Hold(_) => self.record_decision(opening, WaitpointDecision::from_timeout(Verdict::Approve)),
            WaitpointKind::Gate => self.time_out_gate(at, opening),
            WaitpointKind::Wait => self.time_out_wait(at),
        }
    }
}
