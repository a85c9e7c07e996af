//! How a server's certificate is judged: not at all, by its chain, or by chain and name.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

/// Checks that a certificate comes from the CA file, and with `identity` that it is for the name connected
/// to.
///
/// The usual rustls verifier knows chain and name only together, and it refuses certificates that are their
/// own CA (`openssl req -x509` makes such). Here a server's certificate that stands in the CA file itself is
/// trusted.
#[derive(Debug)]
pub(super) struct ByAuthority {
    pub(super) roots: RootCertStore,
    pub(super) listed: Vec<CertificateDer<'static>>,
    pub(super) identity: bool,
    pub(super) provider: Arc<CryptoProvider>,
}

/// Lets a handshake come to its end whatever the certificate: where there is a CA, the certificate is judged
/// behind it, when whoever connects can still say good-bye in the protocol that TLS carries.
#[derive(Debug)]
pub(super) struct JudgedLater {
    pub(super) provider: Arc<CryptoProvider>,
    /// Whether the server has to prove that it has the certificate's key. Where every certificate is accepted
    /// (as by a MySQL client with `ssl-mode=REQUIRED`: the link is encrypted, but not against somebody who
    /// sits in the middle), that would prove the possession of a key that anybody may have made up, and it
    /// would refuse servers whose old certificates (X.509 version 1) cannot be parsed.
    pub(super) asks_for_key: bool,
}

impl JudgedLater {
    /// Whether the handshake's signature is checked. A certificate that cannot be read has no key to check
    /// anything with, and is refused when it is judged.
    fn checks(&self, certificate: &CertificateDer<'_>) -> bool {
        self.asks_for_key && ParsedCertificate::try_from(certificate).is_ok()
    }
}

impl ServerCertVerifier for JudgedLater {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if !self.checks(certificate) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if !self.checks(certificate) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

impl ByAuthority {
    /// Judges the certificates that a server has shown, its own first.
    pub(super) fn judge(
        &self,
        shown: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let Some((certificate, intermediates)) = shown.split_first() else {
            return Err(Error::NoCertificatesPresented);
        };
        let parsed = ParsedCertificate::try_from(certificate)?;
        if !self.listed.iter().any(|listed| listed == certificate) {
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        }
        if self.identity {
            verify_server_name(&parsed, name)?;
        }
        Ok(())
    }
}
