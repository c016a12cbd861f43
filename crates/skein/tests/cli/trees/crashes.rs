//! Engines that are killed while steps work in worktrees, and while their changes are merged.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use rustix::process::Signal;

use super::{apart, flow, kept, repository, step, trees};
use crate::{
    kept::{Going, Project},
    session::{Folder, folder_for_programs},
};

/// Reports that it has started, and waits for permission to continue.
pub(super) fn held(project: &Project, script: &str) -> String {
    let whole = |name: &str| project.path(name).display().to_string();
    script.replace("HOLD", &format!("echo $$ > {}; cat {} > /dev/null", whole("begun"), whole("go")))
}

fn killed(going: Going) {
    going.signal(Signal::KILL);
    assert_eq!(going.end().0, None);
}

/// A run whose engine is killed during its step, and which is then resumed to success. Returns its id and the output of
/// the resume.
pub(super) fn killed_and_resumed(project: &Project) -> (String, String) {
    let going = project.begin("run flow.yaml --format jsonl");
    let run = going.run();
    project.begun();
    killed(going);
    let resumed = project.begin(&format!("resume {run} --format jsonl"));
    project.begun();
    project.go();
    let (code, lines, errors) = resumed.end();
    assert_eq!(code, Some(0), "{lines}{errors}");
    (run, lines)
}

/// The resumed step uses its first worktree, regardless of changes to the workspace in between.
#[test]
fn a_killed_step_goes_on_in_the_same_tree() {
    let project = repository("");
    let script = held(&project, "echo $SKEIN_ATTEMPT >> tries.txt; cat open.txt > seen.txt; HOLD");
    project.folder.write("flow.yaml", flow(&apart("it", "", &script)));
    let going = project.begin("run flow.yaml --format jsonl");
    let run = going.run();
    project.begun();
    killed(going);
    project.folder.write("open.txt", "changed by a person\n");
    let resumed = project.begin(&format!("resume {run} --format jsonl"));
    project.begun();
    project.go();
    let (code, lines, errors) = resumed.end();
    assert_eq!(code, Some(0), "{lines}{errors}");
    assert_eq!(project.read("seen.txt"), "nobody has committed this\n");
    assert_eq!(project.read("open.txt"), "changed by a person\n", "what others changed is theirs");
    assert_eq!(project.read("tries.txt"), "1\n2\n");
    let result = project.json(&format!("runs {run}"), 0);
    assert!(trees(&project, &result).is_empty());
    let diff = kept(&project, &result).join("attempts/0.0.1.1.main.1/changes.diff");
    assert!(fs::read_to_string(diff).unwrap().contains("+1\n"), "what the killed attempt changed is told, too");
    project.ended_once(&run);
}

#[test]
fn a_killed_step_has_its_workspace_put_back() {
    for (workspace, git) in [("shared", true), ("worktree", true), ("shared", false)] {
        let project = if git { repository("") } else { Project::new() };
        let more = format!("x-skein: {{on_interrupted: restore, workspace: {{isolation: {workspace}}}}}");
        let script = held(
            &project,
            "set -e\ntest ! -e half.txt; echo half > half.txt; HOLD; echo $SKEIN_INTERRUPTED > done.txt",
        );
        project.folder.write("flow.yaml", flow(&step("it", &more, &script)));
        let (run, lines) = killed_and_resumed(&project);
        assert!(lines.contains("\"restore\""), "{lines}");
        assert_eq!((project.read("half.txt").as_str(), project.read("done.txt").as_str()), ("half\n", "1\n"));
        project.ended_once(&run);
    }
}

/// An agent that edits and has no session does not start with half of its earlier changes.
#[test]
fn an_agent_without_a_session_begins_anew() {
    let project = repository("");
    let script = held(&project, "cat > prompt.log; test ! -e half.txt || exit 7; echo half > half.txt; HOLD");
    project.folder.write("agent.sh", script);
    project.folder.write(
        "skein.toml",
        "[agents.writer]\nworker = \"CUSTOM\"\ncommand = [\"bash\", \"agent.sh\"]\ncapabilities = [\"READ\", \"EDIT\"]\n",
    );
    let workflow = "workflow: {id: anew, name: Anew, version: \"1.0.0\"}\nstages:\n  - id: it\n    name: It\n    \
        roles: {primary: \"agent:writer\"}\n    x-skein: {on_interrupted: resume}\n";
    project.folder.write("flow.yaml", workflow);
    killed_and_resumed(&project);
    let prompt = project.read("prompt.log");
    assert!(prompt.contains("was interrupted. Its changes in the workspace were reverted."), "{prompt}");
}

