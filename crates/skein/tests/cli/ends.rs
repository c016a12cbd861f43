//! How steps end that do not end well, in the words that someone reads (C6, C7, C11).

use std::process::Command;

use crate::session::{Folder, run, skein};

/// What is told of one step that does this, given so many descriptors, and how the command ends.
fn told(script: &str, descriptors: u32) -> (i32, String) {
    let folder = Folder::new();
    let source = format!(
        "name: one\nversion: \"1\"\ntimeout: 1m\nsteps:\n  only:\n    worker: CUSTOM\n    capabilities: [READ, EDIT]\n    \
         instructions: |\n      {script}\n    outputs:\n      - {{name: out, path: out.txt}}\n"
    );
    folder.write("one.yaml", source);
    let mut command = Command::new("sh");
    let line = format!("ulimit -n {descriptors}; exec {} run one.yaml", env!("CARGO_BIN_EXE_skein"));
    let envs = skein(&folder.0);
    command.args(["-c", &line]).current_dir(&folder.0).env_remove("SKEIN_STATE");
    command.envs(envs.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let done = run(&mut command);
    (done.code, done.out + &done.err)
}

#[test]
fn what_is_no_file_is_not_taken_and_nothing_hangs() {
    for (script, says) in [
        ("mkfifo out.txt", "it is a named pipe; only regular files and folders can be used"),
        ("ln -s /etc/passwd out.txt", "is a symbolic link, and those are not followed here"),
        ("ln -s /dev/zero out.txt", "is a symbolic link, and those are not followed here"),
        ("truncate -s 2G out.txt", "it has 2147483648 bytes, and at most 1073741824 are taken"),
    ] {
        let (code, text) = told(script, 512);
        assert!(code == 4 && text.contains("the artifact `out`") && text.contains(says), "{script}: {text}");
    }
    for script in [": > out.txt", "mkdir out.txt"] {
        let (code, text) = told(script, 512);
        assert_eq!(code, 0, "{script}: {text}");
    }
}

#[test]
fn each_bad_end_has_its_words() {
    for (script, says) in [
        ("exit 3", "it failed with exit status 3"),
        ("exit 137", "137 often means that something in it was killed"),
        ("kill -9 $$", "it was ended by SIGKILL (signal 9)"),
        ("kill -SEGV $$", "it was ended by SIGSEGV (signal 11) (it crashed"),
        ("no-such-program", "no-such-program: command not found"),
        ("touch x; ./x", "126 often means that a shell found the command but could not execute it"),
    ] {
        let (code, text) = told(script, 512);
        assert!(code == 4 && text.contains(says), "{script}: {text}");
    }
}

/// The engine keeps some for itself, so that it can say so.
#[test]
fn a_step_without_descriptors_fails_and_the_engine_goes_on() {
    let (code, text) = told("echo hello > out.txt", 60);
    assert!(code == 4 && text.contains("too many files are open here (raise the limit"), "{text}");
}
