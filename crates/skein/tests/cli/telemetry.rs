//! Telemetry of IOA runs: the events that the format requires, in a file of the run and on channels.

use rustix::process::Signal;
use serde_json::Value;

use crate::kept::Project;

const TRIP: &str = "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {name: trip}\nspec:\n  description: Books a trip.\n  \
    domainsInvolved: [travel, finance]\n  timeout: 1h\n  failurePolicy: compensate\n  steps:\n    \
    - {name: book, agent: desk, action: Book a room., timeout: 10m}\n    \
    - {name: pay, agent: desk, action: Pay for it., dependsOn: [book], timeout: 10m, onFailure: compensate}\n    \
    - {name: wave, agent: desk, action: Wave., dependsOn: [pay], timeout: 10m, onFailure: skip}\n  compensation:\n    \
    - {step: book, action: Cancel the room., agent: desk}\n";

fn project(channels: &str) -> Project {
    let project = Project::new();
    let own = "default_worker = \"CUSTOM\"\n[agents.desk]\nworker = \"CUSTOM\"\n\
        command = [\"sh\", \"-c\", \"cat > told-$SKEIN_STEP.txt; test ! -e hold-$SKEIN_STEP || { echo x > begun; cat go; }; \
        test ! -e fail-$SKEIN_STEP || { echo no money >&2; exit 1; }\"]\n";
    project.folder.write("skein.toml", format!("{own}{channels}")).write("trip.yaml", TRIP);
    project
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

fn told(project: &Project, run: &str) -> Vec<Value> {
    lines(&project.read(&format!(".skein/runs/{run}/telemetry.jsonl")))
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().expect("it is text")).collect()
}

#[test]
fn a_run_tells_what_the_format_asks_for() {
    let project = project("[channels.all]\nkind = \"file\"\npath = \"all.jsonl\"\nevents = [\"*\"]\n");
    project.folder.write("fail-wave", "");
    let run = project.json("run trip.yaml", 0)["run_id"].as_str().unwrap().to_owned();
    let events = told(&project, &run);
    assert_eq!(
        names(&events),
        [
            "travel.workflow_started",
            "travel.agent_started",
            "travel.agent_completed",
            "travel.workflow_step_completed",
            "travel.agent_started",
            "travel.agent_completed",
            "travel.workflow_step_completed",
            "travel.agent_started",
            "travel.agent_failed",
            "travel.workflow_step_failed",
            "travel.workflow_completed",
        ]
    );
    let of_agents = |event: &&Value| event["event"].as_str().unwrap().starts_with("travel.agent_");
    let (agents, of_run): (Vec<&Value>, Vec<&Value>) = events.iter().partition(of_agents);
    assert_eq!(agents[0]["payload"]["agentName"], "desk");
    assert!(agents[5]["payload"]["error"].as_str().unwrap().contains("no money"), "{}", agents[5]);
    assert!(events.iter().all(|event| event["correlationId"] == events[0]["correlationId"]), "{events:?}");
    assert!(events.iter().all(|event| event["payload"]["workflowName"] == "trip"));
    assert_eq!(events[0]["payload"]["domainsInvolved"], serde_json::json!(["travel", "finance"]));
    assert_eq!((&of_run[1]["payload"]["stepName"], &of_run[1]["class"]), (&"book".into(), &"trace".into()));
    assert_eq!(of_run[1]["payload"]["agent"], "desk");
    assert!(of_run[1]["payload"]["durationMs"].is_u64());
    assert_eq!((&of_run[3]["class"], &of_run[3]["payload"]["onFailure"]), (&"alert".into(), &"skip".into()));
    assert!(of_run[3]["payload"]["error"].as_str().unwrap().contains("no money"), "{}", of_run[3]);
    assert_eq!(of_run[4]["payload"]["stepsCompleted"], 2);
    // The channel gets the same events.
    let all = lines(&project.read("all.jsonl"));
    assert_eq!(names(&all), names(&events));
    assert_eq!(all[0]["id"], events[0]["id"]);
}

