//! The offer of a session to another process.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use net::Peer;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::control::Control;
use crate::frontend::listener_state::ListenerState;
use crate::hand_over::Stays;
use crate::relay::Traffic;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// A session that is understood: `engine::packed`.
    Understood,
    /// A session of mode `session` that is forwarded.
    Forwarded,
    /// A connection of mode `tcp`.
    Bytes,
}

/// The head of an offer: the facts by which the new process finds a place for any session.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    /// The number that the client knows.
    pub(crate) id: u32,
    listener: String,
    mode: String,
    cluster: String,
    moves: bool,
    shares: bool,
    /// The user's name as lists show it.
    pub(crate) user: String,
    /// The schema that the client has named at its login.
    pub(crate) login_schema: Option<Vec<u8>>,
    /// The low byte of the collation that the client has named there.
    pub(crate) login_collation: u8,
    /// The client's address; `None` for a Unix socket.
    client: Option<SocketAddr>,
    age_ms: u64,
    pub(crate) failed_logins: u16,
}

impl Head {
    pub(crate) fn new(kind: Kind, control: &Control, listener: &ListenerState, client: &Peer) -> Self {
        let config = &listener.config;
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            kind,
            id: control.id,
            listener: config.name.clone(),
            mode: config.mode.word().to_owned(),
            cluster: config.cluster.clone(),
            moves: config.moves,
            shares: config.shares(),
            user: control.user().as_deref().unwrap_or_default().to_owned(),
            login_schema: control.login_schema().map(|schema| schema.to_vec()),
            login_collation: control.login_collation(),
            client: client.socket_addr(),
            age_ms: ms(control.began.elapsed()),
            failed_logins: control.failed_logins() as u16,
        }
    }

    /// Whether sessions of this listener are served as the offered session was.
    pub(crate) fn is_of(&self, listener: &ListenerState) -> bool {
        let config = &listener.config;
        config.name == self.listener
            && config.protocol == config::Protocol::Mysql
            && config.mode.word() == self.mode
            && config.cluster == self.cluster
            && config.moves == self.moves
            && config.shares() == self.shares
    }

    pub(crate) fn client(&self) -> Peer {
        self.client.map_or(Peer::Unix, Peer::Tcp)
    }

    pub(crate) fn began(&self) -> Instant {
        let now = Instant::now();
        now.checked_sub(Duration::from_millis(self.age_ms)).unwrap_or(now)
    }
}

/// Bytes and commands so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) from_client: u64,
    pub(crate) to_client: u64,
    pub(crate) commands: u64,
}

impl Counts {
    pub(crate) fn of(traffic: &Traffic) -> Self {
        Self {
            from_client: traffic.from_client,
            to_client: traffic.to_client,
            commands: traffic.commands,
        }
    }

    /// Goes on counting in the other process, from these counts.
    pub(crate) fn go_on(self, traffic: &mut Traffic) {
        (traffic.from_client, traffic.to_client, traffic.commands) =
            (self.from_client, self.to_client, self.commands);
    }
}

/// Head and body of an offer in one; `None` where they are longer than `max`.
pub(crate) fn join(head: &Head, body: &impl Serialize, max: usize) -> Option<Zeroizing<Vec<u8>>> {
    // 16 KiB are usually enough.
    let bytes = Zeroizing::new(Vec::with_capacity(16 * 1024));
    let mut bounded = Bounded { bytes, max };
    bounded.write_all(&[0; 4]).ok()?;
    serde_json::to_writer(&mut bounded, head).ok()?;
    let length = u32::try_from(bounded.bytes.len() - 4).ok()?.to_le_bytes();
    serde_json::to_writer(&mut bounded, body).ok()?;
    bounded.bytes[..4].copy_from_slice(&length);
    Some(bounded.bytes)
}

/// Appends a part. A vector that grows by itself would leave its former memory as it was, with passwords.
pub(crate) fn append(whole: &mut Zeroizing<Vec<u8>>, part: &[u8]) {
    let needed = whole.len() + part.len();
    if needed > whole.capacity() {
        let mut grown = Zeroizing::new(Vec::<u8>::with_capacity(2 * needed));
        grown.extend_from_slice(whole);
        *whole = grown;
    }
    whole.extend_from_slice(part);
}

/// A writer that refuses what is too long before it takes memory.
struct Bounded {
    bytes: Zeroizing<Vec<u8>>,
    max: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        append(&mut self.bytes, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The body that [`join`] was given.
///
/// # Errors
/// The body is in another form. The log says at which byte, and not what stands there: it may be a password.
pub(crate) fn read<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, Stays> {
    serde_json::from_slice(body).map_err(|error| {
        let (kind, byte) = (error.classify(), error.column());
        tracing::warn!(
            ?kind,
            byte,
            "a session of the process before this one is in another form"
        );
        Stays::Version
    })
}

/// Splits an offer into its head and its body.
pub(crate) fn split(bytes: &[u8]) -> Option<(Head, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (head, body) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((serde_json::from_slice(head).ok()?, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_appended_to_memory_that_has_room_for_them() {
        let mut whole = Zeroizing::new(Vec::new());
        let mut expected = Vec::new();
        for part in 0..100_u8 {
            let part = vec![part; usize::from(part)];
            append(&mut whole, &part);
            expected.extend_from_slice(&part);
            assert_eq!(*whole, expected);
        }
    }
}
