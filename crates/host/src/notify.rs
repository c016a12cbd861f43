//! Notifications: the channels on which people and other programs are told of a run, and the messages on them.
//!
//! Owns the kinds of channels, the form of a message on each, and the delivery: to a file as one line per message, to a
//! server as a signed request. Its headers are those of Standard Webhooks (`webhook-id`, `webhook-timestamp`,
//! `webhook-signature`); the signature is `v1,` and the HMAC-SHA256 of `id.timestamp.body` in base64. The executor
//! starts channels that are programs. After a crash a message may be delivered twice; the receiver recognizes it by its
//! id.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use ring::hmac;
use rustix::fs::{Mode, OFlags, open};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use skein_core::{limits, time::Timestamp};

use crate::{
    http::{self, HttpError, HttpRequest, HttpResponse, NetworkAccess},
    redact,
};

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
    pub(crate) fn to_slack_value(&self) -> Value {
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

/// Appends a line. A partial line that a crash left is ended first, so that this one is complete.
pub(crate) fn append_line(path: &Path, message: &Value) -> io::Result<()> {
    // Does not block if the path is a pipe.
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(open(path, flags, Mode::RUSR | Mode::WUSR)?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut line = Vec::new();
    if file.seek(SeekFrom::End(0))? > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        line.extend((last != *b"\n").then_some(b'\n'));
    }
    line.extend(message.to_string().bytes().chain([b'\n']));
    file.write_all(&line)?;
    file.sync_data()
}

/// The delays before the retries, if a server is unavailable or too busy.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
/// The maximum number of bytes of an answer.
const ANSWER: u64 = 64 * 1024;

/// Sends a message, or returns the reason why it was not accepted.
pub(crate) fn send_webhook(
    url: &str,
    private: bool,
    key: Option<&str>,
    (id, message): (&str, &Value),
    now: impl Fn() -> Timestamp,
) -> Result<(), String> {
    let body = message.to_string();
    if body.len() > limits::WEBHOOK_BYTES {
        return Err(format!("the message is longer than {} bytes", limits::WEBHOOK_BYTES));
    }
    let reach = NetworkAccess::any_host(private);
    let until = Instant::now() + Duration::from_millis(limits::NOTIFY);
    let mut waits = WAITS.into_iter();
    loop {
        let call = HttpRequest {
            method: "POST".to_owned(),
            url: url.to_owned(),
            headers: signed_headers(id, &body, key, now()),
            body: Some(body.clone().into_bytes()),
            time: until.saturating_duration_since(Instant::now()),
            most: ANSWER,
            redirects: 0,
        };
        let (why, again) = match http::send_request(&reach, &call) {
            Ok(HttpResponse { status: 200..=299, .. }) => return Ok(()),
            Ok(HttpResponse { status, .. }) => {
                (format!("it answered with status {status}"), status == 429 || status >= 500)
            }
            Err(error @ HttpError::Long(_)) => return Err(error.to_string()),
            Err(error) => (error.to_string(), error.is_transient()),
        };
        match waits.next().filter(|wait| again && Instant::now() + *wait < until) {
            Some(wait) => thread::sleep(wait),
            None => return Err(why),
        }
    }
}

fn signed_headers(id: &str, body: &str, key: Option<&str>, now: Timestamp) -> Vec<(String, String)> {
    let seconds = now.0.div_euclid(1_000);
    let mut headers = vec![
        ("content-type", "application/json".to_owned()),
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", seconds.to_string()),
    ];
    if let Some(key) = key {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
        let sum = hmac::sign(&key, format!("{id}.{seconds}.{body}").as_bytes());
        headers.push(("webhook-signature", format!("v1,{}", encode_base64(sum.as_ref()))));
    }
    headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn encode_base64(bytes: &[u8]) -> String {
    let mut text = redact::encode_sextets(bytes, redact::STANDARD);
    text.resize(text.len().next_multiple_of(4), b'=');
    text.into_iter().map(char::from).collect()
}

#[cfg(test)]
mod webhook_tests {
    use super::*;

    #[test]
    fn base64_is_as_others_write_it() {
        let cases = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (text, wanted) in cases {
            assert_eq!(encode_base64(text.as_bytes()), wanted);
        }
    }

    /// Computed with `openssl dgst -sha256 -hmac`.
    #[test]
    fn a_signature_is_that_of_id_time_and_body() {
        let headers = signed_headers("r.hook.0", "{}", Some("the key of the test"), Timestamp(1_700_000_000_999));
        assert_eq!(headers[2], ("webhook-timestamp".to_owned(), "1700000000".to_owned()));
        assert_eq!(headers[3].1, "v1,+pO/WrT/KhY8Q4UWOrZLMZC1V2cRZO/5l4XnETVKjL4=");
        assert_eq!(super::signed_headers("i", "{}", None, Timestamp(0)).len(), 3);
    }
}

#[cfg(test)]
mod file_tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn half_a_line_is_ended_before_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("told.jsonl");
        append_line(&path, &json!({"n": 1})).unwrap();
        fs::write(&path, fs::read_to_string(&path).unwrap() + "{\"n\": ").unwrap();
        append_line(&path, &json!({"n": 2})).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"n\":1}\n{\"n\": \n{\"n\":2}\n");
        assert!(append_line(folder.path(), &json!(1)).is_err());
        rustix::fs::mkfifoat(rustix::fs::CWD, folder.path().join("pipe"), Mode::RWXU).unwrap();
        assert!(append_line(&folder.path().join("pipe"), &json!(1)).is_err());
    }
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
