//! Two sides of a session side by side: equal but for what cannot be, or the first packet that differs.

use std::fmt::Write as _;

use mysql_wire::{Capabilities, Command, ErrPacket, OkPacket, StatusFlags};

use crate::answer::{Answer, End, Packet, Role, lenenc};
use crate::script::{Mask, Patch, Request, Side, Step};

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
    shared: bool,
) -> Option<String> {
    let mut earlier: Vec<Answer> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let side = direct;
        let (direct, gateway) = match (direct.steps.get(index), gateway.steps.get(index)) {
            (None, None) => return None,
            (direct, gateway) => (direct.map_or(&[][..], |it| it), gateway.map_or(&[][..], |it| it)),
        };
        for (place, request) in step.requests.iter().enumerate() {
            let executes = request.payload.first() == Some(&Command::STMT_EXECUTE.0);
            let before = match executes {
                true => before_preparing(steps, side, index, place),
                false => direct[..place.min(direct.len())].last().or(earlier.last()),
            };
            if shared
                && asks_for_diagnostics(if executes {
                    text_of(request, steps)
                } else {
                    &request.label
                })
                && has_forgotten(before, gateway.get(place), capabilities)
            {
                continue;
            }
            let Some(report) = compare(
                request,
                capabilities,
                shared,
                calls(request, steps),
                direct.get(place),
                gateway.get(place),
            ) else {
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
        if let Some(last) = direct.last() {
            earlier.clone_from(&vec![last.clone()]);
        }
        if direct.last().is_some_and(Answer::ends_session) {
            return None;
        }
    }
    None
}

/// The gateway has no diagnostics to show where it need not: a statement id that nobody knows is refused by
/// itself, so that no server has the error; and MariaDB keeps the diagnostics of a statement over all that
/// follow and use no tables, for which no connection is held. Those of the last statement it has to show.
fn has_forgotten(before: Option<&Answer>, gateway: Option<&Answer>, capabilities: Capabilities) -> bool {
    let shows = |packet: &Packet| packet.role == Role::Row && packet.physical.payload != b"\x010";
    let shows_none = gateway.is_some_and(|answer| !answer.packets.iter().any(shows));
    let Some(verdict) = before.and_then(|answer| answer.packets.last()) else {
        return shows_none;
    };
    match &verdict.physical.payload[..] {
        // Where a connection is held there may be the session's earlier ones.
        [0xff, low, high, ..] => OWN_ERRORS.contains(&u16::from_le_bytes([*low, *high])),
        [0xfe, low, high, _, _] => shows_none && (*low, *high) == (0, 0),
        payload => shows_none && OkPacket::decode(payload, capabilities).is_ok_and(|ok| ok.warnings == 0),
    }
}

/// What the direct connection was told last, but for statements that were prepared and closed: that leaves
/// the diagnostics alone.
fn before_preparing<'s>(steps: &[Step], direct: &'s Side, index: usize, place: usize) -> Option<&'s Answer> {
    let of_step = |at: usize, until: usize| {
        let answers = direct.steps.get(at).map_or(&[][..], |answers| answers);
        steps[at].requests[..until].iter().zip(answers).rev()
    };
    let earlier = (0..index)
        .rev()
        .flat_map(|at| of_step(at, steps[at].requests.len()));
    let mut all = of_step(index, place).chain(earlier);
    let (_, answer) = all.find(|(request, answer)| {
        let first = answer.packets.first();
        first.is_some_and(|packet| {
            request.prepares.is_none() || packet.physical.payload.first() == Some(&0xff)
        })
    })?;
    Some(answer)
}

/// What the gateway says itself of prepared statements: unknown, without a cursor, malformed.
const OWN_ERRORS: [u16; 3] = [1243, 1421, 1835];

