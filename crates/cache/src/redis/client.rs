//! `CLIENT`: what a connection says of itself and asks of others.

use std::sync::Arc;

use config::ReadConsistency;
use dataplane::extension::ProtocolSession;
use mysql_wire::gtid::{Flavor, GtidSet};
use resp_wire::{Args, Writer, parse_integer};

use super::clients::ClientInfo;
use super::refusal::{Refusal, shown};
use super::session::{Replies, Session};
use super::tracking;
use crate::tracking::Tracking;

const HELP: &[&str] = &[
    "CLIENT <subcommand> [<arg> ...]. Subcommands are:",
    "CACHING (YES|NO)",
    "    Say for the next command whether its keys are tracked, in the modes OPTIN and OPTOUT.",
    "CONSISTENCY [EVENTUAL|STRONG|SESSION [<gtids>]]",
    "    Say or set how fresh reads of this connection are. SESSION waits for the transactions",
    "    of the GTID set, which is that of the session's own writes.",
    "GETNAME",
    "    Return the name of the current connection.",
    "GETREDIR",
    "    Return the ID of the connection that is told in the place of the current one, 0 where that is itself,",
    "    -1 while it does not track.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "KILL <ip:port>",
    "    Kill a connection of the same user.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Kill connections of the same user. Return how many were killed. Options are:",
    "    ID <id>, ADDR <ip:port>, LADDR <ip:port>, TYPE (NORMAL|PUBSUB), USER <name>, SKIPME (YES|NO)",
    "LIST [ID <id> [<id> ...]]",
    "    Return information about client connections.",
    "NO-EVICT (ON|OFF), NO-TOUCH (ON|OFF)",
    "    Without effect.",
    "REPLY (ON|OFF|SKIP)",
    "    Control the replies sent to the current connection.",
    "SETINFO (LIB-NAME|LIB-VER) <value>, SETNAME <name>",
    "    Set what others see of the current connection.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]] [OPTIN] [OPTOUT] [NOLOOP]",
    "    Have this connection told when rows change whose values the client keeps. It takes RESP3, or another",
    "    connection of the same user, which has subscribed to __redis__:invalidate.",
    "TRACKINGINFO",
    "    Report how the current connection tracks.",
];

/// The longest name that a client may give itself or its library.
const NAME_MAX: usize = 256;

pub(crate) fn client(
    session: &mut Session,
    control: &ProtocolSession,
    table: &Arc<Tracking>,
    args: Args<'_>,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let name = args.get(1).unwrap_or_default().to_ascii_lowercase();
    match (name.as_slice(), args.len()) {
        (b"id", 2) => out.integer(i64::from(control.id())),
        (b"getname", 2) => match &*session.listed.told().name {
            "" => out.null(),
            name => out.bulk(name.as_bytes()),
        },
        (b"setname", 3) => {
            let name = said(args, 2, "Client names")?;
            session.listed.tell(|told| told.name = name);
            out.simple("OK");
        }
        (b"setinfo", 4) => {
            set_info(session, args)?;
            out.simple("OK");
        }
        (b"info", 2) => {
            let mut line = String::new();
            session.listed.describe(&mut line);
            line.push('\n');
            out.verbatim(&line);
        }
        (b"list", 2..) => out.verbatim(&list(session, args.from(2))?),
        (b"no-evict" | b"no-touch", 3) => {
            on_or_off(args)?;
            out.simple("OK");
        }
        (b"reply", 3) => reply(session, args, out)?,
        (b"kill", 3) => {
            let address = args.get(2).unwrap_or_default();
            let all = session.listed.clients.all();
            let is_meant = |client_info: &&Arc<ClientInfo>| client_info.address.as_bytes() == address;
            match all.iter().find(is_meant) {
                Some(client_info) if may_kill(session, client_info) && control.kill(client_info.id) => {
                    out.simple("OK")
                }
                _ => return Err(Refusal::Other("No such client".into())),
            }
        }
        (b"kill", 4..) => out.integer(kill(session, control, args.from(2))?),
        (b"unblock", 3 | 4) => {
            parse_integer(args.get(2).unwrap_or_default()).ok_or(Refusal::NotAnInteger)?;
            let reason = args.get(3).map(<[u8]>::to_ascii_lowercase);
            if !matches!(reason.as_deref(), None | Some(b"timeout" | b"error")) {
                let text = "CLIENT UNBLOCK reason should be TIMEOUT or ERROR";
                return Err(Refusal::Other(text.into()));
            }
            // Nobody is blocked.
            out.integer(0);
        }
        (b"getredir", 2) => out.integer(session.listed.redirection()),
        (b"tracking", 3..) => {
            tracking::tracking(session, table, args)?;
            out.simple("OK");
        }
        (b"trackinginfo", 2) => tracking::tracking_info(session, out),
        (b"caching", 3) => {
            tracking::caching(session, args)?;
            out.simple("OK");
        }
        (b"consistency", 2..=4) => consistency(session, args, out)?,
        (b"help", 2) => super::server::help(HELP, out),
        _ => return Err(Refusal::subcommand("CLIENT", args)),
    }
    Ok(())
}

