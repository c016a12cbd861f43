//! When a process that runs is to be stopped.
//!
//! Owns the deadlines, by a clock that does not jump. Stops nobody.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use skein_core::time::Millis;

use super::{Task, Which};

#[derive(Debug)]
pub struct Limits {
    total: Option<(Instant, Millis)>,
    start: Option<(Instant, Millis)>,
    idle: Option<Millis>,
    /// Since when it is silent.
    since: Instant,
    command: Due,
}

/// When the command that a worker runs is due, if it runs one. Who understands what the worker prints sets it.
#[derive(Debug, Clone, Default)]
pub struct Due(Arc<Mutex<Option<(Instant, Millis)>>>);

impl Due {
    pub fn set(&self, due: Option<(Instant, Millis)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = due;
    }

    pub fn get(&self) -> Option<(Instant, Millis)> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub fn duration(length: Millis) -> Duration {
    Duration::from_millis(length.0)
}

impl Limits {
    pub fn new(task: &Task, began: Instant) -> Limits {
        // What no clock can reach is no limit.
        let at = |limit: Millis| Some((began.checked_add(duration(limit))?, limit));
        Limits {
            total: task.limit.and_then(at),
            start: task.start.and_then(at),
            idle: task.idle,
            since: began,
            command: task.command.clone(),
        }
    }

    /// The first deadline.
    pub fn next(&self) -> Option<(Instant, Which)> {
        let total = self.total.map(|(at, limit)| (at, Which::Total(limit)));
        let start = self.start.map(|(at, limit)| (at, Which::Start(limit)));
        let silence = |limit: Millis| Some((self.since.checked_add(duration(limit))?, Which::Silence(limit)));
        // What it takes to start is not silence, where that has a limit of its own.
        let silence = self.idle.filter(|_| start.is_none()).and_then(silence);
        let command = self.command.get().map(|(at, limit)| (at, Which::Command(limit)));
        [total, start, silence, command].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// It printed something.
    pub fn heard(&mut self, now: Instant) {
        self.start = None;
        self.since = now;
    }
}
