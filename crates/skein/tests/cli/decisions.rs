//! Gates and signals: sent from another process to a run with an owner process, and to one without.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::kept::{Project, at_a_terminal};

#[test]
fn a_gate_is_approved_from_another_process_while_the_run_waits() {
    let project = Project::new();
    let going = project.begin("run gated.yaml --format jsonl");
    let run = going.run();
    going.until("\"opened\"");
    assert_eq!(project.status(&run), "waiting");
    let said = project.json(&format!("approve {run} sign-off --reason fine"), 0);
    assert_eq!((said["decision"].as_str(), said["reason"].as_str()), (Some("approve"), Some("fine")));
    assert!(said["next"].is_null(), "whoever has it goes on: {said}");
    let (code, lines, errors) = going.end();
    assert!(code == Some(0) && !errors.contains("error"), "{lines}{errors}");
    assert_eq!(project.read("done.txt"), "draft\npublish\n");
    let again = project.ends(&format!("approve {run} sign-off"), 5);
    assert!(again.contains("was decided already, by"), "{again}");
    project.ended_once(&run);
}

#[test]
fn a_run_that_was_left_at_a_gate_is_approved_and_resumed() {
    let project = Project::new();
    let run = project.left("gated.yaml");
    let short = &run[..4];
    let said = project.ends(&format!("approve {short}"), 0);
    assert!(said.contains(&format!("skein resume {run}")), "{said}");
    assert_eq!(project.read("done.txt"), "draft\n", "nothing goes forward by a decision");
    assert!(project.ends(&format!("approve {run}"), 5).contains("nothing in run"));
    let result = project.json(&format!("resume {run}"), 0);
    assert_eq!(result["status"], "succeeded");
    assert_eq!(project.read("done.txt"), "draft\npublish\n");
    project.ended_once(&run);
    let over = project.ends(&format!("resume {run}"), 5);
    assert!(over.contains("is over"), "{over}");
}

#[test]
fn a_rejection_ends_a_run_that_nobody_has() {
    let project = Project::new();
    let run = project.left("gated.yaml");
    let said = project.json(&format!("reject {run} sign-off --reason no"), 0);
    assert_eq!((said["decision"].as_str(), said["status"].as_str()), (Some("reject"), Some("failed")));
    assert!(said["next"].is_null(), "{said}");
    let run_is = project.json(&format!("runs {run}"), 0);
    assert_eq!(run_is["status"], "failed");
    assert!(project.ends(&format!("resume {run}"), 5).contains("is over"));
    assert!(project.ends("resume", 5).contains("no run to resume"));
}

#[test]
fn a_step_that_does_not_wait_is_named() {
    let project = Project::new();
    let run = project.left("gated.yaml");
    let slip = project.ends(&format!("approve {run} sign-of"), 5);
    assert!(slip.contains("did you mean `sign-off`?"), "{slip}");
    assert!(project.ends(&format!("reject {run} draft"), 5).contains("no step `draft`"));
    assert!(project.ends("approve nothing", 5).contains("there is no run `nothing`"));
    let error = project.json("approve nothing", 5);
    assert_eq!(error["error"]["message"], "there is no run `nothing` in the state folder `.skein`");
}

/// The roles of the project define who may decide.
#[test]
fn who_may_not_decide_is_refused() {
    let project = Project::new();
    let run = project.left("asks.md");
    project.folder.write("skein.toml", "[roles]\nowners = [\"nobody-here\"]\n");
    let no = project.ends(&format!("approve {run}"), 5);
    assert!(no.contains("needs the role `owners` (`[roles] owners` in skein.toml)"), "{no}");
    project.folder.write("skein.toml", "[roles]\nowners = [\"*\"]\n");
    project.ends(&format!("approve {run}"), 0);
}

#[test]
fn a_signal_is_heard_by_the_step_that_waits_for_it() {
    let project = Project::new();
    let going = project.begin("run asks.md --format jsonl");
    let run = going.run();
    project.ends(&format!("approve {run} agree"), 0);
    going.until("\"path\":\"hear\",\"event\":{\"opened\"");
    assert!(project.ends(&format!("approve {run} hear"), 5).contains("waits for a signal"));
    assert!(project.ends(&format!("signal {run} go.nwo"), 5).contains("did you mean `go.now`?"));
    assert!(project.ends(&format!("signal {run} go.now --step her"), 5).contains("did you mean `hear`?"));
    assert!(project.ends(&format!("signal {run} go.now --payload nonsense"), 2).contains("is not JSON"));
    let said = project.json(&format!("signal {run} go.now --payload {{\"n\":7}} --step hear"), 0);
    assert_eq!((said["event"].as_str(), said["step"].as_str()), (Some("go.now"), Some("hear")));
    assert_eq!(going.end().0, Some(0));
    let steps = project.json(&format!("runs {run}"), 0)["steps"].clone();
    let hear = steps.as_array().unwrap().iter().find(|step| step["path"] == "hear").unwrap();
    assert_eq!(hear["outputs"]["eventPayload"]["n"], 7);
}

