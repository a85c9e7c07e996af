use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;

fn tcp(address: &str) -> Peer {
    Peer::Tcp(address.parse().unwrap())
}

fn header(source: Peer, destination: Peer, len: usize) -> Result<Parsed, ProxyHeaderError> {
    Ok(Parsed::Header {
        source: Some(source),
        destination: Some(destination),
        len,
    })
}

fn nobody(len: usize) -> Result<Parsed, ProxyHeaderError> {
    Ok(Parsed::Header {
        source: None,
        destination: None,
        len,
    })
}

/// Signature, `version_command`, `family_protocol`, length, rest.
fn binary(version_command: u8, family_protocol: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = v2::SIGNATURE.to_vec();
    bytes.extend_from_slice(&[version_command, family_protocol]);
    bytes.extend_from_slice(&(rest.len() as u16).to_be_bytes());
    bytes.extend_from_slice(rest);
    bytes
}

const IPV4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x0c, 0xea];

#[test]
fn reads_version_1() {
    let line = b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 3306\r\nrest";
    assert_eq!(
        parse(line),
        header(tcp("192.0.2.1:56324"), tcp("198.51.100.2:3306"), line.len() - 4)
    );
    let line = b"PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n";
    assert_eq!(
        parse(line),
        header(tcp("[2001:db8::1]:1"), tcp("[2001:db8::2]:65535"), line.len())
    );
    assert_eq!(parse(b"PROXY UNKNOWN\r\n"), nobody(15));
    assert_eq!(parse(b"PROXY UNKNOWN ffff::1 whatever\r\n"), nobody(32));
}

#[test]
fn refuses_bad_lines() {
    let bad: &[&[u8]] = &[
        b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 3306\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 56324\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 3306 \r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 +1 3306\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2  3306\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 65536 3306\r\n",
        b"PROXY TCP4 ::1 ::1 1 2\r\n",
        b"PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n",
        b"PROXY TCP4 192.0.2 198.51.100.2 1 2\r\n",
        b"PROXY UDP4 192.0.2.1 198.51.100.2 1 2\r\n",
        b"PROXY \r\n",
        b"PROXY TCP4 \xff\xff 198.51.100.2 1 2\r\n",
    ];
    for line in bad {
        let text = String::from_utf8_lossy(line);
        assert!(
            matches!(parse(line), Err(ProxyHeaderError::BadLine(_))),
            "{text:?}: {:?}",
            parse(line)
        );
    }
    let mut long = b"PROXY UNKNOWN ".to_vec();
    long.resize(106, b'x');
    assert_eq!(parse(&long), Ok(Parsed::NeedMore));
    long.push(b'x');
    assert_eq!(parse(&long), Err(ProxyHeaderError::LineTooLong));
}

#[test]
fn refuses_what_is_no_header_at_the_first_wrong_byte() {
    for bytes in [
        &b"G"[..],
        b"PROXZ",
        b"PRX",
        b"\r\nx",
        b"\r\n\r\n\0\r\nQUIT\r",
        b"\x20\0\0\x01",
    ] {
        assert_eq!(parse(bytes), Err(ProxyHeaderError::Missing), "{bytes:?}");
    }
    assert_eq!(parse(b""), Ok(Parsed::NeedMore));
}

#[test]
fn reads_version_2() {
    let bytes = binary(0x21, 0x11, &IPV4);
    assert_eq!(
        parse(&bytes),
        header(tcp("192.0.2.1:56324"), tcp("198.51.100.2:3306"), 28)
    );
    assert_eq!(
        parse(&binary(0x21, 0x31, &[0; 216])),
        header(Peer::Unix, Peer::Unix, 232)
    );
    assert_eq!(parse(&binary(0x20, 0x00, &[])), nobody(16));
    // LOCAL: the rest is skipped, whatever it is.
    assert_eq!(parse(&binary(0x20, 0xff, &[9; 30])), nobody(46));
    assert_eq!(parse(&binary(0x21, 0x00, &[])), nobody(16));
}

#[test]
fn refuses_bad_binary_headers() {
    use ProxyHeaderError::*;
    assert_eq!(parse(&binary(0x11, 0x11, &IPV4)), Err(Version(1)));
    assert_eq!(parse(&binary(0x22, 0x11, &IPV4)), Err(Command(2)));
    assert_eq!(parse(&binary(0x21, 0x41, &IPV4)), Err(Family(4)));
    assert_eq!(parse(&binary(0x21, 0x12, &IPV4)), Err(Protocol(2)));
    assert_eq!(parse(&binary(0x21, 0x11, &IPV4[..11])), Err(Truncated));
    assert_eq!(parse(&binary(0x21, 0x21, &[0; 35])), Err(Truncated));
    assert_eq!(parse(&binary(0x21, 0x31, &[0; 215])), Err(Truncated));
    let long = binary(0x21, 0x11, &vec![0; MAX_LEN]);
    assert_eq!(parse(&long[..16]), Err(TooLong(MAX_LEN + 16)));
}

