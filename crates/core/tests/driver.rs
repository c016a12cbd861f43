//! The driver: nothing is released before its row is durable, and an invalid journal is refused.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::Arc;

use serde_json::json;
use skein_core::{
    engine::{
        AttemptEnd, AttemptId, AttemptReport, Cost, Driver, DriverAction, Event, EventSubject, InputToken, InstanceIx,
        JournalBatch, JournalError, Publication, Refusal, RunInput, RunPhase, RunProjection, RunStart, StepAt,
        TimedInput, VERSION, apply,
    },
    ids::{RunId, SignalName, StepId, WorkflowId},
    ir::{
        HookAction, HookTiming, RunStatus, ScopeShape, Step, StepKindSpec, StepScope, WaitSpec, WaitTimeout, WorkSpec,
        WorkerSpec, Workflow, WorkflowHook,
    },
    plan::{Plan, check_workflow},
    time::{Millis, Timestamp},
};

fn plan(ids: &[&str]) -> Plan {
    let work = || StepKindSpec::Work(Box::new(WorkSpec::new(WorkerSpec::Tool { tool: "t".into(), pinned: None })));
    let steps = ids.iter().map(|id| Step::new(StepId::new(id).unwrap(), work()));
    let workflow = Workflow::new(WorkflowId::new("w").unwrap(), StepScope::new(ScopeShape::Graph, steps));
    check_workflow(Arc::new(workflow), &()).definition.unwrap().bind(json!({})).unwrap()
}

fn say(driver: &mut Driver, token: u64, input: RunInput) {
    driver.push_input(InputToken(token), TimedInput { at: Timestamp(0), grant: 9, input });
}

fn start() -> RunInput {
    let run = RunId::new("r").unwrap();
    RunInput::Start(Box::new(RunStart::new(run)))
}

fn success(attempt: AttemptId) -> RunInput {
    let end = AttemptEnd::Succeeded { output: Arc::new(json!({})) };
    RunInput::Finished { attempt, report: AttemptReport::new(end, Cost::default()) }
}

fn starts(driver: &mut Driver) -> Vec<AttemptId> {
    let actions = std::iter::from_fn(|| driver.poll_action());
    let started = actions.filter_map(|action| match action {
        DriverAction::Start(attempt, _) => Some(attempt),
        _ => None,
    });
    started.collect()
}

/// Returns a completed run of two steps and its journal.
fn journal() -> (Plan, Vec<JournalBatch>) {
    let plan = plan(&["a", "b"]);
    let mut driver = Driver::new(plan.clone());
    let mut rows = Vec::new();
    say(&mut driver, 1, start());
    while let Some(row) = driver.poll_append() {
        rows.push(row.as_ref().clone());
        driver.confirm_append();
        for (i, attempt) in (2..).zip(starts(&mut driver)) {
            say(&mut driver, i, success(attempt));
        }
    }
    assert_eq!(driver.state().status(), RunStatus::Succeeded);
    (plan, rows)
}

/// The run is queued without a worker and running with one; an interrupted attempt does not make it queued again.
#[test]
fn a_run_is_queued_until_something_is_at_work() {
    let mut driver = Driver::new(plan(&["a", "b"]));
    let tell = |driver: &mut Driver, grant: u32, input: RunInput| {
        driver.push_input(InputToken(1), TimedInput { at: Timestamp(0), grant, input });
        let row = driver.poll_append().is_some();
        driver.confirm_append();
        row
    };
    assert!(tell(&mut driver, 0, start()));
    assert_eq!(driver.state().status(), RunStatus::Queued);
    assert!(tell(&mut driver, 1, RunInput::Capacity));
    assert_eq!(driver.state().status(), RunStatus::Running);
    let [attempt] = starts(&mut driver)[..] else { panic!("one is started") };
    let report = AttemptReport::new(AttemptEnd::Interrupted, Cost::default());
    assert!(tell(&mut driver, 0, RunInput::Finished { attempt, report }));
    assert_eq!(driver.state().status(), RunStatus::Running);
}

/// The simulator is built with debug assertions, too.
#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "Running cannot be followed by Inside")]
fn an_event_that_causes_an_illegal_transition_is_not_applied() {
    let mut driver = Driver::new(plan(&["a"]));
    say(&mut driver, 1, start());
    driver.poll_append().unwrap();
    let (plan, mut state) = driver.into_parts();
    let at = StepAt(InstanceIx::ROOT, 0);
    apply(&plan, &mut state, Timestamp(0), &Event::StepEntered { at, deadline: None });
}

#[test]
fn nothing_goes_out_before_its_row_is_durable() {
    let mut driver = Driver::new(plan(&["a"]));
    say(&mut driver, 1, start());
    assert!(driver.poll_append().is_some());
    assert_eq!((driver.poll_action(), driver.poll_answer()), (None, None));
    driver.confirm_append();
    assert_eq!(driver.poll_answer(), Some((InputToken(1), Ok(()))));
    assert_eq!(starts(&mut driver).len(), 1);
}

