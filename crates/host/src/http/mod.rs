//! The HTTP client: sends a request and reads the answer within limits. All HTTP traffic goes through it.
//!
//! Owns what may be reached: the hosts that the caller names, at addresses of the public internet unless private ones
//! are granted. An answer is read up to a limit. A request has a timeout and can be cancelled. A redirect is followed
//! only within the same origin, and proxies from the environment are not used. Does not know what is sent and why.

mod network_access;

use std::{
    io::{self, Read},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use ureq::{
    Agent, Body,
    config::Config,
    http::{Request, Response, Uri},
    unversioned::{
        resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver},
        transport::{Connector, NextTimeout, RustlsConnector},
    },
};

use self::network_access::{CancellableConnector, UrlOrigin, is_public};
use crate::cancel_token::CancelToken;

pub use self::network_access::{NetworkAccess, PrivateAccess};

/// The maximum delay after a request's timeout before its caller gives up.
const LATE: Duration = Duration::from_secs(5);
#[derive(Clone)]
pub struct HttpRequest {
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Option<Vec<u8>>,
    /// The timeout of the whole request.
    pub time: Duration,
    /// The maximum number of bytes of the answer.
    pub most: u64,
    /// The maximum number of redirects within the same origin. With 0, a redirect is returned as the answer.
    pub redirects: u8,
}

impl std::fmt::Debug for HttpRequest {
    /// Omits the fields that may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpRequest").field("method", &self.method).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    pub status: u16,
    /// Names are in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl HttpResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        find_header(&self.headers, name)
    }
}

fn find_header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// A response whose body has not been read yet.
#[derive(Debug)]
pub struct StreamingResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    body: Body,
    limit: (Duration, u64),
}

impl StreamingResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        find_header(&self.headers, name)
    }

    /// Reads the body in chunks, each as soon as it arrives, until `each` returns false.
    pub(crate) fn read_chunks(self, mut each: impl FnMut(&[u8]) -> bool) -> Result<(), HttpError> {
        let limit = self.limit;
        let mut reader = self.body.into_with_config().limit(limit.1).reader();
        let mut buffer = vec![0; 16 * 1024];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(amount) if each(&buffer[..amount]) => {}
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(classify_error(ureq::Error::from(error), limit)),
            }
        }
    }

    pub(crate) fn read_whole(self) -> Result<HttpResponse, HttpError> {
        let (limit, body) = (self.limit, self.body);
        let body = body.into_with_config().limit(limit.1).read_to_vec();
        let body = body.map_err(|error| classify_error(error, limit))?;
        Ok(HttpResponse { status: self.status, headers: self.headers, body })
    }
}

/// The reason why there is no answer. Never contains the address, which may be a secret.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("its address is not a URL that begins with `https://`")]
    NotAUrl,
    #[error("its address is not encrypted; use `https://`, or grant `private` addresses")]
    Plain,
    #[error("its host is not allowed")]
    Host,
    #[error("its host has only private addresses, which are not granted")]
    Private,
    #[error("its host is not found")]
    Unknown,
    #[error("it took longer than {} s", .0.as_secs_f32())]
    Time(Duration),
    #[error("its answer is longer than {0} bytes")]
    Long(u64),
    #[error("it redirects to another origin, which is not followed")]
    Elsewhere,
    #[error("it redirects more than {0} times")]
    Redirects(u8),
    #[error("it was cancelled")]
    Stopped,
    #[error("it cannot be reached: {0}")]
    Failed(String),
}

impl HttpError {
    /// True if the same request may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, HttpError::Unknown | HttpError::Time(_) | HttpError::Failed(_))
    }
}

/// Sends a request and reads the answer. Any status is an answer.
pub fn send_request(reach: &NetworkAccess, call: &HttpRequest) -> Result<HttpResponse, HttpError> {
    HttpClient::new(reach.clone(), None).open_response(call)?.read_whole()
}