/// A `git` that waits on request before it writes the files of a merge. Programs in the workspace are not run, so it is
/// elsewhere.
fn waiting_git(project: &Project) -> (Folder, String) {
    let path = std::env::var("PATH").unwrap();
    let found = |folder: &&str| Path::new(folder).join("git").exists();
    let real = path.split(':').find(found).expect("these tests need git").to_owned();
    let whole = |name: &str| project.path(name).display().to_string();
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *checkout-index*--prefix=*) if [ -e {} ]; then echo $$ > {}; cat {} > /dev/null; fi;; \
         esac\nexec {real}/git \"$@\"\n",
        whole("wait.log"),
        whole("begun"),
        whole("go")
    );
    let folder = folder_for_programs();
    folder.write("git", script);
    fs::set_permissions(folder.0.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{path}", folder.0.display());
    (folder, path)
}

/// A run that is killed after its merge is decided and before any of it is done. Returns its id.
fn killed_before_the_merge(project: &Project) -> String {
    let (_git, path) = waiting_git(project);
    project.folder.write("wait.log", "");
    let mut command = project.command("run flow.yaml --format jsonl");
    let going = project.begin_as(command.env("PATH", path));
    let run = going.run();
    project.begun();
    killed(going);
    fs::remove_file(project.path("wait.log")).unwrap();
    run
}

/// The engine is killed after the merge was decided, with none or half of it in the workspace: the next one finishes
/// it, and no step runs again.
#[test]
fn a_merge_that_was_cut_off_is_finished() {
    for half in [false, true] {
        let project = repository("");
        let script = "echo $SKEIN_ATTEMPT >> tries.txt; sed -i s/one/ONE/ a.txt; rm open.txt; echo kept > art.txt; echo n=7 > $SKEIN_OUTPUT";
        let more = "x-skein: {workspace: {isolation: worktree}}\n    outputs:\n      - {name: art, path: art.txt}";
        let after = step(
            "after",
            "depends_on: [it]\n    inputs:\n      - {from: it, artifact: art}",
            "cat art/art.txt > after.txt",
        );
        project.folder.write("flow.yaml", flow(&(step("it", more, script) + &after)));
        let run = killed_before_the_merge(&project);
        assert_eq!(project.read("a.txt"), "one\ntwo\nthree\nfour\nfive\nsix\nseven\n", "nothing is written yet");
        if half {
            project.folder.write("a.txt", "ONE\ntwo\nthree\nfour\nfive\nsix\nseven\n");
            fs::remove_file(project.path("open.txt")).unwrap();
        }
        let result = project.json(&format!("resume {run}"), 0);
        assert_eq!(project.read("a.txt"), "ONE\ntwo\nthree\nfour\nfive\nsix\nseven\n");
        assert!(!project.path("open.txt").exists());
        assert_eq!(project.read("tries.txt"), "1\n", "it was worked on once");
        assert_eq!(project.read("after.txt"), "kept\n", "what it gave is there");
        assert_eq!(super::of(&result, "it")["outputs"], serde_json::json!({"n": 7}), "{result}");
        assert!(trees(&project, &result).is_empty());
        project.ended_once(&run);
    }
}

/// A file that a person changed between the crash and the resume is not overwritten.
#[test]
fn a_merge_that_was_cut_off_does_not_write_over_others() {
    let project = repository("");
    project.folder.write("flow.yaml", flow(&apart("it", "", "sed -i s/one/ONE/ a.txt; echo x > b.txt")));
    let run = killed_before_the_merge(&project);
    project.folder.write("a.txt", "a person was here\n");
    let told = project.ends(&format!("resume {run}"), 4);
    assert!(told.contains("`a.txt`") && told.contains("conflict"), "{told}");
    assert_eq!(project.read("a.txt"), "a person was here\n");
    assert!(!project.path("b.txt").exists(), "all of it or nothing");
}
