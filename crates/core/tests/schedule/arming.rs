//! The status of a trigger: arming, edits, pauses, removal and restoration, and what happens to slots meanwhile.

use skein_core::{
    plan::ContentHash,
    schedule::{
        FireRefusal, ScheduleSettings, Trigger, TriggerDefinition, TriggerInput, TriggerKey, TriggerSource,
        TriggerState, TriggerStatus, apply, decide, next_wake,
    },
};

use super::harness::{TriggerBench, at, clock, cron, event, hook};

const NOTHING: [&str; 0] = [];

fn pause(bench: &mut TriggerBench, now: &str) -> Vec<String> {
    bench.input(TriggerInput::Paused { by: "ann".into(), note: Some("holidays".into()) }, clock(now))
}

fn unpause(bench: &mut TriggerBench, now: &str) -> Vec<String> {
    bench.input(TriggerInput::Unpaused { by: "ann".into(), note: None }, clock(now))
}

#[test]
fn an_unarmed_trigger_does_not_fire() {
    let mut bench = TriggerBench::declare(cron("0 * * * *"), clock("08:00"));
    assert_eq!(bench.status(), TriggerStatus::Unarmed);
    assert_eq!(next_wake(&bench.trigger, &bench.state), None);
    assert_eq!(bench.tick(clock("12:00")), NOTHING);
    assert_eq!(bench.rearm(clock("12:30")), ["armed"]);
    assert_eq!(bench.sleep_until(clock("13:30")), ["started 13:00"], "earlier slots are not caught up");
}

#[test]
fn a_delivery_for_an_unarmed_hook_is_recorded_and_warns_once() {
    let mut bench = TriggerBench::declare(hook(), clock("08:00"));
    assert_eq!(bench.deliver("a", clock("09:00")), ["refused a unarmed", "warned unarmed"]);
    assert_eq!(bench.deliver("b", clock("09:01")), ["refused b unarmed"]);
    bench.rearm(clock("09:02"));
    assert_eq!(bench.deliver("a", clock("09:03")), ["started a"], "a fire that was refused may come again");
}

#[test]
fn arming_needs_the_hash_of_what_is_declared() {
    let mut bench = TriggerBench::declare(cron("0 * * * *"), clock("08:00"));
    let old = bench.trigger.hash();
    bench.edit(|definition| definition.max_active = 2, clock("08:10"));
    let arm = |hash: ContentHash| TriggerInput::Armed { by: "ann".into(), hash, note: None };
    assert_eq!(bench.input(arm(old), clock("08:20")), ["request refused changed"]);
    assert_eq!(bench.status(), TriggerStatus::Unarmed);
    let current = bench.trigger.hash();
    assert_eq!(bench.input(arm(current), clock("08:30")), ["armed"]);
    assert_eq!(bench.input(arm(current), clock("08:40")), NOTHING, "it is armed already");
    assert_eq!(bench.state.armed.as_ref().unwrap().at, clock("08:30"));
}

#[test]
fn the_hash_covers_the_trigger_and_its_target_but_not_the_settings() {
    let settings = ScheduleSettings::default();
    let hash = |definition: TriggerDefinition, target| Trigger::compile(definition, target, settings).hash();
    let other = ContentHash::hash_bytes(b"another workflow");
    let plain = hash(cron("0 * * * *"), ContentHash::ZERO);
    assert_eq!(plain, hash(cron("0 * * * *"), ContentHash::ZERO));
    assert_ne!(plain, hash(cron("0 * * * *"), other));
    let changes: [fn(&mut TriggerDefinition); 6] = [
        |definition| definition.enabled = false,
        |definition| definition.rate = 1,
        |definition| definition.binding = serde_json::json!({"inputs": {"n": 1}}),
        |definition| definition.workflow = "other".into(),
        |definition| definition.retry = Some(Default::default()),
        |definition| definition.source = TriggerSource::Manual,
    ];
    for change in changes {
        let mut definition = cron("0 * * * *");
        change(&mut definition);
        assert_ne!(plain, hash(definition, ContentHash::ZERO));
    }
    let grace = ScheduleSettings { grace: skein_core::time::Millis(1), ..settings };
    assert_eq!(plain, Trigger::compile(cron("0 * * * *"), ContentHash::ZERO, grace).hash());
}

