//! A server that is spoken to over HTTP, by the one client that we have for that.
//!
//! Owns how messages go over it. A stream that a server would open by itself is not listened to: a call has an answer, and
//! nothing else is waited for.

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
use skein_core::call::{self, Values};
use sse_stream::{Sse, SseStream};
use tokio::sync::mpsc;
use ureq::http::{HeaderName, HeaderValue};

use super::{
    super::{
        Asking, McpTool, Server, Trouble,
        http::{status, unanswered},
        request::headers,
    },
    MOST, arguments, converse, runtime, taken, within,
};
use crate::{
    crew::tool,
    http::{Answer, Call, Client, HttpError, Opened},
    stop::Stop,
};

const SESSION: &str = "mcp-session-id";

impl Asking<'_> {
    /// Calls a tool: what it gives, and a line for the log.
    pub(in super::super) fn call_over_http(
        &self,
        tool: &McpTool,
        limit: Duration,
        stop: &Arc<Stop>,
    ) -> (Result<Value, Trouble>, String) {
        let said = self.over_http(tool, limit, stop);
        let log = match &said {
            Ok(_) => format!("called `{}`", tool.tool),
            Err(trouble) => format!("called `{}`: {}", tool.tool, trouble.message),
        };
        (said, log)
    }

    fn over_http(&self, tool: &McpTool, limit: Duration, stop: &Arc<Stop>) -> Result<Value, Trouble> {
        let Server::Url { url, headers: own } = &tool.server else {
            return Err(Trouble::new("internal", "its server is a program"));
        };
        let secret = |name: &str| self.secret(name);
        let values = Values { inputs: &Value::Null, secret: &secret };
        let url = call::fill(url, values, str::to_owned)?;
        let post = Post {
            client: Client::new(self.tool.reach.clone(), Some(Arc::clone(stop))),
            headers: headers(own, values)?.into(),
            until: Instant::now() + limit,
            wrong: Arc::default(),
        };
        let wrong = Arc::clone(&post.wrong);
        let mut config = StreamableHttpClientTransportConfig::with_uri(url);
        config.retry_config = Arc::new(NeverRetry::default());
        config.reinit_on_expired_session = false;
        config.max_sse_event_size = usize::try_from(MOST).unwrap_or(usize::MAX);
        let inputs = tool::renamed(self.tool, &self.job.given.inputs);
        let runtime = runtime()?;
        let (called_off, off) = tokio::sync::oneshot::channel();
        stop.then(move || {
            // Where it is over, nobody hears.
            let _ = called_off.send(());
        });
        let said = runtime.block_on(async {
            let transport = StreamableHttpClientTransport::with_client(post, config);
            tokio::select! {
                said = within(limit, converse(transport, &tool.tool, arguments(&inputs))) => said,
                _ = off => Err(Trouble::new("upstream_error", "it was called off")),
            }
        });
        runtime.shutdown_background();
        // What went wrong on the way says more than that something did.
        let wrong = wrong.lock().unwrap_or_else(PoisonError::into_inner).take();
        let said = said.map_err(|trouble| match wrong {
            Some(wrong) if trouble.code == "upstream_error" => wrong,
            _ => trouble,
        });
        taken(tool, said)
    }
}

/// Sends messages as requests.
#[derive(Clone)]
struct Post {
    client: Client,
    /// What every request says.
    headers: Arc<[(String, String)]>,
    until: Instant,
    /// The first thing that went wrong.
    wrong: Arc<Mutex<Option<Trouble>>>,
}

type Failed = StreamableHttpError<HttpError>;

impl Post {
    fn note(&self, trouble: Trouble) {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(trouble);
    }

    fn failed(&self, error: HttpError) -> Failed {
        self.note(unanswered(&error));
        StreamableHttpError::Client(error)
    }

