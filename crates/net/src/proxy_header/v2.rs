//! Version 2: binary, with extensions.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{MAX_LEN, Parsed, ProxyHeaderError};
use crate::Peer;

pub(super) const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Signature, version and command, family and protocol, length of the rest.
const FIXED_LEN: usize = 16;

const VERSION: u8 = 2;
const LOCAL: u8 = 0;
const PROXY: u8 = 1;

const UNSPEC: u8 = 0;
const INET: u8 = 1;
const INET6: u8 = 2;
const UNIX: u8 = 3;

const STREAM: u8 = 1;

/// Two paths of 108 bytes.
const UNIX_LEN: usize = 216;

/// Type of the extension with a CRC32C over the whole header, itself taken as zero.
const PP2_TYPE_CRC32C: u8 = 3;

/// `bytes` agree with [`SIGNATURE`] as far as they go.
pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, ProxyHeaderError> {
    let Some(fixed) = bytes.first_chunk::<FIXED_LEN>() else {
        return Ok(Parsed::NeedMore);
    };
    let (version, command) = (fixed[12] >> 4, fixed[12] & 0xf);
    let (family, protocol) = (fixed[13] >> 4, fixed[13] & 0xf);
    let len = FIXED_LEN + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if version != VERSION {
        return Err(ProxyHeaderError::Version(version));
    }
    if command > PROXY {
        return Err(ProxyHeaderError::Command(command));
    }
    if len > MAX_LEN {
        return Err(ProxyHeaderError::TooLong(len));
    }
    let Some(header) = bytes.get(..len) else {
        return Ok(Parsed::NeedMore);
    };
    if command == LOCAL {
        // The rest must be skipped whatever it is.
        return Ok(Parsed::Header {
            source: None,
            destination: None,
            len,
        });
    }
    let addresses = addresses(family, protocol, &header[FIXED_LEN..])?;
    check_extensions(header, FIXED_LEN + addresses.len)?;
    Ok(Parsed::Header {
        source: addresses.source,
        destination: addresses.destination,
        len,
    })
}

struct Addresses {
    source: Option<Peer>,
    destination: Option<Peer>,
    len: usize,
}

fn addresses(family: u8, protocol: u8, bytes: &[u8]) -> Result<Addresses, ProxyHeaderError> {
    if family == UNSPEC {
        return Ok(Addresses {
            source: None,
            destination: None,
            len: 0,
        });
    }
    if protocol != STREAM {
        return Err(ProxyHeaderError::Protocol(protocol));
    }
    let (source, destination, len) = match family {
        INET => {
            let [a, b, c, d, e, f, g, h, ports @ ..] = *first::<12>(bytes)?;
            let source = Ipv4Addr::new(a, b, c, d);
            let destination = Ipv4Addr::new(e, f, g, h);
            let (source, destination) = with_ports(source.into(), destination.into(), ports);
            (source, destination, 12)
        }
        INET6 => {
            let bytes = first::<36>(bytes)?;
            let source = Ipv6Addr::from(*first::<16>(bytes)?);
            let destination = Ipv6Addr::from(*first::<16>(&bytes[16..])?);
            let ports = *first::<4>(&bytes[32..])?;
            let (source, destination) = with_ports(source.into(), destination.into(), ports);
            (source, destination, 36)
        }
        UNIX => {
            first::<UNIX_LEN>(bytes)?;
            (Peer::Unix, Peer::Unix, UNIX_LEN)
        }
        family => return Err(ProxyHeaderError::Family(family)),
    };
    Ok(Addresses {
        source: Some(source),
        destination: Some(destination),
        len,
    })
}

fn first<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], ProxyHeaderError> {
    bytes.first_chunk().ok_or(ProxyHeaderError::Truncated)
}

fn with_ports(source: IpAddr, destination: IpAddr, ports: [u8; 4]) -> (Peer, Peer) {
    let source_port = u16::from_be_bytes([ports[0], ports[1]]);
    let destination_port = u16::from_be_bytes([ports[2], ports[3]]);
    (
        SocketAddr::new(source, source_port).into(),
        SocketAddr::new(destination, destination_port).into(),
    )
}

/// Extensions are type (1 byte), length (2), value. Only the checksum is used; the rest must be well formed.
fn check_extensions(header: &[u8], mut at: usize) -> Result<(), ProxyHeaderError> {
    while at < header.len() {
        let (kind, length) = match header[at..] {
            [kind, high, low, ..] => (kind, usize::from(u16::from_be_bytes([high, low]))),
            _ => return Err(ProxyHeaderError::BadExtension),
        };
        let value = header
            .get(at + 3..at + 3 + length)
            .ok_or(ProxyHeaderError::BadExtension)?;
        if kind == PP2_TYPE_CRC32C {
            let expected = value
                .try_into()
                .map(u32::from_be_bytes)
                .map_err(|_| ProxyHeaderError::BadExtension)?;
            if checksum(header, at + 3) != expected {
                return Err(ProxyHeaderError::Checksum);
            }
        }
        at += 3 + length;
    }
    Ok(())
}

/// CRC32C of the header with the four bytes at `hole` taken as zero.
pub(super) fn checksum(header: &[u8], hole: usize) -> u32 {
    /// Castagnoli's polynomial, bits reversed.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut crc = !0_u32;
    for (at, byte) in header.iter().enumerate() {
        let byte = if (hole..hole + 4).contains(&at) { 0 } else { *byte };
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ POLYNOMIAL
            } else {
                crc >> 1
            };
        }
    }
    !crc
}

/// Appends a version 2 header that tells a server where the client came from and where it connected to.
///
/// IPv4 and IPv6 together are both written as IPv6 (mapped). A Unix socket on both ends is written as such,
/// without paths; on one end only, as `LOCAL`, which leaves the server with the address it sees.
pub fn encode_v2(source: &Peer, destination: &Peer, out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE);
    match (source.socket_addr(), destination.socket_addr()) {
        (Some(source), Some(destination)) => encode_ip(source, destination, out),
        (None, None) => {
            encode_fixed(PROXY, UNIX, UNIX_LEN as u16, out);
            out.resize(out.len() + UNIX_LEN, 0);
        }
        _ => encode_fixed(LOCAL, UNSPEC, 0, out),
    }
}

fn encode_ip(source: SocketAddr, destination: SocketAddr, out: &mut Vec<u8>) {
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            encode_fixed(PROXY, INET, 12, out);
            out.extend_from_slice(&source.octets());
            out.extend_from_slice(&destination.octets());
        }
        (source, destination) => {
            encode_fixed(PROXY, INET6, 36, out);
            out.extend_from_slice(&as_v6(source).octets());
            out.extend_from_slice(&as_v6(destination).octets());
        }
    }
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&destination.port().to_be_bytes());
}

fn encode_fixed(command: u8, family: u8, length: u16, out: &mut Vec<u8>) {
    let protocol = if family == UNSPEC { 0 } else { STREAM };
    out.extend_from_slice(&[VERSION << 4 | command, family << 4 | protocol]);
    out.extend_from_slice(&length.to_be_bytes());
}

fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}
