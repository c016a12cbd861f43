//! `skein fork`: starts a new run from a step of an ended run, or with the present workflow, and reuses its results.

use std::path::Path;

use clap::Args;
use skein_app::{
    app_error::{AppError, AppErrorKind},
    run_files,
    state::{StateHandle, refuse_store_error},
};
use skein_core::{
    engine::{ForkRefusal, ForkSeed},
    ids::RunId,
    suggest::did_you_mean,
};
use skein_host::{
    clock::Clock,
    host::{ForkError, RunLaunch, new_run_id, prepare_fork as prepare},
    identity::current_user,
    store::{
        DeadLetterId, DeadLetterSelection, DeadLetterSettlement, RunRow, SettlementKind, Store, StoreError,
    },
    workspace::{RootFolder, RunDir},
};

use super::{
    reload,
    run::{AttachOptions as Stay, start_run},
};
use crate::{
    exit::Exit,
    host_session,
    live::{one_line, outermost_step},
    output::{CliOutput, OutputFormat},
    send_input,
};

/// Maximum number of steps that are named.
const NAMED: usize = 10;

#[derive(Debug, Args)]
#[group(skip)]
pub struct ForkArguments {
    /// Run id, or a unique prefix of it.
    run: String,
    /// First step to run again, with all steps after it.
    #[arg(long, value_name = "STEP", required_unless_present = "reload")]
    from: Option<String>,
    #[command(flatten)]
    reload: reload::ReloadArguments,
    #[command(flatten)]
    how: Stay,
}

pub fn run(arguments: &ForkArguments, state: Option<&Path>, output: CliOutput) -> Result<Exit, AppError> {
    StateHandle::open_run(state, &arguments.run).and_then(|(state, row)| match &arguments.from {
        Some(from) if !arguments.reload.reload => fork_run(&state, &row, from, &arguments.how, output),
        from => fork_reloaded(&state, &row, from.as_deref(), arguments, output),
    })
}

/// Forks a run with the present workflow and configuration.
fn fork_reloaded(
    state: &StateHandle,
    row: &RunRow,
    from: Option<&str>,
    arguments: &ForkArguments,
    output: CliOutput,
) -> Result<Exit, AppError> {
    send_input::require_person(state, &row.run, "fork the run")?;
    check_forkable(row)?;
    let reloaded = reload::preview_reload(state, row, from, &arguments.reload, output)?;
    if arguments.reload.plan {
        match output.is_json() {
            true => output.print_json(&reloaded.to_json(row)),
            false => output.print_text(&reloaded.render_text(row, output)),
        }
        return Ok(Exit::Done);
    }
    let run = new_run_id();
    let begin = reloaded.fork.prepare_launch(&state.path, run.clone());
    let Some(begin) = begin.map_err(|error| refuse_fork(row, &error))? else {
        return Err(refuse_unchanged(row));
    };
    let settles = collect_settlements(state, row, &reloaded.fork.fork, &run)
        .map_err(|error| refuse_store_error(&error))?;
    let plan = run_files::bind_files_root(&begin.plan, state, &run);
    let begin = RunLaunch { settles, about: reloaded.about.to_json(), plan, ..begin };
    if output.format == OutputFormat::Human {
        output.print_text(&reloaded.render_text(row, output));
    }
    let about = &reloaded.about;
    let ended = start_run(
        state,
        begin,
        about,
        host_session::read_max_workers(&about.project),
        &arguments.how,
        output,
    );
    if ended.is_err() {
        remove_run_folder(state, &run);
    }
    ended
}

fn refuse_unchanged(row: &RunRow) -> AppError {
    let run = &row.run;
    let message =
        format!("nothing to do: no step changed since run `{run}`, and all of its results are still valid");
    let hint = format!("`skein fork {run} --reload --from STEP` runs a step again");
    AppError::new(AppErrorKind::Refused, &message, Some(&hint))
}

/// Forks a run from a step.
pub fn fork_run(
    state: &StateHandle,
    row: &RunRow,
    from: &str,
    how: &Stay,
    output: CliOutput,
) -> Result<Exit, AppError> {
    // Decisions at gates are taken over, which only a person may do.
    send_input::require_person(state, &row.run, "fork the run")?;
    check_forkable(row)?;
    let mut about = send_input::read_run_settings(row)?;
    about.user = current_user();
    // The recording belongs to the original run.
    about.record = None;
    let run = new_run_id();
    let (begin, fork) = prepare(&*state.store, &state.path, row, from, run.clone())
        .map_err(|error| refuse_fork(row, &error))?;
    let settles = collect_settlements(state, row, &fork, &run).map_err(|error| refuse_store_error(&error))?;
    let plan = run_files::bind_files_root(&begin.plan, state, &run);
    let begin = RunLaunch { settles, about: about.to_json(), plan, ..begin };
    if output.format == OutputFormat::Human {
        output.print_text(&describe_fork(row, from, &fork, &about.workspace.display().to_string()));
    }
    let ended = start_run(state, begin, &about, host_session::read_max_workers(&about.project), how, output);
    if ended.is_err() {
        remove_run_folder(state, &run);
    }
    ended
}

