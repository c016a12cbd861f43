//! A project: names of workflows, `skein.toml`, overrides, called workflows, other folders.

use std::os::unix::fs::symlink;

use crate::{
    kept::Project,
    session::{Folder, Session},
    validate::GOOD,
};

const CALLER: &str = "name: caller\nversion: \"1\"\ntimeout: 5m\nsteps:\n  other:\n    workflow: parts/part.yaml\n";

#[test]
fn workflows_have_names() {
    let folder = Folder::new();
    folder.write(".workflows/twice.yaml", GOOD.replace("name: good", "name: hidden"));
    folder.write("workflows/twice.yaml", GOOD).write("workflows/plain.yaml", GOOD);
    folder.write("workflows/boxed/WORKFLOW.yaml", GOOD).write("workflows/boxed/WORKFLOW.md", "What it is.\n");
    folder.write("workflows/broken.yaml", "name: broken\nsteps: {}\n").write("deep/down/readme.txt", "");
    folder.write("plain/readme.txt", "A folder with the name of a workflow.\n");
    let mut session = Session::within(&folder.0);
    session.skein("list", 0).skein("list --format json", 0);
    session.skein("show twice", 0).skein("show boxed", 0).skein("show plain", 0).skein("show broken", 3);
    session.skein("show plian", 5).skein("plan plian --format json", 5);
    session.is("names");
    let mut below = Session::within(&folder.0.join("deep/down"));
    below.skein("list", 0).skein("show plain", 0).skein("validate ../../workflows/broken.yaml", 3).is("names-below");
    Session::within(&Folder::new().0).skein("list", 0).is("names-none");
}

#[test]
fn tools_and_actions_have_folders() {
    let folder = Folder::new();
    let step = |line: &str| {
        format!(
            "---\nname: One\nid: one\ndescription: One step.\nversion: 1.0.0\ninputs: {{ type: object }}\n\
             outputs: {{ type: object }}\nsteps:\n  - {{ id: only, kind: tool, {line} }}\n---\n"
        )
    };
    folder.write("skein.toml", "").write("none.md", step("action: \"note:send\""));
    folder.write("good.md", step("action: \"note:send@2\"")).write("old.md", step("action: \"note:send@1\""));
    folder.write("tool.md", step("tool: mail-sned"));
    let mut session = Session::within(&folder.0);
    session.skein("validate none.md", 0);
    folder.write(
        ".actions/note-send/ACTION.md",
        "---\nschema: action/v1\nid: \"note:send\"\ndescription: Sends a note.\nversion: 2.1.0\n---\n",
    );
    folder.write(".tools/mail-send/TOOL.md", "---\nid: mail-send\n---\n").write(".tools/empty/readme.txt", "");
    session.skein("validate good.md", 0).skein("validate old.md", 3).skein("validate tool.md", 3);
    session.is("tools");
}

#[test]
fn called_workflows_are_found_from_the_file() {
    let folder = Folder::new();
    folder.write("flows/caller.yaml", CALLER).write("flows/parts/part.yaml", GOOD).write("other/x.txt", "");
    let mut session = Session::within(&folder.0);
    session.skein("plan flows/caller.yaml", 0);
    // A workflow that is called twice is shown once, and the second call refers to it.
    let again = "  again:\n    depends_on: [other]\n    workflow: parts/part.yaml\n";
    folder.write("flows/twice.yaml", format!("{CALLER}{again}"));
    session.skein("plan flows/twice.yaml", 0).skein("plan flows/twice.yaml --format json", 0);
    session.is("called");
    Session::within(&folder.0.join("other")).skein("plan ../flows/caller.yaml", 0).is("called-from-beside");
    // A plan is the same from any working directory.
    let hash = |folder: &std::path::Path, file: &str| {
        let done = crate::session::run(crate::session::skein(folder).args(["plan", file, "--format", "json"]));
        serde_json::from_str::<serde_json::Value>(&done.out).expect("it is JSON")["workflow"]["hash"].clone()
    };
    let below = hash(&folder.0.join("other"), "../flows/caller.yaml");
    assert!(below.is_string() && below == hash(&folder.0, "flows/caller.yaml"));
    let elsewhere = Folder::new();
    let path = folder.0.join("flows/caller.yaml");
    let line = format!("validate {}", path.display());
    let done = crate::session::run(crate::session::skein(&elsewhere.0).args(line.split(' ')));
    assert_eq!((done.code, done.err.as_str()), (0, ""));
}

