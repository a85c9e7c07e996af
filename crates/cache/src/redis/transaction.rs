//! The commands between MULTI and EXEC, kept as they came.

use resp_wire::{Args, Limits, ParseStep, Parser, Version, Writer};

use super::command::{Command, Nature};
use super::refusal::Refusal;

/// Bytes of commands that one transaction may have.
const QUEUE_MAX: usize = Limits::LOGGED_IN.request_bytes;

/// What EXEC will execute.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Requests, one behind the other.
    bytes: Vec<u8>,
    count: usize,
    reads: bool,
    /// A command was refused: there will be no EXEC.
    is_spoiled: bool,
}

impl Queue {
    pub(crate) fn push(&mut self, command: Command, args: Args<'_>) -> Result<(), Refusal> {
        let size: usize = args.iter().map(|arg| arg.len() + 16).sum();
        if self.bytes.len() + size > QUEUE_MAX {
            self.spoil();
            return Err(Refusal::TooLarge(QUEUE_MAX));
        }
        let mut writer = Writer::new(&mut self.bytes, Version::V2);
        writer.array(args.len());
        args.iter().for_each(|arg| writer.bulk(arg));
        self.count += 1;
        self.reads |= command.spec().nature == Nature::Read;
        Ok(())
    }

    /// Its commands are not executed: one was refused.
    pub(crate) fn spoil(&mut self) {
        self.is_spoiled = true;
        self.bytes = Vec::new();
    }

    /// Whether a command was refused.
    pub(crate) fn is_spoiled(&self) -> bool {
        self.is_spoiled
    }

    /// Whether one of its commands reads rows.
    pub(crate) fn reads(&self) -> bool {
        self.reads
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Calls `each` with the commands in order, until it fails.
    pub(crate) fn each<E>(&self, mut each: impl FnMut(Command, Args<'_>) -> Result<(), E>) -> Result<(), E> {
        let (mut parser, mut rest) = (Parser::default(), &self.bytes[..]);
        while let Ok(ParseStep::Request(n)) = parser.parse(rest, &Limits::LOGGED_IN) {
            let args = parser.args(rest);
            // Only known commands are put here.
            if let Some(command) = args.get(0).and_then(Command::find) {
                each(command, args)?;
            }
            rest = &rest[n..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(queue: &mut Queue, request: &[u8]) -> Result<(), Refusal> {
        let mut parser = Parser::default();
        assert!(matches!(
            parser.parse(request, &Limits::LOGGED_IN),
            Ok(ParseStep::Request(_))
        ));
        let args = parser.args(request);
        queue.push(Command::find(args.get(0).unwrap()).unwrap(), args)
    }

    #[test]
    fn commands_come_back_in_order() {
        let mut queue = Queue::default();
        push(&mut queue, b"get 'a b@1'\r\n").unwrap();
        push(&mut queue, b"PING\r\n").unwrap();
        let mut seen = Vec::new();
        let each = |command, args: Args<'_>| {
            seen.push((command, args.iter().map(<[u8]>::to_vec).collect::<Vec<_>>()));
            Ok::<_, ()>(())
        };
        queue.each(each).unwrap();
        let expected = [
            (Command::Get, vec![b"get".to_vec(), b"a b@1".to_vec()]),
            (Command::Ping, vec![b"PING".to_vec()]),
        ];
        assert_eq!((seen.as_slice(), queue.len()), (&expected[..], 2));
    }

    #[test]
    fn a_transaction_has_a_bound() {
        let mut queue = Queue::default();
        let request = format!("get {}\r\n", "x".repeat(60_000));
        let pushed = (0..100)
            .take_while(|_| push(&mut queue, request.as_bytes()).is_ok())
            .count();
        assert_eq!(pushed, QUEUE_MAX / 60_000);
        assert!(queue.is_spoiled() && queue.bytes.capacity() == 0);
    }
}
