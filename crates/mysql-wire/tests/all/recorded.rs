//! Responses that real servers sent: `traces/`, recorded by `traces/record.py`.

use mysql_wire::{Capabilities, Command};

pub(crate) struct Recorded {
    pub(crate) what: String,
    pub(crate) capabilities: Capabilities,
    pub(crate) command: Command,
    pub(crate) bytes: Vec<u8>,
}

impl Recorded {
    pub(crate) fn asks_for_cursor(&self) -> bool {
        self.what.contains("cursor") || self.what == "execute_no_result"
    }
}

pub(crate) const TRACES: [&str; 3] = [
    include_str!("../traces/mysql-9.7.trace"),
    include_str!("../traces/mariadb-10.11.trace"),
    include_str!("../traces/mariadb-11.8.trace"),
];

pub(crate) fn recorded(trace: &str) -> impl Iterator<Item = Recorded> {
    trace.lines().map(|line| {
        let mut words: Vec<&str> = line.split(' ').collect();
        let hex = words.pop().unwrap();
        let command = Command(words.pop().unwrap().parse().unwrap());
        let capabilities = words.pop().unwrap().strip_prefix("0x").unwrap();
        Recorded {
            what: words.join(" "),
            capabilities: Capabilities(u64::from_str_radix(capabilities, 16).unwrap()),
            command,
            bytes: hex.as_bytes().chunks(2).map(|pair| byte(pair).unwrap()).collect(),
        }
    })
}

fn byte(pair: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()
}
