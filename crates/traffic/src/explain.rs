//! Asks both servers how they execute the statements that a comparison has found to differ, or to be slower.
//!
//! Only what surely reads is asked, behind `EXPLAIN`, never with `ANALYZE`, which executes it. While they
//! plan servers call functions whose arguments are constants, so that no text is asked with a function that
//! does something.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use mysql_wire::{Capabilities, Command, ErrPacket, text_values};
use sql_class::text::has;
use sql_class::{Class, Dialect, Effects, Syntax};
use tokio::time::timeout;
use upstream::conversation::Reply;

use crate::compare::{Comparison, Plans, Statement};
use crate::export::Texts;
use crate::file::{FileError, Folder};
use crate::record::{Record, SessionRecord, harmless};
use crate::replay::{Client, Login, Permitted, ReplayAnswer};
use crate::seal::Key;
use crate::words::{begins_with, without_comments_in_front};

/// Statements that are asked.
const ASKED_MAX: usize = 20;
/// Statements of which texts are looked for: not all may be asked.
const LOOKED_FOR_MAX: usize = 200;
/// A statement with a p99 so many times that of before is asked, although nothing differs.
const SLOWER: f64 = 1.5;
/// For an answer. Connections have the same limit.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of a plan, and of its text.
const PLAN_MAX: usize = 16 << 10;

/// What both servers are asked.
struct ExplainQuestion {
    text: Vec<u8>,
    schema: Vec<u8>,
    /// The part of its session that changes how the text is read.
    session: SessionRecord,
}

/// Asks both servers for the plans of the first statements of the comparison that differ or are slower, each
/// with the first text of its kind that may be asked. `folder`: the first folder of the comparison. `key`:
/// with which it is sealed, if it is.
///
/// # Errors
/// The folder cannot be read. What servers say stands in the place of their plans.
pub async fn explain(
    comparison: &mut Comparison,
    folder: &Path,
    key: Option<&Key>,
    servers: [SocketAddr; 2],
    login: &Login,
) -> Result<(), FileError> {
    let mut servers = servers.map(|address| Server {
        address,
        login,
        failed: None,
    });
    for (index, question) in questions(comparison, folder, key)? {
        let [a, b] = &mut servers;
        let plans = Plans {
            a: a.plan(&question).await,
            b: b.plan(&question).await,
            text: cut(harmless(&String::from_utf8_lossy(&question.text))),
        };
        comparison.statements[index].plans = Some(plans);
    }
    Ok(())
}

/// By the places of their statements in the comparison.
fn questions(
    comparison: &Comparison,
    folder: &Path,
    key: Option<&Key>,
) -> Result<BTreeMap<usize, ExplainQuestion>, FileError> {
    let statements = comparison.statements.iter().enumerate();
    let mut places: HashMap<(u64, &str), usize> = statements
        .filter(|(_, statement)| is_worse(statement))
        .take(LOOKED_FOR_MAX)
        .filter_map(|(index, statement)| {
            let digest = u64::from_str_radix(&statement.digest, 16).ok()?;
            Some(((digest, statement.command.as_str()), index))
        })
        .collect();
    let mut texts = Texts::new(Permitted {
        read_only: true,
        all: false,
    });
    let mut sessions = HashMap::new();
    let mut questions = BTreeMap::new();
    let mut folder = Folder::open_one_of_several(folder, key)?;
    while !places.is_empty() {
        let Some(record) = folder.next_record()? else {
            break;
        };
        match record {
            Record::Session(session) => {
                texts.begin(&session);
                let of_reading = SessionRecord {
                    // Whatever comes behind a semicolon the servers are to refuse.
                    capabilities: session.capabilities & Capabilities::IGNORE_SPACE.0,
                    collation: session.collation,
                    ..SessionRecord::default()
                };
                sessions.insert(session.id, of_reading);
            }
            Record::Command(command) => {
                let said = texts.of(&command);
                let place = (command.digest, Command(command.command).name());
                if let Some(Ok(text)) = said
                    && let Some(&index) = places.get(&place)
                    && may_be_asked(&text)
                {
                    places.remove(&place);
                    let question = ExplainQuestion {
                        text: without_comments_in_front(&text).to_vec(),
                        schema: command.schema,
                        session: sessions.get(&command.session).cloned().unwrap_or_default(),
                    };
                    questions.insert(index, question);
                }
            }
            Record::Head(_) | Record::Thinned { .. } | Record::End(_) | Record::Result(_) => {}
        }
    }
    Ok(questions.into_iter().take(ASKED_MAX).collect())
}

