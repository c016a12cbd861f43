//! The command and the environment of a worker.
//!
//! Owns the translation of a source's text into an argument vector. A script is one argument of a shell, and nothing is
//! pasted into it; everything else is a program with its arguments. The program of a coding agent is chosen in
//! `agent_launch`. The environment has the variables that programs need, those that the project passes on, those that
//! the workflow declares, the step's own secrets, and Skein's own. Nothing else of the host's environment is passed.

use std::{
    ffi::{OsStr, OsString},
    fs::Permissions,
    io,
    os::unix::fs::PermissionsExt,
    path::Path,
};

use serde_json::Value;
use skein_core::{
    engine::{AttemptMode, AttemptRole},
    ir::WorkerSpec,
    reserved_variables,
};

use super::{AttemptContext, spec::AttemptSpec};
use crate::{
    executor::tools,
    run_settings::{AgentSettings, RunSettings},
    secret::SecretError,
    workspace::root::FilePathError,
};

pub(crate) use skein_core::tool_call::to_plain_text;

/// The shell for scripts, which stops at the first failing command.
const SHELL: [&str; 3] = ["bash", "-e", "-c"];

/// The reason why a worker has no command.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("agent `{0}` is not configured")]
    UnknownAgent(String),
    #[error("no tool is configured for `{0}`")]
    UnknownTool(String),
    #[error("its command is empty")]
    Empty,
    #[error("{0}")]
    Unfilled(String),
    #[error("an input contains a NUL byte, which an argument cannot hold")]
    NulInput,
}

/// The reason why a secret cannot be delivered as a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretFileError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Path(#[from] FilePathError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

#[derive(Debug)]
pub(crate) struct WorkerCommand {
    pub program: OsString,
    pub arguments: Vec<OsString>,
    pub stdin: Vec<u8>,
    pub speaks: ResultProtocol,
}

/// The way a worker reports its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultProtocol {
    /// In its output file.
    File,
    /// In its output file; a checker also in words.
    Words,
    /// As one JSON value on stdout.
    Json,
}

impl WorkerCommand {
    /// Builds the command of an attempt. `prompt` builds the text for an agent.
    pub(crate) fn from_spec(
        job: &AttemptSpec,
        prompt: impl FnOnce(&AgentSettings) -> String,
    ) -> Result<WorkerCommand, CommandError> {
        match &job.worker {
            WorkerSpec::Script { text, .. } => {
                let words = SHELL.iter().map(OsString::from).chain([text.into()]);
                WorkerCommand::new(words, Vec::new(), ResultProtocol::File)
            }
            WorkerSpec::Command { program, .. } => {
                let filled = job.given.texts.iter().map(|text| OsString::from(to_plain_text(text)));
                WorkerCommand::new([program.into()].into_iter().chain(filled), Vec::new(), ResultProtocol::File)
            }
            WorkerSpec::Agent { name, program, .. } => {
                let named = || name.as_deref().or(program.as_deref()).unwrap_or_default();
                let agent = job.agent().ok_or_else(|| CommandError::UnknownAgent(named().to_owned()))?;
                let words: Vec<OsString> = match &agent.worker {
                    Some(worker) => vec![worker.into()],
                    None => agent.command.iter().map(OsString::from).collect(),
                };
                WorkerCommand::new(words, prompt(agent).into_bytes(), ResultProtocol::Words)
            }
            WorkerSpec::Tool { tool: name, .. } | WorkerSpec::Action { action: name, .. } => {
                let found = job.tool().ok_or_else(|| CommandError::UnknownTool(name.to_string()))?;
                if found.is_remote_or_builtin() {
                    // The remote call passes the input.
                    let words = found.command.iter().map(OsString::from).chain([OsString::new()]);
                    return WorkerCommand::new(words, Vec::new(), ResultProtocol::Json);
                }
                let inputs = tools::rename_inputs(found, &job.given.inputs);
                let words = tools::build_command(found, &inputs)?;
                let stdin = serde_json::to_vec(&*inputs).expect("inputs are JSON");
                WorkerCommand::new(words.into_iter().map(OsString::from), stdin, ResultProtocol::Json)
            }
        }
    }

    fn new(
        words: impl IntoIterator<Item = OsString>,
        stdin: Vec<u8>,
        speaks: ResultProtocol,
    ) -> Result<WorkerCommand, CommandError> {
        let mut words = words.into_iter();
        let program = words.next().ok_or(CommandError::Empty)?;
        Ok(WorkerCommand { program, arguments: words.collect(), stdin, speaks })
    }
}

/// The host variables that every program of a run gets: without these hardly any program runs.
pub const NEEDED: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG", "LC_ALL"];

