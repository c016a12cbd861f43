//! The terminal as the front end of runs: shows a run until it ends, asks its person, and passes on the signals of the
//! terminal.

use std::{
    io::{self, IsTerminal, Write},
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use skein_app::{
    app_error::AppError,
    runs::{
        follow::{
            DiskSpaceWarning, FollowEnd, FollowEvent, FollowOutcome, RunFeed, RunFrontEnd, cancelling_message,
            read_log_tail, warn_if_long,
        },
        fork::ForkPreview,
        inspect::run_to_json,
        recording::RecordingSummary,
        session::{SessionControl, SessionLeave},
    },
};
use skein_core::{
    engine::{JournalBatch, RunProjection, RunState},
    ids::RunId,
    view::TimelineLevel,
};
use skein_host::{clock::Clock, executor::kept_worktrees};

use crate::{
    exit::Exit,
    render::{
        live::{JsonlEncoder, LiveOptions, LiveView, TerminalSize, TerminalSurface, one_line},
        output::{CliOutput, OutputFormat},
        prompt, tables,
    },
};

/// Interval at which the running steps are drawn again.
const DRAW: Duration = Duration::from_millis(100);
/// Longer than any run is watched.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// Time that the loop has to release its runs when the process is told to exit.
const LEAVING: Duration = Duration::from_secs(2);

/// The terminal, or the program that reads the output.
#[derive(Debug)]
pub(crate) struct TerminalFrontEnd {
    output: CliOutput,
    /// True if no output for programs is printed.
    quiet: bool,
    /// True if this is a background process, whose parent waits until it owns its run.
    detached: bool,
}

impl TerminalFrontEnd {
    pub(crate) fn new(output: CliOutput) -> TerminalFrontEnd {
        TerminalFrontEnd { output, quiet: false, detached: false }
    }

    /// Prints no run for programs, because they read another value.
    pub(crate) fn quiet(output: CliOutput) -> TerminalFrontEnd {
        TerminalFrontEnd { quiet: true, ..TerminalFrontEnd::new(output) }
    }

    /// Runs in the background, in a session of its own, so that closing the terminal does not end the process.
    pub(crate) fn detached(output: CliOutput) -> TerminalFrontEnd {
        // A session leader already has a session of its own.
        let _ = rustix::process::setsid();
        TerminalFrontEnd { detached: true, ..TerminalFrontEnd::new(output) }
    }
}

impl RunFrontEnd for TerminalFrontEnd {
    fn is_interactive(&self) -> bool {
        prompt::is_interactive(self.output)
    }

    /// Installs signal handlers: the first Ctrl-C cancels the runs; a second one, or another signal, leaves them
    /// interrupted.
    fn attach(&self, control: SessionControl) -> Result<(), AppError> {
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
        let spawned = signals.and_then(|signals| {
            let body = move || handle_signals(signals, &control);
            std::thread::Builder::new().name("signals".into()).spawn(body)
        });
        spawned.map(drop).map_err(|error| AppError::bug(format!("cannot install signal handlers: {error}")))
    }

    /// Tells the parent of a background process that this process owns the run.
    fn claim(&self) {
        if self.detached {
            // A parent that has ended is ignored.
            let _ = rustix::io::write(io::stdin(), b"!");
        }
    }

    fn describe_fork(&self, fork: &ForkPreview) {
        if self.output.format == OutputFormat::Human {
            self.output.print_text(&tables::render_fork(fork, self.output.paint));
        }
    }

    fn show_entry(&self, run: &RunId, path: &str, text: &str, level: TimelineLevel) {
        let paint = self.output.paint;
        if level > TimelineLevel::Detail && self.output.format == OutputFormat::Human {
            let path = if path.is_empty() { String::new() } else { format!("{}: ", paint.name(&one_line(path))) };
            let text = tables::paint_level(level, &one_line(text), paint);
            self.output.print_text(&format!("{run}  {path}{text}\n"));
        }
    }

    fn follow(&self, feed: &RunFeed<'_>) -> FollowOutcome {
        match self.output.format {
            OutputFormat::Human => follow_live(feed, self.output),
            OutputFormat::Json | OutputFormat::Jsonl => follow_json(feed, self.quiet, self.output),
        }
    }
}

/// Handles signals until the session ends. Never waits without a limit, so that signals are handled even if the loop of
/// the host or its disk hangs.
fn handle_signals(mut signals: Signals, control: &SessionControl) {
    let mut left = false;
    for (n, signal) in signals.forever().enumerate() {
        if control.is_over() {
            return;
        }
        // SIGTERM and SIGHUP, at a shutdown or when a terminal is closed, do not mean that the run should be cancelled.
        if n == 0 && signal == SIGINT {
            control.cancel_runs();
        } else if std::mem::replace(&mut left, true) || control.leave_runs(LEAVING) == SessionLeave::Unresponsive {
            exit_at_once(control);
        }
    }
}

/// Ends the process although its loop does not answer, and before that the workers of its runs. The runs can be
/// resumed.
fn exit_at_once(control: &SessionControl) -> ! {
    let _ = control.end_workers();
    let named: Vec<String> = control.runs().iter().map(|run| format!("`skein resume {run}`")).collect();
    eprintln!("warning: skein exited at once because its loop does not respond; resume with {}", named.join(", "));
    std::process::exit(Exit::Stopped as i32)
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

fn follow_live(feed: &RunFeed<'_>, output: CliOutput) -> FollowOutcome {
    let (mut next, mut space) = (None, DiskSpaceWarning::default());
    let mut live = LiveView::new(feed.plan.clone(), StdoutSurface, live_options(feed, output));
    feed.read_rows(0, feed.before, &mut |batch| drop(live.load_row(batch)));
    if feed.before > 0 {
        live.show_resumed();
    }
    let asks = feed.desk.as_ref().is_some_and(|desk| prompt::read_lines(desk).is_ok());
    let clock = Clock::new();
    let mut drawn = Instant::now();
    let end = loop {
        if feed.should_leave(live.state()) {
            break FollowEnd::Waits;
        }
        match feed.next_event(DRAW.saturating_sub(drawn.elapsed())) {
            Ok(FollowEvent::Row(batch)) => {
                space.warn_restored(&output);
                warn_if_long(&batch, &output);
                feed.read_rows(live.state().events, batch.seq, &mut |batch| drop(live.show_row(batch)));
                let _ = live.show_row(&batch);
            }
            Ok(FollowEvent::Line(attempt, line)) => live.show_output(attempt, &line),
            Ok(FollowEvent::Typed(line)) => submit_typed(feed, &mut live, &line),
            Ok(FollowEvent::NoSpace) => space.warn_full(&output),
            Ok(FollowEvent::Cancelling) => live.show_message(&cancelling_message(feed.run)),
            Ok(FollowEvent::Next(run)) => next = Some(run),
            Ok(FollowEvent::Over(end)) => break end,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                break FollowEnd::Broken("the host has stopped".to_owned());
            }
        }
        if drawn.elapsed() >= DRAW {
            drawn = Instant::now();
            if asks {
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
    FollowOutcome { state: live.state().clone(), end, next }
}

/// Submits a typed line as the answer to the last prompt.
fn submit_typed(feed: &RunFeed<'_>, live: &mut LiveView<StdoutSurface>, line: &str) {
    if let (Some(desk), Some(waitpoint)) = (&feed.desk, live.take_answered()) {
        let message = prompt::submit_answer(desk, waitpoint, line);
        message.iter().for_each(|message| live.show_message(message));
    }
}

fn live_options(feed: &RunFeed<'_>, output: CliOutput) -> LiveOptions {
    let (logs, step_worktrees) = (feed.folder.clone(), feed.folder.clone());
    LiveOptions {
        paint: output.paint,
        workspace: Some(feed.workspace.display().to_string()),
        logs_folder: Some(feed.folder.display().to_string()),
        worktrees: Box::new(move || kept_worktrees(&step_worktrees)),
        slow: LiveOptions::SLOW,
        tail: Box::new(move |attempt| read_log_tail(&logs, attempt)),
        owned_elsewhere: feed.owned_elsewhere,
    }
}

/// Returns the state of a run, and a summary as text.
pub(crate) fn summarize_run(feed: &RunFeed<'_>, output: CliOutput) -> (RunState, String) {
    let mut live = LiveView::new(feed.plan.clone(), StdoutSurface, live_options(feed, output));
    feed.read_rows(0, u64::MAX, &mut |batch| drop(live.load_row(batch)));
    live.advance_time(Clock::new().now());
    let text = live.finish().unwrap_or_default();
    (live.state().clone(), text)
}

fn follow_json(feed: &RunFeed<'_>, quiet: bool, output: CliOutput) -> FollowOutcome {
    let (mut next, mut space) = (None, DiskSpaceWarning::default());
    let mut jsonl = JsonlEncoder::new(&feed.plan);
    // One object needs only the present state, and lines need all events.
    let loaded = if output.is_json() { feed.load_projection() } else { None };
    let before = if loaded.is_some() { 0 } else { feed.before };
    let mut run = loaded.unwrap_or_else(|| RunProjection::new(feed.plan.clone()));
    let mut take = |run: &mut RunProjection, batch: &JournalBatch, show: bool| {
        batch.records.iter().for_each(|record| run.apply_record(record));
        if output.format == OutputFormat::Jsonl
            && let Ok(lines) = jsonl.encode_row(batch)
            && show
            && !quiet
        {
            output.print_json_text(&lines);
        }
    };
    feed.read_rows(0, before, &mut |batch| take(&mut run, batch, false));
    let end = loop {
        if feed.should_leave(run.state()) {
            break FollowEnd::Waits;
        }
        match feed.next_event(FOREVER) {
            Ok(FollowEvent::Row(batch)) => {
                space.warn_restored(&output);
                warn_if_long(&batch, &output);
                let from = run.state().events;
                feed.read_rows(from, batch.seq, &mut |batch| take(&mut run, batch, true));
                if batch.seq == run.state().events {
                    take(&mut run, &batch, true);
                }
            }
            Ok(FollowEvent::NoSpace) => space.warn_full(&output),
            Ok(FollowEvent::Cancelling) => output.warn(&cancelling_message(feed.run)),
            Ok(FollowEvent::Line(..) | FollowEvent::Typed(_)) => {}
            Ok(FollowEvent::Next(run)) => next = Some(run),
            Ok(FollowEvent::Over(end)) => break end,
            Err(_) => break FollowEnd::Broken("the host has stopped".to_owned()),
        }
    };
    // If runs retry one another, the last one is the result.
    if output.is_json() && !quiet && next.is_none() {
        let mut object = run_to_json(&feed.plan, run.state(), feed.warnings);
        if let Some((name, value)) = feed.recording_summary().as_ref().map(RecordingSummary::to_json) {
            object[name] = value;
        }
        output.print_json(&object);
    }
    FollowOutcome { state: run.into_parts().1, end, next }
}
