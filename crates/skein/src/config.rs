//! `skein.toml`: what a project says about its agents, people, folders and limits. All of it is optional.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use serde::Deserialize;
use skein_core::expr::Span;
use skein_dialects::{Code, Diagnostic, Source};

pub const NAME: &str = "skein.toml";

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Folders beyond the project that a workspace may be.
    pub roots: Vec<String>,
    pub max_workers: Option<u32>,
    pub default_worker: Option<String>,
    pub test_commands: Vec<Vec<String>>,
    pub allow_unenforced: bool,
    pub allow_auto_approve: bool,
    pub pass_env: Vec<String>,
    pub agents: BTreeMap<String, Agent>,
    pub workers: BTreeMap<String, Program>,
    /// Who may decide at a gate, by role.
    pub roles: BTreeMap<String, Vec<String>>,
    pub secrets: BTreeMap<String, Secret>,
    pub estimate: Estimate,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Agent {
    pub worker: Option<String>,
    pub model: Option<String>,
    pub capabilities: Vec<String>,
    pub instructions: Option<String>,
    pub command: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Program {
    pub program: Option<String>,
    pub env: BTreeMap<String, String>,
    pub inherit_config: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Secret {
    Env(String),
    File(String),
}

/// What the estimate of a plan assumes.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Estimate {
    pub tokens_per_attempt: u64,
    pub usd_per_million_tokens: Option<f64>,
}

impl Default for Estimate {
    fn default() -> Estimate {
        Estimate { tokens_per_attempt: 50_000, usd_per_million_tokens: None }
    }
}

impl Config {
    /// The configuration of a project; the default where it has none.
    pub fn load(path: &Path, shown: &str) -> Result<Config, Box<Diagnostic>> {
        if !path.exists() {
            return Ok(Config::default());
        }
        let source = crate::read::source(path, shown)?;
        toml::from_str(&source.text).map_err(|error| wrong(&source, &error))
    }
}

fn wrong(source: &Arc<Source>, error: &toml::de::Error) -> Box<Diagnostic> {
    let span = error.span().map_or(Span::default(), |range| Span::new(range.start, range.end));
    let message = error.message().lines().next().unwrap_or_default().to_owned();
    Box::new(Diagnostic::new(Code::BadConfiguration, source, span, message))
}
