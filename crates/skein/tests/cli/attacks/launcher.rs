//! Attacks on the processes that build a sandbox: if a worker or a workflow misleads them, the sandbox has no effect.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use super::require;
use crate::{
    kept::Project,
    session::{Folder, run},
};

/// Writes a file outside the workspace and one in the working directory, in every process that loads it.
const LIBRARY: &str = r#"
#include <fcntl.h>
__attribute__((constructor)) static void loaded(void) {
    open(WITNESS, O_CREAT | O_WRONLY, 0644);
    open("loaded", O_CREAT | O_WRONLY, 0644);
}
unsigned int la_version(unsigned int version) { return version; }
"#;

/// Variables that change a program before its first line. The worker gets them only if the user names them as secrets.
#[test]
fn variables_of_a_workflow_do_not_reach_the_launcher() {
    require(&[("cc", "gcc")]);
    let project = Project::new();
    let beside = Folder::new();
    let (library, witness) = (project.path("lib/evil.so"), beside.0.join("witness"));
    project.folder.write("lib/evil.c", LIBRARY).write("inside/there", "");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(format!("-DWITNESS=\"{}\"", witness.display()))
        .arg(project.path("lib/evil.c"))
        .status();
    assert!(built.expect("cc is installed").success());
    let plainly = Command::new("true").env("LD_PRELOAD", &library).current_dir(project.path("lib")).status();
    assert!(plainly.unwrap().success() && witness.exists(), "the library does what it is for");
    fs::remove_file(&witness).unwrap();
    let settings = project.read("skein.toml");
    for (name, value) in [
        ("LD_PRELOAD", library.display().to_string()),
        ("LD_AUDIT", library.display().to_string()),
        ("LD_LIBRARY_PATH", project.path("lib").display().to_string()),
        ("GCONV_PATH", project.path("lib").display().to_string()),
        ("LD_DEBUG_OUTPUT", witness.display().to_string()),
        ("MALLOC_CHECK_", "3".to_owned()),
        ("RUST_BACKTRACE", "full".to_owned()),
        ("SKEIN_SANDBOX", "{\"writes_everywhere\": true}".to_owned()),
        ("SKEIN_SANDBOX_ENV_0", "PATH=/nowhere".to_owned()),
    ] {
        let is_harmless = ["MALLOC_CHECK_", "RUST_BACKTRACE"].contains(&name);
        let (env, secrets) = match is_harmless {
            true => (format!("{name}: '{value}'"), ""),
            false => (String::new(), name),
        };
        let config = if is_harmless { "" } else { &format!("[secrets]\n{name} = {{ file = \"value\" }}\n") };
        project.folder.write("value", value.as_bytes()).write("skein.toml", format!("{settings}{config}"));
        project.folder.write(
            "w.yaml",
            format!(
                "workflow: {{id: w, name: W}}\nconfig: {{timeout: 1m, env: {{{env}}}}}\nstages:\n  - {{id: s, name: S, \
                 x-skein: {{secrets: [{secrets}]}}, roles: {{primary: {{artifact: \"agent:writer\", instructions: x}}}}}}\n"
            ),
        );
        let done = project.skein("run w.yaml --format json");
        assert_eq!(done.code, 0, "{name}: {}{}", done.out, done.err);
        assert!(!witness.exists(), "{name} reached a process outside of the sandbox");
        let left = fs::read_dir(&beside.0).unwrap().flatten();
        let left: Vec<_> = left.filter(|file| file.file_name().to_string_lossy().starts_with("witness")).collect();
        assert!(left.is_empty(), "{name}: {left:?}");
        assert_eq!(project.path("loaded").exists(), value.ends_with(".so"), "{name} is the worker's");
        let _ = fs::remove_file(project.path("loaded"));
    }
}

/// A shell or a desktop that leaks open files into Skein must not leak them into workers.
#[test]
fn descriptors_of_the_person_do_not_reach_a_worker() {
    let project = Project::new();
    project.folder.write("secret", "outside-secret\n");
    let look = "set +e; ls -l /proc/self/fd; for n in 3 9 11 63; do cat <&$n; done 2>/dev/null; true";
    project.folder.write(
        "flow.yaml",
        format!(
            "name: f\nversion: \"1\"\ntimeout: 1m\nsteps:\n  it:\n    worker: CUSTOM\n    capabilities: [READ, EDIT]\n    \
             instructions: |\n      ({look}) > seen\n"
        ),
    );
    let opened = |program: &str| {
        let mut command = Command::new("bash");
        let secret = project.path("secret");
        let open = format!("exec 3< {0} 9<> {0} 11< {0} 63< {0}; {program}", secret.display());
        command.args(["-c", &open]).current_dir(&project.folder.0).stdin(Stdio::null());
        run(&mut command)
    };
    assert!(opened(look).out.contains("outside-secret"), "a plain program inherits them");
    let done = opened(&format!("exec {} run flow.yaml --format json", env!("CARGO_BIN_EXE_skein")));
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let seen = project.read("seen");
    assert!(!seen.contains("outside-secret") && !seen.contains("/secret"), "{seen}");
}

/// The program is started through a descriptor that was opened when the engine started.
#[test]
fn a_program_that_is_replaced_during_a_run_is_not_started() {
    let project = Project::new();
    let program = project.path("bin/skein");
    fs::create_dir(project.path("bin")).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_skein"), &program).unwrap();
    project.folder.write(
        "flow.yaml",
        "name: f\nversion: \"1\"\ntimeout: 1m\nsteps:\n  one:\n    worker: CUSTOM\n    capabilities: [READ, EDIT]\n    \
         instructions: 'echo $$ > begun; cat go'\n  two:\n    worker: CUSTOM\n    depends_on: [one]\n    capabilities: [READ, EDIT]\n    \
         instructions: 'echo two > done.txt'\n",
    );
    let mut command = Command::new(&program);
    command.args(["run", "flow.yaml", "--format", "jsonl"]).current_dir(&project.folder.0).stdin(Stdio::null());
    let going = project.begin_as(&command);
    project.begun();
    project.folder.write("bin/evil", format!("#!/bin/sh\ntouch {}\n", project.path("witness").display()));
    fs::set_permissions(project.path("bin/evil"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(project.path("bin/evil"), &program).unwrap();
    project.go();
    assert_eq!(going.end().0, Some(0));
    assert_eq!(project.read("done.txt"), "two\n");
    assert!(!project.path("witness").exists(), "the program that took its place was started");
    assert!(Command::new(&program).status().unwrap().success() && project.path("witness").exists());
}
