use tokio::net::UnixStream;

use super::*;

const OK: &[u8] = b"\0\0\0\x02\0\0\0";
const REFUSAL: &[u8] = b"\xff\x28\x04#42000no";
const DEFINITION: &[u8] = b"\x03def\0\0\0\x04name\0\x0c\x3f\0\0\0\0\0\xfd\0\0\0\0\0";
const EOF: &[u8] = b"\xfe\0\0\x02\0";
const OK_AS_EOF: &[u8] = b"\xfe\0\0\x02\0\0\0";

/// Packets of one answer.
fn answer(payloads: &[&[u8]]) -> Vec<u8> {
    let (mut bytes, mut sequence) = (Vec::new(), 1);
    payloads
        .iter()
        .for_each(|payload| write_packet(&mut bytes, &mut sequence, payload));
    bytes
}

/// What is asked of a server that has these answers, and closes the connection after them.
async fn asked(
    capabilities: Capabilities,
    answers: &[&[&[u8]]],
    statements: &[&str],
    answer_max: usize,
) -> Result<Vec<Reply>, Broken> {
    let (ours, mut servers) = UnixStream::pair().unwrap();
    let answers: Vec<u8> = answers.iter().flat_map(|payloads| answer(payloads)).collect();
    let server = async move {
        servers.write_all(&answers).await.unwrap();
        let mut sent = Vec::new();
        servers.read_buf(&mut sent).await.unwrap();
        sent
    };
    let commands: Vec<_> = statements.iter().map(|sql| query(capabilities, sql)).collect();
    let mut stream = Stream::from(ours);
    let asking = ask_within(&mut stream, capabilities, &commands, answer_max);
    let (replies, sent) = tokio::join!(asking, server);
    let parts = commands.iter().flat_map(|command| {
        let mut packet = Vec::new();
        write_packet(&mut packet, &mut 0, command);
        packet
    });
    assert_eq!(sent, parts.collect::<Vec<_>>(), "all at once");
    replies
}

#[tokio::test]
async fn commands_are_sent_at_once_and_a_refusal_ends_nothing() {
    for (capabilities, select) in [
        (
            Capabilities(0),
            [b"\x01".as_slice(), DEFINITION, EOF, b"\x01a", b"\xfb", EOF].as_slice(),
        ),
        (
            Capabilities::DEPRECATE_EOF,
            &[b"\x01", DEFINITION, b"\x01a", b"\xfb", OK_AS_EOF],
        ),
    ] {
        let capabilities = capabilities.with(Capabilities::PROTOCOL_41);
        let answers = [&[OK], select, &[REFUSAL], &[OK]];
        let replies = asked(capabilities, &answers, &["a", "b", "c", "d"], ANSWER_MAX).await;
        let replies = replies.unwrap();
        let done = replies.iter().map(|reply| reply.done(capabilities).is_ok());
        assert_eq!(done.collect::<Vec<_>>(), [true, true, false, true]);
        let rows = replies[1].rows(capabilities).unwrap();
        assert_eq!(rows.rows, [[Some(b"a".to_vec())], [None]]);
        assert_eq!(rows.first().unwrap().text(&["NAME"]).as_deref(), Some("a"));
        let refused = replies[2].rows(capabilities).unwrap_err();
        assert_eq!(refused.to_string(), "no (error 1064)");
        assert_eq!(replies[3].rows(capabilities).unwrap(), Rows::default());
    }
}

#[tokio::test]
async fn what_is_no_answer_breaks_the_conversation() {
    let capabilities = Capabilities::PROTOCOL_41;
    let long = [b"\x01".as_slice(), DEFINITION, EOF, &[b'a'; 100], EOF];
    let cases: [(&[&[&[u8]]], &str); 5] = [
        (&[&[OK]], "server closed the connection"),
        (
            &[&[OK], &[OK], &[OK]],
            "server broke the protocol: it says more than it was asked for",
        ),
        (&[&[OK], &long[..4]], "its result is longer than 64 bytes"),
        (&[&[OK], &[b"\xfb/etc/passwd"]], "server broke the protocol: "),
        (&[&[OK], &[b"\xfe"]], "server broke the protocol: "),
    ];
    for (answers, words) in cases {
        let broken = asked(capabilities, answers, &["a", "b"], 64).await.unwrap_err();
        assert!(broken.to_string().starts_with(words), "{broken}");
    }
}

#[test]
fn a_row_has_a_value_for_each_column() {
    let outcome = Outcome {
        is_result_set: true,
        rows: 1,
        ..Outcome::default()
    };
    for row in [b"\x01a\x01b".as_slice(), b"\x02a"] {
        let bytes = answer(&[b"\x01", DEFINITION, EOF, row, EOF]);
        let reply = Reply { outcome, bytes };
        assert!(matches!(reply.rows(Capabilities(0)), Err(QueryError::Broken(_))));
    }
}

#[test]
fn a_query_has_a_place_for_attributes_where_they_are_agreed_on() {
    assert_eq!(query(Capabilities(0), "DO 1"), b"\x03DO 1");
    assert_eq!(query(Capabilities::QUERY_ATTRIBUTES, "DO 1"), b"\x03\x00\x01DO 1");
}
