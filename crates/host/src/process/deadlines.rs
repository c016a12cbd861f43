//! When a process that runs is to be stopped.
//!
//! Owns the deadlines, by a clock that does not jump. Stops nobody.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use skein_core::time::Millis;

use super::{ExceededLimit, ProcessSpec};

#[derive(Debug)]
pub struct ProcessDeadlines {
    total: Option<(Instant, Millis)>,
    start: Option<(Instant, Millis)>,
    idle: Option<Millis>,
    /// Since when it is silent.
    since: Instant,
    command: CommandDeadline,
}

/// When the command that a worker runs is due, if it runs one. Who understands what the worker prints sets it.
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
    pub fn new(task: &ProcessSpec, began: Instant) -> ProcessDeadlines {
        // What no clock can reach is no limit.
        let at = |limit: Millis| Some((began.checked_add(to_duration(limit))?, limit));
        ProcessDeadlines {
            total: task.limit.and_then(at),
            start: task.start.and_then(at),
            idle: task.idle,
            since: began,
            command: task.command.clone(),
        }
    }

    /// The first deadline.
    pub fn next_deadline(&self) -> Option<(Instant, ExceededLimit)> {
        let total = self.total.map(|(at, limit)| (at, ExceededLimit::Total(limit)));
        let start = self.start.map(|(at, limit)| (at, ExceededLimit::Start(limit)));
        let silence = |limit: Millis| {
            Some((self.since.checked_add(to_duration(limit))?, ExceededLimit::Silence(limit)))
        };
        // What it takes to start is not silence, where that has a limit of its own.
        let silence = self.idle.filter(|_| start.is_none()).and_then(silence);
        let command = self.command.get().map(|(at, limit)| (at, ExceededLimit::Command(limit)));
        [total, start, silence, command].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// It printed something.
    pub fn note_output(&mut self, now: Instant) {
        self.start = None;
        self.since = now;
    }
}
