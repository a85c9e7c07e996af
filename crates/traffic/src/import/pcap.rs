//! Captures of a network: the files of tcpdump (`pcap`, with times in micro- or nanoseconds, of machines of
//! either byte order) and of Wireshark (`pcapng`).
//!
//! Packets of IPv4 and IPv6 are read from Ethernet, with VLANs or without, loopback, Linux' `any`, and
//! without a link. Fragments of IP are not put together, since TCP does not make any.

use std::io::{BufReader, Read};
use std::net::IpAddr;
use std::path::Path;

use super::tcp::Segment;
use super::{ImportError, Importer};
use crate::file::read_up_to;

/// The longest packet, and the longest block of a pcapng.
const PACKET_MAX: u32 = 1 << 20;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// Why it ends, in words.
type Broken = String;

struct Source<R> {
    source: BufReader<R>,
    at: u64,
    is_big: bool,
}

impl<R: Read> Source<R> {
    /// False where nothing more is there.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<bool, Broken> {
        match read_up_to(&mut self.source, bytes).map_err(|error| error.to_string())? {
            0 => Ok(false),
            there if there < bytes.len() => Err("the file ends within a packet".to_owned()),
            there => {
                self.at += there as u64;
                Ok(true)
            }
        }
    }

    /// The same, where something has to be there.
    fn body(&mut self, len: u32) -> Result<Vec<u8>, Broken> {
        if len > PACKET_MAX {
            return Err(format!("a packet of {len} bytes makes no sense"));
        }
        let mut bytes = vec![0; len as usize];
        match len == 0 || self.fill(&mut bytes)? {
            true => Ok(bytes),
            false => Err("the file ends within a packet".to_owned()),
        }
    }

    fn u32(&self, bytes: &[u8], at: usize) -> u32 {
        let bytes: [u8; 4] = chunk(bytes, at).unwrap_or_default();
        match self.is_big {
            true => u32::from_be_bytes(bytes),
            false => u32::from_le_bytes(bytes),
        }
    }

    fn u16(&self, bytes: &[u8], at: usize) -> u16 {
        let bytes: [u8; 2] = chunk(bytes, at).unwrap_or_default();
        match self.is_big {
            true => u16::from_be_bytes(bytes),
            false => u16::from_le_bytes(bytes),
        }
    }
}

pub(super) fn read(importer: &mut Importer, path: &Path, source: impl Read) -> Result<(), ImportError> {
    let mut source = Source {
        source: BufReader::with_capacity(256 << 10, source),
        at: 0,
        is_big: false,
    };
    // A connection may go on in the next file.
    let mut streams = std::mem::take(&mut importer.streams);
    let mut failed = None;
    let mut take = |at_us: u64, link: u32, packet: &[u8]| {
        if let Some(segment) = segment(link, packet)
            && let Err(error) = streams.segment(importer, at_us, &segment)
        {
            failed = Some(error);
        }
        failed.is_none()
    };
    let broken = packets(&mut source, &mut take).err();
    importer.streams = streams;
    if let Some(error) = failed {
        return Err(error);
    }
    if let Some(why) = broken {
        importer.stop(path, source.at, &why);
    }
    Ok(())
}

/// Hands over all packets, until `take` says that it wants no more.
fn packets<R: Read>(
    source: &mut Source<R>,
    take: &mut impl FnMut(u64, u32, &[u8]) -> bool,
) -> Result<(), Broken> {
    let mut magic = [0; 4];
    if !source.fill(&mut magic)? {
        return Err("the file is empty".to_owned());
    }
    let is_nano = match magic {
        [0x0a, 0x0d, 0x0d, 0x0a] => return blocks(source, take),
        [0xd4, 0xc3, 0xb2, 0xa1] | [0xa1, 0xb2, 0xc3, 0xd4] => false,
        [0x4d, 0x3c, 0xb2, 0xa1] | [0xa1, 0xb2, 0x3c, 0x4d] => true,
        _ => return Err("this is neither a pcap nor a pcapng".to_owned()),
    };
    source.is_big = magic[0] == 0xa1;
    let head = source.body(20)?;
    let link = source.u32(&head, 16) & 0xffff;
    let mut head = [0; 16];
    while source.fill(&mut head)? {
        let fraction = u64::from(source.u32(&head, 4));
        let micros = if is_nano { fraction / 1000 } else { fraction };
        let at_us = u64::from(source.u32(&head, 0)) * 1_000_000 + micros;
        let packet = source.body(source.u32(&head, 8))?;
        if !take(at_us, link, &packet) {
            break;
        }
    }
    Ok(())
}

