//! Version 1: one line of text, at most 107 bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::{FromStr, Split};

use super::{Parsed, ProxyHeaderError};
use crate::Peer;

pub(super) const PREFIX: &[u8] = b"PROXY ";

/// With `\r\n`, without a terminating zero (section 2.1).
pub(super) const MAX_LEN: usize = 107;

/// `bytes` agree with [`PREFIX`] as far as they go.
pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, ProxyHeaderError> {
    let window = &bytes[..bytes.len().min(MAX_LEN)];
    let Some(line_end) = window.iter().position(|byte| *byte == b'\n') else {
        return if window.len() < MAX_LEN {
            Ok(Parsed::NeedMore)
        } else {
            Err(ProxyHeaderError::LineTooLong)
        };
    };
    let line = window[..line_end].strip_suffix(b"\r");
    let line = line.ok_or(ProxyHeaderError::BadLine("expected \\r before \\n"))?;
    let text = line
        .get(PREFIX.len()..)
        .and_then(|rest| std::str::from_utf8(rest).ok());
    let text = text.ok_or(ProxyHeaderError::BadLine("expected ASCII text"))?;
    let addresses = addresses(text)?;
    Ok(Parsed::Header {
        source: addresses.map(|(source, _)| source),
        destination: addresses.map(|(_, destination)| destination),
        len: line_end + 1,
    })
}

fn addresses(text: &str) -> Result<Option<(Peer, Peer)>, ProxyHeaderError> {
    let mut words = text.split(' ');
    match words.next() {
        // The rest of such a line means nothing.
        Some("UNKNOWN") => Ok(None),
        Some("TCP4") => pair::<Ipv4Addr>(words).map(Some),
        Some("TCP6") => pair::<Ipv6Addr>(words).map(Some),
        _ => Err(ProxyHeaderError::BadLine("expected TCP4, TCP6 or UNKNOWN")),
    }
}

/// `source destination source-port destination-port`
fn pair<A: FromStr + Into<IpAddr>>(mut words: Split<'_, char>) -> Result<(Peer, Peer), ProxyHeaderError> {
    let source = address::<A>(words.next())?;
    let destination = address::<A>(words.next())?;
    let source_port = port(words.next())?;
    let destination_port = port(words.next())?;
    if words.next().is_some() {
        return Err(ProxyHeaderError::BadLine(
            "expected the end of the line behind two addresses and two ports",
        ));
    }
    Ok((
        SocketAddr::new(source, source_port).into(),
        SocketAddr::new(destination, destination_port).into(),
    ))
}

fn address<A: FromStr + Into<IpAddr>>(word: Option<&str>) -> Result<IpAddr, ProxyHeaderError> {
    let parsed = word.and_then(|word| word.parse::<A>().ok());
    parsed.map(Into::into).ok_or(ProxyHeaderError::BadLine(
        "expected an address of the family it names",
    ))
}

fn port(word: Option<&str>) -> Result<u16, ProxyHeaderError> {
    // `parse` alone would let a sign through.
    let digits = word.filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or(ProxyHeaderError::BadLine("expected a port from 0 to 65535"))
}
