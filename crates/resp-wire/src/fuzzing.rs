//! The body of the fuzz target (`fuzz/`), here because it knows what must hold. It runs on stable Rust as an
//! ordinary function too: `tests/all/fuzz_corpus.rs` replays the corpus.

use crate::{Limits, ParseStep, Parser, Version, Writer};

/// Byte 0: limits. Bytes 1 and 2: where to cut. The rest: what a client sends. Panics where the cut makes a
/// difference, where more is kept than the limits allow, or where an echo of the arguments is read as
/// something else.
pub fn request(data: &[u8]) {
    let Some((&[choice, low, high], bytes)) = data.split_first_chunk() else {
        return;
    };
    let small = Limits {
        request_bytes: 48,
        inline_bytes: 1 << 16,
        arguments: 20,
        bulk_bytes: 2000,
    };
    let limits = [small, Limits::STRANGER, Limits::LOGGED_IN][usize::from(choice) % 3];
    let cut = usize::from(u16::from_le_bytes([low, high])).min(bytes.len());
    let whole = read(bytes, &[bytes.len()], &limits);
    assert_eq!(whole, read(bytes, &[cut, bytes.len()], &limits), "cut at {cut}");
    let (requests, _) = whole;
    let mut echo = Vec::new();
    for args in &requests {
        let mut writer = Writer::new(&mut echo, Version::V2);
        writer.array(args.len());
        args.iter().for_each(|arg| writer.bulk(arg));
    }
    assert_eq!((requests, None), read(&echo, &[echo.len()], &Limits::LOGGED_IN));
}

type Requests = Vec<Vec<Vec<u8>>>;

/// The requests in `bytes`, which become visible in steps, and the error that ended them.
fn read(bytes: &[u8], ends: &[usize], limits: &Limits) -> (Requests, Option<String>) {
    let mut parser = Parser::default();
    let (mut requests, mut start) = (Vec::new(), 0);
    for &end in ends {
        loop {
            let window = bytes.get(start..end).unwrap_or_default();
            let n = match parser.parse(window, limits) {
                Ok(ParseStep::Incomplete) => {
                    let most = limits.request_bytes.max(limits.inline_bytes) + 64;
                    assert!(window.len() <= most, "{} bytes are kept", window.len());
                    break;
                }
                Ok(ParseStep::Skip(n) | ParseStep::TooLarge(n)) => n,
                Ok(ParseStep::Request(n)) => {
                    requests.push(parser.args(window).iter().map(<[u8]>::to_vec).collect());
                    n
                }
                Err(error) => return (requests, Some(error.to_string())),
            };
            assert!(n > 0 && n <= window.len());
            start += n;
        }
    }
    (requests, None)
}
