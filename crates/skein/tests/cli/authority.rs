//! No file that a worker writes extends anyone's permissions: the files that grant something are out of its reach.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use rustix::process::getuid;
use serde_json::Value;

use crate::{
    catalog::{driver, tool, workflow},
    kept::Project,
    session::{Done, as_it_is, run, without_name_spaces, wrapped},
};

/// A workflow of one step that edits, with more lines for the step.
fn flow(more: &str, script: &str) -> String {
    let lines: String = script.lines().map(|line| format!("      {}\n", line.trim())).collect();
    format!(
        "name: f\nversion: \"1\"\ntimeout: 5m\nsteps:\n  it:\n    worker: CUSTOM\n    capabilities: [READ, EDIT]\n{more}    \
         instructions: |\n{lines}"
    )
}

/// The result of the step of a workflow with one step.
fn step_in(system: fn(&Command) -> Command, project: &Project, more: &str, script: &str) -> Value {
    project.folder.write("flow.yaml", flow(more, script));
    let done = run(&mut system(&project.command("run flow.yaml --format json")));
    let result: Value =
        serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {}{}", done.out, done.err));
    result["steps"][0].clone()
}

/// Files that define what runs may do.
const DEFINITIONS: &[&str] = &[
    "skein.toml",
    ".skillmeat-workflow-overrides.yaml",
    "SECRETS.md",
    ".secrets/db/SECRETS.md",
    ".workflows/a.yaml",
    "workflows/a.yaml",
    "workflows/a/WORKFLOW.md",
    "WORKFLOW.md",
    ".tools/a/TOOL.md",
    ".drivers/a/DRIVER.md",
    ".drivers/a/run.sh",
    ".actions/a/ACTION.md",
    ".routines/a/ROUTINE.md",
    ".policies/a/POLICY.md",
    "agents/a.md",
    "agents/a.yaml",
    ".ioa/agents/a.yaml",
    "governance/a.yaml",
    "domains/a.yaml",
    "collection/collection.toml",
    "collection/agents/a.md",
];

/// Files of the same folders that define nothing.
const OTHERS: &[&str] = &["agents/main.py", "workflows/notes.txt", "docs/skein.toml.md", "skills/a/SKILL.md"];

#[test]
fn definitions_that_are_there_cannot_be_changed() {
    let project = Project::new();
    let was = "[agents.writer]\nworker = \"CUSTOM\"\ncommand = [\"true\"]\n";
    project.folder.write("skein.toml", was).write(".tools/a/TOOL.md", "x").write("workflows/a.yaml", "x");
    project.folder.write("agents/a.md", "x").write(".ioa/agents/a.yaml", "x").write("agents/main.py", "x");
    let files = "skein.toml flow.yaml .tools/a/TOOL.md workflows/a.yaml agents/a.md .ioa/agents/a.yaml";
    let script = format!(
        "for f in {files}; do\n(echo x >> $f) 2>/dev/null && exit 3\n(rm -f $f) 2>/dev/null && exit 4\n\
         (mv $f moved) 2>/dev/null && exit 5\ndone\necho y > agents/main.py"
    );
    for more in ["", "    x-skein: { protect: [] }\n", "    x-skein: { protect: [other] }\n"] {
        let step = step_in(as_it_is, &project, more, &script);
        assert_eq!(step["status"], "succeeded", "{more}: {step}");
    }
    assert_eq!((project.read("skein.toml").as_str(), project.read("agents/main.py").as_str()), (was, "y\n"));
}

#[test]
fn definitions_that_a_step_makes_are_found_and_removed() {
    for file in DEFINITIONS {
        let project = Project::new();
        fs::remove_file(project.path("skein.toml")).unwrap();
        let script = format!("mkdir -p $(dirname {file}); echo planted > {file}");
        let step = step_in(as_it_is, &project, "", &script);
        assert_eq!(step["error"]["code"], "protected", "{file}: {step}");
        assert!(step["error"]["message"].as_str().unwrap().contains(file), "{file}: {step}");
        assert!(!project.path(file).exists(), "{file}");
    }
}

