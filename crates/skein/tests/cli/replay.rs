//! Recordings: a run is replayed from files, without its programs, and nothing is invented.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{kept::Project, session::repository};

const FLOW: &str = r#"name: taped
version: "1"
timeout: 10m
context_dir: ctx
steps:
  make:
    worker: CUSTOM
    capabilities: [READ, EDIT]
    instructions: |
      sh ./helper
      echo "at $PWD" > where.txt
      rm old.txt
      echo n=7 > $SKEIN_OUTPUT
    outputs:
      - {name: made, path: made.txt}
  use:
    worker: CUSTOM
    depends_on: [make]
    capabilities: [READ, EDIT]
    instructions: cat in/made.txt >> made.txt
    inputs:
      - {from: make, artifact: made, as: in}
"#;

/// A project with that workflow and its files.
fn taped() -> Project {
    let project = Project::new();
    project.folder.write("flow.yaml", FLOW).write("old.txt", "old\n");
    project.folder.write("helper", "mkdir -p deep; echo made | tee made.txt deep/made.txt\nchmod +x deep/made.txt\n");
    project
}

/// Every file below a folder with its content.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.is_dir() {
                true => open.push(entry),
                false => {
                    let bytes = fs::read(&entry).unwrap();
                    found.insert(entry.strip_prefix(folder).unwrap().to_owned(), bytes);
                }
            }
        }
    }
    found
}

/// The arguments that replay the recording of another project.
fn from(project: &Project) -> String {
    format!("--replay {}", project.path("tape").display())
}

#[test]
fn what_was_recorded_happens_again_without_its_programs() {
    let (one, two) = (taped(), taped());
    let first = one.json("run flow.yaml --record tape", 0);
    assert_eq!(first["recorded"]["attempts"], 2, "{first}");
    fs::remove_file(two.path("helper")).unwrap();
    let again = two.json(&format!("run flow.yaml {}", from(&one)), 0);
    assert_eq!(again["status"], "succeeded");
    assert_eq!(again["replayed"]["attempts"], 2, "{again}");
    assert_eq!((&again["replayed"]["differs"], &again["replayed"]["unasked"]), (&json!([]), &json!([])));
    assert_eq!(again["steps"][0]["outputs"], json!({"n": 7}));
    // The files are the same, in any folder.
    assert_eq!(two.read("made.txt"), "made\nmade\n");
    assert_eq!(two.read("where.txt"), format!("at {}\n", fs::canonicalize(two.path("")).unwrap().display()));
    assert!(!two.path("old.txt").exists());
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(two.path("deep/made.txt")).unwrap().permissions());
    assert_eq!(mode & 0o111, 0o111);
    assert_eq!(two.read("ctx/make/made/made.txt"), "made\n", "artifacts are kept as ever");
    // The output says that it is a replay.
    let told = two.ends(&format!("run flow.yaml {}", from(&one)), 0);
    assert!(told.contains("nothing was started or spent"), "{told}");
}

/// Two recordings of the same run are identical, byte for byte, and name nothing of the machine.
#[test]
fn a_recording_is_the_same_each_time() {
    let (one, two) = (taped(), taped());
    one.json("run flow.yaml --record tape", 0);
    two.json("run flow.yaml --record tape", 0);
    let (first, second) = (files(&one.path("tape")), files(&two.path("tape")));
    assert_eq!(first.keys().collect::<Vec<_>>(), second.keys().collect::<Vec<_>>());
    assert_eq!(first, second);
    let here = one.path("").display().to_string();
    for (path, bytes) in &first {
        assert!(!String::from_utf8_lossy(bytes).contains(here.trim_end_matches('/')), "{}", path.display());
    }
    // A new recording replaces the old one.
    one.folder.write("old.txt", "old\n");
    fs::remove_file(one.path("made.txt")).unwrap();
    one.json("run flow.yaml --record tape", 0);
    assert_eq!(files(&one.path("tape")).keys().collect::<Vec<_>>(), first.keys().collect::<Vec<_>>());
}

#[test]
fn a_changed_request_is_refused_with_the_difference() {
    let (one, two) = (taped(), taped());
    one.json("run flow.yaml --record tape", 0);
    two.folder.write("flow.yaml", FLOW.replace("rm old.txt", "rm -f old.txt"));
    let told = two.ends(&format!("run flow.yaml {}", from(&one)), 4);
    for part in [
        "the request to `make` differs from the recorded one",
        "worker.script, from 3 on:",
        "- rm old.txt",
        "+ rm -f old.txt",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!two.path("made.txt").exists(), "nothing is done that was not asked for");
    // The later attempts were recorded and are not requested.
    assert!(told.contains("recorded but not used: ") && told.contains("steps/use/main-1.1.1"), "{told}");
}