/// Sends a request that can be cancelled, also while it resolves a name or waits for the server.
pub(crate) fn send_cancellable(
    reach: &NetworkAccess,
    call: &HttpRequest,
    stop: &Arc<CancelToken>,
) -> Result<HttpResponse, HttpError> {
    let (tell, told) = mpsc::channel();
    let other = tell.clone();
    stop.call_on_cancel(move || {
        let _ = other.send(Err(HttpError::Stopped));
    });
    let (client, call, time) = (HttpClient::new(reach.clone(), Some(Arc::clone(stop))), call.clone(), call.time);
    // If the caller has gone, nobody receives the answer; the thread ends with its connection or by its timeout.
    let body = move || drop(tell.send(client.open_response(&call).and_then(StreamingResponse::read_whole)));
    let begun = thread::Builder::new().name("request".to_owned()).spawn(body);
    begun.map_err(|error| HttpError::Failed(error.to_string()))?;
    // The request has its own timeout; the caller does not wait much longer for one that misses it.
    told.recv_timeout(time.saturating_add(LATE)).unwrap_or(Err(HttpError::Time(time)))
}

/// A client for several requests, perhaps over one connection.
#[derive(Debug, Clone)]
pub struct HttpClient {
    reach: NetworkAccess,
    agent: Agent,
}

impl HttpClient {
    pub fn new(reach: NetworkAccess, stop: Option<Arc<CancelToken>>) -> HttpClient {
        let config = Agent::config_builder()
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .proxy(None)
            .user_agent(concat!("skein/", env!("CARGO_PKG_VERSION")))
            .build();
        let resolver = GuardedResolver { private: reach.private.clone(), inner: DefaultResolver::default() };
        let connector = CancellableConnector { stop }.chain(RustlsConnector::default());
        HttpClient { reach, agent: Agent::with_parts(config, connector, resolver) }
    }

    /// Sends a request, and follows redirects within the same origin.
    pub(crate) fn open_response(&self, call: &HttpRequest) -> Result<StreamingResponse, HttpError> {
        let until = Instant::now() + call.time;
        let mut uri: Uri = call.url.parse().map_err(|_| HttpError::NotAUrl)?;
        for _ in 0..=call.redirects {
            self.reach.check_uri(&uri)?;
            let answer = self.send_once(&uri, call, until)?;
            match redirect_target(&uri, call, &answer)? {
                Some(next) => uri = next,
                None => return Ok(answer),
            }
        }
        Err(HttpError::Redirects(call.redirects))
    }

    fn send_once(&self, uri: &Uri, call: &HttpRequest, until: Instant) -> Result<StreamingResponse, HttpError> {
        let limit = (call.time, call.most);
        let mut request = Request::builder().method(call.method.as_str()).uri(uri.clone());
        for (name, value) in &call.headers {
            request = request.header(name, value);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(HttpError::Time(call.time));
        }
        let failed = |error: ureq::http::Error| HttpError::Failed(error.to_string());
        let answer = match &call.body {
            Some(body) => self.run_request(request.body(body.as_slice()).map_err(failed)?, left),
            None => self.run_request(request.body(()).map_err(failed)?, left),
        };
        let answer = answer.map_err(|error| classify_error(error, limit))?;
        let text = |value: &ureq::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = answer.headers().iter().map(|(name, value)| (name.to_string(), text(value)));
        let (status, headers) = (answer.status().as_u16(), headers.collect());
        Ok(StreamingResponse { status, headers, body: answer.into_body(), limit })
    }

    fn run_request(
        &self,
        request: Request<impl ureq::AsSendBody>,
        left: Duration,
    ) -> Result<Response<Body>, ureq::Error> {
        let configured = self.agent.configure_request(request).timeout_global(Some(left)).build();
        self.agent.run(configured)
    }
}

/// Returns the target of a redirect that may be followed.
fn redirect_target(uri: &Uri, call: &HttpRequest, answer: &StreamingResponse) -> Result<Option<Uri>, HttpError> {
    let follows = match answer.status {
        // These statuses may change the method, so they are followed only for reads.
        301..=303 => matches!(call.method.as_str(), "GET" | "HEAD"),
        307 | 308 => true,
        _ => false,
    };
    let Some(to) = answer.header("location").filter(|_| follows && call.redirects > 0) else {
        return Ok(None);
    };
    let here = UrlOrigin::from_uri(uri).ok_or(HttpError::NotAUrl)?;
    let whole = match to.starts_with('/') && !to.starts_with("//") {
        true => format!("{here}{to}"),
        false => to.to_owned(),
    };
    let next: Uri = whole.parse().map_err(|_| HttpError::Elsewhere)?;
    match UrlOrigin::from_uri(&next) == Some(here) {
        true => Ok(Some(next)),
        false => Err(HttpError::Elsewhere),
    }
}

