//! Approvals and denials before a step: classes, policies, quorums and the governance of IOA, as seen in runs.

use std::{fs, path::Path};

use serde_json::Value;

use crate::{
    authority::{NOBODY, another_user},
    catalog::{driver, tool, workflow},
    kept::Project,
    session::repository,
};

/// A project with one step, which writes a file by a tool with these fields.
fn project(step: &str, of_tool: &str) -> Project {
    let project = Project::new();
    let more = format!("mutates: [\"workspace:out\"]\n{of_tool}");
    project.folder.write(".tools/files.write/TOOL.md", tool("files.write", &more));
    let about = "kind: builtin\nimplements: [{ tool: files.write }]\n";
    project.folder.write(".drivers/own/DRIVER.md", driver("own", about));
    let inputs = "inputs: { path: out.txt, text: done }";
    let step = format!("  - {{ id: write, kind: tool, tool: files.write, {inputs}{step} }}\n");
    project.folder.write(".workflows/one/WORKFLOW.md", workflow("one", &step));
    project
}

fn rule(more: &str) -> String {
    format!("---\nschema: agentgovernance/v1\ndoctype: policy\nslug: writing\nversion: 1.0.0\n{more}---\n")
}

/// The one step of a plan.
fn planned(project: &Project) -> Value {
    let plan = project.json("plan one", 0);
    plan["batches"][0]["steps"][0].clone()
}

/// Lets another user of this system decide about a run while its owner resumes it. Returns the exit status of the
/// owner's process, or `None` if the tests may not act as another user.
fn by_another(project: &Project, run: &str, line: &str) -> Option<Option<i32>> {
    let going = project.begin(&format!("resume {run} --format jsonl"));
    let Some(done) = another_user(project, NOBODY, NOBODY, line) else {
        going.signal(rustix::process::Signal::KILL);
        going.end();
        return None;
    };
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    Some(going.end().0)
}

fn step_of(result: &Value, path: &str) -> Value {
    let steps = result["steps"].as_array().expect("it is a list");
    steps.iter().find(|step| step["path"] == path).expect("it is there").clone()
}

#[test]
fn a_policy_that_denies_fails_the_step() {
    let project = project(", approval: \"policy:writing\"", "approval: on-mutate\n");
    project.folder.write(".policies/writing/POLICY.md", rule("match: { action: tool.call }\ndecision: deny\n"));
    let step = planned(&project);
    assert_eq!(step["denied"], "the policy `writing` denies it");
    assert_eq!((&step["ruling"]["class"], &step["ruling"]["from"]), (&"policy:writing".into(), &"the step".into()));
    let result = project.json("run one", 4);
    let error = &step_of(&result, "write")["error"];
    assert_eq!((&error["class"], &error["code"]), (&"governance".into(), &"policy_denied".into()));
    assert_eq!(error["message"], "the policy `writing` denies it");
    assert!(!project.path("out.txt").exists(), "it did not start");
}

#[test]
fn grants_are_for_whom_they_name() {
    let project = project(", approval: \"policy:writing\"", "approval: on-mutate\n");
    let grants = |more: &str| {
        format!(
            "---\nschema: policy/v1\nid: \"@acme/writing\"\ngrants:\n  - principal: \"role://scribe\"\n    \
             actions: [{{ action: \"tool:files.*\", scope: \"workspace:*\" }}]\n{more}---\n"
        )
    };
    project.folder.write(".policies/w/POLICY.md", grants(""));
    project.folder.write("skein.toml", "[roles]\nscribe = [\"nobody-here\"]\n");
    assert!(planned(&project)["denied"].as_str().unwrap().contains("does not grant tool:files.write to"));
    project.folder.write("skein.toml", "[roles]\nscribe = [\"*\"]\n");
    let step = planned(&project);
    assert_eq!((&step["denied"], &step["asks_first"]), (&Value::Null, &serde_json::json!([])), "the tool asks anyone");
    let over = "    granted_at: 2020-01-01T00:00:00Z\n    ttl_seconds: 60\n";
    project.folder.write(".policies/w/POLICY.md", grants(over));
    project.ends("run one", 4);
}