#[test]
fn files_beside_definitions_are_free() {
    let project = Project::new();
    let script: String = OTHERS.iter().map(|file| format!("mkdir -p $(dirname {file}); echo x > {file}\n")).collect();
    let step = step_in(as_it_is, &project, "", &script);
    assert_eq!(step["status"], "succeeded", "{step}");
    assert!(OTHERS.iter().all(|file| project.read(file) == "x\n"));
}

/// If nothing can be mounted, a change is found and reverted.
#[test]
fn without_namespaces_changed_definitions_are_put_back() {
    let project = Project::new();
    let was = project.read("skein.toml");
    let script = "echo 'allow_auto_approve = true' > skein.toml; rm flow.yaml; mkdir .tools; echo x > .tools/y";
    let step = step_in(without_name_spaces, &project, "", script);
    assert_eq!(step["error"]["code"], "protected", "{step}");
    assert_eq!(project.read("skein.toml"), was);
    assert!(project.path("flow.yaml").exists() && !project.path(".tools/y").exists(), "{step}");
}

/// A step whose workspace is another folder, or a folder around the project, cannot reach them either.
#[test]
fn definitions_are_protected_from_other_workspaces() {
    let project = Project::new();
    project.folder.write("inner/skein.toml", "writes = [\".\"]\n").write("inner/.git/x", "");
    project.folder.write(
        "inner/flow.yaml",
        flow(
            "",
            "(echo x >> inner/skein.toml) 2>/dev/null && exit 3\n\
        (echo x >> inner/flow.yaml) 2>/dev/null && exit 4\necho x > beside",
        ),
    );
    let mut command = project.command("run flow.yaml --workspace .. --allow-root .. --format json");
    let done = run(command.current_dir(project.path("inner")));
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let below = flow("    workspace: sub\n", "(echo x >> ../skein.toml) 2>/dev/null && exit 3\necho x > ../other");
    project.folder.write("inner/flow.yaml", below).write("inner/sub/x", "");
    let mut command = project.command("run flow.yaml --format json");
    let done = run(command.current_dir(project.path("inner")));
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
}

#[test]
fn a_workflow_that_names_definitions_may_change_them() {
    let project = Project::new();
    let more = "    x-skein: { unprotect: [workflows/new.yaml, .tools/a] }\n";
    project.folder.write(".tools/a/TOOL.md", "old\n").write(".tools/b/TOOL.md", "old\n");
    let script = "mkdir workflows; echo x > workflows/new.yaml; echo new > .tools/a/TOOL.md";
    let step = step_in(as_it_is, &project, more, script);
    assert_eq!(step["status"], "succeeded", "{step}");
    assert_eq!((project.read("workflows/new.yaml"), project.read(".tools/a/TOOL.md")), ("x\n".into(), "new\n".into()));
    let step = step_in(as_it_is, &project, more, "echo new > .tools/b/TOOL.md || true; echo x > workflows/other.yaml");
    assert_eq!(step["error"]["code"], "protected", "{step}");
    assert_eq!(project.read(".tools/b/TOOL.md"), "old\n");
    let plan = project.ends("plan flow.yaml", 0);
    assert!(plan.contains("may change workflows/new.yaml and .tools/a, which Skein otherwise protects"), "{plan}");
    let plan = project.json("plan flow.yaml", 0).to_string();
    assert!(plan.contains("\"unprotects\":[\"workflows/new.yaml\",\".tools/a\"]"), "{plan}");
}

/// The workflow itself names the artifact.
#[test]
fn a_definition_that_is_a_declared_artifact_may_be_written() {
    let project = Project::new();
    let more = "    outputs:\n      - { name: made, path: workflows/made.yaml }\n";
    let step = step_in(as_it_is, &project, more, "mkdir workflows; echo x > workflows/made.yaml");
    assert_eq!(step["status"], "succeeded", "{step}");
    let step = step_in(as_it_is, &project, more, "echo x > workflows/made.yaml; echo x > workflows/more.yaml");
    assert_eq!(step["error"]["code"], "protected", "{step}");
}

