//! Single fires: duplicates, conditions, chains, retries, failures, backfill, and starts that cannot happen.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::json;
use skein_core::{
    expr,
    ids::RunId,
    ir::{Backoff, BackoffGrowth, ErrorClass},
    limits,
    schedule::{
        CatchupPolicy, ExternalFire, FailureActions, FireOrigin, FireOutcome, FireSlot, OverlapPolicy, PauseCause,
        RetryClass, RoutineEvent, TriggerEvent, TriggerInput, TriggerKey, TriggerRetry, TriggerStatus, TriggeredRunEnd,
        ValidityWindow, find_backfill, next_wake,
    },
    time::Millis,
};

use super::harness::{TriggerBench, at, clock, cron, event, external, hook};

const NOTHING: [&str; 0] = [];

fn emit(bench: &mut TriggerBench, fire: ExternalFire, now: &str) -> Vec<String> {
    bench.input(TriggerInput::Event { name: "paid".into(), fire }, clock(now))
}

fn backfill(from: &str, to: &str, started: &[&str]) -> TriggerInput {
    TriggerInput::Backfill {
        by: "ann".into(),
        from: clock(from),
        to: clock(to),
        overlap: None,
        started: started.iter().map(|slot| clock(slot)).collect(),
    }
}

#[test]
fn a_duplicate_does_not_fire_again() {
    let mut bench = TriggerBench::arm(hook(), clock("08:00"));
    assert_eq!(bench.deliver("a", clock("09:00")), ["started a"]);
    assert_eq!(bench.deliver("a", clock("09:01")), NOTHING, "while its run is active");
    bench.succeed(clock("09:02"));
    assert_eq!(bench.deliver("a", clock("09:03")), NOTHING, "after its run");
    let known = ExternalFire { known: true, ..external("old") };
    assert_eq!(bench.input(TriggerInput::Delivery(known), clock("09:04")), NOTHING, "the store remembers longer");
    assert_eq!(bench.fire("a", clock("09:05")), ["started a"], "a person's id is another one");
    assert_eq!(bench.fire("a", clock("09:06")), NOTHING);
}

#[test]
fn the_state_remembers_a_limited_number_of_fires() {
    let mut definition = hook();
    (definition.rate, definition.max_active) = (100_000, 100_000);
    let mut bench = TriggerBench::arm(definition, clock("08:00"));
    for number in 0..=limits::TRIGGER_RECENT {
        assert_eq!(bench.deliver(&format!("n{number}"), clock("09:00")).len(), 1);
        bench.succeed(clock("09:00"));
    }
    assert_eq!(bench.state.recent.len(), limits::TRIGGER_RECENT);
    assert_eq!(bench.deliver("n1", clock("09:00")), NOTHING);
    let known = ExternalFire { known: true, ..external("n0") };
    assert_eq!(bench.input(TriggerInput::Delivery(known), clock("09:00")), NOTHING);
}

#[test]
fn inputs_for_other_triggers_are_ignored() {
    let mut bench = TriggerBench::arm(event(), clock("08:00"));
    assert_eq!(bench.deliver("a", clock("09:00")), NOTHING);
    let other = TriggerInput::Event { name: "refunded".into(), fire: external("a") };
    assert_eq!(bench.input(other, clock("09:00")), NOTHING);
    assert_eq!(emit(&mut bench, external("a"), "09:00"), ["started a"]);
}

#[test]
fn a_condition_that_does_not_hold_is_recorded() {
    let mut definition = event();
    definition.condition = Some(expr::ioa::parse_condition("amount >= 10").unwrap());
    definition.filter = serde_json::from_value(json!({"currency": ["EUR", "CHF"]})).unwrap();
    let mut bench = TriggerBench::arm(definition, clock("08:00"));
    let payload = |id: &str, amount: serde_json::Value, currency: &str| ExternalFire {
        payload: Arc::new(json!({"amount": amount, "currency": currency})),
        ..external(id)
    };
    assert_eq!(emit(&mut bench, payload("a", json!(12), "EUR"), "09:00"), ["started a"]);
    assert_eq!(emit(&mut bench, payload("b", json!(9), "EUR"), "09:00"), ["condition_false b"]);
    assert_eq!(emit(&mut bench, payload("c", json!(12), "USD"), "09:00"), ["condition_false c"]);
    assert_eq!(emit(&mut bench, payload("d", json!("x"), "CHF"), "09:00"), ["condition_error d"]);
    assert_eq!(emit(&mut bench, payload("b", json!(12), "EUR"), "09:01"), NOTHING, "an event is judged once");
    assert_eq!(bench.fire("p", clock("09:02")), ["started p"], "a person needs no condition");
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    let mut bench = TriggerBench::arm(event(), clock("08:00"));
    let unfit = ExternalFire { refused: Some("`n` is not a number".into()), ..external("a") };
    assert_eq!(emit(&mut bench, unfit, "09:00"), ["refused a inputs"]);
    let fire = TriggerInput::Fire { id: "p".into(), by: "ann".into(), overlap: None, refused: Some("no `n`".into()) };
    assert_eq!(bench.input(fire, clock("09:00")), ["refused p inputs"]);
}

