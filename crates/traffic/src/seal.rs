//! Seals the frames of files with a key: AES-256-GCM.
//!
//! Each file has a key of its own, derived of the operator's (HKDF-SHA-256) by the head of the file, in which
//! are random ids of its folder and of itself, and its number; so the number of a frame is a nonce that is
//! never used twice, also where two go on with copies of one folder.
//! Frames can be neither changed, nor exchanged, nor left out before the last one that is read. What is left
//! out behind it is seen by the missing end.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};

/// Bytes by which a frame is longer than what is sealed.
pub(crate) const TAG_LEN: usize = 16;
/// Bytes of the id of a folder, or of a file.
pub(crate) const ID_LEN: usize = 16;
const KEY_LEN: usize = 32;

/// Makes a new file, for this user alone.
pub fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

#[derive(Clone)]
pub struct Key([u8; KEY_LEN]);

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Key")
    }
}

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the key file {0}: {1}")]
    Io(String, io::Error),
    #[error("the key file {0} may be read by others (mode {1:04o}): chmod 600 {0}")]
    Loose(String, u32),
    #[error(
        "the key file {0}: a key is 32 bytes, or 64 hexadecimal digits (forebay traffic key FILE makes one)"
    )]
    Senseless(String),
}

impl Key {
    /// Reads a key: 32 bytes, or 64 hexadecimal digits.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        const LONGEST: u64 = 2 * KEY_LEN as u64 + 2;
        let name = || path.display().to_string();
        let failed = |error| KeyError::Io(name(), error);
        let file = File::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyError::Loose(name(), mode));
        }
        let mut bytes = Vec::new();
        file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
        Self::of(&bytes).ok_or_else(|| KeyError::Senseless(name()))
    }

    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        if let Ok(raw) = bytes.try_into() {
            return Some(Self(raw));
        }
        let digits = std::str::from_utf8(bytes.trim_ascii_end()).ok()?;
        let is_hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        if digits.len() != 2 * KEY_LEN || !is_hexadecimal {
            return None;
        }
        let mut key = [0; KEY_LEN];
        for (at, byte) in key.iter_mut().enumerate() {
            *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(Self(key))
    }

    /// Writes a new random key into a new file, for this user alone.
    pub fn make(path: &Path) -> Result<(), KeyError> {
        let failed = |error| KeyError::Io(path.display().to_string(), error);
        let mut key = [0; KEY_LEN];
        aws_lc_rs::rand::fill(&mut key).map_err(|_| failed(io::Error::other("no random bytes")))?;
        let mut text: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        text.push('\n');
        private_file(path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(failed)
    }

    /// A secret of its own for another purpose.
    pub(crate) fn derived(&self, purpose: &[u8]) -> Option<[u8; KEY_LEN]> {
        let mut bytes = [0; KEY_LEN];
        let secret = Salt::new(HKDF_SHA256, b"forebay-traffic").extract(&self.0);
        let purposes = [purpose];
        let derived = secret.expand(&purposes, HKDF_SHA256).ok()?;
        derived.fill(&mut bytes).ok().map(|()| bytes)
    }
}

/// Seals or opens the frames of one file, in their order.
pub(crate) struct Sealer {
    key: LessSafeKey,
    /// The head of the file, without the proof.
    head: Vec<u8>,
    /// The number of the next frame. 0 is the proof in the head.
    next: u64,
}

impl Sealer {
    /// `head`: the file's, with its id at the end.
    pub(crate) fn new(key: &Key, head: &[u8]) -> Option<Self> {
        let secret = Salt::new(HKDF_SHA256, b"forebay-traffic").extract(&key.0);
        let info = [head];
        let of_file = secret.expand(&info, &AES_256_GCM).ok()?;
        Some(Self {
            key: LessSafeKey::new(UnboundKey::from(of_file)),
            head: head.to_vec(),
            next: 1,
        })
    }

    fn nonce(number: u64) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[..8].copy_from_slice(&number.to_le_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    fn named(&self, number: u64) -> Aad<Vec<u8>> {
        Aad::from([&self.head[..], &number.to_le_bytes()].concat())
    }

    /// What the head ends with: it tells whether a key is the right one.
    pub(crate) fn proof(&self) -> Option<[u8; TAG_LEN]> {
        let tag = self
            .key
            .seal_in_place_separate_tag(Self::nonce(0), self.named(0), &mut []);
        tag.ok()?.as_ref().try_into().ok()
    }

    pub(crate) fn is_proved_by(&self, proof: &[u8]) -> bool {
        self.key
            .open_in_place(Self::nonce(0), self.named(0), &mut proof.to_vec())
            .is_ok()
    }

    /// Encrypts a frame in its place; what it returns comes behind it.
    pub(crate) fn seal(&mut self, frame: &mut [u8]) -> Option<[u8; TAG_LEN]> {
        let number = self.next;
        self.next += 1;
        let tag = self
            .key
            .seal_in_place_separate_tag(Self::nonce(number), self.named(number), frame);
        tag.ok()?.as_ref().try_into().ok()
    }

    /// Decrypts the next frame in its place; returns how long it is. `None`: it is another one.
    pub(crate) fn open(&mut self, frame: &mut [u8]) -> Option<usize> {
        let number = self.next;
        let opened = self
            .key
            .open_in_place(Self::nonce(number), self.named(number), frame);
        let len = opened.ok()?.len();
        self.next += 1;
        Some(len)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_read_as_bytes_or_digits_and_only_from_a_file_that_is_secret() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("key");
        Key::make(&path).unwrap();
        assert!(matches!(Key::make(&path), Err(KeyError::Io(..))));
        let made = Key::read(&path).unwrap();
        let digits = std::fs::read_to_string(&path).unwrap();
        let other = place.path().join("raw");
        std::fs::write(&other, made.0).unwrap();
        let mode = |mode| std::fs::set_permissions(&other, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o640);
        assert!(matches!(Key::read(&other), Err(KeyError::Loose(_, 0o640))));
        mode(0o400);
        assert_eq!(Key::read(&other).unwrap().0, made.0);
        mode(0o600);
        for wrong in ["", "short", &digits[1..], &format!("{digits}x"), &"g".repeat(64)] {
            std::fs::write(&other, wrong).unwrap();
            assert!(
                matches!(Key::read(&other), Err(KeyError::Senseless(_))),
                "{wrong}"
            );
        }
    }
}
