//! What a client computes from a password and the server's nonce, for each authentication plugin, and how a
//! server verifies it (`auth/verify.rs`).
//!
//! Sources: MySQL documentation pages "Native Authentication", "Caching_sha2_password information", "Sha256
//! Authentication"; MariaDB "Authentication Plugin - ed25519", "Authentication Plugin - PARSEC".
//!
//! Not here: RSA (`sha256_password` and the full path of `caching_sha2_password` on plain links), which needs
//! randomness and belongs to the TLS library; [`xor_with_nonce`] gives what is to be encrypted.

mod public_key;
mod slow_hash;
mod verify;

pub use public_key::PublicKey;
pub use slow_hash::SlowHash;
pub use verify::{
    native_from_stage1, native_stage2, native_stage2_from_hash, verify_caching_sha2, verify_ed25519,
    verify_native,
};

use curve25519_dalek::edwards::EdwardsPoint;
use curve25519_dalek::scalar::{Scalar, clamp_integer};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

use crate::WireError;
use crate::codec::zero_padded;

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

/// The password and its zero byte, XORed with the nonce repeated: the plain text that `sha256_password` and
/// the full path of `caching_sha2_password` encrypt with the server's RSA key (OAEP, SHA-1) on plain links.
pub fn xor_with_nonce(nonce: &[u8; 20], password: &[u8]) -> Vec<u8> {
    password
        .iter()
        .chain(&[0])
        .zip(nonce.iter().cycle())
        .map(|(a, b)| a ^ b)
        .collect()
}

/// MariaDB's `client_ed25519`: the nonce signed with a key made of the password. It is Ed25519 but for the
/// secret, which is the password, of any length, in place of 32 random bytes.
pub fn ed25519(nonce: &[u8; 32], password: &[u8]) -> [u8; 64] {
    sign_ed25519(password, nonce)
}

/// MariaDB's `parsec`, what the server sends when the client has answered the auth switch with an empty
/// packet: how to make the key from the password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsecSalt {
    /// Rounds of PBKDF2.
    pub iterations: u32,
    pub salt: Vec<u8>,
}

impl ParsecSalt {
    /// 2^10 rounds times 2^factor; servers up to MariaDB 12 use factors up to 3. What a hostile server can
    /// make us compute is bounded here: 2^17 rounds take about 0.2 s.
    const FACTOR_MAX: u8 = 7;

    /// Reads `P`, the factor, and the salt: a packet's payload, or the data of an [`crate::AuthMoreData`].
    ///
    /// # Errors
    /// Another way to make keys than PBKDF2, or more rounds than we compute.
    pub fn decode(data: &[u8]) -> Result<ParsecSalt, WireError> {
        match data {
            [b'P', factor @ 0..=Self::FACTOR_MAX, salt @ ..] => Ok(ParsecSalt {
                iterations: 1024 << factor,
                salt: salt.to_vec(),
            }),
            _ => Err(WireError::Invalid { field: "parsec salt" }),
        }
    }
}

/// `parsec`: the client's own nonce and the signature of both nonces. `client_nonce` must be random.
pub fn parsec(
    server_nonce: &[u8; 32],
    client_nonce: &[u8; 32],
    salt: &ParsecSalt,
    password: &[u8],
) -> [u8; 96] {
    let key = pbkdf2_sha512(password, &salt.salt, salt.iterations);
    let key = &key[..32];
    let mut message = [0; 64];
    message[..32].copy_from_slice(server_nonce);
    message[32..].copy_from_slice(client_nonce);
    let mut response = [0; 96];
    response[..32].copy_from_slice(client_nonce);
    response[32..].copy_from_slice(&sign_ed25519(key, &message));
    response
}

/// RFC 8032, with a secret of any length.
fn sign_ed25519(secret: &[u8], message: &[u8]) -> [u8; 64] {
    let (key, prefix) = ed25519_key(secret);
    let public = EdwardsPoint::mul_base(&key).compress();
    let nonce = ed25519_hash([&prefix, message, &[]]);
    let commitment = EdwardsPoint::mul_base(&nonce).compress();
    let challenge = ed25519_challenge(commitment.as_bytes(), public.as_bytes(), message);
    let mut signature = [0; 64];
    signature[..32].copy_from_slice(commitment.as_bytes());
    signature[32..].copy_from_slice((nonce + challenge * key).as_bytes());
    signature
}

