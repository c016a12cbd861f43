//! Commands that a person may want next, as they can be pasted.

use skein_core::{
    ir::{RunStatus, StepStatus},
    view::{OpeningView, RunView, StepView, WaitsFor},
};

use super::text::quoted;

/// So many answers are offered at most.
const ANSWERS: usize = 5;

fn command(verb: &str, run: &str, rest: &str) -> String {
    format!("skein {verb} {} {}", quoted(run), quoted(rest))
}

/// What answers a gate, a wait or a hold.
pub(super) fn answers(run: &str, opening: &OpeningView) -> Vec<String> {
    match opening.kind {
        WaitsFor::Gate | WaitsFor::Hold => {
            ["approve", "reject"].iter().map(|verb| command(verb, run, &opening.step)).collect()
        }
        WaitsFor::Wait => opening.signals.iter().map(|name| command("signal", run, name)).collect(),
    }
}

/// What makes sense now, the likeliest first. Of a run that someone has, other things do than of one that was left.
pub(super) fn commands(view: &RunView, had: bool) -> Vec<String> {
    let Some(run) = view.run_id.as_deref() else { return Vec::new() };
    if view.quarantine.is_some() {
        return vec![format!("skein events {}", quoted(run))];
    }
    match view.status {
        RunStatus::Succeeded => Vec::new(),
        RunStatus::Queued | RunStatus::Running | RunStatus::Waiting | RunStatus::Undoing => {
            let openings = view.waiting_for.iter().flat_map(|opening| answers(run, opening));
            let mut commands: Vec<String> = openings.take(ANSWERS).collect();
            // Whoever has it goes on with it.
            let more = if had { "runs --follow" } else { "resume" };
            commands.push(format!("skein {more} {}", quoted(run)));
            commands
        }
        // What could not be undone is tried again by that.
        RunStatus::UndoFailed => {
            logs(view, run).into_iter().chain([format!("skein resume {}", quoted(run))]).collect()
        }
        RunStatus::Failed | RunStatus::TimedOut | RunStatus::Cancelled | RunStatus::Undone => logs(view, run),
    }
}

/// Looking at what failed.
fn logs(view: &RunView, run: &str) -> Vec<String> {
    let failed = |step: &&StepView| {
        matches!(step.status, StepStatus::Failed | StepStatus::TimedOut | StepStatus::Incomplete)
    };
    let worked = view.steps.iter().filter(failed).find(|step| step.kind == "work" && step.attempts > 0);
    let stuck = view.undo.as_ref().and_then(|undo| undo.not_undone.first());
    let paths = stuck.into_iter().chain(worked.map(|step| &step.path));
    paths.map(|path| command("logs", run, path)).collect()
}