#[test]
fn a_chain_neither_repeats_nor_grows_too_long() {
    let mut bench = TriggerBench::arm(event(), clock("08:00"));
    let chain = |length: usize| (0..length).map(|n| TriggerKey::new(format!("t{n}"))).collect::<Vec<_>>();
    let fire = |id: &str, chain: Vec<TriggerKey>| ExternalFire { chain, ..external(id) };
    let most = limits::TRIGGER_CHAIN;
    assert_eq!(emit(&mut bench, fire("a", chain(most - 2)), "09:00"), ["started a"]);
    assert_eq!(emit(&mut bench, fire("b", chain(most - 1)), "09:00"), ["started b"]);
    assert_eq!(emit(&mut bench, fire("c", chain(most)), "09:00"), ["refused c chain_too_long"]);
    let own = vec![TriggerKey::new("t0"), bench.trigger.definition().key.clone()];
    assert_eq!(emit(&mut bench, fire("d", own), "09:00"), ["refused d chain_repeats"]);
}

#[test]
fn events_of_a_routine_carry_the_chain() {
    let mut definition = event();
    definition.emits =
        vec![RoutineEvent::RoutineTriggered, RoutineEvent::RoutineCompleted, RoutineEvent::RoutineFailed];
    let mut bench = TriggerBench::arm(definition, clock("08:00"));
    let first = ExternalFire { chain: vec![TriggerKey::new("t0")], ..external("a") };
    assert_eq!(emit(&mut bench, first, "09:00"), ["started a", "emitted routine-triggered"]);
    assert_eq!(bench.succeed(clock("09:10")), ["run_ended", "emitted routine-completed"]);
    let Some(TriggerEvent::RoutineEmitted { chain, .. }) = bench.events.last() else { panic!("it emitted") };
    assert_eq!(chain, &[TriggerKey::new("t0"), bench.trigger.definition().key.clone()]);
    emit(&mut bench, external("b"), "09:20");
    assert_eq!(bench.fail(clock("09:30")), ["run_ended", "failed after 1", "emitted routine-failed"]);
}

/// A trigger whose runs are retried after one minute, two, and so on.
fn retried(attempts: u32, on: &[RetryClass]) -> TriggerBench {
    let mut definition = cron("0 * * * *");
    let backoff = Backoff {
        initial: Millis::from_mins(1),
        growth: BackoffGrowth::Linear,
        max: Millis::from_hours(1),
        jitter: false,
    };
    definition.retry = Some(TriggerRetry { max_attempts: attempts, backoff, on: on.to_vec() });
    definition.on_failure =
        FailureActions { notify: vec!["ops".into()], fire_event: Some("broken".into()), create_work_item: true };
    let mut bench = TriggerBench::arm(definition, clock("08:00"));
    assert_eq!(bench.tick(clock("09:00")), ["started 09:00"]);
    bench
}

#[test]
fn a_failed_run_is_retried_as_a_new_run() {
    let mut bench = retried(3, &[]);
    let first = bench.active()[0].clone();
    assert_eq!(bench.fail(clock("09:05")), ["run_ended", "retry at 09:06"]);
    assert_eq!(next_wake(&bench.trigger, &bench.state), Some(clock("09:06")));
    assert_eq!(bench.tick(clock("09:06")), ["started 09:00 attempt 2"]);
    let second = bench.active()[0].clone();
    assert_ne!(first, second);
    assert_eq!(bench.state.active[&second].fire.retry_of, Some(first));
    assert_eq!(bench.fail(clock("09:10")), ["run_ended", "retry at 09:12"]);
    assert_eq!(bench.tick(clock("09:20")), ["started 09:00 attempt 3"], "a late retry still happens");
    assert_eq!(bench.fail(clock("09:21")), ["run_ended", "failed after 3"]);
    let Some(TriggerEvent::FireFailed { actions, .. }) = bench.events.last() else { panic!("it failed") };
    assert_eq!((&actions.notify[..], actions.create_work_item), (&["ops".to_owned()][..], true));
    assert_eq!(bench.state.failures, 1, "a fire fails once");
}