fn classify_error(error: ureq::Error, (time, most): (Duration, u64)) -> HttpError {
    match error {
        ureq::Error::Timeout(_) => HttpError::Time(time),
        ureq::Error::HostNotFound => HttpError::Unknown,
        ureq::Error::BodyExceedsLimit(_) => HttpError::Long(most),
        ureq::Error::BadUri(_) => HttpError::NotAUrl,
        ureq::Error::Io(error) => match error.get_ref() {
            Some(inner) if inner.is::<OnlyPrivateAddresses>() => HttpError::Private,
            Some(inner) if matches!(inner.downcast_ref(), Some(ureq::Error::BodyExceedsLimit(_))) => {
                HttpError::Long(most)
            }
            _ if error.kind() == io::ErrorKind::TimedOut => HttpError::Time(time),
            _ => HttpError::Failed(error.to_string()),
        },
        other => HttpError::Failed(other.to_string()),
    }
}

/// Resolves names and skips addresses that are not permitted. The connection uses the addresses that were checked.
#[derive(Debug)]
struct GuardedResolver {
    private: PrivateAccess,
    inner: DefaultResolver,
}

#[derive(Debug, thiserror::Error)]
#[error("only private addresses")]
struct OnlyPrivateAddresses;

impl Resolver for GuardedResolver {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.inner.resolve(uri, config, timeout)?;
        if self.private.allows_uri(uri) {
            return Ok(found);
        }
        let mut public = self.empty();
        found.iter().filter(|address| is_public(address.ip())).for_each(|address| public.push(*address));
        match public.is_empty() {
            true => Err(ureq::Error::Io(io::Error::other(OnlyPrivateAddresses))),
            false => Ok(public),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(url: &str) -> HttpRequest {
        HttpRequest {
            method: "GET".to_owned(),
            url: url.to_owned(),
            headers: Vec::new(),
            body: None,
            time: Duration::from_secs(5),
            most: 10,
            redirects: 1,
        }
    }

    #[test]
    fn private_addresses_are_refused_before_anything_is_sent() {
        for url in ["https://127.0.0.1:1/", "https://[::1]:1/", "https://localhost:1/", "https://2130706433:1/"] {
            let error = send_request(&NetworkAccess::any_host(false), &call(url)).expect_err(url).to_string();
            assert!(error.contains("private addresses") || error.contains("not found"), "{url}: {error}");
        }
    }

    #[test]
    fn a_redirect_leads_only_within_its_place() {
        let to = |from: &str, method: &str, status: u16, location: &str| {
            let body = Body::builder().data("");
            let headers = vec![("location".to_owned(), location.to_owned())];
            let answer = StreamingResponse { status, headers, body, limit: (Duration::ZERO, 0) };
            let call = HttpRequest { method: method.to_owned(), ..call(from) };
            redirect_target(&from.parse().unwrap(), &call, &answer).map(|uri| uri.map(|uri| uri.to_string()))
        };
        let here = "https://example.org/a";
        assert_eq!(to(here, "GET", 302, "/b").unwrap().as_deref(), Some("https://example.org:443/b"));
        assert_eq!(
            to(here, "GET", 301, "https://EXAMPLE.org:443/b").unwrap().as_deref(),
            Some("https://EXAMPLE.org:443/b")
        );
        assert_eq!(to(here, "POST", 308, "/b").unwrap().as_deref(), Some("https://example.org:443/b"));
        assert_eq!(to(here, "POST", 302, "/b").unwrap(), None, "it would not be the same request");
        assert_eq!(to(here, "GET", 200, "/b").unwrap(), None);
        for elsewhere in [
            "//evil.org/b",
            "https://evil.org/",
            "http://example.org/a",
            "https://example.org:8443/a",
            "https://a:b@example.org/",
            "b",
            "",
        ] {
            assert!(to(here, "GET", 302, elsewhere).is_err(), "{elsewhere}");
        }
    }

    #[test]
    fn what_is_called_off_before_is_not_sent() {
        let stop = Arc::new(CancelToken::default());
        stop.cancel();
        let error = send_cancellable(&NetworkAccess::any_host(true), &call("http://127.0.0.1:1/"), &stop).unwrap_err();
        assert!(matches!(error, HttpError::Stopped | HttpError::Failed(_)), "{error}");
    }
}
