//! Free TCP ports.
//!
//! A port that the kernel gives to `bind(0)` lies in the range from which it also takes the local ports of
//! outgoing connections, so that a server restarted on it may find it taken by somebody's connection. Ports
//! below that range are tried first.
//!
//! A server that is stopped leaves its port to anybody for a while. So that no other test takes the port
//! meanwhile, each process has blocks of ports of its own, and gives each port of a block once. A block
//! belongs to the process that listens on the block's first port.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::SandboxError;

const FIRST_PORT: u16 = 16_384;
/// Where Linux begins with ports for outgoing connections unless told otherwise.
const EPHEMERAL_FIRST: u16 = 32_768;
const BLOCK_PORTS: u16 = 64;

static OWN: Mutex<OwnPorts> = Mutex::new(OwnPorts::none());

/// The ports that other processes which ask this module leave alone.
struct OwnPorts {
    /// Listeners on the first port of each block, open for as long as the process lives.
    blocks: Vec<TcpListener>,
    /// The ports of the last block that have not been given yet.
    rest: Range<u16>,
}

/// A TCP port of 127.0.0.1 that nobody listens on right now. A program that does not ask this function may
/// take the port: whoever uses it must be ready to find it taken.
pub fn free_port() -> Result<u16, SandboxError> {
    if let Some(port) = OWN.lock().unwrap_or_else(PoisonError::into_inner).next() {
        return Ok(port);
    }
    let listener = listen(0).map_err(SandboxError::Port)?;
    Ok(listener.local_addr().map_err(SandboxError::Port)?.port())
}

impl OwnPorts {
    const fn none() -> Self {
        Self {
            blocks: Vec::new(),
            rest: 0..0,
        }
    }

    /// `None` where all blocks are taken.
    fn next(&mut self) -> Option<u16> {
        loop {
            if let Some(port) = self.rest.by_ref().find(|port| listen(*port).is_ok()) {
                return Some(port);
            }
            self.take_block()?;
        }
    }

    /// Begins anywhere, so that processes that start at once seldom try the same blocks.
    fn take_block(&mut self) -> Option<()> {
        let count = ephemeral_first().saturating_sub(FIRST_PORT) / BLOCK_PORTS;
        let begin = nanoseconds() % u32::from(count.max(1));
        let starts = (0..count).map(|index| FIRST_PORT + (begin as u16 + index) % count * BLOCK_PORTS);
        let (start, listener) = starts
            .into_iter()
            .find_map(|start| Some((start, listen(start).ok()?)))?;
        self.blocks.push(listener);
        self.rest = start + 1..start + BLOCK_PORTS;
        Some(())
    }
}

fn listen(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
}

fn ephemeral_first() -> u16 {
    std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| {
            range
                .split_whitespace()
                .next()
                .and_then(|first| first.parse().ok())
        })
        .unwrap_or(EPHEMERAL_FIRST)
}

fn nanoseconds() -> u32 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_port_is_given_once_and_can_be_bound() {
        let ports: HashSet<u16> = (0..200)
            .map(|_| {
                let port = free_port().unwrap();
                listen(port).unwrap();
                port
            })
            .collect();
        assert_eq!(ports.len(), 200);
    }

    #[test]
    fn a_block_belongs_to_whoever_took_it_first() {
        let (mut one, mut other) = (OwnPorts::none(), OwnPorts::none());
        let of = |own: &mut OwnPorts| -> HashSet<u16> { (0..100).map(|_| own.next().unwrap()).collect() };
        assert!(of(&mut one).is_disjoint(&of(&mut other)));
    }
}
