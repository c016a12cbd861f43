//! Watching a run that this process owns: what the host tells is shown, until there is nothing more to see.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal, Read, Seek, SeekFrom, Write},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use skein_core::{
    engine::{AttemptId, Batch, RunState},
    ids::RunId,
    ir::RunStatus,
    plan::Plan,
    time::Time,
};
use skein_host::{
    crew::TellLine,
    host::{Told, Watcher},
    worker::shown,
};

use crate::{
    exit::Exit,
    live::{Jsonl, Live, Options, Size, Surface},
    output::{Format, Output},
    result::result,
};

/// How often what runs is drawn again.
const DRAW: Duration = Duration::from_millis(100);
/// So much of the end of a log is shown.
const TAIL: u64 = 4 * 1024;
const TAIL_LINES: usize = 12;

/// What there is to show.
#[derive(Debug)]
pub enum Note {
    Row(Arc<Batch>),
    Line(AttemptId, String),
    NoSpace,
    /// This run goes on where the one that is followed failed; what is told of it.
    Next(RunId, Receiver<Note>),
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

/// Where what is told of runs goes: to whoever follows the run.
#[derive(Debug, Clone, Default)]
pub struct Desk(Arc<Mutex<BTreeMap<RunId, Sender<Note>>>>);

impl Desk {
    /// Follows a run from now on.
    pub fn open(&self, run: &RunId) -> Receiver<Note> {
        let (to, notes) = channel();
        self.followed().insert(run.clone(), to);
        notes
    }

    fn followed(&self) -> MutexGuard<'_, BTreeMap<RunId, Sender<Note>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn tell(&self, run: &RunId, note: Note) {
        if let Some(to) = self.followed().get(run) {
            // Whoever does not watch any more is not told.
            let _ = to.send(note);
        }
    }

    fn tell_all(&self, over: &Over) {
        self.followed().values().for_each(|to| drop(to.send(Note::Over(over.clone()))));
    }

    /// Passes on what workers print.
    pub fn lines(&self) -> TellLine {
        let desk = self.clone();
        Arc::new(move |run, attempt, line| desk.tell(run, Note::Line(attempt, line.to_owned())))
    }

    /// Passes on what the host tells. Who follows a run follows the one that retries it, too.
    pub fn watcher(&self) -> Watcher {
        let desk = self.clone();
        Box::new(move |told| match told {
            Told::Row { running, batch } => desk.tell(running.run, Note::Row(Arc::clone(batch))),
            Told::NoSpace { run } => desk.tell(run, Note::NoSpace),
            Told::Retries { run, by } => {
                let notes = desk.open(by);
                desk.tell(run, Note::Next(by.clone(), notes));
            }
            Told::Closed { run } => desk.tell(run, Note::Over(Over::Closed)),
            Told::Lost { run } => desk.tell(run, Note::Over(Over::Lost)),
            Told::SetAside { run, why } => desk.tell(run, Note::Over(Over::SetAside(why.to_owned()))),
            Told::Broken { why } => desk.tell_all(&Over::Broken(why.to_owned())),
        })
    }
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
    pub plan: Plan,
    pub workspace: &'a Path,
    /// The folder of the run.
    pub kept: &'a Path,
    /// Whether to wait for people and signals.
    pub waits: bool,
}

/// How a run was left that was followed.
#[derive(Debug)]
pub struct Last {
    pub state: RunState,
    pub over: Over,
    /// The run that goes on.
    pub next: Option<(RunId, Receiver<Note>)>,
}

/// Shows a run until it is over.
pub fn follow(follow: Follow<'_>, notes: &Receiver<Note>, output: Output) -> Last {
    match output.format {
        Format::Human => human(follow, notes, output),
        Format::Json | Format::Jsonl => plain(follow, notes, output),
    }
}

fn human(follow: Follow<'_>, notes: &Receiver<Note>, output: Output) -> Last {
    let mut next = None;
    let kept = follow.kept.to_owned();
    let options = Options {
        paint: output.paint,
        workspace: Some(follow.workspace.display().to_string()),
        kept: Some(follow.kept.display().to_string()),
        slow: Options::SLOW,
        tail: Box::new(move |attempt| tail(&kept, attempt)),
    };
    let mut live = Live::new(follow.plan, Terminal, options);
    let mut drawn = Instant::now();
    let over = loop {
        match notes.recv_timeout(DRAW.saturating_sub(drawn.elapsed())) {
            Ok(Note::Row(batch)) => {
                // Rows come from the store that they were just written to.
                let _ = live.row(&batch);
                if !follow.waits && live.state().status() == RunStatus::Waiting {
                    break Over::Waits;
                }
            }
            Ok(Note::Line(attempt, line)) => live.output(attempt, &line),
            Ok(Note::NoSpace) => {
                output.warn("there is no space left for the journal; the run goes on when there is")
            }
            Ok(Note::Next(run, notes)) => next = Some((run, notes)),
            Ok(Note::Over(over)) => break over,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break Over::Broken("the host has stopped".to_owned()),
        }
        if drawn.elapsed() >= DRAW {
            drawn = Instant::now();
            // A reader that left wants no more.
            let _ = live.tick(now());
        }
    };
    let _ = live.tick(now());
    if let Ok(summary) = live.finish() {
        output.text(&summary);
    }
    Last { state: live.state().clone(), over, next }
}

fn plain(follow: Follow<'_>, notes: &Receiver<Note>, output: Output) -> Last {
    let mut next = None;
    let mut jsonl = Jsonl::new(follow.plan.clone());
    let mut state = RunState::new();
    let over = loop {
        match notes.recv() {
            Ok(Note::Row(batch)) => {
                for record in &batch.records {
                    skein_core::engine::apply(&follow.plan, &mut state, record.at, &record.event);
                }
                if output.format == Format::Jsonl
                    && let Ok(lines) = jsonl.row(&batch)
                {
                    output.exact(&lines);
                }
                if !follow.waits && state.status() == RunStatus::Waiting {
                    break Over::Waits;
                }
            }
            Ok(Note::Line(..) | Note::NoSpace) => {}
            Ok(Note::Next(run, notes)) => next = Some((run, notes)),
            Ok(Note::Over(over)) => break over,
            Err(_) => break Over::Broken("the host has stopped".to_owned()),
        }
    };
    // Of runs that retry one another the last is the result.
    if output.format == Format::Json && next.is_none() {
        output.json(&result(&follow.plan, &state));
    }
    Last { state, over, next }
}

/// How the command ends that followed a run.
pub fn exit(state: &RunState, over: &Over, output: Output) -> Exit {
    match over {
        Over::Closed if state.status() == RunStatus::Succeeded => Exit::Done,
        Over::Closed => Exit::Failed,
        Over::Left => Exit::Stopped,
        Over::Waits => Exit::Waiting,
        Over::Lost => output.refuse(Exit::Refused, "another process has the run now", None),
        Over::SetAside(why) => output.refuse(Exit::Failed, &format!("the run was set aside: {why}"), None),
        Over::Broken(why) => {
            output.refuse(Exit::Store, why, Some("`skein doctor` looks at the state folder"))
        }
    }
}

/// The end of an attempt's log, safe to show.
fn tail(kept: &Path, attempt: AttemptId) -> Option<String> {
    let mut file = std::fs::File::open(kept.join("attempts").join(attempt.to_string()).join("log")).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    let lines: Vec<String> = bytes.split(|byte| *byte == b'\n').map(shown).collect();
    let end = lines.iter().rposition(|line| !line.trim().is_empty())? + 1;
    Some(lines[end.saturating_sub(TAIL_LINES)..end].join("\n"))
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