#[test]
fn an_escalation_is_for_its_role() {
    let project = project(", approval: \"policy:writing\"", "approval: on-mutate\n");
    let up = "match: { action: \"tool.*\", subject: \"files.*\" }\ndecision: escalate\nsigners: [{ role: lead }]\n";
    project.folder.write(".policies/writing/POLICY.md", rule(up));
    project.folder.write("skein.toml", "[roles]\nlead = [\"*\"]\n");
    let run = project.left("one");
    project.folder.write("skein.toml", "[roles]\nlead = [\"nobody-here\"]\n");
    let shown = project.ends(&format!("runs {run}"), 0);
    assert!(
        shown.contains("held for governance: the policy `writing` escalates it; the role lead may release it"),
        "{shown}"
    );
    let no = project.ends(&format!("approve {run}"), 5);
    assert!(no.contains("needs the role `lead`"), "{no}");
    project.folder.write("skein.toml", "[roles]\nlead = [\"*\"]\n");
    project.ends(&format!("approve {run}"), 0);
    assert_eq!(project.json(&format!("resume {run}"), 0)["status"], "succeeded");
    assert_eq!(project.read("out.txt"), "done");
}

#[test]
fn a_quorum_needs_different_people() {
    let project = project(", approval: \"policy:writing\"", "approval: on-mutate\n");
    let two = "match: { action: tool.call }\ndecision: require-approval\nsigners: [{ role: legal }]\nquorum: 2\n";
    project.folder.write(".policies/writing/POLICY.md", rule(two));
    project.folder.write("skein.toml", "[roles]\nlegal = [\"*\"]\n[approval]\ngroup = \"65534\"\n");
    assert!(project.ends("plan one", 0).contains("asks 2 of role legal before it starts"));
    let run = project.left("one");
    let said = project.json(&format!("approve {run}"), 0);
    assert_eq!(said["approvals"], serde_json::json!({"given": 1, "needed": 2}), "{said}");
    assert_eq!(said["status"], "waiting");
    let again = project.ends(&format!("approve {run}"), 5);
    assert!(again.contains("already approved it") && again.contains("1 of 2 approvals"), "{again}");
    assert!(project.ends(&format!("runs {run}"), 0).contains("(1 of 2 approvals)"));
    assert!(!project.path("out.txt").exists());
    let Some(ended) = by_another(&project, &run, &format!("approve {run} --reason fine")) else { return };
    assert_eq!((ended, project.status(&run).as_str()), (Some(0), "succeeded"));
    assert_eq!(project.read("out.txt"), "done");
    let events = project.events(&run);
    let by = |name: &str| {
        let found = events.iter().find_map(|event| event["event"].get(name)).expect("it was said");
        found["by"].as_str().unwrap().to_owned()
    };
    assert_ne!(by("approved"), by("decided"));
}

#[test]
fn one_of_several_rejects_for_all() {
    let project = Project::new();
    let gate = "workflow: { id: ship, name: Ship }\nstages:\n  - id: agree\n    name: Agree\n    type: gate\n    \
                gate: { kind: manual_approval, message: Ship? }\n    x-skein: { quorum: 2 }\n";
    project.folder.write("ship.yaml", gate).write("skein.toml", "[approval]\ngroup = \"65534\"\n");
    assert!(project.ends("plan ship.yaml", 0).contains("waits for 2 people to approve"));
    let run = project.left("ship.yaml");
    let said = project.ends(&format!("approve {run}"), 0);
    assert!(said.contains("1 of 2 approvals, more approvals are needed"), "{said}");
    let Some(ended) = by_another(&project, &run, &format!("reject {run}")) else { return };
    assert_eq!((ended, project.status(&run).as_str()), (Some(4), "failed"));
}

#[test]
fn a_policy_that_is_not_there_is_told() {
    let project = project(", approval: \"policy:wrting\"", "approval: on-mutate\n");
    let warned = project.ends("validate .workflows/one", 0);
    assert!(warned.contains("SK0702") && warned.contains(".policies/ID/POLICY.md"), "{warned}");
    let refused = project.ends("run one", 5);
    assert!(refused.contains("there is no policy `wrting`, which the step requires"), "{refused}");
    project.folder.write(".policies/writing/POLICY.md", rule("match: { action: tool.call }\ndecision: allow\n"));
    let wrong = project.ends("validate .workflows/one", 3);
    assert!(wrong.contains("SK0701") && wrong.contains("did you mean `writing`?"), "{wrong}");
    // The same for a policy that the project requires, with its position.
    project.folder.write("skein.toml", "[approval]\nat_least = \"policy:writin\"\n");
    let wrong = project.ends("validate gated.yaml", 3);
    assert!(wrong.contains("skein.toml:2:") && wrong.contains("did you mean `writing`?"), "{wrong}");
}

