//! A worker cannot send commands to runs: not directly, not with an empty environment, not as an orphan.

use std::process::Command;

use rustix::process::Signal;

use crate::{
    kept::Project,
    session::{as_it_is, without_name_spaces},
};

/// A project in which a worker runs beside a gate, and tries to answer it.
fn project(worker: &str) -> Project {
    let project = Project::new();
    project.pipe("ready");
    project.pipe("answer");
    let gated = crate::kept::GATED.replace("dependsOn: [draft], timeout: 30m", "timeout: 30m");
    project.folder.write("gated.yaml", gated).write("worker.sh", worker);
    let command = format!(
        "allow_unenforced = [\"steps\", \"gates\"]\n[agents.writer]\nworker = \"CUSTOM\"\ncommand = [\"sh\", \"worker.sh\", \"{}\"]\n",
        env!("CARGO_BIN_EXE_skein")
    );
    project.folder.write("skein.toml", command);
    project
}

/// Runs a worker that tries to send a command, which has no effect. Returns the project, the run and the answer.
fn asked(worker: &str, wrapped: impl Fn(&Command) -> Command) -> (Project, String, String) {
    let project = project(worker);
    let going = project.begin_as(&wrapped(&project.command("run gated.yaml --no-wait --format jsonl")));
    let run = going.run();
    assert_eq!(going.end().0, Some(6), "the gate still waits");
    let said = project.read("said.txt");
    assert!(said.contains("exit 5"), "{said}");
    assert_eq!(project.status(&run), "waiting");
    (project, run, said)
}

/// Asserts that the worker finds no run in its sandbox, and is refused without one, which the journal records.
fn refused(worker: &str, noted: &str) {
    let (_, _, said) = asked(worker, as_it_is);
    assert!(said.contains("there is no run"), "{said}");
    let (project, run, said) = asked(worker, without_name_spaces);
    assert!(said.contains("only people outside of runs can decide"), "{said}");
    // A person may. A request that came while the owner was about to leave is handled before that.
    project.ends(&format!("approve {run} sign-off"), 0);
    let events = project.events(&run);
    let tried: Vec<_> = events.iter().filter_map(|event| event["event"].get("tampered")).collect();
    assert_eq!(tried.len(), 1, "{events:?}");
    assert_eq!(tried[0]["what"], noted);
    assert!(tried[0]["by"].as_str().is_some_and(|by| by.contains("a worker of")), "{}", tried[0]);
    let told = project.ends(&format!("events {run}"), 0);
    assert!(told.contains(&format!("tried to {noted}, and was refused")), "{told}");
    let records = project.json("audit --action run.tamper", 0)["records"].clone();
    assert_eq!(records.as_array().map(Vec::len), Some(1), "{records}");
    assert_eq!((&records[0]["actor"]["role"], &records[0]["input"]["what"]), (&"worker".into(), &noted.into()));
}

#[test]
fn a_worker_can_say_nothing_to_a_run() {
    for (line, noted) in [
        ("approve $SKEIN_RUN_ID sign-off", "approve `sign-off`"),
        ("reject $SKEIN_RUN_ID", "reject"),
        ("signal $SKEIN_RUN_ID go.now", "send the signal `go.now`"),
        ("cancel $SKEIN_RUN_ID", "cancel the run"),
    ] {
        let tries = format!("\"$1\" {line} >> said.txt 2>&1; echo exit $? >> said.txt");
        refused(&format!("cat >/dev/null; {tries}\n"), noted);
    }
}

#[test]
fn a_worker_with_a_wiped_environment_cannot_approve() {
    refused(
        "cat >/dev/null; run=$SKEIN_RUN_ID\n\
         env -i \"$1\" approve $run sign-off >> said.txt 2>&1; echo exit $? >> said.txt\n",
        "approve `sign-off`",
    );
}

/// A fork reuses the decisions of people, and only people may handle dead letters.
#[test]
fn a_worker_can_neither_fork_nor_see_to_dead_letters() {
    let project = Project::new();
    let failing = "name: failing\nversion: \"1\"\ntimeout: 10m\nsteps:\n  once:\n    worker: CUSTOM\n    \
        capabilities: [READ, EDIT]\n    instructions: 'exit 1'\n";
    let asking = failing.replace("failing", "asking").replace(
        "exit 1",
        &format!(
            "run=$(cat failed); for words in \"fork $run --from once\" \"dlq rerun $run\" \"dlq drop $run\"; \
             do {} $words || echo exit $?; done",
            env!("CARGO_BIN_EXE_skein")
        ),
    );
    project.folder.write("failing.yaml", failing).write("asking.yaml", asking);
    let run = project.json("run failing.yaml", 4)["run_id"].as_str().unwrap().to_owned();
    project.folder.write("failed", &run);
    let asked = project.json("run asking.yaml", 0)["run_id"].as_str().unwrap().to_owned();
    let said = project.ends(&format!("logs {asked}"), 0);
    assert_eq!(said.matches("only people outside of runs can decide").count(), 3, "{said}");
    assert_eq!(said.matches("exit 5").count(), 3, "{said}");
    assert_eq!(project.json("dlq", 0)["dead_letters"][0]["run_id"], serde_json::json!(run));
}

/// A process that detached from the worker becomes a child of the engine.
#[test]
fn an_orphan_of_a_worker_cannot_approve() {
    refused(
        "cat >/dev/null; run=$SKEIN_RUN_ID; skein=$1\n\
         (setsid env -i sh -c 'read go < ready; '$skein' approve '$run' sign-off >> said.txt 2>&1; \
         echo exit $? >> said.txt; echo > answer' >/dev/null 2>&1 &)\n\
         echo > ready; read done < answer\n",
        "approve `sign-off`",
    );
}

/// A process that outlives its engine still has the mark of the worker. It survives only without namespaces, and then
/// only if the worker itself started it.
#[test]
fn a_worker_cannot_approve_when_its_engine_is_gone() {
    let project = project(
        "cat >/dev/null; export skein=$1; setsid sh -c 'echo > begun; read go < ready\n\
         \"$skein\" approve $SKEIN_RUN_ID sign-off >> said.txt 2>&1; echo exit $? >> said.txt; echo > answer' &\nwait\n",
    );
    let going = project.begin_as(&without_name_spaces(&project.command("run gated.yaml --format jsonl")));
    let run = going.run();
    project.begun();
    going.signal(Signal::KILL);
    assert_eq!(going.end().0, None);
    std::fs::write(project.path("ready"), "go\n").expect("it is a pipe");
    std::fs::read(project.path("answer")).expect("it is a pipe");
    let said = project.read("said.txt");
    assert!(said.contains(&format!("a worker of run {run}")) && said.contains("exit 5"), "{said}");
    assert_eq!(project.status(&run), "running");
}
