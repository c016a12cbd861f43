//! A request, put together from what the driver says and what the step gives.
//!
//! Owns that a value stays where it is put: it adds no segment to a path, no field to a query, no line to the headers.

use skein_core::{
    call::{self, Piece, Template, Text, Unfilled, Values},
    engine::Role,
};

use super::{HttpTool, Texts, Trouble};
use crate::crew::job::Job;

/// A request before it is sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Option<Vec<u8>>,
}

impl From<Unfilled> for Trouble {
    fn from(unfilled: Unfilled) -> Trouble {
        let code = match unfilled {
            Unfilled::Input(_) => "input_invalid",
            Unfilled::Secret(_) => "auth_required",
        };
        Trouble::new(code, unfilled.to_string())
    }
}

impl Request {
    pub fn of(tool: &HttpTool, values: Values<'_>, key: &str) -> Result<Request, Trouble> {
        let base = call::fill(&tool.base, values, str::to_owned)?;
        let mut url = format!("{}{}", base.trim_end_matches('/'), path(&tool.endpoint, values)?);
        let query = query(&tool.query, values)?;
        if !query.is_empty() {
            url = format!("{url}?{query}");
        }
        let body = match (&tool.body, tool.method.as_str()) {
            (Some(template), _) => template.fill(values)?,
            (None, "POST" | "PUT" | "PATCH") => Some(values.inputs.clone()),
            (None, _) => None,
        };
        let body = body.map(|value| value.to_string().into_bytes());
        let mut headers = headers(&tool.headers, values)?;
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
        Ok(Request { url, headers, body })
    }
}

/// What is the same for every try at one piece of work, and for nothing else.
pub fn key(job: &Job) -> String {
    let (instance, step) = (job.attempt.at.0.0, job.attempt.at.1);
    let role = match job.attempt.role {
        Role::Main => "main",
        Role::Check => "check",
        Role::Summary => "summary",
        Role::Undo => "undo",
    };
    let what =
        format!("{}/{instance}/{step:?}/{role}/{}/{}", job.run, job.attempt.visit, job.attempt.iteration);
    blake3::hash(what.as_bytes()).to_hex()[..32].to_owned()
}

/// The path. Each value is one segment, or a part of one.
fn path(endpoint: &Text, values: Values<'_>) -> Result<String, Trouble> {
    let mut empty = false;
    let path = call::fill(endpoint, values, |value| {
        empty |= value.is_empty();
        encoded(value)
    })?;
    let odd = path.split('/').any(|segment| matches!(segment, "." | ".."));
    match empty || odd {
        true => Err(Trouble::new(
            "input_invalid",
            "a value that is put into the path of the address is empty, `.` or `..`, which would lead elsewhere",
        )),
        false => Ok(path),
    }
}

/// A query, without the inputs that were not given.
fn query(fields: &Texts, values: Values<'_>) -> Result<String, Trouble> {
    let mut parts = Vec::new();
    for (name, text) in fields {
        let value = match text.as_slice() {
            [place @ Piece::Input { .. }] => Template::Text(vec![place.clone()]).fill(values)?,
            text => Some(call::fill(text, values, str::to_owned)?.into()),
        };
        parts.extend(value.map(|value| format!("{}={}", encoded(name), encoded(&call::plain(&value)))));
    }
    Ok(parts.join("&"))
}

/// Headers, each of which is one line.
pub fn headers(fields: &Texts, values: Values<'_>) -> Result<Vec<(String, String)>, Trouble> {
    let mut headers: Vec<(String, String)> = Vec::new();
    for (name, text) in fields {
        let value = call::fill(text, values, str::to_owned)?;
        if !is_line(&value) {
            let message = format!("the header `{name}` would hold a line break, or what no header can");
            return Err(Trouble::new("input_invalid", message));
        }
        // What is said last counts, as a tool says more than its driver.
        headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        headers.push((name.clone(), value));
    }
    Ok(headers)
}

/// Whether a text can be all of a header.
pub fn is_line(text: &str) -> bool {
    text.chars().all(|c| c == '\t' || (' '..='~').contains(&c))
}

/// A text in an address, where it means nothing but itself.
fn encoded(text: &str) -> String {
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
        let text = |text: &str| call::parse(text).unwrap();
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

    fn ask(endpoint: &str, inputs: &Value) -> Result<Request, Trouble> {
        let secret = |name: &str| (name == "KEY").then(|| "k3y".to_owned());
        Request::of(&tool(endpoint), Values { inputs, secret: &secret }, "one")
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
