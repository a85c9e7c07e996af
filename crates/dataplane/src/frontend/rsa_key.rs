//! RSA for the password of `caching_sha2_password` and `sha256_password` over a plain link.
//!
//! The password and its final NUL are XORed with the nonce, over and over, and encrypted with OAEP (SHA-1, as
//! OpenSSL's default and MySQL's choice). Source: `sql/auth/sha2_password_common.cc`,
//! `sql-common/client_authentication.cc`.

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rsa::{
    KeySize, OAEP_SHA1_MGF1SHA1, OaepPrivateDecryptingKey, OaepPublicEncryptingKey, PrivateDecryptingKey,
    PublicEncryptingKey,
};
use thiserror::Error;

/// Why a key does not work.
#[derive(Debug, Error)]
pub enum KeyError {
    #[error("it is not PEM: {0}")]
    Pem(#[from] pem::PemError),
    #[error("it is not an RSA key of 2048 to 8192 bits in the form {0}")]
    Form(&'static str),
    #[error("encryption or decryption failed")]
    Crypto,
}

/// The gateway's own key pair: clients on plain links encrypt passwords for it where the server's link is
/// secure, so that the server expects the password itself.
pub struct PrivateKey {
    key: OaepPrivateDecryptingKey,
    public_pem: String,
}

impl PrivateKey {
    /// A new key of 2048 bits; takes some 100 ms.
    pub fn generate() -> Result<Self, KeyError> {
        Self::new(PrivateDecryptingKey::generate(KeySize::Rsa2048).map_err(|_| KeyError::Crypto)?)
    }

    /// Reads a key from PEM in PKCS#8 form (`BEGIN PRIVATE KEY`), as `openssl genpkey` and MySQL write it.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let form = KeyError::Form("PKCS#8 (BEGIN PRIVATE KEY)");
        let der = pem::parse(text)?;
        Self::new(PrivateDecryptingKey::from_pkcs8(der.contents()).map_err(|_| form)?)
    }

    fn new(key: PrivateDecryptingKey) -> Result<Self, KeyError> {
        let public: PublicKeyX509Der<'_> = key.public_key().as_der().map_err(|_| KeyError::Crypto)?;
        let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
        let public_pem = pem::encode_config(&pem::Pem::new("PUBLIC KEY", public.as_ref()), config);
        let key = OaepPrivateDecryptingKey::new(key).map_err(|_| KeyError::Crypto)?;
        Ok(Self { key, public_pem })
    }

    /// The public key, as a client that asks for it is sent it.
    pub fn public_pem(&self) -> &str {
        &self.public_pem
    }

    /// The password with its final NUL, from what a client encrypted.
    pub fn decrypt_password(&self, encrypted: &[u8], nonce: &[u8]) -> Result<Vec<u8>, KeyError> {
        let mut room = vec![0; self.key.min_output_size()];
        let plain = self
            .key
            .decrypt(&OAEP_SHA1_MGF1SHA1, encrypted, &mut room, None)
            .map_err(|_| KeyError::Crypto)?;
        Ok(xor(plain, nonce))
    }
}

/// Encrypts a password, which ends with NUL, for the server that sent this public key.
pub fn encrypt_password(public_pem: &[u8], password: &[u8], nonce: &[u8]) -> Result<Vec<u8>, KeyError> {
    let form = |_| KeyError::Form("X.509 (BEGIN PUBLIC KEY)");
    let der = pem::parse(public_pem)?;
    let key = PublicEncryptingKey::from_der(der.contents()).map_err(form)?;
    let key = OaepPublicEncryptingKey::new(key).map_err(|_| KeyError::Crypto)?;
    let mut room = vec![0; key.ciphertext_size()];
    let encrypted = key
        .encrypt(&OAEP_SHA1_MGF1SHA1, &xor(password, nonce), &mut room, None)
        .map_err(|_| KeyError::Crypto)?;
    Ok(encrypted.to_vec())
}

fn xor(text: &[u8], nonce: &[u8]) -> Vec<u8> {
    debug_assert!(!nonce.is_empty());
    text.iter()
        .zip(nonce.iter().cycle())
        .map(|(byte, mask)| byte ^ mask)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_encrypts_is_what_the_gateway_decrypts() {
        let key = PrivateKey::generate().unwrap();
        let nonce = *b"abcdefghijklmnopqrst";
        let password = b"a password that is longer than the nonce\0";
        let encrypted = encrypt_password(key.public_pem().as_bytes(), password, &nonce).unwrap();
        assert_eq!(key.decrypt_password(&encrypted, &nonce).unwrap(), password);
        assert!(key.decrypt_password(&encrypted[1..], &nonce).is_err());
        assert!(encrypt_password(b"not a key", password, &nonce).is_err());
    }
}
