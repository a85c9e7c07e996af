//! Texts that cannot be read for certain.

use session::PinReason;

use super::{FINE, MARIADB, MYSQL, Says, reasons, run, session};

/// MySQL's client asks `select $$` at its start, to learn whether the server has strings of that form.
#[test]
fn a_doubtful_select_that_is_refused_as_no_sql_was_not_executed() {
    let refused = Says {
        error: Some(1064),
        ..FINE
    };
    let after = |dialect, text: &str, says: &Says<'_>| {
        let mut session = session(dialect);
        run(&mut session, text, says);
        let found = reasons(&session);
        assert!(
            !session.has_just_written() || found.contains(&PinReason::Incomplete),
            "{text}"
        );
        run(&mut session, "SELECT a FROM t", &FINE);
        (found, reasons(&session))
    };
    for dialect in [MYSQL, MARIADB] {
        for text in ["select $$", " SELECT\n'it", "SELECT a FROM t WHERE b = \"x"] {
            let (found, later) = after(dialect, text, &refused);
            assert_eq!(found, [PinReason::Diagnostics], "{text}");
            assert_eq!(later, [], "{text}");
        }
        // Of these a part may have been executed, or something that they call has said so.
        for text in [
            "select 'a; DROP TABLE t",
            "SELECT f 'a', f('b",
            "CALL p 'a",
            "/* SELECT $$",
            "SELECTED 'a",
        ] {
            let (_, later) = after(dialect, text, &refused);
            assert!(later.contains(&PinReason::Incomplete), "{text}: {later:?}");
        }
        let other = Says {
            error: Some(1146),
            ..FINE
        };
        for says in [&FINE, &other] {
            let (_, later) = after(dialect, "SELECT 'it", says);
            assert!(later.contains(&PinReason::Incomplete), "{later:?}");
        }
        let mut session = session(dialect);
        run(&mut session, "SELECT 'it", &FINE);
        run(&mut session, "SELECT 'it", &refused);
        assert!(reasons(&session).contains(&PinReason::Incomplete), "of the first");
    }
}
