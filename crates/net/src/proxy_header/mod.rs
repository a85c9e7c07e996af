//! The PROXY header: who is really connecting, said by a balancer in front of us, or by us to a server.
//!
//! Source of fact: "The PROXY protocol, versions 1 & 2",
//! <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>. Both versions are read, version 2 is
//! written. A header is trusted only where the configuration names the sender's network; that is decided by
//! the caller.

mod v1;
mod v2;

use crate::Peer;

pub use v2::encode_v2;

/// Longest header accepted, in bytes. Version 1 ends within 107; version 2 could be 65 551 long, but
/// addresses and the usual extensions (TLS facts, unique id, a client certificate) stay far below this.
pub const MAX_LEN: usize = 8 * 1024;

/// What the first bytes of a connection say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// So far this is the beginning of a header: call again with more bytes. Never said of [`MAX_LEN`] bytes.
    NeedMore,
    /// A whole header.
    Header {
        /// The client. `None` where the header leaves it open (version 1 `UNKNOWN`, version 2 `LOCAL` as in
        /// health checks, or `UNSPEC`): the connection's own address counts then.
        source: Option<Peer>,
        /// The address the client connected to, `None` together with `source`.
        destination: Option<Peer>,
        /// Length of the header in bytes; what follows is the client's.
        len: usize,
    },
}

/// Why the first bytes of a connection are no PROXY header, or none that may be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyHeaderError {
    /// The bytes do not begin like a header of either version.
    #[error("expected a PROXY header, found something else")]
    Missing,
    /// Version 1: the line does not end within 107 bytes.
    #[error("PROXY header version 1: no line end within {} bytes", v1::MAX_LEN)]
    LineTooLong,
    /// Version 1: the line is not `PROXY TCP4|TCP6|UNKNOWN ...`.
    #[error("PROXY header version 1: {0}")]
    BadLine(&'static str),
    /// Version 2: a version other than 2 behind the signature.
    #[error("PROXY header: expected version 2 behind the binary signature, found {0}")]
    Version(u8),
    /// Version 2: neither `LOCAL` nor `PROXY`.
    #[error("PROXY header version 2: expected command 0 or 1, found {0}")]
    Command(u8),
    /// Version 2: an address family that is none of unspecified, IPv4, IPv6, Unix.
    #[error("PROXY header version 2: unknown address family {0}")]
    Family(u8),
    /// Version 2: not a stream, e.g. UDP.
    #[error("PROXY header version 2: expected a stream protocol, found {0}")]
    Protocol(u8),
    /// Version 2: longer than [`MAX_LEN`].
    #[error("PROXY header version 2: {0} bytes, more than the {MAX_LEN} accepted")]
    TooLong(usize),
    /// Version 2: the length does not cover the addresses of the family.
    #[error("PROXY header version 2: the addresses do not fit in its length")]
    Truncated,
    /// Version 2: an extension reaches beyond the end of the header.
    #[error("PROXY header version 2: an extension reaches beyond the end")]
    BadExtension,
    /// Version 2: the header carries a checksum and it is wrong.
    #[error("PROXY header version 2: wrong checksum")]
    Checksum,
}

/// Reads a header at the start of `bytes`, of which any amount may have arrived.
///
/// # Errors
/// As soon as it is certain that these bytes are not the beginning of an acceptable header.
pub fn parse(bytes: &[u8]) -> Result<Parsed, ProxyHeaderError> {
    if begins_alike(bytes, v2::SIGNATURE) {
        v2::parse(bytes)
    } else if begins_alike(bytes, v1::PREFIX) {
        v1::parse(bytes)
    } else {
        Err(ProxyHeaderError::Missing)
    }
}

/// Whether a connection that began like this, with four bytes at least, has sent a header of either version.
#[must_use]
pub fn is_begun(bytes: &[u8]) -> bool {
    bytes.len() >= 4 && (begins_alike(bytes, v2::SIGNATURE) || begins_alike(bytes, v1::PREFIX))
}

/// Whether `bytes` and `pattern` agree as far as both go.
fn begins_alike(bytes: &[u8], pattern: &[u8]) -> bool {
    let n = bytes.len().min(pattern.len());
    bytes[..n] == pattern[..n]
}

/// Parses arbitrary bytes and checks what must hold of every answer. The body of the fuzz target
/// `proxy_header`.
///
/// # Panics
/// If something does not hold.
pub fn fuzz(bytes: &[u8]) {
    let whole = parse(bytes);
    match whole {
        Ok(Parsed::NeedMore) => assert!(bytes.len() < MAX_LEN, "asked for more than a header may have"),
        Ok(Parsed::Header {
            source,
            destination,
            len,
        }) => {
            assert!(len <= bytes.len() && len <= MAX_LEN, "longer than what is there");
            assert_eq!(source.is_some(), destination.is_some());
            assert_eq!(
                parse(&bytes[..len]),
                whole,
                "what follows a header has an influence on it"
            );
            for cut in 0..len {
                assert_eq!(
                    parse(&bytes[..cut]),
                    Ok(Parsed::NeedMore),
                    "a header cut at {cut} of {len}"
                );
            }
            if let (Some(source), Some(destination)) = (source, destination) {
                let mut again = Vec::new();
                encode_v2(&source, &destination, &mut again);
                let len = again.len();
                let expected = Parsed::Header {
                    source: Some(source),
                    destination: Some(destination),
                    len,
                };
                assert_eq!(parse(&again), Ok(expected), "written by us, read differently");
            }
        }
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests;
