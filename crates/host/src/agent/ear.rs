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
    engine::Cost,
    limits,
    time::{Millis, Time},
};

use super::{
    Done, Failure, Heard, Left, Meter, Note, Reader,
    class::Kind,
    stream::{Line, Lines},
};
use crate::{
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
                shown(out, &format!("> {name}{on}{}", so_far.unwrap_or_default()));
            }
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
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use serde_json::json;
    use skein_core::ir::ErrorClass;

    use super::*;
    use crate::agent::{Spent, Used};

    /// Hears what an event says it is.
    struct Plain;

    impl Reader for Plain {
        fn hear(&mut self, event: &Value) -> Vec<Heard> {
            let text = |name: &str| event[name].as_str().map(str::to_owned);
            let tokens = event["tokens"].as_u64().map(|input| Spent { input, ..Spent::default() });
            [
                text("session").map(Heard::Session),
                text("said").map(Heard::Said),
                text("tool").map(|name| Heard::Tool { name, on: "a\nb".into() }),
                tokens.map(|spent| Heard::Used(Used::Run(spent))),
                event.get("turn").map(|_| Heard::Turn),
                event.get("until").map(|until| Heard::LimitedUntil(Time(until.as_i64().unwrap()))),
            ]
            .into_iter()
            .flatten()
            .collect()
        }

        fn end(&self, _status: i32, _errors: &str) -> Result<Done, Failure> {
            Err(Failure::new(Kind::Limit, "limited"))
        }
    }

    struct Heard1 {
        ear: Ear,
        filter: Box<dyn Filter>,
        folder: Root,
        stops: Arc<AtomicU32>,
        _dir: tempfile::TempDir,
    }

    fn listen(left: Vec<Left>, max_turns: Option<u32>) -> Heard1 {
        let dir = tempfile::tempdir().unwrap();
        let folder = Root::open(dir.path()).unwrap();
        let stops = Arc::new(AtomicU32::new(0));
        let told = Arc::clone(&stops);
        let ear = Ear::new(Listening {
            reader: Box::new(Plain),
            meter: Meter::new(Cost::default(), Spent::default(), None, left),
            note: Note::default(),
            folder: folder.clone(),
            events: Some(File::create(dir.path().join("events")).unwrap()),
            max_turns,
            command_time: Some(Millis(1_000)),
            due: Due::default(),
            stop: Box::new(move || {
                told.fetch_add(1, Ordering::SeqCst);
            }),
        });
        let filter = ear.output(Redactor::new([]).unwrap());
        Heard1 { ear, filter, folder, stops, _dir: dir }
    }

    impl Heard1 {
        fn say(&mut self, bytes: &[u8]) -> String {
            let mut out = Vec::new();
            self.filter.push(bytes, &mut out);
            String::from_utf8(out).unwrap()
        }
    }

    #[test]
    fn events_become_lines_and_what_is_none_stays() {
        let mut one = listen(Vec::new(), None);
        assert_eq!(one.say(b"warning: x\n{\"said\": \"hel"), "warning: x\n");
        assert_eq!(one.say(b"lo\\nyou\"}\n{\"new\": 1}\n[1]\n{broken\n"), "hello\nyou\n[1]\n{broken\n");
        one.say(b"{\"tokens\": 70}\n");
        assert_eq!(one.say(b"{\"tool\": \"Read\"}\n"), "> Read a b  (70 tokens so far)\n");
    }

    #[test]
    fn a_session_is_kept_when_it_is_known() {
        let mut one = listen(Vec::new(), None);
        one.say(b"{\"session\": \"s-1\", \"tokens\": 3}\n");
        let note = Note::read(&one.folder).unwrap();
        assert_eq!((note.session.as_deref(), note.cost.tokens, note.goes_on), (Some("s-1"), 3, false));
        one.ear.close(true, false);
        assert!(Note::read(&one.folder).unwrap().goes_on);
        one.ear.close(false, true);
        assert_eq!(Note::read(&one.folder).unwrap().session, None);
    }

    #[test]
    fn a_budget_and_too_many_turns_stop_it_once() {
        let left = Left { whose: "the step's", tokens: Some(100), micro_usd: None, pause: true };
        let mut one = listen(vec![left.clone()], Some(2));
        one.say(b"{\"tokens\": 99}\n{\"turn\": 1}\n");
        assert_eq!((one.ear.halt(), one.stops.load(Ordering::SeqCst)), (None, 0));
        let said = one.say(b"{\"tokens\": 100}\n{\"tokens\": 101}\n{\"turn\": 1}\n{\"turn\": 1}\n");
        assert_eq!(said, "[skein: it is stopped: the step's budget is spent]\n");
        assert_eq!((one.ear.halt(), one.stops.load(Ordering::SeqCst)), (Some(Halt::Budget(left)), 1));
        let mut one = listen(Vec::new(), Some(1));
        one.say(b"{\"turn\": 1}\n{\"turn\": 1}\n");
        let Some(Halt::Failed(failure)) = one.ear.halt() else { panic!("it goes on") };
        assert_eq!(failure.class, ErrorClass::NonRetryable);
    }

    #[test]
    fn the_time_of_a_limit_goes_into_its_failure() {
        let mut one = listen(Vec::new(), None);
        one.say(json!({"until": 77}).to_string().as_bytes());
        let mut rest = Vec::new();
        one.filter.finish(&mut rest);
        assert_eq!(one.ear.end(1, "").unwrap_err().until, Some(Time(77)));
    }
}
