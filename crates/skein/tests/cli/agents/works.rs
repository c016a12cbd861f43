//! An agent that does its work: its changes, its output, its cost, and the live output.

use std::{
    io::Read,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use serde_json::json;

use super::{
    alone::{alone, for_each_agent},
    kind::{CLAUDE, Kind},
    model::{Call, Model, Turn, call, say},
};
use crate::{kept::Project, session::Folder};

const EDIT: &str = "name: edit\nversion: \"1\"\ntimeout: 10m\nsteps:\n  write:\n    worker: AGENT\n    \
    instructions: Create note.txt, with a poem in it.\n    capabilities: [READ, EDIT]\n    \
    outputs:\n      - {name: note, path: note.txt}\n";

const ANSWER: &str = "workflow: {id: answer, name: Answer, version: \"1.0.0\"}\nstages:\n  - id: judge\n    \
    name: Judge\n    roles:\n      primary: {artifact: \"agent:worker\", instructions: Judge it.}\n    \
    outputs:\n      status: {type: string}\n      files: {type: \"array<string>\"}\n    \
    error_policy: {retry: {max_attempts: 1}, on_failure: halt}\n";

for_each_agent!(
    edits_a_file,
    gives_a_value,
    a_false_done_is_no_success,
    a_wrong_value_is_no_success,
    bad_events_harm_nothing
);

/// The one step of the run that ended.
fn step(result: &serde_json::Value) -> &serde_json::Value {
    &result["steps"][0]
}

fn edits_a_file(kind: Kind) {
    let project = Project::new();
    let note = project.path("note.txt").display().to_string();
    let model = Model::new([
        call("I will write a poem.", [Call::Write(note, "roses\n".into())]),
        call("", [Call::Output("{\"lines\": 1}\n".into())]),
        say("The poem is written."),
    ]);
    project.folder.write("skein.toml", kind.config(&project.folder, model.port));
    project.folder.write("flow.yaml", EDIT.replace("AGENT", kind.word));
    let result = project.json("run flow.yaml", 0);
    assert_eq!(project.read("note.txt"), "roses\n");
    assert_eq!(step(&result)["outputs"], json!({"lines": 1}), "{result}");
    assert_eq!(model.answers(), 3);
    assert_eq!(result["cost"]["tokens"], 3 * kind.service.tokens(), "{result}");
    // The prompt has the task and the path of the output file.
    let first = model.asked().body;
    assert!(
        first.contains("Create note.txt, with a poem in it.") && first.contains("`note.txt` must be in"),
        "{first}"
    );
    let run = result["run_id"].as_str().unwrap();
    let log = project.ends(&format!("logs {run}"), 0);
    assert!(log.contains("I will write a poem.\n") && log.contains("The poem is written.\n"), "{log}");
    assert!(log.contains("note.txt") && log.contains(" tokens"), "the tool and what was spent: {log}");
    assert!(!log.contains("{\"type\""), "no event is shown as it came: {log}");
}

fn gives_a_value(kind: Kind) {
    let value = json!({"status": "good", "files": ["a", "b"]});
    let turn = match kind.word {
        "CLAUDE_CODE" => call("", [Call::Answer(value.clone())]),
        "CODEX_CLI" => say(&value.to_string()),
        _ => call("", [Call::Output(value.to_string())]),
    };
    let model = Model::new([turn, say("That is my judgement.")]);
    let project = kind.project(&model, ANSWER);
    let result = project.json("run flow.yaml", 0);
    assert_eq!(step(&result)["outputs"], value);
}

/// The agent claims to be done, and none of its artifacts exist.
fn a_false_done_is_no_success(kind: Kind) {
    let model = Model::new([say("I am done, and everything is fine.")]);
    let project = kind.project(&model, ANSWER);
    let result = project.json("run flow.yaml", 4);
    assert_eq!(step(&result)["error"]["code"], "output_invalid", "{result}");
}

fn a_wrong_value_is_no_success(kind: Kind) {
    let model = Model::new([call("", [Call::Output("{\"status\": 7}".into())]), say("{\"status\": 7}")]);
    let model = match kind.word {
        // These agents return the output as an answer, so the prompt names no file.
        "CLAUDE_CODE" | "CODEX_CLI" => Model::new([say("{\"status\": 7}")]),
        _ => model,
    };
    let project = kind.project(&model, ANSWER);
    let result = project.json("run flow.yaml", 4);
    assert_eq!(step(&result)["error"]["code"], "output_invalid", "{result}");
}

/// Lines that are not events, and unknown events, change nothing.
fn bad_events_harm_nothing(kind: Kind) {
    let project = Project::new();
    let note = project.path("note.txt").display().to_string();
    let model = Model::new([call("", [Call::Write(note, "x\n".into())]), say("Done.")]);
    let script = format!(
        "#!/bin/sh\nprintf 'no event\\n{{\"type\": \"future.thing\"}}\\n[1, 2\\n{{\"type\": \"assistant\"}}\\n\
         {{\"type\": \"item.completed\"}}\\n{{\"type\": \"step_finish\"}}\\n{{\"type\": 7}}\\n{{\"type\":'\n\
         head -c 9000000 /dev/zero | tr '\\0' x; echo; exec {} \"$@\"\n",
        kind.program().display()
    );
    let (_bin, program) = program(&script);
    project.folder.write("skein.toml", kind.config_with(&project.folder, model.port, &program));
    project.folder.write("flow.yaml", EDIT.replace("AGENT", kind.word));
    let result = project.json("run flow.yaml", 0);
    let run = result["run_id"].as_str().unwrap();
    let log = project.ends(&format!("logs {run}"), 0);
    assert!(log.contains("no event\n") && log.contains("too long to be read"), "{}", &log[..log.len().min(3000)]);
}

/// A program in its own folder, because programs in the project are not trusted.
fn program(script: &str) -> (Folder, String) {
    let folder = Folder::new();
    folder.write("agent", script);
    let path = folder.0.join("agent");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let path = path.display().to_string();
    (folder, path)
}

alone! {
    /// On a terminal, the agent's actions are shown while they happen.
    fn what_it_does_is_shown_while_it_works() {
        let project = Project::new();
        let note = project.path("note.txt").display().to_string();
        let model = Model::new([call("", [Call::Write(note, "x\n".into())]), Turn::Hold]);
        project.folder.write("skein.toml", CLAUDE.config(&project.folder, model.port));
        project.folder.write("flow.yaml", EDIT.replace("AGENT", CLAUDE.word).replace("10m", "2m"));
        let mut terminal = Command::new("script");
        let line = format!("stty cols 120 rows 30; {} run flow.yaml", env!("CARGO_BIN_EXE_skein"));
        terminal.args(["-qec", &line, "/dev/null"]).current_dir(&project.folder.0).env("TERM", "xterm");
        terminal.env("XDG_STATE_HOME", crate::session::state_home());
        let mut child = terminal.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut screen = child.stdout.take().expect("it is a pipe");
        let (mut seen, mut piece) = (String::new(), [0; 4096]);
        while !seen.contains("> Write ") {
            let read = screen.read(&mut piece).expect("it can be read");
            assert!(read > 0, "it is never shown:\n{seen}");
            seen += &String::from_utf8_lossy(&piece[..read]);
        }
        let runs = project.json("runs", 0);
        project.ends(&format!("cancel {}", runs["runs"][0]["run_id"].as_str().unwrap()), 0);
        screen.read_to_end(&mut Vec::new()).expect("it can be read");
        assert_eq!(child.wait().expect("it ends").code(), Some(4));
    }
}
