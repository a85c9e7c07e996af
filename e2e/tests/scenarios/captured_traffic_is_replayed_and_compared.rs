//! Traffic is captured while the gateway serves it, replayed on a copy of the server, and compared: nothing
//! differs on a faithful copy, and a row that is another is found. No secret is in the files.

use std::path::Path;

use e2e::traffic::{bytes_of, forebay, has, replay_on, start, start_with, stop};
use e2e::{Setup, client, kind, servers};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder};
use sandbox::{Kind, Lent, Node, PASSWORD, USER};

/// What a capture must not have. The first of each is what is looked for.
const SECRETS: &[&str] = &include!("../../../crates/traffic/src/secrets_list.rs");

/// The table as it is on both servers before.
const TABLE: &str = "DROP TABLE IF EXISTS test.item;
    CREATE TABLE test.item (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(20), price DOUBLE)
        CHARACTER SET utf8mb4;
    INSERT INTO test.item VALUES (1, 'nail', 0.1), (2, 'hammer', 12.5), (3, 'saw', 20)";

async fn use_it(session: &mut Conn) {
    session.query_drop("SELECT * FROM test.item").await.unwrap();
    session
        .exec_drop("SELECT name FROM test.item WHERE id = ?", (1,))
        .await
        .unwrap();
    session
        .exec_drop("UPDATE test.item SET price = ? WHERE id = ?", (13.25, 2))
        .await
        .unwrap();
    let closed = session
        .prep("SELECT price FROM test.item WHERE id > ?")
        .await
        .unwrap();
    session.exec_drop(&closed, (0,)).await.unwrap();
    session.exec_drop(&closed, (1,)).await.unwrap();
    session.close(closed).await.unwrap();
    session.query_drop("BEGIN").await.unwrap();
    session
        .query_drop("INSERT INTO test.item (name, price) VALUES ('vise', 31), ('file', 4)")
        .await
        .unwrap();
    session.query_drop("COMMIT").await.unwrap();
    session.query_drop("SELECT NOW(), UUID()").await.unwrap();
    session
        .query_drop("SELECT name FROM test.item ORDER BY price DESC")
        .await
        .unwrap();
    let refused = session
        .query_drop("SELECT * FROM test.nothing")
        .await
        .unwrap_err();
    assert_eq!(client::code(&refused), 1146);
    session.query_drop("USE test").await.unwrap();
    session.query_drop("SELECT COUNT(*) FROM item").await.unwrap();
}

fn setup(servers: &[Lent], mode: &str) -> Setup {
    let user = format!("[[user]]\nname = {USER:?}\npassword = {PASSWORD:?}\n");
    let monitor =
        format!("topology = \"replication\"\nmonitor = {{ user = {USER:?}, password = {PASSWORD:?} }}\n");
    let setup = Setup::in_front_of(servers).mode(mode).cluster(&monitor);
    match mode {
        "split" => setup.tables(&user),
        _ => setup,
    }
}