/// Returns the dead letters of a run that its fork settles: those of steps that are run again.
fn collect_settlements(
    state: &StateHandle,
    row: &RunRow,
    fork: &ForkSeed,
    by: &RunId,
) -> Result<Vec<(DeadLetterId, DeadLetterSettlement)>, StoreError> {
    let letters = state.store.list_dead_letters(&DeadLetterSelection::InRun(row.run.clone()))?;
    let open = letters.iter().filter(|dead| {
        dead.settled.is_none() && !fork.steps.iter().any(|step| step == outermost_step(&dead.row.step))
    });
    Ok(open.map(|dead| (dead.id(), settle_now(SettlementKind::Rerun(by.clone())))).collect())
}

/// Returns a settlement by the current user, now.
pub fn settle_now(how: SettlementKind) -> DeadLetterSettlement {
    DeadLetterSettlement { how, by: Some(current_user()), at: Some(Clock::new().now()) }
}

/// Removes the folder of a run that was not started.
fn remove_run_folder(state: &StateHandle, run: &RunId) {
    if let (Ok(None), Ok(root)) = (state.store.find_run(run), RootFolder::open(&state.path)) {
        // A folder that cannot be removed does no harm.
        let _ = RunDir::remove(&root, run);
    }
}

/// Refuses a run that has not ended: two runs would work in one workspace.
fn check_forkable(row: &RunRow) -> Result<(), AppError> {
    let run = &row.run;
    skein_app::state::refuse_shortened(row)?;
    if let Some(why) = &row.quarantined {
        let message = format!("run `{run}` was set aside: {why}");
        return Err(AppError::new(
            AppErrorKind::Refused,
            &message,
            Some(&format!("`skein events {run}` shows what happened")),
        ));
    }
    if !row.head.closed {
        return Err(refuse_not_over(row));
    }
    Ok(())
}

fn refuse_not_over(row: &RunRow) -> AppError {
    let run = &row.run;
    let message = format!("run `{run}` has not ended, and a fork would work in the same workspace");
    let hint = format!("`skein resume {run}` finishes it, `skein cancel {run}` cancels it");
    AppError::new(AppErrorKind::Refused, &message, Some(&hint))
}

pub fn refuse_fork(row: &RunRow, error: &ForkError) -> AppError {
    let run = &row.run;
    let (message, hint) = match error {
        ForkError::NoFork(ForkRefusal::NotOver) => return refuse_not_over(row),
        ForkError::NoFork(ForkRefusal::Unknown { step, known }) => {
            let hint = did_you_mean(step, known.iter().map(String::as_str));
            let steps = format!("it can be forked from {}", list_steps(known));
            (format!("run `{run}` has no step `{step}`"), Some(hint.unwrap_or(steps)))
        }
        ForkError::NoFork(inside @ ForkRefusal::Inside { outer, .. }) => (
            inside.to_string(),
            Some(format!("`skein fork {run} --from {outer}` runs all of `{outer}` again")),
        ),
        ForkError::NoFork(ForkRefusal::Never { step }) => {
            let message = format!("run `{run}` never reached `{step}`, so there are no results before it");
            (message, Some(format!("`skein runs {run}` shows its steps")))
        }
        ForkError::Store(error) => return refuse_store_error(error),
        ForkError::Artifacts(_) | ForkError::Gone { .. } => (
            error.to_string(),
            Some(format!(
                "fork from an earlier step, or see `{}`",
                RunDir::run_path(Path::new("runs"), run).display()
            )),
        ),
    };
    AppError::new(AppErrorKind::Refused, &message, hint.as_deref())
}

/// Describes the reused steps, those that are run again, and that the workspace is not restored.
fn describe_fork(row: &RunRow, from: &str, fork: &ForkSeed, workspace: &str) -> String {
    let mut text = match &fork.steps[..] {
        [] => format!("Run {} has no results before {from}: all steps run again.\n", row.run),
        steps => format!("Reused from run {}: {}.\n", row.run, list_steps(steps)),
    };
    for (step, why) in fork.again.iter().take(NAMED) {
        text += &format!("Run again: {step}, because {}.\n", reload::describe_reason(*why));
    }
    if fork.again.len() > NAMED {
        text += &format!("Run again: {} more.\n", fork.again.len() - NAMED);
    }
    text += &format!("The workspace is left as it is: {workspace}\n");
    clean_lines(&text)
}

fn clean_lines(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", one_line(line))).collect()
}

fn list_steps(steps: &[String]) -> String {
    let more = if steps.len() > NAMED { ", …" } else { "" };
    format!("{}{more}", steps.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", "))
}
