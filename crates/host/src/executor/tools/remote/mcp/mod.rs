//! Tools of an MCP server: the session, and the meaning of its end.
//!
//! This is the only place with an asynchronous runtime. It lives on the attempt's own thread for one call; runs that do
//! not need it do not create one.

mod stdio;
mod streamable_http;

use std::{future::Future, time::Duration};

use rmcp::{
    RoleClient, ServiceError,
    model::{
        CallToolRequestParams, CallToolResult, ClientCapabilities, ErrorCode, ErrorData, Implementation,
        InitializeRequestParams,
    },
    service::{ClientInitializeError, RunningService, serve_client},
    transport::IntoTransport,
};
use serde_json::{Map, Value, json};
use tokio::runtime::{Builder, Runtime};

use super::{RemoteToolError, extract_part, to_object};
use crate::run_settings::McpTool;

/// The time that a server gets to close the session.
const LEAVING: Duration = Duration::from_secs(1);
/// The maximum number of tool names that are listed if a tool is missing.
const NAMES: usize = 20;

/// The maximum number of bytes that a server may send for one call.
const MOST: u64 = 4 * skein_core::limits::VALUE_BYTES as u64;

fn build_runtime() -> Result<Runtime, RemoteToolError> {
    let built = Builder::new_current_thread().enable_all().max_blocking_threads(4).build();
    built.map_err(|error| RemoteToolError {
        retryable: true,
        ..RemoteToolError::new("internal", format!("cannot create the async runtime: {error}"))
    })
}

/// Runs a session with a server: initializes it, calls the tool, and closes it.
async fn run_session<T, E, A>(transport: T, tool: &str, arguments: Map<String, Value>) -> Result<Value, RemoteToolError>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let us = Implementation::new("skein", env!("CARGO_PKG_VERSION"));
    let us = InitializeRequestParams::new(ClientCapabilities::default(), us);
    let mut client = serve_client(us, transport).await.map_err(|error| handshake_failure(&error))?;
    let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
    let said = match client.call_tool(params).await {
        Ok(result) => parse_result(result),
        Err(ServiceError::McpError(error)) => Err(explain_refusal(&client, tool, &error).await),
        Err(error) => Err(RemoteToolError::new("upstream_error", format!("its server did not answer: {error}"))),
    };
    // The result does not depend on a clean close.
    let _ = client.close_with_timeout(LEAVING).await;
    said
}

/// The error of a server that failed the handshake.
fn handshake_failure(error: &ClientInitializeError) -> RemoteToolError {
    let message = match error {
        ClientInitializeError::JsonRpcError(error) => error.message.to_string(),
        ClientInitializeError::ConnectionClosed(_) => "it closed the connection".to_owned(),
        other => other.to_string(),
    };
    RemoteToolError::new("upstream_error", format!("the MCP handshake with its server failed: {message}"))
}

/// Explains an answer that is an error instead of a result.
async fn explain_refusal(
    client: &RunningService<RoleClient, InitializeRequestParams>,
    tool: &str,
    error: &ErrorData,
) -> RemoteToolError {
    if let Ok(known) = client.list_all_tools().await
        && !known.iter().any(|known| known.name == tool)
    {
        let names: Vec<String> = known.iter().take(NAMES).map(|known| format!("`{}`", known.name)).collect();
        let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return RemoteToolError::new("not_found", format!("its server has no tool `{tool}`; it has {has}"));
    }
    let code = match error.code {
        ErrorCode::INVALID_PARAMS => "input_invalid",
        ErrorCode::METHOD_NOT_FOUND => "not_found",
        _ => "upstream_error",
    };
    RemoteToolError::new(code, format!("its server answered with the error {}: {}", error.code.0, error.message))
}

/// The result of a tool: its structured value, its text, which may be a JSON object, or else its raw content.
fn parse_result(result: CallToolResult) -> Result<Value, RemoteToolError> {
    let whole = serde_json::to_value(&result.content).unwrap_or_default();
    let blocks = whole.as_array().cloned().unwrap_or_default();
    let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
    let text = texts.join("\n");
    if result.is_error == Some(true) {
        let said = result.structured_content.unwrap_or_default();
        let code = said["code"].as_str().filter(|code| !code.is_empty()).unwrap_or("tool_error");
        let message = [text.as_str(), said["message"].as_str().unwrap_or_default()];
        let message = message.into_iter().find(|text| !text.is_empty()).unwrap_or("it gave no reason");
        let retryable = said["retryable"] == Value::Bool(true);
        return Err(RemoteToolError { retryable, ..RemoteToolError::new(code, message) });
    }
    if let Some(value) = result.structured_content {
        return Ok(value);
    }
    if texts.len() < blocks.len() {
        return Ok(json!({"content": whole}));
    }
    let value = serde_json::from_str::<Value>(&text).ok().filter(Value::is_object);
    Ok(value.unwrap_or_else(|| json!({"text": text})))
}

/// Extracts the relevant part of a result.
fn extract_result(tool: &McpTool, said: Result<Value, RemoteToolError>) -> Result<Value, RemoteToolError> {
    extract_part(&tool.extract, said?).map(to_object)
}

/// The inputs as arguments, which must be an object.
fn to_arguments(inputs: &Value) -> Map<String, Value> {
    inputs.as_object().cloned().unwrap_or_default()
}

/// Waits for a future, at most for the time limit.
async fn with_timeout<T>(
    limit: Duration,
    what: impl Future<Output = Result<T, RemoteToolError>>,
) -> Result<T, RemoteToolError> {
    tokio::time::timeout(limit, what)
        .await
        .unwrap_or_else(|_| Err(RemoteToolError::new("timeout", "its server did not answer in time")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(value: Value) -> Result<Value, RemoteToolError> {
        parse_result(serde_json::from_value(value).expect("it is a result"))
    }

    #[test]
    fn what_a_tool_gave_is_found_in_its_result() {
        let text = |text: &str| json!({"type": "text", "text": text});
        assert_eq!(result(json!({"content": [text("x")], "structuredContent": {"n": 1}})).unwrap(), json!({"n": 1}));
        assert_eq!(result(json!({"content": [text("{\"n\": 2}")]})).unwrap(), json!({"n": 2}));
        assert_eq!(result(json!({"content": [text("a"), text("b")]})).unwrap(), json!({"text": "a\nb"}));
        assert_eq!(result(json!({"content": []})).unwrap(), json!({"text": ""}));
        let image = json!({"type": "image", "data": "aGk=", "mimeType": "image/png"});
        assert_eq!(result(json!({"content": [image]})).unwrap()["content"][0]["mimeType"], "image/png");
    }

    #[test]
    fn a_tool_that_failed_says_why() {
        let failed = |value: Value| result(value).unwrap_err();
        let plain = failed(json!({"content": [{"type": "text", "text": "no stock"}], "isError": true}));
        assert_eq!((plain.code.as_str(), plain.message.as_str()), ("tool_error", "no stock"));
        let known = json!({"code": "rate_limited", "message": "later", "retryable": true});
        let known = failed(json!({"content": [], "structuredContent": known, "isError": true}));
        assert_eq!((known.code.as_str(), known.retryable), ("rate_limited", true));
    }
}
