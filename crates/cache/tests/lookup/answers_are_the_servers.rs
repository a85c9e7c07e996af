//! The same lookups are asked of the server and of the gateway, in every form of the protocol.

use mysql_wire::Capabilities as C;

use crate::stage::{Session, Stage, differs, execute, on_all, query};

on_all!(texts charsets charsets_like_ascii executions executions_unseen privileges definitions definitions_of_prepared_statements);

/// Forms of the protocol.
const FORMS: [C; 5] = [
    C(0),
    C::DEPRECATE_EOF,
    C::DEPRECATE_EOF.with(C::SESSION_TRACK),
    C::COMPRESS.with(C::DEPRECATE_EOF),
    C::MARIADB_EXTENDED_METADATA.with(C::DEPRECATE_EOF),
];

const ANSWERED: &[&str] = &[
    "SELECT c FROM t WHERE id=1",
    "SELECT c FROM t WHERE id = 2;",
    "select C, id from test.t where ID=-3",
    "SELECT `c` AS `name`, t.id FROM `test`.`t` WHERE t.id=1 LIMIT 1",
    "SELECT c FROM t WHERE id=4711",
    "/* app:1 */ SELECT c FROM t AS x WHERE x.id=1",
    "SELECT tiny,small,medium,big,zero,d,f,g,b,y,da,t,dt,ch,bi,vb,te,bl,e,s,l FROM t WHERE id=1",
    "SELECT tiny,small,medium,big,zero,d,f,g,b,y,da,t,dt,ch,bi,vb,te,bl,e,s,l FROM t WHERE id=2",
    "SELECT tiny,small,medium,big,zero,d,f,g,b,y,da,t,dt,ch,bi,vb,te,bl,e,s,l FROM t WHERE id=-3",
    "SELECT v FROM k WHERE a='Key' AND b=7",
    "SELECT v, b FROM k WHERE b=7 AND a='kEY'",
    "SELECT v FROM k WHERE a='none' AND b=7",
];

const LEFT: &[&str] = &[
    "SELECT * FROM t WHERE id=1 AND c='one'",
    "SELECT ts FROM t WHERE id=1",
    "SELECT c FROM t WHERE id='1'",
    "SELECT c FROM t WHERE id='1a'",
    "SELECT c FROM t WHERE id=1.0",
    "SELECT c FROM t WHERE id=NULL",
    "SELECT c FROM t WHERE id=99999999999",
    "SELECT c FROM t WHERE id=0x1",
    "SELECT c FROM t WHERE id=-1 OR id=1",
    "SELECT v FROM k WHERE a='ä' AND b=7",
    "SELECT v FROM k WHERE a=0 AND b=7",
    "SELECT a FROM k WHERE a='Key' AND b=7",
    "SELECT c FROM other.t WHERE id=1",
    "SELECT nothing FROM t WHERE id=1",
    "SELECT UPPER(c) FROM t WHERE id=1",
    "SELECT c FROM t WHERE id=1 FOR UPDATE",
    "SELECT NULL FROM t WHERE id=1",
    "SELECT current_user FROM t WHERE id=1",
];

fn texts(stage: &Stage) {
    for form in FORMS {
        let (mut direct, mut through) = stage.both("app", form);
        let answered = |direct: &mut Session, through: &mut Session, text: &str| {
            let expected = direct.sql(text);
            stage.until_answered(through, &query(text), &expected);
        };
        for text in ANSWERED {
            answered(&mut direct, &mut through, text);
        }
        let zone = "SET time_zone='+02:30'";
        assert_eq!(direct.sql(zone), through.sql(zone));
        answered(&mut direct, &mut through, "SELECT * FROM t WHERE id=1");
        answered(&mut direct, &mut through, "SELECT ts, t.* FROM t WHERE id=-3");
        let zone = "SET time_zone='SYSTEM'";
        assert_eq!(direct.sql(zone), through.sql(zone));
        // In mode split an older client is not told of warnings and the like before the rows: newer answers,
        // which it is made of, have no such place.
        let left = if form.contains(C::DEPRECATE_EOF) {
            LEFT
        } else {
            &[]
        };
        let before = stage.answered();
        for text in left {
            for _ in 0..3 {
                let (expected, said) = (direct.sql(text), through.sql(text));
                assert!(said == expected, "{}", differs(&query(text), &expected, &said));
            }
        }
        assert_eq!(stage.answered(), before, "{}", stage.left());
    }
}

