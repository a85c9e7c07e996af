//! Locks, handlers, FLUSH: what a session holds on the server; and the server's binary log.

use mysql_wire::Command;

use super::Maker;
use crate::script::Request;

const STATEMENTS: &[&str] = &[
    "SELECT GET_LOCK('own%', 0)",
    "SELECT GET_LOCK('held', 0)",
    "SELECT RELEASE_LOCK('own%')",
    "SELECT IS_FREE_LOCK('own%'), IS_FREE_LOCK('held')",
    "SELECT RELEASE_ALL_LOCKS()",
    "HANDLER small OPEN",
    "HANDLER small OPEN AS h",
    "HANDLER small READ FIRST",
    "HANDLER small READ NEXT LIMIT %",
    "HANDLER small READ `PRIMARY` = (%)",
    "HANDLER h READ amount FIRST",
    "HANDLER small CLOSE",
    "HANDLER h CLOSE",
    "HANDLER missing OPEN",
    "LOCK TABLES small READ, types WRITE",
    "LOCK TABLES bare WRITE",
    "UNLOCK TABLES",
    "SELECT COUNT(*) FROM child",
    "INSERT INTO bare VALUES (%, 'lock')",
    "FLUSH TABLES small",
    "FLUSH TABLES missing",
    "FLUSH STATUS",
    "FLUSH LOCAL TABLES",
    "FLUSH NOTHING",
    "FLUSH ENGINE LOGS",
    "FLUSH TABLES small WITH READ LOCK",
    "CACHE INDEX small IN nothing",
    "LOAD INDEX INTO CACHE small",
    "KILL 4294967199",
    "KILL QUERY 4294967198",
    "KILL 2147483700",
    "KILL CONNECTION 4000000000",
    "BINLOG 'nothing'",
    "DO GET_LOCK('own%', 0)",
    "RESET NOTHING",
    "PURGE BINARY LOGS TO 'missing'",
    "SHOW BINLOG EVENTS IN 'missing'",
    "SET PASSWORD FOR nobody@nowhere = 'x'",
    "DO RELEASE_ALL_LOCKS()",
];

pub fn add(make: &mut Maker) {
    let text = make.statement(STATEMENTS);
    make.add_query(&text);
}

/// COM_BINLOG_DUMP: refused, or the first events of the first log.
pub fn add_stream(make: &mut Maker) {
    for variable in ["source_binlog_checksum", "master_binlog_checksum"] {
        make.add_query(&format!("SET @{variable} = 'CRC32'"));
    }
    make.add_query("SET @mariadb_slave_capability = 4");
    let name = make
        .dice
        .pick(&["binlog.000001", "binlog.000001", "missing.000001", ""]);
    // Not blocking: the answer ends at the end of the log, if it comes to that.
    let body = [
        &4_u32.to_le_bytes()[..],
        &1_u16.to_le_bytes(),
        &77_u32.to_le_bytes(),
        name.as_bytes(),
    ]
    .concat();
    let mut request = Request::new(
        format!("binlog dump of {name:?}"),
        [&[Command::BINLOG_DUMP.0], &body[..]].concat(),
    );
    request.events = make.dice.pick(&[1, 3, 12]);
    make.add(request);
}
