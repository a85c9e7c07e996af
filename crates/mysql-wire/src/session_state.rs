//! Session state changes: what an OK packet with SESSION_STATE_CHANGED says about the session.
//!
//! A sequence of changes, each a kind, a length and data of that length. [`changes`] reads them one by one
//! without copying; a kind that is not known here comes as [`Change::Other`] and can be written again as it
//! was.
//!
//! Sources: MySQL "Session State Information" and `sql/session_tracker.cc`; MariaDB "OK_Packet", section
//! session state info, and its `sql/session_tracker.cc`.

use crate::WireError;
use crate::codec::{Reader, put_lenenc, put_lenenc_bytes};

const SYSTEM_VARIABLES: u8 = 0;
const SCHEMA: u8 = 1;
const STATE_CHANGE: u8 = 2;
const GTIDS: u8 = 3;
const TRANSACTION_CHARACTERISTICS: u8 = 4;
const TRANSACTION_STATE: u8 = 5;

/// The only encoding of GTIDs that there is: text.
const GTIDS_AS_TEXT: u8 = 0;

/// One change of a session's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// A system variable has this value now. NULL comes as an empty value.
    Variable { name: &'a [u8], value: &'a [u8] },
    /// The schema is this one now; empty for none.
    Schema(&'a [u8]),
    /// Something has changed of which there may be more to say, or nothing: user variables, temporary tables,
    /// prepared statements.
    StateChanged(bool),
    /// MySQL: the GTIDs of the session's own transactions, or of all, as `session_track_gtids` says.
    Gtids(&'a [u8]),
    /// Statements that start a transaction like the session's next or current one; empty for the defaults.
    Characteristics(&'a [u8]),
    /// Eight characters, of which each is `_` or what it stands for.
    TransactionState(&'a [u8]),
    /// A kind that no server known here sends.
    Other { kind: u8, data: &'a [u8] },
}

/// The changes in an OK packet's `session_state`, in their order. Ends after the first error.
pub fn changes(encoded: &[u8]) -> Changes<'_> {
    Changes {
        rest: Reader::new(encoded),
        variables: Reader::new(&[]),
    }
}

pub struct Changes<'a> {
    rest: Reader<'a>,
    /// What has not been read of a change of system variables: MariaDB may send several in one.
    variables: Reader<'a>,
}

impl<'a> Iterator for Changes<'a> {
    type Item = Result<Change<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = match (self.variables.is_empty(), self.rest.is_empty()) {
            (false, _) => self.variable(),
            (true, false) => self.change(),
            (true, true) => return None,
        };
        if read.is_err() {
            *self = changes(&[]);
        }
        Some(read)
    }
}

impl<'a> Changes<'a> {
    fn change(&mut self) -> Result<Change<'a>, WireError> {
        let kind = self.rest.u8("session state kind")?;
        let data = self.rest.lenenc_bytes("session state data")?;
        let mut reader = Reader::new(data);
        let change = match kind {
            SYSTEM_VARIABLES => {
                self.variables = reader;
                return self.variable();
            }
            SCHEMA => Change::Schema(reader.lenenc_bytes("schema")?),
            // The only kind whose text has no length of its own.
            STATE_CHANGE => Change::StateChanged(reader.bytes(data.len(), "state change")? == b"1"),
            GTIDS if data.first() == Some(&GTIDS_AS_TEXT) => {
                reader.u8("encoding of GTIDs")?;
                Change::Gtids(reader.lenenc_bytes("GTIDs")?)
            }
            TRANSACTION_CHARACTERISTICS => {
                Change::Characteristics(reader.lenenc_bytes("transaction characteristics")?)
            }
            TRANSACTION_STATE => Change::TransactionState(reader.lenenc_bytes("transaction state")?),
            kind => return Ok(Change::Other { kind, data }),
        };
        match reader.is_empty() {
            true => Ok(change),
            false => Err(WireError::Invalid {
                field: "length of a session state change",
            }),
        }
    }

    fn variable(&mut self) -> Result<Change<'a>, WireError> {
        Ok(Change::Variable {
            name: self.variables.lenenc_bytes("variable's name")?,
            value: self.variables.lenenc_bytes("variable's value")?,
        })
    }
}

impl Change<'_> {
    /// Appends this change to what becomes an OK packet's `session_state`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Change::Variable { name, value } => put(out, SYSTEM_VARIABLES, None, &[name, value]),
            Change::Schema(name) => put(out, SCHEMA, None, &[name]),
            Change::StateChanged(changed) => {
                put(out, STATE_CHANGE, Some(if changed { b'1' } else { b'0' }), &[]);
            }
            Change::Gtids(gtids) => put(out, GTIDS, Some(GTIDS_AS_TEXT), &[gtids]),
            Change::Characteristics(text) => put(out, TRANSACTION_CHARACTERISTICS, None, &[text]),
            Change::TransactionState(state) => put(out, TRANSACTION_STATE, None, &[state]),
            Change::Other { kind, data } => {
                out.push(kind);
                put_lenenc_bytes(out, data);
            }
        }
    }
}

