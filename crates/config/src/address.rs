//! Addresses: where a listener binds and where a server is found.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// The port of a server that is written without one.
const DEFAULT_PORT: u16 = 3306;

/// Longest path of a Unix socket: `sun_path` holds 108 bytes with the final zero (unix(7)).
const UNIX_PATH_MAX: usize = 107;

/// Longest host name (RFC 1035, 2.3.4).
const HOST_MAX: usize = 253;

/// Where a listener accepts clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BindAddress {
    /// An address of this machine, IPv4 or IPv6. Port 0 lets the system choose a free one.
    Tcp(SocketAddr),
    /// The absolute path of a socket file.
    Unix(PathBuf),
}

impl BindAddress {
    /// What an address looks like, for error messages and the reference.
    pub(crate) const KIND: &str = "an address and port (\"127.0.0.1:6033\", \"[::1]:6033\") or \
                                   a socket's absolute path (\"/run/forebay.sock\")";

    /// Reads `ADDRESS:PORT`, `/PATH` or `unix:/PATH`. `None` for anything else; names are not looked up.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(path) = unix_path(text) {
            return path.map(Self::Unix);
        }
        text.parse().ok().map(Self::Tcp)
    }

    /// Whether two listeners cannot both have their address: the same one, or the same port where one of them
    /// takes every address of the machine. Port 0 never collides.
    pub(crate) fn collides(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unix(a), Self::Unix(b)) => a == b,
            (Self::Tcp(a), Self::Tcp(b)) => {
                let every = |x: &SocketAddr| x.ip().is_unspecified();
                let same_family = a.is_ipv4() == b.is_ipv4();
                a.port() == b.port()
                    && a.port() != 0
                    && (a.ip() == b.ip() || (same_family && (every(a) || every(b))))
            }
            _ => false,
        }
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(out),
            Self::Unix(path) => path.display().fmt(out),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ServerAddress {
    /// A host name, looked up again from time to time, or an IP address without brackets; and a port.
    Host { host: String, port: u16 },
    /// The absolute path of a socket file.
    Unix(PathBuf),
}

impl ServerAddress {
    /// What an address looks like, for error messages and the reference.
    pub(crate) const KIND: &str = "\"host\", \"host:port\", \"[IPv6]:port\" or a socket's absolute path";

    /// Reads `HOST`, `HOST:PORT`, `[IPV6]`, `[IPV6]:PORT`, `/PATH` or `unix:/PATH`; the port is 3306 where
    /// none is given. `None` for anything else, such as an IPv6 address without brackets (its port would be a
    /// guess).
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(path) = unix_path(text) {
            return path.map(Self::Unix);
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                host.parse::<Ipv6Addr>().ok()?;
                (
                    host,
                    if port.is_empty() {
                        None
                    } else {
                        Some(port.strip_prefix(':')?)
                    },
                )
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = match port {
            Some(port) => parse_port(port)?,
            None => DEFAULT_PORT,
        };
        let plain = text.starts_with('[') || is_host_name(host);
        plain.then(|| Self::Host {
            host: host.to_owned(),
            port,
        })
    }
}

impl ServerAddress {
    /// Whether both are the same place, however it is written.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Host { host, port },
                Self::Host {
                    host: other,
                    port: at,
                },
            ) => {
                let ip = |text: &str| text.parse::<IpAddr>().ok();
                let plain = |text: &str| text.trim_end_matches('.').to_ascii_lowercase();
                port == at && (ip(host).is_some() && ip(host) == ip(other) || plain(host) == plain(other))
            }
            _ => self == other,
        }
    }
}

impl fmt::Display for ServerAddress {
    /// The form in which it may be written, always with the port.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { host, port } if host.contains(':') => write!(out, "[{host}]:{port}"),
            Self::Host { host, port } => write!(out, "{host}:{port}"),
            Self::Unix(path) => path.display().fmt(out),
        }
    }
}

