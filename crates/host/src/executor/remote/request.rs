//! HTTP requests of tools, built from the driver's templates and the step's inputs.
//!
//! Owns the safe insertion of values: a value adds no segment to a path, no field to a query, no line to the headers.

use skein_core::{
    engine::AttemptRole,
    tool_call::{self, CallTemplate, CallTemplateValues, CallText, CallTextPiece, UnfilledPlaceholder},
};

use super::{HttpTool, NamedTextFields, RemoteToolError};
use crate::executor::attempt_spec::AttemptSpec;

/// A request that is ready to be sent.
#[derive(Debug, PartialEq, Eq)]
pub struct HttpToolRequest {
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
    pub fn from_tool(
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
pub fn idempotency_key(job: &AttemptSpec) -> String {
    let (instance, step) = (job.attempt.at.0.0, job.attempt.at.1);
    let role = match job.attempt.role {
        AttemptRole::Main => "main",
        AttemptRole::Check => "check",
        AttemptRole::Summary => "summary",
        AttemptRole::Undo => "undo",
    };
    let what =
        format!("{}/{instance}/{step:?}/{role}/{}/{}", job.run, job.attempt.visit, job.attempt.iteration);
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
        parts.extend(value.map(|value| {
            format!("{}={}", percent_encode(name), percent_encode(&tool_call::to_plain_text(&value)))
        }));
    }
    Ok(parts.join("&"))
}

/// Fills the headers. Each value must be a single line.
pub fn fill_headers(
    fields: &NamedTextFields,
    values: CallTemplateValues<'_>,
) -> Result<Vec<(String, String)>, RemoteToolError> {
    let mut headers: Vec<(String, String)> = Vec::new();
    for (name, text) in fields {
        let value = tool_call::fill_text(text, values, str::to_owned)?;
        if !is_header_text(&value) {
            let message = format!(
                "the header `{name}` would contain a line break or a character that headers cannot have"
            );
            return Err(RemoteToolError::new("input_invalid", message));
        }
        // The last one counts, because the tool's headers come after its driver's.
        headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        headers.push((name.clone(), value));
    }
    Ok(headers)
}

/// True if a text can be the name or value of a header.
pub fn is_header_text(text: &str) -> bool {
    text.chars().all(|c| c == '\t' || (' '..='~').contains(&c))
}

/// Percent-encodes a text for a URL.
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
        let header =
            |name: &str| request.headers.iter().find(|(known, _)| known == name).map(|(_, v)| v.as_str());
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