/// The project is found from the working directory, never from the folder of the workflow.
#[test]
fn the_project_is_found_from_the_current_folder() {
    let folder = Folder::new();
    let in_workflows = ".workflows/one/WORKFLOW.yaml";
    folder.write(in_workflows, GOOD).write("inner/skein.toml", CONFIG).write("inner/letter.yaml", SWDL);
    folder.write("inner/deep/x.txt", "");
    let ends = |from: &str, line: &str, code: i32| {
        let mut command = crate::session::skein(&folder.0.join(from));
        let done = crate::session::run(command.args(line.split(' ')));
        assert_eq!(done.code, code, "{line}: {}{}", done.out, done.err);
        done
    };
    // Without a marker the working directory is the project, so that a run leaves nothing beside the workflow.
    ends("", &format!("run {in_workflows}"), 0);
    assert!(folder.0.join(".skein").is_dir() && !folder.0.join(".workflows/one/.skein").exists());
    assert!(ends("", "runs - --format json", 0).out.contains("\"succeeded\""));
    // Another project: its configuration is not read, and a message says so.
    let plan = ends("", "plan inner/letter.yaml", 0);
    assert!(plan.err.contains("`inner/skein.toml` is not read"), "{}", plan.err);
    assert!(!plan.out.contains("CODEX_CLI"), "{}", plan.out);
    for (from, line) in [("", "plan inner/letter.yaml --project inner"), ("inner/deep", "plan ../letter.yaml")] {
        let plan = ends(from, line, 0);
        assert!(plan.out.contains("CODEX_CLI") && plan.err.is_empty(), "{line}: {}{}", plan.out, plan.err);
    }
    ends("", "plan inner/letter.yaml --project nowhere", 2);
    // A searched folder may contain projects, each with its own names.
    assert_eq!(ends("", "validate .", 0).err, "");
}

#[test]
fn a_workflow_is_validated_by_its_name() {
    let folder = Folder::new();
    folder.write("workflows/one.yaml", GOOD).write("workflows/broken.yaml", "name: broken\nsteps: {}\n");
    let ends = |line: &str| crate::session::run(crate::session::skein(&folder.0).args(line.split(' ')));
    assert_eq!(ends("validate one").code, 0);
    let broken = ends("validate broken");
    assert_eq!(broken.code, 3);
    assert!(broken.err.contains("workflows/broken.yaml:"), "{}", broken.err);
    assert_eq!(ends("validate nobody").code, 3);
}

#[test]
fn links_lead_where_they_lead_but_not_out_of_the_project() {
    let (folder, outside) = (Folder::new(), Folder::new());
    outside.write("part.yaml", GOOD);
    folder.write("flows/caller.yaml", CALLER).write("flows/parts/real.yaml", GOOD);
    symlink("real.yaml", folder.0.join("flows/parts/part.yaml")).expect("a link can be made");
    symlink("flows/caller.yaml", folder.0.join("link.yaml")).expect("a link can be made");
    let mut session = Session::within(&folder.0);
    session.skein("plan link.yaml", 0);
    std::fs::remove_file(folder.0.join("flows/parts/part.yaml")).expect("a link can be removed");
    symlink(outside.0.join("part.yaml"), folder.0.join("flows/parts/part.yaml")).expect("a link can be made");
    session.skein("validate flows/caller.yaml", 3);
    folder.write("climbs.yaml", CALLER.replace("parts/part.yaml", "../part.yaml"));
    folder.write("itself.yaml", CALLER.replace("parts/part.yaml", "flows/../itself.yaml"));
    session.skein("validate climbs.yaml", 3).skein("validate itself.yaml", 3);
    session.is("links");
}

