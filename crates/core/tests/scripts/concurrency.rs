//! How many steps of a scope are at work at once, and who is next.

use serde_json::json;
use skein_core::ir::{ErrorClass, HoldReason, OutcomeEffect, SiblingPolicy};

use crate::support::*;

fn narrow(steps: Vec<skein_core::ir::Step>, concurrency: u32) -> skein_core::ir::Workflow {
    graph(steps).with(|workflow| workflow.scope.concurrency = Some(concurrency))
}

/// Slots are given in order of declaration, whatever the order in which steps became ready.
#[test]
fn slots_go_in_order_of_declaration() {
    let steps = vec![work("a"), work("b"), work("c"), work("d")];
    script!(narrow(steps, 2)).start().ok("b").ok("a").ok("c").ok("d").done();
}

/// Of steps that may arrive at the same moment the first declared is the first, whichever end let it.
#[test]
fn steps_arrive_in_order_of_declaration() {
    let never = |name: &str| {
        work(name).with(|step| {
            step.when = Some(cond("$input.go"));
            step.policy.effects.skipped_by_condition = OutcomeEffect::GO_ON;
        })
    };
    let steps = vec![never("s0"), never("s1"), after("s2", &["s1"]), after("s3", &["s0", "s1"])];
    script!(narrow(steps, 1)).with(json!({"go": false})).start().ok("s2").ok("s3").done();
}

/// A step that became ready later but stands first is first when the next slot comes free.
#[test]
fn an_earlier_declared_step_overtakes() {
    let steps = vec![after("first", &["x"]), work("x"), work("y"), work("z")];
    script!(narrow(steps, 1)).start().ok("x").ok("y").ok("first").ok("z").done();
}

/// A step that keeps its slot has it through its check and through the delay before a retry.
#[test]
fn a_step_may_keep_its_slot_through_checks_and_delays() {
    let keeper = retried(checked("a", 2), 2).with(|a| a.policy.keeps_slot = true);
    script!(narrow(vec![keeper, work("b")], 1))
        .start()
        .fail("a", ErrorClass::Transient)
        .due()
        .ok("a")
        .ok("a")
        .ok("b")
        .done();
}

/// Where it is not kept, a delay before a retry gives the slot to the next.
#[test]
fn a_delay_gives_the_slot_back() {
    let steps = vec![retried(work("a"), 2), work("b")];
    script!(narrow(steps, 1)).start().fail("a", ErrorClass::Transient).due().ok("b").ok("a").done();
}

/// A held step gives its slot back, even one that keeps it otherwise.
#[test]
fn a_hold_always_gives_the_slot_back() {
    let keeper = work("a").with(|a| a.policy.keeps_slot = true);
    script!(narrow(vec![keeper, work("b")], 1))
        .start()
        .blocks("a", HoldReason::Quota, None)
        .approve("a")
        .ok("b")
        .ok("a")
        .done();
}

/// Gates and waits need no slot: they only hold up what depends on them.
#[test]
fn a_gate_needs_no_slot() {
    script!(narrow(vec![gate("g", |_| {}), work("a")], 1)).start().ok("a").approve("g").done();
}

/// A composite is one step at work in its scope; its lanes have no limit of it.
#[test]
fn a_composite_takes_one_slot() {
    let both = parallel("both", vec![("l", vec![work("x")]), ("r", vec![work("y")])]);
    script!(narrow(vec![both, work("b")], 1)).start().ok("both/l/x").ok("both/r/y").ok("b").done();
}

/// Without a limit everything that may start does.
#[test]
fn no_limit_means_all_at_once() {
    script!(graph((0..5).map(|i| work(&format!("s{i}"))).collect())).start().done();
}

/// A step that had a slot and no worker when the run was halted has neither afterwards: it was never there.
#[test]
fn a_step_with_a_slot_that_never_started_is_as_if_it_had_not_come() {
    let steps = vec![work("a"), work("b"), work("c")];
    script!(narrow(steps, 2)).grant(1).start().fail("a", ErrorClass::NonRetryable).done();
}

/// Slots of steps that never started are free again for what is still at work.
#[test]
fn slots_that_were_never_used_are_free_while_draining() {
    let steps = vec![work("a"), retried(work("b"), 2), work("c"), work("d")];
    let workflow = narrow(steps, 4).with(|workflow| workflow.scope.siblings = SiblingPolicy::Drain);
    script!(workflow)
        .grant(2)
        .start()
        .fail("a", ErrorClass::NonRetryable)
        .fail("b", ErrorClass::Transient)
        .due()
        .ok("b")
        .done();
}
