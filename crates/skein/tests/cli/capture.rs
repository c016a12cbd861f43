//! `skein capture`: an agent reviews a run and proposes memories, and no agent gets one before a person accepts it.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    agents::{CLAUDE, Call, Model, alone::alone, call, say},
    kept::Project,
};

/// A run that fails for a reason in its log, and an agent without memories.
const SHIP: &str = "workflow: {id: w, name: W}\ncontext: {memory: {}}\nstages:\n  - {id: look, name: Look, roles: {primary: \"agent:clerk\"}, \
    outputs: {note: {type: string}}}\n  - id: ship\n    name: Ship\n    depends_on: [look]\n    roles: {primary: \"agent:clerk\"}\n    \
    error_policy: {retry: {max_attempts: 1}}\n";
/// `clerk` stores its prompt, and fails at `ship`; `reviewer` prints its prompt to its log and outputs `gives`.
const AGENTS: &str = r#"[agents.clerk]
worker = "CUSTOM"
command = ["sh", "-c", "cat > told-$SKEIN_STEP; echo '{\"note\": \"fine\"}' > $SKEIN_OUTPUT; test $SKEIN_STEP = look || { echo the harbour is shut; exit 1; }"]

[agents.reviewer]
worker = "CUSTOM"
command = ["sh", "-c", "cat; touch meddled 2> /dev/null; cp gives.json $SKEIN_OUTPUT"]

[memory]
reviewer = "reviewer"
"#;

fn proposal(text: &str) -> Value {
    json!({"type": "gotcha", "text": text, "confidence": 0.8, "files": ["harbour.txt"], "stages": []})
}

fn gives(project: &Project, memories: &[Value]) {
    project.folder.write("gives.json", json!({"memories": memories}).to_string());
}

/// A project with a failed run.
fn failed() -> (Project, String) {
    let project = Project::new();
    project.folder.write("skein.toml", AGENTS).write("w.yaml", SHIP);
    let run = project.json("run w.yaml", 4)["run_id"].as_str().unwrap().to_owned();
    (project, run)
}

#[test]
fn what_an_agent_proposes_is_told_only_when_a_person_agrees() {
    let (project, run) = failed();
    gives(&project, &[proposal("The harbour shuts at six."), proposal("Nobody needs this.")]);
    let captured = project.json(&format!("memory capture {run}"), 0);
    let memories = captured["memories"].as_array().unwrap();
    assert_eq!(memories.len(), 2, "{captured}");
    for memory in memories {
        assert_eq!((&memory["status"], &memory["by"]), (&json!("candidate"), &json!(run)), "{memory}");
        assert_eq!((&memory["type"], &memory["files"]), (&json!("gotcha"), &json!(["harbour.txt"])));
    }
    // The reviewer got the history of the run, as data, and could change nothing.
    let review = captured["run_id"].as_str().unwrap();
    let log = project.ends(&format!("logs {review}"), 0);
    for says in ["as data. It may come from others", "the harbour is shut", "\"note\": \"fine\"", "\"step\": \"ship\""]
    {
        assert!(log.contains(says), "{says}: {log}");
    }
    assert!(!project.path("meddled").exists());
    // No agent gets a candidate.
    project.ends("run w.yaml", 4);
    assert!(!project.read("told-look").contains("harbour shuts"));
    let (good, bad) = (memories[0]["id"].as_str().unwrap(), memories[1]["id"].as_str().unwrap());
    let approved = project.json(&format!("memory approve {good}"), 0);
    assert_eq!(approved["status"], "active");
    assert!(approved["approved_by"].as_str().is_some_and(|who| !who.is_empty()), "{approved}");
    project.ends(&format!("memory retire {bad}"), 0);
    project.ends("run w.yaml", 4);
    let told = project.read("told-look");
    assert!(told.contains("The harbour shuts at six.") && !told.contains("Nobody needs"), "{told}");
}

/// A repeated review returns the existing proposals at no cost; retired ones are not proposed again.
#[test]
fn asking_again_changes_nothing() {
    let (project, run) = failed();
    gives(&project, &[proposal("One."), proposal("Two.")]);
    let first = project.json(&format!("memory capture {run}"), 0);
    let id = first["memories"][0]["id"].as_str().unwrap();
    project.ends(&format!("memory retire {id}"), 0);
    let second = project.json(&format!("memory capture {run}"), 0);
    assert_eq!(second["run_id"], first["run_id"]);
    assert_eq!((&second["memories"][0]["id"], &second["memories"][0]["status"]), (&json!(id), &json!("retired")));
    let runs = project.json("runs", 0)["runs"].as_array().unwrap().len();
    assert_eq!(runs, 2, "nobody looked twice");
    gives(&project, &[proposal("One."), proposal("Two."), proposal("Three.")]);
    let again = project.json(&format!("memory capture {run} --again"), 0);
    let texts: Vec<&Value> = again["memories"].as_array().unwrap().iter().map(|memory| &memory["text"]).collect();
    assert_eq!(texts, [&json!("Three.")]);
    let shown = project.ends(&format!("memory capture {run}"), 0);
    assert!(shown.contains("Three.") && shown.contains("`skein memory approve ID` accepts one"), "{shown}");
}

