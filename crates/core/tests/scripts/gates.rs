//! Gates: who decides, what a decision does, and what its absence does.

use skein_core::{
    engine::Verdict,
    ir::{Approver, ErrorClass, GateTimeout, OutcomeEffect, SiblingPolicy, Step, StepRetry},
    time::Millis,
};

use crate::support::*;

fn asking(approvers: Vec<Approver>) -> Step {
    gate("g", |gate| gate.approvers = approvers)
}

/// Approved: the gate succeeds, says who decided, and what follows runs.
#[test]
fn approved_goes_on() {
    script!(routed(vec![gate("g", |_| {}), work("a")])).start().approve("g").ok("a").done();
}

/// Rejected without a route for it: the run fails, and what was completed is undone.
#[test]
fn rejected_fails_and_undoes() {
    script!(saga(vec![undoable(work("a")), gate("g", |_| {}), work("b")]))
        .start()
        .ok("a")
        .reject("g")
        .ok("a")
        .done();
}

/// Rejected with a route: the gate has succeeded, and the cursor goes there.
#[test]
fn rejected_with_a_route_goes_there() {
    let ask = gate("g", |gate| gate.on_reject = Some(to("revise")));
    script!(routed(vec![ask, work("send").with(|s| s.next = Some(to("$end"))), work("revise")]))
        .start()
        .reject("g")
        .ok("revise")
        .done();
}

/// Approved with a route of its own goes there instead of to the next step.
#[test]
fn approved_with_a_route_goes_there() {
    let ask = gate("g", |gate| {
        (gate.on_approve, gate.on_reject) = (Some(to("send")), Some(to("revise")));
    });
    let end = |name: &str| work(name).with(|step| step.next = Some(to("$end")));
    script!(routed(vec![ask, end("revise"), end("send")])).start().approve("g").ok("send").done();
}

/// A role suffices; someone without it is refused, and nothing changes.
#[test]
fn only_a_fitting_role_may_decide() {
    script!(graph(vec![asking(vec![Approver::Role("legal".into()), Approver::User("bob".into())])]))
        .start()
        .decide("g", Verdict::Approve, "eve", &["sales"])
        .decide("g", Verdict::Approve, "ada", &["legal", "sales"])
        .done();
}

/// A name suffices too, and a role is not a name.
#[test]
fn only_a_fitting_name_may_decide() {
    script!(graph(vec![asking(vec![Approver::User("bob".into())])]))
        .start()
        .decide("g", Verdict::Reject, "eve", &["bob"])
        .decide("g", Verdict::Approve, "bob", &[])
        .done();
}

/// Nobody named means anyone.
#[test]
fn nobody_named_means_anyone() {
    script!(graph(vec![asking(Vec::new())])).start().decide("g", Verdict::Approve, "whoever", &[]).done();
}

/// A second decision is refused with who decided and when.
#[test]
fn a_second_decision_is_refused() {
    script!(graph(vec![gate("g", |_| {}), work("a")])).start().pass(5).approve("g").reject("g").done();
}

/// A gate that was closed by a cancel takes no decision.
#[test]
fn a_closed_gate_takes_no_decision() {
    script!(graph(vec![gate("g", |_| {})])).start().cancel().approve("g").done();
}

/// A gate holds up only what depends on it; the run waits when nothing else is at work.
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

/// Only an approved gate satisfies: a rejected one that goes on blocks its dependents.
#[test]
fn a_rejected_gate_satisfies_nobody() {
    let ask = on_failure(gate("g", |_| {}), OutcomeEffect::SKIP_DEPENDENTS);
    script!(graph(vec![ask, after("a", &["g"]), work("b")])).start().reject("g").ok("b").done();
}

/// On timeout, expire: the gate has timed out and the run fails.
#[test]
fn on_timeout_expire() {
    script!(graph(vec![gate_until("g", GateTimeout::Expire), after("a", &["g"])])).start().due().done();
}

/// On timeout, reject: as a rejection by the system.
#[test]
fn on_timeout_reject() {
    script!(graph(vec![gate_until("g", GateTimeout::Reject), after("a", &["g"])])).start().due().done();
}

/// On timeout, reject, with a route for rejections: it is taken, and nothing counts as approved.
#[test]
fn on_timeout_reject_takes_the_route() {
    let ask = gate("g", |gate| {
        (gate.timeout, gate.on_timeout) = (Some(Millis::from_mins(1)), GateTimeout::Reject);
        gate.on_reject = Some(to("revise"));
    });
    script!(routed(vec![ask, work("send").with(|s| s.next = Some(to("$end"))), work("revise")]))
        .start()
        .due()
        .done();
}

/// On timeout, approve: by the system, on the record.
#[test]
fn on_timeout_approve() {
    script!(graph(vec![gate_until("g", GateTimeout::Approve), after("a", &["g"])])).start().due().done();
}