/// A step adds to the protected files of its workflow, and an empty list removes nothing.
#[test]
fn an_empty_list_of_a_step_opens_nothing() {
    let project = Project::new();
    project.folder.write("docs/a.md", "as it was\n");
    let script = "(echo x >> docs/a.md) 2>/dev/null && exit 3\n(echo x >> .git/config) 2>/dev/null && exit 4\ntrue";
    project.folder.write(".git/config", "");
    let text = flow("    x-skein: { protect: [] }\n", script);
    project.folder.write("flow.yaml", text.replacen("steps:", "x-skein: { protect: [docs/**] }\nsteps:", 1));
    project.json("run flow.yaml", 0);
}

/// A role that is granted during a run does not count in it, and neither does one that was lost.
#[test]
fn roles_count_that_were_there_when_the_run_began_and_are_still() {
    let project = Project::new();
    let all = project.read("skein.toml");
    let nobody = all.replace("owners = [\"*\"]", "owners = [\"somebody-else\"]");
    for (at_start, later) in [(&nobody, &all), (&all, &nobody)] {
        project.folder.write("skein.toml", at_start);
        let run = project.left("asks.md");
        project.folder.write("skein.toml", later);
        let said = project.ends(&format!("approve {run}"), 5);
        assert!(said.contains("you are `"), "{said}");
        project.folder.write("skein.toml", at_start);
    }
    project.folder.write("skein.toml", &all);
    let run = project.left("asks.md");
    project.ends(&format!("approve {run}"), 0);
}

/// An escalation that names nobody asks the same people again, and the plan says so.
#[test]
fn a_plan_says_who_an_escalation_asks() {
    let project = Project::new();
    let steps = "  - { id: ask, kind: approval, prompt: \"Go on?\", approvers: [{ role: owners }], timeout_ms: 60000, \
        on_timeout: escalate, next: $end }\n";
    project.folder.write("asks.md", workflow("asks", steps));
    let plan = project.ends("plan asks.md", 0);
    assert!(plan.contains("it asks role owners for the same time again, then the run is cancelled"), "{plan}");
    let plan = project.json("plan asks.md", 0).to_string();
    assert!(plan.contains("{\"escalate\":[\"role owners\"]}"), "{plan}");
}

/// After its escalation a gate is open to its earlier approvers, and to nobody else.
#[test]
fn an_escalated_gate_is_not_open_to_everyone() {
    let project = Project::new();
    project.folder.write("skein.toml", "[roles]\nowners = [\"somebody-else\"]\n");
    let steps = "  - { id: ask, kind: approval, prompt: \"Go on?\", approvers: [{ role: owners }], timeout_ms: 5000, \
        on_timeout: escalate, next: $end }\n";
    project.folder.write("asks.md", workflow("asks", steps));
    let going = project.begin("run asks.md --format jsonl");
    let run = going.run();
    going.until("\"escalated\"");
    let said = project.ends(&format!("approve {run}"), 5);
    assert!(said.contains("needs the role `owners`") || said.contains("is over"), "{said}");
    assert_eq!(going.end().0, Some(4));
    assert_eq!(project.status(&run), "cancelled");
}

/// A project with a tool that writes a file and one that sleeps, and a workflow of these steps.
fn with_tools(steps: &str) -> Project {
    let project = Project::new();
    let names = ["files.write", "sleep"];
    let implements: String = names.map(|name| format!("  - {{ tool: {name} }}\n")).concat();
    for name in names {
        project.folder.write(&format!(".tools/{name}/TOOL.md"), tool(name, ""));
    }
    project.folder.write(".drivers/own/DRIVER.md", driver("own", &format!("kind: builtin\nimplements:\n{implements}")));
    let write = "{ id: write, kind: tool, tool: files.write, inputs: { path: made.txt, text: x } }";
    project.folder.write(".workflows/child/WORKFLOW.md", workflow("child", &format!("  - {write}\n")));
    let last = "  - { id: last, kind: tool, tool: sleep, inputs: { ms: 1 } }\n";
    let steps = if steps.contains("compensation") { steps.to_owned() } else { format!("{steps}{last}") };
    project.folder.write(".workflows/one/WORKFLOW.md", workflow("one", &steps.replace("WRITE", write)));
    project
}

