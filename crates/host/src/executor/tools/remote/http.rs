//! Tools that are HTTP requests: builds a request from the driver's templates and the step's inputs, sends it, and
//! interprets the answer.
//!
//! Owns the meaning of a status code, and the safe insertion of values: a value adds no segment to a path, no field to a
//! query, no line to the headers. Does not know the transport.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use skein_core::{
    limits,
    time::Millis,
    tool_call::{self, CallTemplate, CallTemplateValues, CallText, CallTextPiece, UnfilledPlaceholder},
};

use super::{LoggedResult, RemoteCall, RemoteToolError, extract_part, to_object};
use crate::run_settings::{HttpTool, LoginExpirySign, NamedTextFields};
use crate::{
    cancel_token::CancelToken,
    executor::{attempt::spec::AttemptSpec, tools},
    http::{self, HttpError, HttpRequest, HttpResponse},
};

/// The maximum number of redirects within the same origin.
pub(crate) const REDIRECTS: u8 = 5;
/// The maximum number of characters of a server's error message that are reported.
const MESSAGE: usize = 300;

impl RemoteCall<'_> {
    /// Sends the request of a tool.
    pub(super) fn send_request(&self, tool: &HttpTool, limit: Duration, stop: &Arc<CancelToken>) -> LoggedResult {
        let inputs = tools::rename_inputs(self.tool, &self.attempt.job.given.inputs);
        let secret = |name: &str| self.find_secret(name);
        let request = HttpToolRequest::from_tool(
            tool,
            CallTemplateValues { inputs: &inputs, secret: &secret },
            &idempotency_key(&self.attempt.job),
        );
        let HttpToolRequest { url, headers, body } = match request {
            Ok(request) => request,
            Err(error) => return (Err(error), format!("{} was not sent", tool.method)),
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
        Some(LoginExpirySign::Header(name, value)) => answer.header(name).is_some_and(|found| found.trim() == value),
        None => false,
    };
    if expired {
        return Err(RemoteToolError::new("auth_required", "the login has expired, according to the server"));
    }
    check_status(answer)?;
    extract_part(&tool.extract, parse_body(answer)).map(to_object)
}

/// The body of an answer: a JSON value, or text.
pub(crate) fn parse_body(answer: &HttpResponse) -> Value {
    match answer.body.as_slice() {
        [] => Value::Null,
        bytes => serde_json::from_slice(bytes).unwrap_or_else(|_| json!({"body": String::from_utf8_lossy(bytes)})),
    }
}

/// Returns an error with its meaning if a status is not a success.
pub(super) fn check_status(answer: &HttpResponse) -> Result<(), RemoteToolError> {
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
    let texts = [&value["error"]["message"], &value["message"], &value["error"], &value["body"]];
    let text = texts.into_iter().find_map(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    let text = text.map(|text| format!(": {}", text.chars().take(MESSAGE).collect::<String>()));
    let message = format!("its server answered with status {}{}", answer.status, text.unwrap_or_default());
    let after = answer.header("retry-after").and_then(|text| text.trim().parse::<u64>().ok());
    Err(RemoteToolError { after: after.map(Millis::from_secs), ..RemoteToolError::new(code, message) })
}

/// The error for a missing answer.
pub(super) fn transport_failure(error: &HttpError) -> RemoteToolError {
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

/// A request that is ready to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HttpToolRequest {
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Option<Vec<u8>>,
}

impl From<UnfilledPlaceholder> for RemoteToolError {
    fn from(unfilled: UnfilledPlaceholder) -> RemoteToolError {
        let code = match unfilled {
            UnfilledPlaceholder::Input(_) => "input_invalid",
            UnfilledPlaceholder::Secret(_) => "auth_required",
        };
        RemoteToolError::new(code, unfilled.to_string())
    }
}

impl HttpToolRequest {
    pub(super) fn from_tool(
        tool: &HttpTool,
        values: CallTemplateValues<'_>,
        key: &str,
    ) -> Result<HttpToolRequest, RemoteToolError> {
        let base = tool_call::fill_text(&tool.base, values, str::to_owned)?;
        let mut url = format!("{}{}", base.trim_end_matches('/'), fill_path(&tool.endpoint, values)?);
        let query = fill_query(&tool.query, values)?;
        if !query.is_empty() {
            url = format!("{url}?{query}");
        }
        let body = match (&tool.body, tool.method.as_str()) {
            (Some(template), _) => template.fill(values)?,
            (None, "POST" | "PUT" | "PATCH") => Some(values.inputs.clone()),
            (None, _) => None,
        };
        let body = body.map(|value| value.to_string().into_bytes());
        let mut headers = fill_headers(&tool.headers, values)?;
        let mut usual = |name: &str, value: &str| {
            if !headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
                headers.push((name.to_owned(), value.to_owned()));
            }
        };
        usual("accept", "application/json");
        if body.is_some() {
            usual("content-type", "application/json");
        }
        if let Some(name) = &tool.key_header {
            usual(name, key);
        }
        Ok(HttpToolRequest { url, headers, body })
    }
}

/// The idempotency key: the same for every try of one piece of work, and for no other work.
pub(super) fn idempotency_key(job: &AttemptSpec) -> String {
    let (instance, step, role) = (job.attempt.at.0.0, job.attempt.at.1, job.attempt.role.as_str());
    let what = format!("{}/{instance}/{step:?}/{role}/{}/{}", job.run, job.attempt.visit, job.attempt.iteration);
    blake3::hash(what.as_bytes()).to_hex()[..32].to_owned()
}

