//! The message that tells the monitor, and then init, what to start.
//!
//! Owns its form: variables with names of Skein's own, so that nothing in the worker's environment (`LD_PRELOAD`,
//! `GCONV_PATH`) affects the processes that build the sandbox. It uses the environment instead of arguments, because
//! every user of a machine can read arguments.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    process::Command,
};

use rustix::process::getuid;
use serde::{Deserialize, Serialize};

use super::SandboxSpec;

/// The variable that contains the request as JSON.
const REQUEST: &str = "SKEIN_SANDBOX";
/// The prefix of the variables that contain those of the worker, as `NAME=value`.
const WORKER_VARIABLE: &str = "SKEIN_SANDBOX_ENV_";

/// The request, except for the program and its arguments.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LaunchRequest {
    pub spec: SandboxSpec,
    /// The process with which the receiver ends.
    pub parent: i32,
    /// True if the request only asks how much of a sandbox can be enforced here.
    pub probe: bool,
    /// The number of the descriptor on which init reports how the worker ended.
    pub report: Option<i32>,
    /// True if the engine runs as root, who owns files of the kernel.
    pub is_root: bool,
    /// The reason why init has no namespaces of its own.
    pub no_namespaces: Option<String>,
}

impl LaunchRequest {
    pub(super) fn new(spec: SandboxSpec, probe: bool) -> LaunchRequest {
        let parent = own_pid();
        LaunchRequest { spec, parent, probe, report: None, is_root: getuid().is_root(), no_namespaces: None }
    }

    /// Puts the request into the environment of a command. Returns `None` if a path is not UTF-8.
    pub(super) fn write_to(&self, command: &mut Command) -> Option<()> {
        command.env(REQUEST, serde_json::to_string(self).ok()?);
        Some(())
    }

    /// Returns the request with which this process was started.
    pub(super) fn receive() -> Option<LaunchRequest> {
        serde_json::from_str(std::env::var_os(REQUEST)?.to_str()?).ok()
    }
}

/// Puts the worker's environment into that of a command, as data.
pub(super) fn put_environment(command: &mut Command, environment: &[(OsString, OsString)]) {
    for (number, (name, value)) in environment.iter().enumerate() {
        let mut text = name.clone();
        text.push("=");
        text.push(value);
        command.env(format!("{WORKER_VARIABLE}{number}"), text);
    }
}

/// Returns the worker's environment, in its original order.
pub(super) fn receive_environment() -> Vec<(OsString, OsString)> {
    let numbered = std::env::vars_os().filter_map(|(name, text)| {
        let number: usize = name.to_str()?.strip_prefix(WORKER_VARIABLE)?.parse().ok()?;
        Some((number, split_variable(&text)?))
    });
    let mut variables: Vec<_> = numbered.collect();
    variables.sort_by_key(|(number, _)| *number);
    variables.into_iter().map(|(_, variable)| variable).collect()
}

fn split_variable(text: &OsStr) -> Option<(OsString, OsString)> {
    let bytes = text.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=')?;
    Some((OsString::from_vec(bytes[..at].to_vec()), OsString::from_vec(bytes[at + 1..].to_vec())))
}

pub(super) fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}
