//! Repositories and workers that attack the user: planted files, forgeries and escapes have no effect. Hostile agents
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
    format!("  {name}:\n    worker: CUSTOM\n    capabilities: [READ, EDIT]\n{more}    instructions: |\n{lines}")
}

fn flow(steps: &[String]) -> String {
    format!("name: attacks\nversion: \"1\"\ntimeout: 5m\nsteps:\n{}", steps.concat())
}

fn result(done: &Done) -> Value {
    serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {}{}", done.out, done.err))
}

/// The result of one step with this script.
fn tried(project: &Project, more: &str, script: &str) -> Value {
    project.folder.write("flow.yaml", flow(&[step_of("it", more, script)]));
    result(&project.skein("run flow.yaml --format json"))["steps"][0].clone()
}

/// A project in a git repository.
fn repository() -> Project {
    let project = Project::new();
    fs::remove_dir_all(project.path(".git")).unwrap();
    let made = std::process::Command::new("git").args(["init", "-q"]).arg(&project.folder.0).status();
    assert!(made.expect("git is installed").success());
    project
}

/// New files that would control git or agents are found, named and removed. A copy is kept for inspection.
#[test]
fn what_is_planted_is_found_and_taken_away() {
    for (script, path) in [
        ("mkdir .claude; echo '{}' > .claude/settings.json", ".claude/settings.json"),
        ("mkdir -p .codex; echo x > .codex/config.toml", ".codex/config.toml"),
        ("echo '{}' > opencode.json", "opencode.json"),
        ("mkdir -p .opencode/plugin; echo x > .opencode/plugin/evil.js", ".opencode/plugin/evil.js"),
        ("mkdir evil; echo evil > .git/commondir", ".git/commondir"),
        ("ln -s /etc .claude", ".claude"),
        ("mkfifo .mcp.json", ".mcp.json"),
    ] {
        let project = repository();
        let step = tried(&project, "", &format!("{script}\ntrue"));
        assert_eq!(step["error"]["code"], "protected", "{script}: {step}");
        let message = step["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("`{path}` (new)")) && message.contains("restored"), "{message}");
        assert!(project.path(path).symlink_metadata().is_err(), "{path} is gone");
        let runs = project.path(".skein/runs");
        let run = fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
        let kept = run.join("attempts/0.0.1.1.main.1/displaced").join(path);
        let is_file = path != ".claude" && path != ".mcp.json";
        assert_eq!(kept.exists(), is_file, "{}", kept.display());
    }
}

/// A read-only file can be bypassed by moving the folder that contains it.
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

/// Runs git in the project, as a person would.
fn git(project: &Project, line: &str) -> String {
    let mut command = std::process::Command::new("git");
    command.current_dir(&project.folder.0).args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]);
    let done = command.args(line.split_whitespace()).output().expect("git is installed");
    assert!(done.status.success(), "git {line}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// A file that would make a person's next git command run a program is found anywhere in the workspace.
#[test]
fn git_configuration_and_hooks_planted_anywhere_are_found() {
    let evil = "printf '[core]\\nfsmonitor = evil\\n'";
    for (script, path) in [
        (format!("{evil} > .git/config.worktree"), ".git/config.worktree"),
        ("git init -q sub; git -C sub config core.fsmonitor evil".to_owned(), "sub/.git/config"),
        ("git init -q a/b/c; echo x > a/b/c/.git/hooks/pre-commit".to_owned(), "a/b/c/.git/hooks/pre-commit"),
        ("git init -q 'a*b?'; git -C 'a*b?' config core.pager evil".to_owned(), "a*b?/.git/config"),
        (format!("git init -q sub; {evil} > sub/.git/config.worktree"), "sub/.git/config.worktree"),
        ("git init -q sub; mkdir sub/.git/hooks2; ln -s hooks2 sub/.git/commondir".to_owned(), "sub/.git/commondir"),
        ("mkdir evil sub; echo 'gitdir: ../evil' > sub/.git".to_owned(), "sub/.git"),
        ("mkdir evil sub; ln -s ../evil sub/.git".to_owned(), "sub/.git"),
        (
            format!("mkdir -p .git/modules/m; echo x > .git/modules/m/HEAD; {evil} > .git/modules/m/config"),
            ".git/modules/m/config",
        ),
        (
            "mkdir -p .git/modules/a/b/hooks; echo x > .git/modules/a/b/HEAD; echo x > .git/modules/a/b/hooks/update"
                .to_owned(),
            ".git/modules/a/b/hooks/update",
        ),
        (
            "mkdir -p .git/worktrees/w; echo ../../../evil > .git/worktrees/w/commondir".to_owned(),
            ".git/worktrees/w/commondir",
        ),
        (
            "mkdir -p .git/rebase-merge; echo 'exec evil' > .git/rebase-merge/git-rebase-todo".to_owned(),
            ".git/rebase-merge/git-rebase-todo",
        ),
        ("mkdir .husky; echo x > .husky/pre-commit".to_owned(), ".husky/pre-commit"),
    ] {
        let project = repository();
        let step = tried(&project, "", &script);
        let message = step["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(step["error"]["code"], "protected", "{script}: {step}");
        assert!(message.contains(&format!("`{path}` (new)")) && message.contains("were restored"), "{message}");
        assert!(project.path(path).symlink_metadata().is_err(), "{path} is gone");
    }
}

/// A folder that git would treat as a repository is disabled; its earlier contents stay.
#[test]
fn bare_repositories_planted_in_the_workspace_are_broken() {
    let project = repository();
    let step = tried(&project, "", "git init -q --bare b; git -C b config core.fsmonitor evil");
    assert_eq!(step["error"]["code"], "protected", "{step}");
    assert!(step["error"]["message"].as_str().unwrap().contains("`b/config` (new)"), "{step}");
    assert!(!project.path("b/HEAD").exists());
    for more in ["mkdir b/refs", "echo ../.git > b/commondir"] {
        let project = repository();
        project.folder.write("b/config", "[core]\nfsmonitor = evil\n").write("b/objects/x", "");
        let step = tried(&project, "", &format!("echo 'ref: refs/heads/x' > b/HEAD; {more}"));
        assert_eq!(step["error"]["code"], "protected", "{step}");
        assert!(!project.path("b/HEAD").exists() && project.path("b/config").exists(), "{step}");
    }
}

/// Existing control files of the repository, and those that its configuration names, are read-only.
#[test]
fn files_that_git_configuration_names_are_read_only() {
    let project = repository();
    for (key, value) in [("core.hooksPath", ".githooks"), ("include.path", "../git/more.cfg")] {
        git(&project, &format!("config {key} {value}"));
    }
    project.folder.write(".githooks/pre-commit", "#!/bin/sh\n").write("git/more.cfg", "[alias]\n");
    project.folder.write(".git/modules/m/HEAD", "ref: refs/heads/x\n").write(".git/modules/m/config", "[core]\n");
    project.folder.write(".git/config.worktree", "[core]\n");
    let kept =
        [".githooks/pre-commit", ".githooks/new", "git/more.cfg", ".git/modules/m/config", ".git/config.worktree"];
    let tries: String = kept.iter().map(|path| format!("(echo x >> {path}) 2>/dev/null && exit 3\n")).collect();
    let step = tried(&project, "", &format!("{tries}echo x > git/other"));
    assert_eq!(step["status"], "succeeded", "{step}");
    // Moving the folder around them away does not help.
    let around = "mv git git2; mkdir git; printf '[core]\\nfsmonitor = evil\\n' > git/more.cfg";
    let step = tried(&project, "", around);
    assert_eq!(step["error"]["code"], "protected", "{step}");
    assert_eq!(project.read("git/more.cfg"), "[alias]\n");
}

/// A workspace that is part of a repository may contain files that the configuration of the whole repository names.
#[test]
fn hooks_named_by_the_repository_around_the_workspace_are_protected() {
    let project = repository();
    git(&project, "config core.hooksPath inside/hooks");
    project.folder.write("inside/hooks/pre-commit", "#!/bin/sh\n");
    let step = tried(&project, "    workspace: inside\n", "echo x >> hooks/pre-commit");
    assert_eq!(step["status"], "failed", "{step}");
    assert_eq!(project.read("inside/hooks/pre-commit"), "#!/bin/sh\n");
}

/// The files that git itself writes when repositories are created, cloned, linked, moved and removed are left alone.
#[test]
fn harmless_repositories_may_be_made_moved_and_removed() {
    for script in [
        "git init -q sub; git -C sub config user.name Ada",
        "git clone -q . sub; git -C sub checkout -q -b x --track origin/main",
        "git init -q --bare b; git clone -q b c 2>/dev/null",
        "git worktree add -q wt",
        "rm -rf old",
        "mkdir in; mv old in/old",
        "git -C old config branch.x.merge refs/heads/x",
        "rm -rf old; git init -q old",
    ] {
        let project = repository();
        git(&project, "checkout -q -b main");
        git(&project, "commit -q --allow-empty -m first");
        git(&project, "init -q old");
        git(&project, "-C old config core.hooksPath hooks");
        let step = tried(&project, "", script);
        assert_eq!(step["status"], "succeeded", "{script}: {step}");
    }
}

/// An existing repository that was given a program to run is restored.
#[test]
fn a_repository_further_down_keeps_its_configuration_and_hooks() {
    for script in [
        "git -C old config core.pager evil; echo x > old/.git/hooks/pre-push",
        "mv old/.git old/.git2; mkdir -p old/.git/hooks; echo x > old/.git/hooks/pre-push; echo 'ref: refs/heads/x' > old/.git/HEAD",
        "mv old/.git away; echo 'gitdir: ../evil' > old/.git",
    ] {
        let project = repository();
        git(&project, "init -q old");
        git(&project, "-C old commit -q --allow-empty -m first");
        let config = project.read("old/.git/config");
        let step = tried(&project, "", script);
        assert_eq!(step["error"]["code"], "protected", "{script}: {step}");
        assert_eq!(project.read("old/.git/config"), config, "{script}");
        assert!(!project.path("old/.git/hooks/pre-push").exists(), "{script}");
        assert_eq!(git(&project, "-C old log --format=%s"), "first\n");
    }
}

/// A whole repository that was moved away or replaced is moved back, with all its contents.
#[test]
fn a_repository_that_is_replaced_is_put_back_whole() {
    for script in [
        "mv .git .git2",
        "mkdir -p a/b; mv .git a/b/c",
        "mv .git .git2; ln -s .git2 .git",
        "mv .git .git2; mkdir evil; echo 'gitdir: evil' > .git",
        "mv .git .git2; git init -q .; git config core.fsmonitor evil",
        "mkdir new; mv .git new/was; mv new .git",
    ] {
        let project = repository();
        git(&project, "commit -q --allow-empty -m first");
        let step = tried(&project, "", script);
        assert_eq!(step["error"]["code"], "protected", "{script}: {step}");
        let message = step["error"]["message"].as_str().unwrap();
        assert!(message.contains("`.git` (") && message.contains("were restored"), "{script}: {message}");
        assert_eq!(git(&project, "log --format=%s"), "first\n", "{script}");
        assert!(!project.path(".git2").exists() && !project.path("a/b/c").exists());
    }
}

/// A repository that cannot be restored is reported, and not restored in part.
#[test]
fn a_repository_that_is_gone_for_good_is_named() {
    let project = repository();
    git(&project, "commit -q --allow-empty -m first");
    project.folder.write("flow.yaml", flow(&[step_of("it", "", "rm -rf .git; git init -q .")]));
    let done = run(&mut without_name_spaces(&project.command("run flow.yaml --format json")));
    let step = result(&done)["steps"][0].clone();
    assert_eq!(step["error"]["code"], "protected", "{step}");
    let message = step["error"]["message"].as_str().unwrap();
    assert!(message.contains("commits, branches, stashes and settings are lost"), "{message}");
    assert!(!project.path(".git").exists());
}

/// Without namespaces, changes to existing files are found and reverted, too.
#[test]
fn without_name_spaces_what_is_changed_is_put_back() {
    let project = repository();
    let config = project.read(".git/config");
    project.folder.write(".claude/settings.json", "{}");
    let script = "echo '[alias] x = !evil' >> .git/config; rm -r .claude; echo x > .git/hooks/pre-push";
    project.folder.write("flow.yaml", flow(&[step_of("it", "", script)]));
    let done = run(&mut without_name_spaces(&project.command("run flow.yaml --format json")));
    let message = result(&done)["steps"][0]["error"]["message"].to_string();
    for found in ["`.git/config` (changed)", "`.claude/settings.json` (removed)", "`.git/hooks/pre-push` (new)"] {
        assert!(message.contains(found), "{message}");
    }
    assert_eq!((project.read(".git/config"), project.read(".claude/settings.json")), (config, "{}".to_owned()));
    assert!(!project.path(".git/hooks/pre-push").exists());
}

/// Turning a folder into a repository is allowed, unless its configuration runs programs.
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

/// Patterns with wildcards: existing files are protected, and new ones are found.
#[test]
fn patterns_protect_what_is_there_and_what_is_not() {
    let project = Project::new();
    for file in ["a.lock", "deep/b.lock", "docs/a.md"] {
        project.folder.write(file, "as it was\n");
    }
    let protect = "    x-skein: { protect: [\"*.lock\", \"**/*.lock\", \"docs/**\"], unprotect: [.claude] }\n";
    let kept = "for f in a.lock deep/b.lock docs/a.md docs/new.md; do (echo x >> $f) 2>/dev/null && exit 3; done\n\
        (rm -f a.lock) 2>/dev/null && exit 4\necho x > src.md; mkdir .claude; echo x > .claude/x";
    let step = tried(&project, protect, kept);
    assert_eq!(step["status"], "succeeded", "{step}");
    let step = tried(&project, protect, "echo x > new.lock; mkdir -p x/y; echo x > x/y/z.lock");
    let message = step["error"]["message"].as_str().unwrap();
    assert!(message.contains("`new.lock` (new), `x/y/z.lock` (new)"), "{message}");
    assert!(!project.path("new.lock").exists() && !project.path("x").exists());
}

/// A worker that is retried starts without the files that it planted, and is told about them.
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

/// If others work in the same folder, the culprit is unknown: the file is named and left in place, and the step fails.
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
    assert!(step["error"]["message"].as_str().unwrap().contains("were not restored"), "{step}");
    assert!(project.path("opencode.json").exists());
}

/// The engine is killed while a worker plants a file: the next attempt is compared with the state before the first.
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

/// Programs in the workspace are never run, regardless of the search path, also not by a script.
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

/// A worker cannot write the decision of a check, the artifacts of other steps, or the files of the engine.
#[test]
fn decisions_and_artifacts_of_others_are_out_of_reach() {
    let project = Project::new();
    let first = step_of("first", "    outputs:\n      - {name: report, path: report.txt}\n", "echo true > report.txt");
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
    project
        .folder
        .write("flow.yaml", flow(&[first, second, third]).replace("timeout: 5m", "timeout: 5m\ncontext_dir: context"));
    let told = result(&project.skein("run flow.yaml --format json"));
    let of = |name: &str| told["steps"].as_array().unwrap().iter().find(|step| step["id"] == name).cloned().unwrap();
    assert_eq!(of("second")["status"], "incomplete", "the forged decision counts for nothing: {told}");
    assert!(of("third")["error"]["message"].to_string().contains("symbolic link"), "{told}");
    assert!(!project.path("../elsewhere").exists(), "nothing is written through a link: {told}");
}

/// A pipe or a link in place of an output file is reported, and nothing hangs or leaks.
#[test]
fn nothing_but_a_file_is_an_output() {
    let project = Project::new();
    project.folder.write("secret.txt", "key=secret\n");
    for script in ["mkfifo $SKEIN_OUTPUT", "ln -s $PWD/secret.txt $SKEIN_OUTPUT", "ln -s /dev/zero $SKEIN_OUTPUT"] {
        let step = tried(&project, "", script);
        assert_eq!((step["status"].as_str(), step["outputs"].to_string()), (Some("failed"), "{}".into()), "{step}");
    }
    let step = tried(&project, "", "mkfifo $SKEIN_ERROR; exit 3");
    assert!(step["error"]["message"].as_str().unwrap().contains("exit status 3"), "{step}");
}

/// No parent process exposes the engine's environment to a worker.
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

/// A worker's output may contain characters that reverse the reading direction; JSON and stored files escape them.
#[test]
fn json_holds_nothing_that_a_terminal_obeys() {
    let project = Project::new();
    let evil = "\u{9b}31m \u{85} \u{202e}txt.exe \u{2066} \u{200f} \u{61c} \u{2028} \u{2029} end";
    let script = "echo \"text=$(cat evil.txt)\" > $SKEIN_OUTPUT";
    project.folder.write("evil.txt", evil).write("flow.yaml", flow(&[step_of("it", "", script)]));
    let done = project.skein("run flow.yaml --format json");
    assert_eq!(result(&done)["steps"][0]["outputs"]["text"], evil, "{}", done.out);
    let run = result(&done)["run_id"].as_str().unwrap().to_owned();
    let lines = [
        format!("runs {run} --format json"),
        format!("events {run} --format json"),
        format!("events {run} --format jsonl"),
        format!("runs --format jsonl --follow {run}"),
        "audit --format json".to_owned(),
        "audit export".to_owned(),
    ];
    let mut printed = vec![("run".to_owned(), done.out)];
    printed.extend(lines.map(|line| (line.clone(), project.skein(&line).out)));
    printed.push(("context".into(), project.read("context/it/_meta.json")));
    for (line, text) in &printed {
        let found = text.chars().find(|c| evil.contains(*c) && !c.is_ascii() && !c.is_alphanumeric());
        assert_eq!(found, None, "{line}: {text}");
    }
    assert!(printed.iter().filter(|(_, text)| text.contains("\\u202e")).count() >= 4, "{printed:?}");
}

/// A repository in an artifact would become a repository in the workspace of the step that takes it.
#[test]
fn a_repository_in_an_artifact_is_kept_and_not_put_anywhere() {
    let project = Project::new();
    let first = step_of(
        "first",
        "    outputs:\n      - {name: all, path: out}\n",
        "git init -q out/a; git init -q --bare out/b; mkdir out/c; echo 'gitdir: ../a/.git' > out/c/.git; rm out/c/.git\n\
         echo x > out/a/file; echo x > out/b/file",
    );
    let second = step_of(
        "second",
        "    depends_on: [first]\n    inputs:\n      - {from: first, artifact: all, as: into}\n",
        "test -e into/out/a/file && test -e into/out/b/file && test -e into/out/b/config\n\
         test ! -e into/out/a/.git && test ! -e into/out/b/HEAD\n\
         test ! -e context/first/all/out/a/.git && test -e context/first/all/out/a/file",
    );
    project
        .folder
        .write("flow.yaml", flow(&[first, second]).replace("timeout: 5m", "timeout: 5m\ncontext_dir: context"));
    let told = result(&project.skein("run flow.yaml --format json"));
    assert_eq!(told["status"], "succeeded", "{told}");
    let run = told["run_id"].as_str().unwrap();
    let log = project.ends(&format!("logs {run} second"), 0);
    assert!(log.contains("holds a git repository") && log.contains("`.git` was left out"), "{log}");
    let kept = project.path(&format!(".skein/runs/{run}/artifacts"));
    let found = std::process::Command::new("find").arg(kept).args(["-name", ".git"]).output().unwrap();
    assert!(!found.stdout.is_empty(), "it is kept");
}
