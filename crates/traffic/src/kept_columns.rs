//! The columns of prepared statements, for clients that keep their definitions (MARIADB_CACHE_METADATA): a
//! server repeats no definitions that such a client has.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use mysql_wire::statement::{LAST_PREPARED, statement_id};
use mysql_wire::{Capabilities, Command};

use crate::checks::{self, Column, Read};

/// The columns of one session's prepared statements.
#[derive(Default)]
pub(crate) struct KeptColumns {
    /// By the statement's number. Statements whose columns are not known are left out.
    statements: HashMap<u32, Box<[Column]>, RandomState>,
    /// The statement that was prepared last, which clients need not name; 0 for none.
    last_prepared: u32,
    size: usize,
}

impl KeptColumns {
    /// Whether such a client keeps definitions.
    pub(crate) fn are_those_of(capabilities: Capabilities) -> bool {
        capabilities.contains(Capabilities::MARIADB_CACHE_METADATA)
    }

    /// Bytes that they take.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Reads the answer to a command as [`checks::read_with`] does. `payload`: of the command, whose end may
    /// be cut.
    pub(crate) fn read(
        &mut self,
        command: Command,
        capabilities: Capabilities,
        payload: &[u8],
        packets: &[u8],
    ) -> Read {
        let named = self.named(payload);
        let known = self.statements.get(&named).map_or(&[][..], |columns| columns);
        let mut read = checks::read_with(command, capabilities, known, packets);
        match command {
            Command::STMT_PREPARE => {
                let number = read.prepared.map_or(0, |(number, _)| number);
                self.last_prepared = number;
                self.set(number, read.columns.take().unwrap_or_default());
            }
            Command::STMT_CLOSE => self.set(named, Box::default()),
            Command::RESET_CONNECTION | Command::CHANGE_USER => *self = Self::default(),
            _ => {
                if let Some(columns) = read.columns.take() {
                    self.set(named, columns);
                }
            }
        }
        read
    }

    /// The answer to a command was cut: it may have told other columns.
    pub(crate) fn forget(&mut self, command: Command, payload: &[u8]) {
        match command {
            // Nobody knows which number its statement has.
            Command::STMT_PREPARE => *self = Self::default(),
            _ => self.set(self.named(payload), Box::default()),
        }
    }

    /// The statement that a command names; 0 for none.
    fn named(&self, payload: &[u8]) -> u32 {
        match statement_id(payload) {
            Ok(Some(LAST_PREPARED)) => self.last_prepared,
            named => named.ok().flatten().unwrap_or(0),
        }
    }

    fn set(&mut self, statement: u32, columns: Box<[Column]>) {
        let size_of = |columns: &[Column]| size_of::<(u32, Box<[Column]>)>() + size_of_val(columns);
        let size = size_of(&columns);
        let other = match columns.is_empty() || statement == 0 {
            true => self.statements.remove(&statement),
            false => {
                self.size += size;
                self.statements.insert(statement, columns)
            }
        };
        self.size -= other.map_or(0, |other| size_of(&other));
    }
}

#[cfg(test)]
mod tests {
    use mysql_wire::write_packet;

    use super::*;

    const CAPABILITIES: Capabilities = Capabilities(
        Capabilities::PROTOCOL_41.0 | Capabilities::DEPRECATE_EOF.0 | Capabilities::MARIADB_CACHE_METADATA.0,
    );
    const EXECUTE: [u8; 10] = [Command::STMT_EXECUTE.0, 7, 0, 0, 0, 0, 1, 0, 0, 0];
    const EXECUTE_LAST: [u8; 10] = [Command::STMT_EXECUTE.0, 0xff, 0xff, 0xff, 0xff, 0, 1, 0, 0, 0];
    const PREPARE: &[u8] = b"\x16SELECT 1";
    /// A column's type is near the end of its definition.
    const NUMBER: &[u8] = &[3, 0, 0, 0, 0, 0];
    const ROW: &[u8] = &[0, 0, 7, 0, 0, 0];
    const END: &[u8] = &[0xfe, 0, 0, 2, 0, 0, 0];
    const PREPARED: &[&[u8]] = &[&[0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0], NUMBER];
    const WITH: &[&[u8]] = &[&[1, 1], NUMBER, ROW, END];
    const WITHOUT: &[&[u8]] = &[&[1, 0], ROW, END];

    /// Whether the answer could be read.
    fn reads(kept: &mut KeptColumns, command: &[u8], payloads: &[&[u8]]) -> bool {
        let (mut packets, mut sequence) = (Vec::new(), 1);
        for payload in payloads {
            write_packet(&mut packets, &mut sequence, payload);
        }
        kept.read(Command(command[0]), CAPABILITIES, command, &packets)
            .is_whole
    }

    #[test]
    fn executions_without_definitions_are_read() {
        for tells in [(PREPARE, PREPARED), (&EXECUTE[..], WITH)] {
            let mut kept = KeptColumns::default();
            assert!(!reads(&mut kept, &EXECUTE, WITHOUT));
            assert!(reads(&mut kept, tells.0, tells.1));
            assert!(reads(&mut kept, &EXECUTE, WITHOUT));
        }
    }

    #[test]
    fn the_statement_that_was_prepared_last_need_not_be_named() {
        let mut kept = KeptColumns::default();
        assert!(reads(&mut kept, PREPARE, PREPARED));
        assert!(reads(&mut kept, &EXECUTE_LAST, WITHOUT));
        assert!(reads(&mut kept, PREPARE, &[b"\xff\x28\x04#42000no"]));
        assert!(!reads(&mut kept, &EXECUTE_LAST, WITHOUT), "there is none");
        assert!(reads(&mut kept, &EXECUTE, WITHOUT));
    }

    #[test]
    fn columns_end_with_their_statement() {
        let close = [Command::STMT_CLOSE.0, 7, 0, 0, 0];
        for ends in [
            &close[..],
            &[Command::RESET_CONNECTION.0],
            &[Command::CHANGE_USER.0],
        ] {
            let mut kept = KeptColumns::default();
            assert!(reads(&mut kept, PREPARE, PREPARED) && kept.size() > 0);
            let size = kept.size();
            assert!(
                reads(&mut kept, PREPARE, PREPARED) && kept.size() == size,
                "the other one is gone"
            );
            reads(&mut kept, ends, &[]);
            assert_eq!(kept.size(), 0);
            assert!(!reads(&mut kept, &EXECUTE, WITHOUT));
        }
    }

    #[test]
    fn an_answer_that_is_cut_may_have_told_other_columns() {
        for cut in [PREPARE, &EXECUTE] {
            let mut kept = KeptColumns::default();
            assert!(reads(&mut kept, PREPARE, PREPARED));
            kept.forget(Command(cut[0]), cut);
            assert!(kept.size() == 0 && !reads(&mut kept, &EXECUTE, WITHOUT));
        }
    }
}