fn is_worse(statement: &Statement) -> bool {
    let difference = &statement.difference;
    let is_slower = difference.timed > 0 && difference.b.p99 > difference.a.p99 * SLOWER;
    difference.errors() + difference.results() + difference.warnings > 0 || is_slower
}

/// Whether a text only reads, with whatever `sql_mode` it is read on a server of MySQL or MariaDB.
fn may_be_asked(text: &[u8]) -> bool {
    // Another connection has other values of these, and they change nothing that stays.
    const HARMLESS: Effects = Effects::USER_VARIABLES
        .with(Effects::READS_LAST_INSERT_ID)
        .with(Effects::READS_ROW_COUNT)
        .with(Effects::READS_FOUND_ROWS)
        .with(Effects::READS_DIAGNOSTICS)
        .with(Effects::CALCULATES_FOUND_ROWS)
        .with(Effects::READS_CONNECTION_ID)
        .with(Effects::READS_SERVER)
        .with(Effects::READS_LAST_GTID);
    // What servers read in such comments turns on their versions.
    if has(text, b"/*!") || has(text, b"/*M!") {
        return false;
    }
    let plain = without_comments_in_front(text);
    // Behind EXPLAIN other words have meanings of their own: ANALYZE executes.
    ["SELECT", "WITH", "("]
        .into_iter()
        .any(|word| begins_with(plain, word))
        && syntaxes().all(|syntax| {
            let facts = sql_class::facts(text, syntax);
            facts.class == Class::Read && facts.statements == 1 && HARMLESS.contains(facts.effects)
        })
}

fn syntaxes() -> impl Iterator<Item = Syntax> {
    const MARIADB: Dialect = Dialect::MariaDb { version: 120_000 };
    let modes = [[false, false], [false, true], [true, false], [true, true]];
    [Dialect::default(), MARIADB]
        .into_iter()
        .flat_map(move |dialect| {
            modes.map(|[ansi_quotes, no_backslash_escapes]| Syntax {
                ansi_quotes,
                no_backslash_escapes,
                dialect,
                ..Syntax::default()
            })
        })
}

struct Server<'a> {
    address: SocketAddr,
    login: &'a Login,
    /// Why there was no connection. None is tried again: servers lock accounts whose login fails often, and
    /// twenty times the limit is long.
    failed: Option<String>,
}

impl Server<'_> {
    /// The server's plan, or why there is none.
    async fn plan(&mut self, question: &ExplainQuestion) -> String {
        if let Some(why) = &self.failed {
            return why.clone();
        }
        let client = match Client::connect(self.address, self.login, &question.session).await {
            Ok(client) => client,
            Err(why) => return self.failed.insert(cut(harmless(&why.to_string()))).clone(),
        };
        let (Ok(said) | Err(said)) = timeout(ANSWER_LIMIT, ask(client, question))
            .await
            .unwrap_or_else(|_| Err(format!("no answer within {} s", ANSWER_LIMIT.as_secs())));
        cut(said)
    }
}

/// Each question has a connection of its own, so that none is asked in the schema of another one.
async fn ask(mut client: Client, question: &ExplainQuestion) -> Result<String, String> {
    let explain = [&b"EXPLAIN "[..], &question.text].concat();
    let commands: [(Command, &[u8]); 3] = [
        // A function within a view may write. Servers that cannot forbid it are asked all the same.
        (Command::QUERY, b"SET SESSION TRANSACTION READ ONLY"),
        (Command::INIT_DB, &question.schema),
        (Command::QUERY, &explain),
    ];
    let mut said = Ok(String::new());
    for (index, (command, body)) in commands.into_iter().enumerate() {
        if body.is_empty() {
            continue;
        }
        let payload = [&[command.0], body].concat();
        let answer = client.ask(&payload).await.map_err(|why| why.to_string())?;
        said = in_lines(answer, client.capabilities);
        if index > 0 && said.is_err() {
            break;
        }
    }
    client.close().await;
    said
}

