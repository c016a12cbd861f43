//! Gates: approvers, decisions and timeouts.

use skein_core::{
    engine::Verdict,
    ir::{Approver, ErrorClass, GateTimeout, OutcomeEffect, SiblingPolicy, Step, StepRetry},
    time::Millis,
};

use crate::support::*;

fn asking(approvers: Vec<Approver>) -> Step {
    gate("g", |gate| gate.approvers = approvers)
}

/// Approved: the gate succeeds, its output names the approver, and its dependents run.
#[test]
fn approved_goes_on() {
    script!(routed(vec![gate("g", |_| {}), work("a")])).start().approve("g").ok("a").done();
}

/// Rejected without a route: the run fails, and completed steps are undone.
#[test]
fn rejected_fails_and_undoes() {
    script!(saga(vec![undoable(work("a")), gate("g", |_| {}), work("b")])).start().ok("a").reject("g").ok("a").done();
}

/// Rejected with a route: the gate succeeds, and the cursor follows the route.
#[test]
fn rejected_with_a_route_goes_there() {
    let ask = gate("g", |gate| gate.on_reject = Some(to("revise")));
    script!(routed(vec![ask, work("send").with(|s| s.next = Some(to("$end"))), work("revise")]))
        .start()
        .reject("g")
        .ok("revise")
        .done();
}

/// Approved with a route: the cursor follows it instead of going to the next step.
#[test]
fn approved_with_a_route_goes_there() {
    let ask = gate("g", |gate| {
        (gate.on_approve, gate.on_reject) = (Some(to("send")), Some(to("revise")));
    });
    let end = |name: &str| work(name).with(|step| step.next = Some(to("$end")));
    script!(routed(vec![ask, end("revise"), end("send")])).start().approve("g").ok("send").done();
}

/// A role is enough; a person without it is refused, and nothing changes.
#[test]
fn only_a_fitting_role_may_decide() {
    script!(graph(vec![asking(vec![Approver::Role("legal".into()), Approver::User("bob".into())])]))
        .start()
        .decide("g", Verdict::Approve, "eve", &["sales"])
        .decide("g", Verdict::Approve, "ada", &["legal", "sales"])
        .done();
}

/// A name is enough too, and a role is not a name.
#[test]
fn only_a_fitting_name_may_decide() {
    script!(graph(vec![asking(vec![Approver::User("bob".into())])]))
        .start()
        .decide("g", Verdict::Reject, "eve", &["bob"])
        .decide("g", Verdict::Approve, "bob", &[])
        .done();
}

/// Without named approvers, anyone may decide.
#[test]
fn nobody_named_means_anyone() {
    script!(graph(vec![asking(Vec::new())])).start().decide("g", Verdict::Approve, "whoever", &[]).done();
}

/// A second decision is refused, naming the person who decided and the time.
#[test]
fn a_second_decision_is_refused() {
    script!(graph(vec![gate("g", |_| {}), work("a")])).start().pass(5).approve("g").reject("g").done();
}

/// A gate that was closed by a cancel accepts no decision.
#[test]
fn a_closed_gate_takes_no_decision() {
    script!(graph(vec![gate("g", |_| {})])).start().cancel().approve("g").done();
}

/// A gate delays only its dependents; the run waits when nothing else is running.
#[test]
fn a_gate_holds_up_only_what_depends_on_it() {
    script!(graph(vec![gate("g", |_| {}), after("a", &["g"]), work("b"), after("c", &["b"])]))
        .start()
        .ok("b")
        .ok("c")
        .approve("g")
        .ok("a")
        .done();
}

/// Only an approved gate satisfies: a rejected one that continues blocks its dependents.
#[test]
fn a_rejected_gate_satisfies_nobody() {
    let ask = on_failure(gate("g", |_| {}), OutcomeEffect::SKIP_DEPENDENTS);
    script!(graph(vec![ask, after("a", &["g"]), work("b")])).start().reject("g").ok("b").done();
}

/// On timeout, expire: the gate times out and the run fails.
#[test]
fn on_timeout_expire() {
    script!(graph(vec![gate_until("g", GateTimeout::Expire), after("a", &["g"])])).start().due().done();
}

/// On timeout, reject: like a rejection by the system.
#[test]
fn on_timeout_reject() {
    script!(graph(vec![gate_until("g", GateTimeout::Reject), after("a", &["g"])])).start().due().done();
}

/// On timeout, reject, with a route for rejections: the route is taken, and nothing counts as approved.
#[test]
fn on_timeout_reject_takes_the_route() {
    let ask = gate("g", |gate| {
        (gate.timeout, gate.on_timeout) = (Some(Millis::from_mins(1)), GateTimeout::Reject);
        gate.on_reject = Some(to("revise"));
    });
    script!(routed(vec![ask, work("send").with(|s| s.next = Some(to("$end"))), work("revise")])).start().due().done();
}

/// On timeout, approve: recorded as a decision of the system.
#[test]
fn on_timeout_approve() {
    script!(graph(vec![gate_until("g", GateTimeout::Approve), after("a", &["g"])])).start().due().done();
}

/// On timeout, cancel: the workflow of the gate is cancelled, and undone if a cancel undoes.
#[test]
fn on_timeout_cancel() {
    script!(saga(vec![undoable(work("a")), gate_until("g", GateTimeout::Cancel)])).start().ok("a").due().ok("a").done();
}