#[test]
fn a_project_asks_at_least_so_much_whatever_the_format() {
    let project = Project::new();
    let config = project.read("skein.toml");
    let asks = |class: &str| format!("{config}\n[approval]\nat_least = \"{class}\"\n");
    project.folder.write("skein.toml", asks("always"));
    let run = project.left("gated.yaml");
    let held = project.ends(&format!("runs {run}"), 0);
    assert!(held.contains("held for approval: somebody is asked every time"), "{held}");
    assert_eq!(project.read("done.txt"), "", "nothing started");
    let plan = project.ends("plan gated.yaml", 0);
    assert!(plan.contains("approval `always`, said by skein.toml: somebody is asked every time"), "{plan}");
    project.folder.write("skein.toml", asks("on-mutate"));
    let plan = project.ends("plan gated.yaml", 0);
    assert!(plan.contains("approval `on-mutate`, said by skein.toml: it may change something"), "{plan}");
    let reads = asks("on-mutate").replace("[agents.writer]", "[agents.writer]\ncapabilities = [\"READ\"]");
    project.folder.write("skein.toml", reads);
    let plan = project.ends("plan gated.yaml", 0);
    assert!(plan.contains("said by skein.toml: it changes nothing") && !plan.contains("before it starts"), "{plan}");
    project.folder.write("skein.toml", asks("sometimes"));
    assert!(project.ends("plan gated.yaml", 3).contains("unknown value `sometimes`"));
}

#[test]
fn a_step_cannot_ask_for_less_than_its_tool_or_its_project() {
    let one = project(", approval: auto", "approval: always\n");
    assert!(one.ends("validate .workflows/one", 0).contains("SK0604"));
    assert_eq!(planned(&one)["ruling"]["class"], "always");
    let run = one.left("one");
    assert_eq!(one.status(&run), "waiting");
    let other = project(", approval: on-mutate", "approval: on-mutate\n");
    other.folder.write("skein.toml", "[approval]\nat_least = \"always\"\n");
    let ruling = planned(&other)["ruling"].clone();
    assert_eq!((&ruling["class"], &ruling["from"]), (&"always".into(), &"skein.toml".into()));
}

#[test]
fn files_that_are_wrong_are_refused() {
    let project = project("", "approval: on-mutate\n");
    project.folder.write(".policies/a/POLICY.md", rule("match: { actoin: tool.call }\ndecision: deny\n"));
    let wrong = project.ends("validate .policies/a/POLICY.md", 3);
    assert!(wrong.contains("SK0101") && wrong.contains("did you mean `action`?"), "{wrong}");
    project.folder.write(
        "governance/care.yaml",
        "apiVersion: ioa.dev/v0.2\nkind: Governance\nmetadata: { name: care }\nspec: { domain: art, escalation: { paths: [{ level: 1 }] } }\n",
    );
    let wrong = project.ends("validate governance/care.yaml", 3);
    assert!(wrong.contains("SK0102") && wrong.contains("`role`"), "{wrong}");
    let all = project.ends("validate .", 3);
    assert!(all.contains("POLICY.md") && all.contains("care.yaml"), "{all}");
    let listed = project.ends("catalog", 0);
    assert!(listed.contains("writing") && listed.contains("care"), "{listed}");
}