#[test]
fn a_signal_that_comes_before_its_wait_is_kept() {
    let project = Project::new();
    let run = project.left("asks.md");
    let said = project.ends(&format!("signal {run} go.later"), 0);
    assert!(said.contains(&format!("skein resume {run}")), "{said}");
    let said = project.json(&format!("approve {run}"), 0);
    assert_eq!(said["status"], "succeeded", "the wait took the signal that was there: {said}");
    let events = project.events(&run);
    let taken = events.iter().find_map(|event| event["event"].get("signal_taken")).expect("it was taken");
    assert_eq!(taken["kept"], true);
    assert!(project.ends(&format!("signal {run} go.now"), 5).contains("is over"));
}

/// Of two simultaneous decisions, one is refused because the gate was decided already.
#[test]
fn a_gate_is_decided_once() {
    let project = Project::new();
    let run = project.left("asks.md");
    let line = format!("approve {run} agree --format json");
    let both = [project.begin(&line), project.begin(&line)];
    let mut codes: Vec<_> = both.into_iter().map(|going| going.end().0).collect();
    codes.sort();
    assert_eq!(codes, [Some(0), Some(5)]);
    let decided = project.events(&run).iter().filter(|event| event["event"].get("decided").is_some()).count();
    assert_eq!(decided, 1);
}

#[test]
fn a_gate_is_answered_where_it_is_shown() {
    let project = Project::new();
    let (going, mut stdin) = at_a_terminal(&project.folder, "run gated.yaml");
    going.until("skein reject");
    writeln!(stdin, "perhaps").unwrap();
    going.until("`y` approves and `n` rejects");
    writeln!(stdin, "y it reads well").unwrap();
    going.until("approved by");
    let (code, rest, _) = going.end();
    assert_eq!(code, Some(0), "{rest}");
    assert_eq!(project.read("done.txt"), "draft\npublish\n");
    let run = project.json("runs", 0)["runs"][0]["run_id"].as_str().unwrap().to_owned();
    let events = project.events(&run);
    let decided: Vec<_> = events.iter().filter_map(|event| event["event"].get("decided")).collect();
    assert_eq!(decided.len(), 1);
    assert_eq!(decided[0]["reason"], "it reads well");
}

#[test]
fn a_gate_that_is_asked_here_may_be_answered_elsewhere() {
    let project = Project::new();
    let (going, _stdin) = at_a_terminal(&project.folder, "run gated.yaml");
    going.until("skein reject");
    let run = project.json("runs", 0)["runs"][0]["run_id"].as_str().unwrap().to_owned();
    project.ends(&format!("approve {run}"), 0);
    going.until("approved by");
    assert_eq!(going.end().0, Some(0));
}

/// A deadline that passes while no process owns the run takes effect before any later decision.
#[test]
fn a_gate_whose_time_is_up_is_not_approved() {
    let project = Project::new();
    project.folder.write("asks.md", crate::kept::ASKS.replacen("timeout_ms: 300000", "timeout_ms: 6000", 1));
    let begun = Instant::now();
    let run = project.left("asks.md");
    // This depends on real time: the gate is open for six seconds.
    std::thread::sleep(Duration::from_millis(6_500).saturating_sub(begun.elapsed()));
    project.ends(&format!("approve {run} agree"), 5);
    assert_eq!(project.status(&run), "cancelled");
}

/// An owner dies with a request in its inbox: the process that sent it handles the request itself.
#[test]
fn a_decision_survives_an_owner_that_dies_before_it_answers() {
    let project = Project::new();
    let going = project.begin("run gated.yaml --format jsonl");
    let run = going.run();
    going.until("\"opened\"");
    going.signal(Signal::STOP);
    let log = project.path(".skein/skein.db-wal");
    let length = || std::fs::metadata(&log).map_or(0, |meta| meta.len());
    let before = length();
    let deciding = project.begin(&format!("approve {run} --format json"));
    let begun = Instant::now();
    while length() == before && begun.elapsed() < Duration::from_secs(60) {
        std::thread::yield_now();
    }
    going.signal(Signal::KILL);
    assert_eq!(going.end().0, None);
    let (code, said, _) = deciding.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("skein resume {run}")), "{said}");
    assert_eq!(project.json(&format!("resume {run}"), 0)["status"], "succeeded");
    project.ended_once(&run);
}