#[test]
fn only_named_failures_are_retried() {
    let rows = [
        (ErrorClass::Timeout, RetryClass::Timeout, true),
        (ErrorClass::Service, RetryClass::Transient, true),
        (ErrorClass::Network, RetryClass::Transient, true),
        (ErrorClass::RateLimit, RetryClass::RateLimit, true),
        (ErrorClass::RateLimit, RetryClass::Timeout, false),
        (ErrorClass::Fatal, RetryClass::Transient, false),
    ];
    for (class, on, again) in rows {
        let mut bench = retried(2, &[on]);
        let shown = bench.end(TriggeredRunEnd::Failed { class: Some(class) }, clock("09:01"));
        assert_eq!(shown.contains(&"retry at 09:02".to_owned()), again, "{class:?} with {on:?}");
    }
    let mut bench = retried(2, &[RetryClass::Timeout]);
    assert_eq!(bench.fail(clock("09:01")), ["run_ended", "failed after 1"], "a failure without a class");
    let mut bench = retried(2, &[]);
    assert_eq!(bench.end(TriggeredRunEnd::Cancelled, clock("09:01")), ["run_ended"], "a cancelled run");
}

#[test]
fn a_retry_waits_for_another_run() {
    let mut bench = retried(2, &[]);
    bench.fail(clock("09:59:30"));
    assert_eq!(bench.sleep_until(clock("10:01")), ["started 10:00", "queued 09:00 attempt 2"]);
    assert_eq!(bench.succeed(clock("10:10")), ["run_ended", "started 09:00 attempt 2"]);
}

#[test]
fn a_retry_that_may_not_start_fails_the_fire() {
    let mut bench = retried(2, &[]);
    bench.fail(clock("09:01"));
    bench.input(TriggerInput::Paused { by: "ann".into(), note: None }, clock("09:01:30"));
    assert_eq!(bench.tick(clock("09:02")), ["refused 09:00 attempt 2 paused", "failed after 1"]);
    assert_eq!(next_wake(&bench.trigger, &bench.state), None);
}

#[test]
fn five_failures_in_a_row_pause_a_schedule() {
    let mut bench = TriggerBench::arm(cron("0 * * * *"), clock("08:00"));
    for hour in 9..13 {
        bench.tick(clock(&format!("{hour:02}:00")));
        assert_eq!(bench.fail(clock(&format!("{hour:02}:01"))), ["run_ended", "failed after 1"]);
    }
    bench.tick(clock("13:00"));
    let expected = ["run_ended", "failed after 1", "paused", "warned paused_after_failures"];
    assert_eq!(bench.fail(clock("13:01")), expected);
    assert_eq!(bench.state.paused.as_ref().unwrap().cause, PauseCause::Failures { count: 5 });
    bench.input(TriggerInput::Unpaused { by: "ann".into(), note: None }, clock("14:30"));
    assert_eq!((bench.state.failures, bench.status()), (0, TriggerStatus::Armed));
}

#[test]
fn a_success_begins_a_new_row_and_a_hook_is_never_paused() {
    let mut definition = cron("0 * * * *");
    definition.pause_after = 2;
    let mut bench = TriggerBench::arm(definition, clock("08:00"));
    bench.tick(clock("09:00"));
    bench.fail(clock("09:01"));
    bench.tick(clock("10:00"));
    bench.succeed(clock("10:01"));
    bench.tick(clock("11:00"));
    assert_eq!(bench.fail(clock("11:01")), ["run_ended", "failed after 1"]);
    let mut definition = hook();
    definition.pause_after = 1;
    let mut bench = TriggerBench::arm(definition.clone(), clock("08:00"));
    bench.deliver("a", clock("09:00"));
    assert_eq!(bench.fail(clock("09:01")), ["run_ended", "failed after 1"], "or a sender could switch it off");
    let mut definition = event();
    definition.pause_after = 0;
    let mut bench = TriggerBench::arm(definition, clock("08:00"));
    for number in 0..9 {
        emit(&mut bench, external(&format!("e{number}")), "09:00");
        assert_eq!(bench.fail(clock("09:01")).len(), 2, "zero means never");
    }
}