#[test]
fn what_arrives_meanwhile_is_decided_together_into_the_next_row() {
    let mut driver = Driver::new(plan(&["a", "b"]));
    say(&mut driver, 1, start());
    driver.poll_append().unwrap();
    let attempts: Vec<AttemptId> = driver.state().in_flight().iter().copied().collect();
    say(&mut driver, 2, success(attempts[0]));
    say(&mut driver, 3, success(attempts[0]));
    say(&mut driver, 4, success(attempts[1]));
    assert_eq!(driver.poll_append(), None, "one row is in flight at a time");
    driver.confirm_append();
    let row = driver.poll_append().unwrap();
    assert!(row.seq > 0 && row.records.len() > 4, "both ends are in one row");
    // The refusal depends on the contents of that row and waits for it too.
    assert_eq!(driver.poll_answer(), Some((InputToken(1), Ok(()))));
    assert_eq!(driver.poll_answer(), None);
    driver.confirm_append();
    let answers: Vec<_> = std::iter::from_fn(|| driver.poll_answer()).collect();
    assert_eq!(answers, [(InputToken(2), Ok(())), (InputToken(3), Err(Refusal::LateResult)), (InputToken(4), Ok(()))]);
    assert_eq!(driver.state().phase, RunPhase::Closed);
}

#[test]
fn a_refusal_alone_needs_no_row() {
    let mut driver = Driver::new(plan(&["a"]));
    say(&mut driver, 1, RunInput::Wake);
    assert_eq!(driver.poll_append(), None);
    assert_eq!(driver.poll_answer(), Some((InputToken(1), Err(Refusal::NotStarted))));
}

#[test]
fn an_attempt_that_is_stopped_before_it_was_started_is_only_stopped() {
    let mut driver = Driver::new(plan(&["a"]));
    say(&mut driver, 1, start());
    say(&mut driver, 2, RunInput::Cancel { by: "ann".into(), reason: None });
    driver.poll_append().unwrap();
    driver.confirm_append();
    let actions: Vec<DriverAction> = std::iter::from_fn(|| driver.poll_action()).collect();
    assert!(matches!(actions[..], [DriverAction::Stop(_)]), "{actions:?}");
}

#[test]
fn a_quarantined_run_stops_what_it_started() {
    let mut driver = Driver::new(plan(&["a"]));
    say(&mut driver, 1, start());
    driver.poll_append().unwrap();
    driver.confirm_append();
    let started = starts(&mut driver);
    say(&mut driver, 2, RunInput::Break { message: "it makes no sense".into() });
    driver.poll_append().unwrap();
    driver.confirm_append();
    assert_eq!(driver.poll_action(), Some(DriverAction::Stop(started[0])));
    say(&mut driver, 3, success(started[0]));
    driver.poll_append();
    let answer = std::iter::from_fn(|| driver.poll_answer()).last();
    assert!(matches!(answer, Some((InputToken(3), Err(Refusal::Quarantined { .. })))), "{answer:?}");
}

#[test]
fn a_journal_replays_to_the_same_state() {
    let (plan, rows) = journal();
    assert_eq!(rows.iter().map(|row| row.seq).collect::<Vec<_>>()[0], 0);
    assert!(rows.windows(2).all(|rows| rows[1].seq == rows[0].seq + rows[0].records.len() as u64));
    let driver = Driver::replay(plan, &rows).unwrap();
    assert_eq!(driver.state().status(), RunStatus::Succeeded);
    assert_eq!(driver.chain(), rows.last().unwrap().chain);
}

#[test]
fn a_watcher_has_the_same_projection_as_the_driver() {
    let plan = plan(&["a", "b"]);
    let (mut driver, mut watcher) = (Driver::new(plan.clone()), RunProjection::new(plan));
    say(&mut driver, 1, start());
    let mut observed = Vec::new();
    while let Some(row) = driver.poll_append_with(|_, number, record| {
        observed.push((number, record.event.subject()));
    }) {
        driver.confirm_append();
        watcher.apply_row(&row).unwrap();
        assert!(watcher.apply_row(&row).is_err(), "a row is applied once");
        assert_eq!(watcher.state(), driver.state());
        assert_eq!(watcher.ledger(), driver.projection().ledger());
        assert_eq!(watcher.chain(), driver.chain());
        for (i, attempt) in (2..).zip(starts(&mut driver)) {
            say(&mut driver, i, success(attempt));
        }
    }
    let attempts = driver.projection().ledger().attempt_count(StepAt(InstanceIx::ROOT, 1));
    assert_eq!(attempts, 1);
    assert!(observed.iter().map(|(number, _)| *number).eq(0..watcher.state().events));
    let of_b = |(_, subject): &&(u64, EventSubject)| watcher.names().subject_path(*subject).unwrap() == "b";
    assert_eq!(observed.iter().filter(of_b).count(), 4, "ready, started, attempt ended, ended");
}

