//! What a server does with a client's answer: is it the one that the password makes?
//!
//! An answer is compared in a time that does not depend on where it differs. None of these functions says
//! anything about an account without a password, whose only right answer is empty: [`verify_caching_sha2`]
//! alone is given the password itself and knows.

use curve25519_dalek::edwards::EdwardsPoint;
use curve25519_dalek::scalar::Scalar;
use sha1::Sha1;
use sha2::Digest;

use super::{caching_sha2_password, ed25519_challenge, ed25519_key};

/// `SHA1(SHA1(password))`: what a server stores for `mysql_native_password`.
pub fn native_stage2(password: &[u8]) -> [u8; 20] {
    Sha1::digest(Sha1::digest(password)).into()
}

/// The same, as `mysql.user` shows it and `PASSWORD()` makes it: `*` and 40 hexadecimal digits.
pub fn native_stage2_from_hash(hash: &str) -> Option<[u8; 20]> {
    let digits = hash.strip_prefix('*')?.as_bytes();
    if digits.len() != 2 * NATIVE_LEN {
        return None;
    }
    let mut stage2 = [0; NATIVE_LEN];
    let (pairs, _) = digits.as_chunks::<2>();
    for (byte, pair) in stage2.iter_mut().zip(pairs) {
        let [high, low] = pair.map(|digit| (digit as char).to_digit(16));
        *byte = (high? << 4 | low?) as u8;
    }
    Some(stage2)
}

/// `mysql_native_password`, of an account whose stored `SHA1(SHA1(password))` is `stage2`. A right answer
/// reveals `SHA1(password)`, which is all that it takes to log in elsewhere with the same password:
/// [`native_from_stage1`].
pub fn verify_native(stage2: &[u8; 20], nonce: &[u8; 20], answer: &[u8]) -> Option<[u8; 20]> {
    let answer: &[u8; NATIVE_LEN] = answer.try_into().ok()?;
    let stage1 = native_mixed(nonce, stage2, answer);
    is_equal(&Sha1::digest(stage1), stage2).then_some(stage1)
}

/// `mysql_native_password`: the client's answer, where `SHA1(password)` is known and the password is not.
pub fn native_from_stage1(nonce: &[u8; 20], stage1: &[u8; 20]) -> [u8; 20] {
    native_mixed(nonce, &Sha1::digest(stage1).into(), stage1)
}

/// `value XOR SHA1(nonce + stage2)`: makes the answer of stage 1, and stage 1 of the answer.
fn native_mixed(nonce: &[u8; 20], stage2: &[u8; 20], value: &[u8; 20]) -> [u8; 20] {
    let mask = Sha1::new().chain_update(nonce).chain_update(stage2).finalize();
    let mut mixed = *value;
    mixed.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    mixed
}

/// `caching_sha2_password`, fast path. Empty is right for an empty password, and for that alone.
pub fn verify_caching_sha2(password: &[u8], nonce: &[u8; 20], answer: &[u8]) -> bool {
    is_equal(&caching_sha2_password(nonce, password), answer)
}

/// MariaDB's `client_ed25519`. Verified, not compared with a signature of our own: RFC 8032 leaves a signer
/// free in the choice of its nonce.
pub fn verify_ed25519(password: &[u8], nonce: &[u8; 32], signature: &[u8]) -> bool {
    let Some((commitment, response)) = signature.split_first_chunk::<32>() else {
        return false;
    };
    let response = <[u8; 32]>::try_from(response).ok();
    let Some(response) = response.and_then(|bytes| Scalar::from_canonical_bytes(bytes).into_option()) else {
        return false;
    };
    let (key, _) = ed25519_key(password);
    let public = EdwardsPoint::mul_base(&key).compress();
    let challenge = ed25519_challenge(commitment, public.as_bytes(), nonce);
    // `response · B - challenge · A`, with `A = key · B` and the key at hand.
    let expected = EdwardsPoint::mul_base(&(response - challenge * key)).compress();
    is_equal(expected.as_bytes(), commitment)
}

const NATIVE_LEN: usize = 20;

