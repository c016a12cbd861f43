//! Sixth phase: how the driver that was chosen is called.

use std::collections::BTreeSet;

use skein_core::{call::Text, limits, time::Millis};
use skein_dialects::{Driver, DriverKind, Expired, McpServer, Texts};
use skein_host::{
    crew::{
        self, Function,
        remote::{self, HttpTool, McpTool, Remote, Server},
    },
    http::{Private, Reach},
};

use super::{Candidate, capable::program};
use crate::config::Config;

/// A code that every driver has for a login that is no longer good.
const AUTH_REQUIRED: &str = "auth_required";

pub(super) fn bind(candidate: Candidate<'_>, config: &Config) -> crew::Tool {
    let Candidate { tool, found, offer } = candidate;
    let driver = &found.driver;
    let builtin = driver.kind == DriverKind::Builtin;
    let name = offer.function.as_deref().unwrap_or(&tool.id);
    let mut exit_codes = driver.exit_codes.clone();
    let auth = driver.auth.as_ref();
    if let Some(Expired::Exit(expired)) = auth.and_then(|auth| auth.expired.as_ref()) {
        exit_codes.entry(*expired).or_insert_with(|| AUTH_REQUIRED.to_owned());
    }
    let known = auth.into_iter().flat_map(|auth| &auth.env).filter(|name| config.secret(name).is_some());
    let secrets: BTreeSet<String> = known.chain(&tool.secrets).cloned().chain(candidate.secrets()).collect();
    let asked = matches!(driver.kind, DriverKind::Http | DriverKind::Mcp);
    let usual = asked.then_some(Millis(limits::TOOL_CALL));
    crew::Tool {
        id: tool.id.clone(),
        version: tool.version.clone(),
        mutates: tool.mutates.clone(),
        driver: driver.id.clone(),
        command: command(candidate),
        function: builtin.then(|| Function::named(name)).flatten(),
        remote: remote(candidate),
        reach: reach(driver, config),
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

/// Whom a driver may ask: the hosts that it names, and of the private ones those that the project grants.
pub(super) fn reach(driver: &Driver, config: &Config) -> Reach {
    Reach { hosts: driver.egress.clone(), private: Private::Only(config.drivers.private.clone()) }
}

/// The program and the arguments that are always the same. It was found a moment ago; what is gone since is said when it is
/// started.
fn command(candidate: Candidate<'_>) -> Vec<String> {
    let driver = &candidate.found.driver;
    let (bin, rest) = match (driver.kind, &driver.mcp) {
        (DriverKind::Cli, _) => (driver.bin.clone().unwrap_or_default(), &driver.bin_args),
        (DriverKind::Mcp, Some(McpServer::Program { path, arguments, .. })) => (path.clone(), arguments),
        _ => return Vec::new(),
    };
    let bin = program(&bin, &candidate.found.folder).map_or(bin, |path| path.display().to_string());
    [bin].into_iter().chain(rest.iter().cloned()).collect()
}

fn remote(candidate: Candidate<'_>) -> Option<Remote> {
    let Candidate { tool, found, offer } = candidate;
    let driver = &found.driver;
    match driver.kind {
        DriverKind::Http => {
            let call = offer.http.as_ref()?;
            let headers: Texts = driver.http.headers.iter().chain(&call.headers).cloned().collect();
            Some(Remote::Http(Box::new(HttpTool {
                method: call.method.or(driver.http.method).unwrap_or("POST").to_owned(),
                base: driver.http.base_url.clone()?,
                endpoint: call.endpoint.clone()?,
                headers,
                query: call.query.clone(),
                body: call.body.clone(),
                extract: call.extract.clone(),
                key_header: call.key_header.clone(),
                expired: driver.auth.as_ref().and_then(|auth| expired(auth.expired.as_ref()?)),
            })))
        }
        DriverKind::Mcp => {
            let server = match driver.mcp.as_ref()? {
                McpServer::Program { env, .. } => Server::Program(env.clone()),
                McpServer::Url { url, headers } => Server::Url { url: url.clone(), headers: headers.clone() },
                McpServer::Other(_) => return None,
            };
            let name = offer.mcp.tool.clone().unwrap_or_else(|| tool.id.clone());
            Some(Remote::Mcp(McpTool { tool: name, server, extract: offer.mcp.extract.clone() }))
        }
        DriverKind::Builtin | DriverKind::Sdk | DriverKind::Cli => None,
    }
}

fn expired(expired: &Expired) -> Option<remote::Expired> {
    match expired {
        Expired::Exit(_) => None,
        Expired::Status(status) => Some(remote::Expired::Status(*status)),
        Expired::Header(name, value) => Some(remote::Expired::Header(name.clone(), value.clone())),
    }
}

impl Candidate<'_> {
    /// Every secret that its call has a place for.
    pub(super) fn secrets(&self) -> Vec<String> {
        let (driver, mut found) = (&self.found.driver, Vec::new());
        let mut add = |text: &Text| skein_core::call::secrets(text, &mut found);
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
            call.body.iter().for_each(|body| body.secrets(&mut found));
        }
        found
    }
}