    fn call(&self, method: &str, url: &str, session: Option<&str>, more: &[(String, String)]) -> Call {
        let mut headers = vec![("accept".to_owned(), "application/json, text/event-stream".to_owned())];
        headers.extend(more.iter().chain(self.headers.iter()).cloned());
        headers.extend(session.map(|session| (SESSION.to_owned(), session.to_owned())));
        Call {
            method: method.to_owned(),
            url: url.to_owned(),
            headers,
            body: None,
            time: self.until.saturating_duration_since(Instant::now()),
            most: MOST,
            redirects: 0,
        }
    }

    /// Sends a request on another thread, because it waits.
    async fn open(&self, call: Call) -> Result<Opened, Failed> {
        let client = self.client.clone();
        let opened = tokio::task::spawn_blocking(move || client.open(&call)).await?;
        opened.map_err(|error| self.failed(error))
    }

    async fn whole(&self, opened: Opened) -> Result<Answer, Failed> {
        let answer = tokio::task::spawn_blocking(move || opened.whole()).await?;
        answer.map_err(|error| self.failed(error))
    }

    async fn answered(&self, opened: Opened) -> Result<StreamableHttpPostResponse, Failed> {
        let session = opened.header(SESSION).map(str::to_owned);
        let kind = opened.header("content-type").unwrap_or_default().to_ascii_lowercase();
        match opened.status {
            202 | 204 => return Ok(StreamableHttpPostResponse::Accepted),
            200..=299 if kind.starts_with("text/event-stream") => {
                return Ok(StreamableHttpPostResponse::Sse(self.stream(opened), session));
            }
            _ => {}
        }
        let answer = self.whole(opened).await?;
        let message = serde_json::from_slice::<ServerJsonRpcMessage>(&answer.body);
        match (status(&answer), message) {
            (Ok(()), Ok(message)) => Ok(StreamableHttpPostResponse::Json(message, session)),
            (Ok(()), Err(_)) if answer.body.is_empty() => Ok(StreamableHttpPostResponse::Accepted),
            (Ok(()), Err(error)) => Err(StreamableHttpError::Deserialize(error)),
            // An error may be said in the words of the protocol.
            (Err(_), Ok(message @ ServerJsonRpcMessage::Error(_))) => {
                Ok(StreamableHttpPostResponse::Json(message, session))
            }
            (Err(trouble), _) => {
                let said = trouble.message.clone();
                self.note(trouble);
                Err(StreamableHttpError::UnexpectedServerResponse(said.into()))
            }
        }
    }

    /// Events, as they come.
    fn stream(&self, opened: Opened) -> BoxStream<'static, Result<Sse, SseError>> {
        let (tell, told) = mpsc::channel(8);
        let noting = self.clone();
        tokio::task::spawn_blocking(move || {
            let sent = opened.pieces(|piece| tell.blocking_send(Ok(Cursor::new(piece.to_vec()))).is_ok());
            if let Err(error) = sent {
                noting.note(unanswered(&error));
                let _ = tell.blocking_send(Err(error));
            }
        });
        Box::pin(SseStream::from_bytes_stream(Pieces(told)))
    }
}

/// What comes from the thread that reads.
struct Pieces(mpsc::Receiver<Result<Cursor<Vec<u8>>, HttpError>>);

impl Stream for Pieces {
    type Item = Result<Cursor<Vec<u8>>, HttpError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

fn text(headers: HashMap<HeaderName, HeaderValue>) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}

impl StreamableHttpClient for Post {
    type Error = HttpError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let mut more = text(custom_headers);
        more.push(("content-type".to_owned(), "application/json".to_owned()));
        let call = self.call("POST", &uri, session_id.as_deref(), &more);
        let body = Some(serde_json::to_vec(&message)?);
        let opened = self.open(Call { body, ..call }).await?;
        self.answered(opened).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failed> {
        let call = self.call("DELETE", &uri, Some(&session_id), &text(custom_headers));
        self.open(call).await.map(drop)
    }

    async fn get_stream(
        &self,
        _uri: Arc<str>,
        _session_id: Option<Arc<str>>,
        _last_event_id: Option<String>,
        _auth_header: Option<String>,
        _custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failed> {
        Err(StreamableHttpError::ServerDoesNotSupportSse)
    }
}