/// Looks at every byte, whatever it finds. Lengths are no secret.
pub(super) fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let different = a
        .iter()
        .zip(b)
        .fold(0, |seen, (a, b)| std::hint::black_box(seen | (a ^ b)));
    a.len() == b.len() && different == 0
}

#[cfg(test)]
mod tests {
    use super::super::{ed25519, native_password};
    use super::*;

    const NONCE: [u8; 20] = *b"abcdefghijklmnopqrst";

    /// `answer` with each of its bits flipped, shorter, longer, and empty.
    fn wrong(answer: &[u8]) -> impl Iterator<Item = Vec<u8>> {
        let flipped = (0..answer.len() * 8).map(|bit| {
            let mut wrong = answer.to_vec();
            wrong[bit / 8] ^= 1 << (bit % 8);
            wrong
        });
        let lengths = [
            answer[..answer.len() - 1].to_vec(),
            [answer, b"\0"].concat(),
            Vec::new(),
        ];
        flipped.chain(lengths)
    }

    #[test]
    fn a_native_answer_reveals_what_logs_in_elsewhere() {
        // `SELECT PASSWORD('secret')`
        let stage2 = native_stage2_from_hash("*14E65567ABDB5135D0CFD9A70B3032C179A49EE7").unwrap();
        assert_eq!(stage2, native_stage2(b"secret"));
        let answer = native_password(&NONCE, b"secret");
        let stage1 = verify_native(&stage2, &NONCE, &answer).unwrap();
        assert_eq!(stage1, <[u8; 20]>::from(Sha1::digest(b"secret")));

        let elsewhere = [7; 20];
        assert_eq!(
            native_from_stage1(&elsewhere, &stage1).to_vec(),
            native_password(&elsewhere, b"secret")
        );
    }

    #[test]
    fn a_wrong_native_answer_reveals_nothing() {
        let stage2 = native_stage2(b"secret");
        for answer in wrong(&native_password(&NONCE, b"secret")) {
            assert_eq!(verify_native(&stage2, &NONCE, &answer), None, "{answer:?}");
        }
        let other = native_password(&NONCE, b"Secret");
        assert_eq!(verify_native(&stage2, &NONCE, &other), None);
        let replayed = native_password(&NONCE, b"secret");
        assert_eq!(verify_native(&stage2, &[1; 20], &replayed), None);
    }

    #[test]
    fn hashes_that_are_none_are_refused() {
        assert!(native_stage2_from_hash("*14e65567abdb5135d0cfd9a70b3032c179a49ee7").is_some());
        for hash in [
            "",
            "*",
            "14E65567ABDB5135D0CFD9A70B3032C179A49EE7",
            "*14E65567ABDB5135D0CFD9A70B3032C179A49EE",
            "*14E65567ABDB5135D0CFD9A70B3032C179A49EE70",
            "*+4E65567ABDB5135D0CFD9A70B3032C179A49EE7",
            "*ÄE65567ABDB5135D0CFD9A70B3032C179A49EE7",
        ] {
            assert_eq!(native_stage2_from_hash(hash), None, "{hash}");
        }
    }

    #[test]
    fn a_caching_sha2_answer_is_right_or_wrong() {
        let answer = caching_sha2_password(&NONCE, b"secret");
        assert!(verify_caching_sha2(b"secret", &NONCE, &answer));
        assert!(!verify_caching_sha2(b"Secret", &NONCE, &answer));
        assert!(wrong(&answer).all(|answer| !verify_caching_sha2(b"secret", &NONCE, &answer)));
        assert!(verify_caching_sha2(b"", &NONCE, b""));
        assert!(!verify_caching_sha2(b"", &NONCE, &answer));
        assert!(!verify_caching_sha2(b"secret", &NONCE, b""));
    }

    #[test]
    fn an_ed25519_signature_is_right_or_wrong() {
        let nonce = [9; 32];
        let signature = ed25519(&nonce, b"secret");
        assert!(verify_ed25519(b"secret", &nonce, &signature));
        assert!(!verify_ed25519(b"Secret", &nonce, &signature));
        assert!(!verify_ed25519(b"secret", &[8; 32], &signature));
        assert!(wrong(&signature).all(|signature| !verify_ed25519(b"secret", &nonce, &signature)));
    }
}
