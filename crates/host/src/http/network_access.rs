//! The hosts and addresses that requests may reach, and the connections to them.
//!
//! Owns the rule that an address which is not known to be public counts as private, and the sockets of requests, which
//! another thread can close while a request waits. Does not know the content of a connection; encryption is put on top.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use ureq::{
    Error,
    http::{Uri, uri::Scheme},
    unversioned::transport::{Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport},
};

use crate::{cancel_token::CancelToken, http::HttpError};

/// The hosts that requests may reach. The default is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkAccess {
    /// The permitted host names. `*.example.org` permits all subdomains, and `*` all hosts.
    pub hosts: Vec<String>,
    #[serde(default)]
    pub private: PrivateAccess,
}

/// The private addresses of this machine and this network that may be reached, also without encryption.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PrivateAccess {
    #[default]
    None,
    /// Hosts, or hosts with ports, as they are written in URLs.
    Only(Vec<String>),
    All,
}

impl From<bool> for PrivateAccess {
    fn from(all: bool) -> PrivateAccess {
        if all { PrivateAccess::All } else { PrivateAccess::None }
    }
}

impl PrivateAccess {
    pub(crate) fn allows_uri(&self, uri: &Uri) -> bool {
        let granted = |one: &String| {
            let named = |host: &str| one.eq_ignore_ascii_case(host);
            let host = uri.host().unwrap_or_default();
            let port = uri.port_u16().or_else(|| default_port(uri)).unwrap_or_default();
            !host.is_empty() && (named(host) || named(&format!("{host}:{port}")))
        };
        match self {
            PrivateAccess::None => false,
            PrivateAccess::Only(places) => places.iter().any(granted),
            PrivateAccess::All => true,
        }
    }
}

fn default_port(uri: &Uri) -> Option<u16> {
    let scheme = uri.scheme()?;
    if *scheme == Scheme::HTTPS { Some(443) } else { Some(80) }
}

/// The origin of a URL: scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UrlOrigin {
    scheme: String,
    host: String,
    port: u16,
}

impl UrlOrigin {
    pub(super) fn from_uri(uri: &Uri) -> Option<UrlOrigin> {
        // A user name and a password in a URL would be sent along.
        let plain = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        let host = uri.host().filter(|host| plain && !host.is_empty())?.to_ascii_lowercase();
        let port = uri.port_u16().or_else(|| default_port(uri))?;
        Some(UrlOrigin { scheme: uri.scheme_str()?.to_ascii_lowercase(), host, port })
    }
}

impl fmt::Display for UrlOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.scheme, self.host, self.port)
    }
}

impl NetworkAccess {
    /// Permits any host, and private addresses if `private` is true.
    pub(crate) fn any_host(private: bool) -> NetworkAccess {
        NetworkAccess { hosts: vec!["*".to_owned()], private: private.into() }
    }

    pub(crate) fn has_no_hosts(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Checks that a URI may be requested.
    pub(crate) fn check_uri(&self, uri: &Uri) -> Result<(), HttpError> {
        UrlOrigin::from_uri(uri).ok_or(HttpError::NotAUrl)?;
        let host = uri.host().ok_or(HttpError::NotAUrl)?;
        if !self.hosts.iter().any(|one| host_matches(one, host)) {
            return Err(HttpError::Host);
        }
        match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => Ok(()),
            Some(scheme) if *scheme == Scheme::HTTP && self.private.allows_uri(uri) => Ok(()),
            Some(scheme) if *scheme == Scheme::HTTP => Err(HttpError::Plain),
            _ => Err(HttpError::NotAUrl),
        }
    }

    /// Checks that a URL may be requested, before anything is sent.
    pub fn check_url(&self, url: &str) -> Result<(), HttpError> {
        self.check_uri(&url.parse().map_err(|_| HttpError::NotAUrl)?)
    }
}

/// True if an entry of the list matches a host.
fn host_matches(one: &str, host: &str) -> bool {
    match one.strip_prefix('*') {
        Some("") => true,
        Some(below) => {
            let (host, below) = (host.to_ascii_lowercase(), below.to_ascii_lowercase());
            below.starts_with('.') && host.len() > below.len() && host.ends_with(&below)
        }
        None => one.eq_ignore_ascii_case(host),
    }
}