/// Every kind of step that is not a tool itself, with `ASKS` in place of its approval class.
const COMPOSITES: &[(&str, &str)] = &[
    ("map", "  - { id: it, kind: map, ASKS, over: [1], steps: [WRITE] }\n"),
    (
        "parallel",
        "  - { id: it, kind: parallel, ASKS, branches: [{ id: a, steps: [WRITE] }, \
         { id: b, steps: [{ id: nap, kind: tool, tool: sleep, inputs: { ms: 1 } }] }] }\n",
    ),
    ("loop", "  - { id: it, kind: loop, ASKS, while: \"false\", max_iterations: 2, steps: [WRITE] }\n"),
    ("subworkflow", "  - { id: it, kind: subworkflow, ASKS, workflow: child }\n"),
    (
        "branch",
        "  - { id: it, kind: branch, ASKS, branches: [{ when: \"true\", next: write }], default: $end }\n  - WRITE\n",
    ),
];

#[test]
fn approval_before_a_composite_step_is_asked_for() {
    for (kind, steps) in COMPOSITES {
        let project = with_tools(&steps.replace("ASKS", "approval: always"));
        let plan = project.ends("plan one", 0);
        assert!(plan.contains("May `it` start?"), "{kind}: {plan}");
        let run = project.left("one");
        assert!(!project.path("made.txt").exists(), "{kind}: it started before anybody was asked");
        project.ends(&format!("approve {run}"), 0);
        project.json(&format!("resume {run}"), 0);
        let made = if *kind == "loop" { "" } else { "x" };
        assert_eq!(project.read("made.txt"), made, "{kind}");
        let run = project.left("one");
        project.ends(&format!("reject {run}"), 0);
        assert_eq!(project.status(&run), "failed", "{kind}");
        let free = with_tools(&steps.replace("ASKS", "approval: auto"));
        free.json("run one", 0);
    }
}

#[test]
fn approval_that_cannot_be_judged_is_refused() {
    for (kind, steps) in COMPOSITES {
        for class in ["on-mutate", "policy:finance"] {
            let project = with_tools(&steps.replace("ASKS", &format!("approval: {class}")));
            let said = project.ends("validate .workflows/one/WORKFLOW.md", 3);
            assert!(said.contains("SK0206") && said.contains("it is not known before the start"), "{kind}: {said}");
        }
    }
    let undo = "  - { id: make, kind: tool, tool: sleep, inputs: { ms: 1 }, compensation: unmake, next: $end }\n  \
        - { id: unmake, kind: tool, tool: sleep, inputs: { ms: 1 }, approval: always }\n";
    let said = with_tools(undo).ends("validate .workflows/one/WORKFLOW.md", 3);
    assert!(said.contains("a step that only undoes another cannot require approval"), "{said}");
}

/// A SWDL workflow with these variables, whose only stage prints its environment.
fn with_variables(env: &str) -> Project {
    let project = Project::new();
    project.folder.write(
        "skein.toml",
        "[agents.writer]\nworker = \"CUSTOM\"\ncommand = [\"sh\", \"-c\", \"cat > /dev/null; env > seen\"]\n",
    );
    let stage = "stages:\n  - {id: s, name: S, roles: {primary: \"agent:writer\"}}\n";
    project.folder.write("w.yaml", format!("workflow: {{id: w, name: W}}\nconfig: {{env: {{{env}}}}}\n{stage}"));
    project
}

