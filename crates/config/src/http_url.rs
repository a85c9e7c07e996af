//! Where figures are found: a URL without encryption.

use std::fmt;

use crate::address::ServerAddress;

/// `http://HOST:PORT/PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl {
    /// A host name, or an IP address without brackets.
    pub host: String,
    pub port: u16,
    /// With the first slash, and the query if there is one.
    pub path: String,
}

impl HttpUrl {
    /// What a URL looks like, for error messages and the reference.
    pub(crate) const KIND: &str = "a URL (\"http://db1:9100/metrics\")";

    /// Reads `http://HOST:PORT` with or without a path; without one it is `/metrics`. `None` for anything
    /// else.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("http://")?;
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/metrics"),
        };
        let has_port = authority
            .rsplit_once(':')
            .is_some_and(|(host, _)| !host.is_empty());
        let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        if !has_port || !is_plain || authority.starts_with('/') || authority.ends_with(']') {
            return None;
        }
        match ServerAddress::parse(authority)? {
            ServerAddress::Host { host, port } => Some(Self {
                host,
                port,
                path: path.to_owned(),
            }),
            ServerAddress::Unix(_) => None,
        }
    }

    pub(crate) fn hint(text: &str) -> Option<String> {
        text.starts_with("https://")
            .then(|| "figures are asked for without encryption: write http://".to_owned())
    }

    pub(crate) fn example() -> Self {
        Self {
            host: String::new(),
            port: 0,
            path: String::new(),
        }
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port) = (self.host.clone(), self.port);
        write!(out, "http://{}{}", ServerAddress::Host { host, port }, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_whole_or_not_at_all() {
        for (text, shown) in [
            ("http://db1:9100", "http://db1:9100/metrics"),
            ("http://db1:9100/", "http://db1:9100/"),
            ("http://[fd00::1]:9100/a?b=c", "http://[fd00::1]:9100/a?b=c"),
            ("http://10.0.0.1:80/metrics", "http://10.0.0.1:80/metrics"),
        ] {
            assert_eq!(HttpUrl::parse(text).unwrap().to_string(), shown);
        }
        for text in [
            "",
            "db1:9100",
            "http://",
            "http://db1",
            "http:///metrics",
            "http://db1/metrics",
            "http://[fd00::1]/metrics",
            "http://db1:99999/metrics",
            "http://u:p@db1:9100/metrics",
            "https://db1:9100/metrics",
            "http://db1:9100/a b",
            "http://db1:9100/a\r\nX: y",
            "http://db1:9100/a#b",
        ] {
            assert_eq!(HttpUrl::parse(text), None, "{text}");
        }
    }
}
