//! What MySQL stores for `caching_sha2_password` and `sha256_password`: a salted hash that is slow to
//! compute.
//!
//! ```text
//! $A$00A$ + 20 bytes of salt +     43 characters     caching_sha2_password, CRYPT5; 00A: rounds / 1000, hex
//! $B$00A$ + 20 bytes of salt +     88 characters     the same, PBKDF2_SHA512 (an option of MySQL 9)
//! $5$     + 20 bytes of salt + $ + 43 characters     sha256_password; 5000 rounds
//! ```
//!
//! CRYPT5 is the scheme `$5$` of crypt(3) (Ulrich Drepper, "Unix crypt using SHA-256 and SHA-512"), with a
//! salt of 20 bytes of any kind in place of 16 characters; PBKDF2 is that of RFC 8018, its result in Base64.
//! Either tells whether a password is right, and nothing else: neither whether a fast answer is, nor what to
//! say to another server. Sources: `mysys/crypt_genhash_impl.cc` and `sql/auth/sha2_password.cc` of MySQL 9.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

use super::pbkdf2_sha512;
use super::verify::is_equal;

const SALT_LEN: usize = 20;
const CRYPT5_LEN: usize = 32;
const CRYPT5_CHARS: usize = 43;
const PBKDF2_LEN: usize = 64;

const ROUNDS_OF_SHA256: u32 = 5000;

/// The digits of crypt(3): six bits each.
const CRYPT_DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A stored hash.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SlowHash {
    rounds: u32,
    salt: [u8; SALT_LEN],
    sum: Sum,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Sum {
    Crypt5([u8; CRYPT5_LEN]),
    Pbkdf2([u8; PBKDF2_LEN]),
}

impl SlowHash {
    /// Reads `authentication_string` of `mysql.user`. `None` for anything else.
    pub fn parse(stored: &[u8]) -> Option<Self> {
        if let Some(rest) = stored.strip_prefix(b"$5$") {
            let (salt, rest) = rest.split_first_chunk()?;
            return Some(Self {
                rounds: ROUNDS_OF_SHA256,
                salt: *salt,
                sum: Sum::Crypt5(from_crypt(rest.strip_prefix(b"$")?)?),
            });
        }
        let (scheme, rest) = stored.split_at_checked(3)?;
        let (digits, rest) = rest.split_first_chunk::<3>()?;
        let (salt, sum) = rest.strip_prefix(b"$")?.split_first_chunk()?;
        let sum = match scheme {
            b"$A$" => Sum::Crypt5(from_crypt(sum)?),
            b"$B$" => Sum::Pbkdf2(BASE64_STANDARD.decode(sum).ok()?.try_into().ok()?),
            _ => return None,
        };
        let rounds = 1000 * u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        (rounds > 0).then_some(Self {
            rounds,
            salt: *salt,
            sum,
        })
    }

    /// One that no password has, and that takes as long to find that out as any other of so many rounds.
    #[must_use]
    pub fn of_nobody(rounds: u32) -> Self {
        Self {
            rounds,
            salt: [0; SALT_LEN],
            sum: Sum::Crypt5([0; CRYPT5_LEN]),
        }
    }

    /// What a check costs: 10 000 rounds are some 2 ms, and servers may be told to use up to 4 095 000.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Whether this is the password. To be asked where nobody waits: see [`rounds`](Self::rounds).
    #[must_use]
    pub fn verify(&self, password: &[u8]) -> bool {
        match &self.sum {
            Sum::Crypt5(sum) => is_equal(&crypt5(password, &self.salt, self.rounds), sum),
            Sum::Pbkdf2(sum) => is_equal(&pbkdf2_sha512(password, &self.salt, self.rounds), sum),
        }
    }
}

impl fmt::Debug for SlowHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlowHash")
            .field("rounds", &self.rounds)
            .finish_non_exhaustive()
    }
}

fn crypt5(password: &[u8], salt: &[u8], rounds: u32) -> [u8; CRYPT5_LEN] {
    let twice = Sha256::new()
        .chain_update(password)
        .chain_update(salt)
        .chain_update(password)
        .finalize();
    let mut first = Sha256::new()
        .chain_update(password)
        .chain_update(salt)
        .chain_update(repeated(&twice, password.len()));
    let mut bits = password.len();
    while bits > 0 {
        match bits & 1 {
            1 => first.update(twice),
            _ => first.update(password),
        }
        bits >>= 1;
    }
    let mut value: [u8; CRYPT5_LEN] = first.finalize().into();
    let passwords = (0..password.len()).fold(Sha256::new(), |sum, _| sum.chain_update(password));
    let password = repeated(&passwords.finalize(), password.len());
    let salts = (0..16 + usize::from(value[0])).fold(Sha256::new(), |sum, _| sum.chain_update(salt));
    let salt = repeated(&salts.finalize(), salt.len());
    for round in 0..rounds {
        let (before, behind): (&[u8], &[u8]) = match round % 2 {
            1 => (&password, &value),
            _ => (&value, &password),
        };
        let mut sum = Sha256::new().chain_update(before);
        if round % 3 != 0 {
            sum.update(&salt);
        }
        if round % 7 != 0 {
            sum.update(&password);
        }
        sum.update(behind);
        value = sum.finalize().into();
    }
    value
}

