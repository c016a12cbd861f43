//! Following a run: the events of a run that this process or another one executes, for a front end that shows them.
//!
//! Owns the channel of those events, and the notifications about changed files by which another process is followed. A
//! front end receives a [`RunFeed`] and returns when the run needs no more attention.

use std::{
    cell::RefCell,
    collections::VecDeque,
    fmt,
    io::{self, Read, Seek, SeekFrom},
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, RecvError, RecvTimeoutError, Sender, channel},
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::inotify::{self, CreateFlags, Reader, WatchFlags},
};
use serde_json::Value;
use skein_core::{
    engine::{AttemptId, JournalBatch, RunProjection, RunState},
    ids::RunId,
    ir::RunStatus,
    limits,
    plan::Plan,
    time::Millis,
    view::TimelineLevel,
};
use skein_host::{
    host::{HostEvent, HostWatcher, RunLoader},
    store::{RunOwner, RunRow, SqliteStore, Store, StoreError},
    terminal_escape::escape_for_terminal,
    workspace::RunDir,
};

use crate::{
    app::{App, OperationObserver},
    app_error::{AppError, AppErrorKind},
    runs::{
        fork::ForkPreview,
        recording::RecordingSummary,
        session::{DecisionDesk, SessionControl},
    },
    state::StateHandle,
};

/// Maximum size of the shown end of a log.
const TAIL: u64 = 4 * 1024;
const TAIL_LINES: usize = 12;

/// The front end of an operation that executes runs in this process.
pub trait RunFrontEnd {
    /// Returns true if a person can see and answer prompts.
    fn is_interactive(&self) -> bool;

    /// Receives the control of a session before its runs start, so that the front end can stop them.
    fn attach(&self, control: SessionControl) -> Result<(), AppError>;

    /// Learns that this process owns the run, or waits until it can.
    fn claim(&self) {}

    /// Receives the description of a fork that is about to start.
    fn describe_fork(&self, _fork: &ForkPreview) {}

    /// Receives an entry of the timeline of one of several runs.
    fn show_entry(&self, _run: &RunId, _path: &str, _text: &str, _level: TimelineLevel) {}

    /// Shows a run until it ends or need not be shown any more.
    fn follow(&self, feed: &RunFeed<'_>) -> FollowOutcome;
}

/// A message to the front end that follows a run.
#[derive(Debug)]
pub enum FollowEvent {
    Row(Arc<JournalBatch>),
    Line(AttemptId, String),
    /// A line that a person typed, sent by the front end itself.
    Typed(String),
    NoSpace,
    /// A person at the terminal cancels the run.
    Cancelling,
    /// This run retries the followed one, which failed.
    Next(RunId),
    Over(FollowEnd),
}

/// The reason why following ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FollowEnd {
    Closed,
    /// The run waits for input, and the operation does not wait.
    Waits,
    /// The run was left interrupted.
    Left,
    Lost,
    SetAside(String),
    Broken(String),
}

/// The result of following a run.
#[derive(Debug)]
pub struct FollowOutcome {
    pub state: RunState,
    pub end: FollowEnd,
    /// The run that retries this one.
    pub next: Option<RunId>,
}

/// The end of an operation that executed a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutionEnd {
    Succeeded,
    Failed,
    /// A person stopped it at the terminal.
    Stopped,
    /// It waits for input, and the operation does not wait.
    Waiting,
}

impl FollowEnd {
    /// Returns the end of an operation that followed its own run.
    pub(crate) fn to_execution_end(&self, state: &RunState, stopped: bool) -> Result<ExecutionEnd, AppError> {
        Ok(match self {
            FollowEnd::Closed if state.status() == RunStatus::Succeeded => ExecutionEnd::Succeeded,
            FollowEnd::Closed if stopped && state.cancel.is_some() => ExecutionEnd::Stopped,
            FollowEnd::Closed => ExecutionEnd::Failed,
            FollowEnd::Left => ExecutionEnd::Stopped,
            FollowEnd::Waits => ExecutionEnd::Waiting,
            FollowEnd::Lost => return Err(AppError::refused("another process owns the run now")),
            FollowEnd::SetAside(why) => {
                let message = format!("the run was set aside: {why}");
                return Err(AppError::new(AppErrorKind::RunFailed, message));
            }
            FollowEnd::Broken(why) => {
                let hint = "acknowledged events are safe; run `skein resume` once the disk is fixed";
                return Err(AppError::store(why).with_hint(hint));
            }
        })
    }
}