/// The key, and what nonces are made of.
fn ed25519_key(secret: &[u8]) -> (Scalar, [u8; 32]) {
    let hashed: [u8; 64] = Sha512::digest(secret).into();
    let (mut key, mut prefix) = ([0; 32], [0; 32]);
    key.copy_from_slice(&hashed[..32]);
    prefix.copy_from_slice(&hashed[32..]);
    (Scalar::from_bytes_mod_order(clamp_integer(key)), prefix)
}

fn ed25519_challenge(commitment: &[u8; 32], public: &[u8; 32], message: &[u8]) -> Scalar {
    ed25519_hash([commitment, public, message])
}

fn ed25519_hash(parts: [&[u8]; 3]) -> Scalar {
    let digest = parts.iter().fold(Sha512::new(), Digest::chain_update).finalize();
    Scalar::from_bytes_mod_order_wide(&digest.into())
}

/// The first 64 bytes of PBKDF2 (RFC 8018) over HMAC-SHA512 (RFC 2104).
fn pbkdf2_sha512(password: &[u8], salt: &[u8], iterations: u32) -> [u8; 64] {
    const BLOCK: usize = 128;
    let key: [u8; BLOCK] = if password.len() > BLOCK {
        zero_padded(&Sha512::digest(password))
    } else {
        zero_padded(password)
    };
    let inner = Sha512::new().chain_update(key.map(|byte| byte ^ 0x36));
    let outer = Sha512::new().chain_update(key.map(|byte| byte ^ 0x5c));
    let hmac = |parts: [&[u8]; 2]| -> [u8; 64] {
        let inside = inner
            .clone()
            .chain_update(parts[0])
            .chain_update(parts[1])
            .finalize();
        outer.clone().chain_update(inside).finalize().into()
    };
    let mut round = hmac([salt, &1_u32.to_be_bytes()]);
    let mut derived = round;
    for _ in 1..iterations {
        round = hmac([&round, &[]]);
        derived.iter_mut().zip(round).for_each(|(sum, byte)| *sum ^= byte);
    }
    derived
}

/// Lengths in bytes of the answers of plugins that insist on one: a SHA-1; a signature; a client's salt and a
/// signature.
const NATIVE_LEN: usize = 20;
const ED25519_LEN: usize = 64;
const PARSEC_LEN: usize = 32 + 64;

/// An answer that a plugin reads and refuses, to its question number `question`, counted from 1.
///
/// Servers count a login that breaks off, and an answer of the wrong length, as a handshake error of the
/// client's host, and refuse the host after `max_connect_errors` of them in a row. A wrong password they hold
/// against nobody's host. Sources: `acl_authenticate` in `sql/sql_acl.cc` and `plugin/auth_ed25519` of
/// MariaDB, `sql/auth/` of MySQL.
pub fn wrong_answer(plugin: &[u8], question: u32) -> Vec<u8> {
    match (plugin, question) {
        (b"mysql_native_password", _) => vec![0; NATIVE_LEN],
        (b"client_ed25519", _) => vec![0; ED25519_LEN],
        // The first answer asks for the salt.
        (b"parsec", 0 | 1) => Vec::new(),
        (b"parsec", _) => vec![0; PARSEC_LEN],
        (b"sha256_password" | b"mysql_clear_password" | b"dialog", _) => vec![0],
        _ => Vec::new(),
    }
}

/// Whether a plugin can read an answer at all; see [`wrong_answer`]. True for all answers to plugins not
/// known here.
pub fn is_readable_answer(plugin: &[u8], question: u32, answer: &[u8]) -> bool {
    match (plugin, question) {
        (b"mysql_native_password", _) => matches!(answer.len(), 0 | NATIVE_LEN),
        (b"client_ed25519", _) => answer.len() == ED25519_LEN,
        (b"parsec", 0 | 1) => answer.is_empty(),
        (b"parsec", _) => answer.len() == PARSEC_LEN,
        _ => true,
    }
}

