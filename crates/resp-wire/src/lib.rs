//! The Redis protocol as bytes: RESP2 and RESP3. No sockets, no clock: bytes in, frames out, and the reverse.
