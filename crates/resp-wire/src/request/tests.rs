use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    Request(Vec<Vec<u8>>),
    TooLarge(Vec<Vec<u8>>),
    Broken(ProtocolError),
}

/// Reads `bytes` that become visible in steps which end at `cuts`, as a connection does: consumed bytes go
/// away.
fn read(bytes: &[u8], cuts: &[usize], limits: &Limits) -> Vec<Found> {
    let mut parser = Parser::default();
    let (mut found, mut start) = (Vec::new(), 0);
    for end in cuts.iter().copied().chain([bytes.len()]) {
        let mut most = 2 * bytes.len() + 2;
        loop {
            most -= 1;
            assert!(most > 0, "the parser does not move");
            let window = &bytes[start..end.max(start)];
            let step = parser.parse(window, limits);
            let args = || parser.args(window).iter().map(<[u8]>::to_vec).collect();
            match step {
                Ok(ParseStep::Incomplete) => break,
                Ok(ParseStep::Skip(n)) => start += n,
                Ok(ParseStep::Request(n)) => {
                    found.push(Found::Request(args()));
                    start += n;
                }
                Ok(ParseStep::TooLarge(n)) => {
                    found.push(Found::TooLarge(args()));
                    start += n;
                }
                Err(error) => {
                    found.push(Found::Broken(error));
                    return found;
                }
            }
        }
    }
    found
}

fn request(args: &[&[u8]]) -> Found {
    Found::Request(args.iter().map(|arg| arg.to_vec()).collect())
}

