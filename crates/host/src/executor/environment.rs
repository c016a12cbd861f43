//! The environment of a worker: the variables that programs need, those that the project passes on, those that the
//! workflow declares, the step's own secrets, and Skein's own. Nothing else of the host's environment.

use std::{
    ffi::{OsStr, OsString},
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::Path,
};

use serde_json::Value;
use skein_core::{
    engine::{AttemptMode, AttemptRole},
    reserved_variables,
};

use super::{attempt_spec::AttemptSpec, run_settings::RunSettings, worker_command::to_plain_text};
use crate::{
    secret::{SecretError, Secrets},
    workspace::{AttemptDir, RunDir},
};

/// The host variables that every program of a run gets: without these hardly any program runs.
pub const NEEDED: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG", "LC_ALL"];

/// True for host variables that every worker gets.
pub fn is_always_passed(name: &str) -> bool {
    NEEDED.contains(&name)
}

pub type WorkerEnvironment = Vec<(OsString, OsString)>;

/// The needed variables of the host.
pub fn host_variables() -> WorkerEnvironment {
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
pub fn base_environment(about: &RunSettings, declared: &Value) -> WorkerEnvironment {
    let mut environment = host_variables();
    for name in about.pass_env.iter().map(String::as_str) {
        environment.extend(std::env::var_os(name).map(|value| (name.into(), value)));
    }
    if let Value::Object(declared) = declared {
        // A run that was started by an older version may still declare reserved ones.
        let allowed =
            declared.iter().filter(|(name, _)| reserved_variables::reservation_reason(name).is_none());
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
pub fn write_secret_files(
    job: &AttemptSpec,
    run: &RunDir,
    secrets: &Secrets,
) -> Result<WorkerEnvironment, String> {
    let mut variables = WorkerEnvironment::new();
    let own = secret_names(job);
    for (name, secret) in secrets.select_named(&own).map_err(|error| error.to_string())? {
        if job.about.handing.get(name).is_some_and(|handing| handing.file) {
            let folder = run.secrets_folder(job.attempt).map_err(|error| error.to_string())?;
            folder.write_new(name, secret.expose().as_bytes()).map_err(|error| error.to_string())?;
            let path = folder.path().join(name);
            std::fs::set_permissions(&path, Permissions::from_mode(0o600))
                .map_err(|error| error.to_string())?;
            variables.push((format!("{name}_FILE").into(), path.into()));
        }
    }
    Ok(variables)
}

pub fn build_environment(
    job: &AttemptSpec,
    files: &AttemptDir,
    context: Option<&Path>,
    check: Option<&str>,
    secrets: &Secrets,
) -> Result<WorkerEnvironment, SecretError> {
    let mut environment = base_environment(&job.about, &job.env);
    let own = secret_names(job);
    for (name, secret) in secrets.select_named(&own)? {
        if job.about.handing.get(name).is_none_or(|handing| handing.env) {
            environment.push((name.into(), secret.expose().into()));
        }
    }
    let attempt = job.attempt;
    let mut tell = |name: &str, value: OsString| environment.push((name.into(), value));
    tell("SKEIN_RUN_ID", job.run.as_str().into());
    tell("SKEIN_STEP", job.path.as_str().into());
    tell("SKEIN_ITERATION", attempt.iteration.to_string().into());
    tell("SKEIN_ATTEMPT", attempt.attempt.to_string().into());
    tell("SKEIN_STAGE", job.stage.to_string().into());
    if let Some(instructions) = &job.stage_instructions {
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
