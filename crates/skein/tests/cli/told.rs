//! Prompts of agents: outputs of earlier steps, context modules, memories and skills.

use serde_json::Value;

use crate::kept::Project;

/// Each stage stores its prompt in `prompts/STAGE`, and outputs the content of the file `gives/STAGE`.
const AGENT: &str = "[agents.clerk]\nworker = \"CUSTOM\"\ncapabilities = [\"READ\", \"EDIT\"]\n\
    command = [\"sh\", \"-c\", \"mkdir -p prompts; cat > prompts/$SKEIN_STEP; echo at work on $SKEIN_STEP; \
    cp gives/$SKEIN_STEP $SKEIN_OUTPUT 2> /dev/null || true\"]\ninstructions = \"You are the clerk.\"\n";
/// Writes a summary if asked for one with the output in the prompt, and fails if the file `mute` exists. A summary step
/// only reads, so its prompt is in its log.
const SUMMER: &str = "[agents.summer]\nworker = \"CUSTOM\"\n\
    command = [\"sh\", \"-c\", \"prompt=$(cat); case $prompt in *Three\\\\ points*) test ! -e mute || exit 1; \
    printf %s \\\"$prompt\\\" >&2; echo all in three points;; *) cp gives/find $SKEIN_OUTPUT;; esac\"]\n";

fn project(workflow: &str) -> Project {
    let project = Project::new();
    project.folder.write("skein.toml", format!("{AGENT}{SUMMER}"));
    project.folder.write("w.yaml", workflow);
    project
}

const FIND: &str = "workflow: {id: w, name: W}\nstages:\n  - id: find\n    name: Find\n    \
    roles: {primary: \"agent:clerk\"}\n    outputs:\n      note: {type: string}\n      risks: {type: \"array<string>\"}\n    \
    handoff: HANDOFF\n  - id: write\n    name: Write\n    depends_on: [find]\n    roles:\n      primary:\n        \
    artifact: \"agent:clerk\"\n        instructions: Write it down.\n    inputs:\n      \
    note: {type: string, source: \"${{ stages.find.outputs.note }}\"}\n      \
    risks: {type: \"array<string>\", source: \"${{ stages.find.outputs.risks }}\"}\n      \
    who: {type: string, source: \"Ada\"}\n";
const GIVES: &str = r#"{"note": "Mind\nthe gap", "risks": ["rain", "wind"]}"#;

fn handed(handoff: &str) -> Project {
    let project = project(&FIND.replace("HANDOFF", handoff));
    project.folder.write("gives/find", GIVES);
    project
}

#[test]
fn what_a_stage_gives_is_told_in_the_form_it_says() {
    let structured = handed("{format: structured}");
    structured.ends("run w.yaml", 0);
    let told = structured.read("prompts/write");
    assert!(told.contains("\"risks\": [\n") && told.contains("\"who\": \"Ada\""), "{told}");
    assert!(!told.contains("an output of `find`") && !told.contains("The log of"), "{told}");

    let markdown = handed("{format: markdown}");
    let run = markdown.json("run w.yaml", 0);
    let told = markdown.read("prompts/write");
    assert!(told.contains("`risks`, an output of `find`, as data."), "{told}");
    assert!(told.contains("```markdown\n- rain\n- wind\n```"), "{told}");
    assert!(told.contains("```markdown\nMind\nthe gap\n```"), "{told}");
    assert!(told.contains("```json\n{\n  \"who\": \"Ada\"\n}\n```"), "{told}");
    // The stored value is unchanged, regardless of the form.
    assert_eq!(run["steps"][0]["outputs"]["risks"], serde_json::json!(["rain", "wind"]));

    let raw = handed("{format: raw}");
    raw.ends("run w.yaml", 0);
    let told = raw.read("prompts/write");
    assert!(told.contains("```text\nMind\nthe gap\n```"), "{told}");
    assert!(told.contains("```text\n[\"rain\",\"wind\"]\n```"), "{told}");
}

#[test]
fn a_log_is_handed_on_where_that_is_asked() {
    let project = handed("{include_run_log: true}");
    project.ends("run w.yaml", 0);
    let told = project.read("prompts/write");
    let line = told.lines().find(|line| line.contains("The log of `find` is in the file")).expect(&told);
    let path = line.split("is in the file ").nth(1).and_then(|rest| rest.split(';').next()).unwrap();
    assert_eq!(std::fs::read_to_string(path).unwrap(), "at work on find\n");
}

const SUMMED: &str = "{summary_prompt: \"Three points for the writer.\"}";

#[test]
fn a_summary_is_made_of_what_was_given_and_told_to_those_who_follow() {
    let project = project(&FIND.replace("HANDOFF", SUMMED).replacen("agent:clerk", "agent:summer", 1));
    project.folder.write("gives/find", GIVES);
    let run = project.json("run w.yaml", 0)["run_id"].as_str().unwrap().to_owned();
    let log = format!(".skein/runs/{run}/attempts/0.0.1.1.summary.1/log");
    let asked = project.read(&log);
    assert!(asked.contains("Three points for the writer.\n\nThe result of the work, as data"), "{asked}");
    assert!(asked.contains("\"rain\""), "{asked}");
    assert!(asked.contains("Answer with the summary alone"), "{asked}");
    let told = project.read("prompts/write");
    assert!(told.contains("Summary of the result of `find`, as data"), "{told}");
    assert!(told.contains("```text\nall in three points\n```"), "{told}");
}

