//! The query attribute `forebay_explain`: why a statement went where it went, as a note among the warnings.

use mysql_wire::Capabilities;

use super::stage::{CAPABILITIES, Setup, Stage};

/// In front of the text of COM_QUERY: no attributes; one, `forebay_explain`, with a text as its value.
const NONE: &str = "\0\x01";
const ASKING: &str = "\x01\x01\0\x01\x0f\0\x0fforebay_explain\x011";

#[tokio::test]
async fn where_a_client_asks_for_it() {
    let capabilities = CAPABILITIES | Capabilities::QUERY_ATTRIBUTES;
    let setup = Setup {
        capabilities,
        tables: "[[rule]]\nname = \"noticed\"\nclass = [\"read\"]\ncontinue = true",
        ..Setup::default()
    };
    let stage = Stage::set(setup).await;
    let mut session = stage.connect_with(capabilities).await;
    let warnings = format!("{NONE}SHOW WARNINGS");
    for (text, server, parts) in [
        (
            "SELECT 'ROWS 1'",
            1,
            ["class read", "rule noticed matches", "target replica"],
        ),
        (
            "INSERT INTO t VALUES ('OK')",
            0,
            ["class write", "target primary", "ran on"],
        ),
    ] {
        assert!(session.query(&format!("{ASKING}{text}")).await.is_ok());
        let name = stage.name(server).unwrap();
        for _ in 0..2 {
            let rows = session.rows(&warnings).await;
            let [row] = rows.as_slice() else {
                panic!("{rows:?}")
            };
            assert_eq!(row[..2], ["Note", "1003"]);
            for part in parts {
                assert!(row[2].contains(part), "{part}: {row:?}");
            }
            assert!(row[2].contains(&format!("ran on {name};")), "{row:?}");
            assert_eq!(row[2].contains("noticed"), server == 1, "{row:?}");
        }
        assert!(stage.sent("SHOW WARNINGS").is_empty());
    }

    // Where the server has warnings, those are shown; and only the last statement counts.
    let warned = format!("{ASKING}SELECT 'ROWS 1', 'WARNS'");
    assert_eq!(session.query(&warned).await, Ok(1));
    assert_eq!(session.query(&warnings).await, Ok(0));
    assert_eq!(stage.place("SHOW WARNINGS"), stage.place("'WARNS'"));
    for text in [ASKING, NONE] {
        assert_eq!(
            session.query(&format!("{text}SELECT 'ROWS 1' FROM last")).await,
            Ok(1)
        );
    }
    assert_eq!(session.query(&warnings).await, Ok(0));
    assert_eq!(stage.sent("SHOW WARNINGS").len(), 2);
}

/// A statement that no server has had comes between, too, and so do a reset and a change of the user.
#[tokio::test]
async fn but_only_right_behind_the_statement() {
    let capabilities = CAPABILITIES | Capabilities::QUERY_ATTRIBUTES;
    let setup = Setup {
        capabilities,
        ..Setup::default()
    };
    let stage = Stage::set(setup).await;
    let mut session = stage.connect_with(capabilities).await;
    let explained = format!("{ASKING}SELECT 'ROWS 1'");
    let warnings = format!("{NONE}SHOW WARNINGS");
    for between in ["an unknown statement", "a reset", "a change"] {
        assert_eq!(session.query(&explained).await, Ok(1));
        assert_eq!(session.rows(&warnings).await.len(), 1, "before {between}");
        match between {
            "an unknown statement" => assert_eq!(session.execute(7).await, Err(1243)),
            "a reset" => session.reset().await,
            _ => session.0.change_user(b"app", b"secret").await.unwrap(),
        }
        assert_eq!(session.query(&warnings).await, Ok(0), "behind {between}");
    }
    assert_eq!(stage.sent("SHOW WARNINGS").len(), 3);
}
