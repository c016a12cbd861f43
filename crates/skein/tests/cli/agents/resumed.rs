//! An agent whose engine was killed continues its own session.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::{
    alone::{alone, for_each_agent},
    kind::{CLAUDE, Kind},
    model::{Call, Model, Turn, call, say},
};
use crate::kept::Project;

const FLOW: &str = "name: resumed\nversion: \"1\"\ntimeout: 10m\nsteps:\n  write:\n    worker: AGENT\n    \
    instructions: Write the first and the second part.\n    capabilities: [READ, EDIT]\n";

for_each_agent!(a_killed_engine_goes_on_in_the_same_session, a_session_that_is_gone_is_begun_anew);

/// The notes about the agent of each attempt, in order.
fn notes(project: &Project, run: &str) -> Vec<Value> {
    let folder = project.path(&format!(".skein/runs/{run}/attempts"));
    let mut attempts: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().join("agent.json")).collect();
    attempts.sort();
    attempts.iter().map(|note| serde_json::from_slice(&std::fs::read(note).unwrap()).unwrap()).collect()
}

/// A run whose engine is killed while it waits for the second answer.
pub(crate) fn killed(kind: Kind, model: &Model, project: &Project) -> String {
    killed_in(FLOW, kind, model, project)
}

fn killed_in(flow: &str, kind: Kind, model: &Model, project: &Project) -> String {
    project.folder.write("skein.toml", kind.config(&project.folder, model.port));
    project.folder.write("flow.yaml", flow.replace("AGENT", kind.word));
    let going = project.begin("run flow.yaml --format jsonl");
    let run = going.run();
    model.asked();
    model.asked();
    // The cost of the first answer. Codex reports it only later, and stores it where it is found again.
    let note = project.path(&format!(".skein/runs/{run}/attempts/0.0.1.1.main.1/agent.json"));
    let known = || {
        let note: Value = serde_json::from_slice(&std::fs::read(&note).ok()?).ok()?;
        (note["cost"]["tokens"].as_u64()? > 0).then_some(())
    };
    let begun = Instant::now();
    while kind.word != "CODEX_CLI" && known().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "what it spent is not noted");
        std::thread::sleep(Duration::from_millis(5));
    }
    going.signal(Signal::KILL);
    assert_eq!(going.end().0, None);
    run
}

fn a_killed_engine_goes_on_in_the_same_session(kind: Kind) {
    let project = Project::new();
    let part = project.path("first.txt").display().to_string();
    let model = Model::new([call("I begin with the first part.", [Call::Write(part, "first\n".into())]), Turn::Hold]);
    let run = killed(kind, &model, &project);
    assert_eq!(project.read("first.txt"), "first\n");
    let session = notes(&project, &run)[0]["session"].clone();
    assert!(session.is_string(), "the session is known while it works");
    model.then([say("And that was the second part.")]);
    let result = project.json(&format!("resume {run}"), 0);
    assert_eq!(result["status"], "succeeded");
    let body = model.asked().body;
    assert!(body.contains("I begin with the first part.") && body.contains("Continue your task"), "{body}");
    let notes = notes(&project, &run);
    assert_eq!((notes.len(), &notes[1]["session"]), (2, &session));
    // The first answer was paid before the engine was killed, and is counted once.
    assert_eq!(result["cost"]["tokens"], 2 * kind.service.tokens(), "{result}");
    let modes: Vec<Value> = project
        .events(&run)
        .iter()
        .filter_map(|event| Some(event["event"].get("attempt_started")?["mode"].clone()))
        .collect();
    assert_eq!(modes, ["fresh", "resume"]);
    project.ended_once(&run);
}

alone! {
    /// Retries are for failures. An interruption is not a failure: it uses no retry, and the session continues.
    fn an_interrupted_agent_with_retries_keeps_its_session() {
        let project = Project::new();
        let part = project.path("first.txt").display().to_string();
        let begins = call("I begin with the first part.", [Call::Write(part, "first\n".into())]);
        let model = Model::new([begins, Turn::Hold]);
        let retries = format!("{FLOW}    on_failure: retry\n    max_retries: 1\n");
        let run = killed_in(&retries, CLAUDE, &model, &project);
        let session = notes(&project, &run)[0]["session"].clone();
        model.then([say("And that was the second part.")]);
        let result = project.json(&format!("resume {run}"), 0);
        // The agent decides how much of an answer it saves before it is killed. The conversation is the same.
        let goes_on =
            |body: &str| body.contains("Write the first and the second part.") && body.contains("Continue your task");
        let told: Vec<String> = model.all_asked().into_iter().map(|asked| asked.body).collect();
        assert!(told.iter().any(|body| goes_on(body)), "{told:?}");
        assert_eq!(notes(&project, &run)[1]["session"], session, "{result}");
        let shown = project.ends(&format!("events {run}"), 0);
        assert!(shown.contains("resumed after an interruption"), "{shown}");
    }
}

/// Replaces the noted session by one that does not exist.
pub(crate) fn lose_session(kind: Kind, project: &Project, run: &str) {
    let path = project.path(&format!(".skein/runs/{run}/attempts/0.0.1.1.main.1/agent.json"));
    let mut note: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    note["session"] = Value::from(match kind.word {
        "OPENCODE" => "ses_e1d205113ffexE0S8lr5mjmcky",
        _ => "01a1e2ce-4ebe-7683-8d02-8fcca2dfaa8f",
    });
    std::fs::write(&path, note.to_string()).unwrap();
}

/// The session is lost: the agent is told that an attempt was interrupted, and starts from the beginning.
fn a_session_that_is_gone_is_begun_anew(kind: Kind) {
    let project = Project::new();
    let part = project.path("first.txt").display().to_string();
    let model = Model::new([call("I begin.", [Call::Write(part, "first\n".into())]), Turn::Hold]);
    let run = killed(kind, &model, &project);
    lose_session(kind, &project, &run);
    model.then([say("All parts are written.")]);
    let result = project.json(&format!("resume {run}"), 0);
    assert_eq!(result["status"], "succeeded");
    let body = model.asked().body;
    assert!(body.contains("An earlier attempt at this was interrupted") && !body.contains("I begin."), "{body}");
    let (spent, one) = (result["cost"]["tokens"].as_u64().unwrap(), kind.service.tokens());
    // With its session, Codex may lose the cost of the session. Nothing is ever counted twice.
    assert!(spent == 2 * one || (kind.word == "CODEX_CLI" && spent == one), "{result}");
}
