//! What a worker prints, on its way: through the filters, into the files, past who looks on.
//!
//! Owns that way. Refuses to hold more than a piece of it at a time.

use std::{
    fmt, mem,
    path::Path,
    time::{Duration, Instant},
};

use super::{
    Filter, Logged, Tell,
    log::{Keep, Log},
    recent::Recent,
    task::Task,
};

/// Who looks on is told at most this often.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// Which stream a piece came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output alone.
    Out,
    /// Standard error alone, or both in one.
    Both,
}

pub struct Output {
    log: Log,
    stdout: Option<Log>,
    filters: Option<[Box<dyn Filter>; 2]>,
    filtered: Vec<u8>,
    recent: Recent,
    tell: Option<Tell>,
    /// When it may be told again, and whether there is something to tell.
    next: Option<Instant>,
    news: bool,
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("log", &self.log).finish_non_exhaustive()
    }
}

impl Output {
    pub fn new(task: &mut Task) -> Output {
        let log = |path: &Path| Log::create(path, Keep::DEFAULT);
        let mut whole = log(&task.log);
        task.preface.iter().for_each(|note| whole.write(format!("[skein: {note}]\n").as_bytes()));
        Output {
            log: whole,
            stdout: task.stdout.as_deref().map(log),
            filters: task.filter.as_ref().map(|new| [new(), new()]),
            filtered: Vec::new(),
            recent: Recent::default(),
            tell: task.tell.take(),
            next: None,
            news: false,
        }
    }

    pub fn push(&mut self, stream: Stream, bytes: &[u8]) {
        let Some(filters) = &mut self.filters else { return self.keep(stream, bytes) };
        let mut filtered = mem::take(&mut self.filtered);
        filters[stream as usize].push(bytes, &mut filtered);
        self.keep(stream, &filtered);
        filtered.clear();
        self.filtered = filtered;
    }

    fn keep(&mut self, stream: Stream, bytes: &[u8]) {
        self.log.write(bytes);
        if let (Stream::Out, Some(stdout)) = (stream, &mut self.stdout) {
            stdout.write(bytes);
        }
        self.recent.push(bytes);
        self.news |= bytes.contains(&b'\n');
    }

    /// When there is something to tell.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        (self.news && self.tell.is_some()).then(|| self.next.unwrap_or(now))
    }

    pub fn tell(&mut self, now: Instant) {
        if self.due(now).is_some_and(|due| due <= now) {
            self.tell_now();
            self.next = now.checked_add(TELL_EVERY);
        }
    }

    fn tell_now(&mut self) {
        self.news = false;
        if let (Some(tell), Some(line)) = (&mut self.tell, self.recent.line()) {
            tell(&line);
        }
    }

    /// The end of all streams: what is in the log, in the other file, and the last that was printed.
    pub fn finish(mut self) -> (Logged, Option<Logged>, Recent) {
        for (stream, mut filter) in
            [Stream::Out, Stream::Both].into_iter().zip(self.filters.take().into_iter().flatten())
        {
            let mut rest = Vec::new();
            filter.finish(&mut rest);
            self.keep(stream, &rest);
        }
        if self.news {
            self.tell_now();
        }
        (self.log.finish(), self.stdout.map(Log::finish), self.recent)
    }
}