/// On timeout, cancel: the workflow that the gate belongs to is cancelled, and undone where a cancel undoes.
#[test]
fn on_timeout_cancel() {
    script!(saga(vec![undoable(work("a")), gate_until("g", GateTimeout::Cancel)]))
        .start()
        .ok("a")
        .due()
        .ok("a")
        .done();
}

/// On timeout, a route: the gate succeeds without a decision and the cursor goes there.
#[test]
fn on_timeout_go() {
    let ask = gate_until("g", GateTimeout::Go(to("remind")));
    script!(routed(vec![ask, work("send").with(|s| s.next = Some(to("$end"))), work("remind")]))
        .start()
        .due()
        .ok("remind")
        .done();
}

/// On timeout, escalate: others are asked for as long again, and those who were asked before may not decide now.
#[test]
fn on_timeout_escalate_asks_others() {
    let escalate = GateTimeout::Escalate { to: vec![Approver::User("boss".into())] };
    let ask = gate("g", |gate| {
        (gate.timeout, gate.on_timeout) = (Some(Millis::from_mins(1)), escalate);
        gate.approvers = vec![Approver::User("ann".into())];
    });
    script!(routed(vec![ask])).start().due().approve("g").decide("g", Verdict::Approve, "boss", &[]).done();
}

/// An escalation that names nobody asks the same people again, and opens the gate to nobody else.
#[test]
fn on_timeout_escalate_without_a_target_asks_the_same_people() {
    let ask = gate("g", |gate| {
        (gate.timeout, gate.on_timeout) =
            (Some(Millis::from_mins(1)), GateTimeout::Escalate { to: Vec::new() });
        gate.approvers = vec![Approver::User("ann".into())];
    });
    script!(routed(vec![ask]))
        .start()
        .due()
        .decide("g", Verdict::Approve, "eve", &[])
        .decide("g", Verdict::Approve, "ann", &[])
        .done();
}

/// After an escalation an empty list of approvers is nobody: the gate takes its timeout.
#[test]
fn on_timeout_escalate_to_nobody_opens_to_nobody() {
    let ask = gate("g", |gate| {
        (gate.timeout, gate.on_timeout) =
            (Some(Millis::from_mins(1)), GateTimeout::Escalate { to: Vec::new() });
    });
    script!(routed(vec![ask])).start().due().approve("g").due().done();
}

/// Escalated and still nobody: the workflow is cancelled.
#[test]
fn on_timeout_escalate_then_cancel() {
    let ask = gate_until("g", GateTimeout::Escalate { to: vec![Approver::User("boss".into())] });
    script!(saga(vec![undoable(work("a")), ask])).start().ok("a").due().due().ok("a").done();
}

/// A gate shows what it was told to, evaluated when it opens.
#[test]
fn a_gate_shows_values() {
    let ask = gate("g", |gate| gate.shows = vec![value("$steps.a.diff")]);
    script!(routed(vec![work("a"), ask]))
        .start()
        .gives("a", serde_json::json!({"diff": "+1"}))
        .approve("g")
        .done();
}

/// A gate inside a lane belongs to the workflow: its timeout cancels that, and not only the lane.
#[test]
fn on_timeout_cancel_inside_a_lane_cancels_the_workflow() {
    let lanes = vec![("l", vec![gate_until("g", GateTimeout::Cancel)]), ("r", vec![work("x")])];
    script!(routed(vec![parallel("both", lanes), work("z")])).start().due().stops("both/r/x").done();
}

/// A gate that expires has the effect of a timeout: where that undoes, what was completed is taken back.
#[test]
fn on_timeout_expire_can_undo() {
    let steps = vec![undoable(work("a")), gate_until("g", GateTimeout::Expire)];
    script!(saga(steps)).start().ok("a").due().ok("a").done();
}

/// Gates are never retried, whatever their policy says.
#[test]
fn a_gate_is_never_retried() {
    let ask = gate_until("g", GateTimeout::Expire)
        .with(|g| g.policy.retry = StepRetry::for_classes(&[ErrorClass::Timeout], 5, seconds(1)));
    script!(graph(vec![ask])).start().due().done();
}

/// A gate whose time is up while a failed workflow drains ends, and what is still at work goes on to its end.
#[test]
fn a_late_gate_cancels_nothing_that_drains() {
    let steps = vec![work("a"), gate_until("g", GateTimeout::Cancel), work("b")];
    let workflow = graph(steps).with(|workflow| workflow.scope.siblings = SiblingPolicy::Drain);
    script!(workflow).start().fail("a", ErrorClass::NonRetryable).due().ok("b").done();
}

/// Two have to approve: the first leaves it open, nobody counts twice, and the second opens it.
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

/// One rejects for all, whoever approved before; also who did so themselves.
#[test]
fn one_rejects_for_a_quorum() {
    let ask = gate("g", |gate| gate.quorum = 3);
    script!(graph(vec![ask]))
        .start()
        .decide("g", Verdict::Approve, "ada", &[])
        .decide("g", Verdict::Reject, "ada", &[])
        .done();
}