/// True for host variables that every worker gets.
pub fn is_always_passed(name: &str) -> bool {
    NEEDED.contains(&name)
}

pub(crate) type WorkerEnvironment = Vec<(OsString, OsString)>;

/// The needed variables of the host.
pub(crate) fn host_variables() -> WorkerEnvironment {
    let mut environment: WorkerEnvironment =
        NEEDED.iter().filter_map(|name| Some((name.into(), std::env::var_os(name)?))).collect();
    for (_, path) in environment.iter_mut().filter(|(name, _)| name == "PATH") {
        *path = absolute_search_path(path);
    }
    environment
}

/// A search path without relative entries. They would refer to the workspace, whose programs must not be run by
/// accident.
fn absolute_search_path(path: &OsStr) -> OsString {
    let parts: Vec<_> = std::env::split_paths(path).filter(|part| part.is_absolute()).collect();
    std::env::join_paths(parts).unwrap_or_default()
}

/// The base environment of every program of a run: the host's variables, those that are passed on, and those of the
/// workflow.
pub(crate) fn base_environment(settings: &RunSettings, declared: &Value) -> WorkerEnvironment {
    let mut environment = host_variables();
    for name in settings.pass_env.iter().map(String::as_str) {
        environment.extend(std::env::var_os(name).map(|value| (name.into(), value)));
    }
    if let Value::Object(declared) = declared {
        // A run that was started by an older version may still declare reserved ones.
        let allowed = declared.iter().filter(|(name, _)| reserved_variables::reservation_reason(name).is_none());
        environment.extend(allowed.map(|(name, value)| (name.into(), to_plain_text(value).into())));
    }
    environment
}

/// The secrets of a step, of its tool, and of its agent's tool servers.
fn secret_names(job: &AttemptSpec) -> Vec<String> {
    let of_tool = job.tool().into_iter().flat_map(|tool| &tool.secrets);
    let servers = job.tool_servers();
    let of_servers = servers.iter().flat_map(|(_, server)| server.required_secrets());
    let own = job.isolation.secrets.iter().chain(of_tool).chain(of_servers);
    let mut own: Vec<String> = own.cloned().collect();
    own.sort();
    own.dedup();
    own
}

/// Writes the secrets that are delivered as files. Returns the variables with their paths.
pub(crate) fn write_secret_files(
    AttemptContext { shared, job, run, .. }: &AttemptContext,
) -> Result<WorkerEnvironment, SecretFileError> {
    let mut variables = WorkerEnvironment::new();
    for (name, secret) in shared.secrets.select_named(&secret_names(job))? {
        if job.settings.handing.get(name).is_some_and(|handing| handing.file) {
            let folder = run.secrets_folder(job.attempt)?;
            folder.write_new(name, secret.expose().as_bytes())?;
            let path = folder.path().join(name);
            std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            variables.push((format!("{name}_FILE").into(), path.into()));
        }
    }
    Ok(variables)
}

pub(crate) fn build_environment(
    AttemptContext { shared, job, files, .. }: &AttemptContext,
    context: Option<&Path>,
    check: Option<&str>,
) -> Result<WorkerEnvironment, SecretError> {
    let mut environment = base_environment(&job.settings, &job.env);
    for (name, secret) in shared.secrets.select_named(&secret_names(job))? {
        if job.settings.handing.get(name).is_none_or(|handing| handing.env) {
            environment.push((name.into(), secret.expose().into()));
        }
    }
    let attempt = job.attempt;
    let mut tell = |name: &str, value: OsString| environment.push((name.into(), value));
    tell("SKEIN_RUN_ID", job.run.as_str().into());
    tell("SKEIN_STEP", job.path.as_str().into());
    tell("SKEIN_ITERATION", attempt.iteration.to_string().into());
    tell("SKEIN_ATTEMPT", attempt.attempt.to_string().into());
    tell("SKEIN_STAGE", job.stage.number.to_string().into());
    if let Some(instructions) = &job.stage.instructions {
        tell("SKEIN_STAGE_INSTRUCTIONS", instructions.into());
    }
    tell("SKEIN_INPUTS", files.inputs_path().into());
    tell("SKEIN_OUTPUT", files.output_path().into());
    tell("SKEIN_ERROR", files.error_path().into());
    if let Some(context) = context {
        tell("SKEIN_CONTEXT", context.into());
    }
    if let (AttemptRole::Check, Some(check)) = (attempt.role, check) {
        tell("SKEIN_CHECK_ID", check.into());
    }
    if matches!(job.mode, AttemptMode::Rerun | AttemptMode::Resume | AttemptMode::Restore) {
        tell("SKEIN_INTERRUPTED", "1".into());
    }
    Ok(environment)
}
