//! Telling people and other programs of a run: what a channel is, and what is said on it.
//!
//! Owns the kinds of channels, the form of a message on each, and the delivery by network and by file. Channels that
//! are programs are started by the crew. Whoever is told may be told twice, after a crash, and knows it by the id.

mod file;
mod webhook;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use self::{file::append_line, webhook::send_webhook};

/// A way to tell someone, as the project says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum NotifyChannel {
    /// A note on the desktop of whoever runs Skein.
    Desktop,
    /// A program and its arguments, which is given the message on its standard input.
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
    /// A server that understands what Slack does.
    Slack {
        url: ChannelUrl,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        private: bool,
    },
    /// A file that gets a line for each message.
    File(std::path::PathBuf),
}

/// The address of a server: as it is, or the name of the secret that it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ChannelUrl {
    Plain(String),
    Secret(String),
}

/// One thing that is told.
#[derive(Debug, Clone, PartialEq)]
pub struct ChannelMessage {
    /// The same each time it is told.
    pub id: String,
    /// For a person, in a line or two.
    pub title: String,
    pub text: String,
    /// Where on the channel, such as a room.
    pub target: Option<String>,
    /// All of it, for programs.
    pub body: Value,
}

impl ChannelMessage {
    /// What a program is given.
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

    /// What Slack and those like it understand. Nothing in a text is a command or a mention to them.
    pub fn to_slack_value(&self) -> Value {
        let text = format!("*{}*\n{}", escape_slack(&self.title), escape_slack(&self.text));
        match &self.target {
            Some(target) => json!({"text": text, "channel": target}),
            None => json!({"text": text}),
        }
    }
}

/// The three characters that mean something in their texts.
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
