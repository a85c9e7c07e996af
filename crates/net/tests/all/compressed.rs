//! Compressed streams: whole bytes, right numbers, bounded memory.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use mysql_wire::compression::{Algorithm, Compressor, Decompressor, FRAME_INPUT, HEADER_LEN};
use net::{Stream, Toward, buffer, compressed};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

const ALGORITHMS: [Algorithm; 2] = [Algorithm::Zlib, Algorithm::Zstd { level: 3 }];

async fn plain() -> (Stream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = Stream::connect_tcp(listener.local_addr().unwrap(), Duration::ZERO)
        .await
        .unwrap();
    let peer = listener.accept().unwrap().0;
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    (stream, peer)
}

/// A compressed stream of ours and the raw socket on its other end.
async fn pair(algorithm: Algorithm, toward: Toward) -> (Stream, TcpStream) {
    let (stream, peer) = plain().await;
    (compressed(stream, algorithm, toward, &[]).unwrap(), peer)
}

fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_le_bytes().to_vec();
    bytes[3] = sequence;
    bytes.extend_from_slice(payload);
    bytes
}

/// Bytes in one frame with this number.
fn frame(algorithm: Algorithm, sequence: u8, content: &[u8]) -> Vec<u8> {
    let mut compressor = Compressor::new(algorithm).unwrap();
    compressor.set_sequence(sequence);
    let mut out = Vec::new();
    compressor.compress(content, &mut out).unwrap();
    out
}

/// Reads one frame: its number and content.
fn read_frame(algorithm: Algorithm, peer: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut header = [0; HEADER_LEN];
    peer.read_exact(&mut header).unwrap();
    let length = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], 0]) as usize;
    let mut bytes = header.to_vec();
    bytes.resize(HEADER_LEN + length(0), 0);
    peer.read_exact(&mut bytes[HEADER_LEN..]).unwrap();
    let mut content = vec![0; if length(4) == 0 { length(0) } else { length(4) }];
    let done = Decompressor::new(algorithm)
        .unwrap()
        .decompress(&bytes, &mut content)
        .unwrap();
    assert_eq!((done.consumed, done.produced), (bytes.len(), content.len()));
    (header[3], content)
}

async fn send(stream: &mut Stream, bytes: &[u8]) {
    stream.write_all(bytes).await.unwrap();
    stream.flush().await.unwrap();
}

