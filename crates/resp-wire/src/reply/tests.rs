use proptest::prelude::*;

use super::*;

fn written(version: Version, write: impl FnOnce(&mut Writer<'_>)) -> String {
    let mut out = Vec::new();
    write(&mut Writer::new(&mut out, version));
    out.escape_ascii().to_string()
}

fn both(write: impl Fn(&mut Writer<'_>)) -> [String; 2] {
    [written(Version::V2, &write), written(Version::V3, &write)]
}

#[test]
fn the_protocols_differ_in_nulls_and_collections() {
    assert_eq!(both(|w| w.null()), ["$-1\\r\\n", "_\\r\\n"]);
    assert_eq!(both(|w| w.map(2)), ["*4\\r\\n", "%2\\r\\n"]);
    assert_eq!(both(|w| w.set(2)), ["*2\\r\\n", "~2\\r\\n"]);
    assert_eq!(both(|w| w.push(2)), ["*2\\r\\n", ">2\\r\\n"]);
    assert_eq!(
        both(|w| w.verbatim("a\n")),
        ["$2\\r\\na\\n\\r\\n", "=6\\r\\ntxt:a\\n\\r\\n"]
    );
}

#[test]
fn the_protocols_agree_in_the_rest() {
    type Write = fn(&mut Writer<'_>);
    let cases: [(Write, &str); 5] = [
        (|w| w.simple("OK"), "+OK\\r\\n"),
        (|w| w.error("ERR a\r\nb"), "-ERR a  b\\r\\n"),
        (|w| w.integer(-12), ":-12\\r\\n"),
        (|w| w.bulk(b"a\r\n"), "$3\\r\\na\\r\\n\\r\\n"),
        (|w| w.array(0), "*0\\r\\n"),
    ];
    for (write, expected) in cases {
        assert_eq!(both(write), [expected, expected]);
    }
}

#[test]
fn a_content_that_fails_leaves_nothing() {
    let mut out = b"+OK\r\n".to_vec();
    let failed = Writer::new(&mut out, Version::V2).bulk_with(|out| {
        out.extend_from_slice(b"half");
        Err("no")
    });
    assert_eq!(failed, Err("no"));
    assert_eq!(out, b"+OK\r\n");
}

proptest! {
    #[test]
    fn a_length_that_is_found_afterwards_gives_the_same_bytes(
        before in prop::collection::vec(any::<u8>(), 0..20),
        length in prop_oneof![0_usize..12, 90..110_usize, 990..1010_usize, 9_990..10_010_usize],
        byte: u8,
    ) {
        let content: Vec<u8> = (0..length).map(|index| byte.wrapping_add(index as u8)).collect();
        let mut known = before.clone();
        Writer::new(&mut known, Version::V3).bulk(&content);
        let mut found = before;
        let written: Result<(), ()> = Writer::new(&mut found, Version::V3).bulk_with(|out| {
            out.extend_from_slice(&content);
            Ok(())
        });
        prop_assert_eq!(written, Ok(()));
        prop_assert_eq!(known, found);
    }
}
