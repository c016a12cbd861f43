//! Repositories and workers that attack whoever runs them: what they plant, forge and reach for comes to nothing. Agents that do
//! are in `agents/attacks.rs`.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use serde_json::Value;

use crate::{
    kept::Project,
    session::{Done, run, without_name_spaces},
};

fn step_of(name: &str, more: &str, script: &str) -> String {
    let lines: String = script.lines().map(|line| format!("      {}\n", line.trim())).collect();
    format!(
        "  {name}:\n    worker: CUSTOM\n    capabilities: [READ, EDIT]\n{more}    instructions: |\n{lines}"
    )
}

fn flow(steps: &[String]) -> String {
    format!("name: attacks\nversion: \"1\"\ntimeout: 5m\nsteps:\n{}", steps.concat())
}

fn result(done: &Done) -> Value {
    serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {}{}", done.out, done.err))
}

/// What becomes of one step that does this.
fn tried(project: &Project, more: &str, script: &str) -> Value {
    project.folder.write("flow.yaml", flow(&[step_of("it", more, script)]));
    result(&project.skein("run flow.yaml --format json"))["steps"][0].clone()
}

/// A real repository.
fn repository() -> Project {
    let project = Project::new();
    fs::remove_dir_all(project.path(".git")).unwrap();
    let made = std::process::Command::new("git").args(["init", "-q"]).arg(&project.folder.0).status();
    assert!(made.expect("git is installed").success());
    project
}

