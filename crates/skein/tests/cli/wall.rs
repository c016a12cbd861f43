//! The sandbox enforces the permissions of a step: steps that try more, with the built program.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    kept::Project,
    session::{Done, Folder, run, skein, without_name_spaces},
};

/// A project with one step that runs a script.
fn project(capabilities: &str, more: &str, script: &str) -> Folder {
    let folder = Folder::new();
    fs::create_dir_all(folder.0.join(".git/hooks")).expect("a folder can be made");
    fs::create_dir(folder.0.join("outside")).expect("a folder can be made");
    let lines: String = script.lines().map(|line| format!("      {}\n", line.trim())).collect();
    let workflow = format!(
        "name: tries\nversion: \"1\"\ntimeout: 5m\nsteps:\n  it:\n    worker: CUSTOM\n    workspace: inside\n    \
         capabilities: [{capabilities}]\n{more}    instructions: |\n{lines}"
    );
    folder.write("tries.yaml", workflow).write("inside/there", "as it was\n").write(".git/config", "[core]\n");
    folder
}

fn done(folder: &Folder) -> Done {
    run(skein(&folder.0).args(["run", "tries.yaml", "--format", "json"]))
}

fn outputs(folder: &Folder) -> Value {
    let done = done(folder);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let result: Value = serde_json::from_str(&done.out).expect("it is JSON");
    result["steps"][0]["outputs"].clone()
}

/// Reports for each try if it succeeded.
const TRY: &str = "try() { if ( eval \"$2\" ) 2>/dev/null; then echo \"$1=yes\" >> $SKEIN_OUTPUT; \
                   else echo \"$1=no\" >> $SKEIN_OUTPUT; fi; }";

fn tried(capabilities: &str, more: &str, tries: &[(&str, &str)]) -> (Folder, Vec<String>) {
    let script: String = tries.iter().map(|(name, text)| format!("try {name} '{text}'\n")).collect();
    let folder = project(capabilities, more, &format!("{TRY}\n{script}"));
    let outputs = outputs(&folder);
    let went = |name: &str| outputs[name] == "yes";
    let went = tries.iter().filter(|(name, _)| went(name)).map(|(name, _)| (*name).to_owned()).collect();
    (folder, went)
}

#[test]
fn who_only_reads_writes_nothing_in_the_workspace() {
    let tries = [
        ("read", "cat there"),
        ("change", "echo x >> there"),
        ("make", "echo x > new"),
        ("remove", "rm -f there && test ! -e there"),
        ("outside", "echo x > ../outside/new"),
        ("home", "echo x > ~/.skein-was-here"),
        ("tmp", "echo x > /tmp/skein-was-here"),
        ("scratch", "f=$(mktemp) && echo x > $f"),
        ("null", "echo x > /dev/null"),
    ];
    let (folder, went) = tried("READ", "", &tries);
    assert_eq!(went, ["read", "tmp", "scratch", "null"]);
    assert!(!Path::new("/tmp/skein-was-here").exists(), "its folder for temporary files is its own");
    assert_eq!(fs::read_to_string(folder.0.join("inside/there")).expect("it is there"), "as it was\n");
    assert!(!folder.0.join("inside/new").exists());
}

#[test]
fn who_edits_writes_in_the_workspace_alone() {
    let tries = [
        ("change", "echo x >> there"),
        ("make", "mkdir -p a/b && echo x > a/b/new"),
        ("outside", "echo x > ../outside/new"),
        ("above", "echo x > ../new"),
        ("link", "ln -s ../outside to && echo x > to/new"),
    ];
    let (folder, went) = tried("READ, EDIT", "", &tries);
    assert_eq!(went, ["change", "make"]);
    assert!(folder.0.join("inside/a/b/new").exists());
    assert!(!folder.0.join("outside/new").exists());
}

