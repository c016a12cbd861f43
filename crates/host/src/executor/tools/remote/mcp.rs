//! Tools of an MCP server: a program that is started like any worker and called through its stdin and stdout, or a
//! server that is called with the host's own HTTP client.
//!
//! Owns the session, the transport of messages over HTTP, and the meaning of the session's end. A stream that a server
//! would open by itself is not read: a call has an answer, and nothing else is awaited. This is the only place with an
//! asynchronous runtime. It lives on the attempt's own thread for one call; runs that do not need it do not create one.

use std::{
    collections::HashMap,
    future::Future,
    io::{self, Cursor},
    os::fd::OwnedFd,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use futures_core::{Stream, stream::BoxStream};
use rmcp::{
    RoleClient, ServiceError,
    model::{
        CallToolRequestParams, CallToolResult, ClientCapabilities, ClientJsonRpcMessage, ErrorCode, ErrorData,
        Implementation, InitializeRequestParams, ServerJsonRpcMessage,
    },
    service::{ClientInitializeError, RunningService, serve_client},
    transport::{
        IntoTransport, StreamableHttpClientTransport,
        async_rw::AsyncRwTransport,
        common::client_side_sse::NeverRetry,
        streamable_http_client::{
            SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
            StreamableHttpPostResponse,
        },
    },
};
use serde_json::{Map, Value, json};
use skein_core::{
    time::Millis,
    tool_call::{self, CallTemplateValues},
};
use sse_stream::{Sse, SseStream};
use tokio::{
    io::{AsyncRead, ReadBuf},
    net::unix::pipe,
    runtime::{Builder, Runtime},
};
use ureq::http::{HeaderName, HeaderValue};

use crate::{
    cancel_token::CancelToken,
    executor::{
        ActiveWork, WorkKey,
        attempt::collect::last_line,
        tools::{
            self,
            remote::{
                LoggedResult, RemoteCall, RemoteToolError, extract_part,
                http::{check_status, fill_headers, transport_failure},
                timeout_or_default, to_millis, to_object, write_result,
            },
        },
    },
    http::{HttpClient, HttpError, HttpRequest, HttpResponse, StreamingResponse},
    process::{self, DialogPipes, ProcessHandle, ProcessOutcome, ProcessReport, ProcessSpec},
    run_settings::{McpEndpoint, McpTool},
    start_error::StartRefusal,
};

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
    let result = match client.call_tool(params).await {
        Ok(result) => parse_result(result),
        Err(ServiceError::McpError(error)) => Err(explain_refusal(&client, tool, &error).await),
        Err(error) => Err(RemoteToolError::new("upstream_error", format!("its server did not answer: {error}"))),
    };
    // The result does not depend on a clean close.
    let _ = client.close_with_timeout(LEAVING).await;
    result
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
        let details = result.structured_content.unwrap_or_default();
        let code = details["code"].as_str().filter(|code| !code.is_empty()).unwrap_or("tool_error");
        let message = [text.as_str(), details["message"].as_str().unwrap_or_default()];
        let message = message.into_iter().find(|text| !text.is_empty()).unwrap_or("it gave no reason");
        let retryable = details["retryable"] == Value::Bool(true);
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
fn extract_result(tool: &McpTool, result: Result<Value, RemoteToolError>) -> Result<Value, RemoteToolError> {
    extract_part(&tool.extract, result?).map(to_object)
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

/// The time for a server to exit by itself after the session, and the time to exit after a stop request.
const BY_ITSELF: Duration = Duration::from_secs(2);
const GRACE: Millis = Millis::from_secs(2);

/// The host's ends of the pipes.
struct ServerPipes {
    write: OwnedFd,
    read: OwnedFd,
}

impl RemoteCall<'_> {
    /// Runs an attempt as a session with a program.
    pub(super) fn call_over_stdio(&self, tool: &McpTool, mut task: ProcessSpec, key: &WorkKey) -> ProcessReport {
        let began = Instant::now();
        let ours = match self.connect_pipes(tool, &mut task) {
            Ok(ours) => ours,
            Err(why) => {
                let how = StartRefusal::Other(format!("cannot connect to it: {why}")).into();
                return ProcessReport::without_process(how, began);
            }
        };
        let limit = timeout_or_default(task.limit);
        let stdout = task.stdout.clone();
        let (done, ended) = mpsc::channel();
        let handle = process::start_process(task, move |ended| drop(done.send(ended)));
        self.attempt.shared.attach_process(key, handle.clone());
        let result = self.run_pipe_session(tool, ours, limit);
        let Some(ended) = await_exit(&handle, &ended) else {
            return ProcessReport::without_process(StartRefusal::Unseen.into(), began);
        };
        let how = self.determine_exit(key, &result, &ended.how);
        if how != ProcessOutcome::Exited(0) {
            return ProcessReport { how, ..ended };
        }
        let result = result.map_err(|error| append_tail(error, &ended.tail));
        let kept = write_result(&self.attempt.shared.redactor, stdout.as_deref(), &result);
        ProcessReport { how: kept.unwrap_or(how), ..ended }
    }

    /// Creates the pipes, and sets the fields of the task that differ from other programs.
    fn connect_pipes(&self, tool: &McpTool, task: &mut ProcessSpec) -> Result<ServerPipes, String> {
        if let McpEndpoint::Program(env) = &tool.server {
            let secret = |name: &str| self.find_secret(name);
            let values = CallTemplateValues { inputs: &Value::Null, secret: &secret };
            for (name, text) in env {
                let value = tool_call::fill_text(text, values, str::to_owned).map_err(|why| why.to_string())?;
                task.environment.push((name.into(), value.into()));
            }
        }
        let (stdin, write) = io::pipe().map_err(|error| error.to_string())?;
        let (read, stdout) = io::pipe().map_err(|error| error.to_string())?;
        task.talk = Some(DialogPipes { stdin: stdin.into(), stdout: stdout.into() });
        task.limit = Some(to_millis(timeout_or_default(task.limit)));
        // A server is silent while it is not called.
        (task.idle, task.start) = (None, None);
        task.grace = GRACE;
        Ok(ServerPipes { write: write.into(), read: read.into() })
    }

    fn run_pipe_session(&self, tool: &McpTool, ours: ServerPipes, limit: Duration) -> Result<Value, RemoteToolError> {
        let inputs = tools::rename_inputs(self.tool, &self.attempt.job.given.inputs);
        let received = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&received);
        let runtime = build_runtime()?;
        let result = runtime.block_on(with_timeout(limit, async {
            let broken = |error: io::Error| RemoteToolError::new("internal", error.to_string());
            let read = pipe::Receiver::from_owned_fd(ours.read).map_err(broken)?;
            let write = pipe::Sender::from_owned_fd(ours.write).map_err(broken)?;
            let line = usize::try_from(MOST).unwrap_or(usize::MAX);
            let transport = AsyncRwTransport::<RoleClient, _, _>::new(LimitedReader { read, received: counted }, write);
            run_session(transport.with_max_line_length(line), &tool.tool, to_arguments(&inputs)).await
        }));
        runtime.shutdown_background();
        if result.is_err() && received.load(Ordering::Relaxed) > MOST {
            let message = format!("its server sent more than {MOST} bytes, and the rest was not read");
            return Err(RemoteToolError::new("output_invalid", message));
        }
        extract_result(tool, result)
    }

    /// Determines the outcome: the result counts, or else the way the program ended before it answered.
    fn determine_exit(
        &self,
        key: &WorkKey,
        result: &Result<Value, RemoteToolError>,
        how: &ProcessOutcome,
    ) -> ProcessOutcome {
        let Err(error) = result else { return ProcessOutcome::Exited(0) };
        let silent = matches!(error.code.as_str(), "upstream_error" | "timeout" | "internal");
        match how {
            _ if !silent => ProcessOutcome::Exited(0),
            _ if self.is_stop_requested(key) => ProcessOutcome::Stopped,
            // The host stopped it after the session.
            ProcessOutcome::Stopped => ProcessOutcome::Exited(0),
            how => how.clone(),
        }
    }

    fn is_stop_requested(&self, key: &WorkKey) -> bool {
        matches!(self.attempt.shared.active_work().get(key), Some(ActiveWork::Working { ending: Some(_), .. }))
    }

    pub(super) fn call_over_http(&self, tool: &McpTool, limit: Duration, stop: &Arc<CancelToken>) -> LoggedResult {
        let result = self.run_http_session(tool, limit, stop);
        let log = match &result {
            Ok(_) => format!("called `{}`", tool.tool),
            Err(error) => format!("called `{}`: {}", tool.tool, error.message),
        };
        (result, log)
    }

    fn run_http_session(
        &self,
        tool: &McpTool,
        limit: Duration,
        stop: &Arc<CancelToken>,
    ) -> Result<Value, RemoteToolError> {
        let McpEndpoint::Url { url, headers: own } = &tool.server else {
            return Err(RemoteToolError::new("internal", "its server is a program"));
        };
        let secret = |name: &str| self.find_secret(name);
        let values = CallTemplateValues { inputs: &Value::Null, secret: &secret };
        let url = tool_call::fill_text(url, values, str::to_owned)?;
        let post = McpHttpClient {
            client: HttpClient::new(self.tool.reach.clone(), Some(Arc::clone(stop))),
            headers: fill_headers(own, values)?.into(),
            until: Instant::now() + limit,
            first_error: Arc::default(),
        };
        let first_error = Arc::clone(&post.first_error);
        let mut config = StreamableHttpClientTransportConfig::with_uri(url);
        config.retry_config = Arc::new(NeverRetry::default());
        config.reinit_on_expired_session = false;
        config.max_sse_event_size = usize::try_from(MOST).unwrap_or(usize::MAX);
        let inputs = tools::rename_inputs(self.tool, &self.attempt.job.given.inputs);
        let runtime = build_runtime()?;
        let (called_off, off) = tokio::sync::oneshot::channel();
        stop.call_on_cancel(move || {
            // If the session is over, there is no receiver.
            let _ = called_off.send(());
        });
        let result = runtime.block_on(async {
            let transport = StreamableHttpClientTransport::with_client(post, config);
            tokio::select! {
                result = with_timeout(limit, run_session(transport, &tool.tool, to_arguments(&inputs))) => result,
                _ = off => Err(RemoteToolError::new("upstream_error", "it was cancelled")),
            }
        });
        runtime.shutdown_background();
        // The transport error is more specific than the session's error.
        let first_error = first_error.lock().unwrap_or_else(PoisonError::into_inner).take();
        let result = result.map_err(|error| match first_error {
            Some(first_error) if error.code == "upstream_error" => first_error,
            _ => error,
        });
        extract_result(tool, result)
    }
}

