//! Notification channels of a project, which hooks name as their recipients.
//!
//! Owns the settings that each kind of channel needs. A hook names a channel, optionally followed by a colon and a
//! target on it.

use skein_core::suggest::did_you_mean;
use skein_host::{
    notify::{ChannelUrl, NotifyChannel},
    run_settings::{RunSettings, TelemetrySubscription},
    secret,
};

use crate::{
    app_error::UnusableReason,
    prepare,
    project::config::{self, ProjectConfig},
};

/// Event names that a channel can subscribe to: events of IOA without their domain, their classes, or all.
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

/// Looks up the channel that a hook names, with the secrets that it needs. A channel that the project does not have is
/// reported when the hook runs, and does not prevent the run.
pub(crate) fn prepare_channel(
    name: &str,
    config: &ProjectConfig,
    settings: &mut RunSettings,
) -> Result<(), UnusableReason> {
    let Some((own, channel)) = config.find_channel(name) else { return Ok(()) };
    let channel = resolve_channel(own, channel, config, settings)?;
    settings.surroundings.channels.insert(name.to_owned(), channel);
    Ok(())
}

/// Looks up the channels that subscribe to events of runs. Returns the problems found.
pub(crate) fn prepare_telemetry(config: &ProjectConfig, settings: &mut RunSettings) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, channel_config) in config.channels.iter().filter(|(_, channel)| !channel.events.is_empty()) {
        if let Some(unknown) = channel_config.events.iter().find(|event| !EVENTS.contains(&event.as_str())) {
            let hint = did_you_mean(unknown, EVENTS.into_iter())
                .unwrap_or_else(|| format!("known events: {}", EVENTS.join(", ")));
            problems.push(format!("`[channels.{name}]` subscribes to the unknown event `{unknown}`; {hint}"));
            continue;
        }
        match resolve_channel(name, channel_config, config, settings) {
            Ok(NotifyChannel::Desktop | NotifyChannel::Command(_)) => problems.push(format!(
                "`[channels.{name}]` cannot subscribe to events: it would start a program for each; use a file or a webhook"
            )),
            Ok(channel) => {
                let (name, events) = (name.clone(), channel_config.events.clone());
                settings.surroundings.telemetry.push(TelemetrySubscription { name, channel, events });
            }
            Err(why) => problems.push(why.to_string()),
        }
    }
    problems
}

/// Resolves a channel by its kind, and registers the secrets that it needs.
fn resolve_channel(
    own: &str,
    channel: &config::ChannelConfig,
    config: &ProjectConfig,
    settings: &mut RunSettings,
) -> Result<NotifyChannel, UnusableReason> {
    let channel = parse_channel(own, channel, settings)?;
    let secrets = match &channel {
        NotifyChannel::Webhook { url, key, .. } => vec![secret_in_url(url), key.clone()],
        NotifyChannel::Slack { url, .. } => vec![secret_in_url(url)],
        NotifyChannel::Desktop | NotifyChannel::Command(_) | NotifyChannel::File(_) => Vec::new(),
    };
    for secret in secrets.into_iter().flatten() {
        let from = config.find_secret(&secret).ok_or_else(|| {
            format!("`[channels.{own}]`: there is no secret `{secret}`; add it to `[secrets]` in skein.toml")
        })?;
        let from: secret::SecretSource = prepare::secret_source(from, &settings.project);
        settings.secrets.insert(secret, from);
    }
    Ok(channel)
}

fn secret_in_url(url: &ChannelUrl) -> Option<String> {
    match url {
        ChannelUrl::Plain(_) => None,
        ChannelUrl::Secret(name) => Some(name.clone()),
    }
}

/// Parses a channel by its kind.
fn parse_channel(
    name: &str,
    channel: &config::ChannelConfig,
    settings: &RunSettings,
) -> Result<NotifyChannel, UnusableReason> {
    let needs = |setting: &str| UnusableReason::from(format!("`[channels.{name}]` in skein.toml needs {setting}"));
    let url = || match (&channel.url, &channel.url_secret) {
        (Some(url), None) => Ok(ChannelUrl::Plain(url.clone())),
        (None, Some(secret)) => Ok(ChannelUrl::Secret(secret.clone())),
        (Some(_), Some(_)) => Err(needs("either `url` or `url_secret`, not both")),
        (None, None) => Err(needs("a `url`, or a `url_secret` that names the secret with the URL")),
    };
    Ok(match channel.kind.as_deref() {
        Some("desktop") => NotifyChannel::Desktop,
        Some("command") if channel.command.is_empty() => return Err(needs("a `command`")),
        Some("command") => NotifyChannel::Command(channel.command.clone()),
        Some("webhook") => NotifyChannel::Webhook { url: url()?, key: channel.key.clone(), private: channel.private },
        Some("slack") => NotifyChannel::Slack { url: url()?, private: channel.private },
        Some("file") => {
            let path = channel.path.as_ref().ok_or_else(|| needs("a `path`"))?;
            NotifyChannel::File(settings.project.join(path))
        }
        _ => return Err(needs("a `kind`")),
    })
}