fn charsets(stage: &Stage) {
    let (mut direct, mut through) = stage.both("app", C::DEPRECATE_EOF);
    let both = |direct: &mut Session, through: &mut Session, text: &str| {
        let (expected, said) = (direct.sql(text), through.sql(text));
        assert!(said == expected, "{}", differs(&query(text), &expected, &said));
    };
    let lookup = "SELECT v FROM bytes WHERE k='é'";
    both(&mut direct, &mut through, "SET NAMES utf8mb4");
    let expected = direct.sql(lookup);
    stage.until_answered(&mut through, &query(lookup), &expected);
    // What the column's character set does not have may be an error.
    let ascii = "SELECT v FROM older WHERE k='e'";
    let expected = direct.sql(ascii);
    stage.until_answered(&mut through, &query(ascii), &expected);
    for text in ["é", "你", "😀"] {
        let text = format!("SELECT v FROM older WHERE k='{text}'");
        both(&mut direct, &mut through, &text);
    }
    for collation in ["latin1_swedish_ci", "utf8mb4_bin", "latin1_bin"] {
        both(
            &mut direct,
            &mut through,
            &format!("SET collation_connection={collation}"),
        );
        // A value that is the same in both is no lesson for the other.
        for text in ["SELECT v FROM bytes WHERE k='e'"; 3].into_iter().chain([lookup]) {
            both(&mut direct, &mut through, text);
        }
    }
}

/// What is ASCII in them is answered, and all else is the server's.
fn charsets_like_ascii(stage: &Stage) {
    let statements = [
        "SELECT c AS name, id FROM t WHERE id=1",
        "SELECT tiny,small,medium,big,zero,d,f,g,b,y,da,t,dt,ch,bi,vb,te,bl FROM t WHERE id=1",
        "SELECT v FROM k WHERE a='Key' AND b=7",
        "SELECT v FROM k WHERE a='none' AND b=7",
        "SELECT v FROM bytes WHERE k='e'",
    ];
    let left = [
        "SELECT e, s FROM t WHERE id=1",
        "SELECT c, l FROM t WHERE id=1",
        "SELECT c AS 'é' FROM t WHERE id=1",
        "SELECT v FROM bytes WHERE k='é'",
        "SELECT v FROM bytes WHERE k=x'e9'",
        "SELECT v FROM k WHERE a='ä' AND b=7",
    ];
    for names in [
        "SET NAMES latin1",
        "SET NAMES utf8mb3",
        "SET NAMES ascii",
        "SET NAMES utf8mb4; SET character_set_results=latin1",
        "SET NAMES latin1; SET collation_connection=utf8mb4_bin",
        "SET NAMES utf8mb4; SET collation_connection=latin1_swedish_ci",
    ] {
        let (mut direct, mut through) = stage.both("app", C::DEPRECATE_EOF);
        for statement in names.split("; ") {
            assert_eq!(direct.sql(statement), through.sql(statement), "{statement}");
        }
        for text in statements {
            let expected = direct.sql(text);
            stage.until_answered(&mut through, &query(text), &expected);
        }
        let text = "SELECT c,tiny,big,d,g,b,dt,ch,te,l FROM t WHERE id=?";
        let ids = [direct.prepare(text), through.prepare(text)];
        for id in [-3_i32, 2] {
            let asked = ids.map(|statement| execute(statement, &LONG, &[0], &id.to_le_bytes(), true));
            let expected = direct.ask(&asked[0]);
            stage.until_answered(&mut through, &asked[1], &expected);
        }
        let asked = ids.map(|statement| execute(statement, &LONG, &[0], &1_i32.to_le_bytes(), true));
        let text = "SELECT v FROM bytes WHERE k=?";
        let ids = [direct.prepare(text), through.prepare(text)];
        let with = |key: &[u8]| ids.map(|statement| execute(statement, &VAR_STRING, &[0], key, true));
        let ascii = with(b"\x01e");
        let expected = direct.ask(&ascii[0]);
        stage.until_answered(&mut through, &ascii[1], &expected);

        let before = stage.answered();
        for [at_server, at_gateway] in [asked, with("\u{2}é".as_bytes()), with(b"\x01\xe9")] {
            let (expected, said) = (direct.ask(&at_server), through.ask(&at_gateway));
            assert!(
                said == expected,
                "{names}: {}",
                differs(&at_gateway, &expected, &said)
            );
        }
        for text in left.iter().flat_map(|text| [text; 3]) {
            let (expected, said) = (direct.sql(text), through.sql(text));
            assert!(
                said == expected,
                "{names}: {}",
                differs(&query(text), &expected, &said)
            );
        }
        assert_eq!(stage.answered(), before, "{names}: {}", stage.left());
    }
}

