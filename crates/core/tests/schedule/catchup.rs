//! Late and missed slots: grace, jitter, the three policies, their limits, and clocks that jump.

use skein_core::{
    limits,
    schedule::{CatchupPolicy, OverlapPolicy, TriggerSource, TriggerStatus, ValidityWindow, next_wake},
    time::{Millis, Timestamp},
};

use super::harness::{TriggerBench, at, clock, cron};

/// A trigger that was armed at eight, with the policies given.
fn hourly(catchup: CatchupPolicy, overlap: Option<OverlapPolicy>) -> TriggerBench {
    let mut definition = cron("0 * * * *");
    (definition.catchup, definition.overlap) = (catchup, overlap);
    TriggerBench::arm(definition, clock("08:00"))
}

#[test]
fn a_slot_fires_up_to_its_grace_and_is_missed_after_it() {
    for (late, expected) in [("09:00", "started 09:00"), ("09:01", "started 09:00"), ("08:59:59", "")] {
        let mut bench = hourly(CatchupPolicy::Skip, None);
        let shown = bench.tick(clock(late)).join(", ");
        assert_eq!(shown, expected, "{late}");
    }
    let mut bench = hourly(CatchupPolicy::Skip, None);
    assert_eq!(bench.tick(Timestamp(clock("09:01").0 + 1)), ["missed 09:00 to 09:00: 1"]);
    assert_eq!(next_wake(&bench.trigger, &bench.state), Some(clock("10:00")));
}

#[test]
fn asleep_for_eight_hours() {
    let wake = clock("16:30");
    let mut bench = hourly(CatchupPolicy::Skip, None);
    assert_eq!(bench.tick(wake), ["missed 09:00 to 16:00: 8"]);
    let mut bench = hourly(CatchupPolicy::One, None);
    assert_eq!(bench.tick(wake), ["missed 09:00 to 15:00: 7", "started 16:00"]);
    let mut bench = hourly(CatchupPolicy::All, None);
    let shown = bench.tick(wake);
    assert_eq!(shown[..2], ["started 09:00", "queued 10:00"]);
    assert_eq!((shown.len(), shown.last().unwrap().as_str()), (8, "queued 16:00"));
    for hour in 10..=16 {
        assert_eq!(bench.succeed(wake), ["run_ended".to_owned(), format!("started {hour}:00")], "one at a time");
    }
    assert_eq!(bench.succeed(wake), ["run_ended"]);
}

#[test]
fn a_slot_in_time_does_the_work_of_the_missed_ones() {
    let mut bench = hourly(CatchupPolicy::One, None);
    assert_eq!(bench.tick(clock("12:00:30")), ["missed 09:00 to 11:00: 3", "started 12:00"]);
    let mut bench = hourly(CatchupPolicy::Skip, None);
    assert_eq!(bench.tick(clock("12:00:30")), ["missed 09:00 to 11:00: 3", "started 12:00"]);
    let mut bench = hourly(CatchupPolicy::All, None);
    let expected = ["started 09:00", "queued 10:00", "queued 11:00", "skipped 12:00"];
    assert_eq!(bench.tick(clock("12:00:30")), expected);
    let mut bench = hourly(CatchupPolicy::All, Some(OverlapPolicy::All));
    assert_eq!(bench.tick(clock("12:00:30")).last().unwrap(), "queued 12:00");
}

#[test]
fn all_means_the_latest_hundred_within_the_window() {
    let mut definition = cron("*/5 * * * *");
    definition.catchup = CatchupPolicy::All;
    let mut bench = TriggerBench::arm(definition.clone(), clock("00:00"));
    let shown = bench.tick(at("2026-01-05T20:02:00Z"));
    // There were 240 slots; the last hundred begin at 11:45.
    assert_eq!(shown[..2], ["missed 00:05 to 11:40: 140", "started 11:45"]);
    assert_eq!(shown.len(), 1 + limits::TRIGGER_CATCHUP);
    definition.source = TriggerSource::Cron { cron: "0 * * * *".into(), timezone: "UTC".into() };
    let mut bench = TriggerBench::arm(definition, at("2026-01-03T00:00:00Z"));
    let shown = bench.tick(clock("00:30"));
    // The window is a day.
    assert_eq!(shown[0], "missed 2026-01-03T01:00 to 2026-01-04T00:00: 24");
    assert_eq!((shown[1].as_str(), shown.len()), ("started 2026-01-04T01:00", 1 + 24));
}

