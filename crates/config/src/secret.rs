//! A password: kept out of logs, error messages, diffs and documents.

use std::fmt;

use zeroize::Zeroizing;

/// A password or other secret. `Debug` prints `***`, there is no `Display`, and whoever needs the bytes says
/// so by calling [`Secret::reveal`]. Its memory is overwritten when it is dropped.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    pub fn new(secret: impl Into<String>) -> Self {
        Self(Zeroizing::new(secret.into()))
    }

    /// The secret itself, for the login that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `given` is the same, in a time that tells nothing but the length.
    pub fn is(&self, given: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differs = own.iter().zip(given).fold(0, |differs, (own, given)| {
            // Or the compiler may stop at the first byte that differs.
            std::hint::black_box(differs | (own ^ given))
        });
        own.len() == given.len() && differs == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_printed() {
        assert_eq!(format!("{:?}", Some(Secret::new("hunter2"))), "Some(***)");
        assert_eq!(Secret::new("hunter2").reveal(), "hunter2");
    }

    #[test]
    fn a_secret_is_compared_whole() {
        let secret = Secret::new("hunter2");
        assert!(secret.is(b"hunter2"));
        for other in [&b""[..], b"hunter", b"hunter22", b"Hunter2", b"hunter3"] {
            assert!(!secret.is(other));
        }
    }
}