/// `Some` where the text is meant as a socket's path; `Some(None)` where such a path cannot be used.
fn unix_path(text: &str) -> Option<Option<PathBuf>> {
    let path = text
        .strip_prefix("unix:")
        .or_else(|| text.starts_with('/').then_some(text))?;
    let usable = Path::new(path).is_absolute() && path.len() <= UNIX_PATH_MAX && !path.contains('\0');
    Some(usable.then(|| PathBuf::from(path)))
}

/// Digits only: `u16::from_str` alone would take `+3306`.
fn parse_port(text: &str) -> Option<u16> {
    let port = text
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())??;
    (port != 0).then_some(port)
}

/// Letters, digits, `-`, `_` and `.`: also container names that are no proper DNS names. What ends like an
/// IPv4 address must be one: no name does (RFC 3696, 2), and a slip in an address would be looked up in vain
/// for ever.
fn is_host_name(host: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
    !host.is_empty()
        && host.len() <= HOST_MAX
        && host.bytes().all(allowed)
        && (!is_number || host.parse::<Ipv4Addr>().is_ok())
}

/// The next step after an address that no listener can have.
pub(crate) fn bind_hint(text: &str) -> Option<String> {
    // A port is required: where the last part can be one, it is meant as one.
    if let Some((host, port)) = text.rsplit_once(':')
        && host.parse::<Ipv6Addr>().is_ok()
        && port.parse::<u16>().is_ok()
    {
        return Some(format!("an IPv6 address goes in brackets: \"[{host}]:{port}\""));
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Some(format!(
            "an IPv6 address goes in brackets, with a port behind it: \"[{text}]:PORT\""
        ));
    }
    if let Ok(port) = text.trim_start_matches([':', '*']).parse::<u16>() {
        return Some(format!(
            "for every address of this machine write \"0.0.0.0:{port}\" or \"[::]:{port}\""
        ));
    }
    if let Some(port) = text.strip_prefix("localhost:") {
        return Some(format!(
            "names are not looked up here; write \"127.0.0.1:{port}\""
        ));
    }
    if text.parse::<IpAddr>().is_ok() {
        return Some("the port is missing".to_owned());
    }
    address_hint(text)
}

/// The next step after an address that no server can have.
pub(crate) fn server_hint(text: &str) -> Option<String> {
    if text.parse::<Ipv6Addr>().is_ok() {
        let or_with_port = text.rsplit_once(':').filter(|(host, port)| {
            host.parse::<Ipv6Addr>().is_ok() && port.parse::<u16>().is_ok_and(|port| port > 999)
        });
        let or_with_port = or_with_port.map_or_else(String::new, |(host, port)| {
            format!(", or \"[{host}]:{port}\" if its end is the port")
        });
        return Some(format!(
            "an IPv6 address goes in brackets: \"[{text}]:3306\"{or_with_port}"
        ));
    }
    if text.contains("://") {
        return Some("give the address without a scheme".to_owned());
    }
    if text.contains(',') {
        return Some("each server is an element of the list: [\"HOST\", \"HOST\"]".to_owned());
    }
    address_hint(text)
}

/// What may be wrong with the address of a listener and of a server alike.
fn address_hint(text: &str) -> Option<String> {
    if text.trim() != text {
        return Some("there is a blank before or behind it".to_owned());
    }
    if is_long_path(text) {
        return Some("the path of a socket has at most 107 bytes".to_owned());
    }
    let (host, port) = text.rsplit_once(':')?;
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let is_wrong = is_number && !matches!(port.parse::<u16>(), Ok(1..));
    (is_wrong && !host.is_empty()).then(|| "a port is a number from 1 to 65535".to_owned())
}

