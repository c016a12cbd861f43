//! Probes of this machine: its sandbox enforcement, tested once by building a sandbox, and queries to other programs.
//!
//! A program is started like a worker, watched, and ended at its time limit, so that one that hangs or leaves processes
//! running does no harm.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File},
    io::{self, Read},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        mpsc::{Receiver, channel},
    },
    time::Duration,
};

use skein_core::{ids::RunId, time::Millis};
use skein_host::{
    host::new_run_id,
    process::{self, MarkedWork, ProcessHandle, ProcessMark, ProcessOutcome, ProcessReport, ProcessSpec, StateMark},
    sandbox::{SandboxEnforcement, SandboxLauncher, SandboxProbeError},
};

use crate::app_error::UnusableReason;

/// Time that the program has to end after its time limit.
const GRACE: Millis = Millis(500);
/// Longer than a program can take, including everything after its time limit.
const PATIENCE: Duration = Duration::from_secs(30);
/// Environment variables that are passed on to the program.
const GIVEN: [&str; 4] = ["PATH", "HOME", "LANG", "XDG_DATA_HOME"];
/// Number of bytes of its output that are read.
const MOST: u64 = 4096;

/// A program that was started, and has not answered yet.
#[derive(Debug)]
pub(crate) struct ProgramProbe {
    log: PathBuf,
    handle: ProcessHandle,
    ended: Receiver<ProcessReport>,
    limit: Millis,
}

/// The output and the exit status of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProbeOutput {
    pub status: i32,
    pub text: String,
    /// The reason why it failed, as text.
    pub why: String,
}

impl ProbeOutput {
    /// Returns the first line of the output.
    pub(crate) fn first_line(&self) -> String {
        self.text.lines().next().unwrap_or_default().chars().take(100).collect()
    }
}

/// A temporary folder for the output of programs, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct ProbeFolder(PathBuf);

impl ProbeFolder {
    pub(crate) fn create() -> Result<ProbeFolder, UnusableReason> {
        let path = std::env::temp_dir().join(format!("skein-probe-{}", new_run_id()));
        let created = DirBuilder::new().mode(0o700).create(&path);
        created.map_err(|error| format!("`{}` cannot be created: {error}", path.display()))?;
        Ok(ProbeFolder(path))
    }

    /// Starts a program. Its output is kept in a file named `word`.
    pub(crate) fn start_program(
        &self,
        word: &str,
        program: &Path,
        arguments: Vec<OsString>,
        limit: Millis,
    ) -> ProgramProbe {
        let state = StateMark::new("question").expect("letters are a mark");
        let run = RunId::new("question").expect("letters are a name");
        let log = self.0.join(word);
        let mut task = ProcessSpec::new(program, &self.0, &log, ProcessMark { state, run, work: MarkedWork::Hook(0) });
        task.arguments = arguments;
        let given = GIVEN.iter().filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
        task.environment = given.collect();
        (task.limit, task.grace) = (Some(limit), GRACE);
        let (sender, ended) = channel();
        let handle = process::start_process(task, move |ended| drop(sender.send(ended)));
        ProgramProbe { log, handle, ended, limit }
    }
}

impl Drop for ProbeFolder {
    fn drop(&mut self) {
        // A folder that cannot be removed does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl ProgramProbe {
    /// Waits for the program to end. Err: it did not end by itself, or could not be started.
    pub(crate) fn wait_for_output(self) -> Result<ProbeOutput, UnusableReason> {
        let Ok(ended) = self.ended.recv_timeout(PATIENCE + Duration::from_millis(self.limit.0)) else {
            self.handle.kill();
            return Err("it did not end in time".into());
        };
        match ended.how {
            ProcessOutcome::Exited(status) => {
                Ok(ProbeOutput { status, text: read_output(&self.log), why: describe_ending(&ended) })
            }
            _ => Err(describe_ending(&ended).into()),
        }
    }
}

fn describe_ending(ended: &ProcessReport) -> String {
    let last_line = ended.tail.lines().last().unwrap_or_default();
    if last_line.is_empty() { ended.how.message() } else { format!("{}: {last_line}", ended.how.message()) }
}

/// Returns the beginning of the output, safe to show.
fn read_output(log: &Path) -> String {
    let mut bytes = Vec::new();
    let read = File::open(log).and_then(|file| file.take(MOST).read_to_end(&mut bytes));
    match read {
        Ok(_) => bytes
            .split(|byte| *byte == b'\n')
            .map(skein_host::terminal_escape::escape_for_terminal)
            .collect::<Vec<_>>()
            .join("\n"),
        Err(_) => String::new(),
    }
}

/// Returns the program that starts workers in sandboxes: this program.
pub fn launcher() -> &'static Result<SandboxLauncher, SandboxProbeError> {
    static LAUNCHER: OnceLock<Result<SandboxLauncher, SandboxProbeError>> = OnceLock::new();
    let open = || {
        let opened = SandboxLauncher::this_program();
        let describe = |error| format!("cannot open this program, which starts the workers: {error}");
        opened.map_err(|error: io::Error| SandboxProbeError(describe(error)))
    };
    LAUNCHER.get_or_init(open)
}

/// Returns the level of sandbox enforcement of this machine, or the reason why there is none.
pub(crate) fn machine_enforcement() -> Result<SandboxEnforcement, SandboxProbeError> {
    launcher().as_ref().map_err(SandboxProbeError::clone)?.enforcement().clone()
}

/// Returns true if workers can reach nothing that belongs to the user or to Skein.
pub fn is_fully_enforced() -> bool {
    matches!(machine_enforcement(), Ok(SandboxEnforcement::Full))
}

/// Returns a warning about the files that workers can reach on this machine, if it does not enforce whole sandboxes.
pub(crate) fn unenforced_warning() -> Option<String> {
    let reach = "a worker can read the state folder and, if it may write to the folder around it, change it; see docs/security.md";
    match machine_enforcement() {
        Ok(SandboxEnforcement::Full) => None,
        Ok(SandboxEnforcement::WritesOnly) => Some(format!("this machine enforces only write restrictions: {reach}")),
        Err(_) => Some(format!("this machine cannot enforce sandboxes: {reach}")),
    }
}