fn encode(args: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn error_of(bytes: &str, limits: &Limits) -> String {
    match read(bytes.as_bytes(), &[], limits).as_slice() {
        [Found::Broken(error)] => error.to_string(),
        other => format!("{other:?}"),
    }
}

#[test]
fn requests_come_one_behind_the_other() {
    let bytes = b"*2\r\n$3\r\nGET\r\n$3\r\na@1\r\n*1\r\n$4\r\nPING\r\nping\r\n\r\n*0\r\n*-1\r\nget 'a b'\n*1\r\n$0\r\n\r\n";
    let expected = [
        request(&[b"GET", b"a@1"]),
        request(&[b"PING"]),
        request(&[b"ping"]),
        request(&[b"get", b"a b"]),
        request(&[b""]),
    ];
    assert_eq!(read(bytes, &[], &Limits::LOGGED_IN), expected);
    let every_byte: Vec<usize> = (0..bytes.len()).collect();
    assert_eq!(read(bytes, &every_byte, &Limits::LOGGED_IN), expected);
}

#[test]
fn errors_are_worded_as_those_of_redis() {
    let long = "1".repeat(100);
    let line = "a".repeat(70_000);
    let cases = [
        ("*1\r\n+OK\r\n", "Protocol error: expected '$', got '+'"),
        ("*1\r\n*1\r\n$1\r\na\r\n", "Protocol error: expected '$', got '*'"),
        ("*1\r\n\n", "Protocol error: expected '$', got ' '"),
        ("*x\r\n", "Protocol error: invalid multibulk length"),
        ("*1048577\r\n", "Protocol error: invalid multibulk length"),
        (
            "*99999999999999999999\r\n",
            "Protocol error: invalid multibulk length",
        ),
        ("*1\r\n$-1\r\n", "Protocol error: invalid bulk length"),
        ("*1\r\n$536870913\r\n", "Protocol error: invalid bulk length"),
        ("*1\r\n$x\r\n", "Protocol error: invalid bulk length"),
        (
            "*1\r\n$1\r\nab\r\n",
            "Protocol error: expected CRLF after an argument",
        ),
        ("*1\r\n$1\rx1", "Protocol error: expected CRLF after an argument"),
        (
            &format!("*{long}\r\n"),
            "Protocol error: too big mbulk count string",
        ),
        (
            &format!("*1\r\n${long}\r\n"),
            "Protocol error: too big bulk count string",
        ),
        ("get \"a\r\n", "Protocol error: unbalanced quotes in request"),
        (&line, "Protocol error: too big inline request"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(error_of(bytes, &Limits::LOGGED_IN), expected, "{bytes:.40}");
    }
    let cases = [
        ("*11\r\n", "Protocol error: unauthenticated multibulk length"),
        ("*1\r\n$16385\r\n", "Protocol error: unauthenticated bulk length"),
        ("*1\r\n$536870913\r\n", "Protocol error: invalid bulk length"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(error_of(bytes, &Limits::STRANGER), expected, "{bytes}");
    }
}

#[test]
fn a_promise_of_many_bytes_costs_none() {
    let mut parser = Parser::default();
    let bytes = b"*1048576\r\n$3\r\nSET\r\n$536870912\r\n";
    assert_eq!(
        parser.parse(bytes, &Limits::LOGGED_IN),
        Ok(ParseStep::Skip(bytes.len()))
    );
    assert!(parser.capacity() < 256, "{}", parser.capacity());
    assert!(parser.is_within_request());
}

#[test]
fn the_bytes_of_a_request_that_is_too_large_are_dropped_and_the_next_is_read() {
    let value = vec![b'$'; Limits::LOGGED_IN.request_bytes];
    let mut bytes = encode(&[b"SET".to_vec(), b"a@1".to_vec(), value, b"EX".to_vec()]);
    bytes.extend_from_slice(b"PING\r\n");
    let expected = [Found::TooLarge(vec![b"SET".to_vec()]), request(&[b"PING"])];
    assert_eq!(read(&bytes, &[], &Limits::LOGGED_IN), expected);
    assert_eq!(read(&bytes, &[40, 1000, 1_000_000], &Limits::LOGGED_IN), expected);
}

#[test]
fn nobody_is_asked_to_keep_more_than_the_limit() {
    let many = encode(&vec![b"key".to_vec(); 200_000]);
    let mut parser = Parser::default();
    let (mut start, mut kept, mut last) = (0, 0, ParseStep::Incomplete);
    for end in (0..many.len()).step_by(1000).chain([many.len()]) {
        last = parser.parse(&many[start..end], &Limits::LOGGED_IN).unwrap();
        if let ParseStep::Skip(n) | ParseStep::TooLarge(n) = last {
            start += n;
        }
        kept = kept.max(end - start);
    }
    assert!(kept <= Limits::LOGGED_IN.request_bytes + 1000, "{kept}");
    assert!(matches!(last, ParseStep::TooLarge(_)) && start == many.len());
    assert!(parser.capacity() < 4 * Limits::LOGGED_IN.request_bytes);
}

proptest! {
    #[test]
    fn requests_are_the_same_wherever_the_bytes_are_cut(
        requests in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6),
            1..5,
        ),
        cuts in prop::collection::vec(0_usize..400, 0..8),
    ) {
        let bytes: Vec<u8> = requests.iter().flat_map(|args| encode(args)).collect();
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < bytes.len()).collect();
        cuts.sort_unstable();
        let expected: Vec<Found> = requests.into_iter().map(Found::Request).collect();
        prop_assert_eq!(read(&bytes, &cuts, &Limits::LOGGED_IN), expected);
    }

    #[test]
    fn any_bytes_are_read_the_same_wherever_they_are_cut(
        bytes in prop::collection::vec(prop::sample::select(b"*$0123a\r\n \"'\\-x".to_vec()), 0..200),
        cuts in prop::collection::vec(0_usize..200, 0..8),
        small: bool,
    ) {
        let small_limits = Limits { request_bytes: 24, inline_bytes: 1000, arguments: 5, bulk_bytes: 100 };
        let limits = if small { small_limits } else { Limits::LOGGED_IN };
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < bytes.len()).collect();
        cuts.sort_unstable();
        prop_assert_eq!(read(&bytes, &cuts, &limits), read(&bytes, &[], &limits));
    }
}
