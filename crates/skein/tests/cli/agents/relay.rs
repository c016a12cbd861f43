//! Several agents for one step: a fallback takes over when an account is exhausted or a service is down.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{
    kind::{CLAUDE, CODEX, Kind, OPENCODE},
    limits::limited,
    model::{Call, Model, Turn, call, say},
};
use crate::kept::Project;

/// A project in which each of these agents uses its own model.
fn project(agents: &[(Kind, &Model)], more: &str) -> Project {
    let project = Project::new();
    let config: String = agents.iter().map(|(kind, model)| kind.config(&project.folder, model.port)).collect();
    let names: Vec<&str> = agents.iter().map(|(kind, _)| kind.word).collect();
    let flow = format!(
        "name: relay\nversion: \"1\"\ntimeout: 10m\ncontext_dir: ctx\nsteps:\n  write:\n    worker: {}\n    instructions: Write it.\n    \
         capabilities: [READ, EDIT]\n    x-skein: {{agents: [{}]{more}}}\n",
        names[0],
        names.join(", ")
    );
    project.folder.write("skein.toml", config).write("flow.yaml", flow);
    project
}

fn down() -> Turn {
    let error = json!({"type": "error", "error": {"type": "server_error", "code": "server_is_overloaded",
        "message": "The server is down."}});
    Turn::Fail(503, Vec::new(), error)
}

/// The ends of all attempts of a run.
fn ends(project: &Project, run: &str) -> Vec<Value> {
    let events = project.events(run);
    events.iter().filter_map(|event| event["event"].get("attempt_ended").cloned()).collect()
}

#[test]
fn a_limit_of_claude_moves_on_to_codex() {
    let (claude, codex) = (Model::new([say("…")]), Model::new([say("It is all there now.")]));
    let project = project(&[(CLAUDE, &claude), (CODEX, &codex)], "");
    let part = project.path("part.txt").display().to_string();
    claude.then([call("I begin.", [Call::Write(part, "a part\n".into())]), limited()]);
    let result = project.json("run flow.yaml", 0);
    let run = result["run_id"].as_str().unwrap();
    assert_eq!(result["status"], "succeeded");
    let ends = ends(&project, run);
    assert_eq!(ends.len(), 2, "{ends:?}");
    assert_eq!(ends[0]["end"]["handed_over"]["to"], "CODEX_CLI", "{ends:?}");
    assert_eq!((&ends[0]["by"], &ends[1]["by"]), (&Value::Null, &json!("CODEX_CLI")));
    // The handover is not a failure that a policy counts, and the cost of both agents counts.
    let retried = project.events(run).iter().any(|event| event["event"].get("retry_scheduled").is_some());
    assert!(!retried, "no try is used up");
    let spent = claude.answers() * CLAUDE.service.tokens() + codex.answers() * CODEX.service.tokens();
    assert_eq!(result["cost"]["tokens"], spent, "{result}");
    // The second agent is told about the earlier work, and nothing of the other agent's session.
    let body = codex.asked().body;
    assert!(body.contains("Another agent, CLAUDE_CODE, worked on this before you"), "{body}");
    assert!(body.contains("Write it.") && !body.contains("I begin."), "{body}");
    let meta: Value = serde_json::from_str(&project.read("ctx/write/_meta.json")).unwrap();
    assert_eq!(meta["workerKind"], "CODEX_CLI", "{meta}");
    let told = project.ends(&format!("events {run}"), 0);
    assert!(told.contains("handed over to CODEX_CLI") && told.contains("done by CODEX_CLI"), "{told}");
    // The next run does not use an account that is known to be exhausted.
    claude.all_asked();
    project.json("run flow.yaml", 0);
    assert!(claude.all_asked().is_empty());
}

#[test]
fn an_outage_of_codex_moves_on_to_opencode() {
    let (codex, opencode) = (Model::new([down()]), Model::new([say("Done.")]));
    let project = project(&[(CODEX, &codex), (OPENCODE, &opencode)], "");
    let shown = project.ends("run flow.yaml", 0);
    assert!(shown.contains("handed on") && shown.contains("done by OPENCODE"), "{shown}");
    assert!(!codex.all_asked().is_empty() && !opencode.all_asked().is_empty());
}

