//! Packets of 16 MiB and more in both directions. Each costs a second, so they are in no mixed script.

use mysql_wire::Command;

use super::Maker;
use super::parameters::Parameter;
use super::prepared::prepare_text;
use crate::script::{Patch, Request};

const MAX_PAYLOAD: usize = 0xff_ffff;

pub fn add(make: &mut Maker) {
    let around = make.dice.pick(&[0, 1, 2, 17, 70_000]);
    match make.dice.below(5) {
        0 => {
            // A row of exactly so many bytes, or nearly: the length of the value takes four.
            let size = MAX_PAYLOAD - 4 - 2 + around;
            make.add_query(&format!("SELECT REPEAT('x', {size}), 1"));
        }
        1 => {
            let text = format!(
                "SELECT LENGTH('{}') /* {around} */",
                "q".repeat(MAX_PAYLOAD - 40 + around)
            );
            let mut request = make.query(&text);
            request.label = format!("a query of {} bytes", request.payload.len());
            make.add(request);
        }
        2 => {
            let mut request = make.query("SELECT 'exactly one full packet'");
            request.payload.resize(MAX_PAYLOAD, b' ');
            request.label = format!("a query of {} bytes", request.payload.len());
            make.add(request);
        }
        3 => {
            let slot = prepare_text(make, "REPLACE INTO blobs VALUES (1, ?)", 1);
            let data = vec![b'L'; MAX_PAYLOAD + around];
            let mut long = Request::new(
                "long data of more than 16 MiB",
                [&[Command::STMT_SEND_LONG_DATA.0, 0, 0, 0, 0, 0, 0], &data[..]].concat(),
            );
            long.patch = Patch::Statement(slot);
            make.add(long);
            let named = make.has(mysql_wire::Capabilities::QUERY_ATTRIBUTES);
            let parameter = Parameter {
                kind: [0xfc, 0],
                value: None,
            };
            let values = super::parameters::encode(&[parameter], named, true, &[0]);
            let flags = if named { 8 } else { 0 };
            let mut execute = Request::new(
                "execute with it",
                [
                    &[Command::STMT_EXECUTE.0, 0, 0, 0, 0, flags, 1, 0, 0, 0],
                    &values[..],
                ]
                .concat(),
            );
            execute.patch = Patch::Statement(slot);
            make.add(execute);
            make.add_query("SELECT b, LENGTH(b) FROM blobs");
        }
        _ => {
            let mut request = make.query("LOAD DATA LOCAL INFILE 'f' REPLACE INTO TABLE loaded FIELDS TERMINATED BY ',' (id, @x, n) SET name = LENGTH(@x)");
            request.file = Some(vec![
                [b"5,", &vec![b'y'; MAX_PAYLOAD - 4 + around][..], b",5\n"].concat(),
                b"6,z,6\n".to_vec(),
            ]);
            request.label = "LOAD DATA LOCAL of a packet of more than 16 MiB".into();
            make.add(request);
            make.add_query("SELECT * FROM loaded");
        }
    }
    make.add_command(Command::PING, b"");
}
