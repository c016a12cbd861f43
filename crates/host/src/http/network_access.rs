//! The hosts that requests may reach.

use std::fmt;

use serde::{Deserialize, Serialize};
use ureq::http::{Uri, uri::Scheme};

use super::HttpError;

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
    pub fn allows_uri(&self, uri: &Uri) -> bool {
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
    pub fn any_host(private: bool) -> NetworkAccess {
        NetworkAccess { hosts: vec!["*".to_owned()], private: private.into() }
    }

    pub fn has_no_hosts(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Checks that a URI may be requested.
    pub fn check_uri(&self, uri: &Uri) -> Result<(), HttpError> {
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