#[test]
fn a_workflow_cannot_set_variables_that_widen() {
    for name in ["LD_PRELOAD", "BASH_ENV", "PYTHONSTARTUP", "GIT_SSH_COMMAND", "ANTHROPIC_BASE_URL", "PATH"] {
        let said = with_variables(&format!("{name}: /evil, RELEASE: \"1\"")).ends("validate w.yaml", 3);
        assert!(said.contains("SK0115") && said.contains(&format!("`{name}`")), "{name}: {said}");
        assert!(said.contains("w.yaml:2:"), "{name}: {said}");
    }
    let project = with_variables("RELEASE: \"1\", GIT_AUTHOR_NAME: ada");
    project.json("run w.yaml", 0);
    let seen = project.read("seen");
    assert!(seen.contains("RELEASE=1\n") && seen.contains("GIT_AUTHOR_NAME=ada\n"), "{seen}");
    let told = project.ends("explain SK0115", 0);
    assert!(told.contains("pass_env"), "{told}");
}

#[test]
fn a_driver_cannot_set_variables_that_widen() {
    let project = with_tools("  - WRITE\n");
    let server = "kind: mcp\ntransport: stdio\nserver: { kind: binary, path: ./x.sh, env: { NODE_OPTIONS: \"--require ./x\" } }\n\
        implements: [{ tool: files.write }]\n";
    project.folder.write(".drivers/own/DRIVER.md", driver("own", server));
    let said = project.ends("run one", 5);
    assert!(said.contains("`NODE_OPTIONS`"), "{said}");
}

#[test]
fn overrides_cannot_add_variables() {
    let project = with_variables("RELEASE: \"1\"");
    let over = |env: &str| {
        let text = format!("overrides:\n  w:\n    config: {{env: {{{env}}}}}\n");
        project.folder.write(".skillmeat-workflow-overrides.yaml", text);
    };
    for name in ["BASH_ENV", "LD_PRELOAD", "ANTHROPIC_BASE_URL", "HARMLESS"] {
        over(&format!("{name}: ./evil.sh"));
        let said = project.ends("validate w.yaml", 3);
        assert!(said.contains("SK0802") && said.contains(&format!("the workflow has no `{name}`")), "{said}");
        project.ends("run w.yaml", 3);
    }
    over("RELEASE: \"2\"");
    project.json("run w.yaml", 0);
    assert!(project.read("seen").contains("RELEASE=2\n"), "{}", project.read("seen"));
}

/// Programs of hooks and channels get the environment of steps, and a plan shows their permissions.
#[test]
fn programs_of_channels_get_the_environment_of_steps() {
    let project = Project::new();
    project.folder.write(
        "skein.toml",
        "pass_env = [\"PASSED\"]\n[agents.writer]\nworker = \"CUSTOM\"\ncommand = [\"true\"]\n\
         [channels.pager]\nkind = \"command\"\ncommand = [\"sh\", \"-c\", \"cat > /dev/null; env > told; (echo x >> skein.toml) || echo kept >> told\"]\n",
    );
    project.folder.write(
        "w.yaml",
        "workflow: {id: w, name: W}\nconfig: {env: {RELEASE: \"1\"}}\nstages:\n  - {id: s, name: S, roles: {primary: \"agent:writer\"}}\n\
         hooks: {on_complete: {run: env, notify: pager}, on_failure: {notify: nobody}}\n",
    );
    let mut command = project.command("run w.yaml --format json");
    command.env("PASSED", "on").env("OF_THE_PERSON", "secret").env("SSH_AUTH_SOCK", "/x");
    let done = run(&mut command);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let result: Value = serde_json::from_str(&done.out).unwrap();
    let log = |number: u32| {
        let run = result["run_id"].as_str().unwrap();
        project.read(&format!(".skein/runs/{run}/hooks/{number}/log"))
    };
    for seen in [project.read("told"), log(0) + &log(1)] {
        assert!(seen.contains("PASSED=on") && seen.contains("RELEASE=1") && seen.contains("SKEIN_RUN_ID="), "{seen}");
        assert!(!seen.contains("OF_THE_PERSON") && !seen.contains("SSH_AUTH_SOCK"), "{seen}");
    }
    assert!(project.read("told").ends_with("kept\n"), "definitions are protected from it: {}", project.read("told"));
    let plan = project.ends("plan w.yaml", 0);
    let may = "it writes in the workspace, has network access, and is given PATH, HOME, USER, LOGNAME, TMPDIR, TZ, LANG, LC_ALL, PASSED, RELEASE";
    assert_eq!(plan.matches(may).count(), 2, "{plan}");
    let plan = project.json("plan w.yaml", 0);
    assert_eq!(plan["hooks"][1]["may"]["writes"][0], "the workspace");
    assert_eq!(plan["hooks"][1]["may"]["network"], true);
    assert!(plan["hooks"][2].get("may").is_none(), "{plan}");
}

