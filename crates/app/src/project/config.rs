//! `skein.toml`: the settings of a project for its agents, people, folders and limits. All of them are optional.

use std::{
    collections::BTreeMap,
    fmt,
    path::Path,
    sync::{Arc, LazyLock},
};

use serde::{
    Deserialize, Deserializer,
    de::{self, Error},
};
use skein_core::{
    agents, builder::ApprovalClass, expr::ExprSpan, ir::WorkerCapability, secret_name::to_slug, suggest::did_you_mean,
};
use skein_dialects::{Code, Diagnostic, SourceFile, parse_approval_class};
use skein_host::run_settings::{ModelPrice, ToolServer};
use toml::Spanned;

pub const NAME: &str = "skein.toml";
/// The worker that is a program of the project itself.
pub const CUSTOM: &str = "CUSTOM";
/// All workers that an agent may have.
static WORKERS: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| agents::KNOWN.iter().map(|agent| agent.word).chain([CUSTOM]).collect());
/// All kinds of channels.
const CHANNELS: [&str; 5] = [ChannelConfig::DESKTOP, ChannelConfig::COMMAND, "webhook", "slack", "file"];
const CAPABILITIES: [(&str, WorkerCapability); 4] = [
    ("READ", WorkerCapability::Read),
    ("EDIT", WorkerCapability::Edit),
    ("RUN_TESTS", WorkerCapability::RunTests),
    ("RUN_COMMANDS", WorkerCapability::RunCommands),
];

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ProjectConfig {
    /// Folders outside the project that steps may use as workspaces.
    pub roots: Vec<String>,
    pub max_workers: Option<u32>,
    #[serde(deserialize_with = "worker")]
    pub default_worker: Option<String>,
    pub test_commands: Vec<Vec<String>>,
    pub allow_unenforced: AcceptedRisks,
    pub allow_auto_approve: bool,
    pub pass_env: Vec<String>,
    /// Paths outside its workspace that a step with the capability to edit may write.
    pub writes: Vec<String>,
    pub agents: BTreeMap<String, AgentConfig>,
    /// A folder of agents, skills and other definitions that projects share.
    pub collection: Option<String>,
    pub drivers: DriverPolicyConfig,
    /// MCP servers that a step may use, by name.
    pub mcp: BTreeMap<String, ToolServer>,
    pub memory: MemoryReviewConfig,
    /// True if the servers of `.mcp.json` may be used, too.
    pub mcp_json: bool,
    #[serde(deserialize_with = "workers")]
    pub workers: BTreeMap<String, WorkerProgramConfig>,
    /// Prices of models, by the name of the model.
    pub prices: BTreeMap<String, ModelPrice>,
    /// People who may decide at a gate, by role.
    pub roles: BTreeMap<String, Vec<String>>,
    pub secrets: BTreeMap<String, SecretSourceConfig>,
    pub approval: ApprovalConfig,
    /// Channels for notifications to people and programs.
    pub channels: BTreeMap<String, ChannelConfig>,
    pub estimate: EstimateConfig,
}

/// A channel. Its kind determines the settings that it needs.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ChannelConfig {
    #[serde(deserialize_with = "channel_kind")]
    pub kind: Option<String>,
    pub command: Vec<String>,
    pub url: Option<String>,
    /// The name of the secret that contains the URL.
    pub url_secret: Option<String>,
    /// The name of the secret that messages are signed with.
    pub key: Option<String>,
    /// True if the channel may use addresses within this machine and this network.
    pub private: bool,
    pub path: Option<String>,
    /// The events of runs that it subscribes to.
    pub events: Vec<String>,
}

impl ChannelConfig {
    /// The kinds that start a program.
    pub(crate) const DESKTOP: &str = "desktop";
    pub(crate) const COMMAND: &str = "command";
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AgentConfig {
    #[serde(deserialize_with = "worker")]
    pub worker: Option<String>,
    pub model: Option<String>,
    #[serde(deserialize_with = "capabilities")]
    pub capabilities: Vec<WorkerCapability>,
    pub instructions: Option<String>,
    pub command: Vec<String>,
}

/// The agent that reviews runs for facts worth remembering, and its limits on cost.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct MemoryReviewConfig {
    pub reviewer: Option<String>,
    pub tokens: Option<u64>,
    pub usd: Option<f64>,
}

