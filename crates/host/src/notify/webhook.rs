//! A message to a server, signed so that the server can verify its sender and time.
//!
//! The headers are those of Standard Webhooks: `webhook-id`, `webhook-timestamp` and `webhook-signature`. The signature
//! is `v1,` and the HMAC-SHA256 of `id.timestamp.body` in base64.

use std::{
    thread,
    time::{Duration, Instant},
};

use ring::hmac;
use serde_json::Value;
use skein_core::{limits, time::Timestamp};

use crate::http::{self, HttpError, HttpRequest, HttpResponse, NetworkAccess};

/// The delays before the retries, if a server is unavailable or too busy.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
/// The maximum number of bytes of an answer.
const ANSWER: u64 = 64 * 1024;

/// Sends a message, or returns the reason why it was not accepted.
pub fn send_webhook(
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
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i)) as usize & 63];
            text.push(if i <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
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
