//! Commands of the gateway's own on a session's connection: [`upstream::conversation`], and the words for
//! one that came to nothing.

use std::io::{self, ErrorKind};

use mysql_wire::{Capabilities, OkPacket};

pub(crate) use upstream::conversation::{
    ANSWER_MAX, Broken, Reply, ask, ask_ahead, ask_within, framed, plain, query, rest, run, values,
};

/// The OK packet, if the answer is one and no rows.
pub(crate) fn ok(reply: &Reply, capabilities: Capabilities) -> Option<OkPacket> {
    OkPacket::decode(reply.packet(0)?, capabilities).ok()
}

/// The OK packet that ends an answer, which may have rows.
pub(crate) fn end_ok(reply: &Reply, capabilities: Capabilities) -> Option<OkPacket> {
    OkPacket::decode(reply.packet(reply.end())?, capabilities).ok()
}

/// The words for a conversation that did not come to its end, for logs and for the client.
pub(crate) fn cause(broken: Broken) -> String {
    match broken {
        Broken::Io(error) => error.to_string(),
        Broken::Closed => io::Error::from(ErrorKind::UnexpectedEof).to_string(),
        Broken::Wire(error) => format!("the server's answer makes no sense: {error}"),
        Broken::Unexpected(_) => unexpected("a command of the gateway"),
        Broken::TooLong(_) => unexpected("a command of the gateway (too long)"),
    }
}

/// The words for an answer that does not belong to this command.
pub(crate) fn unexpected(command: &str) -> String {
    format!("the server's answer to {command} is not what belongs there")
}
