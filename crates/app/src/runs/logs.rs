//! The output, the changes or the prompts of a run's workers, attempt by attempt: found through the journal, with the
//! position up to which each was shown. No log is held in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use skein_core::{
    engine::{AttemptId, AttemptRole, Cost, Event, JournalRecord, StepPaths, format_utc},
    ids::RunId,
    plan::Plan,
    suggest::did_you_mean,
    time::Timestamp,
    view::CostView,
};
use skein_host::{
    executor::agents::AgentNote,
    store::{RunOwner, RunRow, Store, StoreError},
    terminal_escape::TerminalEscaper,
    workspace::{RootFolder, RunDir},
};

use crate::{
    app::App,
    app_error::AppError,
    runs::{follow::FileChangeWatcher, inspect::watch_journal},
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

/// Number of bytes read at once.
const PIECE: usize = 64 * 1024;

/// Selects attempts.
#[derive(Debug, Clone, Default)]
pub struct AttemptSelector {
    pub step: Option<String>,
    /// Position among the attempts of the step in starting order, from 1. Attempts that check it have the same number.
    pub number: Option<u32>,
}

/// A file of an attempt that can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFile {
    Output,
    Changes,
    Prompt,
}

/// Reader of the log of one attempt.
#[derive(Debug)]
pub struct AttemptLogReader {
    pub step: String,
    pub number: u32,
    pub attempt: AttemptId,
    pub started: Timestamp,
    pub ended: Option<Timestamp>,
    pub file: PathBuf,
    /// The files with its changes and its prompt, which may not exist.
    changes: PathBuf,
    prompt: PathBuf,
    /// Its cost, once it has ended.
    pub cost: Option<Cost>,
    /// The agent that made the attempt in place of the step's own.
    pub by: Option<String>,
    shown: u64,
    escape: TerminalEscaper,
}

/// The logs of the selected attempts.
#[derive(Debug)]
pub struct AttemptLogs {
    pub selector: AttemptSelector,
    run_folder: PathBuf,
    file: LogFile,
    names: StepPaths,
    events: u64,
    pub all: Vec<AttemptLogReader>,
    /// The number of attempts of each step.
    pub steps: BTreeMap<String, u32>,
    /// Steps whose results were reused from another run.
    pub reused: BTreeSet<String>,
}

impl AttemptLogs {
    pub fn new(plan: &Plan, run_folder: PathBuf, selector: AttemptSelector, file: LogFile) -> AttemptLogs {
        let names = StepPaths::new(plan.definition.clone());
        AttemptLogs {
            selector,
            run_folder,
            file,
            names,
            events: 0,
            all: Vec::new(),
            steps: BTreeMap::new(),
            reused: BTreeSet::new(),
        }
    }

    /// Reads the new part of the journal.
    pub fn read_journal(&mut self, store: &dyn Store, run: &RunId) -> Result<(), StoreError> {
        store.read_journal(run, self.events, &mut |batch| {
            if batch.seq >= self.events {
                self.events = batch.seq + batch.records.len() as u64;
                batch.records.iter().for_each(|record| self.apply_record(record));
            }
            true
        })
    }

    fn apply_record(&mut self, record: &JournalRecord) {
        match &record.event {
            Event::AttemptStarted { attempt, .. } => self.add_attempt(*attempt, record.at),
            Event::AttemptEnded { attempt, cost, by, .. } => {
                if let Some(log) = self.all.iter_mut().rfind(|log| log.attempt == *attempt) {
                    (log.ended, log.cost, log.by) = (Some(record.at), Some(*cost), by.clone());
                }
            }
            Event::StepReused(reused) => drop(self.reused.insert(self.names.step_path(reused.at))),
            event => self.names.note_event(event),
        }
    }

