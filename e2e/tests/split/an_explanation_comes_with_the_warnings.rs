//! Query attributes are rare in libraries: packets are written by hand. MariaDB knows none.

use e2e::{Gateway, kind};
use mysql_wire::Capabilities;
use sandbox::{DATABASE, Kind};

use crate::cluster;
use crate::raw::Client;

/// In front of the text of COM_QUERY: no attributes; one, `forebay_explain`, with a text as its value.
const NONE: &str = "\0\x01";
const ASKING: &str = "\x01\x01\0\x01\x0f\0\x0fforebay_explain\x011";

fn connect(gateway: &Gateway) -> Client {
    cluster::connect_raw(&gateway.address(), DATABASE, Capabilities::QUERY_ATTRIBUTES)
}

/// The rows of an answer as text, with the lengths of their values.
fn ask(client: &mut Client, attributes: &str, statement: &str) -> Vec<String> {
    let rows = client.ask(&format!("{attributes}{statement}"));
    rows.iter()
        .map(|row| String::from_utf8_lossy(row).into_owned())
        .collect()
}

#[tokio::test]
async fn where_a_client_asks_for_it() {
    let rule = "[[rule]]\nname = \"noticed\"\nclass = [\"read\"]\ncontinue = true";
    let gateway = cluster::start(cluster::split(cluster::shared()).tables(rule), 2).await;
    let mut client = connect(&gateway);
    if kind() == Kind::Mariadb {
        assert!(!client.capabilities.contains(Capabilities::QUERY_ATTRIBUTES));
        return;
    }
    let rows = ask(&mut client, ASKING, cluster::WHERE_AM_I);
    let port = rows[0]
        .trim_start_matches(|c: char| !c.is_ascii_digit())
        .to_owned();
    for _ in 0..2 {
        let warnings = ask(&mut client, NONE, "SHOW WARNINGS");
        let [note] = warnings.as_slice() else {
            panic!("{warnings:?}")
        };
        for part in [
            "Note",
            "1003",
            "class read",
            "rule noticed matches",
            "target replica",
        ] {
            assert!(note.contains(part), "{part}: {note}");
        }
        assert!(
            note.contains(&format!("ran on 127.0.0.1:{port};")),
            "it ran on {port}: {note}"
        );
    }

    // Where the server has warnings, those are shown; and only the last statement counts.
    ask(&mut client, ASKING, "SELECT CAST('x' AS SIGNED)");
    let warnings = ask(&mut client, NONE, "SHOW WARNINGS");
    assert!(
        warnings.len() == 1 && warnings[0].contains("1292"),
        "{warnings:?}"
    );
    ask(&mut client, ASKING, "SELECT 1");
    ask(&mut client, NONE, "SELECT 2");
    assert!(ask(&mut client, NONE, "SHOW WARNINGS").is_empty());
}