// Types of parameters.
const LONG: [u8; 2] = [3, 0];
const LONGLONG: [u8; 2] = [8, 0];
const VAR_STRING: [u8; 2] = [253, 0];
const DOUBLE: [u8; 2] = [5, 0];

fn executions(stage: &Stage) {
    for &form in &FORMS {
        let (mut direct, mut through) = stage.both("app", form);
        let columns = "id,c,tiny,small,medium,big,zero,d,f,g,b,y,da,t,dt,ch,bi,vb,te,bl,e,s,l";
        let text = format!("SELECT {columns} FROM t WHERE id=?");
        let (on_server, on_gateway) = (direct.prepare(&text), through.prepare(&text));
        let one = |types: [u8; 2], value: &[u8], sends: bool| {
            [on_server, on_gateway].map(|id| execute(id, &types, &[0], value, sends))
        };
        for (value, sends) in [(1_i32, true), (2, false), (-3, true), (4711, false)] {
            let [at_server, at_gateway] = one(LONG, &value.to_le_bytes(), sends);
            let expected = direct.ask(&at_server);
            stage.until_answered(&mut through, &at_gateway, &expected);
        }
        let before = stage.answered();
        let unsure = [
            (VAR_STRING, &b"\x011"[..]),
            (DOUBLE, &1.0_f64.to_le_bytes()),
            (VAR_STRING, b"\x021a"),
        ];
        let told_alike = if form.contains(C::DEPRECATE_EOF) { 3 } else { 2 };
        for &(types, value) in &unsure[..told_alike] {
            let [at_server, at_gateway] = one(types, value, true);
            let (expected, said) = (direct.ask(&at_server), through.ask(&at_gateway));
            assert!(said == expected, "{}", differs(&at_gateway, &expected, &said));
        }
        let null = [on_server, on_gateway].map(|id| execute(id, &LONG, &[1], &[], true));
        assert_eq!(direct.ask(&null[0]), through.ask(&null[1]), "NULL");
        assert_eq!(stage.answered(), before, "{}", stage.left());

        let text = "SELECT v FROM k WHERE a=? AND b=?";
        let ids = [direct.prepare(text), through.prepare(text)];
        let types = [VAR_STRING, LONGLONG].concat();
        let values = [&b"\x03kEy"[..], &7_i64.to_le_bytes()].concat();
        let [at_server, at_gateway] = ids.map(|id| execute(id, &types, &[0], &values, true));
        let expected = direct.ask(&at_server);
        stage.until_answered(&mut through, &at_gateway, &expected);

        let text = "SELECT c FROM t WHERE id=1";
        let ids = [direct.prepare(text), through.prepare(text)];
        let [at_server, at_gateway] = ids.map(|id| execute(id, &[], &[], &[], false));
        let expected = direct.ask(&at_server);
        stage.until_answered(&mut through, &at_gateway, &expected);
    }
}

/// Executions that are no lookups leave a session in which lookups are answered, however long they are and by
/// whichever name.
fn executions_unseen(stage: &Stage) {
    const LAST: u32 = u32::MAX;
    let lookup = query("SELECT c FROM t WHERE id=1");
    let (mut direct, mut through) = stage.both("app", C::DEPRECATE_EOF);
    let expected = direct.ask(&lookup);
    let long = [&[252][..], &5000_u16.to_le_bytes(), &[b'x'; 5000]].concat();
    let id = through.prepare("UPDATE u SET x=x+1 WHERE id=1 AND ''<>?");
    through.ask(&execute(id, &VAR_STRING, &[0], &long, true));
    stage.until_answered(&mut through, &lookup, &expected);
    if stage.kind == sandbox::Kind::Mysql {
        return;
    }
    let text = "SELECT c FROM t WHERE id=?";
    let ids = [direct.prepare(text), through.prepare(text)];
    let one = |id| execute(id, &LONG, &[0], &1_i32.to_le_bytes(), true);
    let row = direct.ask(&one(LAST));
    assert_eq!(through.ask(&one(LAST)), row);
    stage.until_answered(&mut through, &lookup, &expected);
    // Its types are the server's now.
    let again = ids.map(|id| execute(id, &LONG, &[0], &1_i32.to_le_bytes(), false));
    assert_eq!(direct.ask(&again[0]), row);
    stage.until_answered(&mut through, &again[1], &row);
    let refused = [&mut direct, &mut through].map(|session| {
        let prepare = [&[0x16], &b"SELECT nothing FROM t"[..]].concat();
        (session.ask(&prepare), session.ask(&one(LAST)))
    });
    assert_eq!(refused[0], refused[1]);
    stage.until_answered(&mut through, &lookup, &expected);
}

