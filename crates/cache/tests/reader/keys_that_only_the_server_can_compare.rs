use sandbox::Kind;

use crate::served::{hash, on_both, served, spec};

on_both! { are_asked_for composite_keys_and_all_their_types }

fn are_asked_for(kind: Kind) {
    let sql = "SET NAMES utf8mb4; CREATE TABLE test.c (k VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, v INT); \
               INSERT INTO test.c VALUES ('Abc', 1), ('x y', 2); \
               CREATE TABLE test.l (k VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_swedish_ci PRIMARY KEY, v INT); \
               INSERT INTO test.l VALUES ('Grün', 1), ('a?', 2)";
    let mappings = vec![hash("c", "test.c", &["k"]), hash("l", "test.l", &["k"])];
    served(
        spec(kind),
        sql,
        |_| (),
        mappings,
        |served| async move {
            let mapping = served.mapping("c").await;
            let row = |text: &str| Some(text.to_owned());
            assert_eq!(served.remembered(&mapping, "aBC  "), Some(row("Abc|1")));
            assert_eq!(
                served.remembered(&mapping, "nobody"),
                Some(None),
                "no key is beyond ASCII"
            );
            assert_eq!(served.remembered(&mapping, "é"), None);
            assert_eq!(
                served.fetched(&mapping, &["é", "X Y", "ab"]).await.unwrap(),
                [None, row("x y|2"), None]
            );

            served.sql("SET NAMES utf8mb4; INSERT INTO test.c VALUES ('Éa', 3)");
            served
                .until("there is a key beyond ASCII", || mapping.may_be_beyond())
                .await;
            assert_eq!(served.remembered(&mapping, "ea"), None, "it may be any");
            assert_eq!(served.remembered(&mapping, "abc"), Some(row("Abc|1")));
            let rows = served.fetched(&mapping, &["ea", "ÈA", "éá", "eb"]).await.unwrap();
            assert_eq!(rows, [row("Éa|3"), row("Éa|3"), row("Éa|3"), None]);

            let latin1 = served.mapping("l").await;
            assert!(latin1.may_be_beyond());
            let rows = served
                .fetched(&latin1, &["grün", "GRÜN", "a😀", "a?"])
                .await
                .unwrap();
            assert_eq!(rows, [row("Grün|1"), row("Grün|1"), None, row("a?|2")]);
        },
    );
}

fn composite_keys_and_all_their_types(kind: Kind) {
    let sql = "SET NAMES utf8mb4; SET time_zone = '+00:00'; CREATE TABLE test.t (a DECIMAL(8,2) NOT NULL, b DATE NOT NULL, c VARBINARY(9) NOT NULL, \
               d TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), e ENUM('x','y:z') NOT NULL, f BIT(9) NOT NULL, g YEAR NOT NULL, \
               h CHAR(5) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, i TIME(1) NOT NULL, v INT, \
               UNIQUE KEY k (c, b, a, d, e, f, g, h, i)); \
               INSERT INTO test.t VALUES (-1.5, '2026-01-02', 'a:b', '2026-01-02 03:04:05.678', 'y:z', 65, 2026, 'é ', '-01:02:03.4', 1)";
    let key = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    served(
        spec(kind),
        sql,
        |_| (),
        vec![hash("t", "test.t", &key)],
        |served| async move {
            let mapping = served.mapping("t").await;
            let (mut texts, mut cursor) = (Vec::new(), 0);
            loop {
                let each = |key: &[u8], _: &[u8]| mapping.key_text(key, &mut texts).unwrap();
                cursor = served.reader.store().scan(mapping.id, cursor, 10, each).unwrap();
                if cursor == 0 {
                    break;
                }
            }
            let text = String::from_utf8(texts).unwrap();
            assert!(
                text.starts_with("-1.50:2026-01-02:a\\:b:2026-01-02 03\\:04\\:05.678:y\\:z:"),
                "{text:?}"
            );
            assert!(text.ends_with(":2026:é:-01\\:02\\:03.4"), "{text:?}");
            let row = served.remembered(&mapping, &text);
            assert!(
                row.as_ref()
                    .is_some_and(|row| row.as_ref().is_some_and(|row| row.ends_with("|1"))),
                "{row:?}"
            );
            assert_eq!(served.fetched(&mapping, &[&text]).await.unwrap(), [row.unwrap()]);
        },
    );
}
