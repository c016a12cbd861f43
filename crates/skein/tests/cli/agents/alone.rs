//! A network of its own for a test, in which there is nothing but the test: no agent can reach anyone else.
//!
//! The test is started once more in a name space that has only a loopback. Where that is not allowed, it says so, and runs as
//! it is.

use std::{
    env,
    process::{Command, Stdio},
};

/// Set for a test that is alone.
const ALONE: &str = "SKEIN_TEST_ALONE";
const LOOPBACK: &str = "ip link set lo up && exec \"$@\"";

/// The same test for each agent.
macro_rules! for_each_agent {
    ($($name:ident),* $(,)?) => {
        mod claude { $($crate::agents::alone::alone! { fn $name() { super::$name($crate::agents::kind::CLAUDE) } })* }
        mod codex { $($crate::agents::alone::alone! { fn $name() { super::$name($crate::agents::kind::CODEX) } })* }
        mod opencode { $($crate::agents::alone::alone! { fn $name() { super::$name($crate::agents::kind::OPENCODE) } })* }
    };
}

/// A test that is alone.
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

/// Runs a test by its whole name.
pub fn run(name: &str, test: impl FnOnce()) {
    if env::var_os(ALONE).is_some() {
        return test();
    }
    let Some(rights) = [&["--net"][..], &["--user", "--map-root-user", "--net"]].into_iter().find(may) else {
        eprintln!(
            "no network of its own can be made here (`unshare --net`, `ip link`): {name} shares this one"
        );
        return test();
    };
    let (_, within) = name.split_once("::").expect("it is in this crate");
    let itself = env::current_exe().expect("it has a name");
    let status =
        unshared(rights).arg(itself).args(["--exact", within, "--nocapture"]).env(ALONE, "1").status();
    assert!(status.expect("it starts").success(), "{within}, in a network of its own");
}

fn unshared(rights: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(rights).args(["sh", "-c", LOOPBACK, "sh"]);
    command
}

fn may(rights: &&[&str]) -> bool {
    let mut command = unshared(rights);
    command
        .arg("true")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
