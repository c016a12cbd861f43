//! What a worker's environment holds: the few variables that programs need, what the project passes on, what the
//! workflow declares, the step's own secrets, and what Skein tells it. Nothing else of ours.

use std::{
    ffi::{OsStr, OsString},
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::Path,
};

use serde_json::Value;
use skein_core::{
    engine::{Mode, Role},
    variables,
};

use super::{about::About, command::plain, job::Job};
use crate::{
    secret::{SecretError, Secrets},
    workspace::{AttemptDir, RunDir},
};

/// The variables of the host that every program of a run is given: without these hardly anything runs.
pub const NEEDED: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG", "LC_ALL"];

/// Returns true for variables of the host's environment that every worker gets.
pub fn is_always_passed(name: &str) -> bool {
    NEEDED.contains(&name)
}

pub type Environment = Vec<(OsString, OsString)>;

/// The host's few.
pub fn needed() -> Environment {
    let mut environment: Environment =
        NEEDED.iter().filter_map(|name| Some((name.into(), std::env::var_os(name)?))).collect();
    for (_, path) in environment.iter_mut().filter(|(name, _)| name == "PATH") {
        *path = whole(path);
    }
    environment
}

/// A search path without what is relative: that would be the workspace, whose programs nobody is to run by chance.
fn whole(path: &OsStr) -> OsString {
    let parts: Vec<_> = std::env::split_paths(path).filter(|part| part.is_absolute()).collect();
    std::env::join_paths(parts).unwrap_or_default()
}

/// What everything that a run starts is given: the host's few, and what the workflow declares.
pub fn base(about: &About, declared: &Value) -> Environment {
    let mut environment = needed();
    for name in about.pass_env.iter().map(String::as_str) {
        environment.extend(std::env::var_os(name).map(|value| (name.into(), value)));
    }
    if let Value::Object(declared) = declared {
        // A run that was begun by an older program may still declare others.
        let allowed = declared.iter().filter(|(name, _)| variables::reserved(name).is_none());
        environment.extend(allowed.map(|(name, value)| (name.into(), plain(value).into())));
    }
    environment
}

/// The secrets of a step, of its tool, and of the servers that its agent is given.
fn own(job: &Job) -> Vec<String> {
    let of_tool = job.tool().into_iter().flat_map(|tool| &tool.secrets);
    let servers = job.servers();
    let of_servers = servers.iter().flat_map(|(_, server)| server.needs());
    let own = job.isolation.secrets.iter().chain(of_tool).chain(of_servers);
    let mut own: Vec<String> = own.cloned().collect();
    own.sort();
    own.dedup();
    own
}

/// Writes those secrets to files that are to be handed out so. Gives the variables that say where they are.
pub fn secret_files(job: &Job, run: &RunDir, secrets: &Secrets) -> Result<Environment, String> {
    let mut variables = Environment::new();
    let own = own(job);
    for (name, secret) in secrets.of(&own).map_err(|error| error.to_string())? {
        if job.about.handing.get(name).is_some_and(|handing| handing.file) {
            let folder = run.secrets(job.attempt).map_err(|error| error.to_string())?;
            folder.write_new(name, secret.expose().as_bytes()).map_err(|error| error.to_string())?;
            let path = folder.path().join(name);
            std::fs::set_permissions(&path, Permissions::from_mode(0o600))
                .map_err(|error| error.to_string())?;
            variables.push((format!("{name}_FILE").into(), path.into()));
        }
    }
    Ok(variables)
}

pub fn of(
    job: &Job,
    files: &AttemptDir,
    context: Option<&Path>,
    check: Option<&str>,
    secrets: &Secrets,
) -> Result<Environment, SecretError> {
    let mut environment = base(&job.about, &job.env);
    let own = own(job);
    for (name, secret) in secrets.of(&own)? {
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
    tell("SKEIN_INPUTS", files.inputs().into());
    tell("SKEIN_OUTPUT", files.output().into());
    tell("SKEIN_ERROR", files.error().into());
    if let Some(context) = context {
        tell("SKEIN_CONTEXT", context.into());
    }
    if let (Role::Check, Some(check)) = (attempt.role, check) {
        tell("SKEIN_CHECK_ID", check.into());
    }
    if matches!(job.mode, Mode::Rerun | Mode::Resume | Mode::Restore) {
        tell("SKEIN_INTERRUPTED", "1".into());
    }
    Ok(environment)
}
