//! Both ends of the authentication plugins' exchanges.

use std::{io, sync::OnceLock};

use aws_lc_rs::{
    encoding::{AsDer, PublicKeyX509Der},
    rsa::{
        KeySize, OAEP_SHA1_MGF1SHA1, OaepPrivateDecryptingKey, OaepPublicEncryptingKey, PrivateDecryptingKey,
        PublicEncryptingKey,
    },
};
use mysql_wire::{AuthMoreData, AuthNextFactor, AuthSwitch, Capabilities, auth};
use pem::{EncodeConfig, LineEnding, Pem};
use rustls::pki_types::{SubjectPublicKeyInfoDer, pem::PemObject};
use sha2::{Digest, Sha256};

use super::link::Link;

/// How a server wants clients to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plugin {
    /// `mysql_native_password`.
    Native,
    /// `caching_sha2_password`, the server's cache being warm.
    CachingSha2Fast,
    /// `caching_sha2_password`, the cache being cold: the password itself over TLS, RSA-encrypted elsewhere.
    CachingSha2Full,
    /// `sha256_password`: the same without a fast way.
    Sha256,
    /// `mysql_clear_password`.
    Clear,
    /// A challenge of 32 bytes and a signature of 64 under the name `client_ed25519`. The mathematics is not
    /// ed25519's: nobody between the two ends may look.
    Ed25519Like,
    /// A challenge, an empty answer, a salt and a signature under the name `parsec`, with no more mathematics
    /// than that.
    ParsecLike,
    /// `dialog`: three questions, the last one for the password. The second begins with the byte of a next
    /// factor.
    Dialog,
    /// `mysql_native_password`, then `sha256_password` as the next factor, with the same password.
    TwoFactorsSha256,
    /// `mysql_native_password`, then `mysql_clear_password` as the next factor, with the same password.
    TwoFactorsClear,
}

impl Plugin {
    pub const ALL: [Self; 10] = [
        Self::Native,
        Self::CachingSha2Fast,
        Self::CachingSha2Full,
        Self::Sha256,
        Self::Clear,
        Self::Ed25519Like,
        Self::ParsecLike,
        Self::Dialog,
        Self::TwoFactorsSha256,
        Self::TwoFactorsClear,
    ];

