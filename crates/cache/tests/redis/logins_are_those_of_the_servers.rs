//! Who may come in, and what he may read.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};

use sandbox::{Kind, PASSWORD, USER};

use crate::stage::Stage;

#[test]
fn nobody_reads_who_has_not_logged_in() {
    let stage = Stage::start(Kind::Mariadb, "", "");
    let mut client = stage.stranger();
    let unknown = "(NOAUTH Authentication required.)";
    let denied = "(WRONGPASS invalid username-password pair or user is disabled.)";
    client.expect(&[
        ("GET words@1", unknown),
        ("PING", unknown),
        ("nonsense", unknown),
        (&format!("AUTH {USER} wrong"), denied),
        ("AUTH reader secret", "OK"),
        ("GET words@1", "one"),
        ("RESET", "RESET"),
        ("GET words@1", unknown),
    ]);
    let refused = client.ask("HELLO 3");
    assert!(refused.starts_with("(NOAUTH HELLO must be called"), "{refused}");
    let greeted = client.ask(&format!("HELLO 3 AUTH {USER} {PASSWORD} SETNAME app"));
    assert!(greeted.starts_with("{server redis version "), "{greeted}");
    client.expect(&[
        ("CLIENT GETNAME", "app"),
        ("HGETALL items@7:n", "{name nut}"),
        ("GET words@3", "nil"),
        ("HELLO 4", "(NOPROTO unsupported protocol version)"),
    ]);
}

#[test]
fn a_user_reads_the_tables_that_it_may_read_and_grants_count_at_once() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let stage = Stage::start(kind, "", "");
        let mut client = stage.stranger();
        let refused = "(NOPERM the user may not read the table of mapping 'items')";
        client.expect(&[
            ("AUTH reader secret", "OK"),
            ("GET words@1", "one"),
            ("HGET items@7:n name", refused),
            ("DBSIZE", "2"),
        ]);
        let mut another = stage.stranger();
        another.expect(&[("AUTH reader secret", "OK")]);
        let info = another.ask("INFO");
        assert!(info.contains("words:kind=") && info.contains("keys=2,"), "{info}");
        assert!(!info.contains("items"), "{info}");
        stage.sql("GRANT SELECT ON shop.items TO reader@'%'");
        client.expect(&[("HGET items@7:n name", "nut"), ("DBSIZE", "4")]);
        stage.sql("REVOKE SELECT ON shop.items FROM reader@'%'");
        client.expect(&[("HGET items@7:n name", refused), ("GET words@1", "one")]);
    }
}

/// More rows than can be applied before the next statement is executed.
const MANY: &str = "INSERT INTO shop.words
    WITH RECURSIVE n AS (SELECT 0 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 400)
    SELECT 1000 * a.i + b.i + 10, REPEAT('x', 50) FROM n a JOIN n b;";

#[test]
fn rights_that_were_taken_while_memory_is_behind_are_taken() {
    let stage = Stage::start(Kind::Mariadb, "strong_wait = \"60s\"", "");
    let mut client = stage.stranger();
    client.expect(&[("AUTH reader secret", "OK"), ("GET words@1", "one")]);
    stage.sql(&format!("{MANY} REVOKE SELECT ON shop.words FROM reader@'%'"));
    let refused = "(NOPERM the user may not read the table of mapping 'words')";
    client.expect(&[("GET words@1", refused)]);
}

/// A client of the server that has a table for itself until this is dropped.
struct Holder(Child);

