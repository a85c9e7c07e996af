//! Who has an IPv4 address in this network, and telling that it is here (RFC 826, RFC 5227).

use std::io;
use std::net::Ipv4Addr;

use socket2::Socket;

use crate::sys;

/// An address of an Ethernet.
pub type Mac = [u8; 6];

const EVERYBODY: Mac = [0xff; 6];
const ETHERNET: usize = 14;
const LENGTH: usize = ETHERNET + 28;

/// Ethernet, IPv4, and how long their addresses are.
const KINDS: [u8; 6] = [0, 1, 8, 0, 6, 4];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// An answer, and not a question.
    pub is_answer: bool,
    /// Who says it.
    pub mac: Mac,
    /// Which address that one has; none where it is unspecified.
    pub sender: Ipv4Addr,
    /// Of whom.
    pub target: Ipv4Addr,
}

impl Message {
    /// Asks for an address, without having one.
    #[must_use]
    pub fn probe(mac: Mac, target: Ipv4Addr) -> Self {
        Self::question(mac, Ipv4Addr::UNSPECIFIED, target)
    }

    /// Tells all that the address is here.
    #[must_use]
    pub fn announcement(mac: Mac, address: Ipv4Addr) -> Self {
        Self::question(mac, address, address)
    }

    /// Asks for an address.
    #[must_use]
    pub fn question(mac: Mac, sender: Ipv4Addr, target: Ipv4Addr) -> Self {
        Self {
            is_answer: false,
            mac,
            sender,
            target,
        }
    }

    /// To everybody.
    fn frame(&self) -> [u8; LENGTH] {
        let mut frame = [0; LENGTH];
        let parts: [&[u8]; 9] = [
            &EVERYBODY,
            &self.mac,
            &(libc::ETH_P_ARP as u16).to_be_bytes(),
            &KINDS,
            &[0, 1 + u8::from(self.is_answer)],
            &self.mac,
            &self.sender.octets(),
            &[0; 6],
            &self.target.octets(),
        ];
        let mut at = 0;
        for part in parts {
            frame[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        frame
    }

    fn read(frame: &[u8]) -> Option<Self> {
        let arp: &[u8; 28] = frame.get(ETHERNET..)?.first_chunk()?;
        let four = |at: usize| arp[at..].first_chunk::<4>().copied();
        let is_answer = match (arp[..6] == KINDS, arp[6], arp[7]) {
            (true, 0, 1) => false,
            (true, 0, 2) => true,
            _ => return None,
        };
        Some(Self {
            is_answer,
            mac: *arp[8..].first_chunk()?,
            sender: four(14)?.into(),
            target: four(24)?.into(),
        })
    }
}

/// The ARP of one interface.
pub struct Arp {
    socket: Socket,
}

impl Arp {
    /// What is said on this interface from now on.
    ///
    /// # Errors
    /// The right (`CAP_NET_RAW`) may be missing, or the interface.
    pub fn open(interface: u32) -> io::Result<Self> {
        let socket = sys::packet_socket(interface, libc::ETH_P_ARP as u16)?;
        Ok(Self { socket })
    }

    /// Says something to everybody.
    pub fn send(&self, message: &Message) -> io::Result<()> {
        self.socket.send(&message.frame()).map(drop)
    }

    /// The next thing that others have said, and `None` where there is nothing now.
    ///
    /// # Errors
    /// The interface is gone, or was switched off.
    pub fn receive(&self) -> io::Result<Option<Message>> {
        loop {
            let mut frame = [0; 128];
            match io::Read::read(&mut (&self.socket), &mut frame) {
                Ok(length) => {
                    if let Some(message) = Message::read(&frame[..length]) {
                        return Ok(Some(message));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let (here, there) = (Ipv4Addr::new(10, 0, 0, 9), Ipv4Addr::new(10, 0, 0, 1));
        let mac = [2, 0, 0, 0, 0, 7];
        for message in [
            Message::probe(mac, here),
            Message::announcement(mac, here),
            Message::question(mac, there, here),
            Message {
                is_answer: true,
                ..Message::question(mac, here, there)
            },
        ] {
            let frame = message.frame();
            assert_eq!(Message::read(&frame), Some(message));
            for length in 0..LENGTH {
                assert_eq!(Message::read(&frame[..length]), None);
            }
            let mut other = frame;
            other[ETHERNET + 1] = 6;
            assert_eq!(Message::read(&other), None);
        }
    }
}
