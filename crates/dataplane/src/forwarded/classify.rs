//! A command, as far as mode `session` needs to know it.
//!
//! Everything passes, so only the commands that change how the session goes on are told apart, by their first
//! byte. Statements are looked at only for `KILL`, because the connection id in it may be one that we gave
//! out, and for `SHOW PROCESSLIST`, whose answer is to have such ids.

use mysql_wire::query::plain_text;
use mysql_wire::{Capabilities, Command};
use sql_class::text::{Kill, kill, shows_processes};

/// The service that a command needs from the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Forward the command, and its response if it has one.
    Forward,
    /// Forward the command; the session ends.
    Quit,
    /// A login within the session.
    ChangeUser,
    /// Ends another session or its statement.
    Kill(Kill),
    /// Forward the command, and in its response put the numbers that clients know.
    ProcessList,
    /// Forward the command and, unless it is refused, everything in both directions: the answer has no end.
    Stream,
}

/// The longest statement that is looked at for `KILL`.
pub(crate) const KILL_MAX: usize = 256;

/// Classifies by the command byte and, for short statements, the text. `payload` is the packet's payload, or
/// less of it where it is longer than [`KILL_MAX`].
#[inline]
pub(crate) fn classify(
    command: Command,
    payload: &[u8],
    payload_len: usize,
    capabilities: Capabilities,
) -> Need {
    match command {
        Command::QUERY if payload_len <= KILL_MAX && may_be_kill(payload, capabilities) => {
            // No client sends query attributes with a KILL.
            let kill = plain_text(payload, capabilities).and_then(kill);
            kill.map_or(Need::Forward, Need::Kill)
        }
        Command::QUERY if payload_len <= KILL_MAX && may_be_show(payload, capabilities) => {
            let text = plain_text(payload, capabilities).unwrap_or_default();
            match lists_processes(command, text) {
                true => Need::ProcessList,
                false => Need::Forward,
            }
        }
        Command::PROCESS_INFO => Need::ProcessList,
        Command::QUIT => Need::Quit,
        Command::CHANGE_USER => Need::ChangeUser,
        Command::BINLOG_DUMP
        | Command::BINLOG_DUMP_GTID
        | Command::TABLE_DUMP
        | Command::CLONE
        | Command::SUBSCRIBE_GROUP_REPLICATION_STREAM => Need::Stream,
        Command::PROCESS_KILL if payload_len == PROCESS_KILL_LEN => {
            process_kill(payload).map_or(Need::Forward, Need::Kill)
        }
        _ => Need::Forward,
    }
}

/// Whether a statement has to be looked at whole. False for nearly everything by its first letter.
#[inline]
pub(crate) fn may_be_kill(payload: &[u8], capabilities: Capabilities) -> bool {
    plain_text(payload, capabilities)
        .and_then(<[u8]>::first)
        .is_some_and(|first| matches!(first, b'k' | b'K' | b'/' | b'-' | b'#') || first.is_ascii_whitespace())
}

/// Whether a statement may be a `SHOW`, and so has to be looked at whole.
#[inline]
fn may_be_show(payload: &[u8], capabilities: Capabilities) -> bool {
    let text = plain_text(payload, capabilities).and_then(|text| text.get(..2));
    text.is_some_and(|text| text.eq_ignore_ascii_case(b"sh"))
}

/// Whether the answer to a command is a list of processes. `text` is the text of a COM_QUERY.
pub(crate) fn lists_processes(command: Command, text: &[u8]) -> bool {
    match command {
        Command::PROCESS_INFO => true,
        Command::QUERY => shows_processes(text),
        _ => false,
    }
}

/// COM_PROCESS_KILL: the command byte and the id, four bytes.
const PROCESS_KILL_LEN: usize = 5;

