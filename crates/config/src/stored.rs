//! What servers store of a password, as a `[[user]]` may give it in the password's place.
//!
//! Here is its form alone, so that a mistake is told at its line; what it means, and whether a password fits,
//! is `mysql_wire::auth`'s to say.

use zeroize::Zeroizing;

use crate::secret::Secret;

const SHA1_DIGITS: usize = 40;

/// Bytes of salt in front of a sum.
const SALT_LEN: usize = 20;

/// A sum in the digits of crypt(3): 256 bits, and two that must be 0.
const CRYPT_CHARS: usize = 43;

/// 64 bytes in Base64.
const PBKDF2_CHARS: usize = 88;

/// 32 bytes in Base64, without the `=` at its end.
const KEY_CHARS: usize = 43;

/// `*` and 40 hexadecimal digits: of `mysql_native_password`.
#[must_use]
pub fn is_native_hash(text: &str) -> bool {
    text.strip_prefix('*').is_some_and(is_sha1)
}

/// 40 hexadecimal digits.
pub(crate) fn is_sha1(digits: &str) -> bool {
    digits.len() == SHA1_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A hash of `caching_sha2_password` or `sha256_password` as servers store it, of what a configuration says:
/// the same, or its bytes in hexadecimal behind `0x`. `None` where it is neither.
#[must_use]
pub fn sha2_hash(written: &Secret) -> Option<Zeroizing<Vec<u8>>> {
    let text = written.reveal();
    let stored = Zeroizing::new(
        match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => from_hex(digits)?,
            None => text.as_bytes().to_vec(),
        },
    );
    is_sha2_hash(&stored).then_some(stored)
}

fn is_sha2_hash(stored: &[u8]) -> bool {
    let is_crypt = |sum: &[u8]| {
        sum.len() == CRYPT_CHARS
            && sum.iter().all(|byte| byte.is_ascii_alphanumeric() || b"./".contains(byte))
            // The last digit stands for four bits.
            && sum.last().is_some_and(|last| (b'.'..=b'9').contains(last) || (b'A'..=b'D').contains(last))
    };
    if let Some(rest) = stored.strip_prefix(b"$5$") {
        let sum = rest.get(SALT_LEN..).and_then(|rest| rest.strip_prefix(b"$"));
        return sum.is_some_and(is_crypt);
    }
    let Some((scheme, rest)) = stored.split_at_checked(3) else {
        return false;
    };
    let Some((rounds, rest)) = rest.split_at_checked(3) else {
        return false;
    };
    let has_rounds = rounds.iter().all(u8::is_ascii_hexdigit) && rounds != b"000";
    let sum = rest.strip_prefix(b"$").and_then(|rest| rest.get(SALT_LEN..));
    has_rounds
        && sum.is_some_and(|sum| match scheme {
            b"$A$" => is_crypt(sum),
            b"$B$" => sum.len() == PBKDF2_CHARS && sum.strip_suffix(b"==").is_some_and(is_base64),
            _ => false,
        })
}

/// The public key of an account of `ed25519`, as MariaDB stores it.
pub(crate) fn is_ed25519_key(text: &str) -> bool {
    // The last digit stands for four bits.
    let last = text.bytes().last();
    text.len() == KEY_CHARS
        && is_base64(text.as_bytes())
        && last.is_some_and(|last| b"AEIMQUYcgkosw048".contains(&last))
}

fn is_base64(digits: &[u8]) -> bool {
    digits
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(byte))
}

/// The bytes that hexadecimal digits stand for.
#[must_use]
pub fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let bytes: Option<Vec<u8>> = (pairs.iter())
        .map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8))
        .collect();
    bytes.filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "$A$005$abcdefghijabcdefghij0123456789012345678901234567890123456789012";

    fn hash(text: &str) -> Option<Vec<u8>> {
        sha2_hash(&Secret::new(text)).map(|stored| stored.to_vec())
    }

    #[test]
    fn a_hash_is_the_same_as_text_and_in_hexadecimal() {
        assert_eq!(hash(TEXT).as_deref(), Some(TEXT.as_bytes()));
        let digits: String = TEXT.bytes().map(|byte| format!("{byte:02X}")).collect();
        assert_eq!(hash(&format!("0x{digits}")), hash(TEXT));
        assert_eq!(hash(&format!("0x{digits}2")), None);
        assert_eq!(hash(&digits), None);
        // As MySQL 9.7.4 has stored them: of `sha256_password`, and with PBKDF2.
        for (stored, start) in [
            (
                "0x243524777E29154B0D603E0339596E394A072517512A222459584E36646D2F412F716C7534325465696466356A5745782F46\
                 684F315879373459774E45566B61736F35",
                "$5$w~",
            ),
            (
                "0X244224303131246264066F2A795A0F05051E3D19777225392A0A534E2B373869695A4874626359527A2F667472762B644F5A33\
                 7A39744E436C70313031312B615546563876534B5442496167305557455A4A694756746C4F6D79506430663138733936756259\
                 466A48327A784B436679673D3D",
                "$B$011$bd",
            ),
        ] {
            assert!(hash(stored).unwrap().starts_with(start.as_bytes()));
        }
    }

    #[test]
    fn what_no_server_stores_is_none() {
        for len in 0..TEXT.len() {
            assert_eq!(hash(&TEXT[..len]), None, "{len}");
        }
        for bad in [
            format!("{TEXT}x"),
            TEXT.replace("$A$", "$C$"),
            TEXT.replace("$A$", "$B$"),
            TEXT.replace("005", "000"),
            TEXT.replace("005", "0x1"),
            TEXT.replace("89012", "8901z"),
            TEXT.replace("01234", "0123="),
        ] {
            assert_eq!(hash(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_key_has_as_many_digits_as_it_needs() {
        let key = "ZIgUREUg5PVgQ6LskhXmO+eZLS0nC8be6HPjYWR4YJY";
        assert!(is_ed25519_key(key));
        assert!(!is_ed25519_key(&key[1..]) && !is_ed25519_key(&format!("{key}=")));
        assert!(!is_ed25519_key(&key.replace('+', "-")) && !is_ed25519_key(&key.replace("JY", "JZ")));
    }
}