async fn receive(stream: &mut Stream, n: usize) -> Vec<u8> {
    let mut bytes = vec![0; n];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

/// Compressible, and not the same everywhere.
fn text(n: usize) -> Vec<u8> {
    (0..n).map(|i| b'a' + ((i / 7) % 23) as u8).collect()
}

#[tokio::test]
async fn commands_and_answers_have_their_numbers() {
    for algorithm in ALGORITHMS {
        let (mut server, mut peer) = pair(algorithm, Toward::Server).await;
        for size in [10, 1000, 100_000] {
            let command = packet(0, &text(size));
            server.begin_command().unwrap();
            // In pieces, as the data plane may have it; still one frame.
            let (head, rest) = command.split_at(4);
            server.write_all(head).await.unwrap();
            send(&mut server, rest).await;
            assert_eq!(read_frame(algorithm, &mut peer), (0, command));
            let answer = [packet(1, &text(size)), packet(2, b"end")].concat();
            peer.write_all(&frame(algorithm, 1, &answer)).unwrap();
            assert!(receive(&mut server, answer.len()).await == answer);
        }
    }
}

/// Servers go on with the number of frames where packets should be counted.
#[tokio::test]
async fn packets_of_a_server_are_numbered_as_without_compression() {
    let algorithm = Algorithm::Zlib;
    let (mut server, mut peer) = pair(algorithm, Toward::Server).await;
    server.begin_command().unwrap();
    // Three frames, one packet.
    let command = packet(0, &text(2 * FRAME_INPUT + 1000));
    send(&mut server, &command).await;
    let mut got = Vec::new();
    for n in 0..3 {
        let (sequence, content) = read_frame(algorithm, &mut peer);
        assert_eq!(sequence, n);
        got.extend_from_slice(&content);
    }
    assert!(got == command);
    // Two results: the first begins with the number of frames, and so does the second.
    for (sequence, first) in [(3, 3), (4, 4)] {
        let result = [
            packet(first, b"columns"),
            packet(first + 1, b"row"),
            packet(first + 2, b"end"),
        ]
        .concat();
        peer.write_all(&frame(algorithm, sequence, &result)).unwrap();
    }
    let mut expected = Vec::new();
    for (sequence, payload) in (1..).zip(["columns", "row", "end", "columns", "row", "end"]) {
        expected.extend_from_slice(&packet(sequence, payload.as_bytes()));
    }
    assert_eq!(receive(&mut server, expected.len()).await, expected);
    server.begin_command().unwrap();
    send(&mut server, &packet(0, b"\x0e")).await;
    assert_eq!(read_frame(algorithm, &mut peer), (0, packet(0, b"\x0e")));
    peer.write_all(&frame(algorithm, 1, &packet(1, b"ok"))).unwrap();
    assert_eq!(receive(&mut server, 6).await, packet(1, b"ok"));
}

#[tokio::test]
async fn file_data_continues_the_exchange_on_both_sides() {
    let algorithm = Algorithm::Zlib;
    let (mut server, mut server_peer) = pair(algorithm, Toward::Server).await;
    let (mut client, mut client_peer) = pair(algorithm, Toward::Client).await;
    client_peer
        .write_all(&frame(algorithm, 0, &packet(0, b"load data")))
        .unwrap();
    let command = receive(&mut client, 13).await;
    client.begin_command().unwrap();
    server.begin_command().unwrap();
    send(&mut server, &command).await;
    assert_eq!(
        read_frame(algorithm, &mut server_peer),
        (0, packet(0, b"load data"))
    );
    server_peer
        .write_all(&frame(algorithm, 1, &packet(1, b"\xfbfile")))
        .unwrap();
    let request = receive(&mut server, 9).await;
    send(&mut client, &request).await;
    assert_eq!(
        read_frame(algorithm, &mut client_peer),
        (1, packet(1, b"\xfbfile"))
    );
    // Two frames of data, more than one packet each.
    let data = [
        packet(2, b"line"),
        packet(3, b"line"),
        packet(4, b"line"),
        packet(5, b""),
    ]
    .concat();
    client_peer.write_all(&frame(algorithm, 2, &data[..16])).unwrap();
    client_peer.write_all(&frame(algorithm, 3, &data[16..])).unwrap();
    let got = receive(&mut client, data.len()).await;
    assert_eq!(got, data);
    send(&mut server, &got).await;
    assert_eq!(read_frame(algorithm, &mut server_peer), (2, data));
    server_peer
        .write_all(&frame(algorithm, 3, &packet(3, b"ok")))
        .unwrap();
    let verdict = receive(&mut server, 6).await;
    assert_eq!(verdict, packet(6, b"ok"));
    send(&mut client, &verdict).await;
    assert_eq!(read_frame(algorithm, &mut client_peer), (4, packet(6, b"ok")));
}

#[tokio::test]
async fn a_command_that_comes_early_does_not_disturb_the_answer_before() {
    let algorithm = Algorithm::Zlib;
    let (mut client, mut peer) = pair(algorithm, Toward::Client).await;
    peer.write_all(&frame(algorithm, 0, &packet(0, b"one"))).unwrap();
    assert_eq!(receive(&mut client, 7).await, packet(0, b"one"));
    client.begin_command().unwrap();
    send(&mut client, &packet(1, b"first half")).await;
    peer.write_all(&frame(algorithm, 0, &packet(0, b"two"))).unwrap();
    assert_eq!(receive(&mut client, 7).await, packet(0, b"two"));
    // The end of the first answer may even be unflushed when the second begins.
    client.write_all(&packet(2, b"second half")).await.unwrap();
    client.begin_command().unwrap();
    send(&mut client, &packet(1, b"answer two")).await;
    assert_eq!(read_frame(algorithm, &mut peer), (1, packet(1, b"first half")));
    assert_eq!(read_frame(algorithm, &mut peer), (2, packet(2, b"second half")));
    assert_eq!(read_frame(algorithm, &mut peer), (1, packet(1, b"answer two")));
}

/// A client may send its first command before it has seen the OK of its login.
#[tokio::test]
async fn what_was_read_before_the_compression_began_is_of_it() {
    for algorithm in ALGORITHMS {
        let frames = [
            frame(algorithm, 0, &packet(0, b"early")),
            frame(algorithm, 0, &packet(0, b"late")),
        ]
        .concat();
        for read in [1, HEADER_LEN, frames.len() - 1, frames.len()] {
            let (stream, mut peer) = plain().await;
            let mut stream = compressed(stream, algorithm, Toward::Client, &frames[..read]).unwrap();
            peer.write_all(&frames[read..]).unwrap();
            let expected = [packet(0, b"early"), packet(0, b"late")].concat();
            assert_eq!(receive(&mut stream, expected.len()).await, expected, "{read}");
        }
        assert_eq!(buffer::in_use_count(), 0);
    }
}

#[tokio::test]
async fn big_transfers_arrive_whole_and_leave_no_buffer_behind() {
    for algorithm in ALGORITHMS {
        let (from, to) = plain().await;
        to.set_nonblocking(true).unwrap();
        let to = Stream::from(tokio::net::TcpStream::from_std(to).unwrap());
        let mut from = compressed(from, algorithm, Toward::Server, &[]).unwrap();
        let mut to = compressed(to, algorithm, Toward::Client, &[]).unwrap();
        assert!(from.is_compressed() && !from.is_encrypted());
        // Half of it cannot be made shorter.
        let mut sent = text(3_000_000);
        let mut state = 1_u32;
        for byte in &mut sent[1_000_000..2_500_000] {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (state >> 24) as u8;
        }
        let write = async {
            from.begin_command().unwrap();
            from.write_all(&sent).await.unwrap();
            from.shutdown().await.unwrap();
        };
        let mut got = Vec::new();
        let (_, read) = tokio::join!(write, to.read_to_end(&mut got));
        read.unwrap();
        assert!(got == sent);
        assert_eq!(buffer::in_use_count(), 0);
    }
}

#[tokio::test]
async fn a_peer_that_does_not_read_stops_the_writer() {
    let (mut stream, _peer) = pair(Algorithm::Zlib, Toward::Client).await;
    let noise: Vec<u8> = {
        let mut state = 7_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..64 * 1024).map(|_| next()).collect()
    };
    let mut cx = Context::from_waker(Waker::noop());
    let mut accepted = 0;
    while let std::task::Poll::Ready(n) = Pin::new(&mut stream).poll_write(&mut cx, &noise) {
        accepted += n.unwrap();
        assert!(accepted < 64 * 1024 * 1024, "never stopped");
    }
}

