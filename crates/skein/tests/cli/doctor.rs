//! `skein doctor`: its findings on healthy and broken machines and projects.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    process::Command,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    kept::{HELD, Project, lives},
    session::{Folder, run, skein, state_home, without_name_spaces},
};

/// The program in a project with a separate home without logins.
fn doctor(folder: &Folder) -> Command {
    let home = folder.0.join("home");
    fs::create_dir_all(&home).expect("a folder can be made");
    let mut command = skein(&folder.0);
    command.args(["doctor", "--format", "json"]).env("HOME", home).env("LANG", "C.UTF-8");
    for name in ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR", "LC_ALL"]
    {
        command.env_remove(name);
    }
    command
}

fn findings(command: &mut Command, code: i32) -> Value {
    let done = run(command);
    assert_eq!((done.code, done.err.as_str()), (code, ""), "{}", done.out);
    serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {}", done.out))
}

/// The severity, the text and the hint of a finding.
fn about<'a>(found: &'a Value, area: &str, name: &str) -> (&'a str, &'a str, &'a str) {
    let all = found["findings"].as_array().expect("it is a list");
    let one = all.iter().find(|one| one["area"] == area && one["name"] == name);
    let one = one.unwrap_or_else(|| panic!("nothing about {area} {name} in {found:#}"));
    let text = |field: &str| one[field].as_str().unwrap_or_default();
    (text("level"), text("message"), text("hint"))
}

/// A program that comes first in the search path and is outside the project. Returns its folder and the search path.
fn program(name: &str, script: &str) -> (Folder, String) {
    let programs = Folder::new();
    executable(&programs, name, script);
    let path = format!("{}:{}", programs.0.display(), std::env::var("PATH").expect("there is a PATH"));
    (programs, path)
}

fn executable(folder: &Folder, name: &str, script: &str) {
    folder.write(name, script);
    fs::set_permissions(folder.0.join(name), Permissions::from_mode(0o755)).expect("it is ours");
}

#[test]
fn a_project_that_is_well() {
    let project = Project::new();
    let before = findings(&mut doctor(&project.folder), 0);
    assert_eq!(before["healthy"], true);
    assert!(about(&before, "state", "place").1.contains("it does not exist yet"), "{before:#}");
    assert_eq!(about(&before, "journal", "runs").1, "none yet");
    assert!(!project.path(".skein").exists(), "who only looks makes nothing");
    project.left("gated.yaml");
    let found = findings(&mut doctor(&project.folder), 0);
    for (area, name) in [
        ("project", "folder"),
        ("project", "skein.toml"),
        ("state", "place"),
        ("state", "space"),
        ("state", "writable"),
        ("state", "permissions"),
        ("journal", "database"),
        ("programs", "bash"),
        ("programs", "git"),
        ("system", "open files"),
        ("system", "clock"),
        ("system", "pidfd"),
        ("system", "subreaper"),
        ("system", "openat2"),
        ("terminal", "colour"),
    ] {
        assert_eq!(about(&found, area, name).0, "ok", "{area} {name}: {found:#}");
    }
    assert!(about(&found, "state", "sync").1.contains("steps per second"));
    assert!(about(&found, "journal", "database").1.ends_with("intact"));
    let (level, message, hint) = about(&found, "journal", "left");
    assert!(level == "warning" && message.starts_with("1 interrupted") && hint.contains("skein resume --all"));
    for agent in ["claude", "codex", "opencode"] {
        about(&found, "agents", agent);
    }
    about(&found, "sandbox", "confinement");
    let text = run(skein(&project.folder.0).arg("doctor"));
    assert_eq!(text.code, 0, "{}", text.out);
    assert!(text.out.contains("Project\n  ok") && text.out.contains("No problems found"), "{}", text.out);
    assert!(
        fs::read_dir(&project.folder.0)
            .unwrap()
            .all(|entry| { !entry.unwrap().file_name().to_string_lossy().contains("doctor") })
    );
}