/// A failure after which a workflow continues is still a failure.
#[test]
fn what_was_not_recorded_is_named_even_if_the_run_goes_on() {
    let (one, two) = (taped(), taped());
    one.json("run flow.yaml --record tape", 0);
    let more =
        "  more:\n    worker: CUSTOM\n    capabilities: [READ]\n    instructions: 'true'\n    on_failure: continue\n";
    two.folder.write("flow.yaml", format!("{FLOW}{more}"));
    let result = two.json(&format!("run flow.yaml {}", from(&one)), 4);
    let differs = result["replayed"]["differs"].to_string();
    assert!(differs.contains("`more` needs main attempt 1") && differs.contains("was not recorded"), "{differs}");
}

#[test]
fn a_secret_is_never_in_a_recording() {
    let project = Project::new();
    let config = format!("{}[secrets]\nTOKEN = {{ env = \"THE_TOKEN\" }}\n", project.read("skein.toml"));
    let flow = "name: secret\nversion: \"1\"\ntimeout: 10m\nsteps:\n  leak:\n    worker: CUSTOM\n    capabilities: [READ, EDIT]\n    \
        x-skein: {secrets: [TOKEN]}\n    instructions: |\n      echo \"it is $TOKEN\" > leaked.txt\n      \
        printf '{\"leak\": \"%s\"}' \"$TOKEN\" > $SKEIN_OUTPUT\n";
    project.folder.write("skein.toml", config).write("flow.yaml", flow);
    let mut command = project.command("run flow.yaml --record tape");
    command.env("THE_TOKEN", "hunter2-of-the-deep-sea");
    let (code, out, errors) = project.begin_as(&command).end();
    assert_eq!(code, Some(0), "{out}{errors}");
    assert!(project.read("leaked.txt").contains("hunter2-of-the-deep-sea"));
    let recorded = files(&project.path("tape"));
    assert!(recorded.keys().any(|path| path.ends_with("leaked.txt")), "{recorded:?}");
    for (path, bytes) in &recorded {
        assert!(!String::from_utf8_lossy(bytes).contains("hunter2"), "{}", path.display());
    }
    // Without it, the same recording can be replayed.
    project.ends("run flow.yaml --replay tape", 0);
}

/// The engine is killed during a step: the recording is the same as without the kill.
#[test]
fn a_recording_of_a_killed_run_is_whole() {
    let (one, two) = (Project::new(), Project::new());
    let going = one.begin("run held.yaml --record tape --format jsonl");
    let run = going.run();
    one.begun();
    going.signal(Signal::KILL);
    assert_eq!(going.end().0, None);
    let going = one.begin(&format!("resume {run}"));
    one.begun();
    one.go();
    assert_eq!(going.end().0, Some(0));
    let going = two.begin("run held.yaml --record tape");
    two.begun();
    two.go();
    assert_eq!(going.end().0, Some(0));
    assert_eq!(files(&one.path("tape")), files(&two.path("tape")));
    let three = Project::new();
    let again = three.json(&format!("run held.yaml {}", from(&one)), 0);
    assert_eq!(again["replayed"]["unasked"], json!([]), "{again}");
    assert_eq!(three.read("done.txt"), "first\nslow\n");
}

#[test]
fn what_people_decided_is_decided_again() {
    let (one, two) = (Project::new(), Project::new());
    let run = one.json("run gated.yaml --record tape --no-wait", 6)["run_id"].as_str().unwrap().to_owned();
    one.ends(&format!("approve {run} sign-off --reason fine"), 0);
    one.json(&format!("resume {run}"), 0);
    let decisions: Value = serde_json::from_str(&one.read("tape/decisions.json")).unwrap();
    assert_eq!((&decisions[0]["step"], &decisions[0]["answer"]), (&json!("sign-off"), &json!("approve")));
    let again = two.json(&format!("run gated.yaml {}", from(&one)), 0);
    assert_eq!((&again["status"], two.read("done.txt").as_str()), (&json!("succeeded"), "draft\npublish\n"));
    let told = two.ends(&format!("events {}", again["run_id"].as_str().unwrap()), 0);
    assert!(told.contains("fine"), "{told}");
    // A missing decision is not replaced by anything.
    fs::remove_file(one.path("tape/decisions.json")).unwrap();
    let told = two.ends(&format!("run gated.yaml {}", from(&one)), 4);
    assert!(told.contains("`sign-off` asks for a decision that was not recorded"), "{told}");
}

