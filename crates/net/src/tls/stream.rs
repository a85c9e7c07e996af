//! An encrypted stream, and how its encrypted bytes get from the socket to rustls.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::{CommonState, ProtocolVersion};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::buffer::{self, Buffer};
use crate::stream::{Stream, poll_read_into};

/// A stream after its TLS handshake.
#[derive(Debug)]
pub struct TlsStream {
    inner: tokio_rustls::TlsStream<Transport>,
}

/// The stream below TLS, with read-ahead.
///
/// rustls asks for 4 KiB at a time; without read-ahead a 16 KiB record would cost four or five system calls.
/// The buffer comes from the worker's pool and goes back when rustls has taken everything, so an idle
/// connection holds none.
#[derive(Debug)]
pub(super) struct Transport {
    stream: Stream,
    ahead: Option<Buffer>,
}

impl TlsStream {
    pub(super) fn new(inner: tokio_rustls::TlsStream<Transport>) -> Self {
        Self { inner }
    }

    /// The stream below.
    pub(crate) fn carrier(&self) -> &Stream {
        &self.inner.get_ref().0.stream
    }

    /// The same, to be changed between two exchanges.
    pub(crate) fn carrier_mut(&mut self) -> &mut Stream {
        &mut self.inner.get_mut().0.stream
    }

    /// Protocol version as MySQL names it in `Ssl_version` (`TLSv1.3`), and the cipher suite's name
    /// (`TLS13_AES_256_GCM_SHA384`).
    pub fn summary(&self) -> (&'static str, &'static str) {
        let state = self.state();
        let version = match state.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "unknown",
        };
        let cipher = state
            .negotiated_cipher_suite()
            .and_then(|suite| suite.suite().as_str());
        (version, cipher.unwrap_or("unknown"))
    }

    /// The peer's own certificate (DER), if it showed one.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.state()
            .peer_certificates()?
            .first()
            .map(|certificate| certificate.as_ref())
    }

    fn state(&self) -> &CommonState {
        self.inner.get_ref().1
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.get_mut().inner).poll_read(cx, out) {
            // An end without close_notify is an end: most MySQL clients leave like that. Whether something
            // was cut off is seen where packets are counted.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            other => other,
        }
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

impl Transport {
    /// `already_read` are the first bytes that the peer has sent; they must fit in one buffer.
    pub(super) fn new(stream: Stream, already_read: &[u8]) -> io::Result<Self> {
        if already_read.is_empty() {
            return Ok(Self { stream, ahead: None });
        }
        let mut ahead = buffer::take();
        if ahead.append(already_read) < already_read.len() {
            let reason = format!("more than {} bytes before the TLS handshake", buffer::CAPACITY);
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Ok(Self {
            stream,
            ahead: Some(ahead),
        })
    }
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let mut ahead = match this.ahead.take() {
            Some(ahead) => ahead,
            None => {
                let mut ahead = buffer::take();
                if ready!(poll_read_into(cx, &mut this.stream, &mut ahead))? == 0 {
                    return Poll::Ready(Ok(()));
                }
                ahead
            }
        };
        let n = ahead.len().min(out.remaining());
        out.put_slice(&ahead.filled()[..n]);
        ahead.consume(n);
        if !ahead.is_empty() {
            this.ahead = Some(ahead);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