/// A message, and the run that it concerns; none: all runs.
pub(crate) type RunFollowEvent = (Option<RunId>, FollowEvent);

/// Inbox of messages. Messages about a run that is not followed yet are kept until it is.
#[derive(Debug)]
pub(crate) struct FollowInbox {
    events: Receiver<RunFollowEvent>,
    later: RefCell<VecDeque<RunFollowEvent>>,
}

impl FollowInbox {
    pub(crate) fn new(events: Receiver<RunFollowEvent>) -> FollowInbox {
        FollowInbox { events, later: RefCell::default() }
    }

    /// Returns the next message about any run.
    pub(crate) fn next_event(&self) -> Result<RunFollowEvent, RecvError> {
        let delayed = self.later.borrow_mut().pop_front();
        delayed.map_or_else(|| self.events.recv(), Ok)
    }

    /// Returns the next message about a run, if it arrives in time.
    fn next_for_run(&self, run: &RunId, within: Duration) -> Result<FollowEvent, RecvTimeoutError> {
        let concerns = |(subject, _): &RunFollowEvent| subject.as_ref().is_none_or(|subject| subject == run);
        let mut later = self.later.borrow_mut();
        if let Some((_, event)) = later.iter().position(concerns).and_then(|at| later.remove(at)) {
            return Ok(event);
        }
        let until = Instant::now() + within;
        loop {
            let message = self.events.recv_timeout(until.saturating_duration_since(Instant::now()))?;
            if concerns(&message) {
                return Ok(message.1);
            }
            later.push_back(message);
        }
    }
}

/// Returns a watcher that passes on the events of the host.
pub(crate) fn new_watcher(to: Sender<RunFollowEvent>) -> HostWatcher {
    Box::new(move |event| {
        let (run, event) = match event {
            HostEvent::Row { running, batch } => (Some(running.run), FollowEvent::Row(Arc::clone(batch))),
            HostEvent::NoSpace { run } => (Some(run), FollowEvent::NoSpace),
            HostEvent::Retries { run, by } => (Some(run), FollowEvent::Next(by.clone())),
            HostEvent::Closed { run } => (Some(run), FollowEvent::Over(FollowEnd::Closed)),
            HostEvent::Left { run } => (Some(run), FollowEvent::Over(FollowEnd::Left)),
            HostEvent::Lost { run } => (Some(run), FollowEvent::Over(FollowEnd::Lost)),
            HostEvent::SetAside { run, why } => (Some(run), FollowEvent::Over(FollowEnd::SetAside(why.to_owned()))),
            HostEvent::Broken { why } => (None, FollowEvent::Over(FollowEnd::Broken(why.to_owned()))),
        };
        // A receiver that no longer watches is ignored.
        let _ = to.send((run.cloned(), event));
    })
}

/// A run that a front end shows: its plan, its past rows and its coming events.
pub struct RunFeed<'a> {
    pub run: &'a RunId,
    pub plan: Plan,
    pub workspace: &'a Path,
    /// Warnings about the workflow, as diagnostics in JSON.
    pub warnings: &'a [Value],
    /// The folder of the run.
    pub folder: PathBuf,
    /// The number of events that were shown before.
    pub before: u64,
    /// True if the operation waits for people and signals.
    pub waits: bool,
    /// True if another process owns the run.
    pub owned_elsewhere: bool,
    /// Receives the answers of a person to the run's prompts, if there is one.
    pub desk: Option<DecisionDesk>,
    pub(crate) store: &'a dyn Store,
    /// None: the run is only summarised.
    pub(crate) inbox: Option<&'a FollowInbox>,
    /// Summarises the recording of the run, if it is recorded or replayed.
    pub(crate) recording: &'a dyn Fn() -> Option<RecordingSummary>,
}

impl fmt::Debug for RunFeed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunFeed").field("run", &self.run).field("before", &self.before).finish_non_exhaustive()
    }
}

