//! Closed pipes, full disks, colours.

use std::{
    fs::File,
    io::{Read, pipe},
    process::{Command, Stdio},
};

use crate::session::{repository, run, skein};

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for line in ["explain", "--help", "plan examples/agentcore/feature.yaml", "schema agentcore", "list"] {
        let (reader, writer) = pipe().expect("a pipe can be made");
        drop(reader);
        let mut command = skein(repository());
        let mut child = command.args(line.split(' ')).stdout(writer).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut said = String::new();
        child.stderr.take().expect("it is a pipe").read_to_string(&mut said).expect("it is text");
        let status = child.wait().expect("it ends");
        assert_eq!((status.code(), said.as_str()), (Some(0), ""), "{line}");
    }
}

/// A closed standard error does not make an invalid source valid either.
#[test]
fn a_reader_of_errors_that_goes_away_changes_no_exit() {
    for (line, code) in [("validate docs/broken.yaml", 3), ("plan nowhere", 5), ("plan", 2)] {
        let (reader, writer) = pipe().expect("a pipe can be made");
        drop(reader);
        let mut command = skein(repository());
        let status = command.args(line.split(' ')).stdout(Stdio::null()).stderr(writer).status().expect("it runs");
        assert_eq!(status.code(), Some(code), "{line}");
    }
}

#[test]
fn a_full_disk_is_one() {
    let Ok(full) = File::options().write(true).open("/dev/full") else { return };
    let mut command = skein(repository());
    let output = command.arg("explain").stdout(full).stderr(Stdio::piped()).output().expect("it runs");
    let said = String::from_utf8(output.stderr).expect("it is text");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("error: the output cannot be written"), "{said}");
}

/// Uses `script`, which every Linux has, to give a program a terminal.
#[test]
fn colours_are_for_terminals_that_want_them() {
    let coloured = |name: &str, value: &str| {
        let line = format!("{} explain", env!("CARGO_BIN_EXE_skein"));
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null());
        command.env_remove("NO_COLOR").env("TERM", "xterm").env(name, value);
        run(&mut command).out.contains("\u{1b}[")
    };
    assert!(coloured("TERM", "xterm"));
    assert!(coloured("NO_COLOR", ""), "an empty value asks for nothing");
    assert!(!coloured("NO_COLOR", "1"));
    assert!(!coloured("TERM", "dumb"));
}
