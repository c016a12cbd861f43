//! Tools that are HTTP requests: sends a request and interprets the answer.
//!
//! Owns the meaning of a status code. Does not know the transport.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use skein_core::{limits, time::Millis, tool_call::CallTemplateValues};

use super::{
    HttpTool, LoginExpirySign, RemoteCall, RemoteToolError, extract_part,
    request::{HttpToolRequest, idempotency_key},
    to_object,
};
use crate::{
    cancel_token::CancelToken,
    executor::tool,
    http::{self, HttpError, HttpRequest, HttpResponse},
};

/// The maximum number of redirects within the same origin.
pub(super) const REDIRECTS: u8 = 5;
/// The maximum number of characters of a server's error message that are reported.
const SAID: usize = 300;

impl RemoteCall<'_> {
    /// Sends the request of a tool. Returns its result and a line for the log.
    pub(super) fn send_request(
        &self,
        tool: &HttpTool,
        limit: Duration,
        stop: &Arc<CancelToken>,
    ) -> (Result<Value, RemoteToolError>, String) {
        let inputs = tool::rename_inputs(self.tool, &self.job.given.inputs);
        let secret = |name: &str| self.find_secret(name);
        let request = HttpToolRequest::from_tool(
            tool,
            CallTemplateValues { inputs: &inputs, secret: &secret },
            &idempotency_key(self.job),
        );
        let HttpToolRequest { url, headers, body } = match request {
            Ok(request) => request,
            Err(trouble) => return (Err(trouble), format!("{} was not sent", tool.method)),
        };
        let (method, most) = (tool.method.clone(), limits::VALUE_BYTES as u64);
        let call = HttpRequest { method, url, headers, body, time: limit, most, redirects: REDIRECTS };
        match http::send_cancellable(&self.tool.reach, &call, stop) {
            Ok(answer) => {
                let log = format!("{}: status {}, {} bytes", tool.method, answer.status, answer.body.len());
                (interpret_answer(tool, &answer), log)
            }
            Err(error) => (Err(transport_failure(&error)), format!("{}: {error}", tool.method)),
        }
    }
}

fn interpret_answer(tool: &HttpTool, answer: &HttpResponse) -> Result<Value, RemoteToolError> {
    let expired = match &tool.expired {
        Some(LoginExpirySign::Status(status)) => answer.status == *status,
        Some(LoginExpirySign::Header(name, value)) => {
            answer.header(name).is_some_and(|found| found.trim() == value)
        }
        None => false,
    };
    if expired {
        return Err(RemoteToolError::new("auth_required", "the login has expired, according to the server"));
    }
    check_status(answer)?;
    extract_part(&tool.extract, parse_body(answer)).map(to_object)
}

/// The body of an answer: a JSON value, or text.
pub(super) fn parse_body(answer: &HttpResponse) -> Value {
    match answer.body.as_slice() {
        [] => Value::Null,
        bytes => {
            serde_json::from_slice(bytes).unwrap_or_else(|_| json!({"body": String::from_utf8_lossy(bytes)}))
        }
    }
}

/// Returns an error with its meaning if a status is not a success.
pub fn check_status(answer: &HttpResponse) -> Result<(), RemoteToolError> {
    let code = match answer.status {
        200..=299 => return Ok(()),
        400 | 422 => "input_invalid".to_owned(),
        401 => "auth_required".to_owned(),
        403 => "unauthorised".to_owned(),
        404 | 410 => "not_found".to_owned(),
        408 => "timeout".to_owned(),
        429 => "rate_limited".to_owned(),
        425 | 500..=599 => "upstream_error".to_owned(),
        other => format!("http_{other}"),
    };
    let value = parse_body(answer);
    let said = [&value["error"]["message"], &value["message"], &value["error"], &value["body"]];
    let said = said.into_iter().find_map(Value::as_str).map(str::trim).filter(|said| !said.is_empty());
    let said = said.map(|said| format!(": {}", said.chars().take(SAID).collect::<String>()));
    let message = format!("its server answered with status {}{}", answer.status, said.unwrap_or_default());
    let after = answer.header("retry-after").and_then(|text| text.trim().parse::<u64>().ok());
    Err(RemoteToolError { after: after.map(Millis::from_secs), ..RemoteToolError::new(code, message) })
}

/// The error for a missing answer.
pub fn transport_failure(error: &HttpError) -> RemoteToolError {
    let code = match error {
        HttpError::NotAUrl
        | HttpError::Plain
        | HttpError::Host
        | HttpError::Private
        | HttpError::Elsewhere
        | HttpError::Redirects(_) => "unauthorised",
        HttpError::Long(_) => "output_invalid",
        HttpError::Time(_) => "timeout",
        HttpError::Unknown | HttpError::Stopped | HttpError::Failed(_) => "upstream_error",
    };
    let hint = match error {
        HttpError::Plain | HttpError::Private => "; grant them with `private` in `[drivers]` of skein.toml",
        HttpError::Host => "; `network.egress` of its driver lists the allowed hosts",
        _ => "",
    };
    RemoteToolError::new(code, format!("its server did not answer: {error}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> HttpResponse {
        let headers = headers.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        HttpResponse { status, headers, body: body.as_bytes().to_vec() }
    }

    #[test]
    fn a_status_is_what_workflows_know() {
        for (number, code) in [
            (400, "input_invalid"),
            (401, "auth_required"),
            (403, "unauthorised"),
            (404, "not_found"),
            (408, "timeout"),
            (409, "http_409"),
            (425, "upstream_error"),
            (429, "rate_limited"),
            (302, "http_302"),
            (503, "upstream_error"),
        ] {
            assert_eq!(check_status(&answer(number, &[], "")).unwrap_err().code, code, "{number}");
        }
        let busy =
            check_status(&answer(429, &[("retry-after", "7")], r#"{"error": {"message": "slow down"}}"#));
        let busy = busy.unwrap_err();
        assert_eq!((busy.after, busy.message.contains("slow down")), (Some(Millis(7_000)), true));
        assert!(check_status(&answer(204, &[], "")).is_ok());
    }

    #[test]
    fn what_is_answered_is_an_object() {
        let given = |text: &str| to_object(parse_body(&answer(200, &[], text)));
        assert_eq!(given(r#"{"a": 1}"#), json!({"a": 1}));
        assert_eq!(given("[1]"), json!({"body": [1]}));
        assert_eq!(given("hello"), json!({"body": "hello"}));
        assert_eq!(given(""), json!({}));
    }
}