#[test]
fn a_queued_fire_is_checked_again_before_it_starts() {
    let queued = || {
        let mut definition = cron("0 * * * *");
        definition.overlap = Some(OverlapPolicy::All);
        definition.valid = vec![ValidityWindow { not_before: None, not_after: Some(clock("12:00")) }];
        let mut bench = TriggerBench::arm(definition, clock("08:00"));
        assert_eq!(bench.sleep_until(clock("10:00")), ["started 09:00", "queued 10:00"]);
        bench
    };
    let mut bench = queued();
    bench.input(TriggerInput::Paused { by: "ann".into(), note: None }, clock("10:10"));
    assert_eq!(bench.succeed(clock("10:20")), ["run_ended", "refused 10:00 paused"]);
    let mut bench = queued();
    bench.input(TriggerInput::Paused { by: "ann".into(), note: None }, clock("10:10"));
    bench.input(TriggerInput::Unpaused { by: "ann".into(), note: None }, clock("10:15"));
    assert_eq!(bench.succeed(clock("10:20")), ["run_ended", "started 10:00"], "its turn came after the pause");
    let mut bench = queued();
    bench.edit(|definition| definition.rate = 9, clock("10:10"));
    assert_eq!(bench.succeed(clock("10:20")), ["run_ended", "refused 10:00 stale", "warned stale"]);
    let mut bench = queued();
    bench.edit(|definition| definition.rate = 9, clock("10:10"));
    bench.rearm(clock("10:15"));
    assert_eq!(bench.succeed(clock("10:20")), ["run_ended", "refused 10:00 changed"], "another plan was armed");
    let mut bench = queued();
    assert_eq!(bench.succeed(clock("12:20")), ["run_ended", "refused 10:00 not_valid"]);
}

#[test]
fn outside_its_windows_a_trigger_fires_for_people_only() {
    let mut definition = event();
    definition.valid = vec![ValidityWindow { not_before: Some(clock("09:00")), not_after: Some(clock("10:00")) }];
    let mut bench = TriggerBench::arm(definition, clock("08:00"));
    assert_eq!(emit(&mut bench, external("a"), "08:59"), ["refused a not_valid"]);
    assert_eq!(emit(&mut bench, external("b"), "09:00"), ["started b"]);
    assert_eq!(emit(&mut bench, external("c"), "10:00"), ["started c"]);
    assert_eq!(emit(&mut bench, external("d"), "10:01"), ["refused d not_valid"]);
    assert_eq!(bench.fire("p", clock("10:02")), ["started p"]);
}

#[test]
fn backfill_fires_settled_slots_that_have_not_started() {
    let mut definition = cron("0 * * * *");
    definition.catchup = CatchupPolicy::Skip;
    let mut bench = TriggerBench::arm(definition, clock("08:00"));
    assert_eq!(bench.tick(clock("09:00")), ["started 09:00"]);
    bench.succeed(clock("09:10"));
    assert_eq!(bench.tick(clock("12:30")), ["missed 10:00 to 12:00: 3"]);
    // Slots before arming are there too, the one that started is not, and future ones are not.
    let started: BTreeSet<_> = [clock("09:00")].into();
    let span = (clock("07:00"), clock("15:00"));
    let found = find_backfill(&bench.trigger, &bench.state, span, &started, clock("12:30")).unwrap();
    assert_eq!(found, ["07:00", "08:00", "10:00", "11:00", "12:00"].map(clock));
    let shown = bench.input(backfill("10:00", "15:00", &[]), clock("12:40"));
    assert_eq!(shown, ["started 10:00", "queued 11:00", "queued 12:00"]);
    assert_eq!(bench.input(backfill("10:00", "15:00", &[]), clock("12:41")), NOTHING, "all of them wait or run");
    bench.succeed(clock("12:50"));
    bench.succeed(clock("12:51"));
    bench.succeed(clock("12:52"));
    let again = bench.input(backfill("09:00", "15:00", &["09:00"]), clock("12:55"));
    assert_eq!(again, NOTHING, "none fires twice");
    assert_eq!(bench.sleep_until(clock("13:00")), ["started 13:00"], "the position has not moved");
}

