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

/// Returns a command of Skein that can be typed here, its words quoted for a shell.
pub(crate) fn command_line(words: &[&str]) -> String {
    let prefix = PREFIX.get().map_or("skein", String::as_str).to_owned();
    words.iter().fold(prefix, |line, word| format!("{line} {}", quote_shell_word(word)))
}

/// Quotes a word for a shell, if necessary.
fn quote_shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Maximum number of answers that are offered.
const ANSWERS: usize = 5;

/// Returns the commands that answer a gate, a wait or a hold.
pub(super) fn answer_commands(run: &str, waitpoint: &WaitpointView) -> Vec<String> {
    match waitpoint.kind {
        WaitpointViewKind::Gate | WaitpointViewKind::Hold => {
            ["approve", "reject"].iter().map(|verb| command_line(&[verb, run, &waitpoint.step])).collect()
        }
        WaitpointViewKind::Wait => waitpoint.signals.iter().map(|name| command_line(&["signal", run, name])).collect(),
    }
}

/// Returns the commands that make sense now, the likeliest first. They depend on whether another process owns the run.
pub(super) fn next_commands(view: &RunView, owned_elsewhere: bool) -> Vec<String> {
    let Some(run) = view.run_id.as_deref() else { return Vec::new() };
    if view.quarantine.is_some() {
        return vec![command_line(&["events", run])];
    }
    match view.status {
        RunStatus::Succeeded => Vec::new(),
        RunStatus::Queued | RunStatus::Running | RunStatus::Waiting | RunStatus::Undoing => {
            let waitpoints = view.waiting_for.iter().flat_map(|waitpoint| answer_commands(run, waitpoint));
            let mut commands: Vec<String> = waitpoints.take(ANSWERS).collect();
            // A run with an owner is followed, one without is resumed.
            let last: &[&str] = if owned_elsewhere { &["runs", "--follow", run] } else { &["resume", run] };
            commands.push(command_line(last));
            commands
        }
        // Resuming retries the failed undo steps.
        RunStatus::UndoFailed => log_commands(view, run).into_iter().chain([command_line(&["resume", run])]).collect(),
        RunStatus::Failed | RunStatus::TimedOut | RunStatus::Cancelled | RunStatus::Undone => {
            let mut commands = log_commands(view, run);
            // A run that will be retried automatically needs no fork.
            commands.extend(fork_command(view, run).filter(|_| view.retry_at.is_none()));
            if view.steps.iter().filter(|step| is_dead_letter(step)).count() > 1 {
                commands.push(command_line(&["dlq"]));
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
    Some(command_line(&["fork", run, "--from", outermost_step(path)]))
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
    paths.map(|path| command_line(&["logs", run, path])).collect()
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
