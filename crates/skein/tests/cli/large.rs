//! Workflows with thousands of steps: every command ends soon, and no graph is wider than can be read.

use std::{
    fmt::Write,
    time::{Duration, Instant},
};

use crate::session::{Folder, Session, run, skein};

fn source(steps: usize, after: impl Fn(usize) -> String) -> String {
    let mut text = "name: large\nversion: \"1\"\ntimeout: 5h\nsteps:\n".to_owned();
    for i in 0..steps {
        let after = if i == 0 { String::new() } else { format!(", depends_on: [{}]", after(i)) };
        writeln!(text, "  s{i}: {{worker: CUSTOM, instructions: x, capabilities: [READ], timeout: 1m{after}}}")
            .unwrap();
    }
    text
}

#[test]
fn thousands_of_steps_take_no_longer_each_than_a_few() {
    let folder = Folder::new();
    folder.write("chain.yaml", source(4_000, |i| format!("s{}", i - 1)));
    folder.write("wide.yaml", source(4_000, |_| "s0".to_owned()));
    for file in ["chain.yaml", "wide.yaml"] {
        for line in ["validate", "plan", "plan --format json", "graph", "graph --as dot", "show"] {
            let begun = Instant::now();
            let done = run(skein(&folder.0).args(line.split(' ')).arg(file));
            assert_eq!(done.code, 0, "{line} {file}: {}", done.err);
            assert!(begun.elapsed() < Duration::from_secs(30), "{line} {file} took {:?}", begun.elapsed());
            let widest = done.out.lines().map(|line| line.chars().count()).max().unwrap_or_default();
            assert!(widest < 300, "{line} {file} has a line of {widest} characters");
        }
    }
}

#[test]
fn fans_are_drawn_while_they_can_be_followed() {
    let folder = Folder::new();
    let fan = |width: usize| {
        let join = (1..=width).map(|i| format!("s{i}")).collect::<Vec<_>>().join(", ");
        source(width + 2, |i| if i > width { join.clone() } else { "s0".to_owned() })
    };
    folder.write("six.yaml", fan(6)).write("thirty.yaml", fan(30));
    let mut session = Session::within(&folder.0);
    session.skein("graph six.yaml", 0).skein("graph thirty.yaml", 0).skein("graph six.yaml --as mermaid", 0);
    session.skein("plan thirty.yaml", 0);
    session.is("fans");
}

/// A command with quadratic time in the variables of a script would not end.
#[test]
fn a_script_with_tens_of_thousands_of_variables_is_planned() {
    let folder = Folder::new();
    let variables: String = (0..50_000).map(|i| format!(" $V{i}")).collect();
    let step = format!("{{worker: CUSTOM, capabilities: [READ], timeout: 1m, instructions: ': {variables}'}}");
    folder.write("many.yaml", format!("name: many\nversion: \"1\"\ntimeout: 5m\nsteps:\n  a: {step}\n"));
    let done = run(skein(&folder.0).env("V7", "set").args(["plan", "many.yaml"]));
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.out.contains("V7 is not passed to steps"), "{}", done.out);
}
