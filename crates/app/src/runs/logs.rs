//! The output, the changes or the prompts of a run's workers, attempt by attempt.

use std::path::PathBuf;

use serde_json::{Value, json};
use skein_core::{ids::RunId, plan::Plan, suggest::did_you_mean};
use skein_host::{
    store::{RunOwner, RunRow, Store},
    workspace::RunDir,
};

use crate::{
    app::App,
    app_error::AppError,
    runs::{
        attempt_logs::{AttemptLogReader, AttemptLogs, AttemptSelector, LogFile},
        file_changes::FileChangeWatcher,
        list::watch_journal,
    },
    state::StateHandle,
};

/// Selects logs of a run.
#[derive(Debug)]
pub struct LogsRequest {
    /// The run id, or a unique prefix of it; none or `-`: the newest run.
    pub run: Option<String>,
    pub selector: AttemptSelector,
    pub file: LogFile,
    /// True if the logs are followed: a step that has not started may still do so.
    pub follow: bool,
}

/// The logs of the selected attempts of a run, as far as they have been read.
#[derive(Debug)]
pub struct RunLogs {
    state: StateHandle,
    run: RunId,
    pub logs: AttemptLogs,
    changes: FileChangeWatcher,
    over: bool,
}

/// Opens the selected logs.
pub fn open_logs(app: &App, request: &LogsRequest) -> Result<RunLogs, AppError> {
    let (state, row) = app.open_run_or_newest(request.run.as_deref())?;
    let plan = state.load_plan(&row)?;
    let run_folder = state.run_folder(&row.run);
    let logs = AttemptLogs::new(&plan, run_folder, request.selector.clone(), request.file);
    // Watches before the first read, so that nothing is missed in between.
    let changes = watch_journal(&state)?;
    let mut run_logs = RunLogs { state, run: row.run.clone(), logs, changes, over: false };
    run_logs.read_journal()?;
    let logs = &run_logs.logs;
    check_query(logs, &plan, &row, !request.follow || run_logs.over)?;
    if request.file == LogFile::Prompt && !logs.all.is_empty() && !logs.all.iter().any(|log| log.file.is_file()) {
        let step = request.selector.step.as_deref();
        let subject = step.map_or("this run".to_owned(), |step| format!("`{step}`"));
        return Err(AppError::refused(format!("there is no prompt of {subject}"))
            .with_hint("only agents and scripts have prompts; tools and commands have only inputs"));
    }
    Ok(run_logs)
}

impl RunLogs {
    /// Returns true if no more output will follow.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Waits for new output.
    pub fn wait_for_output(&mut self) -> Result<(), AppError> {
        let running = self.logs.all.iter().filter(|log| log.is_running());
        running.filter_map(AttemptLogReader::folder).for_each(|folder| self.changes.add_folder(folder));
        self.changes.wait_for_change();
        self.read_journal()
    }

    /// Returns the files with all changes of the run, one for each repository.
    pub fn list_run_changes(&self) -> Vec<PathBuf> {
        RunDir::list_run_changes(&self.state.run_folder(&self.run))
    }

    pub fn to_json(&self) -> Value {
        let objects: Vec<_> = self.logs.all.iter().map(AttemptLogReader::to_json).collect();
        json!({"run_id": self.run, "logs": objects, "changes": self.list_run_changes()})
    }

    /// Reads the new part of the journal.
    fn read_journal(&mut self) -> Result<(), AppError> {
        // Reads the row first: the event that ends a run is in the journal before the row is closed.
        let row = self.state.store.find_run(&self.run)?;
        let is_alive = |row: &RunRow| {
            !row.head.closed && row.quarantined.is_none() && matches!(row.owner, RunOwner::Other(_) | RunOwner::Here)
        };
        if let Some(row) = &row {
            self.logs.read_journal(&*self.state.store, &row.run)?;
        }
        self.over = !row.as_ref().is_some_and(is_alive);
        Ok(())
    }
}

/// Refuses a step or an attempt that does not exist, and, if no more events will follow, one that never started.
fn check_query(logs: &AttemptLogs, plan: &Plan, row: &RunRow, last: bool) -> Result<(), AppError> {
    let from = row.head.forked_from.as_ref().map(|from| &from.run);
    let Some(step) = logs.selector.step.as_deref().filter(|_| logs.all.is_empty()) else { return Ok(()) };
    let scopes = plan.definition.scopes.iter();
    let ids: Vec<&str> = scopes.flat_map(|entry| &entry.scope.steps).map(|step| step.id.as_str()).collect();
    let known = ids.iter().any(|id| step.rsplit('/').next() == Some(*id));
    let refuse = |message: String, hint: Option<String>| Err(AppError::refused(message).with_optional_hint(hint));
    match (known, logs.steps.get(step), logs.selector.number) {
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
