//! From a worker to a program: what is started, and what it reads.
//!
//! Owns how the text of a source becomes an argument vector. A script is one argument of a shell that nothing is pasted
//! into; everything else is a program with its arguments. Which one a coding agent is, `hire` knows.

use std::ffi::OsString;

pub(super) use skein_core::call::plain;
use skein_core::ir::Worker;

use super::{about::Agent, job::Job, tool};

/// The shell of scripts, which stops at the first command that fails.
const SHELL: [&str; 3] = ["bash", "-e", "-c"];

#[derive(Debug)]
pub struct Command {
    pub program: OsString,
    pub arguments: Vec<OsString>,
    pub stdin: Vec<u8>,
    pub speaks: Speaks,
}

/// Where a worker says what it gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// In the file that it is told of.
    File,
    /// The same, and a checker also in words.
    Words,
    /// As one JSON value on its standard output.
    Json,
}

impl Command {
    /// `prompt` is what an agent is told.
    pub fn of(job: &Job, prompt: impl FnOnce(&Agent) -> String) -> Result<Command, String> {
        match &job.worker {
            Worker::Script { text, .. } => {
                let words = SHELL.iter().map(OsString::from).chain([text.into()]);
                Command::new(words, Vec::new(), Speaks::File)
            }
            Worker::Command { program, .. } => {
                let filled = job.given.texts.iter().map(|text| OsString::from(plain(text)));
                Command::new([program.into()].into_iter().chain(filled), Vec::new(), Speaks::File)
            }
            Worker::Agent { name, program, .. } => {
                let named = || name.as_deref().or(program.as_deref()).unwrap_or_default();
                let agent = job.agent().ok_or_else(|| format!("nobody here is the agent `{}`", named()))?;
                let words: Vec<OsString> = match &agent.worker {
                    Some(worker) => vec![worker.into()],
                    None => agent.command.iter().map(OsString::from).collect(),
                };
                Command::new(words, prompt(agent).into_bytes(), Speaks::Words)
            }
            Worker::Tool { tool: name, .. } | Worker::Action { action: name, .. } => {
                let found = job.tool().ok_or_else(|| format!("no tool here does `{name}`"))?;
                if found.is_asked() {
                    // Whoever asks gives it its input.
                    let words = found.command.iter().map(OsString::from).chain([OsString::new()]);
                    return Command::new(words, Vec::new(), Speaks::Json);
                }
                let inputs = tool::renamed(found, &job.given.inputs);
                let words = tool::command(found, &inputs)?;
                let stdin = serde_json::to_vec(&*inputs).expect("inputs are JSON");
                Command::new(words.into_iter().map(OsString::from), stdin, Speaks::Json)
            }
        }
    }

    fn new(
        words: impl IntoIterator<Item = OsString>,
        stdin: Vec<u8>,
        speaks: Speaks,
    ) -> Result<Command, String> {
        let mut words = words.into_iter();
        let program = words.next().ok_or("its command is empty")?;
        Ok(Command { program, arguments: words.collect(), stdin, speaks })
    }
}