/// A step that is stopped by the sandbox gets an explanation.
#[test]
fn the_wall_is_told_of_who_runs_into_it() {
    let done = done(&project("READ, EDIT", "", "echo x > ../outside/new"));
    assert_eq!(done.code, 4, "{}{}", done.out, done.err);
    assert!(done.out.contains("`writes` in skein.toml allows more paths"), "{}", done.out);
}

/// A worker sees neither the files of the engine nor its environment.
#[test]
fn the_state_of_the_engine_is_out_of_reach() {
    let tries = [
        ("journal", "ls ../.skein/skein.db"),
        ("empty", "test -z \"$(ls ../.skein | grep -v runs)\""),
        ("write", "echo x > ../.skein/new"),
        ("inputs", "cat $SKEIN_INPUTS"),
        ("change", "echo x > $SKEIN_INPUTS"),
        ("processes", "test $(ls -d /proc/[0-9]* | wc -l) -gt 9"),
    ];
    let (_folder, went) = tried("READ, EDIT, RUN_COMMANDS", "", &tries);
    assert_eq!(went, ["empty", "inputs"]);
}

/// A worker that creates its own namespaces has all capabilities in them, and still cannot remove the sandbox.
#[test]
fn name_spaces_of_its_own_lead_nowhere() {
    let undo = "umount -l $PWD/../.skein; mount -o remount,bind,rw /; mount -o remount,bind,rw $PWD/..;";
    let inner = format!("unshare -Urm sh -c \"{undo} echo x > ../outside/new; ls ../.skein/skein.db\"");
    let tries = [("undo", undo), ("inner", inner.as_str()), ("write", "echo x > ../outside/new")];
    let (folder, went) = tried("READ, EDIT, RUN_COMMANDS", "", &tries);
    assert_eq!(went, Vec::<String>::new());
    assert!(!folder.0.join("outside/new").exists());
}

/// A worker cannot change the files that control git and agents.
#[test]
fn what_git_and_agents_run_by_is_protected() {
    let folder = project(
        "READ, EDIT",
        "",
        &format!(
            "{TRY}\ntry hook 'echo x > .git/hooks/pre-commit'\ntry config 'echo x >> .git/config'\ntry other 'echo x > .git/other'"
        ),
    );
    fs::create_dir_all(folder.0.join("inside/.git/hooks")).expect("a folder can be made");
    folder.write("inside/.git/config", "[core]\n");
    let outputs = outputs(&folder);
    assert_eq!((&outputs["hook"], &outputs["config"], &outputs["other"]), (&"no".into(), &"no".into(), &"yes".into()));
}

/// The files that a workflow names are protected in addition to the default ones.
#[test]
fn a_workflow_may_name_what_is_protected() {
    let tries = "try named 'echo x >> there'\ntry other 'echo x > .git/hooks/pre-commit'";
    let folder = project("READ, EDIT", "    x-skein: { protect: [there] }\n", &format!("{TRY}\n{tries}"));
    fs::create_dir_all(folder.0.join("inside/.git/hooks")).expect("a folder can be made");
    let outputs = outputs(&folder);
    assert_eq!((&outputs["named"], &outputs["other"]), (&"no".into(), &"no".into()));
    assert_eq!(fs::read_to_string(folder.0.join("inside/there")).expect("it is there"), "as it was\n");
}

/// Files that a worker leaves in its scratch folder are removed after it.
#[test]
fn a_scratch_folder_lasts_as_long_as_its_worker() {
    let folder = project("READ", "", "echo x > $TMPDIR/left; echo place=$TMPDIR >> $SKEIN_OUTPUT");
    let place = outputs(&folder)["place"].as_str().expect("it says where").to_owned();
    assert!(place.contains("/attempts/"), "{place}");
    assert!(!std::path::Path::new(&place).exists(), "{place}");
}

