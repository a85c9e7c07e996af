//! Two sides of a session side by side: equal but for what cannot be, or the first packet that differs.

use std::fmt::Write as _;

use mysql_wire::{Capabilities, ErrPacket, OkPacket};

use crate::answer::{Answer, End, Packet, Role, lenenc};
use crate::script::{Mask, Request, Side, Step};

/// Longest part of a packet that a report shows, in bytes.
const SHOWN: usize = 160;
/// Commands before the one that differs that a report shows.
const HISTORY: usize = 8;
/// Session state that OK packets carry (`enum enum_session_state_type` of MySQL).
const SYSTEM_VARIABLE: u8 = 0;
const GTIDS: u8 = 3;
/// A byte 1 and a SHA-256 in hex.
const PROOF_LEN: usize = 65;
/// System variables whose values follow the server and not the session.
const SERVER_WIDE: &[&[u8]] = &[
    b"last_gtid",
    b"gtid_binlog_pos",
    b"gtid_current_pos",
    b"pseudo_thread_id",
    b"timestamp",
    b"statement_id",
];

/// What is compared of a packet.
#[derive(PartialEq, Eq)]
struct Normal {
    sequence: u8,
    payload: Vec<u8>,
}

/// None where both sides are equal, else a report.
pub fn differences(
    steps: &[Step],
    capabilities: Capabilities,
    direct: &Side,
    gateway: &Side,
) -> Option<String> {
    for (index, step) in steps.iter().enumerate() {
        let side = direct;
        let (direct, gateway) = match (direct.steps.get(index), gateway.steps.get(index)) {
            (None, None) => return None,
            (direct, gateway) => (direct.map_or(&[][..], |it| it), gateway.map_or(&[][..], |it| it)),
        };
        for (place, request) in step.requests.iter().enumerate() {
            let Some(report) = compare(request, capabilities, direct.get(place), gateway.get(place)) else {
                continue;
            };
            let together = match step.requests.len() {
                1 => String::new(),
                count => format!(" ({} of {count} in one write)", place + 1),
            };
            let history = history(&steps[..index], side);
            let text = format!(
                "step {index}{together}: {}\n{report}before it:\n{history}",
                request.label
            );
            return Some(text);
        }
        if direct.last().is_some_and(Answer::ends_session) {
            return None;
        }
    }
    None
}

/// The last commands, and what the direct connection answered.
fn history(steps: &[Step], direct: &Side) -> String {
    let requests = steps.iter().flat_map(|step| &step.requests);
    let answers = direct.steps.iter().flatten();
    let lines: Vec<_> = requests
        .zip(answers)
        .map(|(request, answer)| history_line(request, answer))
        .collect();
    lines[lines.len().saturating_sub(HISTORY)..].concat()
}

fn history_line(request: &Request, answer: &Answer) -> String {
    let first = answer
        .packets
        .first()
        .map_or(&[][..], |packet| &packet.physical.payload);
    let start = &first[..first.len().min(12)];
    format!(
        "  {} → {} packets, {start:02x?}\n",
        shortened(&request.label),
        answer.packets.len()
    )
}

fn compare(
    request: &Request,
    capabilities: Capabilities,
    direct: Option<&Answer>,
    gateway: Option<&Answer>,
) -> Option<String> {
    let (direct, gateway) = match (direct, gateway) {
        (None, None) => return None,
        (Some(direct), Some(gateway)) => (direct, gateway),
        (Some(_), None) => return Some("only the direct connection got as far as this\n".into()),
        (None, Some(_)) => {
            return Some("only the connection through the gateway got as far as this\n".into());
        }
    };
    let left = normal(direct, request.mask, capabilities);
    let right = normal(gateway, request.mask, capabilities);
    let farewell = left.is_empty() && direct.end == End::Closed && is_farewell(gateway, capabilities);
    if farewell || (left == right && direct.end == gateway.end) {
        return None;
    }
    let at = left
        .iter()
        .zip(&right)
        .take_while(|(left, right)| left == right)
        .count();
    let mut report = format!("packet {at} differs\n");
    for (name, side, answer) in [("direct", &left, direct), ("gateway", &right, gateway)] {
        let packet = side.get(at).map_or_else(|| "nothing".to_owned(), shown);
        let (count, end) = (side.len(), answer.end);
        let _ = writeln!(report, "  {name:8}({count} packets, {end:?}) {packet}");
    }
    Some(report)
}