#[test]
fn one_fires_the_latest_however_old_it_is() {
    let mut definition = cron("0 0 1 * *");
    definition.catchup = CatchupPolicy::One;
    let mut bench = TriggerBench::arm(definition, at("2025-11-15T00:00:00Z"));
    let shown = bench.tick(clock("00:30"));
    assert_eq!(shown, ["missed 2025-12-01T00:00 to 2025-12-01T00:00: 1", "started 2026-01-01T00:00"]);
}

#[test]
fn a_long_absence_is_one_record_with_exact_ends() {
    let mut bench = TriggerBench::arm(cron("* * * * *"), at("2025-01-05T00:00:00Z"));
    let shown = bench.tick(clock("00:00:30"));
    let count = limits::TRIGGER_COUNTED_SLOTS;
    assert_eq!(shown, [format!("missed 2025-01-05T00:01 to 2026-01-04T23:59: {count}"), "started 00:00".to_owned()]);
    let mut definition = cron("* * * * *");
    definition.source = TriggerSource::Interval { every: Millis::from_secs(10), from: None };
    let mut bench = TriggerBench::arm(definition, at("2016-01-05T00:00:00Z"));
    assert_eq!(bench.tick(clock("00:00:05")).len(), 2 + 6, "the slots of the last minute fire");
}

#[test]
fn jitter_is_stable_bounded_and_keeps_the_order() {
    let mut definition = cron("*/10 * * * *");
    definition.jitter = Millis::from_hours(1);
    let bench = TriggerBench::arm(definition, clock("08:00"));
    let upcoming: Vec<_> = bench.trigger.upcoming(&bench.state, clock("08:00"), 200).collect();
    let mut jitters: Vec<u64> = Vec::new();
    for (index, (slot, due)) in upcoming.iter().enumerate() {
        let jitter = due.duration_since(*slot);
        assert!(jitter <= Millis::from_mins(5), "at most half the distance");
        assert!(upcoming.get(index + 1).is_none_or(|(_, next)| due < next));
        assert_eq!(bench.trigger.due_time(clock("08:00"), *slot), *due);
        jitters.push(jitter.0);
    }
    jitters.sort_unstable();
    jitters.dedup();
    assert!(jitters.len() > 150, "only {} different delays", jitters.len());
    assert!(jitters[0] < 30_000 && jitters[jitters.len() - 1] > 270_000, "the whole span is used");
}

#[test]
fn lateness_counts_from_the_delayed_time() {
    let mut definition = cron("0 * * * *");
    definition.jitter = Millis::from_mins(30);
    let mut bench = TriggerBench::arm(definition, clock("08:00"));
    let due = next_wake(&bench.trigger, &bench.state).unwrap();
    assert!(due > clock("09:00") && due <= clock("09:30"));
    assert_eq!(bench.tick(Timestamp(due.0 - 1)), Vec::<String>::new());
    let mut late = TriggerBench { events: Vec::new(), trigger: bench.trigger.clone(), state: bench.state.clone() };
    assert_eq!(late.tick(Timestamp(due.0 + 60_001)), ["missed 09:00 to 09:00: 1"]);
    assert_eq!(bench.tick(Timestamp(due.0 + 60_000)), ["started 09:00"]);
}