#[test]
fn a_summary_that_fails_changes_nothing_else() {
    let project = project(&FIND.replace("HANDOFF", SUMMED).replacen("agent:clerk", "agent:summer", 1));
    project.folder.write("gives/find", GIVES).write("mute", "");
    let run = project.json("run w.yaml", 0);
    assert_eq!(run["steps"][0]["status"], "succeeded");
    assert!(!project.read("prompts/write").contains("Summary of the result"));
}

const CONTEXT: &str = "workflow: {id: w, name: W}\ncontext:\n  global_modules: [\"ctx:rules\", \"ctx:gone\"]\n  \
    memory: {min_confidence: 0.6, categories: [decision, gotcha], max_tokens: 60}\nstages:\n  - id: plan\n    name: Plan\n    \
    roles:\n      primary: {artifact: \"agent:clerk\", instructions: Plan it.}\n      \
    tools: [\"skill:tides\", \"skill:none\"]\n    context: {modules: [\"ctx:api\", \"ctx:rules\"]}\n  - id: ship\n    name: Ship\n    \
    depends_on: [plan]\n    roles: {primary: \"agent:clerk\"}\n    context: {memory: {max_tokens: 4}}\n";

fn contextual() -> Project {
    let project = project(CONTEXT);
    project.folder.write("context/rules.md", "Write plainly.\n");
    project.folder.write(
        ".claude/context/api.md",
        "---\nname: api\nmax_tokens: 5\nselectors:\n  workflow_stages: [plan]\n---\nFirst part.\n\nSecond part, too long.\n",
    );
    project.folder.write("skills/tides/SKILL.md", "---\nname: tides\n---\nLook at the table.\n");
    project
}

#[test]
fn modules_are_told_within_their_budgets_and_the_log_says_what_is_left_out() {
    let project = contextual();
    let run = project.json("run w.yaml", 0)["run_id"].as_str().unwrap().to_owned();
    let told = project.read("prompts/plan");
    let skill = format!(
        "You are the clerk.\n\n# Skill: tides\n\nIts files are in {}.\n\nLook at the table.\n\n",
        project.path("skills/tides").display()
    );
    assert!(told.starts_with(&skill), "{told}");
    assert!(
        told.contains("\n\n# Context Pack\n\n## rules\n\nWrite plainly.\n\n## api\n\nFirst part.\n\nPlan it."),
        "{told}"
    );
    assert_eq!(told.matches("Write plainly.").count(), 1, "a module that is named twice is told once");
    let log = project.ends(&format!("logs {run} plan"), 0);
    for says in [
        "[skein: `skill:none` is not configured here, so the agent gets no instructions for it]",
        "[skein: context module `ctx:gone` not found; it is left out]",
        "[skein: the context module `ctx:api` has about 9 tokens and is cut to 3]",
    ] {
        assert!(log.contains(says), "{says}: {log}");
    }
    let told = project.read("prompts/ship");
    assert!(told.contains("## rules") && !told.contains("## api"), "{told}");
}

/// The context of a run is fixed when it starts.
#[test]
fn a_module_that_changes_changes_no_run() {
    let project = contextual();
    let gate =
        "  - {id: agree, name: Agree, type: gate, gate: {message: \"Yes?\"}}\n  - id: plan\n    depends_on: [agree]\n";
    project.folder.write("w.yaml", CONTEXT.replacen("  - id: plan\n", gate, 1));
    let run = project.left("w.yaml");
    project.folder.write("context/rules.md", "Write obscurely.\n");
    project.ends(&format!("approve {run} agree"), 0);
    project.ends(&format!("resume {run}"), 0);
    let told = project.read("prompts/plan");
    assert!(told.contains("Write plainly.") && !told.contains("obscurely"), "{told}");
}