#[test]
fn a_run_that_is_undone_raises_alarms() {
    let project = project("[channels.bad]\nkind = \"file\"\npath = \"bad.jsonl\"\nevents = [\"alert\"]\n");
    project.folder.write("fail-pay", "");
    let run = project.json("run trip.yaml", 4)["run_id"].as_str().unwrap().to_owned();
    let alerts = [
        "travel.agent_failed",
        "travel.workflow_step_failed",
        "travel.workflow_compensating",
        "travel.workflow_failed",
    ];
    let bad = lines(&project.read("bad.jsonl"));
    assert_eq!(names(&bad), alerts);
    assert_eq!(bad[2]["payload"]["compensationSteps"], serde_json::json!(["book"]));
    assert_eq!(
        (&bad[3]["payload"]["failedStep"], &bad[3]["payload"]["failurePolicy"]),
        (&"pay".into(), &"compensate".into())
    );
    assert_eq!(told(&project, &run).len(), 9);
}

/// Events from before a crash are not repeated, and none is missing.
#[test]
fn a_crash_doubles_nothing_in_the_file() {
    let project = project("");
    project.folder.write("hold-pay", "");
    let going = project.begin("run trip.yaml --format jsonl");
    let run = going.run();
    project.begun();
    going.signal(Signal::KILL);
    assert_eq!(going.end().0, None);
    // The last line was truncated by the crash.
    let file = format!(".skein/runs/{run}/telemetry.jsonl");
    let text = project.read(&file);
    let cut = text.trim_end().rfind('\n').map_or(10, |at| at + 10);
    project.folder.write(&file, text.get(..cut).unwrap_or(&text));
    let resumed = project.begin(&format!("resume {run} --format jsonl"));
    project.begun();
    project.go();
    assert_eq!(resumed.end().0, Some(0));
    let text = project.read(&file);
    let whole: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut ids: Vec<&str> = whole.iter().map(|event| event["id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    let parts = [
        "agent.0.1.ended",
        "agent.0.1.started",
        "agent.1.1.ended",
        "agent.1.1.started",
        "agent.2.1.ended",
        "agent.2.1.started",
        "end",
        "started",
        "step.0.1",
        "step.1.1",
        "step.2.1",
    ];
    assert_eq!(ids, parts.map(|part| format!("{run}.telemetry.{part}")), "{text}");
}

#[test]
fn a_channel_that_fails_changes_nothing_and_is_noted_once() {
    let project = project("[channels.bad]\nkind = \"file\"\npath = \".\"\nevents = [\"*\"]\n");
    let run = project.json("run trip.yaml", 0)["run_id"].as_str().unwrap().to_owned();
    assert_eq!(told(&project, &run).len(), 11);
    let failed = lines(&project.read(&format!(".skein/runs/{run}/telemetry-failed.jsonl")));
    assert_eq!((failed.len(), &failed[0]["channel"]), (1, &"bad".into()), "{failed:?}");
}

#[test]
fn what_cannot_be_asked_for_is_refused() {
    for (config, says) in [
        ("kind = \"desktop\"\nevents = [\"*\"]\n", "cannot subscribe to events"),
        ("kind = \"file\"\npath = \"x\"\nevents = [\"workflow_faild\"]\n", "did you mean `workflow_failed`?"),
        ("kind = \"file\"\nevents = [\"*\"]\n", "needs a `path`"),
    ] {
        let project = project(&format!("[channels.c]\n{config}"));
        let shown = project.ends("run trip.yaml", 5);
        assert!(shown.contains(says), "{shown}");
    }
}

/// The prompt of an agent has its purpose and its constraints before its task.
#[test]
fn an_agent_is_told_its_purpose() {
    let project = project("");
    project.folder.write(
        "agents/desk.yaml",
        "apiVersion: ioa.dev/v0.2\nkind: Agent\nmetadata: {name: desk}\nspec:\n  purpose: Books what people need.\n  \
         constraints:\n    - Never spend more than asked.\n    - {rule: Ask when in doubt.}\n",
    );
    project.ends("run trip.yaml", 0);
    let told = project.read("told-book.txt");
    let begins = "You are desk.\n\nBooks what people need.\n\nKeep to this:\n\n- Never spend more than asked.\n\
        - Ask when in doubt.\n\nBook a room.";
    assert!(told.starts_with(begins), "{told}");
}
