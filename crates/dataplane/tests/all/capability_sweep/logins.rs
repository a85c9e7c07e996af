//! How a login on the client's link and the one on the server's link must belong together.
//!
//! Written from the outside, without the gateway's code: this is the table of what a password looks like on a
//! link.

use mysql_wire::{Capabilities, ChangeUser, Command, ErrPacket, Login};
use testkit::scripted::{Identity, Packet, Plugin, Taped};

use super::combination::Combination;

const LOGIN_PACKET_MAX: usize = 128 << 10;

/// What becomes of the packets between login and verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joining {
    AsItIs,
    /// The client gave its password inside TLS; the gateway asks the server for its RSA key with this byte.
    TowardServer(u8),
    /// The client asked with this byte for an RSA key, which is the gateway's; the server gets the password
    /// inside TLS.
    TowardClient(u8),
    /// The password could only go on in the clear.
    Refused,
}

/// `allowed`: options that let passwords travel in the clear. `empty`: there is no password that would have
/// to be hidden.
pub(crate) fn joining(plugin: Plugin, combination: &Combination, allowed: &str, empty: bool) -> Joining {
    let request = match plugin {
        Plugin::Sha256 | Plugin::TwoFactorsSha256 if empty => return Joining::AsItIs,
        Plugin::CachingSha2Full => 2,
        Plugin::Sha256 | Plugin::TwoFactorsSha256 => 1,
        Plugin::Clear | Plugin::Dialog | Plugin::TwoFactorsClear
            if combination.client_tls && !combination.back.tls && allowed.is_empty() =>
        {
            return Joining::Refused;
        }
        _ => return Joining::AsItIs,
    };
    match (combination.client_tls, combination.back.tls) {
        (true, false) => Joining::TowardServer(request),
        (false, true) => Joining::TowardClient(request),
        _ => Joining::AsItIs,
    }
}

/// The gateway's own error for [`Joining::Refused`].
pub(crate) fn check_refusal(error: &ErrPacket) -> Result<(), String> {
    let told = String::from_utf8_lossy(&error.message);
    if error.code == 1045 && error.sql_state == *b"28000" && told.contains("not encrypted") {
        Ok(())
    } else {
        Err(format!("refused with {error:?}"))
    }
}

/// Whether a text is in any packet that could be one of a login: longer ones, which take a while, are not
/// searched.
pub(crate) fn shows(tape: &[Taped], text: &[u8]) -> bool {
    tape.iter().any(|taped| {
        let (Taped::Sent(packet) | Taped::Received(packet)) = taped;
        packet.payload.len() <= LOGIN_PACKET_MAX
            && packet.payload.windows(text.len()).any(|window| window == text)
    })
}

/// A packet of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    by_client: bool,
    packet: Packet,
}

/// What passed on one link: the logins, and the client's packets between them.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    /// From the login packet or COM_CHANGE_USER to the verdict.
    pub(crate) logins: Vec<Vec<Said>>,
    pub(crate) commands: Vec<Packet>,
}

impl Passed {
    pub(crate) fn at_client(tape: &[Taped]) -> Self {
        let said = tape.iter().map(|taped| match taped {
            Taped::Sent(packet) => (true, packet),
            Taped::Received(packet) => (false, packet),
        });
        Self::new(said)
    }

    pub(crate) fn at_server(tape: &[Taped]) -> Self {
        let said = tape.iter().map(|taped| match taped {
            Taped::Sent(packet) => (false, packet),
            Taped::Received(packet) => (true, packet),
        });
        Self::new(said)
    }

    fn new<'a>(said: impl Iterator<Item = (bool, &'a Packet)>) -> Self {
        let mut passed = Self::default();
        let mut logging_in = false;
        for (by_client, packet) in said {
            let is_first =
                passed.logins.is_empty() && !mysql_wire::SslRequest::is_ssl_request(&packet.payload);
            let is_change = packet.sequence == 0 && packet.payload.first() == Some(&Command::CHANGE_USER.0);
            let said = Said {
                by_client,
                packet: packet.clone(),
            };
            if logging_in {
                let verdict = !by_client && matches!(packet.payload.first(), Some(0 | 0xff));
                passed.logins.last_mut().unwrap().push(said);
                logging_in = !verdict;
            } else if by_client && (is_first || is_change) {
                passed.logins.push(vec![said]);
                logging_in = true;
            } else if by_client && !passed.logins.is_empty() {
                passed.commands.push(packet.clone());
            }
        }
        passed
    }
}

/// Compares the session's logins on the two links. A change of user is with the password `changed_to`.
pub(crate) fn compare(
    identity: &Identity,
    combination: &Combination,
    joining: Joining,
    changed_to: &[u8],
    client: &[Vec<Said>],
    server: &[Vec<Said>],
) -> Result<(), String> {
    if client.len() != server.len() {
        return Err(format!(
            "{} logins on one side, {} on the other",
            client.len(),
            server.len()
        ));
    }
    for (number, (client, server)) in client.iter().zip(server).enumerate() {
        let password = if number == 0 {
            identity.password.as_slice()
        } else {
            changed_to
        };
        let first = (&client[0].packet.payload, &server[0].packet.payload);
        if number == 0 {
            compare_login(first.0, first.1)?;
        } else {
            compare_change(identity, first.0, first.1)?;
        }
        if joining == Joining::Refused {
            compare_refused(&client[1..], &server[1..])?;
            continue;
        }
        let expected = joined(password, &client[1..], joining);
        // One packet more before the login where there is TLS.
        let same_numbers = number > 0 || combination.client_tls == combination.back.tls;
        let numbers_count = same_numbers && joining == Joining::AsItIs;
        compare_answers(&expected, &server[1..], numbers_count)?;
    }
    Ok(())
}