/// The blocks of a pcapng, behind the first four bytes.
fn blocks<R: Read>(
    source: &mut Source<R>,
    take: &mut impl FnMut(u64, u32, &[u8]) -> bool,
) -> Result<(), Broken> {
    const SECTION: u32 = 0x0a0d_0d0a;
    const INTERFACE: u32 = 1;
    const PACKET: u32 = 6;
    // Of each its link, and parts of a second.
    let mut interfaces: Vec<(u32, u64)> = Vec::new();
    let mut kind = SECTION;
    loop {
        let mut len = [0; 4];
        if !source.fill(&mut len)? {
            return Err("the file ends within a block".to_owned());
        }
        let mut read = 8;
        if kind == SECTION {
            let magic = source.body(4)?;
            source.is_big = magic == [0x1a, 0x2b, 0x3c, 0x4d];
            interfaces.clear();
            read += 4;
        }
        let len = source.u32(&len, 0).checked_sub(read).filter(|len| *len >= 4);
        let body = source.body(len.ok_or("the length of a block makes no sense")?)?;
        let body = &body[..body.len() - 4];
        match kind {
            INTERFACE => interfaces.push((u32::from(source.u16(body, 0)), parts_of_second(source, body))),
            PACKET => {
                let interface = interfaces.get(source.u32(body, 0) as usize);
                let (link, parts) = interface.ok_or("a packet of no interface")?;
                let ticks = u64::from(source.u32(body, 4)) << 32 | u64::from(source.u32(body, 8));
                let at_us = (u128::from(ticks) * 1_000_000 / u128::from(*parts)) as u64;
                let end = 20_usize.saturating_add(source.u32(body, 12) as usize);
                let packet = body.get(20..end).ok_or("the length of a packet makes no sense")?;
                if !take(at_us, *link, packet) {
                    return Ok(());
                }
            }
            _ => {}
        }
        let mut next = [0; 4];
        if !source.fill(&mut next)? {
            return Ok(());
        }
        kind = source.u32(&next, 0);
    }
}

/// How many parts a second has in the times of an interface: a million, unless its options say otherwise.
fn parts_of_second<R: Read>(source: &Source<R>, interface: &[u8]) -> u64 {
    const RESOLUTION: u16 = 9;
    let mut options = interface.get(8..).unwrap_or_default();
    while options.len() > 4 {
        let (code, len) = (source.u16(options, 0), usize::from(source.u16(options, 2)));
        if code == RESOLUTION {
            let value = options[4];
            let of_two = value & 0x80 != 0;
            let power = u32::from(value & 0x7f);
            let parts = if of_two {
                2_u64.checked_pow(power)
            } else {
                10_u64.checked_pow(power)
            };
            return parts.unwrap_or(1_000_000);
        }
        options = options.get(4 + len.next_multiple_of(4)..).unwrap_or_default();
    }
    1_000_000
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    chunk(bytes, at).map(u16::from_be_bytes)
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    chunk(bytes, at).map(u32::from_be_bytes)
}

/// The part of a stream that a packet has; `None` where it is none of TCP.
fn segment(link: u32, packet: &[u8]) -> Option<Segment<'_>> {
    const ETHERNET: u32 = 1;
    const LINUX_COOKED: u32 = 113;
    const LINUX_COOKED_2: u32 = 276;
    let (kind, at) = match link {
        ETHERNET => {
            let mut at = 12;
            while matches!(be16(packet, at)?, 0x8100 | 0x88a8) {
                at += 4;
            }
            (be16(packet, at)?, at + 2)
        }
        LINUX_COOKED => (be16(packet, 14)?, 16),
        LINUX_COOKED_2 => (be16(packet, 0)?, 20),
        // A family in the order of whoever has captured it: the packet itself says as much.
        0 | 108 => (of_version(packet.get(4)?)?, 4),
        12 | 14 | 101 | 228 | 229 => (of_version(packet.first()?)?, 0),
        _ => return None,
    };
    let packet = packet.get(at..)?;
    match kind {
        IPV4 => ipv4(packet),
        IPV6 => ipv6(packet),
        _ => None,
    }
}

fn of_version(first: &u8) -> Option<u16> {
    match first >> 4 {
        4 => Some(IPV4),
        6 => Some(IPV6),
        _ => None,
    }
}

fn ipv4(packet: &[u8]) -> Option<Segment<'_>> {
    const TCP: u8 = 6;
    let head = usize::from(packet.first()? & 15) * 4;
    let is_part = be16(packet, 6)? & 0x3fff != 0;
    if *packet.get(9)? != TCP || is_part || head < 20 {
        return None;
    }
    let address = |at: usize| chunk::<4>(packet, at).map(IpAddr::from);
    // A packet that the network card was to cut has no length.
    let len = match usize::from(be16(packet, 2)?) {
        0 => packet.len(),
        len => len,
    };
    tcp(
        address(12)?,
        address(16)?,
        packet.get(head..)?,
        len.checked_sub(head)?,
    )
}

fn ipv6(packet: &[u8]) -> Option<Segment<'_>> {
    const TCP: u8 = 6;
    let address = |at: usize| chunk::<16>(packet, at).map(IpAddr::from);
    let mut len = usize::from(be16(packet, 4)?);
    let mut next = *packet.get(6)?;
    let mut rest = packet.get(40..)?;
    if len == 0 {
        len = rest.len();
    }
    while matches!(next, 0 | 43 | 60) {
        let option = (usize::from(*rest.get(1)?) + 1) * 8;
        next = *rest.first()?;
        rest = rest.get(option..)?;
        len = len.checked_sub(option)?;
    }
    match next {
        TCP => tcp(address(8)?, address(24)?, rest, len),
        _ => None,
    }
}

/// `len`: how many bytes of the packet are TCP's. There may be more of them, which fill the frame up, or
/// fewer, where only the beginning of packets was captured.
fn tcp(from: IpAddr, to: IpAddr, packet: &[u8], len: usize) -> Option<Segment<'_>> {
    let head = usize::from(packet.get(12)? >> 4) * 4;
    let flags = *packet.get(13)?;
    let end = len.min(packet.len());
    Some(Segment {
        from: (from, be16(packet, 0)?),
        to: (to, be16(packet, 2)?),
        sequence: be32(packet, 4)?,
        is_syn: flags & 2 != 0,
        is_ack: flags & 16 != 0,
        is_end: flags & 1 != 0,
        is_reset: flags & 4 != 0,
        is_cut: packet.len() < len,
        bytes: packet.get(head..end)?,
    })
}