pub(super) fn is_public(address: IpAddr) -> bool {
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
        // An IPv4 address inside of an IPv6 address.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_public_v4(inner(high, low)),
        [0x2002, high, low, ..] => is_public_v4(inner(high, low)),
        // Tunnels and documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, ..] => false,
        // All globally assigned addresses start with these bits.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

/// Opens connections that are closed when a token is cancelled.
#[derive(Debug)]
pub(super) struct CancellableConnector {
    pub stop: Option<Arc<CancelToken>>,
}

impl Connector<()> for CancellableConnector {
    type Out = CancellableSocket;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<CancellableSocket>, Error> {
        let begun = Instant::now();
        let whole = details.timeout.not_zero().map(|time| *time);
        let mut last = Error::HostNotFound;
        for (tried, address) in details.addrs.iter().enumerate() {
            // The remaining time is divided equally among the remaining addresses.
            let left = whole.map(|whole| whole.saturating_sub(begun.elapsed()));
            let shares = u32::try_from(details.addrs.len() - tried).unwrap_or(1);
            let time = left.map(|left| (left / shares).max(Duration::from_millis(10)));
            let opened = match time {
                Some(time) => TcpStream::connect_timeout(address, time),
                None => TcpStream::connect(address),
            };
            match opened {
                Ok(stream) => return self.wrap_stream(stream, details).map(Some),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    last = Error::Timeout(details.timeout.reason);
                }
                Err(error) => last = Error::Io(error),
            }
        }
        Err(last)
    }
}

impl CancellableConnector {
    fn wrap_stream(&self, stream: TcpStream, details: &ConnectionDetails<'_>) -> Result<CancellableSocket, Error> {
        stream.set_nodelay(true)?;
        let stream = Arc::new(stream);
        if let Some(stop) = &self.stop {
            let known = Arc::downgrade(&stream);
            stop.call_on_cancel(move || {
                // A closed connection needs no shutdown.
                let _ = known.upgrade().map(|stream| stream.shutdown(Shutdown::Both));
            });
        }
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(CancellableSocket { stream, buffers })
    }
}

pub(super) struct CancellableSocket {
    stream: Arc<TcpStream>,
    buffers: LazyBuffers,
}

impl std::fmt::Debug for CancellableSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CancellableSocket").field("stream", &self.stream).finish_non_exhaustive()
    }
}

fn classify_io_error(error: io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => Error::Io(error),
    }
}

impl Transport for CancellableSocket {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.set_write_timeout(timeout.not_zero().map(|time| *time))?;
        let output = &self.buffers.output()[..amount];
        (&*self.stream).write_all(output).map_err(|error| classify_io_error(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.set_read_timeout(timeout.not_zero().map(|time| *time))?;
        let amount =
            (&*self.stream).read(self.buffers.input_append_buf()).map_err(|error| classify_io_error(error, timeout))?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        // Input without a request means that the connection is at its end.
        let mut one = [0];
        let quiet = self.stream.set_nonblocking(true).is_ok()
            && matches!(self.stream.peek(&mut one), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        quiet && self.stream.set_nonblocking(false).is_ok()
    }
}

#[cfg(test)]
mod address_tests {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: &[&str]) -> NetworkAccess {
        let hosts = names.iter().map(ToString::to_string).collect();
        NetworkAccess { hosts, private: PrivateAccess::Only(vec!["127.0.0.1:81".into(), "depot.lan".into()]) }
    }

    #[test]
    fn what_may_not_be_asked_is_refused() {
        let said = |reach: &NetworkAccess, url: &str| reach.check_url(url).err().map(|error| error.to_string());
        let open = NetworkAccess::any_host(false);
        assert!(said(&open, "http://example.org/").unwrap().contains("not encrypted"));
        for wrong in ["ftp://example.org/", "nonsense", "https://", "https://a:b@example.org/", "/x"] {
            assert!(said(&open, wrong).unwrap().contains("not a URL"), "{wrong}");
        }
        let some = hosts(&["example.org", "*.example.net"]);
        assert_eq!(said(&some, "https://EXAMPLE.org/"), None);
        assert_eq!(said(&some, "https://a.b.example.net/"), None);
        for other in
            ["https://example.com/", "https://example.net/", "https://badexample.net/", "https://example.org.evil/"]
        {
            assert!(said(&some, other).unwrap().contains("not allowed"), "{other}");
        }
    }

    #[test]
    fn private_places_are_granted_one_by_one() {
        let reach = hosts(&["*"]);
        for (url, granted) in [
            ("http://127.0.0.1:81/", true),
            ("http://127.0.0.1:82/", false),
            ("http://127.0.0.1/", false),
            ("http://depot.lan/", true),
            ("http://depot.lan:9000/", true),
            ("http://evil.depot.lan/", false),
        ] {
            assert_eq!(reach.check_url(url).is_ok(), granted, "{url}");
        }
    }
}
