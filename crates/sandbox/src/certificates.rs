//! A certificate authority of the sandbox's own, with a certificate for its servers and one for a client.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::KeyUsagePurpose;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

use crate::SandboxError;

/// PEM files, valid for `localhost`, `127.0.0.1` and `::1`. ECDSA P-256 keys.
#[derive(Clone, Debug)]
pub struct Certificates {
    pub ca: PathBuf,
    pub server_cert: PathBuf,
    pub server_key: PathBuf,
    /// Subject `CN=forebay-client`.
    pub client_cert: PathBuf,
    pub client_key: PathBuf,
}

impl Certificates {
    /// Makes a CA and writes all files into `folder`. The key of the CA is not kept.
    pub fn make(folder: &Path) -> Result<Self, SandboxError> {
        let files = Self {
            ca: folder.join("ca.pem"),
            server_cert: folder.join("server-cert.pem"),
            server_key: folder.join("server-key.pem"),
            client_cert: folder.join("client-cert.pem"),
            client_key: folder.join("client-key.pem"),
        };
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "Forebay sandbox CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        write(&files.ca, &params.self_signed(&key)?.pem())?;
        let issuer = Issuer::new(params, key);

        let (server, client) = (
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        );
        // An etcd that asks clients for a certificate shows its own one to itself.
        let of_server = ("localhost", vec![server, client.clone()]);
        issue(&issuer, of_server, &files.server_cert, &files.server_key)?;
        let client = ("forebay-client", vec![client]);
        issue(&issuer, client, &files.client_cert, &files.client_key)?;
        Ok(files)
    }

    /// The server options that turn TLS on with these files.
    pub(crate) fn server_options(&self) -> Vec<String> {
        vec![
            format!("--ssl-ca={}", self.ca.display()),
            format!("--ssl-cert={}", self.server_cert.display()),
            format!("--ssl-key={}", self.server_key.display()),
        ]
    }
}

fn issue(
    issuer: &Issuer<'_, KeyPair>,
    (name, usages): (&str, Vec<ExtendedKeyUsagePurpose>),
    cert_file: &Path,
    key_file: &Path,
) -> Result<(), SandboxError> {
    let hosts = ["localhost", "127.0.0.1", "::1"].map(String::from);
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = usages;
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    write(cert_file, &params.signed_by(&key, issuer)?.pem())?;
    write(key_file, &key.serialize_pem())
}

fn write(path: &Path, text: &str) -> Result<(), SandboxError> {
    fs::write(path, text).map_err(|source| SandboxError::io("write", path, source))
}
