//! The command line of a worker: the program to start, and its stdin.
//!
//! Owns the translation of a source's text into an argument vector. A script is one argument of a shell, and nothing is
//! pasted into it; everything else is a program with its arguments. The program of a coding agent is chosen in
//! `agent_launch`.

use std::ffi::OsString;

use skein_core::ir::WorkerSpec;
pub(super) use skein_core::tool_call::to_plain_text;

use super::{attempt_spec::AttemptSpec, run_settings::AgentSettings, tool};

/// The shell for scripts, which stops at the first failing command.
const SHELL: [&str; 3] = ["bash", "-e", "-c"];

#[derive(Debug)]
pub struct WorkerCommand {
    pub program: OsString,
    pub arguments: Vec<OsString>,
    pub stdin: Vec<u8>,
    pub speaks: ResultProtocol,
}

/// The way a worker reports its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultProtocol {
    /// In its output file.
    File,
    /// In its output file; a checker also in words.
    Words,
    /// As one JSON value on stdout.
    Json,
}

impl WorkerCommand {
    /// Builds the command of an attempt. `prompt` builds the text for an agent.
    pub fn from_spec(
        job: &AttemptSpec,
        prompt: impl FnOnce(&AgentSettings) -> String,
    ) -> Result<WorkerCommand, String> {
        match &job.worker {
            WorkerSpec::Script { text, .. } => {
                let words = SHELL.iter().map(OsString::from).chain([text.into()]);
                WorkerCommand::new(words, Vec::new(), ResultProtocol::File)
            }
            WorkerSpec::Command { program, .. } => {
                let filled = job.given.texts.iter().map(|text| OsString::from(to_plain_text(text)));
                WorkerCommand::new(
                    [program.into()].into_iter().chain(filled),
                    Vec::new(),
                    ResultProtocol::File,
                )
            }
            WorkerSpec::Agent { name, program, .. } => {
                let named = || name.as_deref().or(program.as_deref()).unwrap_or_default();
                let agent = job.agent().ok_or_else(|| format!("agent `{}` is not configured", named()))?;
                let words: Vec<OsString> = match &agent.worker {
                    Some(worker) => vec![worker.into()],
                    None => agent.command.iter().map(OsString::from).collect(),
                };
                WorkerCommand::new(words, prompt(agent).into_bytes(), ResultProtocol::Words)
            }
            WorkerSpec::Tool { tool: name, .. } | WorkerSpec::Action { action: name, .. } => {
                let found = job.tool().ok_or_else(|| format!("no tool is configured for `{name}`"))?;
                if found.is_remote_or_builtin() {
                    // The remote call passes the input.
                    let words = found.command.iter().map(OsString::from).chain([OsString::new()]);
                    return WorkerCommand::new(words, Vec::new(), ResultProtocol::Json);
                }
                let inputs = tool::rename_inputs(found, &job.given.inputs);
                let words = tool::build_command(found, &inputs)?;
                let stdin = serde_json::to_vec(&*inputs).expect("inputs are JSON");
                WorkerCommand::new(words.into_iter().map(OsString::from), stdin, ResultProtocol::Json)
            }
        }
    }

    fn new(
        words: impl IntoIterator<Item = OsString>,
        stdin: Vec<u8>,
        speaks: ResultProtocol,
    ) -> Result<WorkerCommand, String> {
        let mut words = words.into_iter();
        let program = words.next().ok_or("its command is empty")?;
        Ok(WorkerCommand { program, arguments: words.collect(), stdin, speaks })
    }
}