#[test]
fn signals_come_again() {
    let (one, two) = (Project::new(), Project::new());
    let run = one.json("run asks.md --record tape --no-wait", 6)["run_id"].as_str().unwrap().to_owned();
    one.ends(&format!("approve {run} agree"), 0);
    one.ends(&format!("signal {run} go.later --payload {{\"n\":1}}"), 0);
    let first = one.json(&format!("runs {run}"), 0);
    let again = two.json(&format!("run asks.md {}", from(&one)), 0);
    assert_eq!(first["steps"][1]["outputs"], again["steps"][1]["outputs"], "{}", one.read("tape/decisions.json"));
}

/// One agent is exhausted and a fallback takes over: the replay repeats that, and needs none of the agents.
#[test]
fn a_handover_and_a_retry_happen_again() {
    let (one, two) = (Project::new(), Project::new());
    let flow = "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {name: relay}\nspec:\n  description: Writes.\n  \
        domainsInvolved: [editorial]\n  timeout: 1h\n  failurePolicy: abort\n  steps:\n    - {name: draft, agent: first, \
        action: Write it., timeout: 10m, x-skein: {agents: [second]}}\n";
    let config = "[agents.first]\nworker = \"CUSTOM\"\ncommand = [\"sh\", \"-c\", \"cat > told-first.txt; \
        echo '{\\\"class\\\": \\\"rate_limit\\\", \\\"message\\\": \\\"used up\\\"}' > $SKEIN_ERROR; exit 1\"]\n\
        [agents.second]\nworker = \"CUSTOM\"\ncommand = [\"sh\", \"-c\", \"cat > told-second.txt\"]\n";
    one.folder.write("flow.yaml", flow).write("skein.toml", config);
    let nobody = "[agents.first]\nworker = \"CUSTOM\"\ncommand = [\"/nowhere\"]\n[agents.second]\nworker = \"CUSTOM\"\n\
        command = [\"/nowhere\"]\n";
    two.folder.write("flow.yaml", flow).write("skein.toml", nobody);
    let first = one.json("run flow.yaml --record tape", 0);
    assert_eq!(first["recorded"]["attempts"], 2, "{first}");
    assert!(one.read("told-second.txt").contains("Another agent, first, worked on this before you"));
    let again = two.json(&format!("run flow.yaml {}", from(&one)), 0);
    let events = two.events(again["run_id"].as_str().unwrap());
    let ends: Vec<&Value> = events.iter().filter_map(|event| event["event"].get("attempt_ended")).collect();
    assert_eq!(ends[0]["end"]["handed_over"]["to"], "second", "{ends:?}");
    assert_eq!(ends[1]["by"], "second");
    assert_eq!(
        two.read("told-second.txt"),
        one.read("told-second.txt")
            .replace(
                &fs::canonicalize(one.path("")).unwrap().display().to_string(),
                &fs::canonicalize(two.path("")).unwrap().display().to_string(),
            )
            .replace(first["run_id"].as_str().unwrap(), again["run_id"].as_str().unwrap())
    );
}

/// Loops, retries, calls, items and parallel steps, in all formats: the same steps end in the same way.
#[test]
fn every_format_is_recorded_and_replayed() {
    let flows = [
        ("agentcore", "second-try.yaml"),
        ("agentcore", "assemble.yaml"),
        ("aip15", "ship-order --param things=[\"mug\",\"pen\"] --param to=harbour"),
        ("ioa", "bread.yaml"),
        ("ioa", "trip.yaml"),
        ("swdl", "chart.yaml"),
    ];
    for (format, flow) in flows {
        let (one, two) = (Project::new(), Project::new());
        let examples = repository().join("examples").join(format).join("run");
        for project in [&one, &two] {
            for (path, bytes) in files(&examples) {
                let to = project.path("").join(&path);
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                fs::write(&to, bytes).unwrap();
                // In the replay, none of its programs can be started.
                if std::ptr::eq(project, &one) {
                    fs::copy(examples.join(&path), &to).unwrap();
                }
            }
            fs::create_dir_all(project.path("shelves")).unwrap();
            project.folder.write("shelves/mug", "5\n").write("shelves/pen", "2\n");
        }
        let first = one.skein(&format!("run {flow} --record tape --format json"));
        let again = two.skein(&format!("run {flow} {} --format json", from(&one)));
        assert_eq!(first.code, again.code, "{format}/{flow}: {}{}", again.out, again.err);
        assert!(matches!(first.code, 0 | 4), "{format}/{flow}: {}{}", first.out, first.err);
        let told = |text: &str| -> (Value, Vec<Value>) {
            let result: Value = serde_json::from_str(text).unwrap();
            let step = |step: &Value| json!([step["path"], step["status"], step["attempts"], step["outputs"]]);
            let steps = result["steps"].as_array().unwrap().iter().map(step).collect();
            (json!([result["status"], result["outputs"], result["replayed"]["unasked"]]), steps)
        };
        let ((mut before, steps), (now, others)) = (told(&first.out), told(&again.out));
        before[2] = json!([]);
        assert_eq!((before, steps), (now, others), "{format}/{flow}");
    }
}

