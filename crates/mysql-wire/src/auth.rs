//! What a client computes from a password and the server's nonce, for each authentication plugin.
//!
//! Sources: MySQL documentation pages "Native Authentication", "Caching_sha2_password information", "Sha256
//! Authentication"; MariaDB "Authentication Plugin - ed25519".

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// `mysql_native_password`: `SHA1(password) XOR SHA1(nonce + SHA1(SHA1(password)))`, empty for no password.
pub fn native_password(nonce: &[u8; 20], password: &[u8]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let once = Sha1::digest(password);
    let twice = Sha1::digest(once);
    let mixed = Sha1::new().chain_update(nonce).chain_update(twice).finalize();
    once.iter().zip(mixed).map(|(a, b)| a ^ b).collect()
}

/// `caching_sha2_password`, fast path: `SHA256(password) XOR SHA256(SHA256(SHA256(password)) + nonce)`, empty
/// for no password.
pub fn caching_sha2_password(nonce: &[u8; 20], password: &[u8]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let once = Sha256::digest(password);
    let twice = Sha256::digest(once);
    let mixed = Sha256::new().chain_update(twice).chain_update(nonce).finalize();
    once.iter().zip(mixed).map(|(a, b)| a ^ b).collect()
}

/// The password and its zero byte, XORed with the nonce repeated: the plain text that `sha256_password` and the
/// full path of `caching_sha2_password` encrypt with the server's RSA key (OAEP, SHA-1) on plain links. Its own
/// inverse, but for the zero byte: see [`remove_nonce`].
pub fn xor_with_nonce(nonce: &[u8; 20], password: &[u8]) -> Vec<u8> {
    password
        .iter()
        .chain(&[0])
        .zip(nonce.iter().cycle())
        .map(|(a, b)| a ^ b)
        .collect()
}

/// The password inside what [`xor_with_nonce`] made; `None` where it does not end in a zero byte.
pub fn remove_nonce(nonce: &[u8; 20], mixed: &[u8]) -> Option<Vec<u8>> {
    let mut plain: Vec<u8> = mixed
        .iter()
        .zip(nonce.iter().cycle())
        .map(|(a, b)| a ^ b)
        .collect();
    match plain.pop() {
        Some(0) => Some(plain),
        _ => None,
    }
}