/// A change whose data is a byte, maybe, and texts.
fn put(out: &mut Vec<u8>, kind: u8, prefix: Option<u8>, texts: &[&[u8]]) {
    let texts_len: usize = texts.iter().map(|text| lenenc_len(text.len()) + text.len()).sum();
    out.push(kind);
    put_lenenc(out, (prefix.iter().len() + texts_len) as u64);
    out.extend(prefix);
    for text in texts {
        put_lenenc_bytes(out, text);
    }
}

/// Bytes that a length takes up.
fn lenenc_len(value: usize) -> usize {
    match value {
        0..=0xfa => 1,
        0xfb..=0xffff => 3,
        0x1_0000..=0xff_ffff => 4,
        _ => 9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(encoded: &[u8]) -> Result<Vec<Change<'_>>, WireError> {
        changes(encoded).collect()
    }

    /// Recorded from MySQL 9.7; MariaDB 10.11 sends the same but for GTIDs, which are a variable there.
    #[test]
    fn changes_are_read_as_servers_send_them() {
        // SET autocommit=0, time_zone='+01:00'
        let variables = b"\x00\x0f\x0aautocommit\x03OFF\x00\x11\x09time_zone\x06+01:00\x02\x011";
        let variable = |name, value| Change::Variable { name, value };
        let expected = vec![
            variable(b"autocommit", b"OFF"),
            variable(b"time_zone", b"+01:00"),
            Change::StateChanged(true),
        ];
        assert_eq!(read(variables), Ok(expected));

        // USE t
        let schema = b"\x01\x02\x01t\x02\x011";
        assert_eq!(
            read(schema),
            Ok(vec![Change::Schema(b"t"), Change::StateChanged(true)])
        );

        // START TRANSACTION READ WRITE, WITH CONSISTENT SNAPSHOT
        let begin =
            b"\x05\x09\x08T_R_____\x04\x38\x37START TRANSACTION WITH CONSISTENT SNAPSHOT, READ WRITE;";
        let expected = vec![
            Change::TransactionState(b"T_R_____"),
            Change::Characteristics(b"START TRANSACTION WITH CONSISTENT SNAPSHOT, READ WRITE;"),
        ];
        assert_eq!(read(begin), Ok(expected));

        // COMMIT
        let commit =
            b"\x03\x28\x00\x266b3efef1-e51e-11f1-8841-02fc00000001:3\x05\x09\x08________\x04\x01\x00";
        let expected = vec![
            Change::Gtids(b"6b3efef1-e51e-11f1-8841-02fc00000001:3"),
            Change::TransactionState(b"________"),
            Change::Characteristics(b""),
        ];
        assert_eq!(read(commit), Ok(expected.clone()));
        let mut again = Vec::new();
        expected.iter().for_each(|change| change.encode(&mut again));
        assert_eq!(again, commit);
    }

    #[test]
    fn several_variables_may_come_in_one_change() {
        let expected = vec![
            Change::Variable {
                name: b"a",
                value: b"1",
            },
            Change::Variable {
                name: b"b",
                value: b"",
            },
        ];
        assert_eq!(read(b"\x00\x07\x01a\x011\x01b\x00"), Ok(expected));
    }

    #[test]
    fn what_is_not_known_is_kept() {
        let encoded = b"\x09\x03abc\x03\x04\x01\x02xx";
        let expected = vec![
            Change::Other {
                kind: 9,
                data: b"abc",
            },
            Change::Other {
                kind: 3,
                data: b"\x01\x02xx",
            },
        ];
        assert_eq!(read(encoded), Ok(expected.clone()));
        let mut again = Vec::new();
        expected.iter().for_each(|change| change.encode(&mut again));
        assert_eq!(again, encoded);
    }

    #[test]
    fn an_error_ends_the_changes() {
        for damaged in [
            &b"\x01"[..],
            b"\x01\x05\x04tes",
            b"\x01\x05\x03test",
            b"\x00\x03\x01a\x05",
            b"\x00\x00",
            b"\x05\xff",
        ] {
            let mut changes = changes(damaged);
            assert!(changes.next().unwrap().is_err(), "{damaged:?}");
            assert!(changes.next().is_none());
        }
    }

    fn any_change() -> impl Strategy<Value = (u8, Vec<u8>, Vec<u8>)> {
        let text = || {
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..20),
                proptest::collection::vec(any::<u8>(), 240..270)
            ]
        };
        (0..8_u8, text(), text())
    }

    proptest! {
        #[test]
        fn changes_round_trip(parts in proptest::collection::vec(any_change(), 0..6)) {
            let sent: Vec<Change<'_>> = parts.iter().map(|(kind, a, b)| match kind {
                0 => Change::Variable { name: a, value: b },
                1 => Change::Schema(a),
                2 => Change::StateChanged(a.len() % 2 == 0),
                3 => Change::Gtids(a),
                4 => Change::Characteristics(a),
                5 => Change::TransactionState(a),
                kind => Change::Other { kind: *kind, data: a },
            }).collect();
            let mut encoded = Vec::new();
            sent.iter().for_each(|change| change.encode(&mut encoded));
            prop_assert_eq!(read(&encoded), Ok(sent));
        }
    }
}