/// Root may write regardless of the mode, so the disk itself must be read-only.
#[test]
fn a_state_folder_that_cannot_be_written() {
    let project = Project::new();
    project.left("gated.yaml");
    let state = project.path(".skein");
    let script = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && exec \"$2\" doctor --format json";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(&state).arg(env!("CARGO_BIN_EXE_skein"));
    command.current_dir(&project.folder.0).env_remove("SKEIN_STATE").env("XDG_STATE_HOME", state_home());
    let found = findings(&mut command, 1);
    assert_eq!(found["healthy"], false);
    let (level, message, hint) = about(&found, "state", "writable");
    assert!(level == "problem" && message.contains("read-only") && hint.contains("--state DIR"), "{found:#}");
    assert_eq!(about(&found, "journal", "open").0, "problem");
}

#[test]
fn a_state_folder_that_others_may_write_to() {
    let project = Project::new();
    project.left("gated.yaml");
    let set = |mode| fs::set_permissions(project.path(".skein"), Permissions::from_mode(mode)).expect("it is ours");
    set(0o755);
    let found = findings(&mut doctor(&project.folder), 0);
    let (level, _, hint) = about(&found, "state", "permissions");
    assert!(level == "warning" && hint.starts_with("chmod 700 "), "{found:#}");
    set(0o777);
    let found = findings(&mut doctor(&project.folder), 1);
    assert_eq!((about(&found, "state", "permissions").0, about(&found, "journal", "open").0), ("problem", "problem"));
}

#[test]
fn an_agent_that_hangs_does_not_hang_us() {
    let folder = Folder::new();
    let hangs = "#!/bin/sh\necho $$ > \"$HOME/begun\"\ntrap '' TERM\nsleep 1000 &\necho $! >> \"$HOME/begun\"\nwait\n";
    let (_programs, path) = program("claude", hangs);
    let mut command = doctor(&folder);
    let found = findings(command.env("PATH", &path), 0);
    let (level, message, hint) = about(&found, "agents", "claude");
    assert!(level == "warning" && message.contains("it was stopped") && hint.contains("claude --version"), "{message}");
    let begun = fs::read_to_string(folder.0.join("home/begun")).expect("it was started");
    assert_eq!(begun.lines().filter(|pid| lives(pid)).count(), 0, "nothing of it is left");
    assert_eq!(begun.lines().count(), 2);
}

#[test]
fn an_agent_is_logged_in_or_not() {
    let folder = Folder::new();
    let (_programs, path) = program("claude", "#!/bin/sh\necho '7.7.7 (Claude Code)'\n");
    let ask = |command: &mut Command| findings(command.env("PATH", &path), 0);
    let found = ask(&mut doctor(&folder));
    let (level, message, hint) = about(&found, "agents", "claude");
    assert!(level == "warning" && message.contains("7.7.7") && message.contains("not logged in"), "{message}");
    assert!(hint.contains("ANTHROPIC_API_KEY"));
    let found = ask(doctor(&folder).env("ANTHROPIC_API_KEY", "sk-very-secret-indeed"));
    let (level, message, _) = about(&found, "agents", "claude");
    assert!(level == "ok" && message.contains("ANTHROPIC_API_KEY is set"), "{message}");
    assert!(!found.to_string().contains("very-secret"), "{found:#}");
    folder.write("home/.claude/.credentials.json", "{}");
    let found = ask(&mut doctor(&folder));
    assert!(about(&found, "agents", "claude").1.ends_with("logged in"), "{found:#}");
    // A program in the project is not trusted, and one that skein.toml requires must exist.
    folder.write("skein.toml", "default_worker = \"CODEX_CLI\"\n");
    executable(&folder, "programs/codex", "#!/bin/sh\necho 1\n");
    let inside = format!("{}:/usr/bin:/bin", folder.0.join("programs").display());
    let found = findings(doctor(&folder).env("PATH", inside), 1);
    let (level, message, _) = about(&found, "agents", "codex");
    assert!(level == "problem" && message.contains("`default_worker`"), "{message}");
}

