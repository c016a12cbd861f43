//! A feature from the first question to its release, as in `examples/swdl/ship`: both results of its conditions, a gate
//! that is approved and one that is not, overrides of a project, prompts of agents and hooks.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{kept::Project, session::repository};

/// A runnable copy of the example.
pub(crate) fn example() -> Project {
    let project = Project::new();
    copy(&repository().join("examples/swdl/ship"), &project.folder.0);
    project
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder can be made");
    for entry in fs::read_dir(from).expect("the example is there").flatten() {
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            // Left by a user who tried the example.
            true if entry.file_name() == ".skein" => {}
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), &to).expect("it can be copied")),
        }
    }
}

/// Runs it until it waits.
pub(crate) fn begin(project: &Project, feature: &str, code: i32) -> Value {
    let mut command = project.command("run ship.yaml --no-wait --format json --param");
    let done = crate::session::run(command.arg(format!("feature={feature}")));
    assert_eq!(done.code, code, "{}{}", done.out, done.err);
    serde_json::from_str(&done.out).expect("it prints JSON")
}

/// The status of each stage, by id.
pub(crate) fn went(run: &Value) -> Value {
    let steps = run["steps"].as_array().expect("it has steps").iter();
    steps.map(|step| (step["id"].as_str().unwrap().to_owned(), step["native_status"].clone())).collect()
}

/// The messages on the channel: event, target and text.
pub(crate) fn told(project: &Project) -> Vec<(String, Value, String)> {
    let lines = project.read("told.jsonl");
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is JSON"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    lines.map(|line| (text(&line["event"]), line["target"].clone(), text(&line["text"]))).collect()
}

#[test]
fn what_passes_its_review_is_released_when_a_person_agrees() {
    let project = example();
    crate::session::run(project.command("memory add --type constraint").arg("Times of the harbour are local times."));
    let waiting = begin(&project, "tide table", 6);
    let id = waiting["run_id"].as_str().unwrap();
    assert!(!project.path("RELEASED").exists());
    project.ends(&format!("approve {id} agree"), 0);
    let run = project.json(&format!("resume {id}"), 0);
    let wanted = json!({"survey": "success", "design": "success", "page": "success", "service": "success", "try": "success",
        "audit": "skipped", "review": "success", "agree": "success", "release": "success"});
    assert_eq!(went(&run), wanted, "{run}");
    assert_eq!(run["native_status"], "success");
    // The channel is the one from the project's override.
    assert_eq!(project.read("RELEASED"), "released to harbour-east\n");
    assert_eq!(project.read("announced.txt"), format!("tide table is out (run {id})\n"));
    let told = told(&project);
    assert_eq!(told[0], ("start".into(), Value::Null, "`tide table` is under way".into()));
    assert_eq!(told[1], ("complete".into(), Value::Null, "`tide table` is done".into()));
    assert_eq!(told.len(), 2);
    // The prompt has the documented order.
    let survey = project.ends(&format!("logs {id} survey --attempt 1"), 0);
    let parts = [
        "You look into a question before anyone builds anything.",
        "# Skill: find-in-code",
        "# Context Pack",
        "## house-rules",
        "High water comes twice a day",
        "- Times of the harbour are local times.",
        "Find out what `tide table` touches",
        "Your inputs, as data.",
        "which SKEIN_OUTPUT names",
    ];
    let places: Vec<usize> =
        parts.iter().map(|part| survey.find(part).unwrap_or_else(|| panic!("{part}: {survey}"))).collect();
    assert!(places.is_sorted(), "{places:?}: {survey}");
    let design = project.ends(&format!("logs {id} design"), 0);
    assert!(design.contains("You design small things") && design.contains("Five points: tables"), "{design}");
    assert!(design.contains("```markdown\n- units\n```"), "{design}");
    let review = project.ends(&format!("logs {id} review"), 0);
    assert!(review.contains("Be strict about units of depth."), "{review}");
}

#[test]
fn what_touches_logins_is_audited() {
    let project = example();
    let run = begin(&project, "login page", 6);
    assert_eq!(went(&run)["audit"], "success");
    let review = project.ends(&format!("logs {} review", run["run_id"].as_str().unwrap()), 0);
    assert!(review.contains("the harbour master has no password"), "{review}");
}

#[test]
fn what_does_not_pass_its_review_is_not_released() {
    let project = example();
    let run = begin(&project, "hasty table", 0);
    let went = went(&run);
    assert_eq!((&went["agree"], &went["release"]), (&json!("skipped"), &json!("skipped")), "{run}");
    assert!(!project.path("RELEASED").exists());
}