#[test]
fn a_trigger_that_is_edited_while_a_slot_is_due_does_not_fire() {
    let mut bench = TriggerBench::arm(cron("0 * * * *"), clock("08:00"));
    // The slot of nine o'clock is due, and the edit is seen before the tick.
    let change = |definition: &mut TriggerDefinition| {
        definition.source = TriggerSource::Cron { cron: "30 * * * *".into(), timezone: "UTC".into() };
    };
    let expected = ["suppressed 09:00 to 09:00: 1, stale", "warned stale", "declared"];
    assert_eq!(bench.edit(change, clock("09:00:05")), expected);
    assert_eq!(bench.status(), TriggerStatus::Stale);
    assert_eq!(bench.tick(clock("09:30")), ["suppressed 09:30 to 09:30: 1, stale"], "the slots of the new schedule");
    assert_eq!(next_wake(&bench.trigger, &bench.state), None, "the operator knows");
    assert_eq!(bench.rearm(clock("11:00")), ["suppressed 10:30 to 10:30: 1, stale", "armed"]);
    assert_eq!(bench.sleep_until(clock("12:00")), ["started 11:30"]);
}

#[test]
fn an_edit_of_the_workflow_makes_the_trigger_stale_until_it_is_undone() {
    let mut bench = TriggerBench::arm(cron("0 * * * *"), clock("08:00"));
    let before = bench.trigger.clone();
    let settings = ScheduleSettings::default();
    bench.trigger = Trigger::compile(cron("0 * * * *"), ContentHash::hash_bytes(b"edited"), settings);
    assert_eq!(bench.input(TriggerInput::Declared { auto_arm: false }, clock("08:30")), ["declared"]);
    assert_eq!(next_wake(&bench.trigger, &bench.state), Some(clock("09:00")), "the first slot warns");
    assert_eq!(bench.sleep_until(clock("10:30")), ["suppressed 09:00 to 09:00: 1, stale", "warned stale"]);
    bench.trigger = before;
    let shown = bench.input(TriggerInput::Declared { auto_arm: false }, clock("11:30"));
    assert_eq!(shown, ["suppressed 10:00 to 11:00: 2, stale", "declared"]);
    assert_eq!(bench.status(), TriggerStatus::Armed);
    assert_eq!(bench.sleep_until(clock("12:30")), ["started 12:00"]);
}

#[test]
fn a_stale_hook_refuses_and_a_person_may_still_fire() {
    let mut bench = TriggerBench::arm(hook(), clock("08:00"));
    bench.edit(|definition| definition.rate = 5, clock("08:30"));
    assert_eq!(bench.deliver("a", clock("09:00")), ["refused a stale", "warned stale"]);
    assert_eq!(bench.fire("p", clock("09:01")), ["started p"]);
}

#[test]
fn paused_over_ten_slots_and_unpaused() {
    let mut bench = TriggerBench::arm(cron("0 * * * *"), clock("08:00"));
    assert_eq!(pause(&mut bench, "08:30"), ["paused"]);
    assert_eq!(bench.status(), TriggerStatus::Paused);
    assert_eq!(next_wake(&bench.trigger, &bench.state), None);
    assert_eq!(unpause(&mut bench, "18:30"), ["suppressed 09:00 to 18:00: 10, paused", "unpaused"]);
    assert_eq!(bench.sleep_until(clock("20:30")), ["started 19:00", "skipped 20:00"], "none is caught up");
    assert_eq!(pause(&mut bench, "20:40"), ["paused"]);
    assert_eq!(pause(&mut bench, "20:50"), NOTHING);
    assert_eq!(unpause(&mut bench, "20:55"), ["unpaused"]);
    assert_eq!(unpause(&mut bench, "20:56"), NOTHING);
}

#[test]
fn a_slot_that_is_due_when_a_person_pauses_does_not_fire() {
    let mut bench = TriggerBench::arm(cron("0 * * * *"), clock("08:00"));
    assert_eq!(pause(&mut bench, "09:00:10"), ["suppressed 09:00 to 09:00: 1, paused", "paused"]);
    assert_eq!(unpause(&mut bench, "09:00:20"), ["unpaused"]);
    assert_eq!(bench.tick(clock("09:00:30")), NOTHING);
}

