//! An MCP server over HTTP, called with the host's own HTTP client.
//!
//! Owns the transport of messages over HTTP. A stream that the server would open by itself is not read: a call has an
//! answer, and nothing else is awaited.

use std::{
    collections::HashMap,
    io::Cursor,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use futures_core::{Stream, stream::BoxStream};
use rmcp::{
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::{
        StreamableHttpClientTransport,
        common::client_side_sse::NeverRetry,
        streamable_http_client::{
            SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
            StreamableHttpPostResponse,
        },
    },
};
use serde_json::Value;
use skein_core::tool_call::{self, CallTemplateValues};
use sse_stream::{Sse, SseStream};
use tokio::sync::mpsc;
use ureq::http::{HeaderName, HeaderValue};

use super::{MOST, build_runtime, extract_result, run_session, to_arguments, with_timeout};
use crate::{
    cancel_token::CancelToken,
    executor::tools::{
        self,
        remote::{
            RemoteCall, RemoteToolError,
            http::{check_status, fill_headers, transport_failure},
        },
    },
    http::{HttpClient, HttpError, HttpRequest, HttpResponse, StreamingResponse},
    run_settings::{McpEndpoint, McpTool},
};

const SESSION: &str = "mcp-session-id";

impl RemoteCall<'_> {
    /// Calls a tool. Returns its result and a line for the log.
    pub(in crate::executor::tools::remote) fn call_over_http(
        &self,
        tool: &McpTool,
        limit: Duration,
        stop: &Arc<CancelToken>,
    ) -> (Result<Value, RemoteToolError>, String) {
        let said = self.run_http_session(tool, limit, stop);
        let log = match &said {
            Ok(_) => format!("called `{}`", tool.tool),
            Err(trouble) => format!("called `{}`: {}", tool.tool, trouble.message),
        };
        (said, log)
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
            wrong: Arc::default(),
        };
        let wrong = Arc::clone(&post.wrong);
        let mut config = StreamableHttpClientTransportConfig::with_uri(url);
        config.retry_config = Arc::new(NeverRetry::default());
        config.reinit_on_expired_session = false;
        config.max_sse_event_size = usize::try_from(MOST).unwrap_or(usize::MAX);
        let inputs = tools::rename_inputs(self.tool, &self.job.given.inputs);
        let runtime = build_runtime()?;
        let (called_off, off) = tokio::sync::oneshot::channel();
        stop.call_on_cancel(move || {
            // If the session is over, there is no receiver.
            let _ = called_off.send(());
        });
        let said = runtime.block_on(async {
            let transport = StreamableHttpClientTransport::with_client(post, config);
            tokio::select! {
                said = with_timeout(limit, run_session(transport, &tool.tool, to_arguments(&inputs))) => said,
                _ = off => Err(RemoteToolError::new("upstream_error", "it was cancelled")),
            }
        });
        runtime.shutdown_background();
        // The transport error is more specific than the session's error.
        let wrong = wrong.lock().unwrap_or_else(PoisonError::into_inner).take();
        let said = said.map_err(|trouble| match wrong {
            Some(wrong) if trouble.code == "upstream_error" => wrong,
            _ => trouble,
        });
        extract_result(tool, said)
    }
}

/// Sends messages as HTTP requests.
#[derive(Clone)]
struct McpHttpClient {
    client: HttpClient,
    /// The headers of every request.
    headers: Arc<[(String, String)]>,
    until: Instant,
    /// The first error.
    wrong: Arc<Mutex<Option<RemoteToolError>>>,
}

type McpHttpError = StreamableHttpError<HttpError>;

impl McpHttpClient {
    fn note_error(&self, trouble: RemoteToolError) {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(trouble);
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
            (Err(trouble), _) => {
                let said = trouble.message.clone();
                self.note_error(trouble);
                Err(StreamableHttpError::UnexpectedServerResponse(said.into()))
            }
        }
    }

    /// Streams events as they arrive.
    fn stream_events(&self, opened: StreamingResponse) -> BoxStream<'static, Result<Sse, SseError>> {
        let (tell, told) = mpsc::channel(8);
        let noting = self.clone();
        tokio::task::spawn_blocking(move || {
            let sent = opened.read_chunks(|piece| tell.blocking_send(Ok(Cursor::new(piece.to_vec()))).is_ok());
            if let Err(error) = sent {
                noting.note_error(transport_failure(&error));
                let _ = tell.blocking_send(Err(error));
            }
        });
        Box::pin(SseStream::from_bytes_stream(ResponseChunks(told)))
    }
}

/// The chunks from the reading thread.
struct ResponseChunks(mpsc::Receiver<Result<Cursor<Vec<u8>>, HttpError>>);

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
