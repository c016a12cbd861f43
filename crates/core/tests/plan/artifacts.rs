//! Artifacts: inputs, outputs and exports.

use skein_core::ir::{ArtifactExport, InputArtifact, OutputArtifact, Step, StepKindSpec};

use super::support::*;

fn giving(step: Step, names: &[&str]) -> Step {
    step.with(|step| {
        let gives = |name: &&str| OutputArtifact { name: artifact(name), path: format!("out/{name}"), kind: None };
        the_work(step).gives = names.iter().map(gives).collect();
    })
}

fn taking(step: Step, from: &str, name: &str) -> Step {
    step.with(|step| {
        let takes = InputArtifact { from: id(from), artifact: artifact(name), name: artifact("local") };
        the_work(step).takes.push(takes);
    })
}

#[test]
fn duplicate_artifact() {
    says(
        graph(vec![giving(work("a"), &["log", "log"])]),
        &["error[duplicate-artifact] a: gives[1]: two artifacts are called `log`"],
    );
}

#[test]
fn unknown_artifact_source() {
    says(
        graph(vec![giving(work("build"), &["log"]), taking(after("b", &["build"]), "biuld", "log")]),
        &["error[unknown-artifact-source] b: takes[0].from: there is no step `biuld` to take an artifact from \
           (did you mean `build`?)"],
    );
}

#[test]
fn unknown_artifact() {
    says(
        graph(vec![giving(work("a"), &["report"]), taking(after("b", &["a"]), "a", "reprot")]),
        &["error[unknown-artifact] b: takes[0].artifact: `a` produces no artifact `reprot` (did you mean `report`?)"],
    );
}

#[test]
fn artifact_not_before() {
    says(
        graph(vec![giving(work("a"), &["log"]), taking(work("b"), "a", "log")]),
        &["error[artifact-not-before] b: takes[0].from: `a` has not ended by then, so its artifact cannot be taken"],
    );
    says(
        graph(vec![taking(giving(work("a"), &["log"]), "a", "log")]),
        &["error[artifact-not-before] a: takes[0].from: `a` has not ended by then, so its artifact cannot be taken"],
    );
    let far = vec![giving(work("a"), &["log"]), after("b", &["a"]), taking(after("c", &["b"]), "a", "log")];
    fine(graph(far));
}

#[test]
fn calls_give_what_they_export() {
    let exporting = |from: &str, name: &str| {
        call("sub", "child").with(|step| {
            let StepKindSpec::Call(call) = &mut step.kind else { panic!() };
            call.exports = vec![ArtifactExport { from: id(from), artifact: artifact(name), name: artifact("shared") }];
        })
    };
    let child = || library(vec![("child", graph(vec![giving(work("make"), &["log"])]))]);
    let main = |from: &str, name: &str, takes: &str| {
        let user = taking(after("use", &["sub"]), "sub", takes);
        said(skein_core::plan::check_workflow(graph(vec![exporting(from, name), user]).into(), &child()))
    };
    assert!(main("make", "log", "shared").is_empty());
    assert_eq!(
        main("maek", "log", "shared"),
        ["error[unknown-export-source] sub: exports[0].from: `child` has no step `maek` to export from \
          (did you mean `make`?)"]
    );
    assert_eq!(
        main("make", "logs", "shared"),
        ["error[unknown-artifact] sub: exports[0].artifact: `make` produces no artifact `logs` (did you mean `log`?)"]
    );
    assert_eq!(
        main("make", "log", "log"),
        ["error[unknown-artifact] use: takes[0].artifact: `sub` produces no artifact `log`"]
    );
}
