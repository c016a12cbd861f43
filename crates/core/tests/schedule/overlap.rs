//! Fires while runs are active: the five policies, the limits on active runs, starts and waiting fires.

use skein_core::{
    limits,
    schedule::{OverlapPolicy, TriggerEvent, TriggerInput, TriggeredRunEnd, next_wake},
    time::Timestamp,
};

use super::harness::{TriggerBench, clock, cron, external, hook};

fn hourly(overlap: OverlapPolicy) -> TriggerBench {
    let mut definition = cron("0 * * * *");
    definition.overlap = Some(overlap);
    let mut bench = TriggerBench::arm(definition, clock("08:00"));
    assert_eq!(bench.tick(clock("09:00")), ["started 09:00"]);
    bench
}

#[test]
fn skip_drops_the_fire_and_names_the_run() {
    let mut bench = hourly(OverlapPolicy::Skip);
    assert_eq!(bench.tick(clock("10:00")), ["skipped 10:00"]);
    let TriggerEvent::Fired { outcome, .. } = bench.events.last().unwrap() else { panic!("it fired") };
    let named = serde_json::to_value(outcome).unwrap()["skipped"]["active"].clone();
    assert_eq!(named, bench.active()[0].as_str());
    assert_eq!(bench.succeed(clock("10:30")), ["run_ended"]);
    assert_eq!(bench.tick(clock("11:00")), ["started 11:00"]);
}

#[test]
fn three_overlaps_in_a_row_warn_once() {
    let mut bench = hourly(OverlapPolicy::Skip);
    assert_eq!(bench.tick(clock("10:00")), ["skipped 10:00"]);
    assert_eq!(bench.tick(clock("11:00")), ["skipped 11:00"]);
    assert_eq!(bench.tick(clock("12:00")), ["skipped 12:00", "warned overlaps"]);
    assert_eq!(bench.tick(clock("13:00")), ["skipped 13:00"]);
    bench.succeed(clock("13:30"));
    assert_eq!(bench.sleep_until(clock("16:00")), ["started 14:00", "skipped 15:00", "skipped 16:00"]);
    assert_eq!(bench.tick(clock("17:00")), ["skipped 17:00", "warned overlaps"], "a start begins a new row");
}

#[test]
fn queue_keeps_the_newest() {
    let mut bench = hourly(OverlapPolicy::Queue);
    assert_eq!(bench.tick(clock("10:00")), ["queued 10:00"]);
    assert_eq!(bench.tick(clock("11:00")), ["skipped 10:00 for 11:00", "queued 11:00"]);
    assert_eq!(bench.succeed(clock("11:30")), ["run_ended", "started 11:00"]);
    assert_eq!(bench.succeed(clock("11:40")), ["run_ended"]);
}

#[test]
fn all_keeps_every_fire_in_order() {
    let mut bench = hourly(OverlapPolicy::All);
    assert_eq!(bench.sleep_until(clock("11:00")), ["queued 10:00", "queued 11:00"]);
    assert_eq!(bench.succeed(clock("11:30")), ["run_ended", "started 10:00"]);
    assert_eq!(bench.succeed(clock("11:40")), ["run_ended", "started 11:00"]);
}

#[test]
fn cancel_waits_for_the_end_of_the_cancelled_run() {
    let mut bench = hourly(OverlapPolicy::Cancel);
    assert_eq!(bench.tick(clock("10:00")), ["cancel_requested", "queued 10:00"]);
    let expected = ["skipped 10:00 for 11:00", "queued 11:00"];
    assert_eq!(bench.tick(clock("11:00")), expected, "a run is cancelled once");
    assert_eq!(bench.end(TriggeredRunEnd::Cancelled, clock("11:01")), ["run_ended", "started 11:00"]);
    assert_eq!(bench.state.failures, 0, "a cancelled run is not a failure");
}

#[test]
fn allow_starts_beside_up_to_the_limit() {
    let mut definition = hook();
    definition.max_active = 3;
    let mut bench = TriggerBench::arm(definition, clock("08:00"));
    let shown: Vec<String> =
        ["a", "b", "c", "d", "e"].iter().flat_map(|id| bench.deliver(id, clock("09:00"))).collect();
    assert_eq!(shown, ["started a", "started b", "started c", "queued d", "queued e"]);
    assert_eq!(next_wake(&bench.trigger, &bench.state), None, "only the end of a run helps");
    assert_eq!(bench.succeed(clock("09:01")), ["run_ended", "started d"]);
    assert_eq!(bench.active().len(), 3);
}