#[test]
fn what_is_remembered_is_told_by_confidence_within_the_budget() {
    let project = contextual();
    let add =
        |line: &str| -> String { project.json(&format!("memory add {line}"), 0)["id"].as_str().unwrap().to_owned() };
    add("--type gotcha --confidence 0.7 The_tide_is_late");
    let sure = add("--type decision --confidence 0.9 Use_the_old_harbour");
    let gone = add("--type gotcha --confidence 0.95 It_never_rains");
    add("--type learning --confidence 0.99 Of_another_kind");
    add("--type gotcha --confidence 0.3 Nobody_is_sure");
    add("--type gotcha --confidence 0.9 --scope elsewhere Of_another_project");
    project.ends(&format!("memory retire {gone}"), 0);
    let run = project.json("run w.yaml", 0)["run_id"].as_str().unwrap().to_owned();
    let told = project.read("prompts/plan");
    let pack = "## Decisions\n\n- Use_the_old_harbour\n\n## Gotchas\n\n- The_tide_is_late [medium confidence]\n\n";
    assert!(told.contains(pack), "{told}");
    for not in ["It_never_rains", "Of_another_kind", "Nobody_is_sure", "Of_another_project"] {
        assert!(!told.contains(not), "{not}: {told}");
    }
    // The stage's own budget has no room for either.
    assert!(!project.read("prompts/ship").contains("harbour"));
    let log = project.ends(&format!("logs {run} ship"), 0);
    assert!(log.contains("2 memories do not fit into the budget of the memory selection"), "{log}");

    let listed = project.json("memory list", 0);
    let listed: Vec<&Value> = listed["memories"].as_array().unwrap().iter().collect();
    assert_eq!(listed.len(), 5, "those that are retired are not listed: {listed:?}");
    assert_eq!(project.json("memory list --all", 0)["memories"].as_array().unwrap().len(), 6);
    assert_eq!(project.json("memory list --type decision", 0)["memories"][0]["id"], sure.as_str());
    let shown = project.json(&format!("memory show {}", &sure[..6]), 0);
    assert_eq!((shown["text"].as_str(), shown["status"].as_str()), (Some("Use_the_old_harbour"), Some("active")));
}

#[test]
fn what_cannot_be_remembered_is_refused() {
    let project = contextual();
    for (line, code, says) in [
        ("memory add --type gotcha --confidence 1.5 x", 2, "from 0 to 1"),
        ("memory add --type whim x", 2, "possible values"),
        ("memory show abc", 5, "there is no memory `abc`"),
        ("memory retire abc", 5, "there is no memory `abc`"),
    ] {
        let shown = project.ends(line, code);
        assert!(shown.contains(says), "{line}: {shown}");
    }
    let empty = crate::session::run(project.command("memory add --type gotcha").arg("  "));
    assert_eq!((empty.code, empty.err.contains("must not be empty")), (2, true), "{}", empty.err);
    let long = crate::session::run(project.command("memory add --type gotcha").arg("x".repeat(5000)));
    assert_eq!((long.code, long.err.contains("at most 4096 bytes")), (2, true), "{}", long.err);
}

/// Memories that agents write themselves would reach later agents as if a person had written them.
#[test]
fn a_worker_cannot_remember() {
    let project = project(CONTEXT);
    let program = env!("CARGO_BIN_EXE_skein");
    project.folder.write(
        "skein.toml",
        format!(
            "[agents.clerk]\nworker = \"CUSTOM\"\ncommand = [\"sh\", \"-c\", \"cat > /dev/null; \
             {program} memory add --type gotcha Obey_me 2> said.txt; echo $? > code.txt\"]\n"
        ),
    );
    project.ends("run w.yaml", 0);
    assert_eq!(project.read("code.txt"), "5\n", "{}", project.read("said.txt"));
    assert_eq!(project.json("memory list", 0)["memories"], serde_json::json!([]));
}

/// The overridden values are the ones that run, and the plan shows them and where they are set.
#[test]
fn overrides_are_planned_and_run() {
    let project = handed("{format: structured}");
    project.folder.write(
        ".skillmeat-workflow-overrides.yaml",
        "overrides:\n  w:\n    stages:\n      write:\n        roles:\n          primary:\n            \
         instructions: Write it in verse.\n            model: small\n    context:\n      \
         global_modules: [\"ctx:rules\"]\n    config: {timeout: 5m}\n",
    );
    project.folder.write("context/rules.md", "Rhyme.\n");
    let plan = project.ends("plan w.yaml", 0);
    for line in [
        "Overridden    config is {\"timeout\":\"5m\"} [at .skillmeat-workflow-overrides.yaml:11]",
        "Overridden    context is {\"global_modules\":[\"ctx:rules\"]} [at .skillmeat-workflow-overrides.yaml:10]",
        "Overridden    stages.write.roles.primary.instructions is \"Write it in verse.\" instead of \"Write it down.\" [at \
         .skillmeat-workflow-overrides.yaml:7]",
        "Overridden    stages.write.roles.primary.model is \"small\" [at .skillmeat-workflow-overrides.yaml:8]",
    ] {
        assert!(plan.contains(line), "{line}:\n{plan}");
    }
    assert!(plan.contains("is given ctx:rules"), "{plan}");
    let json = project.json("plan w.yaml", 0);
    let one = json["overridden"].as_array().unwrap().iter();
    let one: Vec<&Value> = one.filter(|one| one["field"] == "stages.write.roles.primary.instructions").collect();
    assert_eq!(one.len(), 1, "{json}");
    assert_eq!((one[0]["before"].as_str(), one[0]["line"].as_u64()), (Some("Write it down."), Some(7)));
    project.ends("run w.yaml", 0);
    let told = project.read("prompts/write");
    assert!(told.contains("## rules\n\nRhyme.\n\nWrite it in verse."), "{told}");
}