impl Holder {
    fn of(stage: &Stage, table: &str) -> Self {
        let mut client = stage.sandbox.primary().client();
        client.arg("--unbuffered");
        client.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = Self(client.spawn().unwrap());
        let stdin = holder.0.stdin.as_mut().unwrap();
        writeln!(stdin, "LOCK TABLES {table} WRITE; SELECT 'held';").unwrap();
        stdin.flush().unwrap();
        let mut said = String::new();
        BufReader::new(holder.0.stdout.as_mut().unwrap())
            .read_line(&mut said)
            .unwrap();
        assert_eq!(said.trim(), "held");
        holder
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The server takes its time for a row, which may have come after that.
#[test]
fn rights_that_were_taken_while_the_server_is_asked_are_taken() {
    let stage = Stage::start(Kind::Mariadb, "mode = \"bounded\"\nstrong_wait = \"60s\"", "");
    let (mut client, mut other) = (stage.stranger(), stage.client());
    client.expect(&[("AUTH reader secret", "OK"), ("GET words@1", "one")]);
    let holder = Holder::of(&stage, "shop.words");
    client.send("GET words@3\r\n");
    stage.until("the server is asked", || {
        let sessions = stage.sandbox.primary().sql("SHOW PROCESSLIST").unwrap();
        sessions.contains("Waiting for table metadata lock")
    });
    stage.sql("REVOKE SELECT ON shop.words FROM reader@'%'");
    // Memory has heard of it then.
    other.expect(&[("HGET items@7:n name", "nut")]);
    drop(holder);
    let refused = "(NOPERM the user may not read the table of mapping 'words')";
    assert_eq!(client.reply(), refused);
    client.expect(&[("GET words@3", refused)]);
}

#[test]
fn a_user_whom_the_server_refuses_reads_nothing() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let stage = Stage::start(kind, "", "");
        let mut client = stage.stranger();
        let refused = "(NOPERM the user may not read the table of mapping 'words')";
        client.expect(&[("AUTH reader secret", "OK"), ("GET words@1", "one")]);
        stage.sql("ALTER USER reader@'%' ACCOUNT LOCK");
        client.expect(&[("GET words@1", refused)]);
        stage.sql("ALTER USER reader@'%' ACCOUNT UNLOCK");
        client.expect(&[("GET words@1", "one")]);
        stage.sql("DROP USER reader@'%'");
        client.expect(&[("GET words@1", refused), ("GET words@1", refused)]);
    }
}

/// Servers may have two accounts of a name, for clients of other hosts, and other rights for each.
#[test]
fn rights_are_those_of_the_password_that_was_shown() {
    let user = "[[user]]\nname = \"reader\"\npassword = \"secret\"\nother_password = \"other\"";
    let stage = Stage::start(Kind::Mariadb, "", user);
    let mut client = stage.stranger();
    client.expect(&[("AUTH reader secret", "OK"), ("GET words@1", "one")]);
    let refused = "(NOPERM the user may not read the table of mapping 'words')";
    for _ in 0..8 {
        // On either worker.
        let mut client = stage.stranger();
        client.expect(&[("AUTH reader other", "OK"), ("GET words@1", refused)]);
    }
    client.expect(&[("GET words@1", "one")]);
}

#[test]
fn clients_see_and_end_one_another() {
    let stage = Stage::start(Kind::Mariadb, "", "");
    let (mut one, mut other) = (stage.client(), stage.client());
    let mut reader = stage.stranger();
    assert_eq!(reader.ask("AUTH reader secret"), "OK");
    one.expect(&[
        ("CLIENT SETNAME app", "OK"),
        ("CLIENT SETINFO LIB-NAME lib", "OK"),
        ("CLIENT SETNAME 'a b'", "(ERR Client names cannot contain spaces, newlines or special characters, nor more than 256 bytes.)"),
        ("CLIENT NO-EVICT ON", "OK"),
        ("SELECT 0", "OK"),
        ("SELECT 1", "(ERR DB index is out of range)"),
    ]);
    let id = one.ask("CLIENT ID");
    let list = other.ask("CLIENT LIST");
    assert_eq!(list.lines().count(), 3, "{list}");
    let line = list
        .lines()
        .find(|line| line.contains(&format!("id={id} ")))
        .unwrap();
    assert!(
        line.contains(" name=app ") && line.contains(" lib-name=lib "),
        "{line}"
    );
    assert_eq!(reader.ask(&format!("CLIENT KILL ID {id}")), "0");
    assert_eq!(
        reader.ask("CLIENT KILL ID x"),
        "(ERR client-id should be greater than 0)"
    );
    other.expect(&[
        ("CLIENT KILL 1.2.3.4:5", "(ERR No such client)"),
        ("CLIENT KILL ADDR 1.2.3.4:5", "0"),
        ("CLIENT KILL TYPE pubsub", "0"),
        ("CLIENT KILL TYPE foo", "(ERR Unknown client type 'foo')"),
        ("CLIENT KILL USER reader", "0"),
        (&format!("CLIENT KILL ID {id}"), "1"),
        ("CLIENT KILL ID 1 FOO", "(ERR syntax error)"),
        (
            "CLIENT UNBLOCK x",
            "(ERR value is not an integer or out of range)",
        ),
        (
            "CLIENT UNBLOCK 5 FOO",
            "(ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR)",
        ),
        ("CLIENT UNBLOCK 5 ERROR", "0"),
    ]);
    assert!(one.is_closed());
}

