//! The one way out to the network over HTTP: a request is sent, and an answer comes back within limits.
//!
//! Owns what may be reached: the hosts that the caller names, at addresses of the public internet unless private ones are
//! granted. An answer is read up to a limit, the whole takes no longer than it may, redirects are not followed, and no
//! proxy of the environment is asked. Refuses to know what is sent and why.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use ureq::{
    Agent, Body,
    config::Config,
    http::{Request, Response, Uri, uri::Scheme},
    unversioned::{
        resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver},
        transport::{DefaultConnector, NextTimeout},
    },
};

/// What a request may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// The hosts that may be asked, by their names. None: any.
    pub hosts: Option<Vec<String>>,
    /// Whether addresses within this machine and this network may be asked, and without encryption.
    pub private: bool,
}

/// A request that is sent once.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    pub url: &'a str,
    pub headers: &'a [(&'a str, String)],
    pub body: &'a [u8],
    /// How long all of it may take.
    pub time: Duration,
    /// How much of the answer is read.
    pub most: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

/// Why there is no answer. Never holds the address, which may be a secret.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("its address is not a URL that begins with `https://`")]
    NotAUrl,
    #[error("its address is not encrypted; use `https://`, or grant `private` addresses")]
    Plain,
    #[error("its host may not be asked")]
    Host,
    #[error("its host has only private addresses, which are not granted")]
    Private,
    #[error("its host is not found")]
    Unknown,
    #[error("it took longer than {0} s")]
    Time(u64),
    #[error("its answer is longer than {0} bytes")]
    Long(u64),
    #[error("it cannot be reached: {0}")]
    Failed(String),
}

impl HttpError {
    /// Whether the same request may do better later.
    pub fn may_pass(&self) -> bool {
        matches!(self, HttpError::Unknown | HttpError::Time(_) | HttpError::Failed(_))
    }
}

/// Sends a request with a body, and reads what is answered. Any status is an answer, a redirect too.
pub fn post(reach: &Reach, call: &Call<'_>) -> Result<Answer, HttpError> {
    let uri: Uri = call.url.parse().map_err(|_| HttpError::NotAUrl)?;
    check(reach, &uri)?;
    let mut request = Request::post(uri);
    for (name, value) in call.headers {
        request = request.header(*name, value);
    }
    let request = request.body(call.body).map_err(|_| HttpError::NotAUrl)?;
    let config = Agent::config_builder()
        .timeout_global(Some(call.time))
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .proxy(None)
        .user_agent(concat!("skein/", env!("CARGO_PKG_VERSION")))
        .build();
    let resolver = Guarded { private: reach.private, inner: DefaultResolver::default() };
    let agent = Agent::with_parts(config, DefaultConnector::default(), resolver);
    let answer = agent.run(request).map_err(|error| wrong(error, call))?;
    read(answer, call)
}

fn read(answer: Response<Body>, call: &Call<'_>) -> Result<Answer, HttpError> {
    let status = answer.status().as_u16();
    let body = answer.into_body().into_with_config().limit(call.most).read_to_vec();
    Ok(Answer { status, body: body.map_err(|error| wrong(error, call))? })
}

/// Whether the address itself is one that may be asked.
fn check(reach: &Reach, uri: &Uri) -> Result<(), HttpError> {
    let host = uri.host().filter(|host| !host.is_empty()).ok_or(HttpError::NotAUrl)?;
    match uri.scheme() {
        Some(scheme) if *scheme == Scheme::HTTPS => {}
        Some(scheme) if *scheme == Scheme::HTTP && reach.private => {}
        Some(scheme) if *scheme == Scheme::HTTP => return Err(HttpError::Plain),
        _ => return Err(HttpError::NotAUrl),
    }
    let named = |hosts: &Vec<String>| hosts.iter().any(|one| one.eq_ignore_ascii_case(host));
    match &reach.hosts {
        Some(hosts) if !named(hosts) => Err(HttpError::Host),
        _ => Ok(()),
    }
}

fn wrong(error: ureq::Error, call: &Call<'_>) -> HttpError {
    match error {
        ureq::Error::Timeout(_) => HttpError::Time(call.time.as_secs()),
        ureq::Error::HostNotFound => HttpError::Unknown,
        ureq::Error::BodyExceedsLimit(_) => HttpError::Long(call.most),
        ureq::Error::BadUri(_) => HttpError::NotAUrl,
        ureq::Error::Io(error) if error.get_ref().is_some_and(|inner| inner.is::<OnlyPrivate>()) => {
            HttpError::Private
        }
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
            HttpError::Time(call.time.as_secs())
        }
        other => HttpError::Failed(other.to_string()),
    }
}

/// Looks names up, and passes over the addresses that may not be asked. What is connected to is what was looked at.
#[derive(Debug)]
struct Guarded {
    private: bool,
    inner: DefaultResolver,
}

#[derive(Debug, thiserror::Error)]
#[error("only private addresses")]
struct OnlyPrivate;

impl Resolver for Guarded {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.inner.resolve(uri, config, timeout)?;
        if self.private {
            return Ok(found);
        }
        let mut public = self.empty();
        found.iter().filter(|address| is_public(address.ip())).for_each(|address| public.push(*address));
        match public.is_empty() {
            true => Err(ureq::Error::Io(io::Error::other(OnlyPrivate))),
            false => Ok(public),
        }
    }
}

/// Whether an address is one of the public internet. What is not known to be one is none.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    let reserved = match (a, b, c) {
        (0 | 10 | 127 | 240.., ..) => true,
        // Shared by providers, link-local, private, for benchmarks.
        (100, 64..=127, _) | (169, 254, _) | (172, 16..=31, _) | (192, 168, _) | (198, 18 | 19, _) => true,
        // Assigned to protocols, for documentation, an old relay.
        (192, 0, 0 | 2) | (198, 51, 100) | (203, 0, 113) | (192, 88, 99) => true,
        _ => false,
    };
    !reserved && !v4.is_multicast()
}

fn is_public_v6(v6: Ipv6Addr) -> bool {
    let parts = v6.segments();
    let inner = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match parts {
        // An address of the other family within one of this.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            is_public_v4(inner(high, low))
        }
        [0x2002, high, low, ..] => is_public_v4(inner(high, low)),
        // Tunnels and documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, ..] => false,
        // All that is given out to the public begins like this.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_public_internet_are_public() {
        let public = ["1.1.1.1", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8"];
        let private = [
            "127.0.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "64:ff9b::10.0.0.1",
            "2002:7f00:1::",
            "2001:db8::1",
        ];
        let is = |text: &str| is_public(text.parse().expect("an address"));
        for one in public {
            assert!(is(one), "{one}");
        }
        for one in private {
            assert!(!is(one), "{one}");
        }
    }

    #[test]
    fn what_may_not_be_asked_is_refused_before_anything_is_sent() {
        let ask = |url: &str, reach: Reach| {
            let call = Call { url, headers: &[], body: b"", time: Duration::from_secs(5), most: 10 };
            post(&reach, &call).expect_err(url).to_string()
        };
        let open = Reach::default();
        assert!(ask("http://example.org/", open.clone()).contains("not encrypted"));
        assert!(ask("ftp://example.org/", open.clone()).contains("not a URL"));
        assert!(ask("nonsense", open.clone()).contains("not a URL"));
        assert!(ask("https://127.0.0.1:1/", open.clone()).contains("private addresses"));
        assert!(ask("https://[::1]:1/", open).contains("private addresses"));
        let some = Reach { hosts: Some(vec!["example.org".into()]), private: true };
        assert!(ask("https://example.com/", some).contains("may not be asked"));
    }
}