#[test]
fn the_rate_limits_starts_in_a_minute() {
    let mut definition = hook();
    definition.rate = 2;
    let mut bench = TriggerBench::arm(definition, clock("08:00"));
    assert_eq!(bench.deliver("a", clock("09:00")), ["started a"]);
    assert_eq!(bench.deliver("b", clock("09:00:20")), ["started b"]);
    assert_eq!(bench.deliver("c", clock("09:00:30")), ["queued c"]);
    assert_eq!(next_wake(&bench.trigger, &bench.state), Some(clock("09:01")));
    assert_eq!(bench.tick(clock("09:00:59")), Vec::<String>::new());
    assert_eq!(bench.tick(clock("09:01")), ["started c"]);
    assert_eq!(bench.deliver("d", clock("09:01:10")), ["queued d"]);
    assert_eq!(bench.deliver("e", clock("09:01:19")), ["queued e"]);
    assert_eq!(bench.deliver("f", clock("09:01:20")), ["started d", "queued f"], "who waits comes first");
}

#[test]
fn a_clock_that_was_set_back_does_not_stop_starts_for_long() {
    let mut definition = hook();
    definition.rate = 1;
    let mut bench = TriggerBench::arm(definition, clock("08:00"));
    assert_eq!(bench.deliver("a", clock("09:00")), ["started a"]);
    assert_eq!(bench.deliver("b", clock("08:59:30")), ["queued b"], "it may be less than a minute");
    assert_eq!(bench.tick(clock("08:58")), ["started b"]);
}

#[test]
fn a_hundred_fires_wait_and_no_more() {
    let mut definition = hook();
    definition.max_active = 1;
    let mut bench = TriggerBench::arm(definition, clock("08:00"));
    assert_eq!(bench.deliver("first", clock("09:00")), ["started first"]);
    for number in 1..limits::TRIGGER_QUEUE {
        assert_eq!(bench.deliver(&format!("n{number}"), clock("09:00")).len(), 1);
    }
    assert_eq!(bench.deliver("last", clock("09:00")), ["queued last"]);
    assert_eq!(bench.deliver("more", clock("09:00")), ["throttled more"]);
    assert_eq!(bench.state.queue.len(), limits::TRIGGER_QUEUE);
    assert_eq!(bench.succeed(clock("09:30")), ["run_ended", "started n1"]);
    assert_eq!(bench.deliver("again", clock("09:31")), ["queued again"]);
}

#[test]
fn a_queue_that_is_full_of_others_throttles() {
    let mut definition = cron("0 * * * *");
    definition.overlap = Some(OverlapPolicy::Queue);
    let mut bench = TriggerBench::arm(definition, clock("08:00"));
    bench.tick(clock("09:00"));
    let fire = |id: usize| TriggerInput::Fire {
        id: format!("p{id}").into(),
        by: "ann".into(),
        overlap: Some(OverlapPolicy::All),
        refused: None,
    };
    (0..limits::TRIGGER_QUEUE).for_each(|id| assert_eq!(bench.input(fire(id), clock("09:30")).len(), 1));
    assert_eq!(bench.tick(clock("10:00")), ["throttled 10:00"]);
}

#[test]
fn a_fire_of_a_person_may_choose_its_policy() {
    let mut bench = hourly(OverlapPolicy::Skip);
    assert_eq!(bench.fire("p1", clock("09:10")), ["skipped p1"]);
    let beside =
        TriggerInput::Fire { id: "p2".into(), by: "ann".into(), overlap: Some(OverlapPolicy::Allow), refused: None };
    assert_eq!(bench.input(beside, clock("09:11")), ["started p2"]);
    assert_eq!(bench.tick(clock("10:00")), ["skipped 10:00"], "both runs are of this trigger");
}

#[test]
fn serial_fires_wait_for_all_runs_and_others_pass_them() {
    let mut definition = hook();
    definition.max_active = 2;
    let mut bench = TriggerBench::arm(definition, clock("08:00"));
    bench.deliver("a", clock("09:00"));
    let serial =
        TriggerInput::Fire { id: "serial".into(), by: "ann".into(), overlap: Some(OverlapPolicy::All), refused: None };
    assert_eq!(bench.input(serial, clock("09:01")), ["queued serial"]);
    assert_eq!(bench.deliver("b", clock("09:02")), ["started b"]);
    assert_eq!(bench.succeed(clock("09:03")), ["run_ended"]);
    assert_eq!(bench.succeed(clock("09:04")), ["run_ended", "started serial"]);
}

#[test]
fn the_fold_alone_knows_the_active_runs() {
    let mut bench = hourly(OverlapPolicy::Allow);
    let run = bench.active()[0].clone();
    let end = TriggerInput::RunEnded { run: run.clone(), end: TriggeredRunEnd::Succeeded };
    assert_eq!(bench.input(end.clone(), clock("09:10")), ["run_ended"]);
    assert_eq!(bench.input(end, clock("09:11")), Vec::<String>::new(), "an end that is reported twice");
    assert_eq!(bench.tick(Timestamp(clock("10:00").0)), ["started 10:00"]);
    assert_ne!(bench.active()[0], run);
    assert_eq!(bench.input(TriggerInput::Delivery(external("x")), clock("10:01")), Vec::<String>::new());
}
