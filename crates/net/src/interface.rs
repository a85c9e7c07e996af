//! Interfaces of this machine and their IPv4 addresses, as far as an address needs it that moves between
//! machines (rtnetlink(7)).
//!
//! Questions are answered by the kernel at once; a call waits only while something else changes the network
//! of this machine.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// How long the kernel may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// Longest answer about an interface, in bytes.
const ANSWER_MAX: usize = 64 << 10;

const HEADER: usize = 16;
const OF_INTERFACE: usize = 16;
const OF_ADDRESS: usize = 8;
/// `IFA_F_PERMANENT`: an address without an end.
const PERMANENT: u8 = 0x80;

/// An interface at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    pub index: u32,
    /// Its address on an Ethernet; `None` where it is none.
    pub mac: Option<[u8; 6]>,
    /// It is switched on, and there is something at the other end.
    pub is_up: bool,
}

/// The interface of this name; `None` where there is none.
pub fn interface(name: &str) -> io::Result<Option<Interface>> {
    let mut request = Message::new(libc::RTM_GETLINK, 0);
    request.bytes.extend([0; OF_INTERFACE]);
    request.attribute(libc::IFLA_IFNAME, &[name.as_bytes(), b"\0"].concat());
    let answer = match request.ask() {
        Ok(answer) => answer,
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
        Err(error) => return Err(error),
    };
    let body = answer.get(HEADER..).unwrap_or_default();
    let (Some(index), Some(flags)) = (number_at(body, 4), number_at(body, 8)) else {
        return Err(io::Error::other("an answer about an interface that is too short"));
    };
    let attributes = body.get(OF_INTERFACE..).unwrap_or_default();
    let mac = attribute_of(attributes, libc::IFLA_ADDRESS);
    let is_up = (libc::IFF_UP | libc::IFF_RUNNING).cast_unsigned();
    Ok(Some(Interface {
        index,
        mac: mac.and_then(|mac| mac.try_into().ok()),
        is_up: flags & is_up == is_up,
    }))
}

/// Has an interface have this address for so many seconds from now on, and no longer.
///
/// # Errors
/// It cannot have it: the right (`CAP_NET_ADMIN`) may be missing, or the interface.
pub fn lend_address(interface: u32, address: Ipv4Addr, prefix: u8, seconds: u32) -> io::Result<()> {
    let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    let mut request = Message::about_address(libc::RTM_NEWADDR, flags, interface, prefix);
    request.attribute(libc::IFA_LOCAL, &address.octets());
    request.attribute(libc::IFA_ADDRESS, &address.octets());
    let life = [seconds, seconds, 0, 0];
    request.attribute(libc::IFA_CACHEINFO, &life.map(u32::to_ne_bytes).concat());
    request.ask().map(drop)
}

/// Takes an address off an interface; false where it was not there.
pub fn remove_address(interface: u32, address: Ipv4Addr) -> io::Result<bool> {
    let mut request = Message::about_address(libc::RTM_DELADDR, 0, interface, 32);
    request.attribute(libc::IFA_LOCAL, &address.octets());
    match request.ask() {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL | libc::ENODEV)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the interface has this address by itself: for ever, and not lent for a time.
pub fn has_for_good(interface: u32, address: Ipv4Addr) -> io::Result<bool> {
    let mut request = Message::new(libc::RTM_GETADDR, libc::NLM_F_DUMP);
    request.bytes.extend([libc::AF_INET as u8, 0, 0, 0, 0, 0, 0, 0]);
    let all = request.ask_for_all()?;
    let is_it = |body: &&Vec<u8>| {
        let attributes = body.get(OF_ADDRESS..).unwrap_or_default();
        number_at(body, 4) == Some(interface)
            && attribute_of(attributes, libc::IFA_LOCAL) == Some(&address.octets()[..])
    };
    let for_good = |body: &Vec<u8>| body.get(2).is_some_and(|flags| flags & PERMANENT != 0);
    Ok(all.iter().filter(is_it).any(for_good))
}

/// Which of the rights this process has not that an address of this machine takes which it announces. All
/// of them are there where that is not known.
#[must_use]
pub fn missing_rights() -> Vec<&'static str> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = effective.and_then(|rights| u64::from_str_radix(rights.trim(), 16).ok());
    missing(rights.unwrap_or(u64::MAX))
}

/// The numbers are those of `linux/capability.h`.
fn missing(rights: u64) -> Vec<&'static str> {
    let needed = [(12, "CAP_NET_ADMIN"), (13, "CAP_NET_RAW")];
    let missing = needed.into_iter().filter(|(bit, _)| rights & (1 << bit) == 0);
    missing.map(|(_, name)| name).collect()
}