/// What a client says of itself: printable, without blanks, and not long.
pub(crate) fn said(args: Args<'_>, at: usize, what: &str) -> Result<Box<str>, Refusal> {
    let text = args.get(at).unwrap_or_default();
    let fits = text.len() <= NAME_MAX && text.iter().all(u8::is_ascii_graphic);
    let text = str::from_utf8(text).ok().filter(|_| fits);
    text.map(Box::from).ok_or_else(|| {
        Refusal::Other(format!(
            "{what} cannot contain spaces, newlines or special characters, nor more than {NAME_MAX} bytes."
        ))
    })
}

fn set_info(session: &Session, args: Args<'_>) -> Result<(), Refusal> {
    let attribute = args.get(2).unwrap_or_default().to_ascii_lowercase();
    match attribute.as_slice() {
        b"lib-name" => {
            let name = said(args, 3, "lib-name")?;
            session.listed.tell(|told| told.library = name);
        }
        b"lib-ver" => {
            let version = said(args, 3, "lib-ver")?;
            session.listed.tell(|told| told.library_version = version);
        }
        other => {
            let other = shown(other);
            return Err(Refusal::Other(format!("Unrecognized option '{other}'")));
        }
    }
    Ok(())
}

fn list(session: &Session, filters: Args<'_>) -> Result<String, Refusal> {
    let clients = &session.listed.clients;
    let client_infos = match filters.get(0) {
        None => clients.all(),
        Some(option) if option.eq_ignore_ascii_case(b"id") && filters.len() > 1 => {
            let ids = filters.from(1);
            let ids: Option<Vec<i64>> = ids.iter().map(parse_integer).collect();
            let ids = ids.ok_or_else(|| Refusal::Other("Invalid client ID".into()))?;
            let found = ids
                .into_iter()
                .filter_map(|id| clients.find(u32::try_from(id).ok()?));
            found.collect()
        }
        Some(option) if option.eq_ignore_ascii_case(b"type") && filters.len() == 2 => {
            let mut all = clients.all();
            of_type(&mut all, filters.get(1).unwrap_or_default())?;
            all
        }
        Some(_) => return Err(Refusal::Syntax),
    };
    let mut lines = String::new();
    for client_info in client_infos {
        client_info.describe(&mut lines);
        lines.push('\n');
    }
    Ok(lines)
}

fn on_or_off(args: Args<'_>) -> Result<(), Refusal> {
    match args.get(2).unwrap_or_default().to_ascii_lowercase().as_slice() {
        b"on" | b"off" => Ok(()),
        _ => Err(Refusal::Syntax),
    }
}