/// Whether the two sides of a plugin's exchange say one packet each in turn. False for plugins not known
/// here.
pub fn takes_turns(plugin: &[u8]) -> bool {
    matches!(
        plugin,
        b"mysql_native_password"
            | b"caching_sha2_password"
            | b"sha256_password"
            | b"client_ed25519"
            | b"parsec"
            | b"mysql_clear_password"
            | b"dialog"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use curve25519_dalek::edwards::CompressedEdwardsY;

    const NONCE: [u8; 20] =
        *b"\x0a\x2f\x4a\x6f\x4b\x49\x22\x30\x58\x4c\x72\x4a\x25\x0d\x03\x50\x52\x02\x17\x15";

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// RFC 8032, as a server verifies.
    fn verifies(public: &[u8; 32], message: &[u8], signature: &[u8]) -> bool {
        let commitment: [u8; 32] = signature[..32].try_into().unwrap();
        let response = Scalar::from_bytes_mod_order(signature[32..].try_into().unwrap());
        let digest = Sha512::new()
            .chain_update(commitment)
            .chain_update(public)
            .chain_update(message)
            .finalize();
        let challenge = Scalar::from_bytes_mod_order_wide(&digest.into());
        let public = CompressedEdwardsY(*public).decompress().unwrap();
        EdwardsPoint::mul_base(&response) - challenge * public
            == CompressedEdwardsY(commitment).decompress().unwrap()
    }

    #[test]
    fn no_password_is_an_empty_response() {
        assert_eq!(native_password(&NONCE, b""), b"");
        assert_eq!(caching_sha2_password(&NONCE, b""), b"");
    }

    /// The server knows SHA1(SHA1(password)) only.
    #[test]
    fn a_server_can_verify_a_native_password() {
        let response = native_password(&NONCE, b"secret");
        let stored = Sha1::digest(Sha1::digest(b"secret"));
        let mixed = Sha1::new().chain_update(NONCE).chain_update(stored).finalize();
        let once: Vec<u8> = response.iter().zip(mixed).map(|(a, b)| a ^ b).collect();
        assert_eq!(Sha1::digest(once), stored);
        assert_eq!(hex(&response), "6a149bdd80bda1ebf0fa2bd2cf2e9717fecc34bb");
    }

    #[test]
    fn a_caching_sha2_password_is_as_other_clients_make_it() {
        assert_eq!(
            hex(&caching_sha2_password(&NONCE, b"secret")),
            "f490e76f66d9d86665ce54d98c78d0acfe2fb0b08b423da807144873d30b312c"
        );
    }

    /// The public key is what `CREATE USER … IDENTIFIED VIA ed25519 USING PASSWORD('secret')` stores:
    /// `ZIgUREUg5PVgQ6LskhXmO+eZLS0nC8be6HPjYWR4YJY`.
    #[test]
    fn mariadb_verifies_an_ed25519_response() {
        let public = b"\x64\x88\x14\x44\x45\x20\xe4\xf5\x60\x43\xa2\xec\x92\x15\xe6\x3b\
            \xe7\x99\x2d\x2d\x27\x0b\xc6\xde\xe8\x73\xe3\x61\x64\x78\x60\x96";
        let nonce = [7; 32];
        assert!(verifies(public, &nonce, &ed25519(&nonce, b"secret")));
        assert!(!verifies(public, &nonce, &ed25519(&nonce, b"Secret")));
    }

    #[test]
    fn a_parsec_salt_with_too_many_rounds_is_refused() {
        let salt = ParsecSalt::decode(b"P\x02salt").unwrap();
        assert_eq!(
            salt,
            ParsecSalt {
                iterations: 4096,
                salt: b"salt".to_vec()
            }
        );
        for bad in [&b"P\x08salt"[..], b"Q\x00salt", b"P", b""] {
            assert!(ParsecSalt::decode(bad).is_err());
        }
    }

    #[test]
    fn pbkdf2_is_as_other_libraries_make_it() {
        assert_eq!(
            hex(&pbkdf2_sha512(b"password", b"salt", 1024)[..32]),
            "f2104afdc09b36cab1de2d82c45d8f047d624eeab365410c49789409a6a39dd5"
        );
        assert_eq!(
            hex(&pbkdf2_sha512(&[b'x'; 200], b"salt", 3)[..32]),
            "7e06f7557aae6057f38260ec33f67b9675bebccb8b17931386629a07d32149d2"
        );
    }

    #[test]
    fn wrong_answers_can_be_read() {
        for plugin in [
            "mysql_native_password",
            "client_ed25519",
            "parsec",
            "caching_sha2_password",
        ] {
            for question in 1..3 {
                let answer = wrong_answer(plugin.as_bytes(), question);
                assert!(
                    is_readable_answer(plugin.as_bytes(), question, &answer),
                    "{plugin}"
                );
            }
        }
        assert!(!is_readable_answer(b"mysql_native_password", 1, b"nonsense"));
        assert!(!is_readable_answer(b"client_ed25519", 1, b""));
    }
}
