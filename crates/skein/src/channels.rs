//! Channels of a project: how someone is told whom a hook names.
//!
//! Owns what each kind of channel needs. A hook names a channel, and perhaps a place on it after a colon.

use skein_host::{
    crew::About,
    notify::{Channel, Url},
    secret,
};

use crate::{
    config::{self, Config},
    settle,
};

/// Looks up the channel that a hook names, with the secrets that it needs. One that the project does not have is told of
/// when the hook is done, and keeps nothing from beginning.
pub fn settle(name: &str, config: &Config, about: &mut About) -> Result<(), String> {
    let Some((own, channel)) = config.channel(name) else { return Ok(()) };
    let channel = of(own, channel, about)?;
    let secrets = match &channel {
        Channel::Webhook { url, key, .. } => vec![secret_of(url), key.clone()],
        Channel::Slack { url, .. } => vec![secret_of(url)],
        Channel::Desktop | Channel::Command(_) | Channel::File(_) => Vec::new(),
    };
    for secret in secrets.into_iter().flatten() {
        let from = config.secrets.get(&secret).ok_or_else(|| {
            format!("`[channels.{own}]`: there is no secret `{secret}`; add it to `[secrets]` in skein.toml")
        })?;
        let from: secret::From = settle::secret_from(from, &about.project);
        about.secrets.insert(secret, from);
    }
    about.surroundings.channels.insert(name.to_owned(), channel);
    Ok(())
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