/// Runs a command as another user of the machine, in these groups. Returns `None` if the tests may not act as another
/// user.
pub(crate) fn another_user(project: &Project, uid: u32, gid: u32, line: &str) -> Option<Done> {
    if !getuid().is_root() {
        eprintln!("not root, so nobody else can be played");
        return None;
    }
    let program = project.path("bin/skein");
    if !program.exists() {
        fs::create_dir(project.path("bin")).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_skein"), &program).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()]);
    command.arg(program).args(line.split_whitespace()).current_dir(&project.folder.0);
    Some(run(command.env("HOME", "/nonexistent").env_remove("XDG_STATE_HOME").env_remove("SKEIN_STATE")))
}

/// The actor and the action of each audit record.
fn audited(project: &Project, of: &str) -> Vec<(String, String)> {
    let records = project.json(&format!("audit {of}"), 0);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let records = records["records"].as_array().expect("there are records");
    records.iter().map(|one| (text(&one["actor"]["id"]), text(&one["action"]))).collect()
}

pub(crate) const NOBODY: u32 = 65_534;
const DAEMON: u32 = 1;

/// The owner of the state folder runs the workflow, and another user with the role decides.
#[test]
fn another_user_who_has_the_role_approves() {
    let project = Project::new();
    project.folder.write("skein.toml", "[roles]\nowners = [\"nobody\"]\n[approval]\ngroup = \"65534\"\n");
    let going = project.begin("run asks.md --format jsonl");
    let run = going.run();
    going.until("\"opened\"");
    let said = project.ends(&format!("approve {run}"), 5);
    assert!(said.contains("needs the role `owners`"), "{said}");
    let Some(outsider) = another_user(&project, DAEMON, DAEMON, &format!("approve {run}")) else {
        going.signal(rustix::process::Signal::KILL);
        going.end();
        return;
    };
    assert_eq!(outsider.code, 5, "not in the group: {}{}", outsider.out, outsider.err);
    let member = another_user(&project, DAEMON, NOBODY, &format!("approve {run}")).unwrap();
    assert_eq!(member.code, 5, "in the group and not in the role: {}{}", member.out, member.err);
    assert!(member.err.contains("needs the role `owners`"), "{}", member.err);
    let approved = another_user(&project, NOBODY, NOBODY, &format!("approve {run} --reason fine")).unwrap();
    assert_eq!(approved.code, 0, "{}{}", approved.out, approved.err);
    assert!(approved.out.contains("approved `agree`"), "{}", approved.out);
    going.until("\"hear\"");
    project.ends(&format!("cancel {run}"), 0);
    going.end();
    let expected =
        [("root", "gate.refuse"), ("daemon", "gate.refuse"), ("nobody", "gate.approve"), ("root", "run.cancel")];
    assert_eq!(audited(&project, &format!("--run {run}")), expected.map(|(who, what)| (who.into(), what.into())));
}

/// A decision for a run without an owner process is stored until its owner resumes the run.
#[test]
fn a_decision_of_another_user_waits_for_the_owner() {
    let project = Project::new();
    project.folder.write("skein.toml", "[roles]\nowners = [\"nobody\"]\n[approval]\ngroup = \"65534\"\n");
    let run = project.left("asks.md");
    let Some(left) = another_user(&project, NOBODY, NOBODY, &format!("reject {run} agree")) else { return };
    assert_eq!(left.code, 6, "{}{}", left.out, left.err);
    assert!(left.out.contains("it is applied when the owner of the state folder resumes"), "{}", left.out);
    let result = project.json(&format!("resume {run}"), 0);
    assert_eq!(result["status"], "succeeded", "a rejection goes to the end: {result}");
    assert_eq!(audited(&project, &format!("--run {run}")), [("nobody".to_owned(), "gate.reject".to_owned())]);
}

/// Without a group, no other user can leave a request, and a file of the owner in the inbox is ignored.
#[test]
fn an_inbox_is_for_a_group_and_never_for_the_owner() {
    let project = Project::new();
    let config = project.read("skein.toml");
    project.folder.write("skein.toml", format!("{config}[approval]\ngroup = \"65534\"\n"));
    let going = project.begin("run asks.md --format jsonl");
    let run = going.run();
    going.until("\"opened\"");
    let forged = format!("{}.json", "ab".repeat(16));
    let letter = format!("{{\"run\": \"{run}\", \"decision\": \"approve\"}}");
    project.folder.write(&format!(".skein-inbox/{forged}"), letter);
    let answer = project.path(&format!(".skein-inbox/answers/{forged}"));
    let begun = std::time::Instant::now();
    while !answer.exists() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "nobody answers");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(fs::read_to_string(answer).unwrap().contains("from the owner of the state folder"));
    assert_eq!(project.status(&run), "waiting");
    project.ends(&format!("cancel {run}"), 0);
    going.end();
    project.folder.write("skein.toml", config);
    let run = project.left("asks.md");
    let mode = fs::metadata(project.path(".skein-inbox")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700, "it is closed where the project names no group");
    if let Some(refused) = another_user(&project, NOBODY, NOBODY, &format!("approve {run}")) {
        assert_eq!(refused.code, 5, "{}{}", refused.out, refused.err);
    }
}

