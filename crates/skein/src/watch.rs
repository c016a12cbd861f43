//! Watching a run: what is told of it is shown, until there is nothing more to see.

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
use skein_core::{
    engine::{AttemptId, Batch, RunState},
    ids::RunId,
    ir::RunStatus,
    limits,
    plan::Plan,
    time::Millis,
};
use skein_host::{
    clock::Clock,
    crew::kept_trees,
    host::{Recall, Told, Watcher},
    store::Store,
    worker::shown,
    workspace::RunDir,
};

use crate::{
    ask::Ask,
    exit::Exit,
    live::{Jsonl, Live, Options, Size, Surface},
    output::{Format, Output},
    result::result,
    taped::Taped,
};

/// How often what runs is drawn again.
const DRAW: Duration = Duration::from_millis(100);
/// Longer than anyone watches.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// So much of the end of a log is shown.
const TAIL: u64 = 4 * 1024;
const TAIL_LINES: usize = 12;

/// What there is to show.
#[derive(Debug)]
pub enum Note {
    Row(Arc<Batch>),
    Line(AttemptId, String),
    /// At the terminal.
    Typed(String),
    NoSpace,
    /// Someone at the terminal cancels the run.
    Cancelling,
    /// This run goes on where the one that is followed failed.
    Next(RunId),
    Over(Over),
}

/// Why there is nothing more to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Over {
    Closed,
    /// It waits, and nobody wants to wait for it.
    Waits,
    /// It was left as it is.
    Left,
    Lost,
    SetAside(String),
    Broken(String),
}

/// Whether there was no space for the journal, which is told once and not at each try.
#[derive(Debug, Default)]
pub struct Space {
    out: bool,
}

impl Space {
    pub fn out(&mut self, output: Output) {
        if !std::mem::replace(&mut self.out, true) {
            output.warn("there is no space left for the journal; nothing goes on until there is");
        }
    }

    /// Something was written again.
    pub fn back(&mut self, output: Output) {
        if std::mem::take(&mut self.out) {
            output.warn("there is space for the journal again");
        }
    }
}

/// Tells once that a run has become long: with many more events it fails.
pub fn warn_if_long(batch: &Batch, output: Output) {
    if let Some(warning) = long(batch.seq, batch.records.len() as u64) {
        output.warn(&warning);
    }
}

/// What there is to say of so many events after so many.
fn long(before: u64, new: u64) -> Option<String> {
    let crosses = before < limits::EVENTS_WARN && before + new >= limits::EVENTS_WARN;
    crosses.then(|| {
        format!(
            "the run has {} events; with {} it fails: make its lists and loops shorter, or several runs of it",
            limits::EVENTS_WARN,
            limits::EVENTS
        )
    })
}

/// A note, and the run that it is about; none: all of them.
pub type Of = (Option<RunId>, Note);

/// Where notes come in. Those about a run that is not followed yet are kept until it is.
#[derive(Debug)]
pub struct Inbox {
    told: Receiver<Of>,
    later: RefCell<VecDeque<Of>>,
}

impl Inbox {
    pub fn new(told: Receiver<Of>) -> Inbox {
        Inbox { told, later: RefCell::default() }
    }

    /// The next note, whatever it is about.
    pub fn any(&self) -> Result<Of, RecvError> {
        let kept = self.later.borrow_mut().pop_front();
        kept.map_or_else(|| self.told.recv(), Ok)
    }