impl RunFeed<'_> {
    /// Returns the next event, if it arrives in time.
    pub fn next_event(&self, within: Duration) -> Result<FollowEvent, RecvTimeoutError> {
        self.inbox.map_or(Err(RecvTimeoutError::Disconnected), |inbox| inbox.next_for_run(self.run, within))
    }

    /// Reads the rows from one event up to, and not including, another. Rows come from the store that they were written
    /// to; an error in reading shows when the next row does not fit.
    pub fn read_rows(&self, from: u64, to: u64, each: &mut dyn FnMut(&JournalBatch)) {
        if from < to {
            let _ = self.store.read_journal(self.run, from, &mut |batch| {
                let wanted = batch.seq < to;
                if wanted && batch.seq >= from {
                    each(&batch);
                }
                wanted
            });
        }
    }

    /// Loads the run in its present state, without its past events; none if it has none.
    pub fn load_projection(&self) -> Option<RunProjection> {
        let row = self.store.find_run(self.run).ok()?.filter(|_| self.before > 0)?;
        Some(RunLoader::new(self.store).load_run(&row).ok()?.projection)
    }

    /// Returns true if the operation does not wait, and the run does.
    pub fn should_leave(&self, state: &RunState) -> bool {
        !self.waits && state.status() == RunStatus::Waiting
    }

    /// Summarises the recording of the run so far; none if it is neither recorded nor replayed.
    pub fn recording_summary(&self) -> Option<RecordingSummary> {
        (self.recording)()
    }
}

/// Remembers that the disk is full, so that the warning is given once and not at each retry.
#[derive(Debug, Default)]
pub struct DiskSpaceWarning {
    out: bool,
}

impl DiskSpaceWarning {
    pub fn warn_full(&mut self, observer: &dyn OperationObserver) {
        if !std::mem::replace(&mut self.out, true) {
            observer.warn("disk full: the run is paused until space is available");
        }
    }

    /// Reports that the journal could be written again.
    pub fn warn_restored(&mut self, observer: &dyn OperationObserver) {
        if std::mem::take(&mut self.out) {
            observer.warn("disk space is available again: the run continues");
        }
    }
}

/// Warns once that a run has many events: it fails at the limit.
pub fn warn_if_long(batch: &JournalBatch, observer: &dyn OperationObserver) {
    if let Some(warning) = long_run_warning(batch.seq, batch.records.len() as u64) {
        observer.warn(&warning);
    }
}

/// Returns the warning if `new` events after `before` cross the limit of the warning.
fn long_run_warning(before: u64, new: u64) -> Option<String> {
    let crosses = before < limits::EVENTS_WARN && before + new >= limits::EVENTS_WARN;
    crosses.then(|| {
        format!(
            "the run has {} events and fails at {}: shorten its lists and loops, or split it into several runs",
            limits::EVENTS_WARN,
            limits::EVENTS
        )
    })
}

/// Returns the message of the first Ctrl-C: its effect, and that of a second.
pub fn cancelling_message(run: &RunId) -> String {
    let grace = Millis(limits::STOP_GRACE_DEFAULT);
    format!(
        "cancelling run {run}: its workers have {grace} to stop; press Ctrl-C again to leave it at once, and `skein resume \
         {run}` finishes the cancellation"
    )
}

/// Returns the end of an attempt's log, safe to show.
pub fn read_log_tail(run_folder: &Path, attempt: AttemptId) -> Option<String> {
    let mut file = std::fs::File::open(RunDir::log_path(run_folder, attempt)).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    let lines: Vec<String> = bytes.split(|byte| *byte == b'\n').map(escape_for_terminal).collect();
    let end = lines.iter().rposition(|line| !line.trim().is_empty())? + 1;
    Some(lines[end.saturating_sub(TAIL_LINES)..end].join("\n"))
}

/// Reads the journal of a run that another process owns, as it grows.
struct JournalFollower {
    store: Arc<SqliteStore>,
    run: RunId,
    to: Sender<RunFollowEvent>,
    /// The number of events that have been passed on.
    events: u64,
    /// True if the warning about a missing owner was given.
    warned: bool,
    observer: Arc<dyn OperationObserver>,
}

/// Sends the events of a run, as its own host would.
pub(crate) fn follow_journal(app: &App, state: &StateHandle, run: &RunId) -> io::Result<FollowInbox> {
    let changes = FileChangeWatcher::watch_journal(&state.path)?;
    let (to, events) = channel();
    let (store, observer) = (Arc::clone(&state.store), Arc::clone(&app.observer));
    let mut reader = JournalFollower { store, run: run.clone(), to, events: 0, warned: false, observer };
    let body = move || {
        while reader.read_new_rows().unwrap_or_else(|error| reader.send_end(FollowEnd::Broken(error.to_string()))) {
            changes.wait_for_change();
        }
    };
    std::thread::Builder::new().name("follow".into()).spawn(body)?;
    Ok(FollowInbox::new(events))
}

