//! Listening to an agent at work: its events become lines for people, and what must be known of it is noted at once.
//!
//! Owns the way from the bytes of its standard output to what is shown, kept and decided while it goes on. Refuses to know
//! which agent it is. What it prints that is no event stays as it is.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use serde_json::Value;
use skein_core::{
    engine::{Cost, utc},
    limits,
    time::{Millis, Time},
};

use super::{
    Done, Failure, Heard, Left, Meter, Note, Reader,
    class::Kind,
    stream::{Line, Lines},
};
use crate::{
    clock::Clock,
    redact::Redactor,
    worker::{Due, Filter, duration},
    workspace::Root,
};

/// As much of an event as is shown.
const SHOWN: usize = 2_000;
const TOOL: usize = 200;

/// Why an agent was stopped by us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Halt {
    Failed(Failure),
    /// A budget is spent.
    Budget(Left),
}

/// Asks for the end of the agent. May be called more than once.
pub type Stop = Box<dyn Fn() + Send>;

/// What is needed to listen.
pub struct Listening {
    pub reader: Box<dyn Reader>,
    pub meter: Meter,
    pub note: Note,
    /// Where the note is kept.
    pub folder: Root,
    /// Where every event is kept as it came.
    pub events: Option<File>,
    pub max_turns: Option<u32>,
    /// How long one command that it runs may take, and who is told when it is due.
    pub command_time: Option<Millis>,
    pub due: Due,
    pub stop: Stop,
}

/// What was heard so far. One for the stream, and one for who asks in the end.
#[derive(Clone)]
pub struct Ear(Arc<Mutex<State>>);

struct State {
    on: Listening,
    turns: u32,
    until: Option<Time>,
    halt: Option<Halt>,
    kept: usize,
    /// The commands that it runs, and since when.
    commands: BTreeMap<String, Instant>,
}

impl std::fmt::Debug for Listening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listening").field("note", &self.note).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Ear {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ear")
    }
}

