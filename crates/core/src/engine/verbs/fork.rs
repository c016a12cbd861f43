//! Fork: starts a run with the results of another one and continues from there.

use crate::engine::{
    Event, InstanceIx, ReusedResult, RunStart, StepAt,
    decide::{DecideContext, PendingConsequence},
    transitions::StepPhase,
};

impl DecideContext<'_> {
    pub(in crate::engine) fn fork_run(&mut self, start: &RunStart, reused: &[ReusedResult]) {
        if !self.start_root(start) {
            return;
        }
        for reused in reused {
            self.emit(Event::from(reused.clone()));
        }
        let root = InstanceIx::ROOT;
        let steps = (0..).zip(&self.state.instance(root).steps);
        let over: Vec<StepAt> =
            steps.filter(|(_, step)| step.phase == StepPhase::Done).map(|(i, _)| StepAt(root, i)).collect();
        match over.first() {
            Some(at) if self.scope_entry(root).is_routed() => self.move_cursor(*at),
            // Steps without dependencies, and steps whose dependencies have all ended.
            _ => {
                self.begin_instance(root);
                over.into_iter().for_each(|at| self.defer_consequence(PendingConsequence::StepEnded(at)));
            }
        }
    }
}