#[test]
fn backfill_does_not_overtake_the_clock() {
    let mut bench = TriggerBench::arm(cron("0 * * * *"), clock("08:00"));
    // The slot of nine is due but not ticked yet: it fires by itself, and once.
    let shown = bench.input(backfill("08:30", "09:30", &[]), clock("09:00:10"));
    assert_eq!(shown, ["started 09:00"]);
    assert_eq!(bench.events.len(), 3);
    let TriggerEvent::Fired { fire, .. } = bench.events.last().unwrap() else { panic!("it fired") };
    assert_eq!(fire.origin, FireOrigin::Schedule);
    assert_eq!(bench.tick(clock("09:00:20")), NOTHING);
}

#[test]
fn backfill_has_a_limit_and_needs_a_schedule() {
    let mut bench = TriggerBench::arm(cron("* * * * *"), clock("08:00"));
    let span =
        |minutes: i64| (at("2026-01-05T06:00:00Z"), skein_core::time::Timestamp(clock("06:00").0 + minutes * 60_000));
    let none = BTreeSet::new();
    let count = |bench: &TriggerBench, minutes| {
        find_backfill(&bench.trigger, &bench.state, span(minutes), &none, clock("08:00")).map(|slots| slots.len())
    };
    assert_eq!((count(&bench, 98), count(&bench, 99)), (Ok(99), Ok(limits::TRIGGER_BACKFILL)));
    assert!(count(&bench, 100).is_err());
    let refused = bench.input(backfill("06:00", "07:40", &[]), clock("08:00"));
    assert_eq!(refused, ["request refused too_many_slots"]);
    let mut bench = TriggerBench::arm(hook(), clock("08:00"));
    assert_eq!(bench.input(backfill("06:00", "07:40", &[]), clock("08:00")), ["request refused no_schedule"]);
}

#[test]
fn backfill_works_while_a_trigger_is_paused_or_unarmed() {
    let mut bench = TriggerBench::arm(cron("0 * * * *"), clock("08:00"));
    bench.input(TriggerInput::Paused { by: "ann".into(), note: None }, clock("08:30"));
    let shown = bench.input(backfill("09:00", "10:00", &[]), clock("10:30"));
    assert_eq!(shown, ["suppressed 09:00 to 10:00: 2, paused", "started 09:00", "queued 10:00"]);
    let mut bench = TriggerBench::declare(cron("0 * * * *"), clock("08:00"));
    assert_eq!(bench.input(backfill("06:00", "06:30", &[]), clock("08:30")), ["started 06:00"]);
    assert_eq!(bench.state.position, None);
}

#[test]
fn a_run_that_cannot_be_created_is_a_refused_fire() {
    let mut definition = cron("0 * * * *");
    definition.overlap = Some(OverlapPolicy::All);
    let mut bench = TriggerBench::arm(definition, clock("08:00"));
    bench.tick(clock("09:00"));
    bench.tick(clock("10:00"));
    let run = bench.active()[0].clone();
    let refused = TriggerInput::StartRefused { run: run.clone(), message: "the plan is invalid".into() };
    assert_eq!(bench.input(refused.clone(), clock("10:01")), ["refused 09:00 start", "started 10:00"]);
    assert_eq!(bench.input(refused, clock("10:02")), NOTHING);
    assert!(!bench.state.holds(&FireSlot::At(clock("09:00"))), "it can be backfilled");
    let unknown = TriggerInput::StartRefused { run: RunId::new("other").unwrap(), message: String::new() };
    assert_eq!(bench.input(unknown, clock("10:03")), NOTHING);
}

#[test]
fn the_id_of_a_run_is_a_hash_of_trigger_slot_and_attempt() {
    let run = |definition| {
        let mut bench = TriggerBench::arm(definition, clock("08:00"));
        bench.tick(clock("09:00"));
        bench.active()[0].to_string()
    };
    let mut other = cron("0 * * * *");
    other.key = TriggerKey::new("other");
    assert_eq!(run(cron("0 * * * *")), run(cron("0 * * * *")));
    assert_ne!(run(cron("0 * * * *")), run(other));
    assert_eq!(run(cron("0 * * * *")).len(), 16);
}

#[test]
fn a_decision_that_was_not_stored_is_made_again() {
    let bench = TriggerBench::arm(cron("0 * * * *"), clock("08:00"));
    let decide = || skein_core::schedule::decide(&bench.trigger, &bench.state, &TriggerInput::Tick, clock("09:00"));
    assert_eq!(decide(), decide());
    let [TriggerEvent::Fired { outcome: FireOutcome::Started { .. }, .. }] = &decide()[..] else { panic!("it starts") };
}