/// Whether the text is meant as a socket's path, and longer than any that can be used.
fn is_long_path(text: &str) -> bool {
    let path = text.strip_prefix("unix:").unwrap_or(text);
    path.starts_with('/') && path.len() > UNIX_PATH_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn host(host: &str, port: u16) -> Option<ServerAddress> {
        Some(ServerAddress::Host {
            host: host.to_owned(),
            port,
        })
    }

    #[test]
    fn servers_are_hosts_with_or_without_a_port() {
        assert_eq!(ServerAddress::parse("db1"), host("db1", 3306));
        assert_eq!(
            ServerAddress::parse("db-1.example.com:3307"),
            host("db-1.example.com", 3307)
        );
        assert_eq!(ServerAddress::parse("127.0.0.1:3306"), host("127.0.0.1", 3306));
        assert_eq!(
            ServerAddress::parse("db.example.com.:3306"),
            host("db.example.com.", 3306)
        );
        assert_eq!(ServerAddress::parse("[::1]:3307"), host("::1", 3307));
        assert_eq!(ServerAddress::parse("[fe80::2]"), host("fe80::2", 3306));
        assert_eq!(
            ServerAddress::parse("unix:/run/m.sock"),
            Some(ServerAddress::Unix("/run/m.sock".into()))
        );
    }

    #[test]
    fn one_place_may_be_written_in_several_ways() {
        let same = |a: &str, b: &str| {
            let (a, b) = (ServerAddress::parse(a).unwrap(), ServerAddress::parse(b).unwrap());
            assert_eq!(a.is_same(&b), b.is_same(&a));
            a.is_same(&b)
        };
        assert!(same("db1", "DB1.:3306") && same("[::1]", "[0:0::1]:3306"));
        assert!(same("/run/m.sock", "unix:/run/m.sock"));
        assert!(!same("db1", "db1:3307") && !same("127.0.0.1", "[::1]") && !same("db1", "/db1"));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let bad = [
            "",
            ":3306",
            "db1:",
            "db1:0",
            "db1:65536",
            "db1:+3306",
            "::1",
            "::1:3306",
            "[::1",
            "[db1]",
            "10.0.0.300",
            "10.0.1:3306",
            "127.0.0.1.:3306",
            "3306",
            "..",
            "a b",
            "unix:m",
        ];
        for text in bad {
            assert_eq!(ServerAddress::parse(text), None, "{text:?}");
        }
        assert_eq!(
            ServerAddress::parse(&format!("/{}", "x".repeat(UNIX_PATH_MAX))),
            None
        );
        for text in [
            "6033",
            "localhost:6033",
            "127.0.0.1",
            "relative/path",
            "unix:relative",
        ] {
            assert_eq!(BindAddress::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_wildcard_collides_with_every_address_of_its_family() {
        let collides = |a: &str, b: &str| {
            let (a, b) = (BindAddress::parse(a).unwrap(), BindAddress::parse(b).unwrap());
            assert_eq!(a.collides(&b), b.collides(&a));
            a.collides(&b)
        };
        assert!(collides("127.0.0.1:6033", "127.0.0.1:6033"));
        assert!(collides("0.0.0.0:6033", "127.0.0.1:6033"));
        assert!(collides("/run/a.sock", "unix:/run/a.sock"));
        assert!(!collides("127.0.0.1:0", "127.0.0.1:0"));
        assert!(!collides("127.0.0.1:6033", "127.0.0.2:6033"));
        assert!(!collides("0.0.0.0:6033", "[::1]:6033"));
    }

    proptest! {
        #[test]
        fn an_address_shown_is_read_back(text in "[a-z0-9.:/\\[\\]]{0,20}|[a-z]{1,9}:[0-9]{1,5}|/[a-z/]{1,20}") {
            if let Some(address) = ServerAddress::parse(&text) {
                prop_assert_eq!(ServerAddress::parse(&address.to_string()), Some(address));
            }
            if let Some(address) = BindAddress::parse(&text) {
                prop_assert_eq!(BindAddress::parse(&address.to_string()), Some(address));
            }
        }

        #[test]
        fn any_text_is_answered(text in ".*") {
            let _ = (ServerAddress::parse(&text), BindAddress::parse(&text));
        }
    }
}
