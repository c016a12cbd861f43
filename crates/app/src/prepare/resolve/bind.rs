//! Sixth phase: binds the call of the chosen driver.

use std::collections::BTreeSet;

use skein_core::{limits, time::Millis, tool_call::CallText};
use skein_dialects::{Aip15Driver, DriverKind, LoginExpiry, McpServer, NamedTexts};
use skein_host::{
    http::{NetworkAccess, PrivateAccess},
    run_settings::{BuiltinFunction, HttpTool, LoginExpirySign, McpEndpoint, McpTool, RemoteTool, ToolSettings},
};

use super::{DriverCandidate, capability::find_program};
use crate::project::config::ProjectConfig;

/// The code that every driver has for an expired login.
const AUTH_REQUIRED: &str = "auth_required";

pub(super) fn bind_tool(candidate: DriverCandidate<'_>, config: &ProjectConfig) -> ToolSettings {
    let DriverCandidate { tool, found, offer } = candidate;
    let driver = &found.driver;
    let builtin = driver.kind == DriverKind::Builtin;
    let name = offer.function.as_deref().unwrap_or(&tool.id);
    let mut exit_codes = driver.exit_codes.clone();
    let auth = driver.auth.as_ref();
    if let Some(LoginExpiry::Exit(expired)) = auth.and_then(|auth| auth.expired.as_ref()) {
        exit_codes.entry(*expired).or_insert_with(|| AUTH_REQUIRED.to_owned());
    }
    let known = auth.into_iter().flat_map(|auth| &auth.env).filter(|name| config.find_secret(name).is_some());
    let secrets: BTreeSet<String> = known.chain(&tool.secrets).cloned().chain(candidate.referenced_secrets()).collect();
    let is_remote = matches!(driver.kind, DriverKind::Http | DriverKind::Mcp);
    let usual = is_remote.then_some(Millis(limits::TOOL_CALL));
    ToolSettings {
        id: tool.id.clone(),
        version: tool.version.clone(),
        mutates: tool.mutates.clone(),
        driver: driver.id.clone(),
        command: driver_command(candidate),
        function: builtin.then(|| BuiltinFunction::from_name(name)).flatten(),
        remote: bind_remote(candidate),
        reach: driver_reach(driver, config),
        arguments: offer.argv.clone(),
        inputs: tool.inputs.clone(),
        outputs: tool.outputs.clone(),
        renames: offer.renames.clone(),
        drop_outputs: offer.drop_outputs.clone(),
        exit_codes,
        secrets: secrets.into_iter().collect(),
        limit: [tool.timeout, driver.timeout, offer.timeout].into_iter().flatten().min().or(usual),
    }
}

/// Returns the network access of a driver: the hosts that it names, and of the private ones those that the project
/// grants.
pub(super) fn driver_reach(driver: &Aip15Driver, config: &ProjectConfig) -> NetworkAccess {
    NetworkAccess { hosts: driver.egress.clone(), private: PrivateAccess::Only(config.drivers.private.clone()) }
}

/// Returns the program and its constant arguments. The program was found a moment ago; if it has disappeared since,
/// starting it reports that.
fn driver_command(candidate: DriverCandidate<'_>) -> Vec<String> {
    let driver = &candidate.found.driver;
    let (bin, rest) = match (driver.kind, &driver.mcp) {
        (DriverKind::Cli, _) => (driver.bin.clone().unwrap_or_default(), &driver.bin_args),
        (DriverKind::Mcp, Some(McpServer::Program { path, arguments, .. })) => (path.clone(), arguments),
        _ => return Vec::new(),
    };
    let bin = find_program(&bin, &candidate.found.folder).map_or(bin, |path| path.display().to_string());
    [bin].into_iter().chain(rest.iter().cloned()).collect()
}

fn bind_remote(candidate: DriverCandidate<'_>) -> Option<RemoteTool> {
    let DriverCandidate { tool, found, offer } = candidate;
    let driver = &found.driver;
    match driver.kind {
        DriverKind::Http => {
            let call = offer.http.as_ref()?;
            let headers: NamedTexts = driver.http.headers.iter().chain(&call.headers).cloned().collect();
            Some(RemoteTool::Http(Box::new(HttpTool {
                method: call.method.or(driver.http.method).unwrap_or("POST").to_owned(),
                base: driver.http.base_url.clone()?,
                endpoint: call.endpoint.clone()?,
                headers,
                query: call.query.clone(),
                body: call.body.clone(),
                extract: call.extract.clone(),
                key_header: call.key_header.clone(),
                expired: driver.auth.as_ref().and_then(|auth| convert_expired(auth.expired.as_ref()?)),
            })))
        }
        DriverKind::Mcp => {
            let server = match driver.mcp.as_ref()? {
                McpServer::Program { env, .. } => McpEndpoint::Program(env.clone()),
                McpServer::Url { url, headers } => McpEndpoint::Url { url: url.clone(), headers: headers.clone() },
                McpServer::Other(_) => return None,
            };
            let name = offer.mcp.tool.clone().unwrap_or_else(|| tool.id.clone());
            Some(RemoteTool::Mcp(McpTool { tool: name, server, extract: offer.mcp.extract.clone() }))
        }
        DriverKind::Builtin | DriverKind::Sdk | DriverKind::Cli => None,
    }
}

fn convert_expired(expired: &LoginExpiry) -> Option<LoginExpirySign> {
    match expired {
        LoginExpiry::Exit(_) => None,
        LoginExpiry::Status(status) => Some(LoginExpirySign::Status(*status)),
        LoginExpiry::Header(name, value) => Some(LoginExpirySign::Header(name.clone(), value.clone())),
    }
}

impl DriverCandidate<'_> {
    /// Returns all secrets that its call refers to.
    pub(super) fn referenced_secrets(&self) -> Vec<String> {
        let (driver, mut found) = (&self.found.driver, Vec::new());
        let mut add = |text: &CallText| skein_core::tool_call::collect_text_secrets(text, &mut found);
        driver.http.base_url.iter().for_each(&mut add);
        driver.http.headers.iter().for_each(|(_, text)| add(text));
        match &driver.mcp {
            Some(McpServer::Program { env, .. }) => env.iter().for_each(|(_, text)| add(text)),
            Some(McpServer::Url { url, headers }) => {
                add(url);
                headers.iter().for_each(|(_, text)| add(text));
            }
            Some(McpServer::Other(_)) | None => {}
        }
        if let Some(call) = &self.offer.http {
            call.headers.iter().chain(&call.query).for_each(|(_, text)| add(text));
            call.body.iter().for_each(|body| body.collect_secrets(&mut found));
        }
        found
    }
}