/// Waits until the program has exited. Stops it if it does not exit by itself.
fn await_exit(handle: &ProcessHandle, ended: &Receiver<ProcessReport>) -> Option<ProcessReport> {
    ended.recv_timeout(BY_ITSELF).ok().or_else(|| {
        handle.stop();
        ended.recv().ok()
    })
}

/// Appends the last line that it printed for people.
fn append_tail(error: RemoteToolError, tail: &str) -> RemoteToolError {
    match last_line(tail).filter(|_| error.code == "upstream_error") {
        Some(last) => RemoteToolError { message: format!("{}: {last}", error.message), ..error },
        None => error,
    }
}

/// Reads at most [`MOST`] bytes.
struct LimitedReader {
    read: pipe::Receiver,
    received: Arc<AtomicU64>,
}

impl AsyncRead for LimitedReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.read).poll_read(context, buffer);
        let more = u64::try_from(buffer.filled().len() - before).unwrap_or(u64::MAX);
        match self.received.fetch_add(more, Ordering::Relaxed).saturating_add(more) {
            received if received > MOST => Poll::Ready(Err(io::Error::other("it sent too much"))),
            _ => read,
        }
    }
}

const SESSION: &str = "mcp-session-id";

/// Sends messages as HTTP requests.
#[derive(Clone)]
struct McpHttpClient {
    client: HttpClient,
    /// The headers of every request.
    headers: Arc<[(String, String)]>,
    until: Instant,
    /// The first error.
    first_error: Arc<Mutex<Option<RemoteToolError>>>,
}

