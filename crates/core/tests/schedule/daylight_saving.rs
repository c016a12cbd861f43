//! Slots around changes of the offset: a table, and every change of every zone.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp as Instant, ToSpan, civil::DateTime, tz::TimeZone};
use skein_core::{
    schedule::{SlotSchedule, TriggerDefinition, TriggerKey, TriggerSource, zone_names},
    time::Timestamp,
};

use super::harness::at;

fn compile(source: TriggerSource) -> SlotSchedule {
    let definition = TriggerDefinition::new(TriggerKey::new("k"), "w", source);
    SlotSchedule::compile(&definition).unwrap().expect("it is a schedule")
}

fn cron_in(cron: &str, timezone: &str) -> SlotSchedule {
    compile(TriggerSource::Cron { cron: cron.into(), timezone: timezone.into() })
}

/// The slots of a civil day, as civil times; a second pass is marked.
fn slots_of_day(schedule: &SlotSchedule, zone: &str, day: &str) -> Vec<String> {
    let zone = TimeZone::get(zone).unwrap();
    let day: jiff::civil::Date = day.parse().unwrap();
    let begin = day.to_zoned(zone.clone()).unwrap().timestamp();
    let end = day.tomorrow().unwrap().to_zoned(zone.clone()).unwrap().timestamp();
    let floor = Timestamp(begin.as_millisecond() - 1);
    let slots = schedule.slots_in(at("2026-01-01T00:00:00Z"), floor, Timestamp(end.as_millisecond() - 1));
    slots
        .map(|slot| {
            let instant = Instant::from_millisecond(slot.0).unwrap();
            let civil = zone.to_datetime(instant);
            let first = zone.to_ambiguous_timestamp(civil).earlier().unwrap();
            let mark = if first == instant { "" } else { " again" };
            format!("{}{mark}", civil.strftime("%H:%M"))
        })
        .collect()
}

