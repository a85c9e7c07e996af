//! Certificates, keys and CA bundles read from PEM files.

use std::fs;
use std::path::Path;

use rustls::RootCertStore;
use rustls_pki_types::pem::{Error as PemError, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::NetError;

const CERT: &str = "certificate file";
const KEY: &str = "key file";
const CA: &str = "CA file";

/// More than any bundle in use (Debian's whole list of public CAs is 220 KB); reading stops here, so that a
/// wrong path such as `/dev/zero` is an error instead of the end of our memory.
const MAX_FILE_LEN: u64 = 4 * 1024 * 1024;

/// A certificate with its chain, leaf first.
pub(super) fn certificate_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, NetError> {
    certificates(CERT, path)
}

/// A private key: PKCS#8, PKCS#1 (RSA) or SEC1 (EC).
pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, NetError> {
    let pem = read(KEY, path)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| match error {
        PemError::NoItemsFound if contains(&pem, b"ENCRYPTED PRIVATE KEY") => bad(
            KEY,
            path,
            "the key is encrypted; expected one without a passphrase (`openssl pkey -in OLD -out NEW`)",
        ),
        PemError::NoItemsFound => bad(KEY, path, "expected a PEM private key, found none"),
        error => bad(KEY, path, error),
    })
}

/// The certificates of a CA file, as they are and as anchors of trust.
pub(super) fn authorities(path: &Path) -> Result<(Vec<CertificateDer<'static>>, RootCertStore), NetError> {
    let certificates = certificates(CA, path)?;
    let mut roots = RootCertStore::empty();
    for (index, certificate) in certificates.iter().enumerate() {
        let refused = |error| unusable_ca(path, format!("certificate {} of it: {error}", index + 1));
        roots.add(certificate.clone()).map_err(refused)?;
    }
    Ok((certificates, roots))
}

pub(super) fn unusable_ca(path: &Path, error: impl ToString) -> NetError {
    bad(CA, path, error)
}

/// A key that rustls refuses, or that does not belong to the certificate.
pub(super) fn unusable_pair(cert: &Path, key: &Path, error: &rustls::Error) -> NetError {
    use rustls::{CertificateError, Error, InconsistentKeys};
    let reason = match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            format!("the key in {} belongs to another certificate", key.display())
        }
        // Its own words are those for a certificate that somebody else has shown.
        Error::InvalidCertificate(CertificateError::Other(other)) if other.to_string() == "UnsupportedCertVersion" => {
            "X.509 version 1, expected 3 (`openssl x509 -req` makes version 1 without -extfile or -copy_extensions copy)"
                .to_owned()
        }
        error => format!("cannot be used with the key in {}: {error}", key.display()),
    };
    bad(CERT, cert, reason)
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, NetError> {
    let pem = read(what, path)?;
    let found = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(found) if found.is_empty() => Err(bad(what, path, "expected PEM certificates, found none")),
        Ok(found) => Ok(found),
        Err(error) => Err(bad(what, path, error)),
    }
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, NetError> {
    use std::io::Read;
    let mut bytes = Vec::new();
    // Opening a pipe waits for somebody who writes.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(bad(
            what,
            path,
            "expected a file, found a folder, a pipe or a device",
        ));
    }
    let read = fs::File::open(path).and_then(|file| file.take(MAX_FILE_LEN).read_to_end(&mut bytes));
    match read {
        Ok(length) if length as u64 == MAX_FILE_LEN => {
            Err(bad(what, path, format!("larger than {MAX_FILE_LEN} bytes")))
        }
        Ok(_) => Ok(bytes),
        Err(source) => Err(NetError::ReadFile {
            what,
            path: path.to_owned(),
            source,
        }),
    }
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

fn bad(what: &'static str, path: &Path, reason: impl ToString) -> NetError {
    NetError::BadFile {
        what,
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}
