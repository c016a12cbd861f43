//! `skein logs`: the output or the changes of a run's workers, attempt by attempt, without terminal control sequences.

use std::{
    io::{self, Write},
    path::Path,
};

use clap::Args;
use serde_json::json;
use skein_app::{
    app_error::{AppError, AppErrorKind},
    file_changes::FileChangeWatcher,
    state::{StateHandle, refuse_store_error},
};
use skein_core::{engine::AttemptId, plan::Plan, suggest::did_you_mean};
use skein_host::{
    process::escape_for_terminal,
    store::{RunOwner, RunRow, Store},
    workspace::RunDir,
};

use crate::{
    attempt_logs::{AttemptLogReader, AttemptLogs, AttemptSelector, LogFile},
    exit::Exit,
    live::one_line,
    output::{CliOutput, is_unread},
};

#[derive(Debug, Args)]
#[group(skip)]
pub struct LogsArguments {
    /// Run id, or a unique prefix of it; default, and for `-`: the newest run.
    run: Option<String>,
    /// Path of a step; default: all steps.
    step: Option<String>,
    /// Show only this attempt of the step and its checks, counted from 1 in starting order.
    #[arg(long, value_name = "NUMBER", requires = "step")]
    attempt: Option<u32>,
    /// Show the changes of the run, or of each attempt of a step, instead of the output.
    #[arg(long, conflicts_with = "follow")]
    changes: bool,
    /// Show the prompt of each attempt instead of its output.
    #[arg(long, conflicts_with_all = ["follow", "changes"])]
    prompt: bool,
    /// Show new output until the run ends or is interrupted.
    #[arg(long)]
    follow: bool,
    /// Print the output byte for byte, with terminal control sequences.
    #[arg(long)]
    raw: bool,
}

pub fn run(arguments: &LogsArguments, given: Option<&Path>, output: CliOutput) -> Result<Exit, AppError> {
    let (state, row) = StateHandle::open_run_or_newest(given, arguments.run.as_deref())?;
    let plan = state.load_plan(&row)?;
    let meant = AttemptSelector { step: arguments.step.as_deref(), number: arguments.attempt };
    let which = match (arguments.changes, arguments.prompt) {
        (true, _) => LogFile::Changes,
        (false, true) => LogFile::Prompt,
        (false, false) => LogFile::Output,
    };
    let mut logs = AttemptLogs::new(&plan, state.run_folder(&row.run), meant, which);
    let follow = arguments.follow && !output.is_json();
    // Watches before the first read, so that nothing is missed in between.
    let changes = FileChangeWatcher::watch_journal(&state.path).map_err(|error| {
        AppError::new(AppErrorKind::Bug, &format!("cannot watch for changes: {error}"), None)
    })?;
    let mut over = read_journal(&state, &row, &mut logs)?;
    check_query(&logs, &LogQuery { plan: &plan, row: &row, meant }, !follow || over)?;
    if arguments.prompt && !logs.all.is_empty() && !logs.all.iter().any(|log| log.file.is_file()) {
        let what = arguments.step.as_deref().map_or("this run".to_owned(), |step| format!("`{step}`"));
        let hint = "only agents and scripts have prompts; tools and commands have only inputs";
        return Err(AppError::new(
            AppErrorKind::Refused,
            &format!("there is no prompt of {what}"),
            Some(hint),
        ));
    }
    if output.is_json() {
        let objects: Vec<_> = logs.all.iter().map(AttemptLogReader::to_json).collect();
        let changes = RunDir::list_run_changes(&state.run_folder(&row.run));
        output.print_json(&json!({"run_id": row.run, "logs": objects, "changes": changes}));
        return Ok(Exit::Done);
    }
    if arguments.changes && arguments.step.is_none() {
        return show_run_changes(&state.run_folder(&row.run), arguments.raw, output);
    }
    let of_agent = which == LogFile::Output && logs.all.iter().any(AttemptLogReader::has_agent);
    let titled = !arguments.raw && (follow || logs.all.len() > 1 || of_agent);
    let mut page = LogPrinter { output, raw: arguments.raw, titled, last: None, whole: true };
    page.print_logs(&mut logs)?;
    while follow && !over && !is_unread() {
        let going = logs.all.iter().filter(|log| log.is_running());
        going.filter_map(AttemptLogReader::folder).for_each(|folder| changes.add_folder(folder));
        changes.wait_for_change();
        over = read_journal(&state, &row, &mut logs)?;
        page.print_logs(&mut logs)?;
    }
    Ok(Exit::Done)
}

/// Prints one diff of all changes of a run.
fn show_run_changes(kept: &Path, raw: bool, output: CliOutput) -> Result<Exit, AppError> {
    let files = RunDir::list_run_changes(kept);
    if files.is_empty() {
        output.print_text("No changes that git would show.\n");
    }
    for file in files {
        let text = std::fs::read(&file).map_err(|error| {
            let message = format!("the changes `{}` cannot be read: {error}", file.display());
            AppError::new(AppErrorKind::Store, &message, None)
        })?;
        match raw {
            true => drop(io::stdout().lock().write_all(&text)),
            false => output.print_exact(&escape_for_terminal(&text)),
        }
    }
    Ok(Exit::Done)
}