impl JournalFollower {
    /// Passes on new events. Returns true if there may be more.
    fn read_new_rows(&mut self) -> Result<bool, StoreError> {
        // Reads the row first: the event that ends a run is in the journal before the row is closed.
        let row = self.store.find_run(&self.run)?.ok_or_else(|| StoreError::Unknown(self.run.clone()))?;
        let mut listens = true;
        let (to, events) = (&self.to, &mut self.events);
        self.store.read_journal(&self.run, *events, &mut |batch| {
            if batch.seq >= *events {
                *events = batch.seq + batch.records.len() as u64;
                listens = to.send((None, FollowEvent::Row(Arc::new(batch)))).is_ok();
            }
            listens
        })?;
        if !listens {
            return Ok(false);
        }
        if let Some(why) = row.quarantined {
            return Ok(self.send_end(FollowEnd::SetAside(why)));
        }
        if row.head.closed {
            return Ok(self.send_end(FollowEnd::Closed));
        }
        self.warn_if_left(&row);
        Ok(true)
    }

    /// Warns once if no process owns the run, because nothing happens to it then.
    fn warn_if_left(&mut self, row: &RunRow) {
        let left = matches!(row.owner, RunOwner::Nobody | RunOwner::Dead(_));
        if left && !self.warned {
            let run = &self.run;
            self.observer.warn(&format!("no process is executing run {run}; `skein resume {run}` resumes it"));
        }
        self.warned = left;
    }

    fn send_end(&self, end: FollowEnd) -> bool {
        let _ = self.to.send((None, FollowEvent::Over(end)));
        false
    }
}

/// Maximum time that a change stays unnoticed if the system does not report it.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

#[derive(Debug)]
/// Waits for changed files by inotify. Because a file system may not report changes, it also polls every second.
pub struct FileChangeWatcher {
    inotify_fd: OwnedFd,
}

impl FileChangeWatcher {
    pub fn new() -> io::Result<FileChangeWatcher> {
        Ok(FileChangeWatcher { inotify_fd: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)? })
    }

    /// Watches the journal of a state folder.
    pub(crate) fn watch_journal(state: &Path) -> io::Result<FileChangeWatcher> {
        FileChangeWatcher::watch_folder(state)
    }

    /// Watches the files in a folder.
    pub fn watch_folder(folder: &Path) -> io::Result<FileChangeWatcher> {
        let changes = FileChangeWatcher::new()?;
        changes.add_folder(folder);
        Ok(changes)
    }

    /// Also watches the files in this folder. A folder that cannot be watched is polled every second.
    pub fn add_folder(&self, folder: &Path) {
        let flags = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO;
        let _ = inotify::add_watch(&self.inotify_fd, folder, flags);
    }

    /// Waits until something changes, or until the next poll.
    pub fn wait_for_change(&self) {
        let mut polled = [PollFd::new(&self.inotify_fd, PollFlags::IN)];
        if poll(&mut polled, Some(&LOOK)).is_err() {
            return;
        }
        let mut bytes = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&self.inotify_fd, &mut bytes);
        while events.next().is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_long_run_is_warned_about_once() {
        let most = limits::EVENTS_WARN;
        let batches = [(most - 2, 1), (most - 1, 1), (most, 1), (0, most - 1), (0, most), (0, most + 1)];
        let warned = batches.map(|(before, new)| long_run_warning(before, new).is_some());
        assert_eq!(warned, [false, true, false, false, true, true]);
    }

    #[test]
    fn a_write_is_heard_at_once_and_only_once() {
        let folder = std::env::temp_dir().join(format!("skein-changes-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let changes = FileChangeWatcher::watch_journal(&folder).unwrap();
        let is_told = || {
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::new(&changes.inotify_fd, PollFlags::IN)], Some(&at_once)).unwrap() > 0
        };
        assert!(!is_told());
        fs::write(folder.join("file"), "x").unwrap();
        assert!(is_told(), "there is nothing to wait for");
        changes.wait_for_change();
        assert!(!is_told(), "what was heard is not heard again");
        fs::remove_dir_all(&folder).unwrap();
    }
}
