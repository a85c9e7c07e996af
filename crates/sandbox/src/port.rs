//! Free TCP ports.
//!
//! A port that the kernel gives to `bind(0)` lies in the range from which it also takes the local ports of
//! outgoing connections, so that a server restarted on it may find it taken by somebody's connection. Ports
//! below that range are tried first, in an order that differs from process to process.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::SandboxError;

const FIRST_PORT: u16 = 16_384;
/// Where Linux begins with ports for outgoing connections unless told otherwise.
const EPHEMERAL_FIRST: u16 = 32_768;
const TRIES: usize = 200;

/// A TCP port of 127.0.0.1 that nobody listens on right now. It is not reserved: whoever uses it must be
/// ready to find it taken.
///
/// # Errors
/// None was found, nor could the kernel name one.
pub fn free_port() -> Result<u16, SandboxError> {
    let end = ephemeral_first();
    if end > FIRST_PORT {
        for _ in 0..TRIES {
            let port = FIRST_PORT + (next_number() % u32::from(end - FIRST_PORT)) as u16;
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(port);
            }
        }
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(SandboxError::Port)?;
    Ok(listener.local_addr().map_err(SandboxError::Port)?.port())
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

/// Numbers that differ between processes and between calls; nothing depends on how random they are.
fn next_number() -> u32 {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.subsec_nanos());
    let mixed = nanos ^ std::process::id().rotate_left(16) ^ CALLS.fetch_add(0x9e37_79b9, Ordering::Relaxed);
    mixed.wrapping_mul(0x85eb_ca6b) >> 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_can_be_bound() {
        for _ in 0..100 {
            let port = free_port().unwrap();
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        }
    }
}
