//! Patterns of `SCAN … MATCH` and `CONFIG GET`.

/// Whether `text` fits `pattern`, as Redis has it: `*` is anything, `?` a byte, `[a-z]` and `[^a-z]` a byte
/// of a set, `\` takes the next byte as it is. Costs at most the product of the two lengths: a `*` that was
/// passed is never gone back behind.
pub(crate) fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on if the rest does not fit: behind the last `*`, one byte of text later.
    let mut retry = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, t));
            continue;
        }
        if let Some(length) = one(&pattern[p..], text[t]) {
            p += length;
            t += 1;
            continue;
        }
        let Some((behind_star, from)) = retry else {
            return false;
        };
        (p, t) = (behind_star, from + 1);
        retry = Some((p, t));
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// The part of `pattern` before its first wildcard, without escapes.
pub(crate) fn literal_prefix(pattern: &[u8]) -> Vec<u8> {
    let mut prefix = Vec::new();
    let mut bytes = pattern.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'*' | b'?' | b'[' => break,
            b'\\' => prefix.push(*bytes.next().unwrap_or(&b'\\')),
            byte => prefix.push(byte),
        }
    }
    prefix
}

/// The length of the first part of `pattern` if `byte` fits it.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', set @ ..] => {
            let (length, fits) = set_fits(set, byte);
            fits.then_some(length + 1)
        }
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

/// How long a set behind its `[` is, and whether `byte` is in it. One without an end goes to the end of the
/// pattern.
fn set_fits(set: &[u8], byte: u8) -> (usize, bool) {
    let negated = set.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    loop {
        at += match &set[at..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                found |= *escaped == byte;
                2
            }
            [first, b'-', last, ..] if *last != b']' => {
                found |= (*first.min(last)..=*first.max(last)).contains(&byte);
                3
            }
            [literal, ..] => {
                found |= *literal == byte;
                1
            }
        };
    }
    (at, found != negated)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn yes(pattern: &str, text: &str) -> bool {
        fits(pattern.as_bytes(), text.as_bytes())
    }

    #[test]
    fn wildcards_fit_as_in_redis() {
        for (pattern, text) in [
            ("*", ""),
            ("a*", "a"),
            ("*a*b", "xaxxab"),
            ("h?llo", "hello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[a-c]llo", "hbllo"),
            ("h[c-a]llo", "hbllo"),
            ("a\\*b", "a*b"),
            ("[\\]]", "]"),
            ("[a", "a"),
        ] {
            assert!(yes(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("a", ""),
            ("h?llo", "hllo"),
            ("h[^e]llo", "hello"),
            ("a\\*b", "axb"),
            ("[", "a"),
            ("[]", "a"),
            ("a*b", "abc"),
        ] {
            assert!(!yes(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = "a*".repeat(1000) + "b";
        assert!(!yes(&pattern, &"a".repeat(10_000)));
    }

    #[test]
    fn the_prefix_ends_at_the_first_wildcard() {
        assert_eq!(literal_prefix(b"a\\*b@1*x"), b"a*b@1");
        assert_eq!(literal_prefix(b"*"), b"");
    }
}
