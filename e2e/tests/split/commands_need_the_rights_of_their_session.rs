//! Commands for administrators and replicas go to the server with the session's own rights. What MariaDB does
//! for COM_REFRESH with the flag 0x80 is RESET MASTER: it wants the privilege RELOAD, and deletes the binary
//! log.

use e2e::packets::{Client, Identity};
use mysql_wire::{Capabilities, Command};
use sandbox::{Kind, PASSWORD, Sandbox, USER};

use crate::cluster;

const ORDINARY: &str = "ordinary";

fn connect(address: &str, user: &'static str) -> Client {
    let identity = Identity {
        user,
        password: PASSWORD,
        database: None,
        charset: 45,
        capabilities: Capabilities::PROTOCOL_41
            | Capabilities::SECURE_CONNECTION
            | Capabilities::PLUGIN_AUTH
            | Capabilities::TRANSACTIONS,
    };
    let (client, verdict) = Client::connect(address, &identity).unwrap();
    assert_eq!(verdict.payload[0], 0, "{:?}", verdict.payload);
    client
}

/// Commands with what is in them, all of which an ordinary account is refused.
fn for_others() -> Vec<Vec<u8>> {
    let mut commands: Vec<Vec<u8>> = (0..8).map(|bit| vec![Command::REFRESH.0, 1 << bit]).collect();
    let dump = vec![Command::BINLOG_DUMP.0, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    let register = [&[Command::REGISTER_SLAVE.0, 99, 0, 0, 0][..], &[0; 13]].concat();
    commands.extend([vec![Command::REFRESH.0, 0xff], dump, register]);
    commands.extend([Command::DEBUG, Command::SHUTDOWN].map(|command| vec![command.0, 0]));
    commands
}

fn answer(client: &mut Client, command: &[u8]) -> Vec<u8> {
    client.send_payload(0, command).unwrap();
    client.packet().unwrap().payload
}

fn binary_log(sandbox: &Sandbox) -> String {
    sandbox.primary().sql("SHOW BINARY LOGS").unwrap()
}

#[test]
fn and_bind_nobody_where_they_are_refused() {
    let sandbox = &e2e::servers(1)[0];
    let server = sandbox.primary().address();
    sandbox
        .primary()
        .sql(&format!("CREATE USER {ORDINARY}@'%' IDENTIFIED BY '{PASSWORD}'"))
        .unwrap();
    let gateway = cluster::narrow(sandbox, 1)
        .tables(&cluster::user(ORDINARY, PASSWORD))
        .start();
    let before = binary_log(sandbox);
    let (mut direct, mut own) = (connect(&server, ORDINARY), connect(&gateway.address(), ORDINARY));
    for command in for_others() {
        let refused = answer(&mut own, &command);
        assert_eq!(refused[0], 0xff, "{command:x?}: {}", refused.escape_ascii());
        assert_eq!(refused, answer(&mut direct, &command), "{command:x?}");
        // One connection for all: it is free once nobody can ask for the error any more.
        own.ask("SELECT COUNT(*) FROM information_schema.schemata");
        let mut other = connect(&gateway.address(), USER);
        assert_eq!(other.ask("SELECT 7"), [b"\x017"], "behind {command:x?}");
    }
    assert_eq!(own.ask("FOREBAY SHOW PINS"), [b""; 0]);
    assert_eq!(binary_log(sandbox), before);

    if e2e::kind() == Kind::Mariadb {
        // FLUSH LOGS wants the same privilege. On a busy machine RESET MASTER fails at times, even where it
        // may be executed (1098, no name for the new log).
        let flush = [Command::REFRESH.0, 0x02];
        let done = answer(&mut connect(&gateway.address(), USER), &flush);
        assert_eq!(done[0], 0, "{}", done.escape_ascii());
        assert_ne!(binary_log(sandbox), before, "who has the right may do it");
    }
}
