//! The deadlines of a running process.
//!
//! Owns the deadlines, on a monotonic clock. Stops no process.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use skein_core::time::Millis;

use super::{ExceededLimit, ProcessSpec};

#[derive(Debug)]
pub(super) struct ProcessDeadlines {
    total: Option<(Instant, Millis)>,
    start: Option<(Instant, Millis)>,
    idle: Option<Millis>,
    /// The start of the present silence.
    since: Instant,
    command: CommandDeadline,
}

/// The deadline of the command that a worker is running, if any. Set by the code that parses the worker's output.
#[derive(Debug, Clone, Default)]
pub struct CommandDeadline(Arc<Mutex<Option<(Instant, Millis)>>>);

impl CommandDeadline {
    pub fn set(&self, due: Option<(Instant, Millis)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = due;
    }

    pub fn get(&self) -> Option<(Instant, Millis)> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub fn to_duration(length: Millis) -> Duration {
    Duration::from_millis(length.0)
}

impl ProcessDeadlines {
    pub(super) fn new(task: &ProcessSpec, began: Instant) -> ProcessDeadlines {
        // A limit beyond the clock's range is no limit.
        let at = |limit: Millis| Some((began.checked_add(to_duration(limit))?, limit));
        ProcessDeadlines {
            total: task.limit.and_then(at),
            start: task.start.and_then(at),
            idle: task.idle,
            since: began,
            command: task.command.clone(),
        }
    }

    /// The earliest deadline.
    pub(super) fn next_deadline(&self) -> Option<(Instant, ExceededLimit)> {
        let total = self.total.map(|(at, limit)| (at, ExceededLimit::Total(limit)));
        let start = self.start.map(|(at, limit)| (at, ExceededLimit::Start(limit)));
        let silence =
            |limit: Millis| Some((self.since.checked_add(to_duration(limit))?, ExceededLimit::Silence(limit)));
        // Starting up does not count as silence if it has a limit of its own.
        let silence = self.idle.filter(|_| start.is_none()).and_then(silence);
        let command = self.command.get().map(|(at, limit)| (at, ExceededLimit::Command(limit)));
        [total, start, silence, command].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// Records that the process printed something.
    pub(super) fn note_output(&mut self, now: Instant) {
        self.start = None;
        self.since = now;
    }
}