/// A line for each row, or the server's error.
fn in_lines(answer: ReplayAnswer, capabilities: Capabilities) -> Result<String, String> {
    let reply = Reply {
        outcome: answer.outcome,
        bytes: answer.packets,
    };
    let text = |value: &[u8]| harmless(&String::from_utf8_lossy(value));
    if let Some(code) = reply.outcome.error {
        let packet = reply.packets().last().unwrap_or_default();
        let message =
            ErrPacket::decode(packet, capabilities).map_or_else(|_| Vec::new(), |error| error.message);
        return Err(format!("error {code}: {}", text(&message)));
    }
    let first = reply.packet(0).and_then(|first| first.first().copied());
    let columns = usize::from(first.unwrap_or(0));
    // The fifth text of a column's definition is its name.
    let name = |definition: &[u8]| match text_values(definition).nth(4) {
        Some(Ok(Some(name))) => text(name),
        _ => String::new(),
    };
    let names: Vec<String> = reply.packets().skip(1).take(columns).map(name).collect();
    let is_old = !capabilities.contains(Capabilities::DEPRECATE_EOF);
    let rows = reply.packets().skip(1 + columns + usize::from(is_old));
    let line = |row: &[u8]| {
        let values = text_values(row).map(|value| value.ok().flatten().map_or("NULL".to_owned(), text));
        let fields = names.iter().zip(values);
        let fields: Vec<_> = fields.map(|(name, value)| format!("{name}={value}")).collect();
        fields.join("\t")
    };
    let lines: Vec<String> = rows.take(reply.outcome.rows as usize).map(line).collect();
    Ok(lines.join("\n"))
}

