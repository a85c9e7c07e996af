//! Functions whose values differ from one execution to the next: what a result says that has them is not
//! compared.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::bytes::Regex;
use sql_class::text::{has, is_one_of};
use sql_class::{Literal, Syntax, literals};

use crate::words::{without_backticks, without_comments_in_front};

/// The names are found as words, with a bracket where a column could be called so.
static NAMES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    const NAMES: &str = r"(?xi-u)
        \b(now|sysdate|curdate|curtime|current_date|current_time|current_timestamp|localtime|localtimestamp
          |unix_timestamp|utc_date|utc_time|utc_timestamp|uuid|uuid_short|uuid_v4|uuid_v7|sys_guid|rand|random_bytes
          |connection_id|last_insert_id|row_count|found_rows|version|user|session_user|system_user|current_user
          |ps_current_thread_id|benchmark|sleep|get_lock|is_used_lock|is_free_lock|nextval|lastval|setval)\s*\(
        | \b(current_date|current_time|current_timestamp|localtime|localtimestamp|current_user|sysdate|curdate)\b
        | \b((?:next|previous)\s+value\s+for)\b
        | (@@\s*(?:global|session|local)?\s*\.?\s*[a-z_]+)
        | ^(?:\s | \( | /\*(?:[^*]|\*+[^*/])*\*+/ | (?:\#|--\s)[^\n]*\n)*
          (explain|analyze|describe|desc|show)\b
        | \b(information_schema|performance_schema)\b
        | \b(sys)\s*\.";
    Regex::new(NAMES).ok()
});

/// What in a text makes its result differ each time, in lower case; `None` where nothing does.
pub(crate) fn volatile(text: &[u8]) -> Option<String> {
    let names = NAMES.as_ref()?;
    if !names.is_match(text) {
        return None;
    }
    let words = words(text);
    let found = names.captures(&words)?;
    let name = found.iter().skip(1).flatten().next()?;
    Some(String::from_utf8_lossy(name.as_bytes()).to_lowercase())
}

/// A text that prepares a statement as text, or executes one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Named<'a> {
    /// `PREPARE name FROM source`.
    Prepares(Vec<u8>, &'a [u8]),
    /// `EXECUTE name`.
    Executes(Vec<u8>),
    /// `EXECUTE IMMEDIATE source`.
    ExecutesAtOnce(&'a [u8]),
}

/// `None` for all other texts.
pub(crate) fn named(text: &[u8]) -> Option<Named<'_>> {
    static NAMED: LazyLock<Option<Regex>> = LazyLock::new(|| {
        const NAMED: &str = r"(?isx-u)^(?:prepare\s+([^\s;]+)\s+from\s*(.*)
            | execute\s+immediate\b\s*(.*) | execute\s+([^\s;]+).*)$";
        Regex::new(NAMED).ok()
    });
    let found = NAMED.as_ref()?.captures(without_comments_in_front(text))?;
    let group = |index| found.get(index).map(|group| group.as_bytes());
    let name = |index| Some(without_backticks(group(index)?).to_ascii_lowercase());
    if let (Some(name), Some(source)) = (name(1), group(2)) {
        return Some(Named::Prepares(name, source));
    }
    let at_once = group(3).map(Named::ExecutesAtOnce);
    at_once.or_else(|| name(4).map(Named::Executes))
}

/// Functions that make results of a source of `PREPARE` differ each time, as [`volatile`] has them; `Err`
/// where the source is no text in quotes, and may be any.
pub(crate) fn volatile_source(source: &[u8]) -> Result<Option<String>, ()> {
    let quoted = source.split_first().filter(|(quote, _)| b"'\"".contains(quote));
    let (quote, text) = quoted.ok_or(())?;
    let end = text.iter().rposition(|byte| byte == quote).ok_or(())?;
    Ok(volatile(&text[..end]))
}

/// A text with spaces in the place of its comments and of values in quotes, which name no functions. Nothing
/// is taken out where nobody can be sure of them, or servers may execute a comment.
fn words(text: &[u8]) -> Cow<'_, [u8]> {
    let is_plain = !has(text, b"/*!") && !has(text, b"/*M!");
    let Some(tokens) = literals(text, Syntax::default()).filter(|_| is_plain) else {
        return Cow::Borrowed(text);
    };
    let mut words = vec![b' '; text.len()];
    for (_, place) in tokens.into_iter().filter(|(kind, _)| *kind != Literal::Text) {
        words[place.clone()].copy_from_slice(&text[place]);
    }
    Cow::Owned(words)
}

pub(crate) fn asks_for_time(text: &[u8]) -> bool {
    static TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
        const NAMES: &str = r"(?xi-u)\b(now|curdate|curtime|unix_timestamp|utc_date|utc_time|utc_timestamp)\s*\(
            | \b(current_date|current_time|current_timestamp|localtime|localtimestamp)\b";
        Regex::new(NAMES).ok()
    });
    TIME.as_ref().is_some_and(|time| time.is_match(text))
}

/// Whether a statement says in which order its rows come. In brackets a subquery, a window, an aggregate or a
/// part of a union says so for itself, unless all of the statement is in brackets.
pub(crate) fn orders(text: &[u8]) -> bool {
    static ORDER_BY: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?i-u)\border\s+by\b").ok());
    if ORDER_BY.as_ref().is_none_or(|order| !order.is_match(text)) {
        return false;
    }
    let Some(tokens) = literals(text, Syntax::default()) else {
        return true;
    };
    let tokens: Vec<&[u8]> = tokens.into_iter().map(|(_, place)| &text[place]).collect();
    let is = |at: usize, words: &[&str]| is_one_of(tokens.get(at).copied().unwrap_or_default(), words);
    // The number of brackets around all of the statement, at most.
    let mut around = tokens.iter().take_while(|token| **token == b"(").count();
    let (mut depth, mut ordered) = (0_usize, None::<usize>);
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            b"(" => depth += 1,
            b")" => depth = depth.saturating_sub(1),
            _ if is(at, &["union", "except", "intersect"]) => around = around.min(depth),
            // ORDER BY NULL is said for no order.
            _ if is(at, &["order"]) && is(at + 1, &["by"]) && !is(at + 2, &["null"]) => {
                ordered = Some(ordered.map_or(depth, |least| least.min(depth)));
            }
            _ => {}
        }
    }
    ordered.is_some_and(|depth| depth <= around)
}