fn compare_login(client: &[u8], server: &[u8]) -> Result<(), String> {
    let decode = |payload: &[u8]| Login::decode(payload).map_err(|error| error.to_string());
    let (mut client, mut server) = (decode(client)?, decode(server)?);
    if !server.auth_response.is_empty() || server.auth_plugin == client.auth_plugin {
        return Err("the server was given an answer to a nonce that is not its own".into());
    }
    // What is between neighbours.
    let neighbours = Capabilities::SSL | Capabilities::COMPRESS | Capabilities::ZSTD_COMPRESSION;
    for login in [&mut client, &mut server] {
        login.capabilities = login.capabilities.without(neighbours);
        login.zstd_level = None;
        login.auth_response.clear();
        login.auth_plugin = None;
    }
    (client == server)
        .then_some(())
        .ok_or_else(|| format!("the login was {client:?} and became {server:?}"))
}

fn compare_change(identity: &Identity, client: &[u8], server: &[u8]) -> Result<(), String> {
    let decode = |payload| ChangeUser::decode(payload, identity.capabilities | Capabilities::CONNECT_ATTRS);
    let (Ok(mut client), Ok(mut server)) = (decode(client), decode(server)) else {
        return Err("COM_CHANGE_USER cannot be read".into());
    };
    for change in [&mut client, &mut server] {
        change.auth_response.clear();
        change.auth_plugin = None;
    }
    (client == server)
        .then_some(())
        .ok_or_else(|| format!("the change of user was {client:?} and became {server:?}"))
}

/// What came before the refusal passed; the server's last request did not. It may have been answered with no
/// password at all, so that the server refuses and does not count a broken handshake.
fn compare_refused(client: &[Said], server: &[Said]) -> Result<(), String> {
    let Some((_error, passed)) = client.split_last() else {
        return Err("the client was told nothing".into());
    };
    let payload = |said: &Said| (said.by_client, said.packet.payload.clone());
    let same = server
        .iter()
        .zip(passed)
        .all(|(one, other)| payload(one) == payload(other));
    match server.get(passed.len()..) {
        Some([request]) if same && !request.by_client => Ok(()),
        Some([request, given_up @ .., verdict])
            if same
                && !request.by_client
                && given_up
                    .iter()
                    .filter(|said| said.by_client)
                    .all(|said| said.packet.payload == [0])
                && verdict.packet.payload.first() == Some(&ErrPacket::HEADER) =>
        {
            Ok(())
        }
        _ => Err(format!("before the refusal {client:02x?} became {server:02x?}")),
    }
}

/// A packet whose number, and where it is `None` whose text too, is for the gateway to choose: the
/// RSA-encrypted password and the key for it.
type Expected = (bool, Option<Packet>);

/// What the server's link must show, from what was on the client's. Where the client did not get as far as
/// sending its password, as after a wrong first factor, there is nothing to join.
fn joined(password: &[u8], client: &[Said], joining: Joining) -> Vec<Expected> {
    let as_it_is = |said: &Said| (said.by_client, Some(said.packet.clone()));
    let mut expected: Vec<_> = client.iter().map(as_it_is).collect();
    let with_zero = [password, &[0]].concat();
    let says = |payload: &[u8]| {
        let payload = payload.to_vec();
        (true, Some(Packet { sequence: 0, payload }))
    };
    let find = |wanted: &[u8]| {
        let is_wanted = |said: &Said| said.by_client && said.packet.payload == wanted;
        client.iter().position(is_wanted)
    };
    match joining {
        Joining::AsItIs | Joining::Refused => {}
        Joining::TowardServer(request) => {
            if let Some(at) = find(&with_zero) {
                expected.splice(at..=at, [says(&[request]), (false, None), (true, None)]);
            }
        }
        Joining::TowardClient(request) => {
            if let Some(at) = find(&[request]) {
                expected.splice(at..at + 3, [says(&with_zero)]);
            }
        }
    }
    expected
}

fn compare_answers(expected: &[Expected], server: &[Said], numbers_count: bool) -> Result<(), String> {
    let same = |((by_client, packet), said): (&Expected, &Said)| {
        let payload = &said.packet.payload;
        *by_client == said.by_client
            && match packet {
                Some(packet) => {
                    packet.payload == *payload && (!numbers_count || packet.sequence == said.packet.sequence)
                }
                None if *by_client => payload.len() == 256,
                None => payload.starts_with(b"\x01-----BEGIN PUBLIC KEY-----"),
            }
    };
    if expected.len() == server.len() && expected.iter().zip(server).all(same) {
        return Ok(());
    }
    Err(format!(
        "the login should have been {expected:02x?} and was {server:02x?}"
    ))
}