/// A question to the kernel, in this machine's byte order.
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn new(kind: u16, flags: libc::c_int) -> Self {
        let flags = (libc::NLM_F_REQUEST | flags) as u16;
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]);
        Self { bytes }
    }

    fn about_address(kind: u16, flags: libc::c_int, interface: u32, prefix: u8) -> Self {
        let mut message = Self::new(kind, libc::NLM_F_ACK | flags);
        message
            .bytes
            .extend([libc::AF_INET as u8, prefix, 0, libc::RT_SCOPE_UNIVERSE]);
        message.bytes.extend(interface.to_ne_bytes());
        message
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = (4 + value.len()) as u16;
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn send(mut self) -> io::Result<Socket> {
        let length = (self.bytes.len() as u32).to_ne_bytes();
        self.bytes[..4].copy_from_slice(&length);
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, None)?;
        socket.set_read_timeout(Some(ANSWER_LIMIT))?;
        socket.set_write_timeout(Some(ANSWER_LIMIT))?;
        socket.send(&self.bytes)?;
        Ok(socket)
    }

    /// What the kernel lists, the part behind the head of each message.
    fn ask_for_all(self) -> io::Result<Vec<Vec<u8>>> {
        let socket = self.send()?;
        let mut all = Vec::new();
        loop {
            let answer = received(&socket)?;
            let mut rest = &answer[..];
            while let Some(length) = number_at(rest, 0) {
                let message = rest.get(HEADER..length as usize);
                let message =
                    message.ok_or_else(|| io::Error::other("an answer of the kernel that is cut"))?;
                match libc::c_int::from(u16::from_ne_bytes([rest[4], rest[5]])) {
                    libc::NLMSG_DONE => return Ok(all),
                    libc::NLMSG_ERROR => {
                        let code = number_at(message, 0).unwrap_or_default();
                        return Err(io::Error::from_raw_os_error(code.cast_signed().wrapping_neg()));
                    }
                    _ => all.push(message.to_vec()),
                }
                let next = (length as usize).next_multiple_of(4);
                rest = rest.get(next..).unwrap_or_default();
            }
        }
    }

    /// What the kernel says, one message.
    fn ask(self) -> io::Result<Vec<u8>> {
        let socket = self.send()?;
        let answer = received(&socket)?;
        let kind = answer.get(4..6).and_then(|kind| kind.try_into().ok());
        match (kind.map(u16::from_ne_bytes), number_at(&answer, HEADER)) {
            (Some(kind), Some(code)) if libc::c_int::from(kind) == libc::NLMSG_ERROR && code != 0 => {
                Err(io::Error::from_raw_os_error(code.cast_signed().wrapping_neg()))
            }
            (Some(_), Some(_)) => Ok(answer),
            _ => Err(io::Error::other("an answer of the kernel that is too short")),
        }
    }
}

fn received(socket: &Socket) -> io::Result<Vec<u8>> {
    let mut answer = vec![0; ANSWER_MAX];
    let length = io::Read::read(&mut { socket }, &mut answer)?;
    answer.truncate(length);
    Ok(answer)
}

fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

fn attribute_of(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let [a, b, c, d] = *attributes.first_chunk()?;
        let (length, kind) = (
            usize::from(u16::from_ne_bytes([a, b])),
            u16::from_ne_bytes([c, d]),
        );
        if kind == wanted {
            return attributes.get(4..length);
        }
        attributes = attributes.get(length.max(4).next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_found_by_their_name() {
        let loopback = interface("lo").unwrap().unwrap();
        assert!(loopback.is_up, "{loopback:?}");
        assert_eq!(loopback.mac, Some([0; 6]));
        assert_eq!(interface("no-such-one").unwrap(), None);
    }

    #[test]
    fn an_address_of_the_machine_itself_is_told_from_a_lent_one() {
        let loopback = interface("lo").unwrap().unwrap();
        assert!(has_for_good(loopback.index, Ipv4Addr::LOCALHOST).unwrap());
        assert!(!has_for_good(loopback.index, Ipv4Addr::new(127, 9, 9, 9)).unwrap());
        assert!(!has_for_good(loopback.index + 1000, Ipv4Addr::LOCALHOST).unwrap());
    }

    #[test]
    fn rights_are_named_that_are_missing() {
        assert_eq!(missing(0), ["CAP_NET_ADMIN", "CAP_NET_RAW"]);
        assert_eq!(missing(1 << 12), ["CAP_NET_RAW"]);
        assert!(missing(3 << 12).is_empty());
    }

    #[test]
    fn attributes_that_are_cut_off_are_none() {
        let mut message = Message::new(0, 0);
        message.attribute(7, b"abc");
        message.attribute(1, b"macmac");
        let attributes = &message.bytes[HEADER..];
        assert_eq!(attribute_of(attributes, 1), Some(&b"macmac"[..]));
        for length in 0..attributes.len() - 2 {
            assert_eq!(attribute_of(&attributes[..length], 1), None);
        }
        assert_eq!(attribute_of(&[0; 9], 1), None);
    }
}
