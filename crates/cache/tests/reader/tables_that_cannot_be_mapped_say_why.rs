use cache::feed::Phase;
use config::{CacheAccount, CacheMapping, MappingKind, Secret};
use sandbox::Kind;

use crate::served::{hash, on_both, served, spec};

on_both! { each_with_its_reason with_the_documented_rights_alone what_a_table_has_is_known }

fn each_with_its_reason(kind: Kind) {
    let sql = "CREATE TABLE test.parent (id INT PRIMARY KEY); \
        CREATE TABLE test.child (id INT PRIMARY KEY, p INT, CONSTRAINT gone FOREIGN KEY (p) REFERENCES test.parent (id) ON DELETE CASCADE); \
        CREATE VIEW test.seen AS SELECT * FROM test.parent; \
        CREATE TABLE test.plain (id INT PRIMARY KEY) ENGINE=MyISAM; \
        CREATE TABLE test.computed (id INT PRIMARY KEY, twice INT GENERATED ALWAYS AS (id * 2) VIRTUAL); \
        CREATE TABLE test.texts (k VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_turkish_ci PRIMARY KEY, n INT NULL, f FLOAT NOT NULL, \
          p VARCHAR(40) NOT NULL, UNIQUE (n), UNIQUE (f), UNIQUE (p(3)))";
    let value = |name: &str, table: &str, key: &[&str], value: &str| {
        CacheMapping::new(name, MappingKind::String, table, key, &[value])
    };
    let mappings = vec![
        hash("missing", "test.missing", &["id"]),
        hash("seen", "test.seen", &["id"]),
        hash("plain", "test.plain", &["id"]),
        hash("computed", "test.computed", &["id"]),
        value("collation", "test.texts", &["k"], "n"),
        value("null", "test.texts", &["n"], "k"),
        value("float", "test.texts", &["f"], "k"),
        value("part", "test.texts", &["p"], "k"),
        value("column", "test.parent", &["id"], "nope"),
        hash("child", "test.child", &["id"]),
    ];
    served(
        spec(kind),
        sql,
        |_| (),
        mappings,
        |served| async move {
            for (name, expected) in [
                (
                    "missing",
                    "mapping missing: table test.missing: there is no such table",
                ),
                ("seen", "table test.seen: it is a VIEW"),
                ("plain", "table test.plain: its engine is MyISAM"),
                (
                    "computed",
                    "table test.computed, column twice: is a generated column",
                ),
                ("collation", "column k: its collation utf8mb4_turkish_ci"),
                ("null", "column n: may be NULL"),
                ("float", "column f: columns of type FLOAT"),
                ("part", "there is no unique index over exactly these columns: p"),
                ("column", "column nope: the table has no such column"),
            ] {
                let phase = served.settled(name).await.to_string();
                assert!(phase.contains(expected), "{name}: {phase}");
            }
            let logs_cascades = served
                .sql("SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'")
                .contains("OFF");
            let child = served.settled("child").await;
            assert_eq!(child == Phase::Serving, logs_cascades, "{child}");
            if !logs_cascades {
                assert!(child.to_string().contains("constraint gone"), "{child}");
            }
        },
    );
}

fn with_the_documented_rights_alone(kind: Kind) {
    let rights = match kind {
        Kind::Mysql => "REPLICATION SLAVE, REPLICATION CLIENT",
        _ => "REPLICATION SLAVE, BINLOG MONITOR, SLAVE MONITOR",
    };
    let sql = format!(
        "CREATE TABLE test.parent (id INT PRIMARY KEY); \
         CREATE TABLE test.gone (id INT PRIMARY KEY, p INT, \
           CONSTRAINT goes FOREIGN KEY (p) REFERENCES test.parent (id) ON DELETE CASCADE); \
         CREATE TABLE test.emptied (id INT PRIMARY KEY, p INT, \
           CONSTRAINT empties FOREIGN KEY (p) REFERENCES test.parent (id) ON UPDATE SET NULL); \
         CREATE TABLE test.kept (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES test.parent (id)); \
         CREATE USER cache@'%' IDENTIFIED BY 'secret'; GRANT {rights} ON *.* TO cache@'%'; \
         GRANT SELECT ON test.gone TO cache@'%'; GRANT SELECT ON test.emptied TO cache@'%'; \
         GRANT SELECT ON test.kept TO cache@'%'"
    );
    let names = ["gone", "emptied", "kept"];
    let mappings = names.map(|name| hash(name, &format!("test.{name}"), &["id"]));
    let account = |config: &mut config::Cache| {
        config.account = Some(CacheAccount::new("cache", Some(Secret::new("secret"))));
    };
    served(spec(kind), &sql, account, mappings.into(), |served| async move {
        let logs_cascades = served
            .sql("SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'")
            .contains("OFF");
        for (name, constraint) in [("gone", "goes"), ("emptied", "empties")] {
            let phase = served.settled(name).await;
            assert_eq!(phase == Phase::Serving, logs_cascades, "{phase}");
            assert!(
                logs_cascades || phase.to_string().contains(&format!("constraint {constraint} ")),
                "{phase}"
            );
        }
        assert_eq!(served.settled("kept").await, Phase::Serving);
    });
}

fn what_a_table_has_is_known(kind: Kind) {
    // MySQL gives a table without a primary key one that is not seen.
    let hidden = match kind {
        Kind::Mysql => "SET SESSION sql_generate_invisible_primary_key = 1;",
        _ => "",
    };
    let invisible = match kind {
        Kind::Mysql => "INVISIBLE",
        _ => "INVISIBLE DEFAULT 5",
    };
    let sql = format!(
        "{hidden} CREATE TABLE test.t (k VARCHAR(9) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
         twice INT GENERATED ALWAYS AS (n * 2) STORED, n INT, h INT {invisible}, UNIQUE (k)); \
         INSERT INTO test.t (k, n, h) VALUES ('a', 21, 5)"
    );
    served(
        spec(kind),
        &sql,
        |_| (),
        vec![hash("t", "test.t", &["K"])],
        |served| async move {
            let phase = served.settled("t").await.to_string();
            if phase.contains("column twice: is a generated column") {
                let version = served.sandbox.version();
                assert!(
                    version.contains("MariaDB") && !version.contains("10."),
                    "{version}"
                );
                return;
            }
            let mapping = served.mapping("t").await;
            assert_eq!(served.remembered(&mapping, "a"), Some(Some("a|42|21".to_owned())));
            served.sql("UPDATE test.t SET n = 4");
            let row = || Some(Some("a|8|4".to_owned()));
            served
                .until("the row follows", || served.remembered(&mapping, "a") == row())
                .await;
        },
    );
}