#[test]
fn checks_extensions() {
    let with = |extension: &[u8]| binary(0x21, 0x11, &[&IPV4[..], extension].concat());
    assert!(parse(&with(&[4, 0, 2, 0, 0])).is_ok());
    assert_eq!(
        parse(&with(&[4, 0, 3, 0, 0])),
        Err(ProxyHeaderError::BadExtension)
    );
    assert_eq!(parse(&with(&[4, 0])), Err(ProxyHeaderError::BadExtension));
    assert_eq!(parse(&with(&[3, 0, 1, 0])), Err(ProxyHeaderError::BadExtension));
    assert_eq!(
        parse(&with(&[3, 0, 4, 1, 2, 3, 4])),
        Err(ProxyHeaderError::Checksum)
    );
}

#[test]
fn checksum_agrees_with_rfc_3720() {
    // RFC 3720 B.4: 32 bytes of zeros, 32 of 0xff, 0..=31. The four bytes of the hole count as zeros, so for
    // the others it is put behind the end.
    assert_eq!(v2::checksum(&[0; 32], 0), 0x8a91_36aa);
    assert_eq!(v2::checksum(&[0xff; 32], 32), 0x62a8_ab43);
    let ascending: Vec<u8> = (0..32).collect();
    assert_eq!(v2::checksum(&ascending, 32), 0x46dd_794e);
}

#[test]
fn accepts_a_right_checksum() {
    let mut bytes = binary(0x21, 0x11, &[&IPV4[..], &[3, 0, 4, 0, 0, 0, 0]].concat());
    let sum = v2::checksum(&bytes, bytes.len() - 4);
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(
        parse(&bytes),
        header(tcp("192.0.2.1:56324"), tcp("198.51.100.2:3306"), bytes.len())
    );
    bytes[20] ^= 1;
    assert_eq!(parse(&bytes), Err(ProxyHeaderError::Checksum));
}

#[test]
fn writes_mixed_ends() {
    let mut out = Vec::new();
    encode_v2(&tcp("[2001:db8::1]:7"), &tcp("192.0.2.1:8"), &mut out);
    assert_eq!(
        parse(&out),
        header(tcp("[2001:db8::1]:7"), tcp("192.0.2.1:8"), 52)
    );
    out.clear();
    encode_v2(&Peer::Unix, &tcp("192.0.2.1:8"), &mut out);
    assert_eq!(parse(&out), nobody(16));
}

fn any_peer() -> impl Strategy<Value = Peer> {
    prop_oneof![
        4 => any::<SocketAddr>().prop_map(|address| Peer::from(SocketAddr::new(address.ip(), address.port()))),
        1 => Just(Peer::Unix),
    ]
}

/// Bytes that get past the signature more often than random ones do.
fn nearly_a_header() -> impl Strategy<Value = Vec<u8>> {
    let tail = prop::collection::vec(any::<u8>(), 0..300);
    let binary = (
        prop::sample::select(vec![0x20_u8, 0x21, 0x11]),
        any::<u8>(),
        tail.clone(),
    )
        .prop_map(|(command, family, rest)| binary(command, family & 0x31, &rest));
    let line = "PROXY (TCP4|TCP6|UNKNOWN|x)( [0-9a-f:.]{0,12}){0,5}\r?\n?".prop_map(String::into_bytes);
    prop_oneof![tail, binary, line]
}

proptest! {
    #[test]
    fn version_2_survives_a_round_trip_and_any_split(
        source in any_peer(), destination in any_peer(), rest in prop::collection::vec(any::<u8>(), 0..20)
    ) {
        let mut bytes = Vec::new();
        encode_v2(&source, &destination, &mut bytes);
        let len = bytes.len();
        for cut in 0..len {
            prop_assert_eq!(parse(&bytes[..cut]), Ok(Parsed::NeedMore));
        }
        bytes.extend_from_slice(&rest);
        let one_unix = (source == Peer::Unix) != (destination == Peer::Unix);
        let expected = if one_unix { nobody(len) } else { header(source, destination, len) };
        prop_assert_eq!(parse(&bytes), expected);
    }

    #[test]
    fn version_1_survives_a_round_trip_and_any_split(
        v4 in any::<bool>(), source in any::<(u32, u128, u16)>(), destination in any::<(u32, u128, u16)>()
    ) {
        let address = |(short, long, port): (u32, u128, u16)| -> SocketAddr {
            let ip = if v4 { std::net::Ipv4Addr::from(short).into() } else { std::net::Ipv6Addr::from(long).into() };
            SocketAddr::new(ip, port)
        };
        let (source, destination) = (address(source), address(destination));
        let family = if v4 { "TCP4" } else { "TCP6" };
        let (a, b) = (source.ip(), destination.ip());
        let line = format!("PROXY {family} {a} {b} {} {}\r\n", source.port(), destination.port()).into_bytes();
        for cut in 0..line.len() {
            prop_assert_eq!(parse(&line[..cut]), Ok(Parsed::NeedMore));
        }
        prop_assert_eq!(parse(&line), header(source.into(), destination.into(), line.len()));
    }

    #[test]
    fn hostile_bytes_are_judged_without_panic(bytes in nearly_a_header()) {
        fuzz(&bytes);
    }
}

#[test]
fn corpus() {
    inputs::replay("proxy_header", fuzz);
}