    /// The next note about a run, if it comes in time.
    fn about(&self, run: &RunId, within: Duration) -> Result<Note, RecvTimeoutError> {
        let is_about = |of: &Of| of.0.as_ref().is_none_or(|of| of == run);
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

/// Passes on what the host tells.
pub fn watcher(to: Sender<Of>) -> Watcher {
    Box::new(move |told| {
        let (run, note) = match told {
            Told::Row { running, batch } => (Some(running.run), Note::Row(Arc::clone(batch))),
            Told::NoSpace { run } => (Some(run), Note::NoSpace),
            Told::Retries { run, by } => (Some(run), Note::Next(by.clone())),
            Told::Closed { run } => (Some(run), Note::Over(Over::Closed)),
            Told::Left { run } => (Some(run), Note::Over(Over::Left)),
            Told::Lost { run } => (Some(run), Note::Over(Over::Lost)),
            Told::SetAside { run, why } => (Some(run), Note::Over(Over::SetAside(why.to_owned()))),
            Told::Broken { why } => (None, Note::Over(Over::Broken(why.to_owned()))),
        };
        // Whoever does not watch any more is not told.
        let _ = to.send((run.cloned(), note));
    })
}

/// Standard output as a place to show a run on.
#[derive(Debug)]
struct Terminal;

impl Surface for Terminal {
    fn write(&mut self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    fn size(&self) -> Option<Size> {
        if !io::stdout().is_terminal() {
            return None;
        }
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        Some(Size { columns: size.ws_col, rows: size.ws_row })
    }
}

/// How a run is followed.
#[derive(Debug)]
pub struct Follow<'a> {
    pub run: &'a RunId,
    pub plan: Plan,
    pub store: &'a dyn Store,
    pub workspace: &'a Path,
    /// Warnings about the workflow, as diagnostics in JSON.
    pub warnings: &'a [Value],
    /// The folder of the run.
    pub kept: &'a Path,
    /// So many events were shown before.
    pub before: u64,
    /// Whether to wait for people and signals.
    pub waits: bool,
    /// Whether nothing is printed that programs would read.
    pub quiet: bool,
    /// Whether another process goes on with it.
    pub had: bool,
    /// Who is asked what it waits for.
    pub ask: Option<Ask>,
}

/// How a run was left that was followed.
#[derive(Debug)]
pub struct Last {
    pub state: RunState,
    pub over: Over,
    /// The run that goes on.
    pub next: Option<RunId>,
}

/// Shows a run until it is over.
pub fn follow(follow: Follow<'_>, notes: &Inbox, taped: &dyn Fn() -> Option<Taped>, output: Output) -> Last {
    match output.format {
        Format::Human => human(follow, notes, output),
        Format::Json | Format::Jsonl => plain(follow, notes, taped, output),
    }
}

impl Follow<'_> {
    /// The rows from one event to before another. Rows come from the store that they were written to, so what is wrong
    /// with one is found out when the next is not taken.
    fn read(&self, from: u64, to: u64, each: &mut dyn FnMut(&Batch)) {
        if from < to {
            let _ = self.store.read(self.run, from, &mut |batch| {
                let wanted = batch.seq < to;
                if wanted && batch.seq >= from {
                    each(&batch);
                }
                wanted
            });
        }
    }

    /// The run as it is, without telling what happened before; none where all of that is told.
    fn state(&self, format: Format) -> Option<RunState> {
        let row = self.store.run(self.run).ok()?.filter(|_| format == Format::Json && self.before > 0)?;
        Some(Recall::new(self.store).run(&row).ok()?.driver.into_parts().1)
    }

    fn is_over(&self, state: &RunState) -> bool {
        !self.waits && state.status() == RunStatus::Waiting
    }
}

fn human(follow: Follow<'_>, notes: &Inbox, output: Output) -> Last {
    let (mut next, mut space) = (None, Space::default());
    let mut live = Live::new(follow.plan.clone(), Terminal, options(&follow, output));
    follow.read(0, follow.before, &mut |batch| drop(live.recall(batch)));
    if follow.before > 0 {
        live.resumed();
    }
    let clock = Clock::new();
    let mut drawn = Instant::now();
    let over = loop {
        if follow.is_over(live.state()) {
            break Over::Waits;
        }
        match notes.about(follow.run, DRAW.saturating_sub(drawn.elapsed())) {
            Ok(Note::Row(batch)) => {
                space.back(output);
                warn_if_long(&batch, output);
                follow.read(live.state().events, batch.seq, &mut |batch| drop(live.row(batch)));
                let _ = live.row(&batch);
            }
            Ok(Note::Line(attempt, line)) => live.output(attempt, &line),
            Ok(Note::Typed(line)) => typed(&follow, &mut live, &line),
            Ok(Note::NoSpace) => space.out(output),
            Ok(Note::Cancelling) => live.say(&cancelling(follow.run)),
            Ok(Note::Next(run)) => next = Some(run),
            Ok(Note::Over(over)) => break over,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break Over::Broken("the host has stopped".to_owned()),
        }
        if drawn.elapsed() >= DRAW {
            drawn = Instant::now();
            if follow.ask.is_some() {
                live.ask();
            }
            // A reader that left wants no more.
            let _ = live.tick(clock.now());
        }
    };
    let _ = live.tick(clock.now());
    if let Ok(summary) = live.finish() {
        output.text(&summary);
    }
    Last { state: live.state().clone(), over, next }
}

/// The message of the first Ctrl-C: its effect, and that of a second.
pub fn cancelling(run: &RunId) -> String {
    let grace = Millis(limits::STOP_GRACE_DEFAULT);
    format!(
        "cancelling run {run}: its workers have {grace} to stop; press Ctrl-C again to leave it at once, and `skein resume \
         {run}` finishes the cancellation"
    )
}

/// Someone answered what was asked last.
fn typed(follow: &Follow<'_>, live: &mut Live<Terminal>, line: &str) {
    if let (Some(ask), Some(opening)) = (&follow.ask, live.answered()) {
        let said = ask.answer(opening, line);
        said.iter().for_each(|said| live.say(said));
    }
}

fn options(follow: &Follow<'_>, output: Output) -> Options {
    let (kept, run) = (follow.kept.to_owned(), follow.kept.to_owned());
    Options {
        paint: output.paint,
        workspace: Some(follow.workspace.display().to_string()),
        kept: Some(follow.kept.display().to_string()),
        trees: Box::new(move || kept_trees(&run)),
        slow: Options::SLOW,
        tail: Box::new(move |attempt| tail(&kept, attempt)),
        had: follow.had,
    }
}

/// A run as it is, in words.
pub fn summary(follow: Follow<'_>, output: Output) -> (RunState, String) {
    let mut live = Live::new(follow.plan.clone(), Terminal, options(&follow, output));
    follow.read(0, u64::MAX, &mut |batch| drop(live.recall(batch)));
    live.pass(Clock::new().now());
    let text = live.finish().unwrap_or_default();
    (live.state().clone(), text)
}

fn plain(follow: Follow<'_>, notes: &Inbox, taped: &dyn Fn() -> Option<Taped>, output: Output) -> Last {
    let (mut next, mut space) = (None, Space::default());
    let mut jsonl = Jsonl::new(follow.plan.clone());
    let recalled = follow.state(output.format);
    let before = if recalled.is_some() { 0 } else { follow.before };
    let mut state = recalled.unwrap_or_default();
    let mut take = |state: &mut RunState, batch: &Batch, show: bool| {
        for record in &batch.records {
            skein_core::engine::apply(&follow.plan, state, record.at, &record.event);
        }
        if output.format == Format::Jsonl
            && let Ok(lines) = jsonl.row(batch)
            && show
            && !follow.quiet
        {
            output.json_text(&lines);
        }
    };
    follow.read(0, before, &mut |batch| take(&mut state, batch, false));
    let over = loop {
        if follow.is_over(&state) {
            break Over::Waits;
        }
        match notes.about(follow.run, FOREVER) {
            Ok(Note::Row(batch)) => {
                space.back(output);
                warn_if_long(&batch, output);
                let from = state.events;
                follow.read(from, batch.seq, &mut |batch| take(&mut state, batch, true));
                if batch.seq == state.events {
                    take(&mut state, &batch, true);
                }
            }
            Ok(Note::NoSpace) => space.out(output),
            Ok(Note::Cancelling) => output.warn(&cancelling(follow.run)),
            Ok(Note::Line(..) | Note::Typed(_)) => {}
            Ok(Note::Next(run)) => next = Some(run),
            Ok(Note::Over(over)) => break over,
            Err(_) => break Over::Broken("the host has stopped".to_owned()),
        }
    };
    // Of runs that retry one another the last is the result.
    if output.format == Format::Json && !follow.quiet && next.is_none() {
        let mut object = result(&follow.plan, &state, follow.warnings);
        if let Some((name, value)) = taped().as_ref().map(Taped::value) {
            object[name] = value;
        }
        output.json(&object);
    }
    Last { state, over, next }
}

/// How the command ends that followed a run which it owned.
pub fn exit(state: &RunState, over: &Over, stopped: bool, output: Output) -> Exit {
    match over {
        Over::Closed if state.status() == RunStatus::Succeeded => Exit::Done,
        Over::Closed if stopped && state.cancel.is_some() => Exit::Stopped,
        Over::Closed => Exit::Failed,
        Over::Left => Exit::Stopped,
        Over::Waits => Exit::Waiting,
        Over::Lost => output.refuse(Exit::Refused, "another process has the run now", None),
        Over::SetAside(why) => output.refuse(Exit::Failed, &format!("the run was set aside: {why}"), None),
        Over::Broken(why) => output.refuse(
            Exit::Store,
            why,
            Some("what was acknowledged stands; `skein resume` goes on when the disk is well"),
        ),
    }
}

/// The end of an attempt's log, safe to show.
pub fn tail(kept: &Path, attempt: AttemptId) -> Option<String> {
    let mut file = std::fs::File::open(RunDir::log_below(kept, attempt)).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    let lines: Vec<String> = bytes.split(|byte| *byte == b'\n').map(shown).collect();
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
        let told = told.map(|(before, new)| long(before, new).is_some());
        assert_eq!(told, [false, true, false, false, true, true]);
    }
}