fn privileges(stage: &Stage) {
    let allowed = "SELECT c FROM t WHERE id=1";
    let (mut app, mut app_through) = stage.both("app", C::DEPRECATE_EOF);
    for text in [allowed, "SELECT d FROM t WHERE id=1"] {
        let expected = app.sql(text);
        stage.until_answered(&mut app_through, &query(text), &expected);
    }
    let (mut few, mut few_through) = stage.both("few", C::DEPRECATE_EOF);
    let expected = few.sql(allowed);
    stage.until_answered(&mut few_through, &query(allowed), &expected);
    let denied = "SELECT d FROM t WHERE id=1";
    let expected = few.sql(denied);
    assert_eq!(expected[4], 0xff, "an error");
    for _ in 0..3 {
        assert_eq!(few_through.sql(denied), expected);
    }
    // What is acknowledged is heeded by the next read.
    stage
        .sandbox
        .primary()
        .sql("REVOKE SELECT (id, c) ON test.t FROM few@'%'")
        .unwrap();
    let expected = few.sql(allowed);
    assert_eq!(expected[4], 0xff, "an error");
    assert_eq!(few_through.sql(allowed), expected);
    stage
        .sandbox
        .primary()
        .sql("GRANT SELECT (id, c) ON test.t TO few@'%'")
        .unwrap();
    let expected = few.sql(allowed);
    stage.until_answered(&mut few_through, &query(allowed), &expected);
}

fn definitions(stage: &Stage) {
    let text = "SELECT c FROM t WHERE id=1";
    let (mut direct, mut through) = stage.both("app", C(0));
    for change in [
        "ALTER TABLE test.t MODIFY c VARCHAR(100) NOT NULL DEFAULT ''",
        "ALTER TABLE test.t ADD INDEX (c)",
        "ALTER TABLE test.t MODIFY c CHAR(50) FIRST",
        "ALTER TABLE test.t CHANGE c c TEXT, DROP INDEX c",
    ] {
        let expected = direct.sql(text);
        stage.until_answered(&mut through, &query(text), &expected);
        stage
            .sandbox
            .primary()
            .sql("UPDATE test.t SET c='' WHERE c IS NULL")
            .unwrap();
        stage.sandbox.primary().sql(change).unwrap();
        let expected = direct.sql(text);
        let said = through.sql(text);
        assert!(
            said == expected,
            "{change}: {}",
            differs(&query(text), &expected, &said)
        );
    }
    // Every acknowledged write is seen by the next lookup.
    let expected = direct.sql(text);
    stage.until_answered(&mut through, &query(text), &expected);
    let before = stage.answered();
    for count in 0..200 {
        direct.sql(&format!("UPDATE t SET c='value {count}' WHERE id=1"));
        let (expected, said) = (direct.sql(text), through.sql(text));
        assert!(said == expected, "{}", differs(&query(text), &expected, &said));
    }
    assert!(stage.answered() - before >= 190, "{}", stage.left());
}

fn definitions_of_prepared_statements(stage: &Stage) {
    for form in [C(0), C::DEPRECATE_EOF] {
        let (mut direct, mut through) = stage.both("app", form);
        let text = "SELECT c, id FROM t WHERE id=?";
        let ids = [direct.prepare(text), through.prepare(text)];
        let [at_server, at_gateway] = ids.map(|id| execute(id, &LONG, &[0], &1_i32.to_le_bytes(), true));
        for column in [
            "VARCHAR(90) NOT NULL DEFAULT ''",
            "CHAR(50) FIRST",
            "TEXT",
            "VARCHAR(200)",
        ] {
            let expected = direct.ask(&at_server);
            stage.until_answered(&mut through, &at_gateway, &expected);
            let change =
                format!("UPDATE test.t SET c='' WHERE c IS NULL; ALTER TABLE test.t MODIFY c {column}");
            stage.sandbox.primary().sql(&change).unwrap();
            // MySQL says once that the columns are others than prepared.
            let told = direct.ask(&at_server);
            let expected = direct.ask(&at_server);
            let said = through.ask(&at_gateway);
            assert!(
                said == told || said == expected,
                "{column}: {}",
                differs(&at_gateway, &told, &said)
            );
            stage.until(|| through.ask(&at_gateway) == expected);
            stage.until_answered(&mut through, &at_gateway, &expected);
        }
    }
}