#[test]
fn the_table_of_rules_holds() {
    let new_york = "America/New_York";
    let (gap, fold) = ("2026-03-08", "2026-11-01");
    let all = slots_of_day(&cron_in("0 * * * *", new_york), new_york, gap);
    assert_eq!(all[..4], ["00:00", "01:00", "03:00", "04:00"]);
    let all = slots_of_day(&cron_in("0 * * * *", new_york), new_york, fold);
    assert_eq!((all.len(), &all[..4]), (25, &["00:00", "01:00", "01:00 again", "02:00"].map(String::from)[..]));
    let all = slots_of_day(&cron_in("*/30 * * * *", new_york), new_york, fold);
    let expected = ["00:30", "01:00", "01:30", "01:00 again", "01:30 again", "02:00"].map(String::from);
    assert_eq!((all.len(), &all[1..7]), (50, &expected[..]));
    let rows: &[(&str, &str, &str, &[&str])] = &[
        ("30 2 * * *", new_york, gap, &["03:00"]),
        ("*/30 2 * * *", new_york, gap, &["03:00"]),
        ("* 2 * * *", new_york, gap, &["03:00"]),
        ("30 1-3 * * *", new_york, gap, &["01:30", "03:00", "03:30"]),
        ("15 2,3 * * *", new_york, gap, &["03:00", "03:15"]),
        ("0 2,3 * * *", new_york, gap, &["03:00"]),
        ("30 1 * * *", new_york, fold, &["01:30"]),
        ("*/30 1 * * *", new_york, fold, &["01:00", "01:30"]),
        ("30 1-3 * * *", new_york, fold, &["01:30", "02:30", "03:30"]),
        ("0 0 * * *", "Africa/Cairo", "2026-04-24", &["01:00"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-04", &["02:30"]),
        // A half hour that is repeated contains no full hour.
        ("0 1-2 * * *", "Australia/Lord_Howe", "2026-04-05", &["01:00", "02:00"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-05", &["01:45"]),
    ];
    for (cron, zone, day, expected) in rows {
        assert_eq!(slots_of_day(&cron_in(cron, zone), zone, day), *expected, "{cron} in {zone} on {day}");
    }
    let all = slots_of_day(&cron_in("0 */2 * * *", new_york), new_york, gap);
    assert_eq!(all[..2], ["00:00", "04:00"]);
    // The hour that is repeated in Europe is one of every second hour.
    let all = slots_of_day(&cron_in("0 */2 * * *", "Europe/Berlin"), "Europe/Berlin", "2026-10-25");
    assert_eq!(all[..4], ["00:00", "02:00", "02:00 again", "04:00"]);
}

#[test]
fn recurrence_rules_are_mapped_like_cron() {
    let zone = "America/New_York";
    let (gap, fold) = ("2026-03-08", "2026-11-01");
    let rows: &[(&str, &str, &[&str])] = &[
        ("FREQ=DAILY;BYHOUR=2;BYMINUTE=30", gap, &["03:00"]),
        ("FREQ=DAILY;BYHOUR=2,3", gap, &["03:00"]),
        ("FREQ=DAILY;BYHOUR=1;BYMINUTE=30", fold, &["01:30"]),
        ("FREQ=HOURLY;BYHOUR=1,2", fold, &["01:00", "02:00"]),
        ("FREQ=DAILY", fold, &["00:00"]),
    ];
    for (rule, day, expected) in rows {
        let schedule = compile(TriggerSource::Calendar { rule: (*rule).into(), timezone: zone.into() });
        assert_eq!(slots_of_day(&schedule, zone, day), *expected, "{rule} on {day}");
    }
    let schedule = compile(TriggerSource::Calendar { rule: "FREQ=HOURLY".into(), timezone: zone.into() });
    assert_eq!(slots_of_day(&schedule, zone, gap).len(), 23);
    assert_eq!(slots_of_day(&schedule, zone, fold).len(), 25);
    let ends = "FREQ=DAILY;UNTIL=20260308T050000Z";
    let schedule = compile(TriggerSource::Calendar { rule: ends.into(), timezone: zone.into() });
    assert_eq!(slots_of_day(&schedule, zone, gap), ["00:00"], "midnight in New York is five hours after midnight");
    assert_eq!(slots_of_day(&schedule, zone, "2026-03-09"), Vec::<String>::new());
}

/// Expressions of all shapes: fixed hours, lists, ranges, steps, all hours.
const EXPRESSIONS: &[&str] = &[
    "0 0 * * *",
    "30 2 * * *",
    "*/20 0-4 * * *",
    "15 1,2,3,23 * * *",
    "0 * * * *",
    "*/15 * * * *",
    "7 */2 * * *",
    "*/10 */3 * * *",
    "59 23 * * *",
];

/// The civil minutes that an expression matches, by its fields and not by a search.
fn matches(expression: &str, civil: DateTime) -> bool {
    let fields: Vec<&str> = expression.split(' ').collect();
    let holds = |field: &str, number: i8| {
        field.split(',').any(|item| {
            let (span, step) = item.split_once('/').unwrap_or((item, "1"));
            let (first, last) = match span.split_once('-') {
                Some((first, last)) => (first.parse().unwrap(), last.parse().unwrap()),
                None if span == "*" => (0, i8::MAX),
                None => (span.parse().unwrap(), span.parse().unwrap()),
            };
            (first..=last).contains(&number) && (number - first) % step.parse::<i8>().unwrap() == 0
        })
    };
    holds(fields[0], civil.minute()) && holds(fields[1], civil.hour())
}

/// A span of instants in a zone, minute by minute.
struct ZoneMinutes {
    /// Each instant with its civil time.
    instants: Vec<(Instant, DateTime)>,
    /// Each civil minute from the first to the last, with its first instant, or the end of the gap that it is in.
    first_passes: Vec<(DateTime, Instant)>,
}

impl ZoneMinutes {
    fn new(zone: &TimeZone, begin: Instant, end: Instant) -> ZoneMinutes {
        let mut instants = Vec::new();
        let mut instant = begin;
        while instant < end {
            instants.push((instant, zone.to_datetime(instant)));
            instant += SignedDuration::from_mins(1);
        }
        let mut known: BTreeMap<DateTime, Instant> = BTreeMap::new();
        for (instant, civil) in &instants {
            known.entry(*civil).or_insert(*instant);
        }
        let mut first_passes = Vec::new();
        let mut civil = instants[0].1;
        let last = instants.last().unwrap().1;
        while civil <= last {
            // The end of a gap is the first instant that shows a later time. Changes happen at full minutes.
            let after = || instants.iter().find(|(_, shown)| *shown > civil).unwrap().0;
            first_passes.push((civil, known.get(&civil).copied().unwrap_or_else(after)));
            civil = civil.checked_add(1.minute()).unwrap();
        }
        ZoneMinutes { instants, first_passes }
    }

    fn expected(&self, expression: &str) -> BTreeSet<i64> {
        let hour = expression.split(' ').nth(1).unwrap();
        let slots: BTreeSet<Instant> = if hour.starts_with('*') {
            self.instants.iter().filter(|(_, civil)| matches(expression, *civil)).map(|(at, _)| *at).collect()
        } else {
            self.first_passes.iter().filter(|(civil, _)| matches(expression, *civil)).map(|(_, at)| *at).collect()
        };
        slots.into_iter().map(|at| at.as_millisecond()).collect()
    }
}

/// Checks all expressions in a span. Several zones share the rules of one, so the offsets of a span are a key.
fn check_span(name: &str, zone: &TimeZone, begin: Instant, end: Instant) {
    let minutes = ZoneMinutes::new(zone, begin, end);
    for expression in EXPRESSIONS {
        let schedule = cron_in(expression, name);
        let (floor, until) = (Timestamp(begin.as_millisecond() - 1), Timestamp(end.as_millisecond() - 1));
        let found: Vec<i64> = schedule.slots_in(floor, floor, until).map(|slot| slot.0).collect();
        let distinct: BTreeSet<i64> = found.iter().copied().collect();
        assert_eq!(found.len(), distinct.len(), "{expression} in {name}: a slot occurs twice");
        assert!(found.is_sorted(), "{expression} in {name}: slots are out of order");
        // The first minutes may belong to a fold that began before the span.
        let expected = minutes.expected(expression);
        assert_eq!(distinct, expected, "{expression} in {name} from {begin}");
    }
}

#[test]
fn no_slot_is_lost_or_repeated_at_any_change_of_any_zone() {
    let (begin, end): (Instant, Instant) = ("2026-01-01T00:00Z".parse().unwrap(), "2027-01-01T00:00Z".parse().unwrap());
    let names = zone_names();
    assert!(names.len() > 400, "the database has {} zones", names.len());
    let (mut seen, mut changes) = (BTreeSet::new(), 0);
    for name in &names {
        let zone = TimeZone::get(name).unwrap();
        for change in zone.following(begin).take_while(|change| change.timestamp() < end) {
            changes += 1;
            let (at, day) = (change.timestamp(), SignedDuration::from_hours(26));
            let offsets = (at, zone.to_offset(at - SignedDuration::from_secs(1)), change.offset());
            if seen.insert(offsets) {
                check_span(name, &zone, at - day, at + day);
            }
        }
    }
    assert!(changes > 200 && seen.len() > 30, "{changes} changes, {} of them different", seen.len());
}

#[test]
fn every_zone_has_one_slot_for_each_day_of_a_year() {
    let mut checked = BTreeSet::new();
    for name in zone_names() {
        let zone = TimeZone::get(&name).unwrap();
        let begin = jiff::civil::date(2026, 1, 1).to_zoned(zone.clone()).unwrap().timestamp();
        let end = jiff::civil::date(2027, 1, 1).to_zoned(zone.clone()).unwrap().timestamp();
        let offsets: Vec<_> =
            zone.following(begin).take(4).map(|change| (change.timestamp(), change.offset())).collect();
        if !checked.insert((zone.to_offset(begin), offsets)) {
            continue;
        }
        for cron in ["0 0 * * *", "30 2 * * *", "45 23 * * *"] {
            let (floor, until) = (Timestamp(begin.as_millisecond() - 1), Timestamp(end.as_millisecond() - 1));
            let found: Vec<Timestamp> = cron_in(cron, &name).slots_in(floor, floor, until).collect();
            // In Greenland, a slot late in the evening of the change occurs at midnight.
            let distinct: BTreeSet<Timestamp> = found.iter().copied().collect();
            assert_eq!((found.len(), distinct.len()), (365, 365), "{cron} in {name}");
        }
    }
}

#[test]
fn historic_changes_of_a_whole_day_are_mapped_too() {
    // Samoa had no 30 December 2011.
    let apia = cron_in("30 9 * * *", "Pacific/Apia");
    let found: Vec<Timestamp> =
        apia.slots_in(at("2011-12-28T00:00:00Z"), at("2011-12-28T12:00:00Z"), at("2012-01-01T00:00:00Z")).collect();
    let shown: Vec<String> = found.iter().map(|slot| Instant::from_millisecond(slot.0).unwrap().to_string()).collect();
    let expected = ["2011-12-28T19:30:00Z", "2011-12-29T19:30:00Z", "2011-12-30T10:00:00Z", "2011-12-30T19:30:00Z"];
    assert_eq!(shown[..4], expected);
}

#[test]
fn slots_are_found_at_the_ends_of_time() {
    let daily = cron_in("0 0 * * *", "Europe/Paris");
    for wild in [Timestamp(i64::MIN), Timestamp(i64::MAX), Timestamp(253_402_207_200_000)] {
        let _ = daily.next_after(wild, wild);
        let _ = daily.latest(wild, wild, wild, 3);
    }
    let every = compile(TriggerSource::Interval { every: skein_core::time::Millis(10_000), from: None });
    assert_eq!(every.next_after(Timestamp(i64::MIN), Timestamp(i64::MAX)), None);
    assert_eq!(every.next_after(Timestamp(0), Timestamp(25_000)), Some(Timestamp(30_000)));
    assert_eq!(every.next_after(Timestamp(50_000), Timestamp(0)), Some(Timestamp(50_000)));
    let far = daily.next_after(Timestamp(0), at("2100-06-01T00:00:00Z"));
    assert_eq!(far, Some(at("2100-06-01T22:00:00Z")), "the rules of a zone hold after the last change in the database");
}