/// Whether rows may tie: of those that `ORDER BY` takes for equal servers may rightly send any first, and of
/// those beyond a `LIMIT` others.
pub(crate) fn may_tie(text: &[u8]) -> bool {
    static TIES: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(?i-u)\b(?:order\s+by|limit|fetch)\b").ok());
    TIES.as_ref().is_some_and(|ties| ties.is_match(&words(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_told_from_columns() {
        let of = |text: &str| volatile(text.as_bytes());
        assert_eq!(of("SELECT now( )").as_deref(), Some("now"));
        assert_eq!(
            of("SELECT CURRENT_TIMESTAMP").as_deref(),
            Some("current_timestamp")
        );
        assert_eq!(of("select id from t where a > Rand()").as_deref(), Some("rand"));
        assert_eq!(of("EXPLAIN SELECT 1").as_deref(), Some("explain"));
        assert_eq!(
            of("SELECT @@global.server_id").as_deref(),
            Some("@@global.server_id")
        );
        assert_eq!(of("SELECT NEXT VALUE FOR s").as_deref(), Some("next value for"));
        assert_eq!(of("SELECT user, version FROM known"), None);
        assert_eq!(of("SELECT c FROM t ORDER BY c"), None);
        assert!(orders(b"SELECT c FROM t Order  By c"));
        assert!(!orders(b"SELECT order_by FROM t"));
        for text in [
            "/* DBeaver */ SHOW TABLES",
            "/* a **/ -- b\n# c\n show tables",
            "(EXPLAIN SELECT 1)",
        ] {
            assert!(of(text).is_some(), "{text}");
        }
        assert_eq!(of("/* a */ SELECT b /* c */ show FROM t"), None);
    }

    #[test]
    fn values_and_comments_name_no_functions() {
        let of = |text: &str| volatile(text.as_bytes());
        for text in [
            "SELECT a FROM t WHERE b = 'what of now (2024)'",
            "SELECT a FROM t WHERE b = \"x@@y\"",
            "SELECT a /* of user (7) */ FROM t -- now()",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
        for text in [
            "SELECT 'a', /* b */ NOW()",
            "SELECT /*!50000 NOW() */",
            "SELECT 'open, NOW()",
        ] {
            assert_eq!(of(text).as_deref(), Some("now"), "{text}");
        }
    }

    #[test]
    fn statements_that_are_prepared_as_text_are_known_by_their_names() {
        let of = |text: &'static str| named(text.as_bytes());
        let name = || b"s".to_vec();
        let prepares = Some(Named::Prepares(name(), b"'SHOW TABLES';"));
        assert_eq!(of("/* a */ Prepare `S` FROM 'SHOW TABLES';"), prepares);
        assert_eq!(of("PREPARE s FROM @x"), Some(Named::Prepares(name(), b"@x")));
        for text in ["EXECUTE s", "execute s USING @a, @b", "EXECUTE `s`;"] {
            assert_eq!(of(text), Some(Named::Executes(name())), "{text}");
        }
        assert_eq!(of("EXECUTE IMMEDIATE @x"), Some(Named::ExecutesAtOnce(b"@x")));
        assert_eq!((of("SELECT 1"), of("EXECUTED s")), (None, None));
        assert_eq!(volatile_source(b"'SHOW TABLES';"), Ok(Some("show".to_owned())));
        assert_eq!(volatile_source(b"\"SELECT a FROM t\""), Ok(None));
        assert_eq!(
            (volatile_source(b"@x"), volatile_source(b"'")),
            (Err(()), Err(()))
        );
    }

    #[test]
    fn what_orders_in_brackets_orders_not_the_result() {
        for text in [
            "SELECT ROW_NUMBER() OVER (ORDER BY a) FROM t",
            "SELECT GROUP_CONCAT(a ORDER BY b) FROM t GROUP BY c",
            "SELECT a FROM (SELECT a FROM t ORDER BY a LIMIT 5) x",
            "SELECT a FROM t WHERE b = 'order by'",
            "SELECT a FROM t /* order by */",
            "SELECT a, COUNT(*) FROM t GROUP BY a ORDER BY NULL",
            "(SELECT a FROM t ORDER BY a LIMIT 5) UNION ALL (SELECT a FROM u ORDER BY a LIMIT 5)",
            "((SELECT a FROM t ORDER BY a LIMIT 5) UNION (SELECT a FROM u))",
        ] {
            assert!(!orders(text.as_bytes()), "{text}");
        }
        for text in [
            "SELECT COUNT(*) FROM t GROUP BY a ORDER BY a",
            "SELECT (SELECT b FROM u ORDER BY b LIMIT 1) FROM t ORDER BY a",
            "(SELECT a FROM t ORDER BY a)",
            "(SELECT a FROM t) UNION (SELECT a FROM u) ORDER BY a",
            "((SELECT a FROM t) UNION (SELECT a FROM u) ORDER BY a)",
        ] {
            assert!(orders(text.as_bytes()), "{text}");
        }
    }
}