type McpHttpError = StreamableHttpError<HttpError>;

impl McpHttpClient {
    fn note_error(&self, error: RemoteToolError) {
        self.first_error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    fn client_error(&self, error: HttpError) -> McpHttpError {
        self.note_error(transport_failure(&error));
        StreamableHttpError::Client(error)
    }

    fn build_call(&self, method: &str, url: &str, session: Option<&str>, more: &[(String, String)]) -> HttpRequest {
        let mut headers = vec![("accept".to_owned(), "application/json, text/event-stream".to_owned())];
        headers.extend(more.iter().chain(self.headers.iter()).cloned());
        headers.extend(session.map(|session| (SESSION.to_owned(), session.to_owned())));
        HttpRequest {
            method: method.to_owned(),
            url: url.to_owned(),
            headers,
            body: None,
            time: self.until.saturating_duration_since(Instant::now()),
            most: MOST,
            redirects: 0,
        }
    }

    /// Sends a request on another thread, because it blocks.
    async fn send_call(&self, call: HttpRequest) -> Result<StreamingResponse, McpHttpError> {
        let client = self.client.clone();
        let opened = tokio::task::spawn_blocking(move || client.open_response(&call)).await?;
        opened.map_err(|error| self.client_error(error))
    }

    async fn read_answer(&self, opened: StreamingResponse) -> Result<HttpResponse, McpHttpError> {
        let answer = tokio::task::spawn_blocking(move || opened.read_whole()).await?;
        answer.map_err(|error| self.client_error(error))
    }

    async fn parse_response(&self, opened: StreamingResponse) -> Result<StreamableHttpPostResponse, McpHttpError> {
        let session = opened.header(SESSION).map(str::to_owned);
        let kind = opened.header("content-type").unwrap_or_default().to_ascii_lowercase();
        match opened.status {
            202 | 204 => return Ok(StreamableHttpPostResponse::Accepted),
            200..=299 if kind.starts_with("text/event-stream") => {
                return Ok(StreamableHttpPostResponse::Sse(self.stream_events(opened), session));
            }
            _ => {}
        }
        let answer = self.read_answer(opened).await?;
        let message = serde_json::from_slice::<ServerJsonRpcMessage>(&answer.body);
        match (check_status(&answer), message) {
            (Ok(()), Ok(message)) => Ok(StreamableHttpPostResponse::Json(message, session)),
            (Ok(()), Err(_)) if answer.body.is_empty() => Ok(StreamableHttpPostResponse::Accepted),
            (Ok(()), Err(error)) => Err(StreamableHttpError::Deserialize(error)),
            // An error status may carry a protocol error as its body.
            (Err(_), Ok(message @ ServerJsonRpcMessage::Error(_))) => {
                Ok(StreamableHttpPostResponse::Json(message, session))
            }
            (Err(error), _) => {
                let result = error.message.clone();
                self.note_error(error);
                Err(StreamableHttpError::UnexpectedServerResponse(result.into()))
            }
        }
    }

    /// Streams events as they arrive.
    fn stream_events(&self, opened: StreamingResponse) -> BoxStream<'static, Result<Sse, SseError>> {
        let (sender, chunks) = tokio::sync::mpsc::channel(8);
        let client = self.clone();
        tokio::task::spawn_blocking(move || {
            let sent = opened.read_chunks(|piece| sender.blocking_send(Ok(Cursor::new(piece.to_vec()))).is_ok());
            if let Err(error) = sent {
                client.note_error(transport_failure(&error));
                let _ = sender.blocking_send(Err(error));
            }
        });
        Box::pin(SseStream::from_bytes_stream(ResponseChunks(chunks)))
    }
}