/// Approvals that are required before work, independent of the source.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ApprovalConfig {
    /// The minimum approval class for all work.
    #[serde(deserialize_with = "class")]
    pub at_least: Option<Spanned<ApprovalClass>>,
    /// The system group whose members may leave decisions for the owner of the state folder.
    pub group: Option<String>,
}

/// Rules for the drivers that tools may use.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DriverPolicyConfig {
    /// A driver must declare one of these regions, or none. Empty: any region.
    pub regions: Vec<String>,
    /// Tags that a driver must all have, and tags of which it must have none.
    pub require_tags: Vec<String>,
    pub forbid_tags: Vec<String>,
    /// Addresses within this machine and this network that drivers may use, also without encryption: hosts, or hosts
    /// with ports.
    pub private: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WorkerProgramConfig {
    pub program: Option<String>,
    pub arguments: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub inherit_config: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum SecretSourceConfig {
    Env(String),
    File(String),
}

/// Assumptions of the estimate of a plan.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EstimateConfig {
    pub tokens_per_attempt: u64,
    pub usd_per_million_tokens: Option<f64>,
}

impl Default for EstimateConfig {
    fn default() -> EstimateConfig {
        EstimateConfig { tokens_per_attempt: 50_000, usd_per_million_tokens: None }
    }
}

/// Risks of a machine that cannot enforce sandboxes, as accepted by a project: `true` or `["steps", "gates"]`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AcceptedRisks {
    /// Steps run without a sandbox.
    pub steps: bool,
    /// Gates are opened although a worker could reach the state folder and decide.
    pub gates: bool,
}

impl<'de> Deserialize<'de> for AcceptedRisks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AcceptedRisks, D::Error> {
        deserializer.deserialize_any(RisksVisitor)
    }
}

struct RisksVisitor;

impl<'de> de::Visitor<'de> for RisksVisitor {
    type Value = AcceptedRisks;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false, or a list of \"steps\" and \"gates\"")
    }

    fn visit_bool<E: de::Error>(self, steps: bool) -> Result<AcceptedRisks, E> {
        Ok(AcceptedRisks { steps, gates: false })
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut names: A) -> Result<AcceptedRisks, A::Error> {
        let mut risks = AcceptedRisks::default();
        while let Some(name) = names.next_element::<String>()? {
            match name.as_str() {
                "steps" => risks.steps = true,
                "gates" => risks.gates = true,
                _ => return Err(de::Error::invalid_value(de::Unexpected::Str(&name), &self)),
            }
        }
        Ok(risks)
    }
}

fn check_worker_name(word: String) -> Result<String, String> {
    if WORKERS.contains(&word.as_str()) { Ok(word) } else { Err(word) }
}

fn worker<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let word = String::deserialize(from)?;
    check_worker_name(word).map(Some).map_err(|word| D::Error::unknown_variant(&word, &WORKERS))
}

fn class<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Spanned<ApprovalClass>>, D::Error> {
    let word = Spanned::<String>::deserialize(from)?;
    let class = parse_approval_class(word.get_ref());
    let class = class.map_err(|known| D::Error::unknown_variant(word.get_ref(), known))?;
    Ok(Some(Spanned::new(word.span(), class)))
}

fn channel_kind<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let word = String::deserialize(from)?;
    match CHANNELS.contains(&word.as_str()) {
        true => Ok(Some(word)),
        false => Err(D::Error::unknown_variant(&word, &CHANNELS)),
    }
}

fn workers<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, WorkerProgramConfig>, D::Error> {
    let all = BTreeMap::<String, WorkerProgramConfig>::deserialize(from)?;
    match all.keys().find(|word| check_worker_name((*word).clone()).is_err()) {
        Some(word) => Err(D::Error::unknown_variant(word, &WORKERS)),
        None => Ok(all),
    }
}

fn capabilities<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<WorkerCapability>, D::Error> {
    const WORDS: [&str; 4] = [CAPABILITIES[0].0, CAPABILITIES[1].0, CAPABILITIES[2].0, CAPABILITIES[3].0];
    let words = Vec::<String>::deserialize(from)?;
    let known = |word: &String| CAPABILITIES.iter().find(|(known, _)| known == word).map(|(_, capability)| *capability);
    let capabilities = words.iter().map(|word| known(word).ok_or_else(|| D::Error::unknown_variant(word, &WORDS)));
    capabilities.collect()
}

