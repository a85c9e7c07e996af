//! A certificate authority made on the spot, with a server and a client certificate.

use std::{fs, io, path::Path, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// PEM texts. The server certificate is for `localhost` and `127.0.0.1`.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// The authority's certificate.
    pub ca: String,
    /// The server's certificate and key.
    pub cert: String,
    /// Its key.
    pub key: String,
    /// A certificate for a client, subject `CN=forebay-test-client`.
    pub client_cert: String,
    /// Its key.
    pub client_key: String,
}

impl Certificates {
    /// Makes new ones, with ECDSA P-256 keys.
    pub fn generate() -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "Forebay test CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate()?;
        let ca = params.self_signed(&ca_key)?.pem();
        let issuer = Issuer::new(params, ca_key);
        let (cert, key) = issue(&issuer, "localhost")?;
        let (client_cert, client_key) = issue(&issuer, "forebay-test-client")?;
        Ok(Self {
            ca,
            cert,
            key,
            client_cert,
            client_key,
        })
    }

    /// Writes `ca.pem`, `cert.pem`, `key.pem`, `client-cert.pem` and `client-key.pem` into `folder`.
    pub fn write_to(&self, folder: &Path) -> io::Result<()> {
        let files = [
            ("ca.pem", &self.ca),
            ("cert.pem", &self.cert),
            ("key.pem", &self.key),
            ("client-cert.pem", &self.client_cert),
            ("client-key.pem", &self.client_key),
        ];
        files
            .into_iter()
            .try_for_each(|(name, text)| fs::write(folder.join(name), text))
    }

    /// For a server that shows its certificate and asks for none.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, rustls::Error> {
        let (cert, key) = (certificate(&self.cert)?, private_key(&self.key)?);
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![cert], key)?;
        Ok(Arc::new(config))
    }

    /// For a client that trusts this authority alone, and shows its certificate if `identified`.
    pub fn client_config(&self, identified: bool) -> Result<Arc<ClientConfig>, rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.ca)?)?;
        let builder = ClientConfig::builder().with_root_certificates(roots);
        Ok(Arc::new(if identified {
            let (cert, key) = (certificate(&self.client_cert)?, private_key(&self.client_key)?);
            builder.with_client_auth_cert(vec![cert], key)?
        } else {
            builder.with_no_client_auth()
        }))
    }
}

fn issue(issuer: &Issuer<'_, KeyPair>, name: &str) -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::new(vec![name.to_owned(), "127.0.0.1".to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate()?;
    Ok((params.signed_by(&key, issuer)?.pem(), key.serialize_pem()))
}

fn certificate(pem: &str) -> Result<CertificateDer<'static>, rustls::Error> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(unreadable)
}

fn private_key(pem: &str) -> Result<PrivateKeyDer<'static>, rustls::Error> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(unreadable)
}

fn unreadable(error: rustls::pki_types::pem::Error) -> rustls::Error {
    rustls::Error::General(error.to_string())
}