#[test]
fn clients_of_one_user_are_ended_by_what_they_are() {
    let stage = Stage::start(Kind::Mariadb, "", "");
    let (mut other, mut reader) = (stage.client(), stage.stranger());
    assert_eq!(reader.ask("AUTH reader secret"), "OK");
    let mut third = stage.client();
    let info = third.ask("CLIENT INFO");
    let word = |name: &str| {
        info.split(' ')
            .find_map(|word| word.strip_prefix(name))
            .unwrap()
            .to_owned()
    };
    let (address, local) = (word("addr="), word("laddr="));
    assert_eq!(
        reader.ask(&format!("CLIENT KILL {address}")),
        "(ERR No such client)"
    );
    assert_eq!(
        third.ask(&format!("CLIENT KILL LADDR {local} ADDR {address}")),
        "0",
        "not itself"
    );
    assert_eq!(other.ask(&format!("CLIENT KILL {address}")), "OK");
    assert!(third.is_closed());
    // Its connection is closed a moment before it is off the list.
    while other.ask("CLIENT LIST").contains(&format!("addr={address} ")) {
        std::thread::yield_now();
    }
    let mut fourth = stage.client();
    fourth.ask("PING");
    assert_eq!(
        other.ask("CLIENT KILL TYPE normal USER forebay"),
        "1",
        "all others of the user"
    );
    assert!(fourth.is_closed());
}

#[test]
fn where_accounts_are_listed_only_those_log_in() {
    let listed =
        "[[user]]\nname = \"reader\"\npassword = \"secret\"\n[[user]]\nname = \"open\"\npassword = \"\"";
    let stage = Stage::start(Kind::Mariadb, "", listed);
    stage.sql(
        "CREATE USER unlisted@'%' IDENTIFIED BY 'secret'; CREATE USER nopw@'%'; CREATE USER open@'%';
         GRANT ALL ON *.* TO unlisted@'%'; GRANT ALL ON *.* TO nopw@'%'; GRANT ALL ON *.* TO open@'%'",
    );
    let denied = "(WRONGPASS invalid username-password pair or user is disabled.)";
    for login in ["AUTH unlisted secret", "AUTH nopw \"\"", "AUTH open \"\""] {
        stage.stranger().expect(&[(login, denied)]);
    }
    let mut client = stage.stranger();
    let hint = client.ask("AUTH secret");
    assert!(
        hint.starts_with("(WRONGPASS ") && hint.contains("AUTH <user> <password>"),
        "{hint}"
    );
    client.expect(&[("AUTH reader secret", "OK"), ("GET words@1", "one")]);
}

#[test]
fn a_connection_ends_after_some_guesses() {
    let stage = Stage::start(Kind::Mariadb, "", "");
    let denied = "(WRONGPASS invalid username-password pair or user is disabled.)";
    let mut client = stage.stranger();
    client.expect(&[
        ("AUTH reader wrong", denied),
        ("AUTH nobody wrong", denied),
        ("AUTH reader secret", "OK"),
        ("AUTH reader wrong", denied),
    ]);
    assert!(client.is_closed());
    // What was sent ahead is not looked at.
    let mut client = stage.stranger();
    client.send("AUTH reader wrong\r\n".repeat(1000));
    for _ in 0..3 {
        assert_eq!(client.reply(), denied);
    }
    assert!(client.is_closed());
}