fn reply(session: &mut Session, args: Args<'_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    session.replies = match args.get(2).unwrap_or_default().to_ascii_lowercase().as_slice() {
        b"on" => {
            out.simple("OK");
            Replies::On
        }
        b"off" => Replies::Off,
        b"skip" if session.replies == Replies::Off => Replies::Off,
        b"skip" => Replies::SkipNext,
        _ => return Err(Refusal::Syntax),
    };
    Ok(())
}

/// As in MySQL, everybody may end the connections of his own user; of others nobody is told that they are
/// there.
fn may_kill(session: &Session, client_info: &ClientInfo) -> bool {
    client_info.told().user == session.listed.told().user
}

/// All connections that every filter fits, without the one that asks unless it says otherwise.
fn kill(session: &Session, control: &ProtocolSession, filters: Args<'_>) -> Result<i64, Refusal> {
    let mut client_infos = session.listed.clients.all();
    client_infos.retain(|client_info| may_kill(session, client_info));
    let (mut rest, mut skips_me) = (filters, true);
    while let Some(option) = rest.get(0) {
        let value = rest.get(1).ok_or(Refusal::Syntax)?;
        match option.to_ascii_lowercase().as_slice() {
            b"id" => {
                let id = parse_integer(value).filter(|id| *id > 0);
                let id = id.ok_or_else(|| Refusal::Other("client-id should be greater than 0".into()))?;
                client_infos.retain(|client_info| i64::from(client_info.id) == id);
            }
            b"addr" => client_infos.retain(|client_info| client_info.address.as_bytes() == value),
            b"laddr" => client_infos.retain(|client_info| client_info.local_address.as_bytes() == value),
            b"user" => client_infos.retain(|client_info| client_info.told().user.as_bytes() == value),
            b"type" => of_type(&mut client_infos, value)?,
            b"skipme" => {
                skips_me = match value.to_ascii_lowercase().as_slice() {
                    b"yes" => true,
                    b"no" => false,
                    _ => return Err(Refusal::Syntax),
                }
            }
            _ => return Err(Refusal::Syntax),
        }
        rest = rest.from(2);
    }
    if skips_me {
        client_infos.retain(|client_info| client_info.id != control.id());
    }
    let gone = client_infos
        .iter()
        .filter(|client_info| control.kill(client_info.id));
    Ok(gone.count() as i64)
}

/// Those of a kind of clients, of which there are two.
fn of_type(client_infos: &mut Vec<Arc<ClientInfo>>, kind: &[u8]) -> Result<(), Refusal> {
    match kind.to_ascii_lowercase().as_slice() {
        kind @ (b"normal" | b"pubsub") => {
            client_infos.retain(|client_info| client_info.letters().is_some() == (kind == b"pubsub"));
        }
        b"master" | b"replica" | b"slave" => client_infos.clear(),
        other => return Err(Refusal::Other(format!("Unknown client type '{}'", shown(other)))),
    }
    Ok(())
}

fn consistency(session: &mut Session, args: Args<'_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let Some(level) = args.get(2) else {
        out.bulk(session.level.word().as_bytes());
        return Ok(());
    };
    let level = match level.to_ascii_lowercase().as_slice() {
        b"eventual" => ReadConsistency::Eventual,
        b"session" => ReadConsistency::Session,
        b"strong" => ReadConsistency::Strong,
        _ => return Err(Refusal::Syntax),
    };
    let seen = match (level, args.get(3)) {
        (_, None) => None,
        (ReadConsistency::Session, Some(text)) => Some(Box::new(gtids(text)?)),
        _ => return Err(Refusal::Syntax),
    };
    session.set_level(level, seen);
    out.simple("OK");
    Ok(())
}

/// The two servers write them differently: MySQL's have a colon behind the UUID.
fn gtids(text: &[u8]) -> Result<GtidSet, Refusal> {
    let flavor = if text.contains(&b':') {
        Flavor::MySql
    } else {
        Flavor::MariaDb
    };
    GtidSet::parse(flavor, text).map_err(|error| Refusal::Other(format!("GTID set: {error}")))
}