/// The first `len` bytes of `block` over and over.
fn repeated(block: &[u8], len: usize) -> Vec<u8> {
    block.iter().copied().cycle().take(len).collect()
}

/// Three bytes are four digits, lowest first; which three goes by a rule of its own. The last two bytes are
/// three digits.
#[expect(
    clippy::indexing_slicing,
    reason = "three places that begin at 0, 10 and 20 take ten turns: none is over 29"
)]
fn from_crypt(digits: &[u8]) -> Option<[u8; CRYPT5_LEN]> {
    let digits: &[u8; CRYPT5_CHARS] = digits.try_into().ok()?;
    let mut sum = [0; CRYPT5_LEN];
    let [mut high, mut middle, mut low] = [0, 10, 20];
    let (groups, last) = digits.split_at(CRYPT5_CHARS - 3);
    for four in groups.chunks(4) {
        let [.., a, b, c] = number(four)?.to_be_bytes();
        [sum[high], sum[middle], sum[low]] = [a, b, c];
        [high, middle, low] = [low + 1, high + 1, middle + 1];
    }
    let [.., unused, b, c] = number(last)?.to_be_bytes();
    [sum[31], sum[30]] = [b, c];
    (unused == 0).then_some(sum)
}

/// Six bits a digit, the lowest first.
fn number(digits: &[u8]) -> Option<u32> {
    digits.iter().rev().try_fold(0, |value, digit| {
        let six = CRYPT_DIGITS.iter().position(|known| known == digit)?;
        Some(value << 6 | six as u32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2);
        pairs
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    /// As MySQL 9.7.4 has stored them: `caching_sha2_password` with 10 000 and with 17 000 rounds, a password
    /// longer than a block, `sha256_password`, and PBKDF2.
    fn stored() -> [(&'static str, Vec<u8>); 6] {
        [
            (
                "secret",
                b"$A$00A$dn-BR|rrde\x02\x0c\x16s\x1bd(\x01HtJX3cKCn7frzabIe127YUHrbdx9uRuEOt183QgksBEs."
                    .to_vec(),
            ),
            (
                "new",
                bytes(
                    "24412430313124232F783326776E41082A197F50544E60700D5A414A444C4C787A666D773639\
                     614433785650387045437A57436659612F6F713670734D6D4B664C4E506F6539",
                ),
            ),
            (
                "a longer password than thirty-two bytes, to be sure: gr\u{fc}n",
                bytes(
                    "2441243030412434020A4B63522E434D3C273978354B452C4D7E644475315667334B485454\
                     372E37385543626A41584E76337530715A3352437157767278306B395166655039",
                ),
            ),
            (
                "forebay",
                bytes(
                    "2441243030412470682D1B12383C40412810271D5B25060A7D49582E70794B537535503679\
                     687070636C586770763865516E766F415042775879594E63755A466B4D6C6A3241",
                ),
            ),
            (
                "secret",
                bytes(
                    "243524777E29154B0D603E0339596E394A072517512A222459584E36646D2F412F716C7534\
                     325465696466356A5745782F46684F315879373459774E45566B61736F35",
                ),
            ),
            (
                "secret",
                bytes(
                    "244224303131246264066F2A795A0F05051E3D19777225392A0A534E2B373869695A487462\
                     6359527A2F667472762B644F5A337A39744E436C70313031312B615546563876534B544249\
                     6167305557455A4A694756746C4F6D79506430663138733936756259466A48327A784B4366\
                     79673D3D",
                ),
            ),
        ]
    }

    #[test]
    fn a_password_is_known_by_what_a_server_has_stored() {
        for (index, (password, stored)) in stored().into_iter().enumerate() {
            let hash = SlowHash::parse(&stored).unwrap();
            assert_eq!(
                hash.rounds(),
                [10_000, 17_000, 10_000, 10_000, 5000, 17_000][index]
            );
            assert!(hash.verify(password.as_bytes()), "{password}");
            for wrong in ["", "Secret", "secret ", "\0"] {
                assert!(!hash.verify(wrong.as_bytes()), "{password} {wrong}");
            }
        }
    }

    #[test]
    fn what_no_server_stores_is_refused() {
        let (_, good) = &stored()[0];
        assert!(SlowHash::parse(good).is_some());
        for len in 0..good.len() {
            assert!(SlowHash::parse(&good[..len]).is_none(), "{len}");
        }
        let [.., (_, sha256), (_, pbkdf2)] = &stored();
        for bad in [
            [good, &b"x"[..]].concat(),
            good.iter()
                .map(|byte| if *byte == b'X' { b'!' } else { *byte })
                .collect(),
            [b"$A$000$", &good[7..]].concat(),
            [b"$A$0x1$", &good[7..]].concat(),
            [b"$B$00A$", &good[7..]].concat(),
            [b"$C$00A$", &good[7..]].concat(),
            [b"$A$00A$", &pbkdf2[7..]].concat(),
            [&sha256[..23], &sha256[24..]].concat(),
            b"*14E65567ABDB5135D0CFD9A70B3032C179A49EE7".to_vec(),
            Vec::new(),
        ] {
            assert!(SlowHash::parse(&bad).is_none(), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn nobody_has_no_password() {
        assert!(!SlowHash::of_nobody(1000).verify(b""));
        assert!(!format!("{:?}", SlowHash::of_nobody(7)).contains("digest"));
    }
}
