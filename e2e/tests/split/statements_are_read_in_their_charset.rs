//! In some character sets the second byte of a character is a backslash. The gateway reads such a text as the
//! server does, or it would take the end of a string for its middle.

use mysql_async::prelude::Queryable;

use crate::cluster;

/// A character whose second byte is a backslash, in each of them.
const SETS: [(&str, [u8; 2]); 5] = [
    ("gbk", [0xBF, 0x5C]),
    ("gb18030", [0xBF, 0x5C]),
    ("big5", [0xA5, 0x5C]),
    ("sjis", [0x83, 0x5C]),
    ("cp932", [0x83, 0x5C]),
];

/// A plain read where the two bytes are one character; a locking one where the backslash escapes the quote
/// after it.
fn two_ways(character: [u8; 2]) -> Vec<u8> {
    let text: [&[u8]; 3] = [
        b"SELECT port FROM test.where_am_i WHERE '",
        &character,
        b"' <> ' OR 1 FOR UPDATE -- '",
    ];
    text.concat()
}

#[tokio::test]
async fn and_go_where_they_belong() {
    let sandbox = cluster::shared();
    let gateway = cluster::start(cluster::split(sandbox), 2).await;
    let mut session = cluster::connect(&gateway).await;
    let (primary, replicas) = (sandbox.primary().port(), cluster::replica_ports(sandbox));
    for (set, character) in SETS {
        // Not every server has every one of them.
        if session.query_drop(format!("SET NAMES {set}")).await.is_err() {
            continue;
        }
        let text = two_ways(character);
        let read: Option<u16> = session.query_first(text.as_slice()).await.unwrap();
        assert!(replicas.contains(&read.unwrap()), "{set}: {read:?}");
        let prepared: Option<u16> = session.exec_first(text.as_slice(), ()).await.unwrap();
        assert!(
            replicas.contains(&prepared.unwrap()),
            "{set}, prepared: {prepared:?}"
        );

        session.query_drop("SET NAMES latin1").await.unwrap();
        let locking: Option<u16> = session.query_first(text.as_slice()).await.unwrap();
        assert_eq!(locking, Some(primary), "{set} as latin1");
    }
}
