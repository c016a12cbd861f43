//! Watching a run: shows its events until it ends, or until it need not be shown any more.

use std::{
    cell::RefCell,
    collections::VecDeque,
    io::{self, IsTerminal, Read, Seek, SeekFrom, Write},
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, RecvError, RecvTimeoutError, Sender},
    },
    time::{Duration, Instant},
};

use serde_json::Value;
use skein_app::{
    app_error::{AppError, AppErrorKind},
    run_json::run_to_json,
};
use skein_core::{
    engine::{AttemptId, JournalBatch, RunState},
    ids::RunId,
    ir::RunStatus,
    limits,
    plan::Plan,
    time::Millis,
};
use skein_host::{
    clock::Clock,
    executor::kept_worktrees,
    host::{HostEvent, HostWatcher, RunLoader},
    process::escape_for_terminal,
    store::Store,
    workspace::RunDir,
};

use crate::{
    exit::Exit,
    live::{JsonlEncoder, LiveOptions, LiveView, TerminalSize, TerminalSurface},
    output::{CliOutput, OutputFormat},
    prompt::TerminalPrompt,
    recording::RecordingSummary,
};

/// Interval at which the running steps are drawn again.
const DRAW: Duration = Duration::from_millis(100);
/// Longer than any run is watched.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// Maximum size of the shown end of a log.
const TAIL: u64 = 4 * 1024;
const TAIL_LINES: usize = 12;

/// A message to the command that follows a run.
#[derive(Debug)]
pub enum FollowEvent {
    Row(Arc<JournalBatch>),
    Line(AttemptId, String),
    /// A line that was typed at the terminal.
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
    /// The run waits for input, and the command does not wait.
    Waits,
    /// The run was left interrupted.
    Left,
    Lost,
    SetAside(String),
    Broken(String),
}

/// Remembers that the disk is full, so that the warning is printed once and not at each retry.
#[derive(Debug, Default)]
pub struct DiskSpaceWarning {
    out: bool,
}

impl DiskSpaceWarning {
    pub fn warn_full(&mut self, output: CliOutput) {
        if !std::mem::replace(&mut self.out, true) {
            output.warn("disk full: the run is paused until space is available");
        }
    }

    /// Reports that the journal could be written again.
    pub fn warn_restored(&mut self, output: CliOutput) {
        if std::mem::take(&mut self.out) {
            output.warn("disk space is available again: the run continues");
        }
    }
}

