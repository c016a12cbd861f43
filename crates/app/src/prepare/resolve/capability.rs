//! Checks whether a driver can work here: its kind, platform, program, version, login and health.
//!
//! Owns the queries to a driver's own programs. Each is started once, with a time limit, and never through a shell.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use skein_core::{
    limits,
    time::Millis,
    tool_call::{CallText, CallTextPiece},
};
use skein_dialects::{Aip15Driver, DriverAuth, DriverHealthProbe, DriverKind, McpServer, VersionCheck};
use skein_host::{
    http::{self, HttpError, HttpRequest},
    process,
    run_settings::BuiltinFunction,
};

use super::{DriverCandidate, DriverResolver, LoadedDriver, bind};
use crate::{
    app_error::UnusableReason,
    prepare::probe::{ProbeFolder, ProbeOutput},
};

/// The reason against a driver that needs the network and has no access.
const NOBODY: &str = "names no host in `network.egress`, so it has no network access";

impl DriverResolver<'_> {
    /// Second phase. Err: the reason why the driver cannot work.
    pub(super) fn check_capable(&self, candidate: DriverCandidate<'_>) -> Result<(), UnusableReason> {
        let offer = candidate.offer;
        if let Some(function) = &offer.transform {
            return Err(format!("changes a value with the function `{function}`, which only an SDK has").into());
        }
        match candidate.kind() {
            DriverKind::Builtin => drop(self.find_function(candidate)?),
            DriverKind::Http => self.check_request(candidate)?,
            DriverKind::Mcp | DriverKind::Sdk | DriverKind::Cli => {}
        }
        if let Some(secret) =
            candidate.referenced_secrets().iter().find(|name| !self.config.secrets.contains_key(*name))
        {
            return Err(format!("needs the secret `{secret}`, which `[secrets]` in skein.toml does not have").into());
        }
        let driver = &candidate.found.driver;
        let known = self.capable.borrow().get(&driver.id).cloned();
        let found = known.unwrap_or_else(|| self.check_driver(candidate.found));
        self.capable.borrow_mut().insert(driver.id.clone(), found.clone());
        found
    }

    fn check_driver(&self, found: &LoadedDriver) -> Result<(), UnusableReason> {
        let driver = &found.driver;
        match driver.kind {
            DriverKind::Cli | DriverKind::Builtin | DriverKind::Http | DriverKind::Mcp => {}
            DriverKind::Sdk => {
                return Err("is of the kind sdk: this engine does not run third-party code".into());
            }
        }
        if !matches_platform(&driver.os, &[std::env::consts::OS, os_name()])
            || !matches_platform(&driver.arch, &[std::env::consts::ARCH, arch_name()])
        {
            return Err("does not support this platform".into());
        }
        let there = |bin: &str| find_program(bin, &found.folder).map_err(|why| format!("cannot be used: {why}"));
        match (driver.kind, &driver.mcp) {
            (DriverKind::Cli, _) => drop(there(driver.bin.as_deref().unwrap_or_default())?),
            (DriverKind::Mcp, None) => return Err("does not name its `server`".into()),
            (DriverKind::Mcp, Some(McpServer::Program { path, .. })) => drop(there(path)?),
            (DriverKind::Mcp, Some(McpServer::Url { url, .. })) => self.check_reachable(driver, url)?,
            (DriverKind::Mcp, Some(McpServer::Other(kind))) => {
                return Err(format!(
                    "has a server of the kind {kind}, which is not supported; `binary` and `remote` are"
                )
                .into());
            }
            (DriverKind::Builtin | DriverKind::Sdk | DriverKind::Http, _) => {}
        }
        if let Some(check) = &driver.version_check {
            check_version(check, found)?;
        }
        if let Some(auth) = &driver.auth {
            self.check_login(auth)?;
        }
        self.check_health(driver, found)
    }

    /// Returns the function of a builtin driver: the one that it names, or else the one with the tool's id.
    fn find_function(&self, candidate: DriverCandidate<'_>) -> Result<BuiltinFunction, UnusableReason> {
        let name = candidate.offer.function.as_deref().unwrap_or(&candidate.tool.id);
        let function = BuiltinFunction::from_name(name).ok_or_else(|| {
            let known: Vec<&str> = BuiltinFunction::ALL.iter().map(|function| function.name()).collect();
            format!("names the unknown function `{name}`; known functions: {}", known.join(", "))
        })?;
        if function == BuiltinFunction::HttpGet && candidate.found.driver.egress.is_empty() {
            return Err(NOBODY.into());
        }
        Ok(function)
    }

    /// Checks that the request of an http driver can be made.
    fn check_request(&self, candidate: DriverCandidate<'_>) -> Result<(), UnusableReason> {
        let driver = &candidate.found.driver;
        let Some(call) = &candidate.offer.http else {
            return Err("does not define the request for this tool in `metadata.http`".into());
        };
        if driver.http.streams || call.streams {
            return Err("streams its responses, which this version does not support".into());
        }
        let base = driver.http.base_url.as_ref().ok_or("has no `base_url`")?;
        self.check_reachable(driver, base)
    }

    /// Checks that an address may be used. A secret address is checked when it is used.
    fn check_reachable(&self, driver: &Aip15Driver, address: &CallText) -> Result<(), UnusableReason> {
        if driver.egress.is_empty() {
            return Err(NOBODY.into());
        }
        let [CallTextPiece::Text(url)] = address.as_slice() else { return Ok(()) };
        let allowed = bind::driver_reach(driver, self.config).check_url(url);
        Ok(allowed.map_err(|error| match error {
            HttpError::Host => "may not reach the host of its address: `network.egress` does not name it".to_owned(),
            HttpError::Plain => {
                "has an address that is not encrypted; `private` of `[drivers]` in skein.toml can allow it".to_owned()
            }
            other => format!("cannot be reached: {other}"),
        })?)
    }

    /// Checks for a login: a variable that the tool would get, or a file.
    fn check_login(&self, auth: &DriverAuth) -> Result<(), UnusableReason> {
        if auth.env.is_empty() && auth.paths.is_empty() {
            return Ok(());
        }
        let passed = |name: &String| self.config.pass_env.contains(name) && std::env::var_os(name).is_some();
        let given = |name: &String| self.config.find_secret(name).is_some() || passed(name);
        if auth.env.iter().any(given) || auth.paths.iter().any(|path| self.project.resolve_path(path).exists()) {
            return Ok(());
        }
        let mut ways: Vec<String> = auth.login.iter().map(|line| format!("`{line}`")).collect();
        ways.extend(auth.env.first().map(|name| format!("`{name}` in `[secrets]` or `pass_env` of skein.toml")));
        let ways = if ways.is_empty() { auth.paths.join(" or ") } else { ways.join(", or ") };
        Err(format!("has no login; provide one with {ways}").into())
    }

    fn check_health(&self, driver: &Aip15Driver, found: &LoadedDriver) -> Result<(), UnusableReason> {
        let Some(health) = &driver.health else { return Ok(()) };
        let why = match &health.asks {
            DriverHealthProbe::Program { command, expect } => {
                match query_program(command, &found.folder, health.timeout) {
                    Ok(answer) if answer.status == *expect => return Ok(()),
                    Ok(answer) => answer.why,
                    Err(why) => why.to_string(),
                }
            }
            DriverHealthProbe::Http { method, url, expect } => {
                let call = HttpRequest {
                    method: (*method).to_owned(),
                    url: url.clone(),
                    headers: Vec::new(),
                    body: None,
                    time: process::to_duration(health.timeout),
                    most: limits::VALUE_BYTES as u64,
                    redirects: 0,
                };
                match http::send_request(&bind::driver_reach(driver, self.config), &call) {
                    Ok(answer) if answer.status == *expect => return Ok(()),
                    Ok(answer) => format!("its server answered with status {}", answer.status),
                    Err(error) => error.to_string(),
                }
            }
        };
        Err(format!("failed its health check: {why}").into())
    }
}