/// The chunks from the reading thread.
struct ResponseChunks(tokio::sync::mpsc::Receiver<Result<Cursor<Vec<u8>>, HttpError>>);

impl Stream for ResponseChunks {
    type Item = Result<Cursor<Vec<u8>>, HttpError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

fn header_texts(headers: HashMap<HeaderName, HeaderValue>) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}

impl StreamableHttpClient for McpHttpClient {
    type Error = HttpError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, McpHttpError> {
        let mut more = header_texts(custom_headers);
        more.push(("content-type".to_owned(), "application/json".to_owned()));
        let call = self.build_call("POST", &uri, session_id.as_deref(), &more);
        let body = Some(serde_json::to_vec(&message)?);
        let opened = self.send_call(HttpRequest { body, ..call }).await?;
        self.parse_response(opened).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), McpHttpError> {
        let call = self.build_call("DELETE", &uri, Some(&session_id), &header_texts(custom_headers));
        self.send_call(call).await.map(drop)
    }

    async fn get_stream(
        &self,
        _uri: Arc<str>,
        _session_id: Option<Arc<str>>,
        _last_event_id: Option<String>,
        _auth_header: Option<String>,
        _custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, McpHttpError> {
        Err(StreamableHttpError::ServerDoesNotSupportSse)
    }
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