#[tokio::test]
async fn broken_frames_are_errors() {
    let whole = frame(Algorithm::Zlib, 0, &text(1000));
    let (mut stream, mut peer) = pair(Algorithm::Zlib, Toward::Client).await;
    peer.write_all(&whole[..whole.len() - 1]).unwrap();
    drop(peer);
    let error = stream.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);

    let (mut stream, mut peer) = pair(Algorithm::Zlib, Toward::Client).await;
    peer.write_all(&whole).unwrap();
    drop(peer);
    let mut got = Vec::new();
    stream.read_to_end(&mut got).await.unwrap();
    assert!(got == text(1000));

    // A frame that ends before its content does.
    let mut short = whole.clone();
    short[0] -= 10;
    short.truncate(whole.len() - 10);
    let (mut stream, mut peer) = pair(Algorithm::Zlib, Toward::Client).await;
    peer.write_all(&[short, whole.clone()].concat()).unwrap();
    let error = stream.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    drop(stream);

    for (at, value) in [(4, 0xff), (5, 0xff), (6, 0xff), (9, 0x55), (20, 0xff)] {
        let mut damaged = whole.clone();
        damaged[at] ^= value;
        let (mut stream, mut peer) = pair(Algorithm::Zlib, Toward::Client).await;
        peer.write_all(&damaged).unwrap();
        peer.write_all(&whole).unwrap();
        drop(peer);
        let error = stream.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "byte {at}: {error}");
    }
    assert_eq!(buffer::in_use_count(), 0);
}