/// Warns once that a run has many events: it fails at the limit.
pub fn warn_if_long(batch: &JournalBatch, output: CliOutput) {
    if let Some(warning) = long_run_warning(batch.seq, batch.records.len() as u64) {
        output.warn(&warning);
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

/// A message, and the run that it concerns; none: all runs.
pub type RunFollowEvent = (Option<RunId>, FollowEvent);

/// Inbox of messages. Messages about a run that is not followed yet are kept until it is.
#[derive(Debug)]
pub struct FollowInbox {
    told: Receiver<RunFollowEvent>,
    later: RefCell<VecDeque<RunFollowEvent>>,
}

impl FollowInbox {
    pub fn new(told: Receiver<RunFollowEvent>) -> FollowInbox {
        FollowInbox { told, later: RefCell::default() }
    }

    /// Returns the next message about any run.
    pub fn next_event(&self) -> Result<RunFollowEvent, RecvError> {
        let kept = self.later.borrow_mut().pop_front();
        kept.map_or_else(|| self.told.recv(), Ok)
    }

    /// Returns the next message about a run, if it arrives in time.
    fn next_for_run(&self, run: &RunId, within: Duration) -> Result<FollowEvent, RecvTimeoutError> {
        let is_about = |of: &RunFollowEvent| of.0.as_ref().is_none_or(|of| of == run);
        let mut later = self.later.borrow_mut();
        if let Some(kept) = later.iter().position(is_about).and_then(|at| later.remove(at)) {
            return Ok(kept.1);
        }
        let until = Instant::now() + within;
        loop {
            let of = self.told.recv_timeout(until.saturating_duration_since(Instant::now()))?;
            if is_about(&of) {
                return Ok(of.1);
            }
            later.push_back(of);
        }
    }
}

/// Returns a watcher that passes on the events of the host.
pub fn new_watcher(to: Sender<RunFollowEvent>) -> HostWatcher {
    Box::new(move |told| {
        let (run, note) = match told {
            HostEvent::Row { running, batch } => (Some(running.run), FollowEvent::Row(Arc::clone(batch))),
            HostEvent::NoSpace { run } => (Some(run), FollowEvent::NoSpace),
            HostEvent::Retries { run, by } => (Some(run), FollowEvent::Next(by.clone())),
            HostEvent::Closed { run } => (Some(run), FollowEvent::Over(FollowEnd::Closed)),
            HostEvent::Left { run } => (Some(run), FollowEvent::Over(FollowEnd::Left)),
            HostEvent::Lost { run } => (Some(run), FollowEvent::Over(FollowEnd::Lost)),
            HostEvent::SetAside { run, why } => {
                (Some(run), FollowEvent::Over(FollowEnd::SetAside(why.to_owned())))
            }
            HostEvent::Broken { why } => (None, FollowEvent::Over(FollowEnd::Broken(why.to_owned()))),
        };
        // A receiver that no longer watches is ignored.
        let _ = to.send((run.cloned(), note));
    })
}

/// Standard output as a surface to show a run on.
#[derive(Debug)]
struct StdoutSurface;

impl TerminalSurface for StdoutSurface {
    fn write(&mut self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    fn size(&self) -> Option<TerminalSize> {
        if !io::stdout().is_terminal() {
            return None;
        }
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        Some(TerminalSize { columns: size.ws_col, rows: size.ws_row })
    }
}

/// The parameters for following a run.
#[derive(Debug)]
pub struct FollowRequest<'a> {
    pub run: &'a RunId,
    pub plan: Plan,
    pub store: &'a dyn Store,
    pub workspace: &'a Path,
    /// Warnings about the workflow, as diagnostics in JSON.
    pub warnings: &'a [Value],
    /// The folder of the run.
    pub kept: &'a Path,
    /// The number of events that were shown before.
    pub before: u64,
    /// True if the command waits for people and signals.
    pub waits: bool,
    /// True if no output for programs is printed.
    pub quiet: bool,
    /// True if another process owns the run.
    pub had: bool,
    /// The prompt for decisions that the run waits for.
    pub ask: Option<TerminalPrompt>,
}

/// The result of following a run.
#[derive(Debug)]
pub struct FollowOutcome {
    pub state: RunState,
    pub over: FollowEnd,
    /// The run that retries this one.
    pub next: Option<RunId>,
}

/// Shows a run until it ends.
pub fn watch_run(
    follow: FollowRequest<'_>,
    notes: &FollowInbox,
    taped: &dyn Fn() -> Option<RecordingSummary>,
    output: CliOutput,
) -> FollowOutcome {
    match output.format {
        OutputFormat::Human => follow_live(follow, notes, output),
        OutputFormat::Json | OutputFormat::Jsonl => follow_json(follow, notes, taped, output),
    }
}

impl FollowRequest<'_> {
    /// Reads the rows from one event up to, and not including, another. Rows come from the store that they were written
    /// to; an error in reading shows when the next row does not fit.
    fn read_rows(&self, from: u64, to: u64, each: &mut dyn FnMut(&JournalBatch)) {
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

    /// Loads the run in its present state, without its past events; none if all events are shown.
    fn load_state(&self, format: OutputFormat) -> Option<RunState> {
        let row = self
            .store
            .find_run(self.run)
            .ok()?
            .filter(|_| format == OutputFormat::Json && self.before > 0)?;
        Some(RunLoader::new(self.store).load_run(&row).ok()?.driver.into_parts().1)
    }

    fn should_leave(&self, state: &RunState) -> bool {
        !self.waits && state.status() == RunStatus::Waiting
    }
}

fn follow_live(follow: FollowRequest<'_>, notes: &FollowInbox, output: CliOutput) -> FollowOutcome {
    let (mut next, mut space) = (None, DiskSpaceWarning::default());
    let mut live = LiveView::new(follow.plan.clone(), StdoutSurface, live_options(&follow, output));
    follow.read_rows(0, follow.before, &mut |batch| drop(live.load_row(batch)));
    if follow.before > 0 {
        live.show_resumed();
    }
    let clock = Clock::new();
    let mut drawn = Instant::now();
    let over = loop {
        if follow.should_leave(live.state()) {
            break FollowEnd::Waits;
        }
        match notes.next_for_run(follow.run, DRAW.saturating_sub(drawn.elapsed())) {
            Ok(FollowEvent::Row(batch)) => {
                space.warn_restored(output);
                warn_if_long(&batch, output);
                follow.read_rows(live.state().events, batch.seq, &mut |batch| drop(live.show_row(batch)));
                let _ = live.show_row(&batch);
            }
            Ok(FollowEvent::Line(attempt, line)) => live.show_output(attempt, &line),
            Ok(FollowEvent::Typed(line)) => submit_typed(&follow, &mut live, &line),
            Ok(FollowEvent::NoSpace) => space.warn_full(output),
            Ok(FollowEvent::Cancelling) => live.show_message(&cancelling_message(follow.run)),
            Ok(FollowEvent::Next(run)) => next = Some(run),
            Ok(FollowEvent::Over(over)) => break over,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                break FollowEnd::Broken("the host has stopped".to_owned());
            }
        }
        if drawn.elapsed() >= DRAW {
            drawn = Instant::now();
            if follow.ask.is_some() {
                live.ask_question();
            }
            // A closed pipe is not an error.
            let _ = live.tick(clock.now());
        }
    };
    let _ = live.tick(clock.now());
    if let Ok(summary) = live.finish() {
        output.print_text(&summary);
    }
    FollowOutcome { state: live.state().clone(), over, next }
}

/// Returns the message of the first Ctrl-C: its effect, and that of a second.
pub fn cancelling_message(run: &RunId) -> String {
    let grace = Millis(limits::STOP_GRACE_DEFAULT);
    format!(
        "cancelling run {run}: its workers have {grace} to stop; press Ctrl-C again to leave it at once, and `skein resume \
         {run}` finishes the cancellation"
    )
}

/// Submits a typed line as the answer to the last prompt.
fn submit_typed(follow: &FollowRequest<'_>, live: &mut LiveView<StdoutSurface>, line: &str) {
    if let (Some(ask), Some(opening)) = (&follow.ask, live.take_answered()) {
        let said = ask.submit_answer(opening, line);
        said.iter().for_each(|said| live.show_message(said));
    }
}

fn live_options(follow: &FollowRequest<'_>, output: CliOutput) -> LiveOptions {
    let (kept, run) = (follow.kept.to_owned(), follow.kept.to_owned());
    LiveOptions {
        paint: output.paint,
        workspace: Some(follow.workspace.display().to_string()),
        kept: Some(follow.kept.display().to_string()),
        trees: Box::new(move || kept_worktrees(&run)),
        slow: LiveOptions::SLOW,
        tail: Box::new(move |attempt| read_log_tail(&kept, attempt)),
        had: follow.had,
    }
}

/// Returns the state of a run, and a summary as text.
pub fn summarize_run(follow: FollowRequest<'_>, output: CliOutput) -> (RunState, String) {
    let mut live = LiveView::new(follow.plan.clone(), StdoutSurface, live_options(&follow, output));
    follow.read_rows(0, u64::MAX, &mut |batch| drop(live.load_row(batch)));
    live.advance_time(Clock::new().now());
    let text = live.finish().unwrap_or_default();
    (live.state().clone(), text)
}

fn follow_json(
    follow: FollowRequest<'_>,
    notes: &FollowInbox,
    taped: &dyn Fn() -> Option<RecordingSummary>,
    output: CliOutput,
) -> FollowOutcome {
    let (mut next, mut space) = (None, DiskSpaceWarning::default());
    let mut jsonl = JsonlEncoder::new(follow.plan.clone());
    let recalled = follow.load_state(output.format);
    let before = if recalled.is_some() { 0 } else { follow.before };
    let mut state = recalled.unwrap_or_default();
    let mut take = |state: &mut RunState, batch: &JournalBatch, show: bool| {
        for record in &batch.records {
            skein_core::engine::apply(&follow.plan, state, record.at, &record.event);
        }
        if output.format == OutputFormat::Jsonl
            && let Ok(lines) = jsonl.encode_row(batch)
            && show
            && !follow.quiet
        {
            output.print_json_text(&lines);
        }
    };
    follow.read_rows(0, before, &mut |batch| take(&mut state, batch, false));
    let over = loop {
        if follow.should_leave(&state) {
            break FollowEnd::Waits;
        }
        match notes.next_for_run(follow.run, FOREVER) {
            Ok(FollowEvent::Row(batch)) => {
                space.warn_restored(output);
                warn_if_long(&batch, output);
                let from = state.events;
                follow.read_rows(from, batch.seq, &mut |batch| take(&mut state, batch, true));
                if batch.seq == state.events {
                    take(&mut state, &batch, true);
                }
            }
            Ok(FollowEvent::NoSpace) => space.warn_full(output),
            Ok(FollowEvent::Cancelling) => output.warn(&cancelling_message(follow.run)),
            Ok(FollowEvent::Line(..) | FollowEvent::Typed(_)) => {}
            Ok(FollowEvent::Next(run)) => next = Some(run),
            Ok(FollowEvent::Over(over)) => break over,
            Err(_) => break FollowEnd::Broken("the host has stopped".to_owned()),
        }
    };
    // If runs retry one another, the last one is the result.
    if output.format == OutputFormat::Json && !follow.quiet && next.is_none() {
        let mut object = run_to_json(&follow.plan, &state, follow.warnings);
        if let Some((name, value)) = taped().as_ref().map(RecordingSummary::to_json) {
            object[name] = value;
        }
        output.print_json(&object);
    }
    FollowOutcome { state, over, next }
}

/// Returns the exit status of a command that followed its own run.
pub fn follow_exit(state: &RunState, over: &FollowEnd, stopped: bool) -> Result<Exit, AppError> {
    Ok(match over {
        FollowEnd::Closed if state.status() == RunStatus::Succeeded => Exit::Done,
        FollowEnd::Closed if stopped && state.cancel.is_some() => Exit::Stopped,
        FollowEnd::Closed => Exit::Failed,
        FollowEnd::Left => Exit::Stopped,
        FollowEnd::Waits => Exit::Waiting,
        FollowEnd::Lost => {
            return Err(AppError::new(AppErrorKind::Refused, "another process owns the run now", None));
        }
        FollowEnd::SetAside(why) => {
            return Err(AppError::new(
                AppErrorKind::RunFailed,
                &format!("the run was set aside: {why}"),
                None,
            ));
        }
        FollowEnd::Broken(why) => {
            let hint = "acknowledged events are safe; run `skein resume` once the disk is fixed";
            return Err(AppError::new(AppErrorKind::Store, why, Some(hint)));
        }
    })
}

/// Returns the end of an attempt's log, safe to show.
pub fn read_log_tail(kept: &Path, attempt: AttemptId) -> Option<String> {
    let mut file = std::fs::File::open(RunDir::log_path(kept, attempt)).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    let lines: Vec<String> = bytes.split(|byte| *byte == b'\n').map(escape_for_terminal).collect();
    let end = lines.iter().rposition(|line| !line.trim().is_empty())? + 1;
    Some(lines[end.saturating_sub(TAIL_LINES)..end].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_becomes_long_is_told_of_once() {
        let most = limits::EVENTS_WARN;
        let told = [(most - 2, 1), (most - 1, 1), (most, 1), (0, most - 1), (0, most), (0, most + 1)];
        let told = told.map(|(before, new)| long_run_warning(before, new).is_some());
        assert_eq!(told, [false, true, false, false, true, true]);
    }
}
