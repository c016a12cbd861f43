//! Agents that do not end by themselves: a model that falls silent or disconnects, and commands that never end.

use std::{fs, io::Read};

use super::{
    alone::for_each_agent,
    kind::{CODEX, Kind, OPENCODE},
    model::{Call, Model, Turn, call, say},
};

for_each_agent!(
    silence_ends_an_attempt_and_not_the_session,
    a_command_has_its_time,
    nothing_is_left_of_what_is_cancelled
);

fn flow(more: &str) -> String {
    format!(
        "name: hangs\nversion: \"1\"\ntimeout: 10m\nsteps:\n  write:\n    worker: AGENT\n    \
         instructions: Do it.\n    capabilities: [READ, EDIT, RUN_COMMANDS]\n{more}"
    )
}

/// The processes that still belong to a run, in any namespace.
fn left_of(run: &str) -> Vec<String> {
    let mark = format!("SKEIN_RUN_ID={run}");
    let all = fs::read_dir("/proc").expect("it is there").flatten().map(|entry| entry.path());
    let of_run = all.filter(|path| {
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    });
    of_run.map(|path| fs::read_to_string(path.join("cmdline")).unwrap_or_default()).collect()
}

/// Silence before the first byte of an answer, and in the middle of one. The next attempt continues in the same
/// session.
fn silence_ends_an_attempt_and_not_the_session(kind: Kind) {
    let model = Model::new([Turn::Hold, Turn::Stall, say("Here I am.")]);
    // An agent that is slow on a busy machine is also silent before its first request, and is retried.
    let idle = if kind.word == OPENCODE.word { 8 } else { 4 };
    let retried = format!("    on_failure: retry\n    max_retries: 9\n    x-skein: {{idle_timeout: {idle}s}}\n");
    let project = kind.project(&model, &flow(&retried));
    let result = project.json("run flow.yaml", 0);
    let run = result["run_id"].as_str().unwrap();
    assert_eq!(left_of(run), [""; 0], "nothing goes on");
    let asked = model.all_asked();
    assert_eq!(asked.len(), 3, "each was given up, and nobody asked again by itself");
    let last = &asked[2].body;
    assert!(last.contains("Do it.") && last.contains("Continue your task"), "it knows what it was to do: {last}");
    let events = project.events(run);
    let ends: Vec<_> = events.iter().filter_map(|event| event["event"].get("attempt_ended")).collect();
    let failed = &ends[..ends.len() - 1];
    assert!(failed.len() >= 2, "{ends:?}");
    for end in failed {
        assert_eq!(end["end"]["failed"]["class"], "timeout", "{end}");
    }
}

/// Claude Code and OpenCode end the command and continue. Codex cannot, so it is ended together with the command.
fn a_command_has_its_time(kind: Kind) {
    let command = "echo begun > first.txt; tail -f /dev/null; echo over > second.txt".to_owned();
    let model = match kind.word == CODEX.word {
        true => Model::new([call("", [Call::Run(command)]), Turn::Hold]),
        false => Model::new([call("", [Call::Run(command)]), say("It took too long.")]),
    };
    let project = kind.project(&model, &flow("    max_command_time: 2s\n    timeout: 1m\n"));
    let result = project.json("run flow.yaml", if kind.word == CODEX.word { 4 } else { 0 });
    assert_eq!(project.read("first.txt"), "begun\n");
    assert!(!project.path("second.txt").exists());
    assert_eq!(left_of(result["run_id"].as_str().unwrap()), [""; 0]);
    if kind.word == CODEX.word {
        let error = &result["steps"][0]["error"];
        assert_eq!(error["class"], "timeout", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("a command exceeded its timeout of 2s"), "{message}");
    }
}

/// Processes that a command of the agent started are ended with it, even after they detached.
fn nothing_is_left_of_what_is_cancelled(kind: Kind) {
    let command = "setsid sh -c 'exec 3> begun; echo it >&3; exec tail -f /dev/null'".to_owned();
    let model = Model::new([call("", [Call::Run(command)]), say("Done.")]);
    let project = kind.project(&model, &flow(""));
    let going = project.begin("run flow.yaml --format jsonl");
    let run = going.run();
    let mut held = fs::File::open(project.path("begun")).expect("it is a pipe");
    let mut said = [0; 3];
    held.read_exact(&mut said).expect("it begins");
    project.ends(&format!("cancel {run}"), 0);
    assert_eq!(going.end().0, Some(4));
    // The read ends when no process in any namespace has the pipe open any more.
    assert_eq!(held.read(&mut said).expect("it can be read"), 0);
    assert_eq!(left_of(&run), [""; 0]);
}
