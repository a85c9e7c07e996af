//! What a session sets goes with it from connection to connection, and nobody else sees it.

use super::stage::{Setup, Stage};

/// What sessions set, what they ask then, and what they are told.
const CARRIED: &[(&[&str], &str, &str)] = &[
    (&["USE elsewhere"], "DATABASE()", "elsewhere"),
    (
        &["SET SESSION sort_buffer_size = 131072"],
        "@@sort_buffer_size",
        "131072",
    ),
    (
        &["SET @@session.group_concat_max_len = 77"],
        "@@group_concat_max_len",
        "77",
    ),
    (
        &["SET group_concat_max_len = 77, net_write_timeout = 99"],
        "@@net_write_timeout",
        "99",
    ),
    (&["SET NAMES latin1"], "@@character_set_results", "latin1"),
    (
        &["SET NAMES utf8mb4 COLLATE utf8mb4_bin"],
        "@@collation_connection",
        "utf8mb4_bin",
    ),
    (&["SET sql_mode = 'ANSI_QUOTES'"], "@@sql_mode", "ANSI_QUOTES"),
    (&["SET time_zone = '+05:00'"], "@@time_zone", "+05:00"),
    (&["SET lc_time_names = 'de_DE'"], "@@lc_time_names", "de_DE"),
    (&["SET autocommit = 0"], "@@autocommit", "OFF"),
    (
        &["SET foreign_key_checks = 0, unique_checks = 0"],
        "@@unique_checks",
        "0",
    ),
    (
        &["SET sort_buffer_size = 131072", "SET sort_buffer_size = DEFAULT"],
        "@@sort_buffer_size",
        "262144",
    ),
    (
        &[
            "SET sort_buffer_size = 131072",
            "USE elsewhere",
            "SET time_zone = '+05:00'",
        ],
        "@@sort_buffer_size",
        "131072",
    ),
];

#[tokio::test]
async fn although_all_sessions_share_one_connection() {
    for (sets, question, expected) in CARRIED {
        let question = &format!("SELECT {question}");
        let stage = Stage::set(Setup::one_connection()).await;
        let (mut own, mut other) = (stage.connect_to("home").await, stage.connect_to("home").await);
        let usual = other.value(question).await;
        for statement in *sets {
            assert_eq!(own.query(statement).await, Ok(0));
            assert_eq!(own.pins().await, [""; 0], "{statement}");
        }
        for _ in 0..2 {
            assert_eq!(other.value(question).await, usual, "{sets:?}");
            assert_eq!(own.value(question).await, *expected, "{sets:?}");
        }
        drop(own);
        let mut later = stage.connect_to("home").await;
        assert_eq!(later.value(question).await, usual, "{sets:?}");
        assert_eq!(stage.logins(0), 1);
    }
}

/// COM_RESET_CONNECTION leaves a session with its schema and nothing else, and others with all that they
/// have.
#[tokio::test]
async fn until_it_is_reset() {
    let stage = Stage::set(Setup::one_connection()).await;
    let (mut own, mut other) = (stage.connect_to("home").await, stage.connect_to("home").await);
    for session in [&mut own, &mut other] {
        for statement in ["USE elsewhere", "SET sort_buffer_size = 131072"] {
            assert_eq!(session.query(statement).await, Ok(0));
        }
    }
    own.reset().await;
    for _ in 0..2 {
        assert_eq!(own.value("SELECT DATABASE()").await, "elsewhere");
        assert_eq!(own.value("SELECT @@sort_buffer_size").await, "262144");
        assert_eq!(other.value("SELECT @@sort_buffer_size").await, "131072");
    }
}

/// What a client wants to be told of its session is its own affair; the gateway goes on being told
/// everything.
#[tokio::test]
async fn also_where_its_client_is_told_nothing() {
    let stage = Stage::set(Setup::one_connection()).await;
    for script in [
        &[
            "SET session_track_schema = OFF",
            "USE elsewhere",
            "SET sort_buffer_size = 131072",
        ][..],
        &[
            "BEGIN",
            "SET session_track_schema = OFF",
            "USE elsewhere",
            "COMMIT",
        ],
        &[
            "BEGIN",
            "SET session_track_system_variables = ''",
            "SET sort_buffer_size = 131072",
            "USE elsewhere",
            "COMMIT",
        ],
    ] {
        let (mut own, mut other) = (stage.connect_to("home").await, stage.connect_to("home").await);
        for statement in script {
            assert_eq!(own.query(statement).await, Ok(0), "{statement}");
        }
        let has_buffer = script.iter().any(|statement| statement.contains("buffer"));
        let expected = if has_buffer { "131072" } else { "262144" };
        for _ in 0..2 {
            assert_eq!(own.value("SELECT DATABASE()").await, "elsewhere", "{script:?}");
            assert_eq!(
                own.value("SELECT @@sort_buffer_size").await,
                expected,
                "{script:?}"
            );
            assert_eq!(other.value("SELECT DATABASE()").await, "home", "{script:?}");
            assert_eq!(
                other.value("SELECT @@sort_buffer_size").await,
                "262144",
                "{script:?}"
            );
        }
    }
}