#[test]
fn a_journal_that_was_changed_is_refused() {
    let (plan, rows) = journal();
    let replay = |rows: &[JournalBatch]| Driver::replay(plan.clone(), rows).err();
    let mut changed = rows.clone();
    changed[1].records[0].at = Timestamp(7);
    assert_eq!(replay(&changed), Some(JournalError::Chain { seq: rows[1].seq }));
    assert_eq!(replay(&rows[1..]), Some(JournalError::Gap { expected: 0, found: rows[1].seq }));
    let twice = [rows[0].clone(), rows[0].clone()];
    assert_eq!(replay(&twice), Some(JournalError::Gap { expected: rows[1].seq, found: 0 }));
    let mut newer = rows.clone();
    newer[0].version = VERSION + 1;
    assert_eq!(replay(&newer), Some(JournalError::Newer { seq: 0, version: VERSION + 1 }));
    let mut empty = rows.clone();
    empty[0].records.clear();
    assert_eq!(replay(&empty), Some(JournalError::Empty { seq: 0 }));
    assert_eq!(Driver::replay(self::plan(&["other"]), &rows).err(), Some(JournalError::OtherPlan));
}

#[test]
fn a_driver_is_idle_when_everything_said_is_durable() {
    let mut driver = Driver::new(plan(&["a"]));
    assert!(driver.is_idle());
    say(&mut driver, 1, start());
    assert!(!driver.is_idle(), "something was said");
    driver.poll_append().unwrap();
    assert!(!driver.is_idle(), "and is being appended");
    driver.confirm_append();
    assert!(driver.is_idle());
}

#[test]
fn what_is_to_be_published_goes_out_once() {
    let hook = |when| WorkflowHook { when, action: HookAction::Notify { channel: "c".into(), message: None } };
    let mut workflow = (*plan(&["a"]).definition.root().workflow).clone();
    workflow.hooks = vec![hook(HookTiming::Start), hook(HookTiming::Success), hook(HookTiming::Failure)];
    let plan = check_workflow(Arc::new(workflow), &()).definition.unwrap().bind(json!({})).unwrap();
    let mut driver = Driver::new(plan);
    let mut published = Vec::new();
    say(&mut driver, 1, start());
    while driver.poll_append().is_some() {
        driver.confirm_append();
        for action in std::iter::from_fn(|| driver.poll_action()).collect::<Vec<_>>() {
            match action {
                DriverAction::Start(attempt, _) => say(&mut driver, 2, success(attempt)),
                DriverAction::Publish(item) => {
                    published.push(item);
                    say(&mut driver, 3, RunInput::Published { item, failed: None });
                }
                DriverAction::Stop(_) | DriverAction::Wake(_) => {}
            }
        }
    }
    assert_eq!(driver.state().phase, RunPhase::Closed);
    assert_eq!(published, [Publication::Hook(0), Publication::Hook(1)]);
}

#[test]
fn a_run_that_broke_before_it_began_is_set_aside_and_replays() {
    let plan = plan(&["a"]);
    let mut driver = Driver::new(plan.clone());
    say(&mut driver, 1, RunInput::Break { message: "no sense".into() });
    let row = driver.poll_append().unwrap();
    driver.confirm_append();
    assert_eq!(driver.poll_answer(), Some((InputToken(1), Ok(()))));
    let again = Driver::replay(plan, [row.as_ref()]).unwrap();
    assert_eq!(again.state().quarantine.as_deref(), Some("no sense"));
}

/// More deadlines are due at one time than one wake-up handles: the driver requests a wake-up at the same time again.
#[test]
fn a_wake_up_that_was_used_up_is_told_anew() {
    let wait = |n: usize| {
        let on = vec![SignalName::new("paid").unwrap()];
        let wait = WaitSpec { on, timeout: Some(Millis(7)), on_timeout: WaitTimeout::Continue };
        Step::new(StepId::new(format!("w{n}")).unwrap(), StepKindSpec::Wait(Box::new(wait)))
    };
    let scope = StepScope::new(ScopeShape::Graph, (0..2_500).map(wait));
    let workflow = Workflow::new(WorkflowId::new("w").unwrap(), scope);
    let plan = check_workflow(Arc::new(workflow), &()).definition.unwrap().bind(json!({})).unwrap();
    let mut driver = Driver::new(plan);
    let mut told = |at: i64, input: RunInput| {
        driver.push_input(InputToken(1), TimedInput { at: Timestamp(at), grant: 0, input });
        driver.poll_append();
        driver.confirm_append();
        let wake = |action| if let DriverAction::Wake(at) = action { Some(at) } else { None };
        std::iter::from_fn(|| driver.poll_action()).filter_map(wake).collect::<Vec<_>>()
    };
    let due = [Some(Timestamp(7))];
    assert_eq!(told(0, start()), due);
    assert_eq!(told(3, RunInput::Wake), due, "it came too early");
    assert_eq!(told(7, RunInput::Wake), due, "1,500 are left");
    assert_eq!(told(7, RunInput::Wake), due, "500 are left");
    assert_eq!(told(7, RunInput::Wake), [], "none is left");
    assert_eq!(driver.state().status(), RunStatus::Succeeded);
}