/// A read-only step can write its declared artifacts, and nothing else.
#[test]
fn a_reader_leaves_what_it_declared() {
    let more = "    outputs:\n      - { name: report, path: out/report.md }\n      - { name: notes, path: notes.md }\n";
    let folder = project(
        "READ",
        more,
        &format!("{TRY}\ntry report 'echo found > out/report.md'\ntry other 'echo x > out/other'"),
    );
    let outputs = outputs(&folder);
    assert_eq!((&outputs["report"], &outputs["other"]), (&"yes".into(), &"no".into()));
    assert_eq!(fs::read_to_string(folder.0.join("inside/out/report.md")).expect("it is there"), "found\n");
    assert!(!folder.0.join("inside/notes.md").exists(), "what it did not give is not there");
}

#[test]
fn a_project_may_let_more_be_written() {
    let folder = project("READ, EDIT", "", &format!("{TRY}\ntry more 'echo x > ../outside/new'"));
    folder.write("skein.toml", "writes = [\"outside\"]\n");
    assert_eq!(outputs(&folder)["more"], "yes");
    assert!(folder.0.join("outside/new").exists());
}

#[test]
fn without_a_network_nobody_is_reached() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = server.local_addr().expect("it has one").port();
    let reach = format!("{TRY}\ntry reached ': > /dev/tcp/127.0.0.1/{port}'");
    let with = project("READ", "", &reach);
    assert_eq!(outputs(&with)["reached"], "yes");
    let without = project("READ", "    x-skein: { network: none }\n", &reach);
    assert_eq!(outputs(&without)["reached"], "no");
}

/// A user without any privileges gets the same sandbox.
#[test]
fn a_wall_needs_no_rights() {
    let folder = project(
        "READ, EDIT",
        "",
        &format!(
            "{TRY}\ntry own 'echo x > new'\ntry outside 'echo x > ../outside/new'\ntry journal 'ls ../.skein/skein.db'"
        ),
    );
    let done = run(&mut as_nobody(&folder));
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let result: Value = serde_json::from_str(&done.out).expect("it is JSON");
    let outputs = &result["steps"][0]["outputs"];
    assert_eq!(
        (&outputs["own"], &outputs["outside"], &outputs["journal"]),
        (&"yes".into(), &"no".into(), &"no".into())
    );
}

/// Runs a project as a user without privileges, which is the current user if the tests have none themselves.
fn as_nobody(folder: &Folder) -> Command {
    let program = folder.0.join("skein");
    fs::copy(env!("CARGO_BIN_EXE_skein"), &program).expect("it can be copied");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let mut command = if rustix::process::getuid().is_root() {
        let owned = Command::new("chown").args(["-R", "65534"]).arg(&folder.0).status().expect("it runs");
        assert!(owned.success());
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]).arg(&program);
        command
    } else {
        Command::new(&program)
    };
    command.args(["run", "tries.yaml", "--format", "json"]).current_dir(&folder.0).env("HOME", &folder.0);
    command.stdin(Stdio::null());
    command
}

fn done_without(folder: &Folder, state: &str) -> Done {
    let mut command = skein(&folder.0);
    command.args(["run", "tries.yaml", "--format", "json", "--state", state]);
    run(&mut without_name_spaces(&command))
}

#[test]
fn without_name_spaces_what_is_written_is_still_kept() {
    let tries = "try own 'echo x > new'\ntry outside 'echo x > ../outside/new'\ntry empty ': > ../.git/config'\n\
                 try null ': > /dev/null'\ntry scratch 'mktemp'";
    let folder = project("READ, EDIT", "", &format!("{TRY}\n{tries}"));
    let done = done_without(&folder, ".skein");
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let result: Value = serde_json::from_str(&done.out).expect("it is JSON");
    let tried = result["steps"][0]["outputs"].as_object().expect("it gave some");
    let went: Vec<_> = tried.iter().filter(|(_, went)| **went == "yes").map(|(name, _)| name.as_str()).collect();
    assert_eq!(went, ["own", "null", "scratch"]);
}

