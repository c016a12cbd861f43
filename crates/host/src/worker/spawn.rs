//! Starting a child with exactly what its task says, and the ends of its pipes that are ours.
//!
//! Owns the moment of starting. Refuses to run code of ours between fork and exec.

use std::{
    ffi::OsStr,
    io::{self, PipeReader, PipeWriter},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::{
    fs::fstat,
    process::{Pid, PidfdFlags, Resource, Signal, getrlimit, kill_process_group, pidfd_open},
};

use super::{
    How, NotFound, Refused,
    children::{self, Listed},
    outcome::refusal,
    output::Stream,
    program,
    task::Task,
};

/// Descriptors that workers leave for the journal and everything else.
const RESERVE: u64 = 64;

/// A child that runs, or has run already, and that only its supervisor waits for.
#[derive(Debug)]
pub struct Spawned {
    pub listed: Listed,
    pub pidfd: OwnedFd,
    pub stdin: Option<OwnedFd>,
    pub outputs: Vec<(Stream, PipeReader)>,
    /// The numbers of its output's pipes.
    pub pipes: Vec<u64>,
}

pub fn spawn(task: &mut Task) -> Result<Spawned, How> {
    if children::unseen() {
        return Err(How::CannotStart(Refused::Unseen));
    }
    // Ours must be closed when its own are, or who speaks with it would wait for ever.
    let talk = task.talk.take();
    let task = &*task;
    let program = resolve(task)?;
    let refused = |error: io::Error| refusal(&error, &program, &task.directory);
    let (outputs, stdout, stderr) = pipes(task.stdout.is_some() && talk.is_none()).map_err(refused)?;
    let mut pipes: Vec<u64> = outputs.iter().filter_map(|(_, pipe)| Some(fstat(pipe).ok()?.st_ino)).collect();
    pipes.extend(talk.as_ref().and_then(|talk| Some(fstat(&talk.stdout).ok()?.st_ino)));
    let (stdin, stdout) = match talk {
        Some(talk) => (Stdio::from(talk.stdin), Stdio::from(talk.stdout)),
        None if task.stdin.is_empty() => (Stdio::null(), Stdio::from(stdout)),
        None => (Stdio::piped(), Stdio::from(stdout)),
    };
    let mut command = command(task, &program)?;
    command.current_dir(&task.directory).process_group(0).stdin(stdin).stdout(stdout).stderr(stderr);
    let (mut child, listed) = children::spawn(&mut command, &task.mark).map_err(refused)?;
    // The other ends of the pipes are in there.
    drop(command);
    let stdin = child.stdin.take().map(OwnedFd::from);
    let ready = stdin.as_ref().map_or(Ok(()), unblock);
    let pid = Pid::from_child(&child);
    match ready.and_then(|()| Ok(pidfd_open(pid, PidfdFlags::empty())?)) {
        Ok(pidfd) => Ok(Spawned { listed, pidfd, stdin, outputs, pipes }),
        Err(error) => {
            // Nobody could watch it, so it must not run.
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = child.wait();
            Err(refused(error))
        }
    }
}

/// The command that starts the program, in its sandbox if it has one.
fn command(task: &Task, program: &Path) -> Result<Command, How> {
    let Some(sandbox) = &task.sandbox else {
        let mut command = Command::new(program);
        let environment = task.environment.iter().map(|(name, value)| (name, value));
        command.args(&task.arguments).env_clear().envs(environment);
        return Ok(command);
    };
    sandbox.command(program, &task.arguments, &task.environment).ok_or_else(|| {
        How::CannotStart(Refused::Other("a path of its sandbox is not valid UTF-8; rename it".into()))
    })
}

fn unblock(fd: &impl AsFd) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(fd, true)?)
}

type Pipes = (Vec<(Stream, PipeReader)>, PipeWriter, PipeWriter);

/// One pipe for both streams keeps their order; two keep them apart.
fn pipes(apart: bool) -> io::Result<Pipes> {
    let (both, stderr) = io::pipe()?;
    enough([both.as_raw_fd(), stderr.as_raw_fd()])?;
    unblock(&both)?;
    if !apart {
        let stdout = stderr.try_clone()?;
        return Ok((vec![(Stream::Both, both)], stdout, stderr));
    }
    let (out, stdout) = io::pipe()?;
    unblock(&out)?;
    Ok((vec![(Stream::Out, out), (Stream::Both, both)], stdout, stderr))
}

/// A new descriptor has the lowest number that is free, so there are about as many left as there are numbers above it. One
/// may have taken the place of another that was closed just now; two rarely have.
fn enough(new: [RawFd; 2]) -> io::Result<()> {
    let number = new.into_iter().max().and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
    match getrlimit(Resource::Nofile).current {
        Some(limit) if number + RESERVE >= limit => Err(rustix::io::Errno::MFILE.into()),
        _ => Ok(()),
    }
}

fn resolve(task: &Task) -> Result<PathBuf, How> {
    let name = task.program.as_os_str();
    if Path::new(name).is_absolute() {
        return Ok(task.program.clone());
    }
    let path = task.environment.iter().rev().find(|(name, _)| name == "PATH");
    let path = path.map_or(OsStr::new(""), |(_, value)| value);
    program::find(name, path, std::slice::from_ref(&task.directory)).map_err(|error| match error {
        NotFound::NotExecutable(_) => How::NotExecutable(error.to_string()),
        _ => How::NotFound(error.to_string()),
    })
}
