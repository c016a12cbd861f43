//! Timeout: deadlines that are due, each once.

use super::gate::TIME;
use crate::engine::{
    Decision as Answer, Event, Halt, InstanceIx, Mode, Onward, Opening, Role, StepAt, Stop, Walk,
    decide::Decision,
    state::{Deadline, OpeningKind},
    transitions::Phase,
};
use crate::ir::HoldReason;

/// How many deadlines one wake-up looks at; the rest are due again at once.
const MOST: usize = 1_000;

impl Decision<'_> {
    pub(in crate::engine) fn wake(&mut self) {
        for _ in 0..MOST {
            let Some((_, deadline)) =
                self.state.deadlines.first().filter(|(time, _)| *time <= self.now).copied()
            else {
                return;
            };
            match deadline {
                Deadline::Instance(ix) => self.instance_timed_out(ix),
                Deadline::Step(at) => self.overdue(at),
                Deadline::Retry(at) => self.try_again(at),
                Deadline::Opening(opening) => self.opening_timed_out(opening),
                Deadline::Undo(of) => self.try_undo_again(of),
            }
            self.follow();
        }
    }

    fn instance_timed_out(&mut self, ix: InstanceIx) {
        let undo = self.entry(ix).scope.undo.on_timeout && self.state.instance(ix).home == ix;
        self.halt(ix, Halt::TimedOut, undo);
    }

    /// The step's own time is up.
    fn overdue(&mut self, at: StepAt) {
        self.emit(Event::StepOverdue { at });
        let step = self.state.step(at);
        match step.phase {
            Phase::Running | Phase::Checking | Phase::Summing => {
                let attempt = step.more.as_ref().and_then(|more| more.live).expect("it is in flight");
                self.emit(Event::StopAsked { attempt, why: Stop::Timeout });
            }
            Phase::Inside => {
                self.halt_children(at, &Halt::TimedOut);
            }
            Phase::Stopping | Phase::Unwinding => {}
            _ => self.step_timed_out(at),
        }
    }

    fn try_again(&mut self, at: StepAt) {
        let next = self.state.more(at).expect("it failed before").next;
        self.emit(Event::StepGoesOn { at, next: Onward { role: Role::Main, mode: Mode::Again, ..next } });
    }

    fn try_undo_again(&mut self, of: Walk) {
        let walk = &self.state.walks[&of];
        let at = walk.targets[walk.at].at;
        let next = Onward { role: Role::Undo, iteration: 1, mode: Mode::Again, stage: 1 };
        self.emit(Event::StepGoesOn { at, next });
    }

    fn opening_timed_out(&mut self, opening: Opening) {
        let state = self.state.opening(opening).expect("it has a deadline");
        let at = state.at;
        match state.kind {
            OpeningKind::Hold(HoldReason::Governance) => self.escalate(at, opening),
            OpeningKind::Hold(_) => self.decided(opening, Answer::Approve, TIME, None),
            OpeningKind::Gate => self.gate_timed_out(at, opening),
            OpeningKind::Wait => self.wait_timed_out(at),
        }
    }
}