fn asks_for_diagnostics(label: &str) -> bool {
    [
        "WARNINGS",
        "ERRORS",
        "DIAGNOSTICS",
        "error_count",
        "warning_count",
        "ROW_COUNT",
    ]
    .iter()
    .any(|word| label.contains(word))
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
    shared: bool,
    calls: bool,
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
    let (left, right) = if shared {
        let known = |answer| {
            let mut answer = as_shared(answer, request, capabilities);
            if calls {
                without_affected_rows(&mut answer, capabilities);
            }
            normal(&answer, request.mask, capabilities)
        };
        (known(direct), known(gateway))
    } else {
        let whole = |answer| normal(answer, request.mask, capabilities);
        (whole(direct), whole(gateway))
    };
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

/// Where a server closed a connection between two commands without a word, the gateway says why it closes its
/// own.
fn is_farewell(answer: &Answer, capabilities: Capabilities) -> bool {
    let [Packet { physical, .. }] = answer.packets.as_slice() else {
        return false;
    };
    let error = ErrPacket::decode(&physical.payload, capabilities);
    error.is_ok_and(|error| {
        error.code == 1158 && error.message.starts_with(b"Lost connection to MySQL server: ")
    }) && answer.packets.len() == 1
}

/// Of an error packet: its code and the SQLSTATE.
const ERROR_HEAD_LEN: usize = 9;
/// Of the answer to COM_STMT_PREPARE, behind its first byte.
const PREPARE_OK_LEN: usize = 11;

/// Without what a session cannot know that has no connection of its own.
///
/// What the EOF packet behind definitions says about the rows that follow. A server that ends rows with an OK
/// packet says that there only, so a client that expects the older form is told what is known before: the
/// session's status. MariaDB reports variables in the order of a table that is another on each connection.
/// And the gateway knows no names of hosts: it says the address where a server that looks them up says a
/// name.
///
/// MySQL 9.7 reports the state of explicit transactions although `session_track_transaction_info` is off, as
/// it is in all scripts over shared connections; the gateway goes by the variable. A command that is no
/// statement is answered with the count of the warnings before it, which are not at hand any more. And MySQL
/// forgets the flags of OUT parameters where EOF packets end their row, but not where OK packets do.
fn as_shared(answer: &Answer, request: &Request, capabilities: Capabilities) -> Answer {
    const ABOUT_ROWS: u8 = 0x01 | 0x08 | 0x10 | 0x20;
    let mut answer = answer.clone();
    let mut after_definition = false;
    let has_out_parameters = answer.packets.iter().any(|packet| {
        packet.role == Role::Verdict
            && matches!(packet.physical.payload[..], [0xfe, _, _, _, high] if high & 0x10 != 0)
    });
    let runs_sql = matches!(
        request.command(),
        Command::QUERY | Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE
    );
    for packet in &mut answer.packets {
        if after_definition
            && packet.role == Role::Verdict
            && let [0xfe, warnings, _, low, _] = &mut packet.physical.payload[..]
        {
            *warnings = 0;
            *low &= !ABOUT_ROWS;
        }
        // Ids are counted by the session, and MariaDB's texts are empty where results are in a charset of
        // wide characters.
        if let [0xff, low, high, ..] = packet.physical.payload[..]
            && OWN_ERRORS.contains(&u16::from_le_bytes([low, high]))
        {
            packet.physical.payload.truncate(ERROR_HEAD_LEN);
        }
        // Or behind their number, for a client that wants none.
        after_definition = matches!(packet.role, Role::Definition | Role::Head);
        // Ids of statements are counted by the session, and MariaDB counts others, too.
        if packet.role == Role::Head
            && let [0x00, id @ ..] = &mut packet.physical.payload[..]
            && id.len() >= PREPARE_OK_LEN
        {
            id[..4].fill(0);
        }
        if packet.role == Role::Verdict {
            packet.physical.payload = with_name_of_host(&packet.physical.payload);
            with_sorted_variables(&mut packet.physical.payload, capabilities);
            without_transaction_state(&mut packet.physical.payload, capabilities);
            if !runs_sql {
                without_warnings(&mut packet.physical.payload, capabilities);
            }
            if has_out_parameters && let [0xfe, _, _, low, high] = &mut packet.physical.payload[..] {
                (*low, *high) = (*low & !0x08, *high & !0x10);
            }
        }
    }
    answer
}

/// An error packet with the name of this host in the place of its address.
pub fn with_name_of_host(payload: &[u8]) -> Vec<u8> {
    const ADDRESS: &[u8] = b"'127.0.0.1'";
    let place = payload.windows(ADDRESS.len()).position(|part| part == ADDRESS);
    match (payload.first(), place) {
        (Some(0xff), Some(at)) => [&payload[..at], b"'localhost'", &payload[at + ADDRESS.len()..]].concat(),
        _ => payload.to_vec(),
    }
}

fn without_transaction_state(payload: &mut Vec<u8>, capabilities: Capabilities) {
    const TRANSACTION_STATE: [u8; 3] = [5, 9, 8];
    let Ok(mut ok) = OkPacket::decode(payload, capabilities) else {
        return;
    };
    let place = ok
        .session_state
        .windows(3)
        .position(|part| part == TRANSACTION_STATE);
    if let Some(at) = place {
        ok.session_state.drain(at..at + 11);
    }
    if ok.session_state.is_empty() {
        ok.status.remove(StatusFlags::SESSION_STATE_CHANGED);
    }
    let first = payload[0];
    payload.clear();
    ok.encode(payload, capabilities);
    payload[0] = first;
}

/// Whether a procedure is called: one that changes nothing is answered with the count of rows of the
/// statement before it.
fn calls(request: &Request, steps: &[Step]) -> bool {
    let text = text_of(request, steps);
    text.contains("CALL ") || text.contains("EXECUTE ")
}

/// The statement's label, or that of the command that prepared it.
fn text_of<'s>(request: &'s Request, steps: &'s [Step]) -> &'s str {
    let prepared = |slot| {
        let mut requests = steps.iter().flat_map(|step| &step.requests);
        requests.find(|request| request.prepares == Some(slot))
    };
    match request.patch {
        Patch::Statement(slot) => prepared(slot).map_or("", |prepare| &prepare.label),
        _ => &request.label,
    }
}

fn without_affected_rows(answer: &mut Answer, capabilities: Capabilities) {
    let verdicts = answer
        .packets
        .iter_mut()
        .filter(|packet| packet.role == Role::Verdict);
    for packet in verdicts {
        let payload = &mut packet.physical.payload;
        if payload.first() == Some(&0)
            && let Ok(mut ok) = OkPacket::decode(payload, capabilities)
        {
            ok.affected_rows = 0;
            payload.clear();
            ok.encode(payload, capabilities);
        }
    }
}

fn without_warnings(payload: &mut Vec<u8>, capabilities: Capabilities) {
    if let [0xfe, low, high, _, _] = &mut payload[..] {
        (*low, *high) = (0, 0);
    } else if let Ok(mut ok) = OkPacket::decode(payload, capabilities) {
        ok.warnings = 0;
        let first = payload[0];
        payload.clear();
        ok.encode(payload, capabilities);
        payload[0] = first;
    }
}

fn with_sorted_variables(payload: &mut Vec<u8>, capabilities: Capabilities) {
    let Ok(mut ok) = OkPacket::decode(payload, capabilities) else {
        return;
    };
    let mut changes = Vec::new();
    let mut rest = &ok.session_state[..];
    while let [_, after @ ..] = rest {
        let (len, after) = lenenc(after);
        let (change, after) = rest.split_at(rest.len() - after.len() + len as usize);
        changes.push(change.to_vec());
        rest = after;
    }
    if changes.len() < 2 {
        return;
    }
    changes.sort();
    ok.session_state = changes.concat();
    let mut sorted = vec![payload[0]];
    let mut encoded = Vec::new();
    ok.encode(&mut encoded, capabilities);
    sorted.extend_from_slice(&encoded[1..]);
    *payload = sorted;
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

/// The OK of a login as a gateway that answers logins itself gives it: without the proof and without the
/// system variables that MariaDB from 11.3 on tells there.
pub fn login_ok(payload: &[u8], capabilities: Capabilities) -> Vec<u8> {
    let Ok(mut ok) = OkPacket::decode(payload, capabilities) else {
        return payload.to_vec();
    };
    if ok.info.len() == PROOF_LEN && ok.info[0] == 1 {
        ok.info.clear();
    }
    let mut rest = &ok.session_state[..];
    let mut kept = Vec::new();
    while let [kind, after @ ..] = rest {
        let (len, data) = lenenc(after);
        let (change, next) = rest.split_at(1 + after.len() - data.len() + len as usize);
        if *kind != SYSTEM_VARIABLE {
            kept.extend(change);
        }
        rest = next;
    }
    ok.session_state = kept;
    let mut out = Vec::new();
    ok.encode(&mut out, capabilities);
    out
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