#[test]
fn nothing_fires_twice_when_the_clock_is_set_back() {
    let mut bench = hourly(CatchupPolicy::All, Some(OverlapPolicy::Allow));
    assert_eq!(bench.tick(clock("09:00")), ["started 09:00"]);
    assert_eq!(bench.tick(clock("08:30")), Vec::<String>::new());
    assert_eq!(bench.tick(clock("09:00")), Vec::<String>::new());
    assert_eq!(bench.tick(clock("10:00")), ["started 10:00"]);
}

#[test]
fn a_clock_one_day_forward_and_back_settles_the_day_once() {
    let mut bench = hourly(CatchupPolicy::Skip, None);
    let tomorrow = at("2026-01-06T08:30:00Z");
    assert_eq!(bench.tick(tomorrow), ["missed 09:00 to 2026-01-06T08:00: 24"]);
    for hour in ["09:00", "12:00", "23:00"] {
        assert_eq!(bench.tick(clock(hour)), Vec::<String>::new(), "{hour} is settled");
    }
    assert_eq!(bench.tick(at("2026-01-06T09:00:00Z")), ["started 2026-01-06T09:00"]);
}

#[test]
fn only_slots_in_a_window_exist() {
    let mut definition = cron("0 * * * *");
    let window = |first: Option<&str>, last: Option<&str>| ValidityWindow {
        not_before: first.map(clock),
        not_after: last.map(clock),
    };
    definition.valid = vec![window(Some("14:00"), Some("15:30")), window(Some("09:30"), Some("11:00"))];
    let mut bench = TriggerBench::arm(definition.clone(), clock("08:00"));
    let upcoming: Vec<_> = bench.trigger.upcoming(&bench.state, clock("08:00"), 9).map(|(slot, _)| slot).collect();
    assert_eq!(upcoming, ["10:00", "11:00", "14:00", "15:00"].map(clock));
    assert_eq!(bench.tick(clock("14:00")), ["missed 10:00 to 11:00: 2", "started 14:00"]);
    bench.succeed(clock("14:10"));
    assert_eq!(bench.sleep_until(clock("23:00")), ["started 15:00"]);
    assert_eq!(next_wake(&bench.trigger, &bench.state), None);
    definition.valid = vec![window(Some("11:00"), None)];
    assert_eq!(TriggerBench::arm(definition, clock("08:00")).sleep_until(clock("11:30")), ["started 11:00"]);
}

#[test]
fn an_interval_counts_from_its_start_or_from_arming() {
    let mut definition = cron("0 * * * *");
    definition.source = TriggerSource::Interval { every: Millis::from_mins(45), from: None };
    let mut bench = TriggerBench::arm(definition.clone(), clock("08:10"));
    assert_eq!(bench.sleep_until(clock("09:00")), ["started 08:55"]);
    let from = Some(clock("06:00"));
    definition.source = TriggerSource::Interval { every: Millis::from_mins(45), from };
    let mut bench = TriggerBench::arm(definition.clone(), clock("08:10"));
    assert_eq!(bench.sleep_until(clock("09:00")), ["started 08:15", "skipped 09:00"]);
    definition.source = TriggerSource::Interval { every: Millis::from_mins(45), from: Some(clock("10:00")) };
    let mut bench = TriggerBench::arm(definition, clock("08:10"));
    assert_eq!(bench.sleep_until(clock("10:30")), ["started 10:00"]);
}

#[test]
fn a_recurrence_rule_counts_from_the_day_of_arming() {
    let mut definition = cron("0 * * * *");
    definition.source =
        TriggerSource::Calendar { rule: "FREQ=DAILY;INTERVAL=2;BYHOUR=9;COUNT=2".into(), timezone: "UTC".into() };
    let mut bench = TriggerBench::arm(definition, clock("10:00"));
    // The first of the two was at nine on the day of arming.
    assert_eq!(bench.sleep_until(at("2026-02-01T00:00:00Z")), ["started 2026-01-07T09:00"]);
    assert_eq!(bench.status(), TriggerStatus::Armed);
    assert_eq!(next_wake(&bench.trigger, &bench.state), None);
}
