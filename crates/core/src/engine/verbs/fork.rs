//! Fork: a run begins with what another came to, and goes on from there.

use crate::engine::{
    Event, InstanceIx, Reused, Start, StepAt,
    decide::{Decision, Todo},
    transitions::Phase,
};

impl Decision<'_> {
    pub(in crate::engine) fn fork_run(&mut self, start: &Start, reused: &[Reused]) {
        if !self.start_root(start) {
            return;
        }
        for reused in reused {
            self.emit(Event::from(reused.clone()));
        }
        let root = InstanceIx::ROOT;
        let steps = (0..).zip(&self.state.instance(root).steps);
        let over: Vec<StepAt> =
            steps.filter(|(_, step)| step.phase == Phase::Done).map(|(i, _)| StepAt(root, i)).collect();
        match over.first() {
            Some(at) if self.entry(root).is_routed() => self.move_cursor(*at),
            // What depends on nothing, and what depends only on what is over.
            _ => {
                self.begin(root);
                over.into_iter().for_each(|at| self.later(Todo::StepEnded(at)));
            }
        }
    }
}
