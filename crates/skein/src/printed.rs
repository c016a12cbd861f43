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
    engine::{AttemptId, Event, Record, Role, utc},
    ids::RunId,
    plan::Plan,
    time::Time,
    view::Names,
};
use skein_host::{
    store::{Store, StoreError},
    worker::Escape,
    workspace::RunDir,
};

/// So much is read at once.
const PIECE: usize = 64 * 1024;

/// Which attempts are meant.
#[derive(Debug, Clone, Copy)]
pub struct Meant<'a> {
    pub step: Option<&'a str>,
    /// In the order in which those of the step were started, from 1; with what checks it.
    pub number: Option<u32>,
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
    /// What it changed, if that is kept.
    changes: PathBuf,
    shown: u64,
    escape: Escape,
}

/// The logs that are meant.
#[derive(Debug)]
pub struct Logs<'a> {
    meant: Meant<'a>,
    kept: PathBuf,
    /// Whether what attempts changed is shown in place of what they printed.
    changes: bool,
    names: Names,
    events: u64,
    pub all: Vec<Log>,
    /// How often each step was tried.
    pub steps: BTreeMap<String, u32>,
    /// Steps whose results another run came to.
    pub reused: BTreeSet<String>,
}

impl<'a> Logs<'a> {
    pub fn new(plan: &Plan, kept: PathBuf, meant: Meant<'a>, changes: bool) -> Logs<'a> {
        let names = Names::new(plan.definition.clone());
        Logs {
            meant,
            kept,
            changes,
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
            Event::AttemptEnded { attempt, .. } => {
                let log = self.all.iter_mut().rfind(|log| log.attempt == *attempt);
                log.into_iter().for_each(|log| log.ended = Some(record.at));
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
            let log = || RunDir::log_below(&self.kept, attempt);
            let file = if self.changes { changes.clone() } else { log() };
            let (ended, escape) = (None, Escape::default());
            self.all.push(Log { step, number, attempt, started, ended, file, changes, shown: 0, escape });
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

    /// Which attempt it is, in words.
    pub fn title(&self) -> String {
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
        json!({
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
        })
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
