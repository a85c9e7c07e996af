//! Compression between neighbours: what each pair agrees on.

use std::io;

use config::ServerCompression;
use mysql_wire::compression::Algorithm;
use mysql_wire::{Capabilities, Greeting};
use net::{Stream, Toward};

use crate::relay::flow::Flow;

/// MySQL's own default.
const DEFAULT_ZSTD_LEVEL: u8 = 3;

/// Highest level at which the gateway compresses, whatever level a client asks for: the thread that
/// compresses serves other clients, too.
const MAX_ZSTD_LEVEL: u8 = 6;

/// The compression between a client and this gateway. zlib wins where a client offers both, as in MySQL's
/// server (`sql_authentication.cc`).
pub(crate) fn agreed_compression(client: Capabilities, zstd_level: Option<u8>) -> Option<Algorithm> {
    if client.contains(Capabilities::COMPRESS) {
        Some(Algorithm::Zlib)
    } else if client.contains(Capabilities::ZSTD_COMPRESSION) {
        Some(Algorithm::Zstd {
            level: zstd_level.unwrap_or(DEFAULT_ZSTD_LEVEL).min(MAX_ZSTD_LEVEL),
        })
    } else {
        None
    }
}

/// The compression that the configuration asks for, if the server has it.
pub(super) fn server_compression(wanted: ServerCompression, greeting: &Greeting) -> Option<Algorithm> {
    let algorithm = match wanted {
        ServerCompression::Off => return None,
        ServerCompression::Zlib => Algorithm::Zlib,
        ServerCompression::Zstd => Algorithm::Zstd {
            level: DEFAULT_ZSTD_LEVEL,
        },
    };
    greeting
        .capabilities
        .contains(compression_flag(algorithm))
        .then_some(algorithm)
}

pub(super) fn compression_flag(algorithm: Algorithm) -> Capabilities {
    match algorithm {
        Algorithm::Zlib => Capabilities::COMPRESS,
        Algorithm::Zstd { .. } => Capabilities::ZSTD_COMPRESSION,
    }
}

pub(super) fn zstd_level(algorithm: Algorithm) -> Option<u8> {
    match algorithm {
        Algorithm::Zlib => None,
        Algorithm::Zstd { level } => Some(level),
    }
}

/// The stream with the compression that was agreed on, which begins after the login, and the flow from the
/// stream. The flow begins with `unread`, the bytes that were read already.
pub(crate) fn compressed(
    stream: Stream,
    algorithm: Option<Algorithm>,
    toward: Toward,
    unread: &[u8],
) -> io::Result<(Stream, Flow)> {
    let mut flow = Flow::default();
    let stream = match algorithm {
        Some(algorithm) => net::compressed(stream, algorithm, toward, unread)?,
        None => {
            flow.fill(unread);
            stream
        }
    };
    Ok((stream, flow))
}
