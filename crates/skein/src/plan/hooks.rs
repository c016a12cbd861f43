//! Hooks of a run: the programs that are started beside it, the people who are told, and what those programs may do.

use serde::Serialize;
use skein_core::ir::{Hook, HookAction, HookWhen, Workflow};
use skein_host::crew::NEEDED_VARIABLES;

use super::{
    short,
    words::{self, listed},
};
use crate::config::{Channel, Config};

#[derive(Debug, Serialize)]
pub struct HookView {
    pub when: HookWhen,
    /// The command, or who is told.
    pub does: String,
    /// The grant of the program that is started for it. None: no program is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may: Option<HookGrantView>,
}

/// The permissions of the program of a hook.
#[derive(Debug, Serialize)]
pub struct HookGrantView {
    /// The places that it writes, in words.
    pub writes: Vec<&'static str>,
    pub network: bool,
    /// The variables that it is given if the host has them.
    pub environment: Vec<String>,
}

impl HookView {
    pub fn new(hook: &Hook, workflow: &Workflow, config: &Config) -> HookView {
        let may = HookGrantView::for_action(&hook.action, workflow, config);
        HookView { when: hook.when, does: does(&hook.action, config), may }
    }

    pub fn shown(&self) -> String {
        let when = match self.when {
            HookWhen::Start => "when it starts",
            HookWhen::Success => "when it succeeds",
            HookWhen::Failure => "when it fails",
        };
        let may = self.may.as_ref().map(HookGrantView::shown).unwrap_or_default();
        format!("{when}, {}{may}", self.does)
    }
}

impl HookGrantView {
    fn for_action(action: &HookAction, workflow: &Workflow, config: &Config) -> Option<HookGrantView> {
        let (writes, told) = match action {
            HookAction::Run { .. } => (vec!["the workspace"], Vec::new()),
            HookAction::Notify { channel, .. } => match config.channel(channel)?.1.kind.as_deref()? {
                Channel::COMMAND => (vec!["the workspace"], vec!["SKEIN_MESSAGE_ID"]),
                Channel::DESKTOP => (Vec::new(), vec!["SKEIN_MESSAGE_ID"]),
                _ => return None,
            },
        };
        let needed = NEEDED_VARIABLES.into_iter().map(str::to_owned);
        let own = config.pass_env.iter().chain(workflow.env.keys()).cloned();
        let told = ["SKEIN_RUN_ID"].into_iter().chain(told).map(str::to_owned);
        Some(HookGrantView { writes, network: true, environment: needed.chain(own).chain(told).collect() })
    }

    fn shown(&self) -> String {
        let writes = match &self.writes[..] {
            [] => "writes nothing".to_owned(),
            places => format!("writes in {}", listed(places, "and")),
        };
        let network = if self.network { "has a network" } else { "has no network" };
        format!("; it {writes}, {network}, and is given {}", listed(&self.environment, "and"))
    }
}

fn does(action: &HookAction, config: &Config) -> String {
    match action {
        HookAction::Run { program, arguments } => {
            let rest = arguments.iter().map(words::argument);
            let words: Vec<String> = [program.clone()].into_iter().chain(rest).collect();
            format!("runs {}", short(&words.join(" ")))
        }
        HookAction::Notify { channel, .. } => match config.channel(channel) {
            Some((_, found)) => {
                let kind = found.kind.as_deref().unwrap_or("nothing yet");
                format!("tells {} by {kind}", short(channel))
            }
            None => format!("tells nobody: skein.toml has no channel for {}", short(channel)),
        },
    }
}