/// Where a server closed a connection between two commands without a word, the gateway says why it closes its own.
fn is_farewell(answer: &Answer, capabilities: Capabilities) -> bool {
    let [Packet { physical, .. }] = answer.packets.as_slice() else {
        return false;
    };
    let error = ErrPacket::decode(&physical.payload, capabilities);
    error.is_ok_and(|error| {
        error.code == 1158 && error.message.starts_with(b"Lost connection to MySQL server: ")
    }) && answer.packets.len() == 1
}

fn normal(answer: &Answer, mask: Mask, capabilities: Capabilities) -> Vec<Normal> {
    let mut left_out = 0;
    let mut out = Vec::new();
    for packet in &answer.packets {
        if packet.role == Role::Progress || (mask == Mask::Rows && packet.role == Role::Row) {
            left_out = u8::wrapping_add(left_out, 1);
            continue;
        }
        let sequence = match mask {
            Mask::Sequence => 0,
            _ => packet.physical.sequence.wrapping_sub(left_out),
        };
        out.push(Normal {
            sequence,
            payload: payload(packet, mask, capabilities),
        });
    }
    out
}

fn payload(packet: &Packet, mask: Mask, capabilities: Capabilities) -> Vec<u8> {
    let payload = &packet.physical.payload;
    if mask == Mask::Digits {
        let text = payload
            .split(u8::is_ascii_digit)
            .filter(|part| !part.is_empty() && *part != b".");
        return text.collect::<Vec<_>>().concat();
    }
    if packet.role == Role::Verdict && !matches!(payload.first(), None | Some(0xff)) {
        return without_server_state(payload, capabilities).unwrap_or_else(|| payload.clone());
    }
    payload.clone()
}

/// An OK packet without what is the server's and not the session's; None where there is nothing of it.
pub fn without_server_state(payload: &[u8], capabilities: Capabilities) -> Option<Vec<u8>> {
    let mut ok = OkPacket::decode(payload, capabilities).ok()?;
    // MariaDB 11.3 and later proves to the client that it knows its password: the nonce is in it.
    let is_proof = ok.info.len() == PROOF_LEN && ok.info[0] == 1;
    if is_proof {
        ok.info.truncate(1);
    }
    if ok.session_state.is_empty() && !is_proof {
        return None;
    }
    let mut rest = &ok.session_state[..];
    let mut kept = Vec::new();
    while let [kind, after @ ..] = rest {
        let (len, after) = lenenc(after);
        let (data, after) = after.split_at(len as usize);
        let masked = match *kind {
            GTIDS => b"*".to_vec(),
            SYSTEM_VARIABLE => without_server_wide_value(data),
            _ => data.to_vec(),
        };
        kept.push(*kind);
        kept.push(masked.len() as u8);
        kept.extend(masked);
        rest = after;
    }
    ok.session_state = kept;
    let mut out = vec![payload[0]];
    ok.encode(&mut out, capabilities);
    Some(out)
}

/// Name and value, each with its length.
fn without_server_wide_value(data: &[u8]) -> Vec<u8> {
    let (len, name) = lenenc(data);
    let name = &name[..len as usize];
    if SERVER_WIDE.contains(&name) {
        name.to_vec()
    } else {
        data.to_vec()
    }
}

fn shown(packet: &Normal) -> String {
    let Normal { sequence, payload } = packet;
    let start = &payload[..payload.len().min(SHOWN)];
    let hex: String = start.iter().map(|byte| format!("{byte:02x}")).collect();
    let more = if payload.len() > SHOWN { "…" } else { "" };
    let text = String::from_utf8_lossy(start).replace(char::is_control, ".");
    format!(
        "sequence {sequence}, {} bytes: {hex}{more}\n           {text}{more}",
        payload.len()
    )
}

fn shortened(label: &str) -> String {
    match label.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &label[..end]),
        None => label.to_owned(),
    }
}