async fn replayed_and_compared(mode: &str) {
    let servers = servers(2);
    let [source, copy] = [&servers[0], &servers[1]].map(|server| server.primary());
    source.sql(TABLE).unwrap();
    copy.sql(TABLE).unwrap();
    let gateway = setup(&servers[..1], mode).start();
    let mut before = client::connect(&gateway).await;
    before.query_drop("SELECT 1").await.unwrap();
    let captured = start(&gateway, "captured");
    let (code, said) = forebay(&[
        "traffic",
        "capture",
        "start",
        "--to",
        "/x/y",
        "--socket",
        &gateway.folder().join("admin.sock").display().to_string(),
    ]);
    assert!(code == Some(1) && said.contains("runs already"), "{said}");
    use_it(&mut before).await;
    let mut session = client::connect(&gateway).await;
    session.query_drop("SELECT 'of another session'").await.unwrap();
    session.disconnect().await.unwrap();
    // What a literal is turns on the collation with which the client has logged in.
    let of_latin1 = ["--default-character-set=latin1"];
    let said = client::command_line(gateway.port(), &of_latin1, "SELECT COLLATION('x')").unwrap();
    assert!(said.contains("latin1"), "{said}");
    stop(&gateway);
    assert_eq!(gateway.metric("forebay_capture_running", &[]), 0.0);
    let (code, said) = forebay(&["traffic", "capture", "verify", &captured]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("of 3 sessions") && said.contains("ended: stopped"),
        "{said}"
    );
    assert!(!said.contains("not asked"), "{said}");

    let replay = |result: &str, more: &[&str]| {
        replay_on(copy, &captured, result, &[&["--any-position"][..], more].concat())
    };
    let result = |name: &str| gateway.folder().join(name).display().to_string();
    // The source itself is refused.
    let (code, said) = replay_on(source, &captured, &result("refused"), &[]);
    assert!(code == Some(1) && said.contains("--even-source"), "{said}");
    assert!(!Path::new(&result("refused")).exists());
    let (code, said) = replay(&result("faithful"), &["--even-source"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = forebay(&[
        "traffic",
        "compare",
        &captured,
        &result("faithful"),
        "--fail-on",
        "errors,rows,missing",
    ]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("now (1)"), "{said}");

    in_parts_and_otherwise(&captured, copy, &replay, &result);

    copy.sql(TABLE).unwrap();
    copy.sql("UPDATE test.item SET name = 'tack' WHERE id = 1")
        .unwrap();
    let (code, said) = replay(&result("another"), &["--even-source"]);
    assert_eq!(code, Some(0), "{said}");
    let (page, json) = (result("page.html"), result("report.json"));
    let (code, said) = forebay(&[
        "traffic",
        "compare",
        &captured,
        &result("another"),
        "--html",
        &page,
        "--json",
        &json,
        "--explain-a",
        &source.address(),
        "--explain-b",
        &copy.address(),
        "--user",
        USER,
        "--password-env",
        "REPLAY_PASSWORD",
    ]);
    assert!(
        code == Some(2) && said.contains("other values in 3 rows: SELECT * FROM test.item"),
        "{said}"
    );
    assert!(
        std::fs::read_to_string(page)
            .unwrap()
            .contains("SELECT * FROM test.item")
    );
    assert!(said.contains("plan of b:"), "{said}");
    what_differs_has_both_plans(&json);
}

/// The report has how both servers execute what differs, of what reads alone.
fn what_differs_has_both_plans(json: &str) {
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let statements = report["statements"].as_array().unwrap();
    let asked = "SELECT * FROM test.item";
    let statement = statements
        .iter()
        .find(|statement| statement["text"] == asked && statement["command"] == "query");
    let plans = &statement.unwrap()["plans"];
    assert_eq!(plans["text"], asked);
    for side in ["a", "b"] {
        let plan = plans[side].as_str().unwrap();
        assert!(plan.contains("item") && !plan.contains("error"), "{plan}");
    }
    for statement in statements {
        let text = statement["text"].as_str().unwrap().to_uppercase();
        let reads = text.starts_with("SELECT");
        assert!(reads || statement["plans"].is_null(), "{statement}");
    }
}

/// What is replayed to, and with which options; how it ended, and what it said.
type Replay<'a> = dyn Fn(&str, &[&str]) -> (Option<i32>, String) + 'a;

/// What was captured is replayed in other ways: by two replayers, with other lives of prepared statements,
/// into another schema, and nothing of it.
fn in_parts_and_otherwise(captured: &str, copy: &Node, replay: &Replay<'_>, result: &dyn Fn(&str) -> String) {
    // Two replayers have each a part, and together all of it.
    copy.sql(TABLE).unwrap();
    let parts = [result("part-1"), result("part-2")];
    for (part, index) in parts.iter().zip(["1/2", "2/2"]) {
        let (code, said) = replay(part, &["--even-source", "--index", index]);
        assert_eq!(code, Some(0), "{said}");
    }
    let compare = |b: &[&str]| {
        let fixed = ["traffic", "compare", "--fail-on", "errors,rows,missing", captured];
        forebay(&[&fixed[..], b].concat())
    };
    let (code, said) = compare(&[&parts[0], &parts[1]]);
    assert!(
        code == Some(0) && said.contains(" 0 only in a, 0 only in b"),
        "{said}"
    );
    // Few sessions may all be in one of the parts.
    let lacking = parts.iter().filter(|part| {
        let (code, said) = compare(&[part.as_str()]);
        code == Some(2) && said.contains("commands are missing")
    });
    assert_ne!(lacking.count(), 0);
    // Sessions begin in another schema, and prepared statements live as long as is said.
    copy.sql("CREATE DATABASE IF NOT EXISTS elsewhere").unwrap();
    for (name, close) in [("always", "always"), ("never", "never")] {
        copy.sql(TABLE).unwrap();
        copy.sql("DROP TABLE IF EXISTS elsewhere.item; CREATE TABLE elsewhere.item SELECT 1 AS one")
            .unwrap();
        let (code, said) = replay(
            &result(name),
            &["--even-source", "--close", close, "--schema", "test=elsewhere"],
        );
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(said.contains("--close never"), close == "never", "{said}");
        // But for the count, which is that of the other schema.
        let (_, said) = compare(&[&result(name)]);
        assert!(
            said.contains("errors: 0 new, 0 gone, 0 other   results: 0 rows, 0 affected, 1 values"),
            "{said}"
        );
        assert!(
            said.contains("other values in 1 rows: SELECT COUNT(*) FROM item"),
            "{said}"
        );
    }
    // Of what was not chosen nothing is sent, and nothing is missing.
    copy.sql(TABLE).unwrap();
    for (name, more) in [("nobody", ["--only-user", "nobody"]), ("late", ["--after", "1h"])] {
        let (code, said) = replay(&result(name), &["--even-source", more[0], more[1]]);
        assert!(code == Some(0) && said.contains("not chosen"), "{said}");
        let (_, said) = compare(&[&result(name)]);
        assert!(
            said.contains(" 0 only in a, 0 only in b") && said.contains("errors: 0 new"),
            "{said}"
        );
    }
    assert!(copy.sql("SELECT COUNT(*) FROM test.item").unwrap().contains('3'));
}

#[tokio::test]
async fn in_mode_session() {
    replayed_and_compared("session").await;
}

#[tokio::test]
async fn in_mode_split() {
    replayed_and_compared("split").await;
}

/// The file of a `LOAD DATA LOCAL` is captured, and loaded by a replay, only where that was asked for.
fn files_are_captured_where_that_is_asked_for(mode: &str) {
    const TABLE: &str =
        "DROP TABLE IF EXISTS test.loaded; CREATE TABLE test.loaded (id INT PRIMARY KEY, label VARCHAR(60))";
    let servers = servers(2);
    let [source, copy] = [&servers[0], &servers[1]].map(|server| server.primary());
    let gateway = setup(&servers[..1], mode).start();
    let file = gateway.folder().join("rows.txt");
    let lines: String = (0..20_000)
        .map(|id| format!("{id}\tof the file {id}\n"))
        .collect();
    std::fs::write(&file, lines).unwrap();
    let load = format!(
        "LOAD DATA LOCAL INFILE '{}' INTO TABLE test.loaded",
        file.display()
    );
    let rows = |server: &Node| {
        let rows = "SELECT COUNT(*), SUM(id), MAX(label) FROM test.loaded";
        server.sql(rows).unwrap()
    };
    let options: [(&str, &[&str], bool); 3] = [
        ("with", &["--load-data"], true),
        ("without", &[], false),
        ("short", &["--load-data", "100KiB"], false),
    ];
    for (name, options, is_captured) in options {
        source.sql(TABLE).unwrap();
        copy.sql(TABLE).unwrap();
        let captured = start_with(&gateway, name, options);
        client::command_line(gateway.port(), &["--local-infile=1"], &load).unwrap();
        stop(&gateway);
        assert!(rows(source).contains("20000"), "{name}");
        let bytes = bytes_of(&captured);
        assert!(has(&bytes, &load), "{name}");
        for row in [0, 10_000, 19_999] {
            let row = format!("of the file {row}\n");
            assert_eq!(has(&bytes, &row), is_captured, "{name}: {row}");
        }
        let result = gateway.folder().join(format!("{name}-replayed"));
        let result = result.display().to_string();
        let (code, said) = replay_on(copy, &captured, &result, &["--even-source", "--any-position"]);
        assert_eq!(code, Some(0), "{name}: {said}");
        let is_left_out = said.contains("loads a file of the client's");
        assert_eq!(is_left_out, !is_captured, "{name}: {said}");
        assert_eq!(rows(copy) == rows(source), is_captured, "{name}");
        if is_captured {
            let folders = ["traffic", "compare", &captured, &result];
            let (code, said) = forebay(&[&folders[..], &["--fail-on", "errors,rows,missing"]].concat());
            assert_eq!(code, Some(0), "{said}");
        }
    }
}

#[test]
fn files_are_captured_in_mode_session() {
    files_are_captured_where_that_is_asked_for("session");
}

#[test]
fn files_are_captured_in_mode_split() {
    files_are_captured_where_that_is_asked_for("split");
}

#[tokio::test]
async fn no_secret_is_in_the_files() {
    let servers = servers(1);
    let server = servers[0].primary();
    let secret = "Geheim00";
    server
        .sql(&format!(
            "DROP USER IF EXISTS nobody@'%'; CREATE USER nobody@'%' IDENTIFIED BY '{secret}';"
        ))
        .unwrap();
    let gateway = Setup::in_front_of(&servers).start();
    let folder = start(&gateway, "captured");
    let account: Opts = client::options(&gateway)
        .user(Some("nobody"))
        .pass(Some(secret))
        .db_name(None::<&str>)
        .into();
    let log_in = async || {
        // Some of the statements have changed it.
        server
            .sql(&format!("ALTER USER nobody@'%' IDENTIFIED BY '{secret}'"))
            .unwrap();
        if kind() == Kind::Mysql {
            // It asks for the password itself over a secure link once.
            let first = OptsBuilder::default()
                .socket(Some(server.socket().display().to_string()))
                .user(Some("nobody"))
                .pass(Some(secret));
            Conn::new(first).await.unwrap().disconnect().await.unwrap();
        }
        Conn::new(account.clone()).await.unwrap()
    };
    let mut session = log_in().await;
    for statement in SECRETS {
        // Most are refused: this account has no rights. They come by text and to be prepared.
        let _ = session.query_drop(*statement).await;
        let _ = session.prep(*statement).await;
        // MySQL 9.7 says a plain OK to the preparation of a SET GLOBAL without the right to it, at which this
        // driver ends.
        if session.ping().await.is_err() {
            session = log_in().await;
        }
    }
    let encrypt = "SELECT AES_ENCRYPT(?, ?)";
    session
        .exec_drop(encrypt, ("Geheim70", "Geheim71"))
        .await
        .unwrap();
    // Refused or not, by the account that may do everything.
    let mut able = client::connect(&gateway).await;
    for (text, parameters) in [
        (
            "SET @s = ?",
            vec!["ALTER USER nobody@'%' IDENTIFIED BY 'Geheim73'"],
        ),
        (
            "SELECT CONCAT(?, ?) INTO @s",
            vec!["ALTER US", "ER a IDENTIFIED BY 'Geheim74'"],
        ),
        ("SELECT ?", vec!["CREATE USER a IDENTIFIED BY 'Geheim75'"]),
    ] {
        able.exec_drop(text, parameters).await.unwrap();
    }
    able.query_drop("USE mysql").await.unwrap();
    for text in [
        "UPDATE user SET plugin = 'Geheim76' WHERE User = 'is not there'",
        "INSERT INTO servers (Server_name, Password) VALUES ('s', 'Geheim77')",
    ] {
        let _ = able.query_drop(text).await;
    }
    drop(able);
    server
        .sql("DELETE FROM mysql.servers WHERE Server_name = 's'")
        .unwrap();
    let mut other = client::connect(&gateway).await;
    let _ = other
        .change_user(
            mysql_async::ChangeUserOpts::default()
                .with_user(Some("nobody".into()))
                .with_pass(Some("Geheim72".into())),
        )
        .await;
    drop((session, other));
    let mut session = client::connect(&gateway).await;
    session.query_drop("SELECT 'this is found'").await.unwrap();
    stop(&gateway);
    let bytes = bytes_of(&folder);
    assert!(has(&bytes, "SELECT 'this is found'"), "nothing was captured");
    assert!(
        !has(&bytes, "Geheim"),
        "{}",
        forebay(&["traffic", "capture", "show", &folder]).1
    );
    assert!(!has(&bytes, "476568656d"), "in hexadecimal");
    server.sql("DROP USER IF EXISTS nobody@'%'").unwrap();
}

/// What a capture has is the same for a command line client as text, parameters of prepared statements
/// included.
#[tokio::test]
async fn a_capture_is_exported_as_text() {
    let servers = servers(2);
    let [source, copy] = [&servers[0], &servers[1]].map(|server| server.primary());
    source.sql(TABLE).unwrap();
    copy.sql(TABLE).unwrap();
    let gateway = Setup::in_front_of(&servers[..1]).start();
    let captured = start(&gateway, "captured");
    let mut session = client::connect(&gateway).await;
    for name in [
        "it's",
        "back\\slash \\! echo",
        "\"quoted\"; SELECT ?",
        "größer\n\0",
        "日本",
    ] {
        session
            .exec_drop(
                "INSERT INTO test.item (name, price) VALUES (?, ?) /* ? */",
                (name, 0.1 + 0.2),
            )
            .await
            .unwrap();
    }
    session
        .exec_drop(
            "INSERT INTO test.item (name, price) VALUES (?, NULL)",
            (None::<&str>,),
        )
        .await
        .unwrap();
    session
        .query_drop("INSERT INTO test.item (name) VALUES ('a;b\nsystem echo c')")
        .await
        .unwrap();
    let refused = session
        .query_drop("-- x\nsystem touch /tmp/forebay-was-here")
        .await;
    assert_eq!(client::code(&refused.unwrap_err()), 1064);
    // An é in latin1 alone.
    session.query_drop("SET NAMES latin1").await.unwrap();
    let insert = "INSERT INTO test.item (name) VALUES (?)";
    session.exec_drop(insert, (vec![0xe9_u8],)).await.unwrap();
    session.query_drop("BEGIN").await.unwrap();
    session.query_drop("DELETE FROM test.item").await.unwrap();
    session.disconnect().await.unwrap();
    stop(&gateway);
    let text = gateway.folder().join("captured.sql").display().to_string();
    let (code, said) = forebay(&["traffic", "export", &captured, "--as", "sql", "--output", &text]);
    assert!(
        code == Some(0) && said.contains("12 statements, 1 left out"),
        "{said}"
    );
    let input = std::fs::File::open(&text).unwrap();
    let text = std::fs::read_to_string(&text).unwrap();
    assert!(!text.contains("forebay-was-here"), "{text}");
    let mut command = client::tool("mariadb", "mysql");
    let arguments = ["--no-defaults", "--batch", "--binary-mode"];
    let ran = client::login(command.args(arguments), copy.port())
        .stdin(input)
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}\n{text}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let rows = "SELECT id, HEX(name), price FROM test.item ORDER BY id";
    let [there, here] = [source, copy].map(|server| server.sql(rows).unwrap());
    assert_eq!(there, here, "{text}");
    assert!(there.lines().any(|line| line.contains("\tC3A9\t")), "{there}");
}

#[tokio::test]
async fn what_is_captured_with_a_key_is_read_with_it_alone() {
    let servers = servers(2);
    let copy = servers[1].primary();
    let gateway = Setup::in_front_of(&servers[..1]).start();
    let [key, other] = ["key", "other"].map(|name| {
        let file = gateway.folder().join(name).display().to_string();
        let (code, said) = forebay(&["traffic", "key", &file]);
        assert_eq!(code, Some(0), "{said}");
        file
    });
    let folder = start_with(&gateway, "captured", &["--key-file", &key]);
    let mut session = client::connect(&gateway).await;
    session.query_drop("SELECT 'nobody sees this'").await.unwrap();
    session.disconnect().await.unwrap();
    stop(&gateway);
    let bytes = std::fs::read(Path::new(&folder).join("traffic-000001.fbt")).unwrap();
    assert!(!has(&bytes, "nobody sees"));
    let show = |folder: &str, more: &[&str]| {
        let fixed = ["traffic", "capture", "show", folder];
        forebay(&[&fixed[..], more].concat())
    };
    let (code, said) = show(&folder, &[]);
    assert!(
        code == Some(1) && said.contains("encrypted: --key-file"),
        "{said}"
    );
    let (code, said) = show(&folder, &["--key-file", &other]);
    assert!(code == Some(1) && said.contains("another key"), "{said}");
    let (code, said) = show(&folder, &["--key-file", &key]);
    assert!(code == Some(0) && said.contains("nobody sees this"), "{said}");

    let others = gateway.folder().join("others").display().to_string();
    let (code, said) = forebay(&[
        "traffic",
        "anonymise",
        &folder,
        "--key-file",
        &key,
        "--to",
        &others,
    ]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = show(&others, &["--key-file", &key]);
    assert!(code == Some(0) && said.contains("SELECT '"), "{said}");
    assert!(
        !said.contains("nobody sees this") && !said.contains(USER),
        "{said}"
    );
    let (_, said) = forebay(&["traffic", "capture", "verify", &others, "--key-file", &key]);
    assert!(said.contains("anonymised: values are pseudonyms"), "{said}");

    let result = gateway.folder().join("result").display().to_string();
    let more = ["--key-file", &key, "--even-source", "--any-position"];
    let (code, said) = replay_on(copy, &folder, &result, &more);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = show(&result, &[]);
    assert!(
        code == Some(1) && said.contains("encrypted: --key-file"),
        "{said}"
    );
    let (code, said) = forebay(&["traffic", "compare", &folder, &result, "--key-file", &key]);
    assert_eq!(code, Some(0), "{said}");
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let (code, said) = show(&folder, &["--key-file", &key]);
    assert!(
        code == Some(1) && said.contains("may be read by others"),
        "{said}"
    );
}
