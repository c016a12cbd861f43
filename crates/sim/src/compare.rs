//! Compares the result of a run with the recursive reference.

use std::collections::BTreeMap;

use skein_core::{
    engine::{Event, HaltReason, InstanceIx, RunPhase, StepAt, StepPhase},
    ir::{RunStatus, StepKindName, StepStatus},
};

use crate::{
    outcome::{LuckLevel, SeededWorld},
    paths::RunPathIndex,
    reference::{self, ExpectedRun},
    violation::RuleResult,
    world::SimulatedRun,
};

/// Compares a run without faults with the reference. Returns `None` if the result depends on timing.
pub fn compare_with_reference(seed: u64, luck: LuckLevel, finished: &SimulatedRun) -> Option<RuleResult> {
    let plan = finished.driver.plan();
    let expected = reference::evaluate_plan(plan, &SeededWorld { seed, luck }).ok()?;
    // In a run that waits forever, timing decides which steps have the slots.
    let slots = plan.definition.scopes.iter().any(|entry| entry.scope.concurrency.is_some());
    if slots && expected.status == RunStatus::Waiting {
        return None;
    }
    // Timing also decides how far the other steps were when a timeout or a limit stopped them all.
    let root = finished.driver.state().instances.first().and_then(|root| root.halt_reason());
    if matches!(root, Some(HaltReason::Cancelled { .. } | HaltReason::Limit { .. })) {
        return None;
    }
    Some(find_difference(&expected, finished).map_or(Ok(()), |how| Err(format!("I10: {how}").into())))
}

fn find_difference(expected: &ExpectedRun, finished: &SimulatedRun) -> Option<String> {
    let state = finished.driver.state();
    if state.status() != expected.status {
        return Some(format!("the run is {}, not {}", state.status(), expected.status));
    }
    if let Some(end) = &state.end {
        if end.degraded != expected.degraded {
            return Some(format!("degraded is {}", end.degraded));
        }
        if !reference::matches_expected(&expected.output, &end.output) {
            return Some(format!("the output is {}, not {}", end.output, expected.output));
        }
        if state.phase != RunPhase::Closed {
            return Some("it has ended but is not closed".to_owned());
        }
    }
    let (paths, mut undone) = read_history(finished);
    // Concurrent undo walks interleave in any order.
    let mut right = expected.undone.clone();
    if state.walks.len() > 1 {
        undone.sort();
        right.sort();
    }
    if undone != right {
        return Some(format!("undone were {undone:?}, not {right:?}"));
    }
    find_step_difference(expected, finished, &paths)
}

/// The paths of all instances, and the undone steps in order.
fn read_history(finished: &SimulatedRun) -> (RunPathIndex, Vec<String>) {
    let definition = &finished.driver.plan().definition;
    let mut paths = RunPathIndex::new(definition.clone());
    let mut undone = Vec::new();
    for record in finished.rows.iter().flat_map(|row| &row.records) {
        paths.observe(&record.event);
        if let Event::StepUndone { at, .. } = &record.event {
            undone.push(shown_step_path(&paths, definition, *at));
        }
    }
    (paths, undone)
}

fn shown_step_path(paths: &RunPathIndex, definition: &skein_core::plan::PlanDefinition, at: StepAt) -> String {
    paths.instance_paths(at.0).step_path(definition.scope(paths.instance_scope(at.0)).step(at.1).id.as_str())
}

fn find_step_difference(expected: &ExpectedRun, finished: &SimulatedRun, paths: &RunPathIndex) -> Option<String> {
    let state = finished.driver.state();
    let definition = &finished.driver.plan().definition;
    // Of several tries of a composite, the last one is shown.
    let mut shown: BTreeMap<String, StepAt> = BTreeMap::new();
    for (ix, instance) in (0..).map(InstanceIx).zip(&state.instances) {
        for i in (0..).zip(&instance.steps).map(|(i, _)| i) {
            shown.insert(shown_step_path(paths, definition, StepAt(ix, i)), StepAt(ix, i));
        }
    }
    if !shown.keys().eq(expected.steps.keys()) {
        let (ours, theirs): (Vec<_>, Vec<_>) = (shown.keys().collect(), expected.steps.keys().collect());
        return Some(format!("the steps are {ours:?}, not {theirs:?}"));
    }
    for (path, at) in &shown {
        let want = &expected.steps[path];
        let composite = definition.scope(state.instance(at.0).scope).step(at.1).kind.name() != StepKindName::Work;
        let status = state.step_status(*at);
        // A composite is shown as running while a step inside it waits.
        let inside = state.step(*at).phase == StepPhase::Inside && want.status == StepStatus::Waiting;
        // A step that had failed before it was cut short may be shown as failed or as cancelled.
        let cut = want.status == StepStatus::Cancelled && !state.instance(at.0).is_going();
        let cut = cut && matches!(status, StepStatus::Failed | StepStatus::TimedOut | StepStatus::Skipped);
        // Timing decides which of several failures came first, and therefore the class.
        let failed = |status| matches!(status, StepStatus::Failed | StepStatus::TimedOut);
        let class = composite && failed(want.status) && failed(status);
        // A step is not undone if only some of its visits, or of the tries around it, could be undone.
        let failed = state.walks.values().any(|walk| walk.failed > 0);
        let stuck = want.status == StepStatus::Undone && failed;
        if !(want.accepts_status(status) || inside || cut || class || stuck) {
            return Some(format!("`{path}` is {status}, not {}", want.status));
        }
        let step = state.step(*at);
        let over = step.outcome.is_some() && status != StepStatus::Cancelled;
        if over && !reference::matches_expected(&want.output, &step.output) {
            return Some(format!("`{path}` gave {}, not {}", step.output, want.output));
        }
        let attempts = step.more.as_ref().map_or(0, |more| more.total_attempts);
        // A composite that cannot begin or is cut short may or may not have counted a try.
        let fits = attempts == want.attempts || (composite && status != StepStatus::Succeeded);
        let never = status == StepStatus::Skipped && attempts == 0;
        if !fits || (step.visit != want.visits && !never) {
            let (a, v) = (want.attempts, want.visits);
            return Some(format!("`{path}` had {attempts} attempts and {} visits, not {a} and {v}", step.visit));
        }
    }
    None
}