/// The limits of Landlock are reported.
#[test]
fn a_state_folder_that_is_open_to_a_step_is_told() {
    let folder = project("READ, EDIT", "", "echo x > new");
    let done = done_without(&folder, "inside/.skein");
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let result: Value = serde_json::from_str(&done.out).expect("it is JSON");
    let words = ["logs", result["run_id"].as_str().unwrap(), "--state", "inside/.skein"];
    let log = run(skein(&folder.0).args(words)).out;
    assert!(log.contains("[skein: the worker can reach ") && log.contains("inside/.skein"), "{log}");
}

/// If the system does not permit a sandbox, nothing runs as if there were one.
#[test]
fn without_a_wall_nothing_runs_unless_that_is_allowed() {
    // Here the worker could reach protected files.
    let folder = project("READ, EDIT", "    x-skein: { network: none }\n", "echo x > new");
    let refused = done_without(&folder, ".skein");
    assert_ne!(refused.code, 0, "{}{}", refused.out, refused.err);
    assert!(refused.out.contains("this machine cannot enforce a sandbox"), "{}{}", refused.out, refused.err);
    assert!(!folder.0.join("inside/new").exists());
    folder.write("skein.toml", "allow_unenforced = true\n");
    let allowed = done_without(&folder, ".skein");
    assert_eq!(allowed.code, 0, "{}{}", allowed.out, allowed.err);
    assert!(folder.0.join("inside/new").exists());
}

/// No step can write the list of this user's state folders, regardless of its other permissions.
#[test]
fn the_registry_of_state_folders_is_out_of_reach() {
    let home = Folder::new();
    let marks = home.0.join("skein/states");
    let tries = format!(
        "{TRY}\ntry beside 'echo x > {0}/new'\ntry forge 'echo x > {1}/forged'\ntry read 'test -n \"$(ls {1})\"'",
        home.0.display(),
        marks.display()
    );
    let folder = project("READ, EDIT", "", &tries);
    folder.write("skein.toml", format!("writes = [\"{}\"]\n", home.0.display()));
    let done = run(skein(&folder.0).args(["run", "tries.yaml", "--format", "json"]).env("XDG_STATE_HOME", &home.0));
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let result: Value = serde_json::from_str(&done.out).expect("it is JSON");
    let outputs = &result["steps"][0]["outputs"];
    assert_eq!((&outputs["beside"], &outputs["forge"], &outputs["read"]), (&"yes".into(), &"no".into(), &"no".into()));
    assert!(marks.is_dir() && !marks.join("forged").exists());
}

/// A worker that can reach the state folder could decide its own gate, so gates are refused unless that risk is
/// accepted.
#[test]
fn without_name_spaces_gates_are_refused_unless_that_risk_is_named() {
    let project = Project::new();
    let settings = project.read("skein.toml");
    let without = |line: &str| run(&mut without_name_spaces(&project.command(line)));
    let refused = without("run gated.yaml --no-wait");
    let told = format!("{}{}", refused.out, refused.err);
    assert_eq!(refused.code, 5, "{told}");
    assert!(told.contains("`sign-off` asks a person") && told.contains("allow_unenforced = [\"gates\"]"), "{told}");
    // Permission to run steps unconfined does not include gates.
    project.folder.write("skein.toml", format!("allow_unenforced = true\n{settings}"));
    assert_eq!(without("run gated.yaml --no-wait").code, 5);
    project.folder.write("skein.toml", format!("allow_unenforced = [\"gates\"]\n{settings}"));
    let allowed = without("run gated.yaml --no-wait");
    let told = format!("{}{}", allowed.out, allowed.err);
    assert_eq!(allowed.code, 6, "{told}");
    assert!(told.contains("a worker can read the state folder"), "it is said before anything runs: {told}");
    let plan = without("plan gated.yaml");
    assert!(plan.out.contains("a worker can reach the state folder, so gates are refused"), "{}", plan.out);
    let doctor = without("doctor");
    assert!(doctor.out.contains("a worker can reach the state folder"), "{}", doctor.out);
}