/// Prints the output of all attempts of a run so far, each under its name.
pub fn show_all_logs(
    state: &StateHandle,
    row: &RunRow,
    plan: &Plan,
    output: CliOutput,
) -> Result<(), AppError> {
    let mut logs = AttemptLogs::new(
        plan,
        state.run_folder(&row.run),
        AttemptSelector { step: None, number: None },
        LogFile::Output,
    );
    read_journal(state, row, &mut logs)?;
    LogPrinter { output, raw: false, titled: true, last: None, whole: true }.print_logs(&mut logs)
}

/// Reads the new part of the journal. Returns true if no more events will follow.
fn read_journal(state: &StateHandle, row: &RunRow, logs: &mut AttemptLogs<'_>) -> Result<bool, AppError> {
    // Reads the row first: the event that ends a run is in the journal before the row is closed.
    let row = state.store.find_run(&row.run).map_err(|error| refuse_store_error(&error))?;
    let lives = |row: &RunRow| {
        !row.head.closed
            && row.quarantined.is_none()
            && matches!(row.owner, RunOwner::Other(_) | RunOwner::Here)
    };
    if let Some(row) = &row {
        logs.read_journal(&*state.store, &row.run).map_err(|error| refuse_store_error(&error))?;
    }
    Ok(!row.as_ref().is_some_and(lives))
}

/// The attempts that are requested, and their run.
struct LogQuery<'a> {
    plan: &'a Plan,
    row: &'a RunRow,
    meant: AttemptSelector<'a>,
}

/// Refuses a step or an attempt that does not exist, and, if no more events will follow, one that never started.
fn check_query(logs: &AttemptLogs<'_>, looked: &LogQuery<'_>, last: bool) -> Result<(), AppError> {
    let LogQuery { plan, row, meant } = *looked;
    let from = row.head.forked_from.as_ref().map(|from| &from.run);
    let Some(step) = meant.step.filter(|_| logs.all.is_empty()) else { return Ok(()) };
    let scopes = plan.definition.scopes.iter();
    let ids: Vec<&str> = scopes.flat_map(|entry| &entry.scope.steps).map(|step| step.id.as_str()).collect();
    let known = ids.iter().any(|id| step.rsplit('/').next() == Some(*id));
    let refuse = |message: String, hint: Option<String>| {
        Err(AppError::new(AppErrorKind::Refused, &message, hint.as_deref()))
    };
    match (known, logs.steps.get(step), meant.number) {
        (_, Some(count), Some(number)) if last => {
            refuse(format!("`{step}` has no attempt {number}"), Some(format!("it has {count}")))
        }
        (false, None, _) => {
            let names = logs.steps.keys().map(String::as_str).chain(ids.iter().copied());
            refuse(format!("there is no step `{step}`"), did_you_mean(step, names))
        }
        (true, None, _) if last && logs.reused.contains(step) => {
            let from = from.map(|from| format!("`skein logs {from} {step}` shows its output there"));
            refuse(format!("`{step}` did not run here: its result was reused"), from)
        }
        (true, None, _) if last => refuse(format!("`{step}` has not been started"), None),
        _ => Ok(()),
    }
}

/// Prints logs.
struct LogPrinter {
    output: CliOutput,
    raw: bool,
    /// True if each attempt is named above its output.
    titled: bool,
    last: Option<AttemptId>,
    /// True if the last line was terminated.
    whole: bool,
}

impl LogPrinter {
    fn print_logs(&mut self, logs: &mut AttemptLogs<'_>) -> Result<(), AppError> {
        for log in &mut logs.all {
            let (file, shown) = (log.file.clone(), self.print_log(log));
            shown.map_err(|error| {
                let message = format!("the log `{}` cannot be read: {error}", file.display());
                AppError::new(AppErrorKind::Store, &message, None)
            })?;
        }
        Ok(())
    }

    fn print_log(&mut self, log: &mut AttemptLogReader) -> io::Result<()> {
        if self.raw {
            let mut out = io::stdout().lock();
            let mut written = Ok(());
            log.read_raw(&mut |bytes| {
                if written.is_ok() {
                    written = out.write_all(bytes);
                }
            })?;
            // A closed pipe is not an error.
            return written.and_then(|()| out.flush()).or_else(|error| {
                match crate::output::is_broken_pipe(&error) {
                    true => Ok(()),
                    false => Err(error),
                }
            });
        }
        let (attempt, title) = (log.attempt, one_line(&log.title()));
        log.read_safe(&mut |text| {
            if text.is_empty() {
                return;
            }
            if self.titled && self.last != Some(attempt) {
                let before = if self.whole { "" } else { "\n" };
                self.output
                    .print_exact(&format!("{before}{}\n", self.output.paint.title(&format!("── {title}"))));
                self.last = Some(attempt);
            }
            self.output.print_exact(text);
            self.whole = text.ends_with('\n');
        })
    }
}