/// On timeout, a route: the gate succeeds without a decision and the cursor follows the route.
#[test]
fn on_timeout_go() {
    let ask = gate_until("g", GateTimeout::Go(to("remind")));
    script!(routed(vec![ask, work("send").with(|s| s.next = Some(to("$end"))), work("remind")]))
        .start()
        .due()
        .ok("remind")
        .done();
}

/// On timeout, escalate: other approvers have the same time again, and the earlier ones may no longer decide.
#[test]
fn on_timeout_escalate_asks_others() {
    let escalate = GateTimeout::Escalate { to: vec![Approver::User("boss".into())] };
    let ask = gate("g", |gate| {
        (gate.timeout, gate.on_timeout) = (Some(Millis::from_mins(1)), escalate);
        gate.approvers = vec![Approver::User("ann".into())];
    });
    script!(routed(vec![ask])).start().due().approve("g").decide("g", Verdict::Approve, "boss", &[]).done();
}

/// An escalation without approvers asks the same people again, and opens the gate to nobody else.
#[test]
fn on_timeout_escalate_without_a_target_asks_the_same_people() {
    let ask = gate("g", |gate| {
        (gate.timeout, gate.on_timeout) = (Some(Millis::from_mins(1)), GateTimeout::Escalate { to: Vec::new() });
        gate.approvers = vec![Approver::User("ann".into())];
    });
    script!(routed(vec![ask]))
        .start()
        .due()
        .decide("g", Verdict::Approve, "eve", &[])
        .decide("g", Verdict::Approve, "ann", &[])
        .done();
}

/// After an escalation, an empty list of approvers means nobody: the gate waits for its timeout.
#[test]
fn on_timeout_escalate_to_nobody_opens_to_nobody() {
    let ask = gate("g", |gate| {
        (gate.timeout, gate.on_timeout) = (Some(Millis::from_mins(1)), GateTimeout::Escalate { to: Vec::new() });
    });
    script!(routed(vec![ask])).start().due().approve("g").due().done();
}

/// If nobody answers after the escalation either, the workflow is cancelled.
#[test]
fn on_timeout_escalate_then_cancel() {
    let ask = gate_until("g", GateTimeout::Escalate { to: vec![Approver::User("boss".into())] });
    script!(saga(vec![undoable(work("a")), ask])).start().ok("a").due().due().ok("a").done();
}

/// A gate shows its configured values, evaluated when it opens.
#[test]
fn a_gate_shows_values() {
    let ask = gate("g", |gate| gate.shows = vec![value("$steps.a.diff")]);
    script!(routed(vec![work("a"), ask])).start().gives("a", serde_json::json!({"diff": "+1"})).approve("g").done();
}

/// A gate inside a lane belongs to the workflow: its timeout cancels the workflow, not only the lane.
#[test]
fn on_timeout_cancel_inside_a_lane_cancels_the_workflow() {
    let lanes = vec![("l", vec![gate_until("g", GateTimeout::Cancel)]), ("r", vec![work("x")])];
    script!(routed(vec![parallel("both", lanes), work("z")])).start().due().stops("both/r/x").done();
}

/// A gate that expires has the effect of a timeout: if that undoes, completed steps are undone.
#[test]
fn on_timeout_expire_can_undo() {
    let steps = vec![undoable(work("a")), gate_until("g", GateTimeout::Expire)];
    script!(saga(steps)).start().ok("a").due().ok("a").done();
}

/// Gates are never retried, regardless of their policy.
#[test]
fn a_gate_is_never_retried() {
    let ask = gate_until("g", GateTimeout::Expire)
        .with(|g| g.policy.retry = StepRetry::for_classes(&[ErrorClass::Timeout], 5, seconds(1)));
    script!(graph(vec![ask])).start().due().done();
}

/// A gate that times out while a failed workflow drains ends, and running steps finish.
#[test]
fn a_late_gate_cancels_nothing_that_drains() {
    let steps = vec![work("a"), gate_until("g", GateTimeout::Cancel), work("b")];
    let workflow = graph(steps).with(|workflow| workflow.scope.siblings = SiblingPolicy::Drain);
    script!(workflow).start().fail("a", ErrorClass::NonRetryable).due().ok("b").done();
}

/// With a quorum of two, the first approval leaves the gate open, nobody counts twice, and the second approval passes
/// it.
#[test]
fn a_quorum_needs_different_people() {
    let ask = gate("g", |gate| {
        (gate.approvers, gate.quorum) = (vec![Approver::Role("legal".into())], 2);
    });
    script!(routed(vec![ask, work("a")]))
        .start()
        .decide("g", Verdict::Approve, "ada", &["legal"])
        .decide("g", Verdict::Approve, "ada", &["legal"])
        .decide("g", Verdict::Approve, "eve", &["sales"])
        .decide("g", Verdict::Approve, "bob", &["legal"])
        .ok("a")
        .done();
}

/// One rejection is enough, whoever approved before; it may come from a person who approved.
#[test]
fn one_rejects_for_a_quorum() {
    let ask = gate("g", |gate| gate.quorum = 3);
    script!(graph(vec![ask]))
        .start()
        .decide("g", Verdict::Approve, "ada", &[])
        .decide("g", Verdict::Reject, "ada", &[])
        .done();
}