#[test]
fn a_configuration_that_is_wrong() {
    let folder = Folder::new();
    folder.write("skein.toml", "max_workers = 2\ndefault_wroker = \"CUSTOM\"\n");
    let found = findings(&mut doctor(&folder), 1);
    let (level, message, hint) = about(&found, "project", "skein.toml");
    assert!(level == "problem" && message.contains("`default_wroker`, at skein.toml:2"), "{message}");
    assert!(hint.contains("`default_worker`"), "{hint}");
}

#[test]
fn secrets_are_looked_for_and_never_shown() {
    let folder = Folder::new();
    folder.write(
        "skein.toml",
        "[secrets]\nHAD = { env = \"HAD_FROM\" }\nLOST = { file = \"no/such\" }\nSHORT = { env = \"TINY\" }\n",
    );
    let mut command = doctor(&folder);
    command.env("HAD_FROM", "hunter2-hunter2").env("TINY", "tiny!");
    let found = findings(&mut command, 0);
    let secrets: Vec<&Value> =
        found["findings"].as_array().unwrap().iter().filter(|one| one["name"] == "secrets").collect();
    let levels: Vec<&str> = secrets.iter().map(|one| one["level"].as_str().unwrap()).collect();
    assert_eq!(levels, ["ok", "warning", "warning"], "{secrets:#?}");
    let text = found.to_string();
    assert!(text.contains("`LOST` cannot be read") && text.contains("HAD_FROM"), "{text}");
    assert!(!text.contains("hunter2") && !text.contains("tiny!"), "{text}");
}

/// A run whose engine died, and a process of its worker that lives on, because there was no namespace to end with it.
#[test]
fn what_a_dead_engine_left() {
    let project = Project::new();
    let leaves = HELD.replace("'echo $$ > begun;", "'setsid sleep 1000 & echo $! > begun;");
    project.folder.write("held.yaml", leaves);
    let going = project.begin_as(&without_name_spaces(&project.command("run held.yaml --format jsonl")));
    going.run();
    let worker = project.begun();
    going.signal(Signal::KILL);
    assert_eq!(going.end().0, None);
    let found = findings(&mut doctor(&project.folder), 0);
    assert_eq!(about(&found, "journal", "left").0, "warning");
    let (level, message, hint) = about(&found, "journal", "processes");
    assert!(level == "warning" && message.contains(&worker) && hint.contains("skein resume --all"), "{message}");
    assert!(lives(&worker), "who only looks ends nothing");
    let run = project.json("runs", 0)["runs"][0]["run_id"].as_str().expect("it has an id").to_owned();
    project.ends(&format!("cancel {run}"), 0);
    assert!(!lives(&worker));
}

#[test]
fn what_is_no_journal_is_told() {
    let project = Project::new();
    project.left("gated.yaml");
    fs::remove_file(project.path(".skein/skein.db-wal")).expect("it is there");
    project.folder.write(".skein/skein.db", [0x5a; 8192]);
    let found = findings(&mut doctor(&project.folder), 1);
    let (level, message, _) = about(&found, "journal", "open");
    assert!(level == "problem" && message.contains("skein.db"), "{message}");
    let text = run(skein(&project.folder.0).arg("doctor"));
    assert!(text.code == 1 && text.out.contains("1 problem"), "{}", text.out);
}

#[test]
fn what_is_no_folder_is_told() {
    let folder = Folder::new();
    folder.write("file", "");
    let found = findings(doctor(&folder).args(["--state", "file"]), 1);
    let hint = "remove it, or choose a folder with `--state DIR`";
    assert_eq!(about(&found, "state", "place"), ("problem", "`file` is not a folder", hint));
}
