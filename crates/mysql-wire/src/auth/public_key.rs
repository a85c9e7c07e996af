//! What MariaDB stores for `ed25519`: the public key that a password makes, 32 bytes in Base64 without the
//! `=` at its end.
//!
//! It tells whether a signature is right, and whether a password is; it is no way to sign. Source:
//! `plugin/auth_ed25519` of MariaDB.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use curve25519_dalek::edwards::EdwardsPoint;

use super::ed25519_key;
use super::verify::is_equal;

/// A stored key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Reads what an account has. `None` for anything else.
    pub fn parse(stored: &[u8]) -> Option<Self> {
        let key = BASE64_STANDARD_NO_PAD.decode(stored).ok()?;
        Some(Self(key.try_into().ok()?))
    }

    /// Whether this is the password: some microseconds.
    #[must_use]
    pub fn verify(&self, password: &[u8]) -> bool {
        let (key, _) = ed25519_key(password);
        is_equal(EdwardsPoint::mul_base(&key).compress().as_bytes(), &self.0)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicKey").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `CREATE USER … IDENTIFIED VIA ed25519 USING PASSWORD('secret')` stores.
    const STORED: &[u8] = b"ZIgUREUg5PVgQ6LskhXmO+eZLS0nC8be6HPjYWR4YJY";

    #[test]
    fn a_password_is_known_by_the_key_it_makes() {
        let key = PublicKey::parse(STORED).unwrap();
        assert!(key.verify(b"secret"));
        for wrong in [&b""[..], b"Secret", b"secret\0"] {
            assert!(!key.verify(wrong));
        }
        assert!(!format!("{key:?}").contains("100"));
    }

    #[test]
    fn what_no_server_stores_is_refused() {
        for len in 0..STORED.len() {
            assert!(PublicKey::parse(&STORED[..len]).is_none(), "{len}");
        }
        let changed = |from: u8, to: u8| {
            let bytes = STORED.iter().map(|byte| if *byte == from { to } else { *byte });
            PublicKey::parse(&bytes.collect::<Vec<_>>())
        };
        assert!(changed(b'+', b'-').is_none() && changed(b'Y', b'Z').is_none());
        assert!(PublicKey::parse(&[STORED, b"="].concat()).is_none());
    }
}