/// In a user namespace anyone can have any name: requests from there are refused, and recorded.
#[test]
fn nobody_poses_as_another_by_a_user_namespace() {
    let project = Project::new();
    let run = project.left("asks.md");
    for line in ["approve", "reject", "cancel"] {
        let command = project.command(&format!("{line} {run}"));
        let mut posing = Command::new("unshare");
        posing.args(["--user", "--map-user=65534"]).arg(command.get_program());
        let done = crate::session::run(&mut wrapped(posing, &command));
        assert_eq!(done.code, 5, "{line}: {}{}", done.out, done.err);
        assert!(done.err.contains("user namespace"), "{line}: {}", done.err);
    }
    assert_eq!(project.status(&run), "waiting");
    let records = project.json(&format!("audit --run {run}"), 0);
    assert_eq!(records["records"].as_array().map(Vec::len), Some(3), "{records}");
    assert_eq!(records["records"][0]["actor"]["role"], "unidentified", "{records}");
    project.ends(&format!("approve {run}"), 0);
}

/// A container is a user namespace as a whole: decisions about a state folder that was created in it are made in it.
#[test]
fn a_state_folder_is_decided_about_in_the_namespace_it_was_made_in() {
    let project = Project::new();
    let inside = |line: &str| {
        let command = project.command(line);
        let mut outer = Command::new("unshare");
        outer.args(["--user", "--map-root-user"]).arg(command.get_program());
        run(&mut wrapped(outer, &command))
    };
    let left = inside("run asks.md --no-wait --format json");
    assert_eq!(left.code, 6, "{}{}", left.out, left.err);
    let left: Value = serde_json::from_str(&left.out).unwrap();
    let done = inside(&format!("approve {}", left["run_id"].as_str().unwrap()));
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
}