fn process_kill(payload: &[u8]) -> Option<Kill> {
    let id = payload.get(1..5)?.try_into().ok()?;
    Some(Kill {
        id: u32::from_le_bytes(id),
        query_only: false,
        soft: false,
        tidb: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Need {
        let payload = [&[3], text.as_bytes()].concat();
        classify(Command::QUERY, &payload, payload.len(), Capabilities::default())
    }

    #[test]
    fn lists_of_processes_are_recognised_in_every_form() {
        for text in [
            "SHOW PROCESSLIST",
            " show full processlist;",
            "/* tool */ SHOW /* all */ FULL PROCESSLIST -- now",
        ] {
            assert!(lists_processes(Command::QUERY, text.as_bytes()), "{text}");
        }
        for text in [
            "SHOW TABLES",
            "SHOW FULL TABLES",
            "SELECT 'SHOW PROCESSLIST'",
            "SHOW",
        ] {
            assert!(!lists_processes(Command::QUERY, text.as_bytes()), "{text}");
        }
        assert!(lists_processes(Command::PROCESS_INFO, b"") && !lists_processes(Command::PING, b""));
    }

    #[test]
    fn kill_is_recognised_in_every_form_the_servers_take() {
        let kill = |id, query_only, soft| {
            Need::Kill(Kill {
                id,
                query_only,
                soft,
                tidb: false,
            })
        };
        assert_eq!(of("KILL 5"), kill(5, false, false));
        assert_eq!(of(" kill\tquery 2147483649;"), kill(2_147_483_649, true, false));
        assert_eq!(
            of("/* app */ KILL /* now */ CONNECTION 7 -- bye"),
            kill(7, false, false)
        );
        assert_eq!(of("KILL SOFT QUERY 7"), kill(7, true, true));
        assert_eq!(of("KILL HARD 7"), kill(7, false, false));
        assert_eq!(of("# why\nKILL 7"), kill(7, false, false));
        let of_tidb = |id, query_only| {
            Need::Kill(Kill {
                id,
                query_only,
                soft: false,
                tidb: true,
            })
        };
        assert_eq!(of("KILL TIDB 7"), of_tidb(7, false));
        assert_eq!(of("kill /* it */ tidb Query 7;"), of_tidb(7, true));
        assert_eq!(of("KILL TIDB CONNECTION 7"), of_tidb(7, false));
    }

    #[test]
    fn what_is_not_a_kill_of_one_connection_is_forwarded_as_it_is() {
        for text in [
            "KILL",
            "KILL QUERY",
            "KILL USER app",
            "KILL QUERY ID 5",
            "KILL 5 6",
            "KILL TIDB",
            "KILL TIDB SOFT 5",
            "KILL HARD TIDB 5",
            // Global ids of TiDB, each one for all its servers, are longer than ids that the gateway gives.
            "KILL TIDB QUERY 1152921504606846977",
            "KILL @x",
            "killer",
            "",
            "/*",
            "--",
        ] {
            assert_eq!(of(text), Need::Forward, "{text}");
        }
    }

    #[test]
    fn query_attributes_are_skipped_when_there_are_none_and_left_alone_when_there_are() {
        let with = |payload: &[u8]| {
            classify(
                Command::QUERY,
                payload,
                payload.len(),
                Capabilities::QUERY_ATTRIBUTES,
            )
        };
        assert_eq!(
            with(b"\x03\x00\x01KILL 5"),
            Need::Kill(Kill {
                id: 5,
                query_only: false,
                soft: false,
                tidb: false
            })
        );
        assert_eq!(with(b"\x03\x01\x01KILL 5"), Need::Forward);
    }

    #[test]
    fn process_kill_needs_its_four_bytes() {
        let classify_kill = |payload: &[u8]| {
            classify(
                Command::PROCESS_KILL,
                payload,
                payload.len(),
                Capabilities::default(),
            )
        };
        assert_eq!(
            classify_kill(&[12, 1, 0, 0, 128]),
            Need::Kill(Kill {
                id: 0x8000_0001,
                query_only: false,
                soft: false,
                tidb: false
            })
        );
        assert_eq!(classify_kill(&[12, 1]), Need::Forward);
        let longer_than_it_says_what_for = classify(
            Command::PROCESS_KILL,
            &[12, 1, 0, 0, 128],
            1000,
            Capabilities::default(),
        );
        assert_eq!(longer_than_it_says_what_for, Need::Forward);
    }
}
