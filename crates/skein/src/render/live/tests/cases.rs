//! The runs that are shown: one for each case of what can happen to a run.

use serde_json::json;
use skein_core::{
    engine::{AttemptEnd, AttemptReport, AttemptRole, CheckFinding, Driver, Publication, RunInput, Verdict},
    expr::aip15,
    ir::{
        Approver, ErrorClass, GateTimeout, HoldReason, OutcomeAction, OutcomeEffect, RunImpact, RunRetry, ScopeShape,
        StepKindSpec, StepScope,
    },
    time::Millis,
};

use super::trial::{
    Trial, after, branch, call, checked, each, five_seconds, gate, graph, parallel, repeat, retried, route, undoable,
    undoing, wait, work,
};

type Case = (&'static str, fn() -> Trial);

/// The cases by their names.
pub(super) const CASES: &[Case] = &[
    ("chain", chain),
    ("failure", failure),
    ("retry", retry),
    ("completion", completion),
    ("exhausted", exhausted),
    ("gate", at_gate),
    ("gate-decided", decided),
    ("signal", signal),
    ("undo", undo),
    ("undo-failed", undo_failed),
    ("cancel", cancel),
    ("interrupted", interrupted),
    ("nested", nested),
    ("nested-failure", nested_failure),
    ("left", left),
    ("broken", broken),
    ("odd-text", odd_text),
    ("many-failures", many_failures),
    ("held", held),
    ("skipped", skipped),
    ("degraded", degraded),
    ("timed-out", timed_out),
    ("kept-signal", kept_signal),
    ("rejected", rejected),
    ("retried-run", retried_run),
    ("escalated", escalated),
    ("composite-retry", composite_retry),
    ("second-visit", second_visit),
];

pub(super) fn chain() -> Trial {
    let mut trial = Trial::new(graph(vec![work("look"), after("build", &["look"]), after("ship", &["build"])]));
    trial.pass(214).ok("look");
    trial.spending(12_345, 420_000).pass(64_000).ok("build");
    trial.ok("ship").publish();
    trial
}

pub(super) fn failure() -> Trial {
    let mut trial = Trial::new(graph(vec![
        work("look"),
        work("test"),
        after("build", &["look"]),
        after("deploy", &["build", "test"]),
        after("announce", &["deploy"]),
    ]));
    trial.ok("look").fails("test", ErrorClass::External, "exit status 1");
    while let Some(attempt) = trial.driver.state().in_flight().first().copied() {
        let end = AttemptEnd::Stopped;
        let report = AttemptReport::new(end, Default::default());
        trial.say(RunInput::Finished { attempt, report });
    }
    trial.publish();
    trial
}

fn retry() -> Trial {
    let mut trial = Trial::new(graph(vec![retried(work("fetch"), 3), after("use", &["fetch"])]));
    trial.fail("fetch").wake().fail("fetch").wake().ok("fetch").ok("use").publish();
    trial
}

fn completion() -> Trial {
    let mut trial = Trial::new(graph(vec![checked("write", 5)]));
    trial.ok("write").check("write", CheckFinding::Incomplete, &["two tests fail", "no changelog"]);
    trial.ok("write").check("write", CheckFinding::Undecided, &[]);
    while trial.driver.state().end.is_none() {
        match trial.attempt("write").role {
            AttemptRole::Check => trial.check("write", CheckFinding::Complete, &[]),
            _ => trial.ok("write"),
        };
    }
    trial.publish();
    trial
}

fn exhausted() -> Trial {
    let mut trial = Trial::new(graph(vec![checked("write", 2), after("send", &["write"])]));
    trial.ok("write").check("write", CheckFinding::Incomplete, &["two tests fail"]);
    trial.ok("write").check("write", CheckFinding::Incomplete, &["one test fails"]).publish();
    trial
}

pub(super) fn at_gate() -> Trial {
    let mut trial = Trial::new(route(vec![work("draft"), gate("agree to it", "Ship it?\nReally?"), work("ship")]));
    trial.ok("draft");
    trial
}

fn decided() -> Trial {
    let mut trial = at_gate();
    trial.decide(0, Verdict::Approve).ok("ship").publish();
    trial
}

fn signal() -> Trial {
    let mut trial = Trial::new(route(vec![work("bill"), wait("pay", &["paid", "waived"]), work("ship")]));
    trial.ok("bill").signal("paid").ok("ship").publish();
    trial
}

fn undo() -> Trial {
    let mut trial = Trial::new(route(vec![undoable("book"), undoable("charge"), undoing(work("mail"))]));
    trial.ok("book").ok("charge").fail("mail").ok("charge").ok("book").publish();
    trial
}

fn undo_failed() -> Trial {
    let mut trial = Trial::new(route(vec![undoable("book"), undoable("charge"), undoing(work("mail"))]));
    trial.ok("book").ok("charge").fail("mail").fails("charge", ErrorClass::NonRetryable, "no such charge");
    while let Some(attempt) = trial.driver.state().in_flight().first().copied() {
        let end = AttemptEnd::Succeeded { output: Default::default() };
        let report = AttemptReport::new(end, Default::default());
        trial.say(RunInput::Finished { attempt, report });
    }
    trial.publish();
    trial
}

fn cancel() -> Trial {
    let mut trial = Trial::new(graph(vec![work("long"), after("next", &["long"])]));
    trial.cancel().end("long", AttemptEnd::Stopped).publish();
    trial
}

fn interrupted() -> Trial {
    let mut trial = Trial::new(graph(vec![work("long"), after("next", &["long"])]));
    let rows = std::mem::take(&mut trial.rows);
    let plan = trial.plan();
    trial.driver = Driver::replay(plan, rows.iter().map(|row| &**row)).expect("it is its journal");
    trial.rows = rows;
    trial.pass(3_600_000).say(RunInput::Recover).ok("long").ok("next").publish();
    trial
}

fn nested() -> Trial {
    let scope = route(vec![
        parallel("both", vec![("left", vec![work("a")]), ("right", vec![work("b")])]),
        branch("choose", "passed over", "rounds"),
        work("passed over"),
        repeat("rounds", "$steps.turn.by == 'rounds#1/turn'", vec![work("turn")]),
        each("all", json!([1, 2]), vec![work("item")]),
        call("other", "called"),
    ]);
    let mut trial = Trial::calling(scope, vec![("called", graph(vec![work("inside")]))]);
    trial.ok("both/left/a").ok("both/right/b").ok("rounds#1/turn").ok("rounds#2/turn");
    trial.ok("all[1]/item").ok("all[0]/item").ok("other/inside").publish();
    trial
}

fn nested_failure() -> Trial {
    let scope = route(vec![each("all", json!([1, 2, 3]), vec![work("item"), work("then")]), work("last")]);
    let mut trial = Trial::new(scope);
    trial.fail("all[0]/item").end("all[1]/item", AttemptEnd::Stopped).publish();
    trial
}

/// The display was left while the run was running.
fn left() -> Trial {
    let mut trial = Trial::new(graph(vec![work("a"), work("b"), after("c", &["a", "b"])]));
    trial.ok("a");
    trial
}

fn broken() -> Trial {
    let mut trial = Trial::new(graph(vec![work("a")]));
    trial.say(RunInput::Break { message: "a decision failed: it makes no sense".into() });
    trial
}

fn odd_text() -> Trial {
    let mut trial = Trial::new(graph(vec![work("日本語の手順"), work("naïve ❤️")]));
    let message = "\u{1b}[2Jgone\u{1b}]0;title\u{7}\r\nnext \u{202e}line\u{0}";
    trial.ok("naïve ❤️").fails("日本語の手順", ErrorClass::AgentError, message).publish();
    trial
}

fn many_failures() -> Trial {
    let mut steps: Vec<_> = (0..14).map(|i| work(&format!("step-{i}"))).collect();
    for step in &mut steps {
        step.policy.effects.failed.then = OutcomeAction::GoOn;
    }
    let mut trial = Trial::new(graph(steps));
    (0..14).for_each(|i| {
        trial.fail(&format!("step-{i}"));
    });
    trial.publish();
    trial
}

fn held() -> Trial {
    let mut trial = Trial::new(graph(vec![work("a"), after("b", &["a"])]));
    trial.grant = 0;
    trial.ok("a");
    let (step, message) = (trial.at("b"), "$9.80 of $10.00 are spent".into());
    trial.say(RunInput::Hold { step, reason: HoldReason::Budget, until: None, message });
    trial
}

/// A condition that is false, and a step that depends on it.
fn skipped() -> Trial {
    let mut step = work("sometimes");
    step.when = Some(aip15::parse_condition("1 == 2").unwrap());
    step.policy.effects.skipped_by_condition.satisfies = false;
    let mut trial = Trial::new(graph(vec![step, after("then", &["sometimes"]), work("always")]));
    trial.ok("always").publish();
    trial
}

/// A failure that counts as skipped.
fn degraded() -> Trial {
    let mut step = work("lint");
    let failed = &mut step.policy.effects.failed;
    (failed.then, failed.as_skipped, failed.verdict) = (OutcomeAction::GoOn, true, RunImpact::Degraded);
    let mut trial = Trial::new(graph(vec![step, work("build")]));
    trial.fail("lint").ok("build").publish();
    trial
}

fn timed_out() -> Trial {
    let mut scope = graph(vec![work("long"), after("next", &["long"])]);
    scope.timeout = Some(Millis::from_mins(90));
    let mut trial = Trial::new(scope);
    trial.wake().end("long", AttemptEnd::Stopped).publish();
    trial
}

fn kept_signal() -> Trial {
    let mut trial = Trial::new(route(vec![work("bill"), wait("pay", &["paid"])]));
    trial.signal("paid").ok("bill").publish();
    trial
}

fn rejected() -> Trial {
    let mut trial = at_gate();
    trial.decide(0, Verdict::Reject).publish();
    trial
}

/// A run that should be retried by another, which could not be started.
fn retried_run() -> Trial {
    let mut scope = graph(vec![work("a")]);
    scope.retry = Some(RunRetry { attempts: 2, backoff: five_seconds(), on_timeout: false });
    let mut trial = Trial::new(scope);
    trial.fail("a");
    trial.say(RunInput::Published { item: Publication::Retry, failed: Some("the disk is full".into()) });
    trial
}

fn escalated() -> Trial {
    let mut step = gate("agree", "Ship it?");
    if let StepKindSpec::Gate(gate) = &mut step.kind {
        gate.on_timeout = GateTimeout::Escalate { to: vec![Approver::User("bob".into())] };
    }
    let mut trial = Trial::new(route(vec![step]));
    trial.wake();
    trial
}

/// The completed steps of a failed attempt at a composite are undone before the next attempt.
fn composite_retry() -> Trial {
    let all = each("all", json!([1]), vec![undoable("book"), work("mail")]);
    let mut trial = Trial::new(route(vec![retried(all, 2)]));
    trial.ok("all[0]/book").fail("all[0]/mail");
    while trial.driver.state().end.is_none() {
        match trial.driver.state().in_flight().first().copied() {
            Some(attempt) => {
                let end = AttemptEnd::Succeeded { output: Default::default() };
                trial.say(RunInput::Finished { attempt, report: AttemptReport::new(end, Default::default()) });
            }
            None => {
                trial.wake();
            }
        }
    }
    trial.publish();
    trial
}

/// The step fails, and when the cursor returns nothing is attempted: the log of the first visit is not the reason.
fn second_visit() -> Trial {
    let mut step = work("try");
    step.policy.effects.failed = OutcomeEffect::CONTINUE;
    let steps = vec![step, branch("again", "done", "try"), work("done")];
    let mut trial = Trial::new(StepScope::new(ScopeShape::Routed { start: None, cycles: true }, steps));
    trial.grant = 0;
    trial.fail("try");
    let (step, message) = (trial.at("try"), "no more".into());
    trial.say(RunInput::Hold { step, reason: HoldReason::Governance, until: None, message });
    trial.decide(0, Verdict::Reject).publish();
    trial
}