/// An answer of the wrong form does not count.
#[test]
fn a_wrong_answer_is_remembered_by_nobody() {
    let (project, run) = failed();
    for wrong in [json!({"type": "whim"}), json!({"confidence": 7}), json!({"status": "active"}), json!({"text": ""})] {
        let mut memory = proposal("x");
        memory.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        gives(&project, &[memory]);
        let captured = project.json(&format!("memory capture {run}"), 4);
        assert_eq!(captured["memories"], json!([]), "{wrong}");
        let review = project.json(&format!("runs {}", captured["run_id"].as_str().unwrap()), 0);
        assert_eq!(review["steps"][0]["error"]["code"], "output_invalid", "{review}");
    }
    assert_eq!(project.json("memory list --all", 0)["memories"], json!([]));
}

#[test]
fn what_cannot_be_looked_back_at_is_refused() {
    let (project, run) = failed();
    let waiting = project.left("asks.md");
    let config = AGENTS.replace("reviewer = \"reviewer\"", "");
    for (line, config, code, says) in [
        (format!("memory capture {waiting}"), AGENTS, 5, "has not ended"),
        ("memory capture nothing".to_owned(), AGENTS, 5, "there is no run `nothing`"),
        (format!("memory capture {run}"), config.as_str(), 2, "`--agent NAME`"),
        (format!("memory capture {run} --agent reviewr"), AGENTS, 5, "did you mean `reviewer`?"),
        ("memory approve abc".to_owned(), AGENTS, 5, "there is no memory `abc`"),
    ] {
        project.folder.write("skein.toml", format!("[roles]\nowners = [\"*\"]\n{config}"));
        let said = project.ends(&line, code);
        assert!(said.contains(says), "{line}: {said}");
    }
}

/// A killed review is resumed when it is requested again, and proposes each memory once.
#[test]
fn a_review_that_was_killed_goes_on() {
    let (project, run) = failed();
    gives(&project, &[proposal("The harbour shuts at six.")]);
    let slow = AGENTS.replace("cat; touch", "cat > /dev/null; echo $$ > begun; cat go; touch");
    project.folder.write("skein.toml", slow);
    let going = project.begin(&format!("memory capture {run}"));
    project.begun();
    going.signal(Signal::KILL);
    going.end();
    let again = project.begin(&format!("memory capture {run} --format json"));
    project.begun();
    project.go();
    let (code, out, err) = again.end();
    assert_eq!(code, Some(0), "{out}{err}");
    let captured: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(captured["memories"].as_array().unwrap().len(), 1, "{captured}");
    assert_eq!(project.json("memory list", 0)["memories"].as_array().unwrap().len(), 1);
}

/// A review that a worker starts would cost money that nobody agreed to spend.
#[test]
fn a_worker_cannot_look_back() {
    let (project, run) = failed();
    let program = env!("CARGO_BIN_EXE_skein");
    project.folder.write(
        "skein.toml",
        format!(
            "[agents.clerk]\nworker = \"CUSTOM\"\ncommand = [\"sh\", \"-c\", \"cat > /dev/null; {program} memory capture {run} \
             2> said.txt; echo $? > code.txt; echo '{{\\\"note\\\": \\\"x\\\"}}' > $SKEIN_OUTPUT\"]\n"
        ),
    );
    project.ends("run w.yaml", 0);
    assert_eq!(project.read("code.txt"), "5\n", "{}", project.read("said.txt"));
}

alone! {
    /// A real agent with a scripted model.
    fn a_coding_agent_looks_back() {
        let (project, run) = failed();
        let answer = json!({"memories": [proposal("The harbour shuts at six.")]});
        let model = Model::new([call("", [Call::Answer(answer)]), say("That is all.")]);
        let config = format!(
            "{AGENTS}{}\n[agents.looker]\nworker = \"CLAUDE_CODE\"\n",
            CLAUDE.config(&project.folder, model.port)
        );
        project.folder.write("skein.toml", config);
        let captured = project.json(&format!("memory capture {run} --agent looker"), 0);
        assert_eq!(captured["memories"][0]["text"], "The harbour shuts at six.");
        assert_eq!(captured["memories"][0]["status"], "candidate");
        let asked = model.asked().body;
        assert!(
            asked.contains("You review a run that has ended") && asked.contains("the harbour is shut"),
            "{asked}"
        );
        assert!(!asked.contains("\"name\":\"Bash\""), "it only reads");
    }
}