/// Fills the path. Each value is one segment, or a part of one.
fn fill_path(endpoint: &CallText, values: CallTemplateValues<'_>) -> Result<String, RemoteToolError> {
    let mut empty = false;
    let path = tool_call::fill_text(endpoint, values, |value| {
        empty |= value.is_empty();
        percent_encode(value)
    })?;
    let odd = path.split('/').any(|segment| matches!(segment, "." | ".."));
    match empty || odd {
        true => Err(RemoteToolError::new(
            "input_invalid",
            "a value in the path of the URL is empty, `.` or `..`, which would change the path",
        )),
        false => Ok(path),
    }
}

/// Fills the query, without the inputs that were not given.
fn fill_query(fields: &NamedTextFields, values: CallTemplateValues<'_>) -> Result<String, RemoteToolError> {
    let mut parts = Vec::new();
    for (name, text) in fields {
        let value = match text.as_slice() {
            [place @ CallTextPiece::Input { .. }] => CallTemplate::Text(vec![place.clone()]).fill(values)?,
            text => Some(tool_call::fill_text(text, values, str::to_owned)?.into()),
        };
        parts
            .extend(value.map(|value| {
                format!("{}={}", percent_encode(name), percent_encode(&tool_call::to_plain_text(&value)))
            }));
    }
    Ok(parts.join("&"))
}

/// Fills the headers. Each value must be a single line.
pub(super) fn fill_headers(
    fields: &NamedTextFields,
    values: CallTemplateValues<'_>,
) -> Result<Vec<(String, String)>, RemoteToolError> {
    let mut headers: Vec<(String, String)> = Vec::new();
    for (name, text) in fields {
        let value = tool_call::fill_text(text, values, str::to_owned)?;
        if !is_header_text(&value) {
            let message =
                format!("the header `{name}` would contain a line break or a character that headers cannot have");
            return Err(RemoteToolError::new("input_invalid", message));
        }
        // The last one counts, because the tool's headers come after its driver's.
        headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        headers.push((name.clone(), value));
    }
    Ok(headers)
}

/// True if a text can be the name or value of a header.
pub(super) fn is_header_text(text: &str) -> bool {
    text.chars().all(|c| c == '\t' || (' '..='~').contains(&c))
}
fn percent_encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
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
        let busy = check_status(&answer(429, &[("retry-after", "7")], r#"{"error": {"message": "slow down"}}"#));
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

#[cfg(test)]
mod request_tests {
    use serde_json::{Value, json};

    use super::*;

    fn tool(endpoint: &str) -> HttpTool {
        let text = |text: &str| tool_call::parse_text(text).unwrap();
        HttpTool {
            method: "POST".into(),
            base: text("https://api.example.org/v1/"),
            endpoint: text(endpoint),
            headers: vec![
                ("X-Who".into(), text("nobody")),
                ("x-who".into(), text("${input.who | default('ada')}")),
                ("Authorization".into(), text("Bearer ${secrets.KEY}")),
            ],
            query: vec![("q".into(), text("${input.q}")), ("fixed".into(), text("a b"))],
            body: None,
            extract: Vec::new(),
            key_header: Some("Idempotency-Key".into()),
            expired: None,
        }
    }

    fn ask(endpoint: &str, inputs: &Value) -> Result<HttpToolRequest, RemoteToolError> {
        let secret = |name: &str| (name == "KEY").then(|| "k3y".to_owned());
        HttpToolRequest::from_tool(&tool(endpoint), CallTemplateValues { inputs, secret: &secret }, "one")
    }

    #[test]
    fn a_request_is_put_together() {
        let request = ask("/a/${input.id}", &json!({"id": 7})).unwrap();
        assert_eq!(request.url, "https://api.example.org/v1/a/7?fixed=a%20b");
        assert_eq!(request.body.as_deref(), Some(&br#"{"id":7}"#[..]));
        let header = |name: &str| request.headers.iter().find(|(known, _)| known == name).map(|(_, v)| v.as_str());
        assert_eq!(header("Authorization"), Some("Bearer k3y"));
        assert_eq!((header("X-Who"), header("x-who")), (None, Some("ada")));
        assert_eq!(header("Idempotency-Key"), Some("one"));
        assert_eq!(header("content-type"), Some("application/json"));
    }

    #[test]
    fn a_value_stays_in_its_place() {
        let id = |value: &str| ask("/a/${input.id}/b", &json!({"id": value})).map(|request| request.url);
        assert_eq!(
            id("../x?y=1#z&@evil.org/%2e%2e\\ü").unwrap(),
            "https://api.example.org/v1/a/..%2Fx%3Fy%3D1%23z%26%40evil.org%2F%252e%252e%5C%C3%BC/b?fixed=a%20b"
        );
        for wrong in ["", ".", ".."] {
            assert_eq!(id(wrong).unwrap_err().code, "input_invalid", "{wrong:?}");
        }
        assert_eq!(ask("/a/.${input.id}", &json!({"id": "."})).unwrap_err().code, "input_invalid");
        let request = ask("/", &json!({"q": "1&admin=true"})).unwrap();
        assert_eq!(request.url, "https://api.example.org/v1/?q=1%26admin%3Dtrue&fixed=a%20b");
        for wrong in ["a\r\nX-Evil: 1", "a\nb", "a\0b", "ü"] {
            assert_eq!(ask("/", &json!({"who": wrong})).unwrap_err().code, "input_invalid", "{wrong:?}");
        }
        assert_eq!(ask("/a/${input.id}", &json!({})).unwrap_err().code, "input_invalid");
    }
}
