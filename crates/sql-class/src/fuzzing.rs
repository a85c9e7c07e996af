//! What must hold of any bytes: the body of a fuzz target, here because it knows what that is.

use crate::{Charset, Class, Dialect, Effects, Syntax};

/// Byte 0: the syntax. Byte 1: where to cut. The rest: a text. Panics where something is said of the text
/// that cannot be.
pub fn fuzz_facts(data: &[u8]) {
    let Some((&[flags, cut], sql)) = data.split_first_chunk() else {
        return;
    };
    let syntax = syntax(flags);
    let facts = crate::facts(sql, syntax);
    assert_eq!(facts, crate::facts(sql, syntax));
    if facts.effects.contains(Effects::INCOMPLETE) {
        assert!(
            facts.class >= Class::Write,
            "a text with an end that nobody saw is {:?}",
            facts.class
        );
    }
    if facts.statements == 0 && facts.class != Class::Unknown {
        assert_eq!((facts.class, facts.effects), (Class::Read, Effects::NONE));
    }

    fuzz_fingerprint(sql, syntax);

    let digest = crate::digest(sql, syntax);
    assert_eq!(digest, crate::digest(sql, syntax));

    for function in ["CONNECTION_ID", "@@identity"] {
        let mut end = 0;
        for call in crate::calls(sql, syntax, function) {
            assert!(
                end <= call.range.start && call.range.start < call.range.end,
                "calls overlap"
            );
            end = call.range.end;
            assert!(end <= sql.len());
            for item in &call.items {
                assert!(item.start <= call.range.start && end <= item.end && item.end <= sql.len());
            }
        }
    }
    for table in crate::tables(sql, syntax) {
        drop(table.to_string());
    }

    // What the first part does to the session, the whole does too: a statement is never forgotten.
    let cut = usize::from(cut).min(sql.len());
    let mut both = sql[..cut].to_vec();
    let first = crate::facts(&both, syntax);
    if !first.effects.contains(Effects::INCOMPLETE) {
        both.extend_from_slice(b"\n;\n");
        both.extend_from_slice(&sql[cut..]);
        let whole = crate::facts(&both, syntax);
        assert!(whole.class >= first.class && whole.statements >= first.statements);
        assert!(whole.effects.contains(first.effects));
    }
}

/// Statements with one fingerprint are the same, however quotes and characters are read.
fn fuzz_fingerprint(sql: &[u8], syntax: Syntax) {
    let (mut fingerprint, mut again) = (Vec::new(), Vec::new());
    if !crate::fingerprint::fingerprint(sql, &mut fingerprint) {
        return;
    }
    let facts = crate::facts(sql, syntax);
    assert_eq!(
        facts,
        crate::facts(&fingerprint, syntax),
        "{}",
        fingerprint.escape_ascii()
    );
    let plain = Syntax {
        dialect: syntax.dialect,
        ..Syntax::default()
    };
    assert_eq!(facts, crate::facts(sql, plain), "{}", sql.escape_ascii());
    assert!(crate::fingerprint::fingerprint(&fingerprint, &mut again) && again == fingerprint);
}

fn syntax(flags: u8) -> Syntax {
    let charsets = [
        Charset::Utf8,
        Charset::SingleByte,
        Charset::Gbk,
        Charset::Gb18030,
        Charset::Sjis,
        Charset::Big5,
    ];
    Syntax {
        ansi_quotes: flags & 1 != 0,
        no_backslash_escapes: flags & 2 != 0,
        dialect: match flags & 4 {
            0 => Dialect::MySql { version: 90_704 },
            _ => Dialect::MariaDb { version: 110_809 },
        },
        charset: charsets[usize::from(flags >> 3) % charsets.len()],
    }
}