impl Ear {
    pub fn new(on: Listening) -> Ear {
        let state = State { on, turns: 0, until: None, halt: None, kept: 0, commands: BTreeMap::new() };
        Ear(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the stream of its standard output.
    pub fn output(&self, redactor: Redactor) -> Box<dyn Filter> {
        self.filter(redactor, State::hear)
    }

    /// For the stream of its standard error.
    pub fn errors(&self, redactor: Redactor) -> Box<dyn Filter> {
        self.filter(redactor, State::hear_error)
    }

    fn filter(&self, redactor: Redactor, hear: Hear) -> Box<dyn Filter> {
        let (ear, lines, clean) = (self.clone(), Lines::default(), Vec::new());
        Box::new(Listener { redactor, lines, clean, ear, hear })
    }

    /// Why it was stopped by us, if it was.
    pub fn halt(&self) -> Option<Halt> {
        self.state().halt.clone()
    }

    pub fn cost(&self) -> Cost {
        self.state().on.meter.cost()
    }

    /// What it came to, now that the program has exited.
    pub fn end(&self, status: i32, errors: &str) -> Result<Done, Failure> {
        let state = self.state();
        state.on.reader.end(status, errors).map_err(|failure| {
            let until = failure.until.or(state.until);
            failure.until(until)
        })
    }

    /// The attempt is over. Whether another is to go on with its session, or its session is not there.
    pub fn close(&self, goes_on: bool, lost: bool) {
        let mut state = self.state();
        state.note_cost();
        state.on.note.goes_on = goes_on;
        if lost {
            // What it took over is told now, and not by who begins anew.
            (state.on.note.session, state.on.note.cost) = (None, Cost::default());
        }
        // Without it, another attempt begins anew.
        let _ = state.on.note.write(&state.on.folder);
    }
}

impl State {
    fn hear_error(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        match self.on.reader.hear_error(&String::from_utf8_lossy(bytes)) {
            Some(heard) => heard.into_iter().for_each(|heard| self.heard(heard, out)),
            None => {
                out.extend_from_slice(bytes);
                out.push(b'\n');
            }
        }
    }

    fn hear(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let Ok(event @ Value::Object(_)) = serde_json::from_slice::<Value>(bytes) else {
            out.extend_from_slice(bytes);
            out.push(b'\n');
            return;
        };
        if !self.on.reader.is_noise(&event) {
            self.keep(bytes);
        }
        for heard in self.on.reader.hear(&event) {
            self.heard(heard, out);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.kept + bytes.len() > limits::LOG_BYTES {
            return;
        }
        self.kept += bytes.len() + 1;
        if let Some(file) = &mut self.on.events {
            // A log that cannot be written fails nobody.
            let _ = file.write_all(bytes).and_then(|()| file.write_all(b"\n"));
        }
    }

    fn heard(&mut self, heard: Heard, out: &mut Vec<u8>) {
        match heard {
            Heard::Session(id) => self.session(id),
            Heard::Said(text) => text.lines().for_each(|line| shown(out, &cut(line, SHOWN))),
            Heard::Tool { name, on } => {
                let so_far = self.on.meter.shown().map(|spent| format!("  ({spent} so far)"));
                let on = cut(on.trim(), TOOL).replace(['\n', '\r'], " ");
                let on = if on.is_empty() { on } else { format!(" {on}") };
                shown(out, &format!("> {name}{on}{}  [{}]", so_far.unwrap_or_default(), time_of_day()));
            }
            Heard::Result(text) => shown(out, &format!("< {}  [{}]", result(&text), time_of_day())),
            Heard::Model(model) => self.model(model),
            Heard::Note(text) => shown(out, &format!("! {}", cut(&text, SHOWN).replace('\n', " "))),
            Heard::Begun(id) => self.runs(id, true),
            Heard::Over(id) => self.runs(id, false),
            Heard::Used(used) => {
                self.on.meter.used(used);
                self.note_cost();
                let _ = self.on.note.write_soon(&self.on.folder);
                if let Some(left) = self.on.meter.over().cloned() {
                    self.halt(Halt::Budget(left), out);
                }
            }
            Heard::Turn => {
                self.turns += 1;
                if let Some(most) = self.on.max_turns.filter(|most| self.turns > *most) {
                    let message = format!("it was not done after {most} steps");
                    self.halt(Halt::Failed(Failure::new(Kind::Turns, message)), out);
                }
            }
            Heard::LimitedUntil(until) => self.until = Some(until),
            Heard::Hopeless(failure) => {
                let until = failure.until.or(self.until);
                self.halt(Halt::Failed(failure.until(until)), out);
            }
        }
    }

    /// A command begins or is over: the one that began first is the next that is due.
    fn runs(&mut self, id: String, begins: bool) {
        let Some(most) = self.on.command_time else { return };
        match begins {
            true => drop(self.commands.entry(id).or_insert_with(Instant::now)),
            false => drop(self.commands.remove(&id)),
        }
        let due = |since: &Instant| Some((since.checked_add(duration(most))?, most));
        self.on.due.set(self.commands.values().min().and_then(due));
    }

    fn session(&mut self, id: String) {
        if self.on.note.session.as_ref() != Some(&id) {
            self.on.note.session = Some(id);
            // Without it, another attempt begins anew.
            let _ = self.on.note.write(&self.on.folder);
        }
    }

    fn model(&mut self, model: String) {
        if self.on.note.model.as_ref() != Some(&model) {
            self.on.note.model = Some(model);
            let _ = self.on.note.write_soon(&self.on.folder);
        }
    }

    fn note_cost(&mut self) {
        (self.on.note.cost, self.on.note.total) = (self.on.meter.cost(), self.on.meter.total());
    }

    fn halt(&mut self, why: Halt, out: &mut Vec<u8>) {
        if self.halt.is_none() {
            let told = match &why {
                Halt::Failed(failure) => failure.message.clone(),
                Halt::Budget(left) => format!("{} budget is spent", left.whose),
            };
            shown(out, &format!("[skein: it is stopped: {told}]"));
            self.halt = Some(why);
            (self.on.stop)();
        }
    }
}

fn shown(out: &mut Vec<u8>, line: &str) {
    out.extend_from_slice(line.as_bytes());
    out.push(b'\n');
}

/// A result in one line: how it begins, and how many lines it has.
fn result(text: &str) -> String {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let Some(first) = lines.next() else { return "nothing".to_owned() };
    let first = cut(first.trim(), TOOL).replace('\r', " ");
    match lines.count() {
        0 => first,
        1 => format!("{first}  (and 1 more line)"),
        more => format!("{first}  (and {more} more lines)"),
    }
}

/// The time in UTC, to the second.
fn time_of_day() -> String {
    let now = utc(Clock::new().now());
    now.get(11..19).map(str::to_owned).unwrap_or(now)
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// What is done with a line.
type Hear = fn(&mut State, &[u8], &mut Vec<u8>);

/// One stream. Secrets are taken out first, so that no event has one.
struct Listener {
    redactor: Redactor,
    lines: Lines,
    clean: Vec<u8>,
    ear: Ear,
    hear: Hear,
}

impl Listener {
    fn give(&mut self, last: bool, out: &mut Vec<u8>) {
        let (mut state, hear) = (self.ear.state(), self.hear);
        let mut each = |line: Line<'_>| match line {
            Line::Whole(bytes) => hear(&mut state, bytes, out),
            Line::TooLong => shown(out, "[skein: a line was too long to be read]"),
        };
        self.lines.push(&self.clean, &mut each);
        if last {
            self.lines.finish(&mut each);
        }
        self.clean.clear();
    }
}

impl Filter for Listener {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.redactor.push(bytes, &mut self.clean);
        self.give(false, out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.redactor.finish(&mut self.clean);
        self.give(true, out);
    }
}

#[cfg(test)]
mod tests;