    /// The name on the wire, of the first factor.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native | Self::TwoFactorsSha256 | Self::TwoFactorsClear => "mysql_native_password",
            Self::CachingSha2Fast | Self::CachingSha2Full => "caching_sha2_password",
            Self::Sha256 => "sha256_password",
            Self::Clear => "mysql_clear_password",
            Self::Ed25519Like => "client_ed25519",
            Self::ParsecLike => "parsec",
            Self::Dialog => "dialog",
        }
    }

    /// What a client must be able to do beyond the usual.
    pub fn capabilities(self) -> Capabilities {
        match self {
            Self::TwoFactorsSha256 | Self::TwoFactorsClear => Capabilities::MULTI_FACTOR,
            _ => Capabilities(0),
        }
    }

    /// The 20 bytes of the greeting are all it needs to begin.
    pub(super) fn starts_from_greeting(self) -> bool {
        !matches!(
            self,
            Self::Clear | Self::Ed25519Like | Self::ParsecLike | Self::Dialog
        )
    }

    /// The request to switch to this plugin.
    pub(super) fn switch(self, nonce: &[u8; 20]) -> Vec<u8> {
        let mut out = Vec::new();
        AuthSwitch {
            plugin: self.name().into(),
            data: self.challenge(nonce),
        }
        .encode(&mut out);
        out
    }

    fn challenge(self, nonce: &[u8; 20]) -> Vec<u8> {
        match self {
            Self::Clear => Vec::new(),
            Self::Ed25519Like | Self::ParsecLike => long_nonce(nonce),
            Self::Dialog => b"\x02What is your name?".to_vec(),
            _ => [&nonce[..], &[0]].concat(),
        }
    }

    /// The server's part from the client's first response on. Returns whether the client knows the password.
    pub(super) async fn verify(
        self,
        link: &mut Link,
        nonce: &[u8; 20],
        response: Vec<u8>,
        encrypted: bool,
        password: &[u8],
    ) -> io::Result<bool> {
        let with_zero = [password, &[0]].concat();
        Ok(match self {
            Self::Native => response == auth::native_password(nonce, password),
            Self::CachingSha2Fast => {
                let known = response == auth::caching_sha2_password(nonce, password);
                if known && !password.is_empty() {
                    send_more(link, AuthMoreData::FAST_AUTH_OK).await?;
                }
                known
            }
            Self::CachingSha2Full => {
                send_more(link, AuthMoreData::FULL_AUTH).await?;
                let answer = link.read_payload(false).await?;
                self.check_secret(link, nonce, answer, encrypted, password)
                    .await?
            }
            Self::Sha256 => {
                self.check_secret(link, nonce, response, encrypted, password)
                    .await?
            }
            Self::Clear => response == with_zero,
            Self::Ed25519Like => response == signature(&long_nonce(nonce), password),
            Self::ParsecLike => {
                link.write_payload(PARSEC_SALT).await?;
                response.is_empty()
                    && link.read_payload(false).await? == parsec_proof(&long_nonce(nonce), password)
            }
            Self::TwoFactorsSha256 | Self::TwoFactorsClear => {
                let second = match self {
                    Self::TwoFactorsClear => Self::Clear,
                    _ => Self::Sha256,
                };
                if response != auth::native_password(nonce, password) {
                    return Ok(false);
                }
                let answer = second.begin_next_factor(link, nonce).await?;
                Box::pin(second.verify(link, nonce, answer, encrypted, password)).await?
            }
            Self::Dialog => {
                link.write_payload(b"\x02What is your group?\0").await?;
                link.read_payload(false).await?;
                link.write_payload(b"\x05What is your password?").await?;
                link.read_payload(false).await? == with_zero
            }
        })
    }

    async fn begin_next_factor(self, link: &mut Link, nonce: &[u8; 20]) -> io::Result<Vec<u8>> {
        let mut payload = Vec::new();
        AuthNextFactor {
            plugin: self.name().into(),
            data: self.challenge(nonce),
        }
        .encode(&mut payload);
        link.write_payload(&payload).await?;
        link.read_payload(false).await
    }

    async fn check_secret(
        self,
        link: &mut Link,
        nonce: &[u8; 20],
        answer: Vec<u8>,
        encrypted: bool,
        password: &[u8],
    ) -> io::Result<bool> {
        // As in MySQL, an empty password is sent as it is and in no other way.
        if password.is_empty() || answer == [0] {
            return Ok(password.is_empty() && answer == [0]);
        }
        if encrypted {
            return Ok(answer == [password, &[0]].concat());
        }
        let asks_for_key: &[u8] = if self == Self::Sha256 { &[1] } else { &[2] };
        let secret = if answer == asks_for_key {
            send_more(link, rsa().1.as_bytes()).await?;
            link.read_payload(false).await?
        } else {
            answer
        };
        Ok(decrypt(&secret).is_some_and(|mixed| mixed == auth::xor_with_nonce(nonce, password)))
    }
}

/// The client's part of one login: plugin, its data, and what comes later.
pub(super) struct Answering<'a> {
    pub plugin: Vec<u8>,
    pub nonce: Vec<u8>,
    pub password: &'a [u8],
    pub encrypted: bool,
    pub has_server_key: bool,
}

