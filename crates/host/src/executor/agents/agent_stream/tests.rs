//! Tests of the agent stream, with a reader whose events name their own kind.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use skein_core::ir::ErrorClass;

use super::*;
use crate::executor::agents::{TokenUsage, UsageTotal};

/// A reader of events that name their own kind.
struct Plain;

impl AgentEventReader for Plain {
    fn read_event(&mut self, event: &Value) -> Vec<AgentEvent> {
        let text = |name: &str| event[name].as_str().map(str::to_owned);
        let tokens = event["tokens"].as_u64().map(|input| TokenUsage { input, ..TokenUsage::default() });
        [
            text("session").map(AgentEvent::Session),
            text("said").map(AgentEvent::Message),
            text("result").map(AgentEvent::Result),
            text("model").map(AgentEvent::Model),
            text("tool").map(|name| AgentEvent::Tool { name, on: "a\nb".into() }),
            tokens.map(|spent| AgentEvent::Used(UsageTotal::Run(spent))),
            event.get("turn").map(|_| AgentEvent::Turn),
            text("begins").map(AgentEvent::Begun),
            text("ends").map(AgentEvent::Over),
            event.get("until").map(|until| AgentEvent::LimitedUntil(Timestamp(until.as_i64().unwrap()))),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn final_result(&self, _status: i32, _errors: &str) -> Result<AgentAnswer, AgentFailure> {
        Err(AgentFailure::new(AgentFailureKind::Limit, "limited"))
    }
}

struct Heard1 {
    ear: AgentStream,
    filter: Box<dyn OutputFilter>,
    folder: RootFolder,
    stops: Arc<AtomicU32>,
    _dir: tempfile::TempDir,
}

fn listen(left: Vec<RemainingBudget>, max_turns: Option<u32>) -> Heard1 {
    let dir = tempfile::tempdir().unwrap();
    let folder = RootFolder::open(dir.path()).unwrap();
    let stops = Arc::new(AtomicU32::new(0));
    let told = Arc::clone(&stops);
    let ear = AgentStream::new(AgentStreamConfig {
        reader: Box::new(Plain),
        meter: CostMeter::new(Cost::default(), TokenUsage::default(), None, left),
        note: AgentNote::default(),
        folder: folder.clone(),
        events: Some(File::create(dir.path().join("events")).unwrap()),
        max_turns,
        command_time: Some(Millis(1_000)),
        due: CommandDeadline::default(),
        stop: Box::new(move || {
            told.fetch_add(1, Ordering::SeqCst);
        }),
    });
    let filter = ear.output_filter(Redactor::new([]).unwrap());
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
    let said = one.say(b"{\"tool\": \"Read\"}\n");
    assert!(said.starts_with("> Read a b  (70 tokens so far)  [") && said.ends_with("]\n"), "{said}");
    let said = one.say(b"{\"result\": \"\\n first\\nsecond\\n\\nthird\"}\n{\"result\": \"\"}\n");
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("< first  (and 2 more lines)  ["), "{said}");
    assert!(lines[1].starts_with("< nothing  ["), "{said}");
}

#[test]
fn a_session_is_kept_when_it_is_known() {
    let mut one = listen(Vec::new(), None);
    one.say(b"{\"session\": \"s-1\", \"tokens\": 3, \"model\": \"m-1\"}\n");
    let note = AgentNote::read(&one.folder).unwrap();
    assert_eq!(note.model.as_deref(), Some("m-1"));
    assert_eq!((note.session.as_deref(), note.cost.tokens, note.goes_on), (Some("s-1"), 3, false));
    one.ear.close(true, false);
    assert!(AgentNote::read(&one.folder).unwrap().goes_on);
    one.ear.close(false, true);
    assert_eq!(AgentNote::read(&one.folder).unwrap().session, None);
}

#[test]
fn a_budget_and_too_many_turns_stop_it_once() {
    let left = RemainingBudget { whose: "the step's".into(), tokens: Some(100), micro_usd: None, pause: true };
    let mut one = listen(vec![left.clone()], Some(2));
    one.say(b"{\"tokens\": 99}\n{\"turn\": 1}\n");
    assert_eq!((one.ear.halt_reason(), one.stops.load(Ordering::SeqCst)), (None, 0));
    let said = one.say(b"{\"tokens\": 100}\n{\"tokens\": 101}\n{\"turn\": 1}\n{\"turn\": 1}\n");
    assert_eq!(said, "[skein: agent stopped: the step's budget is spent]\n");
    assert_eq!((one.ear.halt_reason(), one.stops.load(Ordering::SeqCst)), (Some(AgentHalt::Budget(left)), 1));
    let mut one = listen(Vec::new(), Some(1));
    one.say(b"{\"turn\": 1}\n{\"turn\": 1}\n");
    let Some(AgentHalt::Failed(failure)) = one.ear.halt_reason() else { panic!("it goes on") };
    assert_eq!(failure.class, ErrorClass::NonRetryable);
}

#[test]
fn the_command_that_began_first_is_due_next() {
    let mut one = listen(Vec::new(), None);
    let due = |one: &Heard1| one.ear.lock_state().on.due.get().map(|(at, _)| at);
    assert_eq!(due(&one), None);
    one.say(b"{\"begins\": \"a\"}\n");
    let first = due(&one).unwrap();
    one.say(b"{\"begins\": \"b\"}\n");
    assert_eq!(due(&one), Some(first));
    one.say(b"{\"ends\": \"a\"}\n{\"ends\": \"nobody\"}\n");
    assert!(due(&one).unwrap() >= first);
    one.say(b"{\"ends\": \"b\"}\n");
    assert_eq!(due(&one), None);
}

#[test]
fn the_time_of_a_limit_goes_into_its_failure() {
    let mut one = listen(Vec::new(), None);
    one.say(json!({"until": 77}).to_string().as_bytes());
    let mut rest = Vec::new();
    one.filter.finish(&mut rest);
    assert_eq!(one.ear.final_result(1, "").unwrap_err().until, Some(Timestamp(77)));
}