/// An error that is not an outage does not switch to the fallback.
#[test]
fn a_wrong_key_does_not_move_on() {
    let error = json!({"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}});
    let (claude, codex) = (Model::new([Turn::Fail(401, Vec::new(), error)]), Model::new([say("Done.")]));
    let project = project(&[(CLAUDE, &claude), (CODEX, &codex)], "");
    let result = project.json("run flow.yaml", 4);
    assert_eq!(result["steps"][0]["error"]["code"], "agent_auth", "{result}");
    assert!(codex.all_asked().is_empty());
}

/// If all agents are limited, the step waits for the one that is available first, and then tries the first agent first
/// again.
#[test]
fn when_all_are_limited_the_soonest_is_waited_for() {
    let error = json!({"error": {"type": "rate_limit_error", "code": "rate_limit_exceeded",
        "message": "Rate limit reached. Please try again in 1h."}});
    let hour = Turn::Fail(429, vec![("retry-after", "3600".into())], error);
    let (claude, codex) = (Model::new([limited()]), Model::new([hour]));
    let project = project(&[(CLAUDE, &claude), (CODEX, &codex)], ", quota: wait");
    let result = project.json("run flow.yaml --no-wait", 6);
    let run = result["run_id"].as_str().unwrap().to_owned();
    let events = project.events(&run);
    let held = events.iter().find_map(|event| event["event"].get("step_held").cloned()).expect("it is held");
    assert_eq!(held["reason"], "quota");
    let untils: Vec<i64> = std::fs::read_dir(project.path(".skein/accounts"))
        .unwrap()
        .map(|file| {
            let limit: Value = serde_json::from_slice(&std::fs::read(file.unwrap().path()).unwrap()).unwrap();
            limit["until"].as_i64().unwrap()
        })
        .collect();
    assert_eq!(untils.len(), 2);
    assert_eq!(held["until"].as_i64(), untils.iter().copied().min(), "{untils:?}");
    // The first account is available again.
    for account in std::fs::read_dir(project.path(".skein/accounts")).unwrap() {
        std::fs::remove_file(account.unwrap().path()).unwrap();
    }
    claude.then([say("Here I am again.")]);
    codex.all_asked();
    project.ends(&format!("approve {run} write"), 0);
    let result = project.json(&format!("resume {run}"), 0);
    assert_eq!(result["status"], "succeeded");
    assert!(codex.all_asked().is_empty());
    assert_eq!(ends(&project, &run).last().unwrap()["by"], Value::Null);
}

/// After a crash the engine knows which agent was running: that one continues its session, and the first one is not
/// used.
#[test]
fn a_killed_engine_goes_on_with_who_took_over() {
    let (claude, codex) = (Model::new([limited()]), Model::new([say("…")]));
    let project = project(&[(CLAUDE, &claude), (CODEX, &codex)], "");
    let part = project.path("part.txt").display().to_string();
    codex.then([call("I go on with it.", [Call::Write(part, "a part\n".into())]), Turn::Hold]);
    let going = project.begin("run flow.yaml --format jsonl");
    let run = going.run();
    codex.asked();
    codex.asked();
    going.signal(Signal::KILL);
    assert_eq!(going.end().0, None);
    // No record is left that the first account was limited.
    std::fs::remove_dir_all(project.path(".skein/accounts")).unwrap();
    claude.all_asked();
    codex.then([say("And that was all.")]);
    let result = project.json(&format!("resume {run}"), 0);
    assert_eq!(result["status"], "succeeded");
    let body = codex.asked().body;
    assert!(body.contains("I go on with it.") && body.contains("Continue your task"), "{body}");
    assert!(claude.all_asked().is_empty(), "the one that gave up is not asked again");
    assert_eq!(ends(&project, &run).last().unwrap()["by"], "CODEX_CLI");
    project.ended_once(&run);
}

#[test]
fn a_plan_shows_who_takes_over_and_what_each_is_kept_to() {
    let model = Model::new([say("…")]);
    let project = project(&[(CLAUDE, &model), (CODEX, &model)], "");
    let text = project.ends("plan flow.yaml", 0);
    assert!(text.contains("CLAUDE_CODE: it writes below its folder and runs nothing"), "{text}");
    let then = "if that one is out of quota or unavailable, CODEX_CLI: its sandbox writes below its folder and runs any command in it";
    assert!(text.contains(then), "{text}");
    let plan = project.json("plan flow.yaml", 0);
    let agents = &plan["batches"][0]["steps"][0]["work"]["agents"];
    assert_eq!(agents[1]["by"], "CODEX_CLI", "{agents}");
    // An unknown fallback is reported before anything starts.
    let flow = project.read("flow.yaml").replace("CODEX_CLI", "nobody");
    project.folder.write("flow.yaml", flow);
    let done = project.skein("run flow.yaml");
    assert_eq!(done.code, 5, "{}", done.err);
    assert!(done.err.contains("agent `nobody` is not configured"), "{}", done.err);
}
