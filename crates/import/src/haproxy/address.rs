//! Addresses as HAProxy writes them.

use std::net::IpAddr;

use config::{BindAddress, ServerAddress};

/// Ports of one `bind`, at most: each becomes a listener.
const PORTS_MAX: u16 = 64;

/// An address without what says its family, which shows in the address itself; or why it is none of ours.
fn plain(text: &str) -> Result<&str, String> {
    let Some((family, rest)) = text.split_once('@') else {
        return Ok(text);
    };
    match family {
        "ipv4" | "ipv6" | "tcp" | "tcp4" | "tcp6" | "unix" | "uxst" => Ok(rest),
        _ => Err(format!(
            "`{family}@`: no equal, neither TCP nor the path of a socket"
        )),
    }
}

/// What is in front of the last colon, and the port behind it.
fn halves(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        // `[::1]` has no port.
        Some((_, port)) if port.ends_with(']') => (text, None),
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    }
}

/// In brackets, if it is an IPv6 address.
fn bracketed(host: &str) -> String {
    match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    }
}

/// The values of `bind` for one address of a `bind` line.
pub(super) fn binds(text: &str) -> Result<Vec<String>, String> {
    let is_v6 = text.starts_with("ipv6@") || text.starts_with("tcp6@");
    let text = plain(text)?;
    if text.starts_with('/') {
        return Ok(vec![text.to_owned()]);
    }
    let (host, Some(ports)) = halves(text) else {
        return Err("no port".to_owned());
    };
    let host = match host {
        "" | "*" if is_v6 => "[::]".to_owned(),
        "" | "*" => "0.0.0.0".to_owned(),
        "localhost" => "127.0.0.1".to_owned(),
        host => bracketed(host),
    };
    if host.trim_matches(['[', ']']).parse::<IpAddr>().is_err() {
        return Err(format!(
            "write the address of {host} in `bind`: names are not looked up there"
        ));
    }
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let (Ok(first), Ok(last)) = (first.parse::<u16>(), last.parse::<u16>()) else {
        return Err("no port from 1 to 65535".to_owned());
    };
    if first == 0 || last < first || last - first >= PORTS_MAX {
        return Err(format!("no port, or a range of more than {PORTS_MAX}"));
    }
    let binds = (first..=last).map(|port| format!("{host}:{port}"));
    let binds: Vec<String> = binds.collect();
    match binds.iter().all(|bind| BindAddress::parse(bind).is_some()) {
        true => Ok(binds),
        false => Err("no address".to_owned()),
    }
}

/// The address of a server. `port` is where clients connect: HAProxy goes to the same one where none is
/// written.
pub(super) fn server(text: &str, port: Option<u16>) -> Result<String, String> {
    let text = plain(text)?;
    if text.starts_with('/') {
        return Ok(text.to_owned());
    }
    let (host, written) = halves(text);
    if host.is_empty() || host == "*" || host == "0.0.0.0" {
        return Err("no equal: where the client wanted to go is not known".to_owned());
    }
    if written.is_some_and(|port| port.starts_with(['+', '-'])) {
        return Err("no equal: a port that follows the client's".to_owned());
    }
    let address = match (written, port) {
        (Some(port), _) => format!("{}:{port}", bracketed(host)),
        (None, Some(port)) => format!("{}:{port}", bracketed(host)),
        (None, None) => bracketed(host),
    };
    match ServerAddress::parse(&address) {
        Some(_) => Ok(address),
        None => Err("no address of a server".to_owned()),
    }
}

/// Whether an address of a server says all of where it is. Without a port HAProxy takes the clients'.
pub(super) fn has_port(text: &str) -> bool {
    plain(text).is_ok_and(|text| text.starts_with('/') || halves(text).1.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_listeners() {
        let one = |text: &str| binds(text).map(|binds| binds.join(" ")).unwrap_or_else(|why| why);
        for (text, expected) in [
            (":3306", "0.0.0.0:3306"),
            ("*:3306", "0.0.0.0:3306"),
            ("10.0.0.1:3306-3308", "10.0.0.1:3306 10.0.0.1:3307 10.0.0.1:3308"),
            (":::3306", "[::]:3306"),
            ("[::1]:3306", "[::1]:3306"),
            ("ipv6@:3306", "[::]:3306"),
            ("ipv4@10.0.0.1:3306", "10.0.0.1:3306"),
            ("/run/a.sock", "/run/a.sock"),
            ("unix@/run/a.sock", "/run/a.sock"),
            ("localhost:3306", "127.0.0.1:3306"),
            (
                "gw:3306",
                "write the address of gw in `bind`: names are not looked up there",
            ),
            (
                "abns@x",
                "`abns@`: no equal, neither TCP nor the path of a socket",
            ),
            ("10.0.0.1", "no port"),
            (":1-65535", "no port, or a range of more than 64"),
            (":0", "no port, or a range of more than 64"),
        ] {
            assert_eq!(one(text), expected, "{text}");
        }
    }

    #[test]
    fn of_servers() {
        let one = |text: &str| server(text, Some(3307)).unwrap_or_else(|why| why);
        for (text, expected) in [
            ("db1:3306", "db1:3306"),
            ("10.0.0.1", "10.0.0.1:3307"),
            ("fd00::1:3306", "[fd00::1]:3306"),
            ("[fd00::1]", "[fd00::1]:3307"),
            ("/run/mysqld.sock", "/run/mysqld.sock"),
            (":3306", "no equal: where the client wanted to go is not known"),
            ("db1:+1000", "no equal: a port that follows the client's"),
            ("db 1:3306", "no address of a server"),
        ] {
            assert_eq!(one(text), expected, "{text}");
        }
        assert_eq!(server("db1", None).unwrap(), "db1");
    }
}
