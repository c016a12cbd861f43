//! An isolated network for a test: no agent can reach anything outside the test.
//!
//! The test is started again in a network namespace that has only a loopback interface. If that is not permitted, the
//! test prints a note and runs without isolation.

use std::{
    env,
    process::{Command, Stdio},
};

/// Set for a test that runs isolated.
const ALONE: &str = "SKEIN_TEST_ALONE";
const LOOPBACK: &str = "ip link set lo up && exec \"$@\"";

/// Declares the same test for each agent.
macro_rules! for_each_agent {
    ($($name:ident),* $(,)?) => {
        mod claude { $($crate::agents::alone::alone! { fn $name() { super::$name($crate::agents::kind::CLAUDE) } })* }
        mod codex { $($crate::agents::alone::alone! { fn $name() { super::$name($crate::agents::kind::CODEX) } })* }
        mod opencode { $($crate::agents::alone::alone! { fn $name() { super::$name($crate::agents::kind::OPENCODE) } })* }
    };
}

/// Declares a test that runs isolated.
macro_rules! alone {
    ($(#[$about:meta])* fn $name:ident() $body:block) => {
        $(#[$about])*
        #[test]
        fn $name() {
            $crate::agents::alone::run(concat!(module_path!(), "::", stringify!($name)), || $body);
        }
    };
}
pub(crate) use {alone, for_each_agent};

/// Runs a test by its full name.
pub(crate) fn run(name: &str, test: impl FnOnce()) {
    if env::var_os(ALONE).is_some() {
        return test();
    }
    let Some(rights) = [&["--net"][..], &["--user", "--map-root-user", "--net"]].into_iter().find(may) else {
        eprintln!("no network of its own can be made here (`unshare --net`, `ip link`): {name} shares this one");
        return test();
    };
    let (_, within) = name.split_once("::").expect("it is in this crate");
    let itself = env::current_exe().expect("it has a name");
    let status = unshared(rights).arg(itself).args(["--exact", within, "--nocapture"]).env(ALONE, "1").status();
    assert!(status.expect("it starts").success(), "{within}, in a network of its own");
}

fn unshared(rights: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(rights).args(["sh", "-c", LOOPBACK, "sh"]);
    command
}

fn may(rights: &&[&str]) -> bool {
    let mut command = unshared(rights);
    command.arg("true").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
