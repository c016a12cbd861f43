//! Starting a program in a sandbox, seen from the engine.
//!
//! Owns that the program which builds the sandbox is ours: it is started through an open descriptor, so that a worker that
//! replaces the file, or a folder above it, changes nothing.

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, OnceLock},
};

use super::{
    Enforcement, MONITOR_ARGUMENT, Sandbox, SandboxSpec,
    place::descriptor_path,
    request::{LaunchRequest, put_environment},
};
use crate::worker::shown;

/// The program that builds sandboxes: one that begins with [`super::enter`].
#[derive(Debug, Clone)]
pub struct Launcher {
    program: Arc<File>,
    /// The part of a sandbox that this machine enforces, once that was tried.
    enforced: Arc<OnceLock<Result<Enforcement, String>>>,
}

impl Launcher {
    /// Uses the program that this process runs, also when its file was replaced meanwhile.
    pub fn this_program() -> io::Result<Launcher> {
        Launcher::open(Path::new("/proc/self/exe"))
    }

    pub fn open(program: &Path) -> io::Result<Launcher> {
        Ok(Launcher { program: Arc::new(File::open(program)?), enforced: Arc::default() })
    }

    /// A command with an empty environment. Descriptors are inherited by nobody, so it finds three.
    fn command(&self) -> Command {
        let mut command = Command::new(descriptor_path(&*self.program));
        command.arg0("skein").env_clear();
        command
    }

    /// Returns the part of a sandbox that this machine enforces, or the reason why it enforces nothing. Tries it once, by building one.
    pub fn enforcement(&self) -> &Result<Enforcement, String> {
        self.enforced.get_or_init(|| self.probe())
    }

    fn probe(&self) -> Result<Enforcement, String> {
        let mut command = self.command();
        let request = LaunchRequest::new(SandboxSpec::default(), true);
        request.put(&mut command).ok_or("a sandbox cannot be asked for")?;
        let asked = command.arg(MONITOR_ARGUMENT).arg("-").current_dir("/").stdin(Stdio::null()).output();
        let done = asked.map_err(|error| format!("the sandbox launcher does not start: {error}"))?;
        serde_json::from_slice(&done.stdout).unwrap_or_else(|_| Err(shown(done.stderr.trim_ascii())))
    }
}

impl Sandbox {
    /// The command that starts a program in this sandbox. None where a path of the sandbox is not text.
    pub fn command(
        &self,
        program: &Path,
        arguments: &[OsString],
        environment: &[(OsString, OsString)],
    ) -> Option<Command> {
        let mut command = self.launcher.command();
        LaunchRequest::new(self.spec.clone(), false).put(&mut command)?;
        put_environment(&mut command, environment);
        command.arg(MONITOR_ARGUMENT).arg(program).args(arguments);
        Some(command)
    }
}