fn cut(mut text: String) -> String {
    if text.len() > PLAN_MAX {
        let end = (0..=PLAN_MAX).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use mysql_wire::{Outcome, write_packet};
    use tokio::net::TcpSocket;

    use super::*;
    use crate::file::FolderWriter;
    use crate::record::{CommandRecord, Head};
    use crate::report;

    #[test]
    fn only_what_surely_reads_may_be_asked() {
        for text in [
            "SELECT 1",
            "/* of a report */ select a FROM t WHERE b = 'x' LIMIT 3",
            "(SELECT a FROM t) UNION (SELECT b FROM t)",
            "WITH x AS (SELECT 1 AS one) SELECT one FROM x",
            "SELECT COUNT(*), MAX(a), CONNECTION_ID() FROM t",
        ] {
            assert!(may_be_asked(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            "SELECT a FROM t INTO OUTFILE '/tmp/x'",
            "SELECT a INTO DUMPFILE '/tmp/x' FROM t",
            "SELECT LOAD_FILE('/tmp/x')",
            "SELECT a FROM t FOR UPDATE",
            "SELECT a FROM t LOCK IN SHARE MODE",
            "CALL p()",
            "SELECT GET_LOCK('a', 1)",
            "SELECT a FROM t WHERE RELEASE_LOCK('a') = 1",
            "SELECT NEXTVAL(s)",
            "SELECT shop.charge(1)",
            "SELECT my_own(1)",
            "SELECT LAST_INSERT_ID(5)",
            "SELECT 1; SELECT 2",
            "SELECT 1; DELETE FROM t",
            "SELECT 1 /*! INTO OUTFILE '/tmp/x' */",
            "SELECT 1 /*M! INTO OUTFILE '/tmp/x' */",
            "WITH x AS (SELECT 1) DELETE FROM t",
            "ANALYZE SELECT 1",
            "ANALYZE FORMAT=JSON SELECT 1",
            "EXPLAIN SELECT 1",
            "EXPLAIN ANALYZE SELECT 1",
            "SHOW TABLES",
            "DELETE FROM t",
            "SELECT 'open",
            // With NO_BACKSLASH_ESCAPES a text ends where it does not without.
            r"SELECT '\', GET_LOCK(1, 1), '",
        ] {
            assert!(!may_be_asked(text.as_bytes()), "{text}");
        }
    }

    fn command(kind: Command, number: u64, text: &str, body: &[u8]) -> Record {
        Record::Command(Box::new(CommandRecord {
            session: 1,
            number,
            command: kind.0,
            digest: sql_class::digest(text.as_bytes(), Syntax::default()).hash,
            schema: b"shop".to_vec(),
            body: body.to_vec(),
            statement: 7,
            parameters: 1,
            rows: number,
            ..CommandRecord::default()
        }))
    }

    /// A folder in which counts of rows are the numbers of commands and more.
    fn folder(place: &Path, name: &str, more: u64) -> std::path::PathBuf {
        const PREPARED: &str = "SELECT a FROM t WHERE b = ?";
        let folder = place.join(name);
        let mut writer = FolderWriter::create(&folder, Head::default(), 1 << 20, None).unwrap();
        let query = |number, text: &str| command(Command::QUERY, number, text, text.as_bytes());
        let session = SessionRecord {
            id: 1,
            capabilities: u64::MAX,
            collation: 8,
            ..SessionRecord::default()
        };
        let execution = [
            &7_u32.to_le_bytes()[..],
            &[0, 1, 0, 0, 0, 0, 1, 8, 0],
            &[5, 0, 0, 0, 0, 0, 0, 0],
        ]
        .concat();
        let records = [
            Record::Session(session),
            query(0, "SELECT a FROM t FOR UPDATE"),
            query(1, "/* why */ SELECT c FROM t WHERE d = 'first'"),
            query(2, "SELECT c FROM t WHERE d = 'second'"),
            command(Command::STMT_PREPARE, 3, PREPARED, PREPARED.as_bytes()),
            command(Command::STMT_EXECUTE, 4, PREPARED, &execution),
        ];
        for mut record in records {
            if let Record::Command(command) = &mut record {
                command.rows += more;
            }
            writer.put(&record).unwrap();
        }
        writer.finish().unwrap();
        folder
    }

    #[tokio::test]
    async fn what_differs_is_asked_with_its_values() {
        let place = tempfile::tempdir().unwrap();
        let (a, b) = (folder(place.path(), "a", 0), folder(place.path(), "b", 1));
        let same = crate::compare::compare(&a, &[&a], None).unwrap();
        assert!(questions(&same, &a, None).unwrap().is_empty());
        let mut comparison = crate::compare::compare(&a, &[&b], None).unwrap();
        let asked = questions(&comparison, &a, None).unwrap();
        let mut texts: Vec<_> = asked.values().map(|question| &question.text[..]).collect();
        texts.sort_unstable();
        assert_eq!(
            texts,
            [
                &b"SELECT a FROM t WHERE b = 5"[..],
                b"SELECT c FROM t WHERE d = 'first'"
            ]
        );
        for question in asked.values() {
            let has = |what: Capabilities| Capabilities(question.session.capabilities).contains(what);
            assert_eq!(
                (&question.schema[..], question.session.collation),
                (&b"shop"[..], 8)
            );
            assert!(has(Capabilities::IGNORE_SPACE) && !has(Capabilities::MULTI_STATEMENTS));
        }
        // Where nobody listens the reason is shown in the place of the plan.
        let (_place, nobody) = bound();
        let login = Login {
            user: "app".to_owned(),
            password: String::new(),
        };
        explain(&mut comparison, &a, None, [nobody, nobody], &login)
            .await
            .unwrap();
        let plans: Vec<_> = comparison
            .statements
            .iter()
            .filter_map(|statement| statement.plans.as_ref())
            .collect();
        assert_eq!(plans.len(), 2);
        assert!(
            plans.iter().all(|plans| plans.a.contains("no connection")),
            "{plans:?}"
        );
    }

    /// A socket that does not listen, with an address that nobody else gets meanwhile.
    fn bound() -> (TcpSocket, SocketAddr) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = socket.local_addr().unwrap();
        (socket, address)
    }

    #[tokio::test]
    async fn a_server_that_lets_nobody_in_is_not_asked_again() {
        let (place, address) = bound();
        let login = Login {
            user: "app".to_owned(),
            password: String::new(),
        };
        let mut server = Server {
            address,
            login: &login,
            failed: None,
        };
        let question = ExplainQuestion {
            text: b"SELECT 1".to_vec(),
            schema: Vec::new(),
            session: SessionRecord::default(),
        };
        let why = server.plan(&question).await;
        let listener = place.listen(1).unwrap().into_std().unwrap();
        assert_eq!(server.plan(&question).await, why);
        assert!(listener.accept().is_err(), "it was asked again");
    }

    #[test]
    fn what_has_become_much_slower_is_worse() {
        let mut statement = Statement::default();
        assert!(!is_worse(&statement));
        statement.difference.timed = 10;
        (statement.difference.a.p99, statement.difference.b.p99) = (2.0, 3.0);
        assert!(!is_worse(&statement));
        statement.difference.b.p99 = 3.1;
        assert!(is_worse(&statement));
        // Where no times are known, those in their place mean nothing.
        statement.difference.timed = 0;
        assert!(!is_worse(&statement));
    }

    #[test]
    fn rows_become_lines_and_errors_words() {
        let definition = |name: &str| {
            let texts = ["def", "", "", "", name, ""];
            let parts = texts.map(|text| [&[text.len() as u8], text.as_bytes()].concat());
            parts.concat()
        };
        let mut packets = Vec::new();
        let sent = [
            vec![2],
            definition("table"),
            definition("key"),
            b"\xfe\0\0\x02\0".to_vec(),
            b"\x04item\xfb".to_vec(),
            b"\x01t\x03a\x1bb".to_vec(),
        ];
        for (number, packet) in sent.iter().enumerate() {
            write_packet(&mut packets, &mut (number as u8), packet);
        }
        let answer = |outcome: Outcome, packets: &[u8]| ReplayAnswer {
            outcome,
            packets: packets.to_vec(),
            is_cut: false,
            lacks_files: false,
        };
        let outcome = Outcome {
            rows: 2,
            ..Outcome::default()
        };
        assert_eq!(
            in_lines(answer(outcome, &packets), Capabilities::PROTOCOL_41),
            Ok("table=item\tkey=NULL\ntable=t\tkey=a b".to_owned())
        );
        let mut packets = Vec::new();
        write_packet(&mut packets, &mut 1, b"\xff\x7a\x04#42S02no such table");
        let outcome = Outcome {
            error: Some(1146),
            ..Outcome::default()
        };
        assert_eq!(
            in_lines(answer(outcome, &packets), Capabilities::PROTOCOL_41),
            Err("error 1146: no such table".to_owned())
        );
    }

    #[test]
    fn a_plan_is_cut_between_letters() {
        let long = cut("aé".repeat(PLAN_MAX));
        assert!(long.len() <= PLAN_MAX + '…'.len_utf8() && long.ends_with('…'));
        assert_eq!(cut("short".to_owned()), "short");
    }

    #[test]
    fn reports_show_plans_and_obey_none() {
        let comparison = Comparison {
            statements: vec![Statement {
                text: "SELECT ?".to_owned(),
                plans: Some(Plans {
                    text: "SELECT 5".to_owned(),
                    a: "key=PRIMARY\tExtra=<b>\nkey=of_name".to_owned(),
                    b: "error 1146: no\x1b[2J".to_owned(),
                }),
                ..Statement::default()
            }],
            ..Comparison::default()
        };
        let text = report::text(&comparison);
        let first =
            "\n          EXPLAIN SELECT 5\n            plan of a:\n              key=PRIMARY Extra=<b>\n";
        assert!(text.contains(first) && !text.contains('\x1b'), "{text}");
        assert!(
            text.contains("\n              key=of_name\n            plan of b:\n"),
            "{text}"
        );
        let page = report::html(&comparison, &[]);
        assert!(
            page.contains("<pre>key=PRIMARY\tExtra=&lt;b&gt;\nkey=of_name</pre>"),
            "{page}"
        );
        let json = serde_json::to_value(&comparison).unwrap();
        assert_eq!(json["statements"][0]["plans"]["b"], "error 1146: no\x1b[2J");
    }
}
