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
}