/// A copy of the example without runs.
fn lent() -> Project {
    let project = Project::new();
    copy(&repository().join("examples/ioa/governed"), &project.folder.0);
    project
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

/// Runs the example past its gate, which is approved.
fn on_its_way(project: &Project) -> String {
    let run = project.left("loan.yaml");
    assert_eq!((project.read("crate.txt"), project.read("insurance.txt")), ("packed\n".into(), "insured\n".into()));
    project.ends(&format!("approve {run} route"), 0);
    run
}

#[test]
fn the_example_of_governance_goes_its_good_way() {
    let project = lent();
    project.ends("validate loan.yaml governance", 0);
    let run = on_its_way(&project);
    assert_eq!(project.json(&format!("resume {run}"), 0)["native_status"], "completed");
    assert_eq!(project.read("handover.txt"), "handed over\n");
}

#[test]
fn what_governance_stops_goes_on_when_somebody_says_so() {
    let project = lent();
    project.folder.write("valuable.txt", "");
    let run = on_its_way(&project);
    let waits = project.json(&format!("resume {run} --no-wait"), 6);
    assert_eq!((&waits["status"], &waits["native_status"]), (&"waiting".into(), &"blocked".into()));
    let shown = project.ends(&format!("runs {run}"), 0);
    assert!(
        shown.contains("a piece of this value may not leave without a decision; the role registrar may release it"),
        "{shown}"
    );
    // A person without the role that the resource names may not approve.
    let config = project.read("skein.toml");
    project.folder.write("skein.toml", config.replace("registrar = [\"*\"]", "registrar = [\"nobody-here\"]"));
    let no = project.ends(&format!("approve {run} handover"), 5);
    assert!(no.contains("needs the role `registrar`"), "{no}");
    project.folder.write("skein.toml", config);
    project.ends(&format!("approve {run} handover"), 0);
    assert_eq!(project.json(&format!("resume {run}"), 0)["status"], "succeeded");
    assert_eq!(project.read("handover.txt"), "handed over\n");
    let told = project.read(&format!(".skein/runs/{run}/telemetry.jsonl"));
    let told = told.lines().filter(|line| line.contains(".governance_escalation_triggered"));
    let told: Vec<&str> = told.collect();
    let [one] = told[..] else { panic!("it is told once: {told:?}") };
    assert!(one.contains("\"handover\"") && one.contains("\"alert\""), "{one}");
}

#[test]
fn what_governance_stops_is_taken_back_when_somebody_says_no() {
    let project = lent();
    project.folder.write("valuable.txt", "");
    let run = on_its_way(&project);
    project.ends(&format!("resume {run} --no-wait"), 6);
    project.ends(&format!("reject {run} handover --reason stays"), 0);
    let result = project.json(&format!("resume {run}"), 4);
    assert_eq!((&result["status"], &result["native_status"]), (&"undone".into(), &"completed".into()));
    for file in ["crate.txt", "insurance.txt", "handover.txt"] {
        assert!(!project.path(file).exists(), "{file} is undone");
    }
}

#[test]
fn access_control_stops_who_may_only_read() {
    let project = lent();
    let config = project.read("skein.toml");
    project.folder.write("skein.toml", config.replace("registrar = [\"*\"]", "registrar = [\"nobody-here\"]"));
    let plan = project.ends("plan loan.yaml", 0);
    assert!(plan.contains("the governance `collection-care` does not let"), "{plan}");
    let run = project.left("loan.yaml");
    assert!(!project.path("crate.txt").exists(), "nothing was done");
    assert!(project.ends(&format!("approve {run}"), 5).contains("needs the role `registrar`"));
}

#[test]
fn a_gate_that_opens_itself_needs_the_permission_of_the_project() {
    let project = Project::new();
    let gate = "workflow: { id: ship, name: Ship }\nstages:\n  - id: agree\n    name: Agree\n    type: gate\n    \
                gate: { kind: manual_approval, message: Ship?, timeout: 1s, on_timeout: auto_approve }\n";
    project.folder.write("ship.yaml", gate);
    let no = project.ends("run ship.yaml", 5);
    assert!(no.contains("allow_auto_approve = true"), "{no}");
    project.folder.write("skein.toml", "allow_auto_approve = true\n");
    assert_eq!(project.json("run ship.yaml", 0)["status"], "succeeded");
}

/// The page shows a project, and its plan is as the page says.
#[test]
fn the_page_on_policies_tells_the_truth() {
    let page = fs::read_to_string(repository().join("docs/policies.md")).unwrap();
    let project = Project::new();
    let mut shown = Vec::new();
    let mut parts = page.split("\n```");
    parts.next();
    for fence in parts.step_by(2) {
        let (info, text) = fence.split_once('\n').expect("a fence has a line of its own");
        match info.split_once("file=") {
            Some((_, file)) => drop(project.folder.write(file, format!("{text}\n"))),
            None => shown.push(text.to_owned()),
        }
    }
    assert_eq!(shown.len(), 1);
    project.ends("validate .workflows .policies .tools", 0);
    let mut lines = shown[0].lines();
    let command = lines.next().and_then(|line| line.strip_prefix("$ skein ")).expect("it is a command");
    let said = project.ends(command, 0);
    let mut rest = said.as_str();
    for line in lines {
        let at = rest.find(line).unwrap_or_else(|| panic!("`{line}` does not follow:\n{said}"));
        rest = &rest[at + line.len()..];
    }
}
