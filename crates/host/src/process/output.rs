//! The output of a worker on its way through the filters, into the files and to the progress callback.
//!
//! Owns that path. Never holds more than a piece of the output at a time.

use std::{
    fmt, mem,
    path::Path,
    time::{Duration, Instant},
};

use super::{
    LogReport, OutputFilter, ProgressCallback,
    log::{LogRetention, WorkerLog},
    process_spec::ProcessSpec,
    recent_output::RecentOutput,
};

/// The minimum interval between progress reports.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// The stream that a piece came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputStream {
    /// Standard output alone.
    Out,
    /// Standard error alone, or both in one.
    Both,
}

pub(super) struct ProcessOutput {
    log: WorkerLog,
    stdout: Option<WorkerLog>,
    filters: Option<[Box<dyn OutputFilter>; 2]>,
    filtered: Vec<u8>,
    recent: RecentOutput,
    tell: Option<ProgressCallback>,
    /// The earliest time of the next report, and whether there is something to report.
    next: Option<Instant>,
    news: bool,
}

impl fmt::Debug for ProcessOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessOutput").field("log", &self.log).finish_non_exhaustive()
    }
}

impl ProcessOutput {
    pub(super) fn new(task: &mut ProcessSpec) -> ProcessOutput {
        let log = |path: &Path| WorkerLog::create(path, LogRetention::DEFAULT);
        let mut whole = log(&task.log);
        task.preface.iter().for_each(|note| whole.write(format!("[skein: {note}]\n").as_bytes()));
        ProcessOutput {
            log: whole,
            stdout: task.stdout.as_deref().map(log),
            filters: task.filter.as_ref().map(|new| [new(), new()]),
            filtered: Vec::new(),
            recent: RecentOutput::default(),
            tell: task.tell.take(),
            next: None,
            news: false,
        }
    }

    pub(super) fn push(&mut self, stream: OutputStream, bytes: &[u8]) {
        let Some(filters) = &mut self.filters else { return self.write_logs(stream, bytes) };
        let mut filtered = mem::take(&mut self.filtered);
        filters[stream as usize].push(bytes, &mut filtered);
        self.write_logs(stream, &filtered);
        filtered.clear();
        self.filtered = filtered;
    }

    fn write_logs(&mut self, stream: OutputStream, bytes: &[u8]) {
        self.log.write(bytes);
        if let (OutputStream::Out, Some(stdout)) = (stream, &mut self.stdout) {
            stdout.write(bytes);
        }
        self.recent.push(bytes);
        self.news |= bytes.contains(&b'\n');
    }

    /// The time of the next report, if there is something to report.
    pub(super) fn progress_due(&self, now: Instant) -> Option<Instant> {
        (self.news && self.tell.is_some()).then(|| self.next.unwrap_or(now))
    }

    pub(super) fn report_progress(&mut self, now: Instant) {
        if self.progress_due(now).is_some_and(|due| due <= now) {
            self.report_now();
            self.next = now.checked_add(TELL_EVERY);
        }
    }

    fn report_now(&mut self) {
        self.news = false;
        if let (Some(tell), Some(line)) = (&mut self.tell, self.recent.last_line()) {
            tell(&line);
        }
    }

    /// Ends all streams. Returns the reports of the log and of the standard output file, and the recent output.
    pub(super) fn finish(mut self) -> (LogReport, Option<LogReport>, RecentOutput) {
        for (stream, mut filter) in
            [OutputStream::Out, OutputStream::Both].into_iter().zip(self.filters.take().into_iter().flatten())
        {
            let mut rest = Vec::new();
            filter.finish(&mut rest);
            self.write_logs(stream, &rest);
        }
        if self.news {
            self.report_now();
        }
        (self.log.finish(), self.stdout.map(WorkerLog::finish), self.recent)
    }
}