const CONFIG: &str = r#"default_worker = "CLAUDE_CODE"
[agents.writer]
worker = "CODEX_CLI"
model = "large"
[secrets]
BANK_KEY = { env = "BANK_KEY_OF_THE_SHOP" }
[estimate]
tokens_per_attempt = 20000
usd_per_million_tokens = 3.5
"#;

const SWDL: &str = r#"workflow: {id: letter, name: Letter, version: "1.0.0"}
config: {timeout: 1h}
stages:
  - id: write
    name: Write
    roles: {primary: "agent:writer"}
    error_policy: {timeout: 20m}
"#;

#[test]
fn the_configuration_is_used() {
    let folder = Folder::new();
    folder.write("skein.toml", CONFIG).write("letter.yaml", SWDL);
    Session::within(&folder.0).skein("plan letter.yaml", 0).is("config");
}

#[test]
fn a_configuration_that_is_wrong_is_told_once() {
    let folder = Folder::new();
    folder.write("letter.yaml", SWDL).write("good.yaml", GOOD).write("sub/good.yaml", GOOD);
    let mut session = Session::within(&folder.0);
    for wrong in ["max_wokers = 3\n", "max_workers = \"three\"\n", "[agents.writer\n", "roots = [1]\n"] {
        folder.write("skein.toml", wrong);
        session.skein("validate .", 3);
    }
    session.skein("validate . --format json", 3).skein("plan good.yaml", 3).skein("list", 3);
    session.skein("list --format json", 3);
    folder.write("skein.toml", b"default_worker = \"\xff\"\n");
    session.skein("validate sub", 3);
    std::fs::remove_file(folder.0.join("skein.toml")).expect("a file can be removed");
    let made = std::process::Command::new("mkfifo").arg(folder.0.join("skein.toml")).status();
    assert!(made.expect("mkfifo is there").success());
    session.skein("validate good.yaml", 3);
    session.is("config-wrong");
}

#[test]
fn overrides_are_found_beside_the_configuration() {
    let folder = Folder::new();
    let name = ".skillmeat-workflow-overrides.yaml";
    folder.write("skein.toml", CONFIG).write("flows/letter.yaml", SWDL);
    folder.write(name, "overrides:\n  letter:\n    stages:\n      write:\n        error_policy: {timeout: 5m}\n");
    let mut session = Session::within(&folder.0);
    session.skein("plan flows/letter.yaml", 0);
    folder.write(name, b"overrides: \xff\n");
    session.skein("plan flows/letter.yaml", 3);
    session.is("overrides");
}

/// A name is looked up once and a file is read once, for any number of calls.
#[test]
fn thousands_of_calls() {
    let folder = Folder::new();
    let part = |i: usize| GOOD.replace("name: good", &format!("name: part-{i}"));
    let mut text = "name: caller\nversion: \"1\"\ntimeout: 5m\nsteps:\n".to_owned();
    for i in 0..2_000 {
        text += &format!("  s{i}: {{workflow: parts/{}.yaml}}\n", i % 200);
    }
    for i in 0..200 {
        folder.write(&format!("parts/{i}.yaml"), part(i));
    }
    folder.write("caller.yaml", text);
    let begun = std::time::Instant::now();
    let done = crate::session::run(crate::session::skein(&folder.0).args(["plan", "caller.yaml"]));
    assert_eq!((done.code, done.err.as_str()), (0, ""));
    assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{:?}", begun.elapsed());
}

