//! What is done beside a run, and who is told.

use serde::Serialize;
use skein_core::ir::{Hook, HookAction, HookWhen};

use super::{short, words};
use crate::config::Config;

#[derive(Debug, Serialize)]
pub struct HookView {
    pub when: HookWhen,
    /// The command, or who is told.
    pub does: String,
}

impl HookView {
    pub fn of(hook: &Hook, config: &Config) -> HookView {
        HookView { when: hook.when, does: does(&hook.action, config) }
    }

    pub fn shown(&self) -> String {
        let when = match self.when {
            HookWhen::Start => "when it starts",
            HookWhen::Success => "when it succeeds",
            HookWhen::Failure => "when it fails",
        };
        format!("{when}, {}", self.does)
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