    fn add_attempt(&mut self, attempt: AttemptId, started: Timestamp) {
        let step = self.names.step_path(attempt.at);
        let count = self.steps.entry(step.clone()).or_default();
        // An attempt that checks, summarises or undoes has the number of the attempt that it belongs to.
        *count += u32::from(attempt.role == AttemptRole::Main);
        let number = (*count).max(1);
        let AttemptSelector { step: wanted, number: only } = &self.selector;
        if wanted.as_ref().is_none_or(|wanted| *wanted == step) && only.is_none_or(|only| only == number) {
            let changes = RunDir::changes_path(&self.run_folder, attempt);
            let prompt = RunDir::prompt_path(&self.run_folder, attempt);
            let file = match self.file {
                LogFile::Output => RunDir::log_path(&self.run_folder, attempt),
                LogFile::Changes => changes.clone(),
                LogFile::Prompt => prompt.clone(),
            };
            let (ended, cost, by, escape) = (None, None, None, TerminalEscaper::default());
            let log = AttemptLogReader {
                step,
                number,
                attempt,
                started,
                ended,
                file,
                changes,
                prompt,
                cost,
                by,
                shown: 0,
                escape,
            };
            self.all.push(log);
        }
    }
}

impl AttemptLogReader {
    pub(crate) fn is_running(&self) -> bool {
        self.ended.is_none()
    }

    /// The folder to watch for changes of the log.
    pub fn folder(&self) -> Option<&Path> {
        self.file.parent()
    }

    /// Reads the note about the attempt's coding agent.
    pub fn read_agent_note(&self) -> Option<AgentNote> {
        AgentNote::read(&RootFolder::open(self.folder()?).ok()?)
    }

    /// Returns true if the worker was a coding agent.
    pub fn has_agent(&self) -> bool {
        self.read_agent_note().is_some()
    }

    pub fn to_json(&self) -> Value {
        let AttemptId { visit, iteration, role, .. } = self.attempt;
        let bytes = self.file.metadata().ok().map(|meta| meta.len());
        let note = self.read_agent_note();
        let cost = self.cost.or(note.as_ref().map(|note| note.cost)).unwrap_or_default();
        let mut object = json!({
            "step": self.step,
            "attempt": self.number,
            "id": self.attempt.to_string(),
            "role": role.as_str(),
            "visit": visit,
            "iteration": iteration,
            "started_at": format_utc(self.started),
            "finished_at": self.ended.map(format_utc),
            "file": bytes.map(|_| &self.file),
            "bytes": bytes.unwrap_or(0),
            "changes": self.changes.is_file().then_some(&self.changes),
            "prompt": self.prompt.is_file().then_some(&self.prompt),
            "duration_ms": self.ended.map(|ended| ended.duration_since(self.started).0),
            "cost": CostView::from(cost),
        });
        if let Some(note) = note {
            object["agent"] = json!({"worker": note.worker, "model": note.model, "session": note.session});
        }
        if let Some(by) = &self.by {
            object["by"] = json!(by);
        }
        object
    }

    /// Passes on the bytes that have not been shown yet, unchanged.
    pub fn read_raw(&mut self, each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let mut file = match File::open(&self.file) {
            Ok(file) => file,
            // The worker was not started, or not yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(self.shown))?;
        let mut piece = vec![0; PIECE];
        loop {
            let length = file.read(&mut piece)?;
            if length == 0 {
                return Ok(());
            }
            self.shown += length as u64;
            each(&piece[..length]);
        }
    }

    /// Passes on the same without terminal control sequences.
    pub fn read_safe(&mut self, each: &mut dyn FnMut(&str)) -> io::Result<()> {
        let mut escape = std::mem::take(&mut self.escape);
        let mut text = String::new();
        let read = self.read_raw(&mut |bytes| {
            text.clear();
            escape.push(bytes, &mut text);
            each(&text);
        });
        text.clear();
        if self.ended.is_some() {
            escape.finish(&mut text);
            each(&text);
        }
        self.escape = escape;
        read
    }
}
