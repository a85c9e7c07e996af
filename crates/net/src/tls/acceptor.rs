//! TLS towards clients.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use config::{ClientAuth, ListenerTls, TlsVersion};
use rustls::crypto::aws_lc_rs;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, ServerConfig, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};

use super::reload::Reloading;
use super::stream::{TlsStream, Transport};
use super::{files, provider};
use crate::{NetError, Stream};

/// Takes TLS handshakes from clients. One for each listener, shared by all workers.
pub struct TlsAcceptor {
    config: Reloading<ServerConfig>,
}

/// [`ListenerTls`] with the files that must be there.
struct Settings {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
    client_auth: ClientAuth,
    min_version: TlsVersion,
}

impl TlsAcceptor {
    /// Reads certificate, key and, unless client certificates are off, the CA that signs them.
    ///
    /// # Errors
    /// Files that are missing, unreadable, broken or do not belong together.
    pub fn new(tls: &ListenerTls) -> Result<Self, NetError> {
        let settings = Settings::new(tls)?;
        let config = Reloading::new(settings.files(), move || settings.build())?;
        Ok(Self { config })
    }

    /// Reads the files again if one has changed: `Ok(true)` means that new connections get the new
    /// certificate. Open connections keep what they have.
    ///
    /// # Errors
    /// As for [`new`](Self::new); the old certificate stays in use. The same broken files are reported once.
    pub fn reload_if_changed(&self) -> Result<bool, NetError> {
        self.config.reload_if_changed()
    }

    /// Does the server's part of a handshake. `already_read` is what was read from the client behind its
    /// SSLRequest: clients may send their first TLS message in the same segment.
    ///
    /// # Errors
    /// A failed handshake, after an alert has been sent; the connection is of no more use.
    pub async fn accept(&self, stream: Stream, already_read: Vec<u8>) -> io::Result<Stream> {
        let transport = Transport::new(stream, &already_read)?;
        drop(already_read);
        let acceptor = tokio_rustls::TlsAcceptor::from(self.config.current());
        let stream = acceptor.accept(transport).await?;
        Ok(Stream::Tls(Box::new(TlsStream::new(stream.into()))))
    }
}

impl fmt::Debug for TlsAcceptor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TlsAcceptor").finish_non_exhaustive()
    }
}

impl Settings {
    fn new(tls: &ListenerTls) -> Result<Self, NetError> {
        let needed = |name: &str, path: &Option<PathBuf>| {
            let missing = || NetError::TlsSettings(format!("a listener with TLS needs `{name}`, a PEM file"));
            path.clone().ok_or_else(missing)
        };
        let client_ca = match tls.client_auth {
            ClientAuth::Off => None,
            ClientAuth::Optional | ClientAuth::Required => Some(needed("client_ca", &tls.client_ca)?),
        };
        Ok(Self {
            cert: needed("cert", &tls.cert)?,
            key: needed("key", &tls.key)?,
            client_ca,
            client_auth: tls.client_auth,
            min_version: tls.min_version,
        })
    }

    fn files(&self) -> Vec<PathBuf> {
        [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()]
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    fn build(&self) -> Result<ServerConfig, NetError> {
        let versions: &[_] = match self.min_version {
            TlsVersion::V12 => &[&TLS13, &TLS12],
            TlsVersion::V13 => &[&TLS13],
        };
        let unsupported = |error: rustls::Error| NetError::TlsSettings(error.to_string());
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .map_err(unsupported)?
            .with_client_cert_verifier(self.client_verifier()?)
            .with_single_cert(
                files::certificate_chain(&self.cert)?,
                files::private_key(&self.key)?,
            )
            .map_err(|error| files::unusable_pair(&self.cert, &self.key, &error))?;
        // Tickets instead of the default store of sessions, which is a lock that all workers share. Their key
        // is as old as this configuration: after a reload nobody resumes a session that the new files would
        // refuse.
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(unsupported)?;
        Ok(config)
    }

    fn client_verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, NetError> {
        let Some(path) = &self.client_ca else {
            return Ok(Arc::new(NoClientAuth));
        };
        let (_, roots) = files::authorities(path)?;
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        let builder = match self.client_auth {
            ClientAuth::Required => builder,
            ClientAuth::Off | ClientAuth::Optional => builder.allow_unauthenticated(),
        };
        builder
            .build()
            .map(|verifier| verifier as Arc<dyn ClientCertVerifier>)
            .map_err(|error| files::unusable_ca(path, error))
    }
}
