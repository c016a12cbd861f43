//! The terminal as the front end of runs: shows a run until it ends, asks its person, and passes on the signals of the
//! terminal. A program that reads the output gets one object, or a line for each event.
//!
//! A gate or hold of the run that is shown can be decided at the prompt. If it is decided elsewhere in the meantime, the
//! prompt is withdrawn.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    sync::{Arc, mpsc::RecvTimeoutError},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    termios::tcgetpgrp,
};
use serde::Serialize;
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
        session::{DecisionDesk, SessionControl, SessionLeave},
    },
};
use skein_core::{
    engine::{Event, JournalBatch, JournalError, RunProjection, RunState, StepPaths, Verdict, Waitpoint, format_utc},
    ids::RunId,
    plan::{ContentHash, Plan},
    time::Timestamp,
    view::TimelineLevel,
};
use skein_host::{clock::Clock, executor::kept_worktrees, process};

use crate::{
    exit::Exit,
    render::{
        live::{LiveOptions, LiveView, TerminalSize, TerminalSurface, one_line},
        output::{CliOutput, OutputFormat},
        tables,
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
        is_interactive(self.output)
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
    let asks = feed.desk.as_ref().is_some_and(|desk| read_lines(desk).is_ok());
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
        let message = submit_answer(desk, waitpoint, line);
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

/// Interval at which a process in the background checks whether it is in the foreground again, if a line was typed.
const AWAY: Duration = Duration::from_secs(1);

/// Returns true if a person can see and answer a prompt.
pub(crate) fn is_interactive(output: CliOutput) -> bool {
    output.format == OutputFormat::Human && io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Submits an answer. Returns a message if it cannot be parsed or is refused.
pub(crate) fn submit_answer(desk: &DecisionDesk, waitpoint: Waitpoint, typed: &str) -> Option<String> {
    let Some((verdict, reason)) = parse_answer(typed) else {
        return Some("`y` approves and `n` rejects; a reason may follow".to_owned());
    };
    desk.submit_decision(waitpoint, verdict, reason)
}

/// Starts to read typed lines, each of which becomes an event of the run.
pub(crate) fn read_lines(desk: &DecisionDesk) -> io::Result<()> {
    let send_line = desk.typed_line_sender();
    std::thread::Builder::new().name("typed".into()).spawn(move || read_typed_lines(send_line)).map(drop)
}

/// Parses an answer: a word, and optionally a reason.
fn parse_answer(typed: &str) -> Option<(Verdict, Option<String>)> {
    let typed = typed.trim();
    let (word, reason) = typed.split_once(char::is_whitespace).unwrap_or((typed, ""));
    let decision = match word.trim_end_matches([',', ':', ';', '.']).to_lowercase().as_str() {
        "y" | "yes" | "approve" => Verdict::Approve,
        "n" | "no" | "reject" => Verdict::Reject,
        _ => return None,
    };
    let reason = reason.trim();
    Some((decision, (!reason.is_empty()).then(|| reason.to_owned())))
}

/// Passes on each line. A background process that reads from the terminal would be stopped, so it does not read then.
fn read_typed_lines(send_line: impl Fn(String) -> bool) {
    let input = io::stdin();
    loop {
        if poll(&mut [PollFd::new(&input, PollFlags::IN)], None).is_err() {
            return;
        }
        let foreground = tcgetpgrp(&input).ok().map(|group| group.as_raw_nonzero().get());
        if foreground != process::own_group() {
            std::thread::sleep(AWAY);
            continue;
        }
        let mut line = String::new();
        match input.lock().read_line(&mut line) {
            Ok(length) if length > 0 && send_line(line) => {}
            _ => return,
        }
    }
}

/// Encoder of a run as lines of JSON, one for each event, as it is recorded.
///
/// | field | holds |
/// |---|---|
/// | `seq` | the number of the event in the run, from 0, without gaps |
/// | `at` | the time of the event, in UTC to the millisecond |
/// | `path` | the step of the event, or the lane, item, pass or call; empty for the run as a whole |
/// | `event` | an object with one field, which is the name of the event, or a string if the event has no data |
pub(crate) struct JsonlEncoder {
    names: StepPaths,
    /// The number of encoded events, and the hash of the last row.
    events: u64,
    chain: ContentHash,
}

#[derive(Serialize)]
struct JsonlLine<'a> {
    seq: u64,
    at: String,
    path: String,
    event: &'a Event,
}

impl JsonlEncoder {
    pub(crate) fn new(plan: &Plan) -> JsonlEncoder {
        let definition = Arc::clone(&plan.definition);
        JsonlEncoder { names: StepPaths::new(definition), events: 0, chain: ContentHash::ZERO }
    }

    /// Returns the lines of the next row of the run's journal, each with a newline.
    pub(crate) fn encode_row(&mut self, batch: &JournalBatch) -> Result<String, JournalError> {
        batch.check(self.events, self.chain)?;
        batch.check_definition(self.names.definition().hash())?;
        let mut lines = String::new();
        for (seq, record) in (batch.seq..).zip(&batch.records) {
            self.names.note_event(&record.event);
            let path = self.names.subject_path(record.event.subject()).unwrap_or_default();
            let line = JsonlLine { seq, at: format_utc_millis(record.at), path, event: &record.event };
            lines += &serde_json::to_string(&line).expect("the keys of an event are texts");
            lines.push('\n');
        }
        (self.events, self.chain) = (self.events + batch.records.len() as u64, batch.chain);
        Ok(lines)
    }
}

/// Formats a time in UTC, to the millisecond.
fn format_utc_millis(time: Timestamp) -> String {
    let whole = format_utc(time);
    format!("{}.{:03}Z", whole.trim_end_matches('Z'), time.0.rem_euclid(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_word_and_perhaps_a_reason() {
        let yes = |reason: Option<&str>| Some((Verdict::Approve, reason.map(str::to_owned)));
        let no = |reason: Option<&str>| Some((Verdict::Reject, reason.map(str::to_owned)));
        assert_eq!(parse_answer("y\n"), yes(None));
        assert_eq!(parse_answer("  YES  looks good \n"), yes(Some("looks good")));
        assert_eq!(parse_answer("n, not yet"), no(Some("not yet")));
        assert_eq!(parse_answer("reject"), no(None));
        for none in ["", "\n", "maybe", "yesterday", "yn"] {
            assert_eq!(parse_answer(none), None, "{none:?}");
        }
    }
}
