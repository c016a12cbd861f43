//! Concurrency: the number of steps of a scope that run at once, and the order of those that wait.

use serde_json::json;
use skein_core::ir::{ErrorClass, HoldReason, OutcomeEffect, SiblingPolicy};

use crate::support::*;

fn narrow(steps: Vec<skein_core::ir::Step>, concurrency: u32) -> skein_core::ir::Workflow {
    graph(steps).with(|workflow| workflow.scope.concurrency = Some(concurrency))
}

/// Slots are given in declaration order, regardless of the order in which steps became ready.
#[test]
fn slots_go_in_order_of_declaration() {
    let steps = vec![work("a"), work("b"), work("c"), work("d")];
    script!(narrow(steps, 2)).start().ok("b").ok("a").ok("c").ok("d").done();
}

/// Of steps that may arrive at the same time, the first declared arrives first, regardless of the order in which their
/// dependencies ended.
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

/// A step that became ready later but is declared first gets the next free slot.
#[test]
fn an_earlier_declared_step_overtakes() {
    let steps = vec![after("first", &["x"]), work("x"), work("y"), work("z")];
    script!(narrow(steps, 1)).start().ok("x").ok("y").ok("first").ok("z").done();
}

/// A step that keeps its slot has it during its check and during the delay before a retry.
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

/// If the slot is not kept, a delay before a retry gives it to the next step.
#[test]
fn a_delay_gives_the_slot_back() {
    let steps = vec![retried(work("a"), 2), work("b")];
    script!(narrow(steps, 1)).start().fail("a", ErrorClass::Transient).due().ok("b").ok("a").done();
}

/// A held step gives its slot back, even if it keeps it otherwise.
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

/// Gates and waits need no slot: they delay only their dependents.
#[test]
fn a_gate_needs_no_slot() {
    script!(narrow(vec![gate("g", |_| {}), work("a")], 1)).start().ok("a").approve("g").done();
}

/// A composite takes one slot of its scope; its lanes are not limited by that scope.
#[test]
fn a_composite_takes_one_slot() {
    let both = parallel("both", vec![("l", vec![work("x")]), ("r", vec![work("y")])]);
    script!(narrow(vec![both, work("b")], 1)).start().ok("both/l/x").ok("both/r/y").ok("b").done();
}

/// Without a limit, all steps that may start do.
#[test]
fn no_limit_means_all_at_once() {
    script!(graph((0..5).map(|i| work(&format!("s{i}"))).collect())).start().done();
}

/// A step that had a slot but no worker when the run was halted has neither afterwards: it is reset, as if it had not
/// arrived.
#[test]
fn a_step_with_a_slot_that_never_started_is_as_if_it_had_not_come() {
    let steps = vec![work("a"), work("b"), work("c")];
    script!(narrow(steps, 2)).grant(1).start().fail("a", ErrorClass::NonRetryable).done();
}

/// Slots of steps that never started are free for those that are still running.
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
