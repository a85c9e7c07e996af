//! The bodies of the fuzz targets (`fuzz/`), here because they know what must hold. They run on stable Rust
//! as ordinary functions too: `tests/all/fuzz_corpus.rs` replays the corpus.

mod binlog;
mod session;

pub use binlog::binlog;
pub use session::{gtid, reshape, session_state, statement};

use crate::compression::{Algorithm, Compressor, Decompressor, Unpacked};
use crate::{
    AuthMoreData, AuthNextFactor, AuthSwitch, Capabilities, ChangeUser, Command, EofPacket, ErrPacket, Event,
    Greeting, Login, OkPacket, RequestTracker, ResponseTracker, SslRequest, StatusFlags, WireError,
};

/// Byte 0: the command. Byte 1: capabilities. Bytes 2 and 3: where to cut. The rest: what the server sends.
/// Panics where the cut makes a difference.
pub fn response(data: &[u8]) {
    let Some((&[command, flags, cut_low, cut_high], bytes)) = data.split_first_chunk() else {
        return;
    };
    let capabilities = response_capabilities(flags);
    let cut = usize::from(u16::from_le_bytes([cut_low, cut_high])).min(bytes.len());
    let asks_for_cursor = flags & 0x20 != 0;
    let loads_file = flags & 0x40 != 0;
    let track = |views: &[&[u8]]| {
        let mut tracker = ResponseTracker::new(capabilities);
        tracker.begin(Command(command));
        if asks_for_cursor {
            tracker.allow_cursor();
        }
        if loads_file {
            tracker.allow_infile();
        }
        track(tracker, views)
    };
    let whole = track(&[bytes]);
    let parts = track(&[&bytes[..cut], bytes]);
    assert_eq!(whole, parts, "cut at {cut}");

    let mut tracker = RequestTracker::new();
    if flags & 0x80 == 0 {
        tracker.begin_command()
    } else {
        tracker.begin_infile()
    }
    let whole = { tracker }.advance(bytes);
    let (first, finished) = tracker.advance(&bytes[..cut]);
    let (second, finished) = if finished {
        (0, true)
    } else {
        tracker.advance(&bytes[first..])
    };
    assert_eq!(whole, (first + second, finished), "cut at {cut}");
}

fn response_capabilities(flags: u8) -> Capabilities {
    let optional = [
        Capabilities::DEPRECATE_EOF,
        Capabilities::SESSION_TRACK,
        Capabilities::OPTIONAL_RESULTSET_METADATA,
        Capabilities::MARIADB_CACHE_METADATA,
        Capabilities::MARIADB_PROGRESS,
    ];
    let chosen = optional
        .into_iter()
        .enumerate()
        .filter(|(bit, _)| flags >> bit & 1 == 1);
    chosen.fold(Capabilities::PROTOCOL_41, |set, (_, flag)| set | flag)
}

/// Tracks one response whose bytes become visible step by step.
fn track(mut tracker: ResponseTracker, views: &[&[u8]]) -> Result<(usize, Event), WireError> {
    let mut at = 0;
    for &view in views {
        loop {
            let progress = tracker.advance(&view[at..])?;
            at += progress.consumed;
            assert!(at <= view.len());
            match progress.event {
                // The end of a stream is the end of the view.
                Event::Stream => return Ok((0, Event::Stream)),
                Event::LocalInfile => tracker.resume_after_local_infile(),
                Event::Done(_) => return Ok((at, progress.event)),
                Event::State => tracker.pass_state(),
                Event::More => break,
            }
        }
    }
    Ok((at, Event::More))
}