/// A journal that came with a repository is not trusted.
#[test]
fn a_state_folder_that_came_with_a_repository_is_refused_until_it_is_accepted() {
    let theirs = Project::new();
    let run = theirs.left("gated.yaml");
    let mine = Project::new();
    let mut copied = std::process::Command::new("cp");
    assert!(copied.arg("-a").arg(theirs.path(".skein")).arg(mine.path(".skein")).status().unwrap().success());
    std::fs::remove_file(mine.path(".skein/id")).unwrap();
    for line in
        ["runs", &format!("runs {run}"), &format!("logs {run}"), "run gated.yaml", "resume --all", "audit verify"]
    {
        let done = mine.skein(line);
        assert_eq!(done.code, 5, "`{line}`: {}{}", done.out, done.err);
        assert!(done.err.contains("was not created by this user on this machine"), "{}", done.err);
        assert!(done.err.contains("skein doctor --trust-state"), "{}", done.err);
    }
    let found = mine.skein("doctor");
    assert!(found.out.contains("was not created by this user on this machine"), "{}", found.out);
    mine.skein("doctor --trust-state");
    assert!(mine.ends("runs", 0).contains(&run));
    // A copy with the id of a known state folder is detected as a copy.
    let again = Project::new();
    let mut copied = std::process::Command::new("cp");
    assert!(copied.arg("-a").arg(mine.path(".skein")).arg(again.path(".skein")).status().unwrap().success());
    assert!(again.ends("runs", 5).contains("is a copy"));
}

#[test]
fn a_project_that_is_moved_keeps_its_runs() {
    let mut project = Project::new();
    let run = project.left("gated.yaml");
    let moved = project.folder.0.with_extension("moved");
    std::fs::rename(&project.folder.0, &moved).unwrap();
    project.folder.0 = moved;
    assert!(project.ends("runs", 0).contains(&run));
    assert!(project.ends(&format!("logs {run}"), 0).is_ascii());
}

#[test]
fn a_link_to_the_state_of_another_project_is_refused() {
    let (theirs, mine) = (Project::new(), Project::new());
    theirs.left("gated.yaml");
    std::os::unix::fs::symlink(theirs.path(".skein"), mine.path(".skein")).unwrap();
    assert!(mine.ends("runs", 5).contains("is a symbolic link"));
    assert!(mine.ends("run gated.yaml --no-wait", 5).contains("is a symbolic link"));
}

/// Without a home there is no place to list state folders: they must be private to this user.
#[test]
fn without_a_home_a_state_folder_must_be_private() {
    use std::os::unix::fs::PermissionsExt;
    let project = Project::new();
    let homeless = |line: &str| {
        let mut command = project.command(line);
        command.env_remove("HOME").env_remove("XDG_STATE_HOME");
        crate::session::run(&mut command)
    };
    assert_eq!(homeless("run gated.yaml --no-wait").code, 6);
    assert_eq!(homeless("runs").code, 0);
    std::fs::set_permissions(project.path(".skein"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let refused = homeless("runs");
    assert_eq!(refused.code, 5, "{}", refused.err);
    assert!(refused.err.contains("mode 0755"), "{}", refused.err);
}

/// A run resumes in a project that was moved with its state folder: nothing refers to the old place.
#[test]
fn a_run_goes_on_in_a_project_that_was_moved() {
    let project = Project::new();
    let run = project.left("gated.yaml");
    let moved = Folder::new();
    let here = moved.0.join("here");
    std::fs::rename(&project.folder.0, &here).expect("it can be moved");
    let ends = |line: &str, code: i32| {
        let mut command = crate::session::skein(&here);
        let done = crate::session::run(command.args(line.split(' ')));
        assert_eq!(done.code, code, "{line}: {}{}", done.out, done.err);
        done.out
    };
    assert!(ends("runs", 0).contains(&run));
    ends(&format!("approve {run}"), 0);
    assert!(ends(&format!("resume {run}"), 0).contains("completed"));
    assert_eq!(std::fs::read_to_string(here.join("done.txt")).expect("it is there"), "draft\npublish\n");
    assert!(!project.folder.0.exists(), "nothing is made where it was");
}
