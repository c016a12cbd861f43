//! The loop, with an executor that does what a test says: on the store in memory and on the one on disk.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::json;
use skein_core::{
    engine::{AttemptEnd, AttemptId, DecisionActor, Event, Refusal, RunInput, Verdict, Waitpoint},
    ir::{Backoff, RunStatus},
    time::Millis,
};
use skein_host::{
    host::RequestAnswer,
    run_settings::RunSettings,
    store::{AppendError, RunOwner, Store},
};
use skein_testkit::store::{AppendFailure, FailingStore};

use super::{
    hands::{Asked, Does, all_good, bad, good, scripted},
    kit::{after, gate, given, graph, plan, retried, signal, soon, wait, work},
    stage::{LONG, Note, Stage, World, begin, events, id, memory, rows, sqlite, starts, status},
};

macro_rules! on_both {
    ($($rule:ident)*) => {
        mod on_disk { $( #[test] fn $rule() { super::$rule(&super::sqlite()); } )* }
        mod in_memory { $( #[test] fn $rule() { super::$rule(&super::memory()); } )* }
    };
}

on_both! {
    a_chain_is_done_in_order
    no_more_are_at_work_than_there_are_workers
    a_big_run_does_not_starve_a_small_one
    what_failed_is_tried_again_when_its_time_comes
    letters_are_decided_and_answered
    what_was_said_while_nobody_listened_is_heard
    a_run_whose_state_makes_no_sense_is_set_aside
    an_append_without_space_is_given_again
    a_broken_journal_stops_the_host
    many_runs_of_the_dead_are_resumed
    a_run_that_was_left_is_resumed
    an_end_that_nobody_tells_is_an_interruption
    what_is_called_off_before_it_began_has_stopped
    a_run_is_there_with_its_start_or_not_at_all
}

fn a_chain_is_done_in_order(world: &World) {
    let store = world();
    let (hands, control) = scripted(all_good);
    let stage = Stage::new(Arc::clone(&store), hands, 4);
    stage.begin(&[("r", &plan(graph(vec![work("a"), after(work("b"), &["a"]), after(work("c"), &["b"])])))]);
    stage.closed(&["r"]);
    let steps: Vec<String> = (0..3).map(|_| control.started().1).collect();
    assert_eq!(steps, ["a", "b", "c"]);
    let row = store.find_run(&id("r")).unwrap().unwrap();
    assert_eq!((row.head.status, row.head.closed, row.owner), (RunStatus::Succeeded, true, RunOwner::Nobody));
    // The end of one step and the start of the next are one append.
    let rows = rows(&*store, &id("r"));
    assert!(rows.len() <= 5, "{rows:#?}");
}

fn no_more_are_at_work_than_there_are_workers(world: &World) {
    let wide = plan(graph((0..6).map(|n| work(&format!("s{n}"))).collect()));
    for workers in [1, 3] {
        let names: Vec<String> = (0..4).map(|n| format!("w{workers}-{n}")).collect();
        let (hands, control) = scripted(|_, _, _| Does::Waits);
        let stage = Stage::new(world(), hands, workers);
        let runs: Vec<_> = names.iter().map(|name| (name.as_str(), &wide)).collect();
        stage.begin(&runs);
        for _ in 0..4 * 6 {
            let (run, _, attempt) = control.started();
            control.end(&run, attempt, good());
        }
        stage.closed(&names.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(control.most() <= workers as usize, "{} of {workers}", control.most());
    }
    // All workers are used, too.
    let (hands, control) = scripted(|_, _, _| Does::Waits);
    let stage = Stage::new(world(), hands, 3);
    stage.begin(&[("wide", &wide)]);
    let running: Vec<_> = (0..3).map(|_| control.started()).collect();
    assert_eq!(control.most(), 3);
    for (run, _, attempt) in running {
        control.end(&run, attempt, good());
    }
    for _ in 0..3 {
        let (run, _, attempt) = control.started();
        control.end(&run, attempt, good());
    }
    stage.closed(&["wide"]);
}

fn a_big_run_does_not_starve_a_small_one(world: &World) {
    let big = plan(graph((0..40).map(|n| work(&format!("s{n}"))).collect()));
    let small = plan(graph(vec![work("a"), after(work("b"), &["a"]), after(work("c"), &["b"])]));
    let (hands, control) = scripted(|_, _, _| Does::Waits);
    let stage = Stage::new(world(), hands, 2);
    stage.begin(&[("big", &big), ("small", &small)]);
    let mut order = Vec::new();
    for _ in 0..43 {
        let (run, _, attempt) = control.started();
        order.push(run.to_string());
        control.end(&run, attempt, good());
    }
    stage.closed(&["big", "small"]);
    let last = order.iter().rposition(|run| run == "small").unwrap();
    assert!(last < 12, "the small run waited: {order:?}");
}

fn what_failed_is_tried_again_when_its_time_comes(world: &World) {
    let store = world();
    let (hands, control) = scripted(|_, _, attempt| Does::Ends(if attempt.attempt < 3 { bad() } else { good() }));
    let stage = Stage::new(Arc::clone(&store), hands, 1);
    stage.begin(&[("r", &plan(graph(vec![retried(work("a"), 3)])))]);
    stage.closed(&["r"]);
    let tried: BTreeSet<AttemptId> = (0..3).map(|_| control.started().2).collect();
    assert_eq!(tried.len(), 3);
    assert_eq!(status(&*store, "r"), RunStatus::Succeeded);
}

fn ask(from: &dyn Store, run: &str, body: &[u8]) -> RequestAnswer {
    let letter = from.send_request(&id(run), body).unwrap();
    let answer = from.wait_for_answer(letter, LONG).unwrap().expect("an answer");
    serde_json::from_slice(&answer).unwrap()
}

fn say(from: &dyn Store, run: &str, input: &RunInput) -> RequestAnswer {
    ask(from, run, &serde_json::to_vec(input).unwrap())
}

fn decide(opening: u32) -> RunInput {
    let by = DecisionActor { name: "ada".into(), roles: Vec::new() };
    RunInput::Decide { opening: Waitpoint(opening), decision: Verdict::Approve, by, reason: None }
}

fn letters_are_decided_and_answered(world: &World) {
    let (store, other) = (world(), world());
    let (hands, _control) = scripted(|_, step, _| if step == "long" { Does::Waits } else { Does::Ends(good()) });
    let stage = Stage::new(Arc::clone(&store), hands, 4);
    let asks = plan(graph(vec![gate("g"), after(wait("w"), &["g"]), after(work("a"), &["w"])]));
    stage.begin(&[("asks", &asks), ("long", &plan(graph(vec![work("long")])))]);
    stage.event("asks", |event| matches!(event, Event::Opened { .. }));
    assert!(matches!(say(&*other, "asks", &decide(7)), RequestAnswer::Refused(Refusal::UnknownOpening)));
    assert!(matches!(ask(&*other, "asks", b"{"), RequestAnswer::Unreadable(_)));
    assert!(matches!(say(&*other, "asks", &RunInput::Recover), RequestAnswer::Unreadable(_)));
    assert_eq!(say(&*other, "asks", &decide(0)), RequestAnswer::Done);
    assert!(matches!(say(&*other, "asks", &decide(0)), RequestAnswer::Refused(_)));
    let signal = RunInput::Signal { name: signal(), payload: Arc::new(json!({"n": 2})), to: None };
    assert_eq!(say(&*other, "asks", &signal), RequestAnswer::Done);
    let cancel = RunInput::Cancel { by: "ada".into(), reason: None };
    assert_eq!(say(&*other, "long", &cancel), RequestAnswer::Done);
    stage.closed(&["asks", "long"]);
    assert_eq!(status(&*other, "asks"), RunStatus::Succeeded);
    assert_eq!(status(&*other, "long"), RunStatus::Cancelled);
}

fn what_was_said_while_nobody_listened_is_heard(world: &World) {
    let (store, other) = (world(), world());
    let (hands, control) = scripted(|_, _, _| Does::Waits);
    let stage = Stage::new(Arc::clone(&store), hands, 1);
    stage.begin(&[("r", &plan(graph(vec![work("a")])))]);
    control.started();
    stage.host.leave_runs(&[id("r")]);
    let cancel = serde_json::to_vec(&RunInput::Cancel { by: "ada".into(), reason: None }).unwrap();
    let letter = other.send_request(&id("r"), &cancel).unwrap();
    assert!(stage.host.resume_runs(vec![id("r")]).iter().all(Result::is_ok));
    stage.closed(&["r"]);
    let answer = other.wait_for_answer(letter, LONG).unwrap().expect("an answer");
    assert_eq!(serde_json::from_slice::<RequestAnswer>(&answer).unwrap(), RequestAnswer::Done);
    assert_eq!(status(&*store, "r"), RunStatus::Cancelled);
}

fn a_run_whose_state_makes_no_sense_is_set_aside(world: &World) {
    let store = world();
    let (hands, control) = scripted(|_, _, _| Does::Waits);
    let stage = Stage::new(Arc::clone(&store), hands, 2);
    let one = plan(graph(vec![work("a")]));
    stage.begin(&[("bad", &one), ("good", &one)]);
    let attempts = [control.started(), control.started()];
    let broken = RunInput::Break { message: "it makes no sense".into() };
    assert_eq!(stage.host.send_input(&id("bad"), broken), Some(Ok(())));
    stage.until(|note| matches!(note, Note::SetAside).then_some(()));
    let row = store.find_run(&id("bad")).unwrap().unwrap();
    assert_eq!(row.quarantined.as_deref(), Some("it makes no sense"));
    let bad = attempts.iter().find(|(run, ..)| run.as_str() == "bad").unwrap();
    assert_eq!(control.next(), Asked::Stop { run: id("bad"), attempt: bad.2 });
    let good_one = attempts.iter().find(|(run, ..)| run.as_str() == "good").unwrap();
    control.end(&good_one.0, good_one.2, good());
    stage.closed(&["good"]);
}

fn an_append_without_space_is_given_again(world: &World) {
    // The run waits for a retry when the space is gone, and must not forget it meanwhile.
    let mut late = retried(work("late"), 2);
    late.policy.retry.backoff = Backoff { initial: Millis(1_300), max: Millis(1_300), ..soon() };
    let failure = AppendFailure { at: 5, onwards: false, written: false, error: AppendError::NoSpace };
    let inner = world();
    let store: Arc<dyn Store> = Arc::new(FailingStore::new(Arc::clone(&inner)).with_failure(failure));
    let (hands, control) = scripted(|_, _, _| Does::Waits);
    let stage = Stage::new(store, hands, 4);
    // Row 1 starts the run, row 2 starts all three, row 3 has the failure, row 4 the end of one, row 5 that of another.
    stage.begin(&[("r", &plan(graph(vec![late, work("x"), work("y")])))]);
    let begun: Vec<_> = (0..3).map(|_| control.started()).collect();
    let by_name = |name: &str| begun.iter().find(|(_, step, _)| step == name).unwrap();
    let end = |name: &str, with| {
        let (run, _, attempt) = by_name(name);
        control.end(run, *attempt, with);
    };
    end("late", bad());
    stage.event("r", |event| matches!(event, Event::RetryScheduled { .. }));
    end("x", good());
    stage.event("r", |event| matches!(event, Event::StepEnded { .. }));
    end("y", good());
    stage.until(|note| matches!(note, Note::NoSpace).then_some(()));
    stage.event("r", |event| matches!(event, Event::StepEnded { .. }));
    let (run, step, attempt) = control.started();
    assert_eq!(step, "late");
    control.end(&run, attempt, good());
    stage.closed(&["r"]);
    assert_eq!(status(&*inner, "r"), RunStatus::Succeeded);
}

fn a_broken_journal_stops_the_host(world: &World) {
    let error = AppendError::Broken("a failed sync".into());
    let failure = AppendFailure { at: 3, onwards: true, written: false, error };
    let inner = world();
    let (hands, control) = scripted(|_, _, _| Does::Waits);
    let store = Arc::new(FailingStore::new(Arc::clone(&inner)).with_failure(failure));
    let stage = Stage::new(store, hands, 4);
    let both = plan(graph(vec![work("a"), work("b")]));
    stage.begin(&[("r", &both)]);
    let (run, _, attempt) = control.started();
    control.end(&run, attempt, good());
    let why = stage.until(|note| match note {
        Note::Broken(why) => Some(why),
        _ => None,
    });
    assert!(why.contains("a failed sync"), "{why}");
    // The executor is dropped with it, and with it all active work.
    control.are_gone();
    let refused = stage.host.launch_runs(vec![begin("s", &both, RunSettings::default())]).unwrap_err();
    assert!(refused.to_string().contains("the host has stopped"), "{refused}");
    assert_eq!(stage.host.send_input(&id("r"), RunInput::Wake), None);
}

fn many_runs_of_the_dead_are_resumed(world: &World) {
    let names: Vec<String> = (0..100).map(|n| format!("r{n}")).collect();
    let two = plan(graph(vec![work("a"), after(work("b"), &["a"])]));
    let dead = world();
    let (hands, control) = scripted(|_, _, _| Does::Waits);
    let stage = Stage::new(Arc::clone(&dead), hands, 10);
    stage.begin(&names.iter().map(|name| (name.as_str(), &two)).collect::<Vec<_>>());
    for _ in 0..10 {
        control.started();
    }
    drop((stage, dead));
    let store = world();
    let (hands, control) = scripted(all_good);
    let stage = Stage::new(Arc::clone(&store), hands, 10);
    let resumed = stage.host.resume_runs(names.iter().map(|name| id(name)).collect());
    assert!(resumed.iter().all(Result::is_ok), "{resumed:?}");
    stage.closed(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut started = 0;
    for name in &names {
        let events = events(&*store, name);
        let starts = starts(&events);
        assert_eq!(starts.iter().collect::<BTreeSet<_>>().len(), starts.len());
        assert_eq!(status(&*store, name), RunStatus::Succeeded);
        started += starts.len();
    }
    // Ten were interrupted, and nothing else was done twice.
    assert_eq!(started, 210);
    let asked = control.rest().into_iter().filter(|asked| matches!(asked, Asked::Start { .. })).count();
    assert_eq!(asked, 200);
}

fn a_run_that_was_left_is_resumed(world: &World) {
    let store = world();
    let (hands, control) =
        scripted(|_, _, attempt| if attempt.attempt == 1 { Does::Waits } else { Does::Ends(good()) });
    let stage = Stage::new(Arc::clone(&store), hands, 1);
    stage.begin(&[("r", &plan(graph(vec![work("a")])))]);
    let (_, _, attempt) = control.started();
    stage.host.leave_runs(&[id("r")]);
    assert_eq!(control.next(), Asked::Stop { run: id("r"), attempt });
    assert_eq!(control.next(), Asked::Forget { run: id("r") });
    assert_eq!(store.find_run(&id("r")).unwrap().unwrap().owner, RunOwner::Nobody);
    assert_eq!(stage.host.send_input(&id("r"), RunInput::Wake), None);
    assert!(stage.host.resume_runs(vec![id("r")]).iter().all(Result::is_ok));
    stage.closed(&["r"]);
    assert_eq!(starts(&events(&*store, "r")).len(), 2);
    // A run that has ended can be resumed, and ends again.
    assert!(stage.host.resume_runs(vec![id("r")]).iter().all(Result::is_ok));
    stage.closed(&["r"]);
    assert_eq!(starts(&events(&*store, "r")).len(), 2);
}

fn an_end_that_nobody_tells_is_an_interruption(world: &World) {
    let store = world();
    let (hands, control) =
        scripted(|_, _, attempt| if attempt.attempt == 1 { Does::IsDropped } else { Does::Ends(good()) });
    let stage = Stage::new(Arc::clone(&store), hands, 1);
    stage.begin(&[("r", &plan(graph(vec![work("a")])))]);
    stage.closed(&["r"]);
    let (first, second) = (control.started().2, control.started().2);
    assert_eq!((first.attempt, second.attempt), (1, 2));
    let interrupted = |event: &Event| {
        matches!(event, Event::AttemptEnded { attempt, end: AttemptEnd::Interrupted, .. }
            if *attempt == first)
    };
    assert!(events(&*store, "r").iter().any(interrupted));
}

fn what_is_called_off_before_it_began_has_stopped(world: &World) {
    // The second step cannot get its input, which ends the run in the row that starts the first.
    let store = world();
    let (hands, control) = scripted(|_, _, _| Does::Waits);
    let stage = Stage::new(Arc::clone(&store), hands, 4);
    let zero = given(work("b"), "n", json!("$steps.zero.missing.deeper"));
    let both = graph(vec![work("zero"), after(work("a"), &["zero"]), after(zero, &["zero"])]);
    stage.begin(&[("r", &plan(both)), ("other", &plan(graph(vec![work("x")])))]);
    for _ in 0..2 {
        let (run, _, attempt) = control.started();
        control.end(&run, attempt, good());
    }
    stage.closed(&["r", "other"]);
    assert_eq!(status(&*store, "r"), RunStatus::Failed);
    let called_off = events(&*store, "r").iter().any(|event| matches!(event, Event::StopAsked { .. }));
    assert!(called_off, "this test needs a step that is started and stopped in one row");
    // Its worker is free again.
    let (runs, wide) = (["w"], plan(graph((0..4).map(|n| work(&format!("s{n}"))).collect())));
    stage.begin(&[("w", &wide)]);
    let begun: Vec<_> = (0..4).map(|_| control.started()).collect();
    for (run, _, attempt) in begun {
        control.end(&run, attempt, good());
    }
    stage.closed(&runs);
}

fn a_run_is_there_with_its_start_or_not_at_all(world: &World) {
    let failure = |written| AppendFailure { at: 1, onwards: false, written, error: AppendError::NoSpace };
    let inner = world();
    let store = Arc::new(FailingStore::new(Arc::clone(&inner)).with_failure(failure(false)));
    let (hands, control) = scripted(all_good);
    let stage = Stage::new(store, hands, 1);
    let one = plan(graph(vec![work("a")]));
    let one_run = || vec![begin("r", &one, RunSettings::default())];
    assert!(stage.host.launch_runs(one_run()).is_err());
    assert_eq!(inner.find_run(&id("r")).unwrap(), None);
    // The failed launch has taken no worker and no name.
    stage.host.launch_runs(one_run()).unwrap();
    stage.closed(&["r"]);
    assert_eq!(control.started().1, "a");
    let first = rows(&*inner, &id("r")).remove(0);
    assert!(matches!(first.records[0].event, Event::RunStarted { .. }));
}
