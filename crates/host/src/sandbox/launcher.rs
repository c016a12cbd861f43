//! Starts a program in a sandbox, from the engine's side.
//!
//! Owns the guarantee that the program which builds the sandbox is Skein itself: it is started through an open
//! descriptor, so that a worker that replaces the file, or a folder above it, has no effect.

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, OnceLock},
};

use serde::{Deserialize, Serialize};

use super::{
    MONITOR_ARGUMENT, Sandbox, SandboxEnforcement, SandboxSpec,
    launch_request::{LaunchRequest, put_environment},
    place::descriptor_path,
};
use crate::terminal_escape::escape_for_terminal;

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