/// Byte 0: capabilities for the packets that need them. The rest: a payload, read as each kind of packet.
/// Panics where what was read does not survive being written and read again.
pub fn handshake(data: &[u8]) {
    let Some((&flags, payload)) = data.split_first() else {
        return;
    };
    let capabilities = Capabilities::PLUGIN_AUTH
        | Capabilities::CONNECT_ATTRS
        | if flags & 1 == 1 {
            Capabilities::SECURE_CONNECTION
        } else {
            Capabilities::PLUGIN_AUTH
        }
        | if flags & 2 == 2 {
            Capabilities::SESSION_TRACK
        } else {
            Capabilities::PLUGIN_AUTH
        }
        | if flags & 4 == 4 {
            Capabilities::PROTOCOL_41
        } else {
            Capabilities::PLUGIN_AUTH
        };
    settles(payload, Greeting::decode, |greeting, out| greeting.encode(out));
    settles(payload, SslRequest::decode, |request, out| request.encode(out));
    settles(payload, Login::decode, |login, out| login.encode(out));
    settles(payload, AuthSwitch::decode, |switch, out| switch.encode(out));
    settles(payload, AuthMoreData::decode, |more, out| more.encode(out));
    settles(payload, AuthNextFactor::decode, |next, out| next.encode(out));
    settles(payload, EofPacket::decode, |eof, out| eof.encode(out));
    let decode = |payload: &[u8]| ChangeUser::decode(payload, capabilities);
    settles(payload, decode, |change, out| change.encode(out, capabilities));
    let decode = |payload: &[u8]| OkPacket::decode(payload, capabilities);
    settles(payload, decode, |ok, out| ok.encode(out, capabilities));
    let decode = |payload: &[u8]| ErrPacket::decode(payload, capabilities);
    settles(payload, decode, |err, out| {
        err.encode(out, capabilities | Capabilities::PROTOCOL_41)
    });
    // Printing what a peer sent must not panic either.
    drop(format!(
        "{:?} {:?}",
        Login::decode(payload),
        StatusFlags(u16::from(flags))
    ));
}

/// Readers forgive what writers do not write: after one round trip nothing may change any more.
fn settles<T: PartialEq + std::fmt::Debug>(
    payload: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, WireError>,
    encode: impl Fn(&T, &mut Vec<u8>),
) {
    let Ok(first) = decode(payload) else { return };
    let write = |value: &T| {
        let mut out = Vec::new();
        encode(value, &mut out);
        out
    };
    let once =
        decode(&write(&first)).unwrap_or_else(|error| panic!("{first:?} cannot be read again: {error}"));
    let twice =
        decode(&write(&once)).unwrap_or_else(|error| panic!("{once:?} cannot be read again: {error}"));
    assert_eq!(once, twice);
}

/// Longer content is not read to its end: the time goes into more inputs.
const UNPACKED_MAX: usize = 1 << 16;

/// Byte 0: algorithm, output size and cut. The rest: frames as a peer may send them, then content to pack.
/// Panics where damaged frames are endless, or where packed content does not come out as it was.
pub fn compression(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else {
        return;
    };
    let algorithm = if choice & 1 == 0 {
        Algorithm::Zlib
    } else {
        Algorithm::Zstd { level: 1 }
    };
    let room = if choice & 2 == 0 { 7 } else { 4096 };
    let step = if choice & 4 == 0 { usize::MAX } else { 3 };
    drop(unpack(algorithm, bytes, step, room));

    let bytes = &bytes[..bytes.len().min(UNPACKED_MAX / 16)];
    let Ok(mut compressor) = Compressor::new(algorithm) else {
        return;
    };
    let mut frames = Vec::new();
    let content = bytes.repeat(1 + usize::from(choice >> 5));
    if compressor.compress(&content, &mut frames).is_ok() {
        assert_eq!(unpack(algorithm, &frames, step, room).as_ref(), Ok(&content));
    }
}

/// Unpacks `frames`, offered `step` bytes at a time, through an output of `room` bytes.
fn unpack(algorithm: Algorithm, frames: &[u8], step: usize, room: usize) -> Result<Vec<u8>, WireError> {
    let mut decompressor = Decompressor::new(algorithm)?;
    let mut output = vec![0; room];
    let (mut content, mut at) = (Vec::new(), 0_usize);
    while content.len() < UNPACKED_MAX {
        let visible = &frames[at..at.saturating_add(step).min(frames.len())];
        let done = decompressor.decompress(visible, &mut output)?;
        at += done.consumed;
        content.extend_from_slice(&output[..done.produced]);
        if done == Unpacked::default() && visible.len() < step {
            break;
        }
        assert_ne!(
            done,
            Unpacked::default(),
            "stuck with {} bytes visible",
            visible.len()
        );
    }
    Ok(content)
}
