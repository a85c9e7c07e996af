//! The same commands in other writes: several at once, byte by byte; and packets that are numbered wrongly.

use mysql_wire::{Capabilities, Command};

use super::{KINDS, Maker};
use crate::script::{Patch, Request, Step, Writes};

/// Longest command that is written byte by byte.
const PIECEMEAL_MAX: usize = 300;

pub fn add(make: &mut Maker) {
    match make.dice.below(3) {
        0 => pieces(make),
        _ => pipeline(make),
    }
}

/// What other kinds would do, in one write: the next command is there before the answer to the last.
fn pipeline(make: &mut Maker) {
    let begin = make.steps.len();
    let count = make.dice.between(2, 12);
    while make.steps.len() < begin + count {
        // All but this kind and those that change the session's end.
        let (_, add, _) = KINDS[make.dice.below(12)];
        add(make);
    }
    let steps = make.steps.split_off(begin);
    let mut together: Vec<Request> = Vec::new();
    for request in steps.into_iter().flat_map(|step| step.requests) {
        let is_ready = match request.patch {
            // Its id is only known once the answer to its prepare is.
            Patch::Statement(slot) => together.iter().all(|earlier| earlier.prepares != Some(slot)),
            _ => true,
        };
        if request.stands_alone()
            || !is_ready
            || together.iter().map(|it| it.payload.len()).sum::<usize>() > 1 << 14
        {
            flush(make, &mut together);
        }
        let alone = request.stands_alone();
        together.push(request);
        if alone {
            flush(make, &mut together);
        }
    }
    flush(make, &mut together);
}

fn flush(make: &mut Maker, together: &mut Vec<Request>) {
    if !together.is_empty() {
        let writes = if make.dice.one_in(4) {
            Writes::InPieces(make.dice.between(5, 60))
        } else {
            Writes::AtOnce
        };
        make.steps.push(Step {
            requests: std::mem::take(together),
            writes,
        });
    }
}

fn pieces(make: &mut Maker) {
    let begin = make.steps.len();
    let (_, add, _) = KINDS[make.dice.below(12)];
    add(make);
    for step in &mut make.steps[begin..] {
        let len: usize = step.requests.iter().map(|request| request.payload.len()).sum();
        if len < PIECEMEAL_MAX {
            step.writes = Writes::InPieces(1);
        }
    }
}

/// Whatever ends a session.
pub fn add_end(make: &mut Maker) {
    match make.dice.below(5) {
        // Servers do not look at these numbers on compressed connections. MySQL closes the connection for
        // them, which need not be the session's.
        0 if !make.compressed && !make.shared => {
            let mut request = make.query("SELECT 'numbered wrongly'");
            request.sequence = make.dice.pick(&[1, 2, 7, 255]);
            request.label = format!("a query with sequence number {}", request.sequence);
            make.add(request);
        }
        0 | 1 => {
            let mut request = Request::new("KILL of itself", kill(make, "KILL "));
            request.patch = Patch::ConnectionId;
            make.add(request);
        }
        2 => {
            let mut request = Request::new("KILL QUERY of itself", kill(make, "KILL QUERY "));
            request.patch = Patch::ConnectionId;
            make.add(request);
        }
        3 => make.add_command(Command::QUIT, b""),
        // The server closes the connection, which need not be the session's.
        _ if make.shared => make.add_query("COMMIT"),
        _ => {
            make.add_query("SET autocommit = 0");
            make.add_query("COMMIT RELEASE");
        }
    }
    make.add_command(Command::PING, b"");
}

/// Without query attributes: the gateway does not look behind them for the connection id, which it has to
/// replace.
fn kill(make: &Maker, text: &str) -> Vec<u8> {
    let attributes: &[u8] = if make.has(Capabilities::QUERY_ATTRIBUTES) {
        &[0, 1]
    } else {
        &[]
    };
    [&[Command::QUERY.0], attributes, text.as_bytes()].concat()
}
