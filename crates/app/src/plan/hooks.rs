//! The hooks of a run: the programs that are started beside it, the people who are notified, and the permissions of
//! these programs.

use serde::Serialize;
use skein_core::ir::{HookAction, HookTiming, Workflow, WorkflowHook};
use skein_host::executor::NEEDED_VARIABLES;

use super::{
    shorten_text,
    wording::{self, join_words},
};
use crate::project::config::{ChannelConfig, ProjectConfig};

#[derive(Debug, Serialize)]
pub struct HookView {
    pub when: HookTiming,
    /// The command, or the recipient.
    pub does: String,
    /// The grant of the program that is started for it. None: no program is started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may: Option<HookGrantView>,
}

/// The permissions of the program of a hook.
#[derive(Debug, Serialize)]
pub struct HookGrantView {
    /// The places that it writes, as text.
    pub writes: Vec<&'static str>,
    pub network: bool,
    /// The variables that it gets if the host has them.
    pub environment: Vec<String>,
}

impl HookView {
    pub fn new(hook: &WorkflowHook, workflow: &Workflow, config: &ProjectConfig) -> HookView {
        let may = HookGrantView::from_action(&hook.action, workflow, config);
        HookView { when: hook.when, does: describe_action(&hook.action, config), may }
    }

    pub fn describe_hook(&self) -> String {
        let when = match self.when {
            HookTiming::Start => "when it starts",
            HookTiming::Success => "when it succeeds",
            HookTiming::Failure => "when it fails",
        };
        let may = self.may.as_ref().map(HookGrantView::describe_grant).unwrap_or_default();
        format!("{when}, {}{may}", self.does)
    }
}

impl HookGrantView {
    fn from_action(action: &HookAction, workflow: &Workflow, config: &ProjectConfig) -> Option<HookGrantView> {
        let (writes, identifiers) = match action {
            HookAction::Run { .. } => (vec!["the workspace"], Vec::new()),
            HookAction::Notify { channel, .. } => match config.find_channel(channel)?.1.kind.as_deref()? {
                ChannelConfig::COMMAND => (vec!["the workspace"], vec!["SKEIN_MESSAGE_ID"]),
                ChannelConfig::DESKTOP => (Vec::new(), vec!["SKEIN_MESSAGE_ID"]),
                _ => return None,
            },
        };
        let needed = NEEDED_VARIABLES.into_iter().map(str::to_owned);
        let own = config.pass_env.iter().chain(workflow.env.keys()).cloned();
        let identifiers = ["SKEIN_RUN_ID"].into_iter().chain(identifiers).map(str::to_owned);
        Some(HookGrantView { writes, network: true, environment: needed.chain(own).chain(identifiers).collect() })
    }

    fn describe_grant(&self) -> String {
        let writes = match &self.writes[..] {
            [] => "writes nothing".to_owned(),
            places => format!("writes in {}", join_words(places, "and")),
        };
        let network = if self.network { "has network access" } else { "has no network access" };
        format!("; it {writes}, {network}, and is given {}", join_words(&self.environment, "and"))
    }
}

fn describe_action(action: &HookAction, config: &ProjectConfig) -> String {
    match action {
        HookAction::Run { program, arguments } => {
            let rest = arguments.iter().map(wording::render_argument);
            let words: Vec<String> = [program.clone()].into_iter().chain(rest).collect();
            format!("runs {}", shorten_text(&words.join(" ")))
        }
        HookAction::Notify { channel, .. } => match config.find_channel(channel) {
            Some((_, found)) => {
                let kind = found.kind.as_deref().unwrap_or("nothing yet");
                format!("notifies {} by {kind}", shorten_text(channel))
            }
            None => format!("notifies nobody: skein.toml has no channel for {}", shorten_text(channel)),
        },
    }
}
