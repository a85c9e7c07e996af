//! Packets of 16 MiB and more in both directions, and statements that take long. They are in no mixed script.

use mysql_wire::{Capabilities, Command};

use super::Maker;
use super::parameters::{Parameter, encode};
use super::prepared::prepare_text;
use crate::script::{Patch, Request};

const MAX_PAYLOAD: usize = 0xff_ffff;
/// By how much a payload is longer than one packet: exactly one, and a first byte 0xfe that is not the end of
/// rows.
const MORE: [usize; 4] = [0, 1, 6, 70_000];
/// Sizes of statements and files in sessions that the gateway understands: how it passes them on is the same
/// for all of these sessions, and each takes servers a second.
const FEWER: [usize; 2] = [0, 70_000];

/// All of it, once.
pub fn add(make: &mut Maker) {
    for more in MORE {
        // Behind the first column with its length of four bytes comes a second of one.
        make.add_query(&format!("SELECT REPEAT('x', {}), 1", MAX_PAYLOAD - 6 + more));
    }
    for more in sizes(make) {
        add_query_of(make, MAX_PAYLOAD + more);
    }
    add_query_of(make, MAX_PAYLOAD - 1);
    make.add_command(Command::PING, b"");
    add_long_data(make);
    add_file(make);
    if make.is_mariadb() {
        add_progress(make);
    }
}

fn sizes(make: &Maker) -> Vec<usize> {
    match make.shared {
        true => FEWER.to_vec(),
        false => MORE.to_vec(),
    }
}

fn add_query_of(make: &mut Maker, size: usize) {
    let mut request = make.query("SELECT 'a long statement'");
    let blanks = size - request.payload.len();
    request.payload.extend_from_slice(&vec![b' '; blanks]);
    request.label = format!("a query of {size} bytes");
    make.add(request);
}

fn add_long_data(make: &mut Maker) {
    let slot = prepare_text(make, "REPLACE INTO blobs VALUES (1, ?)", 1);
    let data = vec![b'L'; MAX_PAYLOAD + make.dice.pick(&MORE)];
    let head = [Command::STMT_SEND_LONG_DATA.0, 0, 0, 0, 0, 0, 0];
    let mut long = Request::new("long data of more than 16 MiB", [&head[..], &data].concat());
    long.patch = Patch::Statement(slot);
    make.add(long);
    let named = make.has(Capabilities::QUERY_ATTRIBUTES);
    let values = encode(
        &[Parameter {
            kind: [0xfc, 0],
            value: None,
        }],
        named,
        true,
        &[0],
    );
    let head = [
        Command::STMT_EXECUTE.0,
        0,
        0,
        0,
        0,
        if named { 8 } else { 0 },
        1,
        0,
        0,
        0,
    ];
    let mut execute = Request::new("execute with it", [&head[..], &values].concat());
    execute.patch = Patch::Statement(slot);
    make.add(execute);
    make.add_query("SELECT b, LENGTH(b) FROM blobs");
    let slot = prepare_text(make, "SELECT b FROM blobs", 0);
    let head = [Command::STMT_EXECUTE.0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    let mut execute = Request::new("execute, for a binary row", head);
    execute.patch = Patch::Statement(slot);
    make.add(execute);
}

/// Not with MariaDB on a compressed link: a server of 10.11.19 that is sent the first of these files over the
/// compressed protocol, by any client, loads one row of the two, and never answers to the second.
fn add_file(make: &mut Maker) {
    if make.is_mariadb() && make.compressed {
        return;
    }
    let load = "LOAD DATA LOCAL INFILE 'f' REPLACE INTO TABLE loaded FIELDS TERMINATED BY ',' (id, @x, n) \
                SET name = LENGTH(@x)";
    for more in sizes(make) {
        let mut request = make.query(load);
        let value = vec![b'y'; MAX_PAYLOAD - 5 + more];
        request.file = Some(vec![[b"5,", &value[..], b",5\n"].concat(), b"6,z,6\n".to_vec()]);
        request.label = format!("LOAD DATA LOCAL with a packet of 16 MiB and {more} bytes");
        make.add(request);
        make.add_query("SELECT * FROM loaded ORDER BY id");
    }
}

/// MariaDB reports every second at most.
fn add_progress(make: &mut Maker) {
    make.add_query("SET progress_report_time = 1");
    make.add_query("CREATE TABLE much AS SELECT seq id, REPEAT('p', 40) v FROM seq_1_to_300000");
    make.add_query("ALTER TABLE much ADD PRIMARY KEY (id), ADD KEY (v), ALGORITHM = COPY");
}