impl Answering<'_> {
    /// The first response. None: this client does not know the plugin.
    pub(super) fn first(&self) -> Option<Vec<u8>> {
        let with_zero = [self.password, &[0]].concat();
        Some(match self.plugin.as_slice() {
            b"mysql_native_password" => auth::native_password(&self.short_nonce()?, self.password),
            b"caching_sha2_password" => auth::caching_sha2_password(&self.short_nonce()?, self.password),
            b"sha256_password" if self.encrypted || self.password.is_empty() => with_zero,
            b"sha256_password" if self.has_server_key => self.encrypt(rsa().1.as_bytes()).ok()?,
            b"sha256_password" => vec![1],
            b"mysql_clear_password" => with_zero,
            b"client_ed25519" => signature(&self.nonce, self.password),
            b"parsec" => Vec::new(),
            b"dialog" => b"A client\0".to_vec(),
            _ => return None,
        })
    }

    /// The response to a packet that is neither OK, nor ERR, nor a switch. None: it asks for no response.
    pub(super) fn next(&self, payload: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let with_zero = [self.password, &[0]].concat();
        match (self.plugin.as_slice(), payload) {
            (b"parsec", PARSEC_SALT) => Ok(Some(parsec_proof(&self.nonce, self.password))),
            (b"dialog", [2, ..]) => Ok(Some(b"A group\0".to_vec())),
            (b"dialog", _) => Ok(Some(with_zero)),
            (b"caching_sha2_password", [1, 3]) => Ok(None),
            (b"caching_sha2_password", [1, 4]) if self.encrypted => Ok(Some(with_zero)),
            (b"caching_sha2_password", [1, 4]) if self.has_server_key => {
                self.encrypt(rsa().1.as_bytes()).map(Some)
            }
            (b"caching_sha2_password", [1, 4]) => Ok(Some(vec![2])),
            (b"caching_sha2_password" | b"sha256_password", [1, pem @ ..]) => self.encrypt(pem).map(Some),
            _ => Err(invalid(format!(
                "the login takes an unknown turn: {payload:02x?}"
            ))),
        }
    }

    fn encrypt(&self, pem: &[u8]) -> io::Result<Vec<u8>> {
        let der = SubjectPublicKeyInfoDer::from_pem_slice(pem).map_err(|error| invalid(error.to_string()))?;
        let failed = |_| invalid("RSA".into());
        let key = PublicEncryptingKey::from_der(&der).map_err(|error| invalid(error.to_string()))?;
        let key = OaepPublicEncryptingKey::new(key).map_err(failed)?;
        let nonce = self
            .short_nonce()
            .ok_or_else(|| invalid("a nonce that is too short".into()))?;
        let mut out = vec![0; key.ciphertext_size()];
        let mixed = auth::xor_with_nonce(&nonce, self.password);
        key.encrypt(&OAEP_SHA1_MGF1SHA1, &mixed, &mut out, None)
            .map_err(failed)?;
        Ok(out)
    }

    fn short_nonce(&self) -> Option<[u8; 20]> {
        self.nonce.first_chunk().copied()
    }
}

/// `P`, the rounds, the salt: sent as it is, without the byte that marks data of a plugin.
const PARSEC_SALT: &[u8] = b"P\x00eighteen of entropy";

/// The client's own challenge and a signature.
fn parsec_proof(nonce: &[u8], password: &[u8]) -> Vec<u8> {
    [
        &[0x17; 32][..],
        &signature(&[nonce, PARSEC_SALT].concat(), password),
    ]
    .concat()
}

async fn send_more(link: &mut Link, data: &[u8]) -> io::Result<()> {
    let mut payload = Vec::new();
    AuthMoreData { data: data.to_vec() }.encode(&mut payload);
    link.write_payload(&payload).await
}

fn long_nonce(nonce: &[u8; 20]) -> Vec<u8> {
    [&nonce[..], &nonce[..12]].concat()
}

fn signature(nonce: &[u8], password: &[u8]) -> Vec<u8> {
    let half =
        |first: &[u8], second: &[u8]| Sha256::new().chain_update(first).chain_update(second).finalize();
    [half(nonce, password), half(password, nonce)].concat()
}

/// One key for all servers of the process: making it takes a while.
#[expect(clippy::expect_used, reason = "no test can go on without")]
fn rsa() -> &'static (PrivateDecryptingKey, String) {
    static KEY: OnceLock<(PrivateDecryptingKey, String)> = OnceLock::new();
    KEY.get_or_init(|| {
        let key = PrivateDecryptingKey::generate(KeySize::Rsa2048).expect("an RSA key can be made");
        let der: PublicKeyX509Der<'_> = key.public_key().as_der().expect("a public key has a DER form");
        let lines = EncodeConfig::new().set_line_ending(LineEnding::LF);
        let pem = pem::encode_config(&Pem::new("PUBLIC KEY", der.as_ref()), lines);
        (key, pem)
    })
}

fn decrypt(secret: &[u8]) -> Option<Vec<u8>> {
    let key = OaepPrivateDecryptingKey::new(rsa().0.clone()).ok()?;
    let mut out = vec![0; key.min_output_size()];
    Some(
        key.decrypt(&OAEP_SHA1_MGF1SHA1, secret, &mut out, None)
            .ok()?
            .to_vec(),
    )
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
