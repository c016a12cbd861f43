//! `skein.toml`: what a project says about its agents, people, folders and limits. All of it is optional.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use serde::Deserialize;
use skein_core::{closest::did_you_mean, expr::Span};
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
    /// Beyond its workspace, what a step that may edit may write.
    pub writes: Vec<String>,
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
        Config::parse(&crate::read::source(path, shown)?)
    }

    fn parse(source: &Arc<Source>) -> Result<Config, Box<Diagnostic>> {
        toml::from_str(&source.text).map_err(|error| wrong(source, &error))
    }
}

fn wrong(source: &Arc<Source>, error: &toml::de::Error) -> Box<Diagnostic> {
    let span = error.span().map_or(Span::default(), |range| Span::new(range.start, range.end));
    let told = error.message().lines().next().unwrap_or_default();
    let diagnostic = |message: String| Diagnostic::new(Code::BadConfiguration, source, span, message);
    Box::new(match unknown_field(told) {
        Some((field, known)) => {
            let hint = did_you_mean(field, known.iter().copied());
            let hint = hint.unwrap_or_else(|| format!("what can be here is {}", known.join(", ")));
            diagnostic(format!("there is no setting `{field}`")).hint(hint)
        }
        None => diagnostic(in_words(told)),
    })
}

/// The field and those that would be known, in the words of the decoder.
fn unknown_field(told: &str) -> Option<(&str, Vec<&str>)> {
    let mut names = told.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    Some((names.next()?, names.collect()))
}

/// What the decoder says of a value, without the names that types have in our code.
fn in_words(told: &str) -> String {
    let Some((found, wanted)) =
        told.strip_prefix("invalid type: ").and_then(|rest| rest.split_once(", expected "))
    else {
        return told.to_owned();
    };
    let wanted = match wanted {
        "u32" | "u64" => "a whole number",
        "f64" => "a number",
        "a boolean" => "`true` or `false`",
        "a sequence" => "a list",
        "a string" => "text",
        wanted if wanted == "a map" || wanted.starts_with("struct ") => "a table",
        wanted => wanted,
    };
    let found = found.replacen("string ", "the text ", 1).replacen("integer ", "the number ", 1);
    format!("{wanted} belongs here, found {found}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example under a heading of the page of the code.
    fn example(part: &str) -> Arc<Source> {
        let page = Code::BadConfiguration.page();
        let (_, after) =
            page.split_once(&format!("\n## {part}\n\n```toml\n")).expect("the page has the part");
        Source::new(NAME, after.split("```").next().unwrap_or_default())
    }

    #[test]
    fn the_page_of_its_code_tells_the_truth() {
        let wrong = Config::parse(&example("Wrong")).expect_err("it is wrong");
        assert_eq!(wrong.code, Code::BadConfiguration);
        assert_eq!(wrong.place().source.slice(wrong.place().span), "default_wroker");
        assert!(Config::parse(&example("Right")).is_ok());
    }

    #[test]
    fn the_page_on_confinement_tells_the_truth() {
        let page = include_str!("../../../docs/confinement.md");
        let example = page.split("```toml\n").nth(1).and_then(|after| after.split("```").next()).unwrap();
        assert_eq!(Config::parse(&Source::new(NAME, example)).unwrap().writes, ["~/.cargo", "/tmp"]);
    }

    #[test]
    fn what_is_no_toml_is_shown_where_it_ends() {
        let wrong =
            Config::parse(&Source::new(NAME, "max_workers = 2\nroots = [\"a\"\n")).expect_err("it is wrong");
        assert_eq!(wrong.code, Code::BadConfiguration);
        assert!(wrong.place().span.start >= 16, "{wrong:?}");
    }
}
