//! The client's half of `mysql_native_password`, `caching_sha2_password` and `sha256_password` on a plain
//! link.

use aws_lc_rs::rsa::{OAEP_SHA1_MGF1SHA1, OaepPublicEncryptingKey, PublicEncryptingKey};
use mysql_wire::{AuthSwitch, auth};

/// The first answer to a nonce.
pub fn scramble(plugin: &[u8], nonce: &[u8; 20], password: &str) -> Vec<u8> {
    match plugin {
        b"mysql_native_password" => auth::native_password(nonce, password.as_bytes()),
        b"caching_sha2_password" => auth::caching_sha2_password(nonce, password.as_bytes()),
        // MySQL asks unknown accounts for any plugin. The server's key is wanted.
        b"sha256_password" => vec![u8::from(!password.is_empty())],
        other => panic!("the server asks for {}", String::from_utf8_lossy(other)),
    }
}

/// What to say to a packet of the server, if anything. `nonce` is the last one, and the next.
pub fn answer(payload: &[u8], nonce: &mut [u8; 20], password: &str) -> Option<Vec<u8>> {
    match payload {
        [0xfe, ..] => {
            let switch = AuthSwitch::decode(payload).unwrap();
            *nonce = switch.nonce().unwrap();
            Some(scramble(&switch.plugin, nonce, password))
        }
        [1, 3] => None,
        [1, 4] => Some(vec![2]),
        [1, pem @ ..] => Some(encrypted(pem, nonce, password)),
        other => panic!("not a packet of the authentication: {other:?}"),
    }
}

fn encrypted(pem: &[u8], nonce: &[u8; 20], password: &str) -> Vec<u8> {
    let pem = pem::parse(pem).unwrap();
    let key = PublicEncryptingKey::from_der(pem.contents()).unwrap();
    let key = OaepPublicEncryptingKey::new(key).unwrap();
    let mixed = auth::xor_with_nonce(nonce, password.as_bytes());
    let mut out = vec![0; key.ciphertext_size()];
    key.encrypt(&OAEP_SHA1_MGF1SHA1, &mixed, &mut out, None)
        .unwrap()
        .to_vec()
}