impl ProjectConfig {
    /// Finds the source of a secret, by its name or its slug.
    pub(crate) fn find_secret(&self, name: &str) -> Option<&SecretSourceConfig> {
        let of_slug = || self.secrets.iter().find(|(known, _)| to_slug(known) == to_slug(name)).map(|(_, from)| from);
        self.secrets.get(name).or_else(of_slug)
    }

    /// Finds the channel that a hook names: by its full name, or by the part before the colon.
    pub(crate) fn find_channel(&self, name: &str) -> Option<(&String, &ChannelConfig)> {
        let short = name.split(':').next().unwrap_or_default();
        self.channels.get_key_value(name).or_else(|| self.channels.get_key_value(short))
    }

    /// Returns the roles that a person has now.
    pub(crate) fn user_roles(&self, name: &str) -> Vec<String> {
        find_roles(&self.roles, name)
    }

    /// Loads the configuration of a run's project, or the default if it is invalid: a configuration that has become
    /// invalid since must not prevent the project's runs from ending.
    pub(crate) fn load_valid(project: &Path) -> ProjectConfig {
        ProjectConfig::load(&project.join(NAME), NAME).unwrap_or_default()
    }

    /// Loads the configuration of a project; the default if it has none.
    pub(crate) fn load(path: &Path, shown: &str) -> Result<ProjectConfig, Box<Diagnostic>> {
        if !path.exists() {
            return Ok(ProjectConfig::default());
        }
        ProjectConfig::parse(&crate::project::sources::read_source(path, shown)?)
    }

    fn parse(source: &Arc<SourceFile>) -> Result<ProjectConfig, Box<Diagnostic>> {
        toml::from_str(&source.text).map_err(|error| config_diagnostic(source, &error))
    }
}

/// Returns the roles of a person. `*` stands for everybody.
pub(crate) fn find_roles(roles: &BTreeMap<String, Vec<String>>, name: &str) -> Vec<String> {
    let is = |user: &String| user == name || user == "*";
    let roles = roles.iter().filter(|(_, people)| people.iter().any(is));
    roles.map(|(role, _)| role.clone()).collect()
}

fn config_diagnostic(source: &Arc<SourceFile>, error: &toml::de::Error) -> Box<Diagnostic> {
    let span = error.span().map_or(ExprSpan::default(), |range| ExprSpan::new(range.start, range.end));
    let message = error.message().lines().next().unwrap_or_default();
    let diagnostic = |message: String| Diagnostic::new(Code::BadConfiguration, source, span, message);
    let unknown = [("unknown field ", "unknown setting"), ("unknown variant ", "unknown value")];
    let unknown = unknown.into_iter().find_map(|(begins, words)| Some((words, parse_unknown_name(message, begins)?)));
    Box::new(match unknown {
        Some((words, (name, known))) => {
            let hint = did_you_mean(name, known.iter().copied());
            let hint = hint.unwrap_or_else(|| format!("expected one of {}", known.join(", ")));
            diagnostic(format!("{words} `{name}`")).with_hint(hint)
        }
        None => diagnostic(reword_decoder_error(message)),
    })
}

/// Extracts the unknown name and the known names from an error of the decoder.
fn parse_unknown_name<'a>(message: &'a str, begins: &str) -> Option<(&'a str, Vec<&'a str>)> {
    let mut names = message.strip_prefix(begins)?.split('`').skip(1).step_by(2);
    Some((names.next()?, names.collect()))
}

