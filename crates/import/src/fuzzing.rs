//! What must hold of any file that is to be imported: the body of a fuzz target, here because it knows what
//! that is.

use crate::{ImportError, Imported, haproxy, proxysql};

/// Imports a text. Panics where the same text gives two results, or where a result is neither a configuration
/// nor said to need a hand.
pub fn import_proxysql(data: &[u8]) {
    import(data, proxysql);
}

/// The same of HAProxy's.
pub fn import_haproxy(data: &[u8]) {
    import(data, haproxy);
}

fn import(data: &[u8], convert: fn(&str) -> Result<Imported, ImportError>) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let imported = convert(text);
    assert_eq!(imported, convert(text));
    let Ok(Imported { toml, without_equal }) = imported else {
        return;
    };
    let needs_a_hand = without_equal
        .iter()
        .any(|line| line.starts_with("needs a hand: "));
    assert!(needs_a_hand || config::Config::parse(&toml, "result").is_ok());
    // One line each, or whoever counts lines overlooks some.
    assert!(
        without_equal
            .iter()
            .all(|line| !line.is_empty() && !line.contains('\n')),
        "{without_equal:?}"
    );
}
