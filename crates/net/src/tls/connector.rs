//! TLS towards servers.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

use config::{ClusterTls, Verify};
use rustls::ClientConfig;
use rustls::version::{TLS12, TLS13};
use rustls_pki_types::{ServerName, UnixTime};

use super::reload::Reloading;
use super::stream::{TlsStream, Transport};
use super::verify::{ByAuthority, JudgedLater};
use super::{files, provider};
use crate::{NetError, Stream};

/// Starts TLS handshakes with servers. One for each cluster, shared by all workers.
pub struct TlsConnector {
    terms: Reloading<Terms>,
    identity: bool,
}

/// For clients that trust every certificate, and have none to show.
pub fn trusting_client() -> Result<Arc<ClientConfig>, NetError> {
    let settings = Settings {
        trust: Trust::Anybody,
        pair: None,
    };
    Ok(settings.build()?.config)
}

/// What the files say.
struct Terms {
    config: Arc<ClientConfig>,
    /// Who judges the server's certificate; `None` where anybody is trusted.
    judge: Option<Arc<ByAuthority>>,
}

/// A server with which TLS could not be begun, or whose certificate is not trusted.
#[derive(Debug)]
pub struct TlsRefusal {
    pub error: io::Error,
    /// Where the certificate is not trusted, the encrypted connection to whoever has shown it: good for a
    /// farewell, and for nothing that is not meant for everybody. `None` where the connection is of no more
    /// use.
    pub stream: Option<Stream>,
}

impl From<TlsRefusal> for io::Error {
    fn from(refusal: TlsRefusal) -> Self {
        refusal.error
    }
}

impl From<io::Error> for TlsRefusal {
    fn from(error: io::Error) -> Self {
        Self { error, stream: None }
    }
}

/// [`ClusterTls`] with the files that must be there.
struct Settings {
    trust: Trust,
    /// Our certificate and its key, for servers that ask for one.
    pair: Option<(PathBuf, PathBuf)>,
}

enum Trust {
    Anybody,
    Authority { ca: PathBuf, identity: bool },
}

impl TlsConnector {
    /// Reads the CA file, and certificate and key where we have them to show.
    ///
    /// # Errors
    /// Files that are missing, unreadable, broken or do not belong together.
    pub fn new(tls: &ClusterTls) -> Result<Self, NetError> {
        let settings = Settings::new(tls)?;
        let identity = matches!(settings.trust, Trust::Authority { identity: true, .. });
        let terms = Reloading::new(settings.files(), move || settings.build())?;
        Ok(Self { terms, identity })
    }

    /// Reads the files again if one has changed: `Ok(true)` means that new connections use the new ones.
    ///
    /// # Errors
    /// As for [`new`](Self::new); the old files stay in use. The same broken files are reported once.
    pub fn reload_if_changed(&self) -> Result<bool, NetError> {
        self.terms.reload_if_changed()
    }

    /// Does the client's part of a handshake. `server_name` is a host name or an IP address; with
    /// `verify = "identity"` the certificate must be for it (as a subject alternative name: the common name
    /// has been out of use since RFC 6125, and the certificates that MySQL 5.7 to 9 make for themselves are
    /// for no name at all), otherwise it is only sent as a hint, and anything else than a host name is left
    /// out.
    ///
    /// The certificate is judged when the handshake is over, and before this returns. So the server sees a
    /// whole handshake, and whoever is not trusted sees the certificate that we have to show, if any.
    ///
    /// # Errors
    /// A failed handshake, or a certificate that is not trusted.
    pub async fn connect(&self, stream: Stream, server_name: &str) -> Result<Stream, TlsRefusal> {
        let nobody = || ServerName::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        // An IP address is never sent.
        let (name, nameless) = match ServerName::try_from(server_name.to_owned()) {
            Ok(name) => (name, None),
            Err(error) => (nobody(), Some(error).filter(|_| self.identity)),
        };
        let transport = Transport::new(stream, &[])?;
        let terms = self.terms.current();
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(&terms.config));
        let stream = connector.connect(name.clone(), transport).await?;
        let verdict = match (&terms.judge, nameless) {
            (None, _) => Ok(()),
            (Some(_), Some(error)) => {
                let reason =
                    format!("`{server_name}` is no name that a certificate can be checked against: {error}");
                Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
            }
            (Some(judge), None) => {
                let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
                let verdict = judge.judge(shown, &name, UnixTime::now());
                verdict.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
            }
        };
        let stream = Stream::Tls(Box::new(TlsStream::new(stream.into())));
        match verdict {
            Ok(()) => Ok(stream),
            Err(error) => Err(TlsRefusal {
                error,
                stream: Some(stream),
            }),
        }
    }
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TlsConnector")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl Settings {
    fn new(tls: &ClusterTls) -> Result<Self, NetError> {
        let trust = match (tls.verify, &tls.ca) {
            (Verify::Off, _) => Trust::Anybody,
            (verify, Some(ca)) => Trust::Authority {
                ca: ca.clone(),
                identity: matches!(verify, Verify::Identity),
            },
            (_, None) => {
                let reason =
                    "to verify servers, `ca` must name the PEM file of the CA that signs their certificates";
                return Err(NetError::TlsSettings(reason.to_owned()));
            }
        };
        let pair = match (&tls.cert, &tls.key) {
            (Some(cert), Some(key)) => Some((cert.clone(), key.clone())),
            (None, None) => None,
            _ => {
                return Err(NetError::TlsSettings(
                    "`cert` and `key` need each other".to_owned(),
                ));
            }
        };
        Ok(Self { trust, pair })
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        if let Trust::Authority { ca, .. } = &self.trust {
            files.push(ca.clone());
        }
        if let Some((cert, key)) = &self.pair {
            files.extend([cert.clone(), key.clone()]);
        }
        files
    }

    fn build(&self) -> Result<Terms, NetError> {
        let judge = self.judge()?;
        let verifier = JudgedLater {
            provider: provider(),
            asks_for_key: judge.is_some(),
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| NetError::TlsSettings(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let config = match &self.pair {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => builder
                .with_client_auth_cert(files::certificate_chain(cert)?, files::private_key(key)?)
                .map_err(|error| files::unusable_pair(cert, key, &error))?,
        };
        Ok(Terms {
            config: Arc::new(config),
            judge,
        })
    }

    fn judge(&self) -> Result<Option<Arc<ByAuthority>>, NetError> {
        let Trust::Authority { ca, identity } = &self.trust else {
            return Ok(None);
        };
        let (listed, roots) = files::authorities(ca)?;
        Ok(Some(Arc::new(ByAuthority {
            roots,
            listed,
            identity: *identity,
            provider: provider(),
        })))
    }
}
