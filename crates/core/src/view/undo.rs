//! The view of undos: undone steps, steps that were not undone, and stopped steps that may have had an effect.

use std::collections::BTreeSet;

use serde::Serialize;

use super::ErrorView;
use crate::engine::{
    CompletedVisit, InstanceIx, RunState, StepAt, StepPaths, StepPhase, UndoTarget, UndoWalk, UndoWalkState,
};

/// Paths of steps, in document order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct UndoView {
    pub undone: Vec<String>,
    /// To be undone by a walk in progress.
    pub to_undo: Vec<String>,
    /// Their undo failed, or they were left out because another undo failed.
    pub not_undone: Vec<String>,
    /// The errors of undos that failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<UndoFailureView>,
    /// Stopped or interrupted before their outcome was known.
    pub possibly_effective: Vec<String>,
}

/// An undo that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UndoFailureView {
    /// The path of the step.
    pub step: String,
    pub error: ErrorView,
}

/// Summarises the undos of a run. `None` if no undo walk was started.
pub(super) fn summarize_undo(
    state: &RunState,
    names: &StepPaths,
    current: &[bool],
    shown: &[StepAt],
) -> Option<UndoView> {
    if state.walks.is_empty() {
        return None;
    }
    // Earlier visits of a composite count, and so do their steps. An earlier try does not: it was undone for a retry.
    let targeted: BTreeSet<StepAt> = state
        .walks
        .iter()
        .filter(|(of, _)| matches!(of, UndoWalk::Workflow(home) if current[home.0 as usize]))
        .flat_map(|(_, walk)| walk.targets.iter().map(|target| target.at))
        .collect();
    let shown: BTreeSet<StepAt> = shown.iter().copied().chain(targeted).collect();
    let mut view = UndoView::default();
    for at in shown {
        match undo_progress(state, at) {
            UndoProgress::Undone => view.undone.push(names.step_path(at)),
            UndoProgress::ToUndo => view.to_undo.push(names.step_path(at)),
            UndoProgress::NotUndone => {
                let error = state.visit_state(at).and_then(|more| more.undo_error.as_ref());
                let error = error.map(|error| ErrorView::from_error(error, names));
                view.failed.extend(error.map(|error| UndoFailureView { step: names.step_path(at), error }));
                view.not_undone.push(names.step_path(at));
            }
            UndoProgress::Untouched => {}
        }
    }
    let uncertain: BTreeSet<StepAt> = state.walks.values().flat_map(|walk| walk.uncertain.iter().copied()).collect();
    view.possibly_effective = uncertain.into_iter().map(|at| names.step_path(at)).collect();
    Some(view)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UndoProgress {
    Undone,
    ToUndo,
    NotUndone,
    /// No walk reached it.
    Untouched,
}

/// Returns the walk that undoes a workflow: its own, or that of the nearest caller.
fn find_undo_walk(state: &RunState, mut home: InstanceIx) -> Option<(InstanceIx, &UndoWalkState)> {
    loop {
        if let Some(walk) = state.walks.get(&UndoWalk::Workflow(home)) {
            return Some((home, walk));
        }
        home = state.instance(state.instance(home).parent?.0).home;
    }
}

/// Returns the progress of the undo of a step with its workflow.
pub(super) fn undo_progress(state: &RunState, at: StepAt) -> UndoProgress {
    let instance = state.instance(at.0);
    let phase = state.step(at).phase;
    match phase {
        StepPhase::Stuck => return UndoProgress::NotUndone,
        StepPhase::Undoing => return UndoProgress::ToUndo,
        _ => {}
    }
    let Some((home, walk)) = find_undo_walk(state, instance.home) else {
        return if phase == StepPhase::Undone { UndoProgress::Undone } else { UndoProgress::Untouched };
    };
    // An earlier visit may be undone and a later one not. The step counts as undone only if no target of this walk is
    // left.
    let targeted = |visit| walk.targets.contains(&UndoTarget { at, visit });
    let asked = home == instance.home && state.instance(home).undo_asked;
    let left = |done: &CompletedVisit| done.step == at.1 && (asked || targeted(done.visit));
    match instance.completed.iter().any(left) {
        true if walk.ended => UndoProgress::NotUndone,
        true => UndoProgress::ToUndo,
        false if phase == StepPhase::Undone => UndoProgress::Undone,
        false => UndoProgress::Untouched,
    }
}