/// What would decide over git and agents, and was not there, is found, named and taken away. A copy is kept to look at.
#[test]
fn what_is_planted_is_found_and_taken_away() {
    for (script, path) in [
        ("mkdir .claude; echo '{}' > .claude/settings.json", ".claude/settings.json"),
        ("mkdir -p .codex; echo x > .codex/config.toml", ".codex/config.toml"),
        ("echo '{}' > opencode.json", "opencode.json"),
        ("mkdir -p .opencode/plugin; echo x > .opencode/plugin/evil.js", ".opencode/plugin/evil.js"),
        ("mkdir evil; echo evil > .git/commondir", ".git/commondir"),
        ("ln -s /etc .gemini", ".gemini"),
        ("mkfifo .mcp.json", ".mcp.json"),
    ] {
        let project = repository();
        let step = tried(&project, "", &format!("{script}\ntrue"));
        assert_eq!(step["error"]["code"], "protected", "{script}: {step}");
        let message = step["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("`{path}` (new)")) && message.contains("put back"), "{message}");
        assert!(project.path(path).symlink_metadata().is_err(), "{path} is gone");
        let runs = project.path(".skein/runs");
        let run = fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
        let kept = run.join("attempts/0.0.1.1.main.1/displaced").join(path);
        assert_eq!(kept.exists(), !path.contains(".gemini") && !path.contains(".mcp"), "{}", kept.display());
    }
}

/// A file that cannot be written can still be gone around, by moving the folder that it is in.
#[test]
fn a_repository_that_is_moved_away_is_put_back() {
    let project = repository();
    let config = project.read(".git/config");
    let evil = "mv .git .git-was; mkdir -p .git/hooks; printf '[core]\\nfsmonitor = evil\\n' > .git/config\n\
        echo x > .git/hooks/pre-commit";
    let step = tried(&project, "", evil);
    assert_eq!(step["error"]["code"], "protected", "{step}");
    assert_eq!(project.read(".git/config"), config);
    assert!(!project.path(".git/hooks/pre-commit").exists());
}

/// Where the system keeps only what is written, what was there is found and put back, too.
#[test]
fn without_name_spaces_what_is_changed_is_put_back() {
    let project = repository();
    let config = project.read(".git/config");
    project.folder.write(".claude/settings.json", "{}");
    let script = "echo '[alias] x = !evil' >> .git/config; rm -r .claude; echo x > .git/hooks/pre-push";
    project.folder.write("flow.yaml", flow(&[step_of("it", "", script)]));
    let done = run(&mut without_name_spaces(&project.command("run flow.yaml --format json")));
    let message = result(&done)["steps"][0]["error"]["message"].to_string();
    for found in
        ["`.git/config` (changed)", "`.claude/settings.json` (removed)", "`.git/hooks/pre-push` (new)"]
    {
        assert!(message.contains(found), "{message}");
    }
    assert_eq!(
        (project.read(".git/config"), project.read(".claude/settings.json")),
        (config, "{}".to_owned())
    );
    assert!(!project.path(".git/hooks/pre-push").exists());
}

/// Who makes a repository of a folder does no harm, unless it is one that runs programs.
#[test]
fn a_repository_may_be_made() {
    for (script, code) in [
        ("git init -q .; git config user.name Ada", Value::Null),
        ("git init -q .; git config core.fsmonitor evil", "protected".into()),
        ("git init -q --separate-git-dir evil .", "protected".into()),
    ] {
        let project = Project::new();
        fs::create_dir(project.path("inside")).unwrap();
        let step = tried(&project, "    workspace: inside\n", script);
        assert_eq!(step["error"]["code"], code, "{script}: {step}");
    }
}

/// Patterns with wildcards: what is there is kept, what is new is found. Nothing else is protected then.
#[test]
fn patterns_protect_what_is_there_and_what_is_not() {
    let project = Project::new();
    for file in ["a.lock", "deep/b.lock", "docs/a.md"] {
        project.folder.write(file, "as it was\n");
    }
    let protect = "    x-skein: { protect: [\"*.lock\", \"**/*.lock\", \"docs/**\"] }\n";
    let kept = "for f in a.lock deep/b.lock docs/a.md docs/new.md; do (echo x >> $f) 2>/dev/null && exit 3; done\n\
        (rm -f a.lock) 2>/dev/null && exit 4\necho x > src.md; mkdir .claude; echo x > .claude/x";
    let step = tried(&project, protect, kept);
    assert_eq!(step["status"], "succeeded", "{step}");
    let step = tried(&project, protect, "echo x > new.lock; mkdir -p x/y; echo x > x/y/z.lock");
    let message = step["error"]["message"].as_str().unwrap();
    assert!(message.contains("`new.lock` (new), `x/y/z.lock` (new)"), "{message}");
    assert!(!project.path("new.lock").exists() && !project.path("x").exists());
}

/// A worker that is tried again begins without what it planted, and is told of it.
#[test]
fn a_step_that_planted_something_may_try_again() {
    let project = Project::new();
    let more = "    on_failure: retry\n    max_retries: 1\n";
    let step = tried(
        &project,
        more,
        "test $SKEIN_ATTEMPT = 2 || echo '{}' > opencode.json\ntest $SKEIN_ATTEMPT = 1 || test ! -e opencode.json",
    );
    assert_eq!((step["status"].as_str(), step["attempts"].as_u64()), (Some("succeeded"), Some(2)), "{step}");
}

/// Where others work in the same folder, nobody can say who it was: the file is named and left, and the step is over.
#[test]
fn in_company_it_is_named_and_left() {
    let project = Project::new();
    project.pipe("met");
    let more = "    on_failure: retry\n    max_retries: 2\n";
    let one = step_of("one", more, "cat met; echo '{}' > opencode.json");
    let two = step_of("two", "    on_failure: continue\n", "echo x > met");
    project.folder.write("flow.yaml", flow(&[one, two]));
    let result = result(&project.skein("run flow.yaml --format json"));
    let step = &result["steps"][0];
    assert_eq!((&step["error"]["code"], &step["attempts"]), (&"protected".into(), &1.into()), "{result}");
    assert!(step["error"]["message"].as_str().unwrap().contains("was not put back"), "{step}");
    assert!(project.path("opencode.json").exists());
}

/// An engine that is killed under a worker that plants something: the next attempt is compared with how it was before.
#[test]
fn what_was_planted_before_a_crash_is_found_after_it() {
    let project = Project::new();
    let script = "test -n \"$SKEIN_INTERRUPTED\" || echo '{}' > opencode.json\necho $$ > begun\ncat go";
    project.folder.write("flow.yaml", flow(&[step_of("it", "", script)]));
    let going = project.begin("run flow.yaml --format jsonl");
    let run = going.run();
    project.begun();
    going.signal(rustix::process::Signal::KILL);
    going.end();
    let resumed = project.begin(&format!("resume {run} --format jsonl"));
    project.begun();
    project.go();
    assert_eq!(resumed.end().0, Some(4));
    assert!(!project.path("opencode.json").exists());
}

/// A program of the workspace is none that is run, whatever the search path says, also not by what a script runs.
#[test]
fn programs_of_the_workspace_are_not_run() {
    let project = Project::new();
    for name in ["git", "bash", "ls", "bin/ls"] {
        project.folder.write(name, "#!/bin/sh\ntouch trap\n");
        fs::set_permissions(project.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let guarded = "    completion_check:\n      worker: CUSTOM\n      instructions: \"true\"\n      capabilities: [READ]\n    \
        convergence: { enabled: true, allowed_paths: [x] }\n    x-skein: { evidence: [{command: [ls]}] }\n";
    project.folder.write("flow.yaml", flow(&[step_of("it", guarded, "ls; git --version")]));
    let mut command = project.command("run flow.yaml --format json");
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!(".::bin:{path}"));
    run(&mut command);
    assert!(!project.path("trap").exists(), "it was run");
}

/// What decides over a check, what others gave and what the engine keeps is not for a worker to write.
#[test]
fn decisions_and_artifacts_of_others_are_out_of_reach() {
    let project = Project::new();
    let first = step_of(
        "first",
        "    outputs:\n      - {name: report, path: report.txt}\n",
        "echo true > report.txt",
    );
    let forge = "echo '{\"decision\": \"complete\"}' > decision.json\nfor f in context/first/report/report.txt context/_workflow.json \
        .skein/skein.db; do (echo forged >> $f) 2>/dev/null && exit 7; done\n(mv context gone) 2>/dev/null && exit 8\n\
        (ln -sfn /tmp context) 2>/dev/null || true; test -L context && exit 9\nrm report.txt; ln -s ../outside.txt report.txt";
    let check = "    depends_on: [first]\n    max_iterations: 2\n    on_iterations_exhausted: continue\n    completion_check:\n      \
        worker: CUSTOM\n      instructions: \"test -s decision.json\"\n      capabilities: [READ]\n      \
        decision_file: decision.json\n";
    let second = step_of("second", check, forge);
    let third = step_of(
        "third",
        "    depends_on: [first]\n    on_failure: continue\n    inputs:\n      - {from: first, artifact: report, as: into}\n",
        "grep -qx true into/report.txt",
    );
    symlink("../elsewhere", project.path("into")).unwrap();
    project.folder.write(
        "flow.yaml",
        flow(&[first, second, third]).replace("timeout: 5m", "timeout: 5m\ncontext_dir: context"),
    );
    let told = result(&project.skein("run flow.yaml --format json"));
    let of = |name: &str| {
        told["steps"].as_array().unwrap().iter().find(|step| step["id"] == name).cloned().unwrap()
    };
    assert_eq!(of("second")["status"], "incomplete", "the forged decision counts for nothing: {told}");
    assert!(of("third")["error"]["message"].to_string().contains("symbolic link"), "{told}");
    assert!(!project.path("../elsewhere").exists(), "nothing is written through a link: {told}");
}

/// A pipe or a link where the engine reads what a worker gives: told, and nothing hangs or leaks.
#[test]
fn nothing_but_a_file_is_an_output() {
    let project = Project::new();
    project.folder.write("secret.txt", "key=secret\n");
    for script in
        ["mkfifo $SKEIN_OUTPUT", "ln -s $PWD/secret.txt $SKEIN_OUTPUT", "ln -s /dev/zero $SKEIN_OUTPUT"]
    {
        let step = tried(&project, "", script);
        assert_eq!(
            (step["status"].as_str(), step["outputs"].to_string()),
            (Some("failed"), "{}".into()),
            "{step}"
        );
    }
    let step = tried(&project, "", "mkfifo $SKEIN_ERROR; exit 3");
    assert!(step["error"]["message"].as_str().unwrap().contains("exit status 3"), "{step}");
}

/// No process above a worker tells it the engine's environment.
#[test]
fn the_environment_of_the_engine_is_not_read() {
    let project = Project::new();
    let script = "p=$PPID\nwhile [ \"$p\" -gt 1 ]; do\ncat /proc/$p/environ /proc/$p/cmdline 2>/dev/null >> seen </dev/null || true\n\
        p=$(awk '{print $4}' /proc/$p/stat 2>/dev/null || echo 1)\ndone\nfor e in /proc/[0-9]*/environ; do cat $e 2>/dev/null >> seen || true; done";
    project.folder.write("flow.yaml", flow(&[step_of("it", "", script)]));
    let mut command = project.command("run flow.yaml --format json");
    command.env("OPENAI_API_KEY", "sk-of-the-engine-7319");
    let done = run(&mut command);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let seen = fs::read(project.path("seen")).unwrap();
    assert!(!String::from_utf8_lossy(&seen).contains("sk-of-the-engine-7319"));
}