fn matches_platform(needed: &[String], here: &[&str]) -> bool {
    needed.is_empty() || needed.iter().any(|one| here.contains(&one.as_str()))
}

/// Returns the name that drivers use for this operating system.
fn os_name() -> &'static str {
    match std::env::consts::OS {
        "macos" => "darwin",
        os => os,
    }
}

fn arch_name() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        arch => arch,
    }
}

/// Finds a program. A path is relative to the driver's own folder; a name is looked up in PATH.
pub(super) fn find_program(bin: &str, folder: &Path) -> Result<PathBuf, UnusableReason> {
    let whole = if bin.contains('/') { folder.join(bin) } else { PathBuf::from(bin) };
    let path = std::env::var_os("PATH").unwrap_or_default();
    Ok(process::find_program(whole.as_os_str(), OsStr::new(&path), &[]).map_err(|error| error.to_string())?)
}

fn check_version(check: &VersionCheck, found: &LoadedDriver) -> Result<(), UnusableReason> {
    let answer = query_program(&check.command, &found.folder, check.timeout);
    let answer = answer.map_err(|why| format!("did not report its version: {why}"))?;
    let rest = answer.text.split_once(check.before.as_str()).map_or(answer.text.as_str(), |(_, after)| after);
    let Some(version) = parse_first_version(rest) else {
        return Err(format!("did not report its version: it printed `{}`", answer.first_line()).into());
    };
    match check.range.contains(&version) {
        true => Ok(()),
        false => Err(format!("has the version {version}, but {} is required", check.written).into()),
    }
}

/// Returns the first version number in a text.
fn parse_first_version(text: &str) -> Option<String> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let version: String = text[start..].chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    let parts: Vec<&str> = version.split('.').filter(|part| !part.is_empty()).take(3).collect();
    Some(parts.join("."))
}

/// Runs a program of a driver. Its output goes to a folder that is removed afterwards.
fn query_program(command: &[String], folder: &Path, limit: Millis) -> Result<ProbeOutput, UnusableReason> {
    let (name, arguments) = command.split_first().ok_or("its command is empty")?;
    let program = find_program(name, folder)?;
    let arguments = arguments.iter().map(Into::into).collect();
    ProbeFolder::create()?.start_program("output", &program, arguments, limit).wait_for_output()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_first_number_of_a_text() {
        for (text, version) in [("gh version 2.40.1 (2024)", Some("2.40.1")), ("v3.", Some("3")), ("none", None)] {
            assert_eq!(parse_first_version(text).as_deref(), version, "{text}");
        }
    }
}