/// In a repository, files that git ignores are not recorded, except the outputs of the step.
#[test]
fn what_git_ignores_is_not_recorded() {
    let project = taped();
    let git = std::process::Command::new("git").args(["init", "-q"]).current_dir(project.path("")).status();
    assert!(git.unwrap().success(), "the test needs git");
    project.folder.write(".gitignore", "deep\nmade.txt\n.skein\n");
    project.json("run flow.yaml --record tape", 0);
    let recorded = files(&project.path("tape/steps/make/main-1.1.1.files"));
    let names: Vec<String> = recorded.keys().map(|path| path.display().to_string()).collect();
    assert_eq!(names, ["made.txt", "where.txt"]);
}

#[test]
fn what_is_too_large_is_told() {
    let project = Project::new();
    let flow = "name: large\nversion: \"1\"\ntimeout: 10m\nsteps:\n  grow:\n    worker: CUSTOM\n    capabilities: [READ, EDIT]\n    \
        instructions: truncate -s 17M large.bin\n";
    project.folder.write("flow.yaml", flow);
    let told = project.ends("run flow.yaml --record tape", 4);
    assert!(told.contains("recorded incompletely: `large.bin` is larger than 16 MiB"), "{told}");
    let told = project.ends("run flow.yaml --replay tape", 4);
    assert!(told.contains("`grow` was not recorded completely"), "{told}");
}

#[test]
fn only_a_recording_is_replayed_and_only_a_folder_of_its_own_is_one() {
    let project = taped();
    let told = project.ends("run flow.yaml --replay nowhere", 5);
    assert!(told.contains("is not a recording"), "{told}");
    fs::create_dir(project.path("mine")).unwrap();
    project.folder.write("mine/notes.txt", "do not lose this");
    let told = project.ends("run flow.yaml --record mine", 5);
    assert!(told.contains("is not empty and not a recording"), "{told}");
    assert_eq!(project.read("mine/notes.txt"), "do not lose this");
    project.ends("run flow.yaml --record a --replay b", 2);
}

/// An hour between two attempts takes no time in a replay.
#[test]
fn pauses_are_not_waited_for() {
    let (one, two) = (Project::new(), Project::new());
    let flow = |pause: &str| {
        format!(
            "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {{name: again}}\nspec:\n  description: Tries again.\n  \
             domainsInvolved: [editorial]\n  timeout: 5h\n  failurePolicy: abort\n  steps:\n    - {{name: once, agent: clumsy, \
             action: Do it., timeout: 4h, retryPolicy: {{maxRetries: 2, backoff: constant, initialDelay: {pause}}}}}\n"
        )
    };
    let clumsy = "[agents.clumsy]\nworker = \"CUSTOM\"\n\
        command = [\"sh\", \"-c\", \"test -e there || { touch there; exit 1; }\"]\n";
    one.folder.write("skein.toml", clumsy);
    two.folder.write("skein.toml", clumsy);
    one.folder.write("flow.yaml", flow("1s"));
    two.folder.write("flow.yaml", flow("1h"));
    one.json("run flow.yaml --record tape", 0);
    let again = two.json(&format!("run flow.yaml {}", from(&one)), 0);
    assert_eq!(again["steps"][0]["attempts"], 2, "{again}");
}

/// A recording comes with a repository, and anyone may have written it.
#[test]
fn a_recording_writes_nothing_but_what_a_step_could() {
    let (one, two) = (taped(), taped());
    one.json("run flow.yaml --record tape", 0);
    let entry = one.path("tape/steps/make/main-1.1.1.json");
    let recorded = fs::read_to_string(&entry).unwrap();
    for evil in [".git/hooks/pre-commit", ".skein/skein.db", "../outside", "/etc/passwd"] {
        fs::write(&entry, recorded.replace("where.txt", evil)).unwrap();
        let told = two.ends(&format!("run flow.yaml {}", from(&one)), 4);
        assert!(told.contains(evil), "{told}");
    }
    assert!(!two.path(".git/hooks/pre-commit").exists() && !two.path("../outside").exists());
}
