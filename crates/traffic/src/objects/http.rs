//! How requests get to a store: HTTP/1.1, with the TLS that the gateway has, one request a connection.
//!
//! Files are few and long, so that a connection for each costs nothing, and none is stale.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use config::{ClusterTls, TlsMode, Verify};
use http::header::{HOST, HeaderValue};
use http::uri::{PathAndQuery, Scheme, Uri};
use http_body_util::BodyExt as _;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use net::{Stream, TlsConnector};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// For a connection, and for its TLS.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// For an answer's head, and so much more for what is sent: a slow line is no failure.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
const SLOWEST_BYTES_PER_S: u64 = 64 << 10;
/// For each piece of an answer.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);
/// The longest answer: a part of a file, or a list.
const ANSWER_MAX: usize = 32 << 20;
/// What is sent and heard of by nobody for so long is a lost connection.
const UNHEARD_LIMIT_MS: u32 = 30_000;

/// Where systems have their authorities, and what names others.
const AUTHORITIES_VARIABLE: &str = "SSL_CERT_FILE";
const AUTHORITIES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allow_http = options.get_config_value(&ClientConfigKey::AllowHttp);
        Ok(HttpClient::new(Service {
            may_be_plain: allow_http.as_deref() == Some("true"),
        }))
    }
}

#[derive(Debug)]
struct Service {
    /// Without TLS.
    may_be_plain: bool,
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let stream = self.connect(request.uri()).await?;
        let uri = request.uri().clone();
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let host = HeaderValue::from_str(authority)
            .map_err(|error| failed(HttpErrorKind::Unknown, &error.to_string()))?;
        request.headers_mut().entry(HOST).or_insert(host);
        let path = uri.path_and_query().cloned();
        *request.uri_mut() = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        let sent = request.body().content_length() as u64;

        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| http_error(&error))?;
        // It ends with the answer; what goes wrong there, the answer says.
        tokio::spawn(connection);
        let limit = ANSWER_LIMIT + Duration::from_secs(sent / SLOWEST_BYTES_PER_S);
        let answer = timeout(limit, sender.send_request(request)).await;
        let answer = answer.map_err(|_| late("no answer", limit))?;
        let (parts, mut body) = answer.map_err(|error| http_error(&error))?.into_parts();
        let mut whole = Vec::new();
        loop {
            let piece = timeout(SILENCE_LIMIT, body.frame()).await;
            let piece = piece.map_err(|_| late("no more of an answer", SILENCE_LIMIT))?;
            let Some(piece) = piece.transpose().map_err(|error| http_error(&error))? else {
                break;
            };
            if let Ok(data) = piece.into_data() {
                whole.extend_from_slice(&data);
            }
            if whole.len() > ANSWER_MAX {
                return Err(failed(HttpErrorKind::Unknown, "an answer is too long"));
            }
        }
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(whole)))
    }
}

impl Service {
    async fn connect(&self, uri: &Uri) -> Result<Stream, HttpError> {
        let is_plain = uri.scheme() == Some(&Scheme::HTTP);
        if is_plain && !self.may_be_plain {
            let words = "it is spoken to without TLS only where AWS_ALLOW_HTTP (or AZURE_ALLOW_HTTP) is true";
            return Err(failed(HttpErrorKind::Unknown, words));
        }
        let host = uri.host().unwrap_or_default();
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let port = uri.port_u16().unwrap_or(if is_plain { 80 } else { 443 });
        let connected = timeout(CONNECT_LIMIT, TcpStream::connect((host, port))).await;
        let stream = connected.map_err(|_| late("no connection", CONNECT_LIMIT))?;
        let unreached = |error: io::Error| HttpError::new(HttpErrorKind::Connect, error);
        let stream = stream.map_err(unreached)?;
        rustix::net::sockopt::set_tcp_user_timeout(&stream, UNHEARD_LIMIT_MS)
            .map_err(|error| unreached(error.into()))?;
        let stream = Stream::from(stream);
        if is_plain {
            return Ok(stream);
        }
        let tls = authorities()?;
        let encrypted = timeout(CONNECT_LIMIT, tls.connect(stream, host)).await;
        let encrypted = encrypted.map_err(|_| late("no TLS", CONNECT_LIMIT))?;
        encrypted.map_err(|refusal| unreached(refusal.into()))
    }
}

/// Trusts whom the system trusts, by what is there now.
fn authorities() -> Result<TlsConnector, HttpError> {
    let named = std::env::var_os(AUTHORITIES_VARIABLE).map(PathBuf::from);
    let mut known = AUTHORITIES.into_iter().map(PathBuf::from);
    let found = named.or_else(|| known.find(|file| file.is_file()));
    let found = found.ok_or_else(|| {
        let words =
            format!("this system has no certificates of authorities; {AUTHORITIES_VARIABLE} names a file");
        failed(HttpErrorKind::Unknown, &words)
    })?;
    let settings = ClusterTls {
        mode: TlsMode::Required,
        verify: Verify::Identity,
        ca: Some(found),
        cert: None,
        key: None,
    };
    TlsConnector::new(&settings).map_err(|error| failed(HttpErrorKind::Unknown, &error.to_string()))
}

fn failed(kind: HttpErrorKind, words: &str) -> HttpError {
    HttpError::new(kind, io::Error::other(words.to_owned()))
}

fn late(what: &str, limit: Duration) -> HttpError {
    failed(HttpErrorKind::Timeout, &format!("{what} within {limit:?}"))
}

/// What is asked can be asked again: parts and whole files are put as they are.
fn http_error(error: &hyper::Error) -> HttpError {
    failed(HttpErrorKind::Interrupted, &error.to_string())
}
