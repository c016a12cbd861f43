//! When a process that runs is to be stopped.
//!
//! Owns the three deadlines, by a clock that does not jump. Stops nobody.

use std::time::{Duration, Instant};

use skein_core::time::Millis;

use super::{Task, Which};

#[derive(Debug)]
pub struct Limits {
    total: Option<(Instant, Millis)>,
    start: Option<(Instant, Millis)>,
    idle: Option<Millis>,
    /// Since when it is silent.
    since: Instant,
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
        }
    }

    /// The first deadline.
    pub fn next(&self) -> Option<(Instant, Which)> {
        let total = self.total.map(|(at, limit)| (at, Which::Total(limit)));
        let start = self.start.map(|(at, limit)| (at, Which::Start(limit)));
        let silence = |limit: Millis| Some((self.since.checked_add(duration(limit))?, Which::Silence(limit)));
        [total, start, self.idle.and_then(silence)].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// It printed something.
    pub fn heard(&mut self, now: Instant) {
        self.start = None;
        self.since = now;
    }
}
