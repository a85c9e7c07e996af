//! The compressed protocol as a client speaks it that sends short commands only.

use e2e::raw::{Raw, packet, query};
use mysql_wire::PacketHeader;
use mysql_wire::compression::{Algorithm, Decompressor, HEADER_LEN};
use tokio::io::AsyncReadExt;

/// A statement in a frame of its own, too short to be compressed.
pub(crate) fn query_in_frame(statement: &str) -> Vec<u8> {
    let packet = packet(0, &query(statement));
    assert!(packet.len() < 256);
    [&[packet.len() as u8, 0, 0, 0, 0, 0, 0], packet.as_slice()].concat()
}

/// A packet in an answer.
#[derive(Debug)]
pub(crate) struct Framed {
    /// Number of the frame in which it begins.
    pub(crate) frame: u8,
    pub(crate) sequence: u8,
    pub(crate) payload: Vec<u8>,
}

/// Reads frames until `is_last` holds for a packet.
pub(crate) async fn answers(raw: &mut Raw, is_last: impl Fn(&Framed) -> bool) -> Vec<Framed> {
    let mut packets: Vec<Framed> = Vec::new();
    let (mut unread, mut begun_in) = (Vec::new(), 0);
    while !packets.last().is_some_and(&is_last) {
        let (number, content) = frame(raw).await;
        if unread.is_empty() {
            begun_in = number;
        }
        unread.extend(content);
        while let Some(header) = PacketHeader::parse(&unread) {
            let end = PacketHeader::LEN + header.payload_len;
            if unread.len() < end {
                break;
            }
            packets.push(Framed {
                frame: std::mem::replace(&mut begun_in, number),
                sequence: header.sequence,
                payload: unread[PacketHeader::LEN..end].to_vec(),
            });
            unread.drain(..end);
        }
    }
    packets
}

/// The next frame: its number and content.
async fn frame(raw: &mut Raw) -> (u8, Vec<u8>) {
    let mut bytes = vec![0; HEADER_LEN];
    raw.stream.read_exact(&mut bytes).await.unwrap();
    let length = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], 0]) as usize;
    let (here, unpacked) = (length(0), length(4));
    bytes.resize(HEADER_LEN + here, 0);
    raw.stream.read_exact(&mut bytes[HEADER_LEN..]).await.unwrap();
    let mut content = vec![0; if unpacked == 0 { here } else { unpacked }];
    let mut decompressor = Decompressor::new(Algorithm::Zlib).unwrap();
    let done = decompressor.decompress(&bytes, &mut content).unwrap();
    assert_eq!(done.produced, content.len());
    (bytes[3], content)
}
