//! What the workers of a run printed: the logs of its attempts, as the journal tells of them and as far as they were
//! shown. No log is held in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use skein_core::{
    engine::{AttemptId, Cost, Event, Record, Role, utc},
    ids::RunId,
    plan::Plan,
    time::Time,
    view::{CostView, Names},
};
use skein_host::{
    agent::Note,
    store::{Store, StoreError},
    worker::Escape,
    workspace::{Root, RunDir},
};

use crate::live::{spent, took};

/// So much is read at once.
const PIECE: usize = 64 * 1024;

/// Which attempts are meant.
#[derive(Debug, Clone, Copy)]
pub struct Meant<'a> {
    pub step: Option<&'a str>,
    /// In the order in which those of the step were started, from 1; with what checks it.
    pub number: Option<u32>,
}

/// A file of an attempt that can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFile {
    Output,
    Changes,
    Prompt,
}

/// The log of one attempt.
#[derive(Debug)]
pub struct Log {
    pub step: String,
    pub number: u32,
    pub attempt: AttemptId,
    started: Time,
    ended: Option<Time>,
    pub file: PathBuf,
    /// The files with its changes and its prompt, where they are kept.
    changes: PathBuf,
    prompt: PathBuf,
    /// Its cost, once it has ended.
    cost: Option<Cost>,
    /// The agent that did it in place of the step's own.
    by: Option<String>,
    shown: u64,
    escape: Escape,
}

/// The logs that are meant.
#[derive(Debug)]
pub struct Logs<'a> {
    meant: Meant<'a>,
    kept: PathBuf,
    shown: LogFile,
    names: Names,
    events: u64,
    pub all: Vec<Log>,
    /// How often each step was tried.
    pub steps: BTreeMap<String, u32>,
    /// Steps whose results another run came to.
    pub reused: BTreeSet<String>,
}

impl<'a> Logs<'a> {
    pub fn new(plan: &Plan, kept: PathBuf, meant: Meant<'a>, shown: LogFile) -> Logs<'a> {
        let names = Names::new(plan.definition.clone());
        Logs {
            meant,
            kept,
            shown,
            names,
            events: 0,
            all: Vec::new(),
            steps: BTreeMap::new(),
            reused: BTreeSet::new(),
        }
    }

    /// Reads on in the journal.
    pub fn read(&mut self, store: &dyn Store, run: &RunId) -> Result<(), StoreError> {
        store.read(run, self.events, &mut |batch| {
            if batch.seq >= self.events {
                self.events = batch.seq + batch.records.len() as u64;
                batch.records.iter().for_each(|record| self.take(record));
            }
            true
        })
    }

    fn take(&mut self, record: &Record) {
        match &record.event {
            Event::AttemptStarted { attempt, .. } => self.begin(*attempt, record.at),
            Event::AttemptEnded { attempt, cost, by, .. } => {
                if let Some(log) = self.all.iter_mut().rfind(|log| log.attempt == *attempt) {
                    (log.ended, log.cost, log.by) = (Some(record.at), Some(*cost), by.clone());
                }
            }
            Event::StepReused(reused) => drop(self.reused.insert(self.names.step(reused.at))),
            event => drop(self.names.feed(event)),
        }
    }

    fn begin(&mut self, attempt: AttemptId, started: Time) {
        let step = self.names.step(attempt.at);
        let count = self.steps.entry(step.clone()).or_default();
        // What checks, sums up or undoes an attempt goes with it.
        *count += u32::from(attempt.role == Role::Main);
        let number = (*count).max(1);
        let Meant { step: meant, number: only } = self.meant;
        if meant.is_none_or(|meant| meant == step) && only.is_none_or(|only| only == number) {
            let changes = RunDir::changes_below(&self.kept, attempt);
            let prompt = RunDir::prompt_below(&self.kept, attempt);
            let file = match self.shown {
                LogFile::Output => RunDir::log_below(&self.kept, attempt),
                LogFile::Changes => changes.clone(),
                LogFile::Prompt => prompt.clone(),
            };
            let (ended, cost, by, escape) = (None, None, None, Escape::default());
            let log = Log {
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

impl Log {
    pub fn is_going(&self) -> bool {
        self.ended.is_none()
    }

    /// The folder to watch for more of it.
    pub fn folder(&self) -> Option<&Path> {
        self.file.parent()
    }

    /// Reads the note about its coding agent.
    fn note(&self) -> Option<Note> {
        Note::read(&Root::open(self.folder()?).ok()?)
    }

    /// Returns true if a coding agent did it.
    pub fn is_of_agent(&self) -> bool {
        self.note().is_some()
    }

    /// The name of the attempt, its times, its agent and its cost.
    pub fn title(&self) -> String {
        let note = self.note();
        let took = self.ended.map(|ended| took(ended.since(self.started)));
        let agent = note.as_ref().map(|note| note.worker.clone());
        let model = note.as_ref().and_then(|note| note.model.clone());
        let cost = self.cost.or(note.as_ref().map(|note| note.cost)).and_then(spent);
        let session = note.and_then(|note| note.session).map(|session| format!("session {session}"));
        let by = self.by.as_ref().map(|by| format!("by {by}"));
        let parts = [Some(utc(self.started)), took, agent, model, by, cost, session];
        let aside: Vec<String> = parts.into_iter().flatten().collect();
        format!("{}  {}", self.name(), aside.join(", "))
    }

    /// The name of the attempt: its step and its numbers.
    fn name(&self) -> String {
        let AttemptId { visit, iteration, role, .. } = self.attempt;
        let role = (role != Role::Main).then(|| role.as_str().to_owned());
        let visit = (visit > 1).then(|| format!("visit {visit}"));
        let iteration = (iteration > 1).then(|| format!("iteration {iteration}"));
        let parts: Vec<String> = role.into_iter().chain(visit).chain(iteration).collect();
        let aside = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
        format!("{}, attempt {}{aside}", self.step, self.number)
    }

    pub fn object(&self) -> Value {
        let AttemptId { visit, iteration, role, .. } = self.attempt;
        let bytes = self.file.metadata().ok().map(|meta| meta.len());
        let note = self.note();
        let cost = self.cost.or(note.as_ref().map(|note| note.cost)).unwrap_or_default();
        let mut object = json!({
            "step": self.step,
            "attempt": self.number,
            "id": self.attempt.to_string(),
            "role": role.as_str(),
            "visit": visit,
            "iteration": iteration,
            "started_at": utc(self.started),
            "finished_at": self.ended.map(utc),
            "file": bytes.map(|_| &self.file),
            "bytes": bytes.unwrap_or(0),
            "changes": self.changes.is_file().then_some(&self.changes),
            "prompt": self.prompt.is_file().then_some(&self.prompt),
            "duration_ms": self.ended.map(|ended| ended.since(self.started).0),
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

    /// Hands on what has not been shown yet, as it is.
    pub fn raw(&mut self, each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let mut file = match File::open(&self.file) {
            Ok(file) => file,
            // Nothing of it was ever started, or not yet.
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

    /// The same without what a terminal would obey.
    pub fn safe(&mut self, each: &mut dyn FnMut(&str)) -> io::Result<()> {
        let mut escape = std::mem::take(&mut self.escape);
        let mut text = String::new();
        let read = self.raw(&mut |bytes| {
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
