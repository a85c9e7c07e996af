//! Commands that are no statements, known and unknown, whole and cut short.

use mysql_wire::Command;

use super::Maker;
use crate::script::{Mask, Request};

/// Bytes that no server takes, or not from clients. Left out: those that stop the server.
const STRANGE: &[u8] = &[
    0x00, 0x05, 0x06, 0x0b, 0x0f, 0x10, 0x14, 0x1d, 0x22, 0x23, 0x50, 0x7f, 0x80, 0xf0, 0xfb, 0xfc, 0xfd,
    0xff,
];

pub fn add(make: &mut Maker) {
    match make.dice.below(14) {
        0 | 1 => make.add_command(Command::PING, b""),
        2 => {
            let database = make.dice.pick(&[
                "diff",
                "diff",
                "held",
                "nowhere",
                "",
                "mysql",
                "information_schema",
            ]);
            make.add_command(Command::INIT_DB, database.as_bytes());
            make.add_command(Command::INIT_DB, b"diff");
        }
        3 => {
            let mut request = Request::new("statistics", [Command::STATISTICS.0]);
            request.mask = Mask::Digits;
            make.add(request);
        }
        4 => {
            let mut request = Request::new("process info", [Command::PROCESS_INFO.0]);
            request.mask = Mask::Rows;
            make.add(request);
        }
        5 => {
            let option = make
                .dice
                .pick(&[&[0, 0][..], &[1, 0], &[1, 0], &[9, 9], &[], &[1]]);
            make.add_command(Command::SET_OPTION, option);
        }
        6 => make.add_command(Command::RESET_CONNECTION, b""),
        7 => make.add_command(Command::DEBUG, b""),
        8 => make.add_command(Command::PROCESS_KILL, &4_294_967_200_u32.to_le_bytes()),
        9 => {
            let byte = make.dice.pick(STRANGE);
            let body = make.dice.pick(&[&b""[..], b"x", b"diff\0"]);
            make.add_command(Command(byte), body);
        }
        10 => make.add(Request::new("an empty packet", [])),
        11 => {
            // Whole commands with something behind them, or with less than they need. What MariaDB finds
            // behind the end of the shortest is chance.
            let short = [Command::PROCESS_KILL, Command::FIELD_LIST];
            let whole = [
                Command::PING,
                Command::QUERY,
                Command::STMT_PREPARE,
                Command::RESET_CONNECTION,
                Command::DEBUG,
            ];
            let commands = if make.is_mariadb() {
                &whole[..]
            } else {
                &[short, [whole[0], whole[1]]].concat()
            };
            let command = make.dice.pick(commands);
            let body = make.dice.pick(&[&b""[..], b"\0", b"\0\0\0"]);
            make.add_command(command, body);
        }
        12 => {
            let table = make
                .dice
                .pick(&[&b"small\0"[..], b"types\0%", b"missing\0", b"\0", b"small\0id\0"]);
            make.add_command(Command::FIELD_LIST, table);
        }
        _ => make.add_command(Command::REFRESH, &[2]),
    }
}