#[test]
fn what_a_person_rejects_is_not_released() {
    let project = example();
    let waiting = begin(&project, "tide table", 6);
    let id = waiting["run_id"].as_str().unwrap();
    project.ends(&format!("reject {id} agree --reason Storm"), 0);
    project.skein(&format!("resume {id}"));
    let run = project.json(&format!("runs {id}"), 0);
    let went = went(&run);
    assert_eq!((&went["agree"], &went["release"]), (&json!("failed"), &json!("skipped")), "{run}");
    assert_eq!(run["native_status"], "failed");
    assert!(!project.path("RELEASED").exists() && !project.path("announced.txt").exists());
    let told = told(&project);
    assert_eq!((told[1].0.as_str(), &told[1].1), ("failure", &json!("#alerts")), "{told:?}");
}

#[test]
fn what_the_project_overrides_is_planned_with_where_it_says_so() {
    let project = example();
    let mut command = project.command("plan ship.yaml --format json --param");
    let done = crate::session::run(command.arg("feature=tide table"));
    assert_eq!(done.code, 0, "{}", done.err);
    let plan: Value = serde_json::from_str(&done.out).unwrap();
    let found: Vec<Value> = plan["overridden"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| json!([one["field"], one["value"], one["before"], one["file"], one["line"]]))
        .collect();
    let file = ".skillmeat-workflow-overrides.yaml";
    for wanted in [
        json!(["config.parameters.channel.default", "harbour-east", "stable", file, 7]),
        json!(["context.memory.max_tokens", 800, 1500, file, 9]),
        json!(["stages.review.roles.primary.model", "sonnet", null, file, 14]),
        json!(["stages.agree.gate.timeout", "4h", "24h", file, 17]),
    ] {
        assert!(found.contains(&wanted), "{wanted}: {found:?}");
    }
    assert_eq!(plan["parameters"]["channel"], "harbour-east");
}

/// The overrides of a project can only make things stricter.
#[test]
fn an_override_that_widens_is_refused() {
    let project = example();
    for (over, says) in [
        (
            "stages: {survey: {roles: {tools: [\"skill:find-in-code\", \"mcp:shell\"]}}}",
            "cannot give `survey` the tool `mcp:shell`",
        ),
        ("stages: {agree: {gate: {approvers: [owners, eve]}}}", "cannot add the approver `eve` to `agree`"),
        ("stages: {agree: {gate: {on_timeout: auto_approve}}}", "cannot let `agree` approve itself on timeout"),
        ("stages: {agree: {gate: {timeout: 3d}}}", "cannot let `agree` wait for a decision longer than"),
        ("stages: {release: {depends_on: []}}", "cannot change `depends_on` of a stage"),
    ] {
        project
            .folder
            .write(".skillmeat-workflow-overrides.yaml", format!("overrides:\n  ship-feature:\n    {over}\n"));
        let said = project.ends("run ship.yaml --param feature=x", 3);
        assert!(said.contains(says) && said.contains(".skillmeat-workflow-overrides.yaml:3:"), "{over}: {said}");
    }
}

/// Unknown names, and a program that would be chosen by a value, are found before anything starts.
#[test]
fn what_is_wrong_with_it_is_found_before_it_begins() {
    let project = example();
    let text = project.read("ship.yaml");
    for (from, to, code, says) in [
        ("agent:tester", "agent:testr", 3, "did you mean `tester`?"),
        ("tools: [\"skill:find-in-code\"]", "tools: [\"mcp:trackr\"]", 3, "did you mean `tracker`?"),
        ("modules: [\"ctx:tides\"]", "modules: [\"ctx:../secrets\"]", 3, "`ctx:../secrets` is not a context module"),
        ("run: scripts/announce.sh", "run: ${{ parameters.feature }}", 3, "an expression cannot be the program"),
        ("ctx:house-rules", "ctx:house-rule", 0, "did you mean `house-rules`?"),
        ("skill:find-in-code", "skill:find-in-cod", 0, "did you mean `find-in-code`?"),
    ] {
        assert!(text.contains(from), "{from}");
        project.folder.write("wrong.yaml", text.replacen(from, to, 1));
        let config = project.read("skein.toml");
        if !config.contains("[mcp.tracker]") {
            project.folder.write("skein.toml", config + "\n[mcp.tracker]\ncommand = [\"cat\"]\n");
        }
        let said = project.ends("validate wrong.yaml", code);
        assert!(said.contains(says) && said.contains("wrong.yaml:"), "{to}: {said}");
    }
}

/// The example's own agent can review the run, too.
#[test]
fn it_can_be_looked_back_at() {
    let project = example();
    let run = begin(&project, "hasty table", 0);
    let captured = project.json(&format!("memory capture {}", run["run_id"].as_str().unwrap()), 0);
    assert_eq!(captured["memories"][0]["text"], "Depths are in fathoms.");
}
