//! `explain`, `schema`, `completions` and help: pages that are compared verbatim.

use serde_json::Value;

use crate::session::{Session, repository, run, skein};

#[test]
fn codes_are_explained() {
    let mut session = Session::here();
    session.skein("explain SK0201", 0).skein("explain sk0201 --format json", 0);
    session.skein("explain SK9999", 5).skein("explain nonsense", 5).skein("explain SK020 --format json", 5);
    session.is("explain");
    Session::here().skein("explain", 0).is("explain-all");
    let all = run(skein(repository()).args(["explain", "--format", "json"]));
    let all: Value = serde_json::from_str(&all.out).expect("it is JSON");
    assert!(all["codes"].as_array().is_some_and(|codes| codes.len() > 50), "{all}");
}

/// A format that has no schema yet says so.
#[test]
fn schemas_are_json() {
    for format in ["agentcore", "aip15", "ioa", "swdl"] {
        let done = run(skein(repository()).args(["schema", format]));
        if done.code == 5 && format != "agentcore" {
            continue;
        }
        let schema: Value = serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{format}: {error}"));
        assert!(done.code == 0 && schema["$schema"].is_string(), "{format}");
    }
}

#[test]
fn shells_are_given_completions() {
    for (shell, word) in [("bash", "complete -F _skein"), ("zsh", "#compdef skein"), ("fish", "complete -c skein")] {
        let done = run(skein(repository()).args(["completions", shell]));
        assert_eq!((done.code, done.err.as_str()), (0, ""), "{shell}");
        assert!(done.out.contains(word), "{shell}: {}", done.out);
        for command in ["validate", "plan", "graph", "schema", "explain", "list", "show"] {
            assert!(done.out.contains(command), "{shell} does not know {command}");
        }
    }
}

#[test]
fn help() {
    let mut session = Session::here();
    session.skein("--help", 0).skein("--version", 0);
    let runs =
        ["run", "runs", "logs", "events", "approve", "reject", "signal", "cancel", "resume", "fork", "dlq", "audit"];
    let sources = ["validate", "plan", "graph", "schema", "explain", "list", "show", "completions"];
    let around = ["init", "demo", "doctor", "bench"];
    for command in sources.iter().chain(&runs).chain(&around) {
        session.skein(&format!("{command} --help"), 0);
    }
    session.is("help");
}