#[test]
fn removed_and_restored() {
    let mut bench = TriggerBench::arm(cron("0 * * * *"), clock("08:00"));
    assert_eq!(bench.input(TriggerInput::Removed, clock("08:30")), ["removed"]);
    assert_eq!(bench.status(), TriggerStatus::Absent);
    assert_eq!(bench.input(TriggerInput::Removed, clock("08:31")), NOTHING);
    assert_eq!(next_wake(&bench.trigger, &bench.state), None);
    assert_eq!(bench.tick(clock("10:00")), ["suppressed 09:00 to 10:00: 2, absent"]);
    assert_eq!(bench.fire("p", clock("10:30")), ["refused p absent"], "there is nothing to start");
    assert_eq!(bench.rearm(clock("10:40")), ["request refused absent"]);
    let restored = bench.input(TriggerInput::Declared { auto_arm: false }, clock("11:30"));
    assert_eq!(restored, ["suppressed 11:00 to 11:00: 1, absent", "declared"]);
    assert_eq!(bench.status(), TriggerStatus::Armed, "it returned unchanged");
    assert_eq!(bench.sleep_until(clock("12:00")), ["started 12:00"]);
}

#[test]
fn removed_and_restored_with_a_change() {
    let mut bench = TriggerBench::arm(cron("0 * * * *"), clock("08:00"));
    assert_eq!(
        bench.input(TriggerInput::Removed, clock("09:00:05")),
        ["suppressed 09:00 to 09:00: 1, absent", "removed"],
        "a slot that was due is recorded"
    );
    bench.edit(|definition| definition.pause_after = 0, clock("11:30"));
    assert_eq!(bench.status(), TriggerStatus::Stale);
}

#[test]
fn a_renamed_trigger_is_a_new_one() {
    let mut bench = TriggerBench::arm(cron("0 * * * *"), clock("08:00"));
    let mut renamed = cron("0 * * * *");
    renamed.key = TriggerKey::from_config("renamed");
    bench.input(TriggerInput::Removed, clock("09:30"));
    let mut other = TriggerBench::declare(renamed, clock("09:30"));
    assert_eq!(other.status(), TriggerStatus::Unarmed);
    assert_eq!(other.tick(clock("10:00")), NOTHING);
    other.rearm(clock("10:30"));
    assert_eq!(other.sleep_until(clock("11:00")), ["started 11:00"]);
    let mut twin = TriggerBench::arm(cron("0 * * * *"), clock("10:30"));
    twin.tick(clock("11:00"));
    assert_ne!(other.active(), twin.active(), "runs of different triggers have different ids");
}

#[test]
fn one_cron_twice_is_one_trigger() {
    let key = |cron: &str, timezone: &str| {
        let source = TriggerSource::Cron { cron: cron.into(), timezone: timezone.into() };
        TriggerKey::from_workflow("nightly", &source)
    };
    assert_eq!(key("0 2 * * *", "Europe/Berlin").as_str(), "nightly/cron/0 2 * * * Europe/Berlin");
    assert_eq!(key("0 2 * * *", "UTC"), key("0 2 * * *", "UTC"));
    assert_ne!(key("0 2 * * *", "UTC"), key("0 3 * * *", "UTC"));
    let keys = [
        TriggerKey::from_routine("nightly"),
        TriggerKey::from_config("nightly"),
        TriggerKey::from_workflow("nightly", &TriggerSource::Manual),
        TriggerKey::from_workflow("nightly", &TriggerSource::Webhook { path: "/p".into() }),
        TriggerKey::from_workflow("nightly", &TriggerSource::Event { event: "/p".into() }),
    ];
    let texts = ["routine:nightly", "config:nightly", "nightly/manual", "nightly/webhook//p", "nightly/event//p"];
    assert_eq!(keys.each_ref().map(TriggerKey::as_str), texts);
    let ids: std::collections::BTreeSet<String> = keys.iter().map(TriggerKey::short_id).collect();
    assert!(ids.len() == keys.len() && ids.iter().all(|id| id.len() == 12));
}

#[test]
fn a_disabled_trigger_is_fired_by_people_only() {
    let mut definition = event();
    definition.enabled = false;
    let mut bench = TriggerBench::declare(definition, clock("08:00"));
    assert_eq!(bench.rearm(clock("08:10")), ["armed"]);
    assert_eq!(bench.status(), TriggerStatus::Disabled);
    let input = TriggerInput::Event { name: "paid".into(), fire: super::harness::external("e") };
    assert_eq!(bench.input(input, clock("08:20")), ["refused e disabled"]);
    assert_eq!(bench.fire("p", clock("08:30")), ["started p"]);
    bench.edit(|definition| definition.enabled = true, clock("08:40"));
    assert_eq!(bench.status(), TriggerStatus::Stale, "a file alone cannot switch a trigger on");
}

