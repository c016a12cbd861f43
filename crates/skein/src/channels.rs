//! Channels of a project: how someone is told whom a hook names.
//!
//! Owns what each kind of channel needs. A hook names a channel, and perhaps a place on it after a colon.

use skein_core::closest::did_you_mean;
use skein_host::{
    crew::{About, Asking},
    notify::{Channel, Url},
    secret,
};

use crate::{
    config::{self, Config},
    settle,
};

/// What can be asked for: events of IOA without their domain, their classes, or all.
const EVENTS: [&str; 14] = [
    "*",
    "audit",
    "trace",
    "alert",
    "workflow_started",
    "workflow_step_completed",
    "workflow_step_failed",
    "workflow_completed",
    "workflow_failed",
    "workflow_compensating",
    "agent_started",
    "agent_completed",
    "agent_failed",
    "governance_escalation_triggered",
];

/// Looks up the channel that a hook names, with the secrets that it needs. One that the project does not have is told of
/// when the hook is done, and keeps nothing from beginning.
pub fn settle(name: &str, config: &Config, about: &mut About) -> Result<(), String> {
    let Some((own, channel)) = config.channel(name) else { return Ok(()) };
    let channel = whole(own, channel, config, about)?;
    about.surroundings.channels.insert(name.to_owned(), channel);
    Ok(())
}

/// Looks up the channels that ask for what happens in runs.
pub fn telemetry(config: &Config, about: &mut About) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, asked) in config.channels.iter().filter(|(_, channel)| !channel.events.is_empty()) {
        if let Some(unknown) = asked.events.iter().find(|event| !EVENTS.contains(&event.as_str())) {
            let meant = did_you_mean(unknown, EVENTS.into_iter())
                .unwrap_or_else(|| format!("there are {}", EVENTS.join(", ")));
            problems
                .push(format!("`[channels.{name}]` asks for `{unknown}`, which nothing is called; {meant}"));
            continue;
        }
        match whole(name, asked, config, about) {
            Ok(Channel::Desktop | Channel::Command(_)) => problems.push(format!(
                "`[channels.{name}]` cannot ask for events: a program would be started for each; a file or a webhook can"
            )),
            Ok(channel) => {
                let (name, events) = (name.clone(), asked.events.clone());
                about.surroundings.telemetry.push(Asking { name, channel, events });
            }
            Err(why) => problems.push(why),
        }
    }
    problems
}

/// A channel as its kind needs it, and the secrets that go with it.
fn whole(
    own: &str,
    channel: &config::Channel,
    config: &Config,
    about: &mut About,
) -> Result<Channel, String> {
    let channel = of(own, channel, about)?;
    let secrets = match &channel {
        Channel::Webhook { url, key, .. } => vec![secret_of(url), key.clone()],
        Channel::Slack { url, .. } => vec![secret_of(url)],
        Channel::Desktop | Channel::Command(_) | Channel::File(_) => Vec::new(),
    };
    for secret in secrets.into_iter().flatten() {
        let from = config.secret(&secret).ok_or_else(|| {
            format!("`[channels.{own}]`: there is no secret `{secret}`; add it to `[secrets]` in skein.toml")
        })?;
        let from: secret::From = settle::secret_from(from, &about.project);
        about.secrets.insert(secret, from);
    }
    Ok(channel)
}

fn secret_of(url: &Url) -> Option<String> {
    match url {
        Url::Plain(_) => None,
        Url::Secret(name) => Some(name.clone()),
    }
}

/// A channel as its kind needs it.
fn of(name: &str, channel: &config::Channel, about: &About) -> Result<Channel, String> {
    let needs = |what: &str| format!("`[channels.{name}]` in skein.toml needs {what}");
    let url = || match (&channel.url, &channel.url_secret) {
        (Some(url), None) => Ok(Url::Plain(url.clone())),
        (None, Some(secret)) => Ok(Url::Secret(secret.clone())),
        (Some(_), Some(_)) => Err(needs("either `url` or `url_secret`, and has both")),
        (None, None) => Err(needs("a `url`, or a `url_secret` that names the secret it is")),
    };
    Ok(match channel.kind.as_deref() {
        Some("desktop") => Channel::Desktop,
        Some("command") if channel.command.is_empty() => return Err(needs("a `command`")),
        Some("command") => Channel::Command(channel.command.clone()),
        Some("webhook") => {
            Channel::Webhook { url: url()?, key: channel.key.clone(), private: channel.private }
        }
        Some("slack") => Channel::Slack { url: url()?, private: channel.private },
        Some("file") => {
            let path = channel.path.as_ref().ok_or_else(|| needs("a `path`"))?;
            Channel::File(about.project.join(path))
        }
        _ => return Err(needs("a `kind`")),
    })
}
