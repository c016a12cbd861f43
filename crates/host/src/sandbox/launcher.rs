//! Starts a program in a sandbox, from the engine's side, and tells the monitor, and then init, what to start.
//!
//! Owns the guarantee that the program which builds the sandbox is Skein itself: it is started through an open
//! descriptor, so that a worker that replaces the file, or a folder above it, has no effect. Owns the form of the
//! message: variables with names of Skein's own, so that nothing in the worker's environment (`LD_PRELOAD`,
//! `GCONV_PATH`) affects the processes that build the sandbox. It uses the environment instead of arguments, because
//! every user of a machine can read arguments.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        process::CommandExt,
    },
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, OnceLock},
};

use rustix::process::getuid;
use serde::{Deserialize, Serialize};

use crate::{
    sandbox::{MONITOR_ARGUMENT, Sandbox, SandboxEnforcement, SandboxSpec, descriptor_path},
    terminal_escape::escape_for_terminal,
};

/// The reason why this machine enforces nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{0}")]
#[serde(transparent)]
pub struct SandboxProbeError(pub String);

/// The program that builds sandboxes: one that starts with [`super::enter_sandbox`].
#[derive(Debug, Clone)]
pub struct SandboxLauncher {
    program: Arc<File>,
    /// The part of a sandbox that this machine enforces, once it was probed.
    enforced: Arc<OnceLock<Result<SandboxEnforcement, SandboxProbeError>>>,
}

impl SandboxLauncher {
    /// Uses the program of this process, even if its file was replaced meanwhile.
    pub fn this_program() -> io::Result<SandboxLauncher> {
        SandboxLauncher::open(Path::new("/proc/self/exe"))
    }

    pub fn open(program: &Path) -> io::Result<SandboxLauncher> {
        Ok(SandboxLauncher { program: Arc::new(File::open(program)?), enforced: Arc::default() })
    }

    /// Creates a command with an empty environment. Descriptors are not inherited, so it starts with three.
    fn new_command(&self) -> Command {
        let mut command = Command::new(descriptor_path(&*self.program));
        command.arg0("skein").env_clear();
        command
    }

    /// Returns the part of a sandbox that this machine enforces, or the reason why it enforces nothing. Probes it once,
    /// by building a sandbox.
    pub fn enforcement(&self) -> &Result<SandboxEnforcement, SandboxProbeError> {
        self.enforced.get_or_init(|| self.probe())
    }

    fn probe(&self) -> Result<SandboxEnforcement, SandboxProbeError> {
        let mut command = self.new_command();
        let request = LaunchRequest::new(SandboxSpec::default(), true);
        request
            .write_to(&mut command)
            .ok_or_else(|| SandboxProbeError("the sandbox request cannot be encoded".to_owned()))?;
        let output = command.arg(MONITOR_ARGUMENT).arg("-").current_dir("/").stdin(Stdio::null()).output();
        let done = output.map_err(|error| SandboxProbeError(format!("cannot start the sandbox launcher: {error}")))?;
        let stderr = || SandboxProbeError(escape_for_terminal(done.stderr.trim_ascii()));
        serde_json::from_slice(&done.stdout).unwrap_or_else(|_| Err(stderr()))
    }
}

impl Sandbox {
    /// Returns the command that starts a program in this sandbox, or `None` if a path of the sandbox is not UTF-8.
    pub fn build_command(
        &self,
        program: &Path,
        arguments: &[OsString],
        environment: &[(OsString, OsString)],
    ) -> Option<Command> {
        let mut command = self.launcher.new_command();
        LaunchRequest::new(self.spec.clone(), false).write_to(&mut command)?;
        put_environment(&mut command, environment);
        command.arg(MONITOR_ARGUMENT).arg(program).args(arguments);
        Some(command)
    }
}

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
