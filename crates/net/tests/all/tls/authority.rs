//! A certificate authority in a temporary folder.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use config::{ClientAuth, ClusterTls, ListenerTls, TlsMode, TlsVersion, Verify};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};

pub(crate) struct Authority {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// Files of a certificate and its key.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Names differ, or a stranger's certificate would look like a forged one of ours.
        static COUNT: AtomicUsize = AtomicUsize::new(1);
        let name = format!("Test CA {}", COUNT.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { folder, issuer }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// Signs a certificate for `names` and writes `file.pem` and `file.key`, replacing what was there.
    pub(crate) fn issue(&self, file: &str, names: &[&str]) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = params(file, names).signed_by(&key, &self.issuer).unwrap();
        self.write(file, &certificate.pem(), &key)
    }

    /// A certificate that signs itself and calls itself a CA, as `openssl req -x509` makes them.
    pub(crate) fn self_signed(&self, file: &str, names: &[&str]) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = params(file, names);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        self.write(file, &certificate.pem(), &key)
    }

    /// A certificate of this authority that ended years ago.
    pub(crate) fn issue_expired(&self, file: &str, names: &[&str]) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = params(file, names);
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        self.write(file, &certificate.pem(), &key)
    }

    fn write(&self, file: &str, certificate: &str, key: &KeyPair) -> Pair {
        let pair = Pair {
            cert: self.path(&format!("{file}.pem")),
            key: self.path(&format!("{file}.key")),
        };
        replace(&pair.cert, certificate);
        replace(&pair.key, &key.serialize_pem());
        pair
    }
}

/// Replaces a file as certificate tools do: written aside, then renamed.
pub(crate) fn replace(path: &Path, content: &str) {
    let aside = path.with_extension("new");
    std::fs::write(&aside, content).unwrap();
    std::fs::rename(&aside, path).unwrap();
}

fn params(common_name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

/// Settings of a listener that shows `pair` and asks for nothing.
pub(crate) fn listener(pair: &Pair) -> ListenerTls {
    ListenerTls {
        mode: TlsMode::Required,
        cert: Some(pair.cert.clone()),
        key: Some(pair.key.clone()),
        client_ca: None,
        client_auth: ClientAuth::Off,
        min_version: TlsVersion::V12,
    }
}

/// Settings of a cluster that verifies as told and shows nothing.
pub(crate) fn cluster(verify: Verify, ca: Option<PathBuf>) -> ClusterTls {
    ClusterTls {
        mode: TlsMode::Required,
        verify,
        ca,
        cert: None,
        key: None,
    }
}
