//! Commands that are shown to people, ready to be pasted: those that make sense after a run or at a waitpoint, with the
//! flags of this process that select the project and the state folder.

use std::{path::Path, sync::OnceLock};

use skein_app::runs::fork::outermost_step;
use skein_core::{
    ir::{RunStatus, StepStatus},
    view::{RunView, StepReason, StepView, WaitpointView, WaitpointViewKind},
};

/// The words before the name of a command.
static PREFIX: OnceLock<String> = OnceLock::new();

/// Remembers the flags of this process.
pub(crate) fn remember_flags(state: Option<&Path>, project: Option<&Path>) {
    let from_environment = std::env::var_os("SKEIN_STATE");
    let state = state.filter(|state| from_environment.as_deref() != Some(state.as_os_str()));
    let flag = |name: &str, path: Option<&Path>| {
        path.map_or(String::new(), |path| format!(" --{name} {}", quote_shell_word(&path.display().to_string())))
    };
    let _ = PREFIX.set(format!("skein{}{}", flag("state", state), flag("project", project)));
}

/// Returns the words before the name of a command that is shown to be typed here.
pub(crate) fn command_prefix() -> &'static str {
    PREFIX.get().map_or("skein", String::as_str)
}

/// Quotes a word for a shell, if necessary.
pub(crate) fn quote_shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Maximum number of answers that are offered.
const ANSWERS: usize = 5;

fn build_command(verb: &str, run: &str, rest: &str) -> String {
    format!("{} {verb} {} {}", command_prefix(), quote_shell_word(run), quote_shell_word(rest))
}

/// Returns the commands that answer a gate, a wait or a hold.
pub(super) fn answer_commands(run: &str, opening: &WaitpointView) -> Vec<String> {
    match opening.kind {
        WaitpointViewKind::Gate | WaitpointViewKind::Hold => {
            ["approve", "reject"].iter().map(|verb| build_command(verb, run, &opening.step)).collect()
        }
        WaitpointViewKind::Wait => opening.signals.iter().map(|name| build_command("signal", run, name)).collect(),
    }
}

/// Returns the commands that make sense now, the likeliest first. They depend on whether another process owns the run.
pub(super) fn next_commands(view: &RunView, owned_elsewhere: bool) -> Vec<String> {
    let Some(run) = view.run_id.as_deref() else { return Vec::new() };
    if view.quarantine.is_some() {
        return vec![format!("{} events {}", command_prefix(), quote_shell_word(run))];
    }
    match view.status {
        RunStatus::Succeeded => Vec::new(),
        RunStatus::Queued | RunStatus::Running | RunStatus::Waiting | RunStatus::Undoing => {
            let openings = view.waiting_for.iter().flat_map(|opening| answer_commands(run, opening));
            let mut commands: Vec<String> = openings.take(ANSWERS).collect();
            // A run with an owner is followed, one without is resumed.
            let more = if owned_elsewhere { "runs --follow" } else { "resume" };
            commands.push(format!("{} {more} {}", command_prefix(), quote_shell_word(run)));
            commands
        }
        // Resuming retries the failed undo steps.
        RunStatus::UndoFailed => log_commands(view, run)
            .into_iter()
            .chain([format!("{} resume {}", command_prefix(), quote_shell_word(run))])
            .collect(),
        RunStatus::Failed | RunStatus::TimedOut | RunStatus::Cancelled | RunStatus::Undone => {
            let mut commands = log_commands(view, run);
            // A run that will be retried automatically needs no fork.
            commands.extend(fork_command(view, run).filter(|_| view.retry_at.is_none()));
            if view.steps.iter().filter(|step| is_dead_letter(step)).count() > 1 {
                commands.push(format!("{} dlq", command_prefix()));
            }
            commands
        }
    }
}

/// Returns true if a step failed permanently after it had been started.
fn is_dead_letter(step: &StepView) -> bool {
    matches!(step.status, StepStatus::Failed | StepStatus::TimedOut)
        && step.kind == "work"
        && step.attempts > 0
        && step.settled_by.is_none()
        && !step.reused
}

/// Returns the command that forks the run from the failed step, and reuses the results before it.
fn fork_command(view: &RunView, run: &str) -> Option<String> {
    let error = view.error.as_ref().and_then(|error| error.step.as_deref());
    let of = |statuses: &[StepStatus]| {
        let is = |step: &&StepView| statuses.contains(&step.status) && step.settled_by.is_none();
        view.steps.iter().find(is).map(|step| step.path.as_str())
    };
    let failed = || of(&[StepStatus::Failed, StepStatus::TimedOut, StepStatus::Incomplete]);
    let path = error.or_else(failed).or_else(|| of(&[StepStatus::Cancelled]))?;
    // A rejected gate is not asked again.
    let is_rejected =
        |step: &StepView| step.path == path && step.why.as_ref().is_some_and(|why| why.reason == StepReason::Rejected);
    if view.steps.iter().any(is_rejected) {
        return None;
    }
    Some(format!(
        "{} fork {} --from {}",
        command_prefix(),
        quote_shell_word(run),
        quote_shell_word(outermost_step(path))
    ))
}

/// Returns the commands that show the logs of failed steps.
fn log_commands(view: &RunView, run: &str) -> Vec<String> {
    let failed = |step: &&StepView| {
        let bad = matches!(step.status, StepStatus::Failed | StepStatus::TimedOut | StepStatus::Incomplete);
        bad && step.settled_by.is_none()
    };
    let worked = view.steps.iter().filter(failed).find(|step| step.kind == "work" && step.attempts > 0);
    let stuck = view.undo.as_ref().and_then(|undo| undo.not_undone.first());
    let paths = stuck.into_iter().chain(worked.map(|step| &step.path));
    paths.map(|path| build_command("logs", run, path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted() {
        assert_eq!(quote_shell_word("build"), "build");
        assert_eq!(quote_shell_word("each[3]/child"), "'each[3]/child'");
        assert_eq!(quote_shell_word("it's"), "'it'\\''s'");
    }
}
