//! The runs that are shown: one for each thing that can happen to a run.

use serde_json::json;
use skein_core::{
    engine::{Decision, Finding, Input},
    ir::ErrorClass,
};

use super::trial::{
    Trial, after, branch, call, checked, each, gate, graph, parallel, repeat, retried, route, undoable,
    undoing, wait, work,
};

/// Each case by its name.
pub const CASES: &[(&str, fn() -> Trial)] = &[
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
];

pub fn chain() -> Trial {
    let mut trial = Trial::new(graph(vec![work("look"), after("build", &["look"]), after("ship", &["build"])]));
    trial.pass(214).ok("look");
    trial.spending(12_345, 420_000).pass(64_000).ok("build");
    trial.ok("ship").publish();
    trial
}

pub fn failure() -> Trial {
    let mut trial = Trial::new(graph(vec![
        work("look"),
        work("test"),
        after("build", &["look"]),
        after("deploy", &["build", "test"]),
        after("announce", &["deploy"]),
    ]));
    trial.ok("look").fails("test", ErrorClass::External, "exit status 1");
    while let Some(attempt) = trial.driver.state().in_flight().first().copied() {
        let end = skein_core::engine::AttemptEnd::Stopped;
        let report = skein_core::engine::Report { end, cost: Default::default() };
        trial.say(Input::Finished { attempt, report });
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
    trial.ok("write").check("write", Finding::Incomplete, &["two tests fail", "no changelog"]);
    trial.ok("write").check("write", Finding::Undecided, &[]);
    while trial.driver.state().end.is_none() {
        match trial.attempt("write").role {
            skein_core::engine::Role::Check => trial.check("write", Finding::Complete, &[]),
            _ => trial.ok("write"),
        };
    }
    trial.publish();
    trial
}

fn exhausted() -> Trial {
    let mut trial = Trial::new(graph(vec![checked("write", 2), after("send", &["write"])]));
    trial.ok("write").check("write", Finding::Incomplete, &["two tests fail"]);
    trial.ok("write").check("write", Finding::Incomplete, &["one test fails"]).publish();
    trial
}

pub fn at_gate() -> Trial {
    let mut trial =
        Trial::new(route(vec![work("draft"), gate("agree to it", "Ship it?\nReally?"), work("ship")]));
    trial.ok("draft");
    trial
}

fn decided() -> Trial {
    let mut trial = at_gate();
    trial.decide(0, Decision::Approve).ok("ship").publish();
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
        let end = skein_core::engine::AttemptEnd::Succeeded { output: Default::default() };
        let report = skein_core::engine::Report { end, cost: Default::default() };
        trial.say(Input::Finished { attempt, report });
    }
    trial.publish();
    trial
}

fn cancel() -> Trial {
    let mut trial = Trial::new(graph(vec![work("long"), after("next", &["long"])]));
    trial.cancel().end("long", skein_core::engine::AttemptEnd::Stopped).publish();
    trial
}

fn interrupted() -> Trial {
    let mut trial = Trial::new(graph(vec![work("long"), after("next", &["long"])]));
    let rows = std::mem::take(&mut trial.rows);
    let plan = trial.plan();
    trial.driver =
        skein_core::engine::Driver::replay(plan, rows.iter().map(|row| &**row)).expect("it is its journal");
    trial.rows = rows;
    trial.pass(3_600_000).say(Input::Recover).ok("long").ok("next").publish();
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
    trial.fail("all[0]/item").end("all[1]/item", skein_core::engine::AttemptEnd::Stopped).publish();
    trial
}

/// Someone stopped looking while it went on.
fn left() -> Trial {
    let mut trial = Trial::new(graph(vec![work("a"), work("b"), after("c", &["a", "b"])]));
    trial.ok("a");
    trial
}

fn broken() -> Trial {
    let mut trial = Trial::new(graph(vec![work("a")]));
    trial.say(Input::Break { message: "a decision failed: it makes no sense".into() });
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
        step.policy.effects.failed.then = skein_core::ir::Then::GoOn;
    }
    let mut trial = Trial::new(graph(steps));
    (0..14).for_each(|i| {
        trial.fail(&format!("step-{i}"));
    });
    trial.publish();
    trial
}
