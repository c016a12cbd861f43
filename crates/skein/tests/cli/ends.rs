//! Steps that do not end well, in the words of the output (C6, C7, C11).

use std::process::Command;

use crate::session::{Folder, run, skein};

/// The exit status and the output of one step with this script and this limit on descriptors.
fn told(script: &str, descriptors: u32) -> (i32, String) {
    let folder = Folder::new();
    let source = format!(
        "name: one\nversion: \"1\"\ntimeout: 1m\nsteps:\n  only:\n    worker: CUSTOM\n    capabilities: [READ, EDIT]\n    \
         instructions: |\n      {script}\n    outputs:\n      - {{name: out, path: out.txt}}\n"
    );
    folder.write("one.yaml", source);
    run_with(&folder, descriptors)
}

fn run_with(folder: &Folder, descriptors: u32) -> (i32, String) {
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
        ("truncate -s 2G out.txt", "it has 2147483648 bytes, and the limit is 1073741824"),
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
        ("kill -9 $$", "it was killed by SIGKILL (signal 9)"),
        ("kill -SEGV $$", "it was killed by SIGSEGV (signal 11) (it crashed"),
        ("no-such-program", "no-such-program: command not found"),
        ("touch x; ./x", "126 often means that a shell found the command but could not execute it"),
    ] {
        let (code, text) = told(script, 512);
        assert!(code == 4 && text.contains(says), "{script}: {text}");
    }
}

/// A journal that cannot be written would be worse than a run that does not start.
#[test]
fn a_run_with_too_few_descriptors_does_not_begin() {
    for descriptors in [32, 64, 96] {
        let (code, text) = told("echo hello > out.txt", descriptors);
        assert_eq!(code, 5, "{descriptors}: {text}");
        assert!(text.contains(&format!("the limit of open files is {descriptors}")), "{text}");
        assert!(text.contains("ulimit -n"), "{text}");
    }
}

/// With few descriptors, fewer steps run at once, and none fails for lack of them.
#[test]
fn steps_wait_for_descriptors() {
    let folder = Folder::new();
    let steps: String = (0..40)
        .map(|n| {
            format!("  s{n}:\n    worker: CUSTOM\n    capabilities: [READ, EDIT]\n    instructions: echo {n} > out{n}.txt\n    \
                 outputs:\n      - {{name: out, path: out{n}.txt}}\n")
        })
        .collect();
    folder.write("one.yaml", format!("name: one\nversion: \"1\"\ntimeout: 5m\nsteps:\n{steps}"));
    for descriptors in [112, 128, 192] {
        let (code, text) = run_with(&folder, descriptors);
        assert_eq!(code, 0, "{descriptors}: {text}");
    }
}