/// Rewords an error of the decoder about a value, without the names of our types.
fn reword_decoder_error(message: &str) -> String {
    let Some((found, wanted)) = message.strip_prefix("invalid type: ").and_then(|rest| rest.split_once(", expected "))
    else {
        return message.to_owned();
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
    format!("expected {wanted}, found {found}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the example under a heading of the code's page.
    fn example(part: &str) -> Arc<SourceFile> {
        let page = Code::BadConfiguration.page();
        let (_, after) = page.split_once(&format!("\n## {part}\n\n```toml\n")).expect("the page has the part");
        SourceFile::new(NAME, after.split("```").next().unwrap_or_default())
    }

    #[test]
    fn the_page_of_its_code_tells_the_truth() {
        let wrong = ProjectConfig::parse(&example("Wrong")).expect_err("it is wrong");
        assert_eq!(wrong.code, Code::BadConfiguration);
        assert_eq!(wrong.primary_label().source.slice(wrong.primary_label().span), "default_wroker");
        assert!(ProjectConfig::parse(&example("Right")).is_ok());
    }

    #[test]
    fn the_page_on_confinement_tells_the_truth() {
        let page = include_str!("../../../../docs/confinement.md");
        let example = page.split("```toml\n").nth(1).and_then(|after| after.split("```").next()).unwrap();
        assert_eq!(ProjectConfig::parse(&SourceFile::new(NAME, example)).unwrap().writes, ["~/.cargo", "/tmp"]);
    }

    #[test]
    fn the_page_on_what_agents_are_told_tells_the_truth() {
        let page = include_str!("../../../../docs/context.md");
        let examples = page.split("```toml\n").skip(1).filter_map(|after| after.split("```").next());
        let all: Vec<ProjectConfig> =
            examples.map(|text| ProjectConfig::parse(&SourceFile::new(NAME, text)).unwrap()).collect();
        assert!(all.iter().any(|config| config.mcp.len() == 2 && config.secrets.len() == 2));
        assert!(all.iter().any(|config| config.memory.reviewer.is_some() && config.memory.usd.is_some()));
    }

    #[test]
    fn the_page_on_hooks_tells_the_truth() {
        let page = include_str!("../../../../docs/hooks.md");
        let example = page.split("```toml\n").nth(1).and_then(|after| after.split("```").next()).unwrap();
        let config = ProjectConfig::parse(&SourceFile::new(NAME, example)).unwrap();
        let kinds: Vec<_> = config.channels.values().filter_map(|channel| channel.kind.as_deref()).collect();
        assert_eq!(kinds.len(), CHANNELS.len());
        assert_eq!(config.find_channel("slack:#a").unwrap().1.url_secret.as_deref(), Some("SLACK_URL"));
    }

    #[test]
    fn words_that_are_not_known_are_shown_where_they_stand() {
        let cases = [
            ("default_worker = \"CLAUDE\"\n", "CLAUDE", "CLAUDE_CODE"),
            ("[agents.a]\nworker = \"CODEX_CIL\"\n", "CODEX_CIL", "CODEX_CLI"),
            ("[agents.a]\ncapabilities = [\"READ\", \"EDITS\"]\n", "EDITS", "EDIT"),
            ("[channels.a]\nkind = \"slak\"\n", "slak", "slack"),
            ("[approval]\nat_least = \"on-mutte\"\n", "on-mutte", "on-mutate"),
            ("[workers.OPENCOD]\nprogram = \"x\"\n", "OPENCOD", "OPENCODE"),
        ];
        for (text, word, meant) in cases {
            let wrong = ProjectConfig::parse(&SourceFile::new(NAME, text)).expect_err("it is wrong");
            assert!(wrong.message.contains(&format!("`{word}`")), "{}", wrong.message);
            let hint = wrong.hint.as_ref().map(ToString::to_string).unwrap_or_default();
            assert!(hint.contains(meant), "{hint}");
        }
    }

    #[test]
    fn every_agent_has_its_word() {
        let words: Vec<&str> =
            skein_host::executor::agents::ALL.iter().map(|agent| agent.agent_name()).chain([CUSTOM]).collect();
        assert_eq!(words, *WORKERS);
    }

    #[test]
    fn what_is_no_toml_is_shown_where_it_ends() {
        let wrong =
            ProjectConfig::parse(&SourceFile::new(NAME, "max_workers = 2\nroots = [\"a\"\n")).expect_err("it is wrong");
        assert_eq!(wrong.code, Code::BadConfiguration);
        assert!(wrong.primary_label().span.start >= 16, "{wrong:?}");
    }

    fn read_risks(text: &str) -> Result<AcceptedRisks, toml::de::Error> {
        #[derive(Deserialize)]
        struct File {
            risks: AcceptedRisks,
        }
        toml::from_str::<File>(&format!("risks = {text}")).map(|file| file.risks)
    }

    #[test]
    fn a_risk_is_accepted_by_its_name() {
        assert_eq!(read_risks("true"), Ok(AcceptedRisks { steps: true, gates: false }));
        assert_eq!(read_risks("[\"gates\"]"), Ok(AcceptedRisks { steps: false, gates: true }));
        assert_eq!(read_risks("[\"steps\", \"gates\"]"), Ok(AcceptedRisks { steps: true, gates: true }));
        for bad in ["1", "[\"gate\"]", "\"steps\""] {
            let error = read_risks(bad).expect_err("it is none");
            assert!(error.to_string().contains("a list of \"steps\" and \"gates\""), "{error}");
        }
    }
}
