//! Waits: signals from outside.

use serde_json::json;
use skein_core::ir::WaitTimeout;

use crate::support::*;

/// A signal ends the wait, and its payload is the output.
#[test]
fn a_signal_ends_the_wait_with_its_payload() {
    script!(routed(vec![wait("w", &["paid", "refused"]), reads(work("a"), "of", "$steps.w.eventPayload")]))
        .start()
        .signal("refused", json!({"why": "card"}))
        .ok("a")
        .done();
}

/// A signal that arrives early is kept, and the next wait that names it takes the oldest one.
#[test]
fn an_early_signal_is_kept() {
    script!(routed(vec![work("a"), wait("w", &["paid"]), wait("v", &["paid"])]))
        .start()
        .signal("paid", json!(1))
        .signal("paid", json!(2))
        .ok("a")
        .done();
}

/// A signal goes to every open wait that names it.
#[test]
fn a_signal_goes_to_every_wait_that_names_it() {
    script!(graph(vec![wait("v", &["paid"]), wait("w", &["paid", "refused"]), wait("x", &["refused"])]))
        .start()
        .signal("paid", json!(1))
        .done();
}

/// A signal for one step goes to that step alone.
#[test]
fn an_addressed_signal_goes_to_one() {
    script!(graph(vec![wait("v", &["paid"]), wait("w", &["paid"]), work("a")]))
        .start()
        .signal_to("w", "paid")
        .signal_to("w", "paid")
        .signal_to("a", "paid")
        .done();
}

/// A name that no step waits for is refused.
#[test]
fn an_unknown_signal_is_refused() {
    script!(graph(vec![wait("w", &["paid"])])).start().signal("piad", json!(1)).done();
}

/// A signal after the end of the run is refused.
#[test]
fn a_signal_after_the_end_is_refused() {
    script!(graph(vec![wait("w", &["paid"])])).start().signal("paid", json!(1)).signal("paid", json!(2)).done();
}

/// A wait accepts no decision.
#[test]
fn a_wait_takes_no_decision() {
    script!(graph(vec![wait("w", &["paid"])])).start().approve("w").done();
}

/// On timeout, expire.
#[test]
fn on_timeout_expire() {
    script!(routed(vec![wait_until("w", WaitTimeout::Expire), work("a")])).start().due().done();
}

/// On timeout, cancel: the run is cancelled and undone.
#[test]
fn on_timeout_cancel() {
    script!(saga(vec![undoable(work("a")), wait_until("w", WaitTimeout::Cancel)])).start().ok("a").due().ok("a").done();
}

/// On timeout, continue: the wait succeeds with null values.
#[test]
fn on_timeout_continue() {
    script!(routed(vec![wait_until("w", WaitTimeout::Continue), work("a")])).start().due().ok("a").done();
}

/// On timeout, a route.
#[test]
fn on_timeout_go() {
    let wait = wait_until("w", WaitTimeout::Go(to("remind")));
    script!(routed(vec![wait, work("a").with(|a| a.next = Some(to("$end"))), work("remind")]))
        .start()
        .due()
        .ok("remind")
        .done();
}

/// A signal in time leaves the timeout without effect.
#[test]
fn a_signal_in_time_forgets_the_timeout() {
    script!(routed(vec![wait_until("w", WaitTimeout::Expire), work("a")]))
        .start()
        .signal("paid", json!(1))
        .pass(60)
        .wake()
        .ok("a")
        .done();
}

/// A wait that has ended takes no signal: the signal is kept for the next wait that names it.
#[test]
fn a_signal_after_a_wait_timed_out_is_for_the_next() {
    let first = wait_until("first", WaitTimeout::Continue);
    script!(routed(vec![first, work("a"), wait("second", &["paid"])]))
        .start()
        .due()
        .signal("paid", json!(1))
        .ok("a")
        .done();
}

/// A signal addressed to one step must be one that it waits for.
#[test]
fn an_addressed_signal_that_is_not_awaited_there_is_refused() {
    script!(graph(vec![wait("v", &["paid"]), wait("w", &["refused"])])).start().signal_to("v", "refused").done();
}
