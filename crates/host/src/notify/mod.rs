//! Notifications: the channels on which people and other programs are told of a run, and the messages on them.
//!
//! Owns the kinds of channels, the form of a message on each, and the delivery by network and by file. The executor
//! starts channels that are programs. After a crash a message may be delivered twice; the receiver recognizes it by its
//! id.

mod file;
mod webhook;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use self::{file::append_line, webhook::send_webhook};

/// A notification channel, as the project configures it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum NotifyChannel {
    /// A notification on the desktop of the user who runs Skein.
    Desktop,
    /// A program and its arguments. It gets the message on its standard input.
    Command(Vec<String>),
    /// A request to a server, signed if there is a key.
    Webhook {
        url: ChannelUrl,
        /// The name of the secret that requests are signed with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        private: bool,
    },
    /// A server that accepts messages in the form of Slack.
    Slack {
        url: ChannelUrl,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        private: bool,
    },
    /// A file that gets one line per message.
    File(std::path::PathBuf),
}

/// The URL of a server: the text itself, or the name of the secret that contains it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ChannelUrl {
    Plain(String),
    Secret(String),
}

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub struct ChannelMessage {
    /// The same for each delivery of the message.
    pub id: String,
    /// A line or two for a person.
    pub title: String,
    pub text: String,
    /// The target on the channel, such as a room.
    pub target: Option<String>,
    /// The complete data, for programs.
    pub body: Value,
}

impl ChannelMessage {
    /// Returns the message for programs.
    pub fn to_value(&self) -> Value {
        let mut value = json!({"id": self.id, "title": self.title, "text": self.text});
        if let Some(target) = &self.target {
            value["target"] = Value::from(target.as_str());
        }
        if let (Value::Object(value), Value::Object(body)) = (&mut value, &self.body) {
            value.extend(body.iter().map(|(name, field)| (name.clone(), field.clone())));
        }
        value
    }

    /// Returns the message in the form of Slack. The text cannot contain commands or mentions.
    pub fn to_slack_value(&self) -> Value {
        let text = format!("*{}*\n{}", escape_slack(&self.title), escape_slack(&self.text));
        match &self.target {
            Some(target) => json!({"text": text, "channel": target}),
            None => json!({"text": text}),
        }
    }
}

/// Escapes the three special characters of Slack texts.
fn escape_slack(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_mentions_nobody_by_itself() {
        let message = ChannelMessage {
            id: "r.hook.0".into(),
            title: "a & b".into(),
            text: "<!channel> done".into(),
            target: Some("#ops".into()),
            body: json!({"run_id": "r"}),
        };
        let slack = message.to_slack_value();
        assert_eq!(slack, json!({"text": "*a &amp; b*\n&lt;!channel&gt; done", "channel": "#ops"}));
        assert_eq!(message.to_value()["run_id"], "r");
        assert_eq!(message.to_value()["target"], "#ops");
    }
}