#[test]
fn an_invalid_trigger_cannot_be_armed_or_fired() {
    let definition = cron("not a schedule");
    let trigger = Trigger::compile(definition, ContentHash::ZERO, ScheduleSettings::default());
    let mut state = TriggerState::default();
    for event in decide(&trigger, &state, &TriggerInput::Declared { auto_arm: true }, clock("08:00")) {
        apply(&mut state, &event);
    }
    assert_eq!((trigger.status(&state), state.armed.is_some()), (TriggerStatus::Invalid, false));
    let mut bench = TriggerBench { trigger, state, events: Vec::new() };
    assert_eq!(bench.rearm(clock("08:10")), ["request refused invalid"]);
    assert_eq!(bench.fire("p", clock("08:20")), ["refused p invalid"]);
    assert_eq!(bench.tick(clock("09:00")), NOTHING);
    // Corrected, it waits for a person.
    bench.edit(|definition| *definition = cron("0 * * * *"), clock("09:30"));
    assert_eq!(bench.status(), TriggerStatus::Unarmed);
}

#[test]
fn auto_arming_needs_no_person() {
    let definition = cron("0 * * * *");
    let trigger = Trigger::compile(definition, ContentHash::ZERO, ScheduleSettings::default());
    let mut bench = TriggerBench { trigger, state: TriggerState::default(), events: Vec::new() };
    let declared = TriggerInput::Declared { auto_arm: true };
    assert_eq!(bench.input(declared.clone(), clock("08:00")), ["declared", "armed"]);
    assert_eq!(bench.input(declared.clone(), clock("08:10")), NOTHING);
    bench.trigger = Trigger::compile(cron("0 * * * *"), ContentHash::hash_bytes(b"edited"), bench.trigger.settings());
    assert_eq!(bench.input(declared, clock("08:30")), ["declared", "armed"]);
    assert_eq!(bench.sleep_until(clock("09:00")), ["started 09:00"]);
}

#[test]
fn every_status_decides_alike_for_clock_hooks_events_and_people() {
    use skein_core::schedule::FireOrigin::{Backfill, Catchup, Delivery, Event, Person, Schedule};
    let mut bench = TriggerBench::arm(cron("0 * * * *"), clock("08:00"));
    let check = |bench: &TriggerBench, status: TriggerStatus, people: bool| {
        assert_eq!(bench.status(), status);
        for origin in [Schedule, Catchup, Delivery, Event] {
            let expected = status.refusal().map_or(Ok(()), Err::<(), FireRefusal>);
            assert_eq!(bench.trigger.may_fire(&bench.state, origin), expected, "{origin:?} when {status:?}");
        }
        for origin in [Person, Backfill] {
            assert_eq!(bench.trigger.may_fire(&bench.state, origin).is_ok(), people, "{origin:?} when {status:?}");
        }
    };
    check(&bench, TriggerStatus::Armed, true);
    pause(&mut bench, "08:10");
    check(&bench, TriggerStatus::Paused, true);
    bench.edit(|definition| definition.rate = 2, clock("08:20"));
    check(&bench, TriggerStatus::Stale, true);
    bench.edit(|definition| definition.enabled = false, clock("08:30"));
    check(&bench, TriggerStatus::Disabled, true);
    bench.edit(|definition| definition.rate = 0, clock("08:40"));
    check(&bench, TriggerStatus::Invalid, false);
    bench.input(TriggerInput::Removed, clock("08:50"));
    check(&bench, TriggerStatus::Absent, false);
    let unarmed = TriggerBench::declare(cron("0 * * * *"), clock("08:00"));
    check(&unarmed, TriggerStatus::Unarmed, true);
}

#[test]
fn a_clock_that_was_ahead_while_arming_never_repeats_a_slot() {
    let mut bench = TriggerBench::arm(cron("0 * * * *"), at("2026-01-06T00:30:00Z"));
    assert_eq!(bench.tick(clock("09:00")), NOTHING, "the position stays ahead");
    assert_eq!(bench.sleep_until(at("2026-01-06T01:00:00Z")), ["started 2026-01-06T01:00"]);
}
