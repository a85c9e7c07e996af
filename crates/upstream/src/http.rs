//! What the gateway asks over HTTP/1.1: one request a connection, its answer whole or piece by piece. For
//! etcd, PD, Kubernetes and status ports, which are trusted no further than what is bounded here.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use config::ServerAddress;
use httparse::{EMPTY_HEADER, Status};
use net::{Stream, TlsConnector};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::address::Addresses;

/// Longest head of an answer, in bytes, and most header lines.
const HEAD_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;

/// Longest line with the size of a chunk.
const CHUNK_LINE_MAX: usize = 256;

/// Read at a time.
const PIECE: usize = 8 << 10;

/// Silence after which the kernel probes the connection: whoever follows a stream may wait for long.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// For a connection to one of several addresses: whoever asks waits three seconds for all of them.
const ADDRESS_LIMIT: Duration = Duration::from_millis(700);

/// How old the addresses of a host name may be.
const DNS_AGE: Duration = Duration::from_secs(30);

/// Somebody who answers over HTTP.
pub(crate) struct Host {
    name: String,
    port: u16,
    addresses: Addresses,
}

impl Host {
    pub(crate) fn new(name: &str, port: u16) -> Self {
        let name = name.to_owned();
        let addresses = Addresses::of(&ServerAddress::Host {
            host: name.clone(),
            port,
        });
        Self {
            name,
            port,
            addresses,
        }
    }

    /// `host:port`.
    pub(crate) fn authority(&self) -> String {
        match self.name.contains(':') {
            true => format!("[{}]:{}", self.name, self.port),
            false => format!("{}:{}", self.name, self.port),
        }
    }

    /// Sends a request and waits for the head of its answer. There is no time limit here.
    pub(crate) async fn ask(
        &self,
        tls: Option<&TlsConnector>,
        request: &Request<'_>,
    ) -> io::Result<HttpAnswer<Stream>> {
        let stream = self.connect(tls).await?;
        self.ask_on(stream, request).await
    }

    /// The same on a connection that there is.
    pub(crate) async fn ask_on(
        &self,
        stream: Stream,
        request: &Request<'_>,
    ) -> io::Result<HttpAnswer<Stream>> {
        exchange(stream, &self.authority(), request).await
    }

    pub(crate) async fn connect(&self, tls: Option<&TlsConnector>) -> io::Result<Stream> {
        // The old addresses may do.
        let _ = self.addresses.refresh(DNS_AGE).await;
        let (address, stream) = first_of(&self.addresses.get().await?).await?;
        self.addresses.prefer(address);
        match tls {
            Some(tls) => Ok(tls.connect(stream, &self.name).await?),
            None => Ok(stream),
        }
    }
}

/// A connection to the first address that takes one. One that says nothing does not use up the time of those
/// behind it; the last one has all that is left.
async fn first_of(addresses: &[SocketAddr]) -> io::Result<(SocketAddr, Stream)> {
    let mut failed = io::Error::other("its name has no address");
    for (place, address) in addresses.iter().enumerate() {
        let connecting = Stream::connect_tcp(*address, KEEPALIVE);
        let connected = match place + 1 < addresses.len() {
            true => timeout(ADDRESS_LIMIT, connecting).await,
            false => Ok(connecting.await),
        };
        match connected {
            Ok(Ok(stream)) => return Ok((*address, stream)),
            Ok(Err(error)) => failed = error,
            Err(_) => failed = io::Error::other(format!("{address}: no connection in time")),
        }
    }
    Err(failed)
}

pub(crate) struct Request<'r> {
    method: &'r str,
    path: &'r str,
    /// The value of the header `Authorization`.
    token: Option<&'r str>,
    body: &'r str,
}

impl<'r> Request<'r> {
    pub(crate) fn get(path: &'r str, token: Option<&'r str>) -> Self {
        Self {
            method: "GET",
            path,
            token,
            body: "",
        }
    }

    pub(crate) fn post(path: &'r str, token: Option<&'r str>, body: &'r str) -> Self {
        Self {
            method: "POST",
            path,
            token,
            body,
        }
    }
}

/// The answer to a request, whose body is still to be read.
#[derive(Debug)]
pub(crate) struct HttpAnswer<S> {
    pub(crate) status: u16,
    stream: S,
    unread: Vec<u8>,
    body: Body,
}

/// What is left of a body.
#[derive(Debug, PartialEq, Eq)]
enum Body {
    /// The bytes that are still to come.
    Bytes(u64),
    /// Chunks, and the bytes of the present one that are still to come.
    Chunks {
        left: u64,
        is_first: bool,
    },
    /// Until the other side closes.
    ToTheEnd,
    Nothing,
}

async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    authority: &str,
    request: &Request<'_>,
) -> io::Result<HttpAnswer<S>> {
    let Request {
        method, path, body, ..
    } = request;
    let token = request.token.map(|token| format!("Authorization: {token}\r\n"));
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         {}Connection: close\r\n\r\n{body}",
        body.len(),
        token.unwrap_or_default()
    );
    stream.write_all(text.as_bytes()).await?;
    stream.flush().await?;
    let mut unread = Vec::new();
    loop {
        if fill(&mut stream, &mut unread).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some((length, status, body)) = head(&unread)? {
            unread.drain(..length);
            return Ok(HttpAnswer {
                status,
                stream,
                unread,
                body,
            });
        }
        if unread.len() > HEAD_MAX {
            return Err(invalid("the head of its answer is too long"));
        }
    }
}

async fn fill(stream: &mut (impl AsyncRead + Unpin), unread: &mut Vec<u8>) -> io::Result<usize> {
    unread.reserve(PIECE);
    stream.read_buf(unread).await
}

/// Length of the head, the status, and what comes behind; `None` where it is not all there.
fn head(bytes: &[u8]) -> io::Result<Option<(usize, u16, Body)>> {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(bytes).map_err(invalid)?;
    let (Status::Complete(length), Some(status)) = (parsed, response.code) else {
        return Ok(None);
    };
    let of = |name: &str| {
        let mut headers = response.headers.iter();
        let found = headers.find(|header| header.name.eq_ignore_ascii_case(name));
        found.map(|header| String::from_utf8_lossy(header.value).trim().to_ascii_lowercase())
    };
    let body = match (of("transfer-encoding"), of("content-length")) {
        _ if status == 204 || status == 304 => Body::Nothing,
        (Some(coding), _) if coding == "chunked" => Body::Chunks {
            left: 0,
            is_first: true,
        },
        (Some(coding), _) => return Err(invalid(format!("its answer is coded as {coding}"))),
        (None, Some(length)) => Body::Bytes(length.parse().map_err(invalid)?),
        (None, None) => Body::ToTheEnd,
    };
    Ok(Some((length, status, body)))
}

impl<S: AsyncRead + Unpin> HttpAnswer<S> {
    /// The next piece of the body, as it comes; `None` at its end.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let left = match &mut self.body {
                Body::Nothing | Body::Bytes(0) => return Ok(None),
                Body::Bytes(left) | Body::Chunks { left, .. } if *left > 0 => *left,
                Body::ToTheEnd => u64::MAX,
                Body::Bytes(_) | Body::Chunks { .. } => {
                    if !self.begin_chunk().await? {
                        return Ok(None);
                    }
                    continue;
                }
            };
            if self.unread.is_empty() && fill(&mut self.stream, &mut self.unread).await? == 0 {
                return match self.body {
                    Body::ToTheEnd => Ok(None),
                    _ => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(self.unread.len());
            if let Body::Bytes(left) | Body::Chunks { left, .. } = &mut self.body {
                *left -= length as u64;
            }
            return Ok(Some(self.unread.drain(..length).collect()));
        }
    }

    /// Reads the size of the next chunk. False for the last one.
    async fn begin_chunk(&mut self) -> io::Result<bool> {
        loop {
            let is_first = matches!(self.body, Body::Chunks { is_first: true, .. });
            let line = match is_first {
                true => Some(&self.unread[..]),
                false => match self.unread.get(..2) {
                    Some(end) if end != b"\r\n" => return Err(invalid("a chunk of its answer does not end")),
                    end => end.and_then(|_| self.unread.get(2..)),
                },
            };
            let parsed = line.map_or(Ok(Status::Partial), httparse::parse_chunk_size);
            match parsed.map_err(|_| invalid("a chunk of its answer has no size"))? {
                Status::Complete((_, 0)) => {
                    self.body = Body::Nothing;
                    return Ok(false);
                }
                Status::Complete((length, left)) => {
                    self.unread.drain(..length + if is_first { 0 } else { 2 });
                    self.body = Body::Chunks {
                        left,
                        is_first: false,
                    };
                    return Ok(true);
                }
                Status::Partial if self.unread.len() > CHUNK_LINE_MAX => {
                    return Err(invalid("the line with the size of a chunk is too long"));
                }
                Status::Partial => {
                    if fill(&mut self.stream, &mut self.unread).await? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            }
        }
    }

    /// The whole body, of at most so many bytes.
    pub(crate) async fn whole(&mut self, max: usize) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(piece) = self.next().await? {
            if body.len() + piece.len() > max {
                return Err(invalid(format!("its answer is longer than {max} bytes")));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }
}

/// The lines of a body, as they come: one JSON value each, where something is watched.
pub(crate) struct Lines<S> {
    answer: HttpAnswer<S>,
    unread: Vec<u8>,
    /// So many of the unread bytes end no line.
    searched: usize,
}

impl<S: AsyncRead + Unpin> Lines<S> {
    pub(crate) fn of(answer: HttpAnswer<S>) -> Self {
        Self {
            answer,
            unread: Vec::new(),
            searched: 0,
        }
    }

    /// The next line, of not much more than `max` bytes; `None` at the end of the body. May be given up and
    /// begun again.
    pub(crate) async fn next(&mut self, max: usize) -> io::Result<Option<Vec<u8>>> {
        loop {
            let mut new = self.unread[self.searched..].iter();
            if let Some(end) = new.position(|byte| *byte == b'\n') {
                let line = self.unread.drain(..=self.searched + end).collect();
                self.searched = 0;
                return Ok(Some(line));
            }
            self.searched = self.unread.len();
            if self.unread.len() > max {
                return Err(invalid("a line of the stream is too long"));
            }
            match self.answer.next().await? {
                Some(piece) => self.unread.extend_from_slice(&piece),
                None => return Ok(None),
            }
        }
    }
}

fn invalid(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::duplex;

    use super::*;

    /// What a client makes of these bytes, which come in pieces of that size.
    fn asked(answer: &[u8], piece: usize) -> io::Result<(u16, Vec<u8>)> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        runtime.block_on(async {
            let (ours, mut theirs) = duplex(piece.max(1));
            let serve = async {
                let mut request = vec![0; 4096];
                let mut read = 0;
                while !request[..read].ends_with(b"\r\n\r\n{}") {
                    read += theirs.read(&mut request[read..]).await?;
                }
                // The client may have seen enough.
                let _ = theirs.write_all(answer).await;
                drop(theirs);
                Ok::<_, io::Error>(())
            };
            let ask = async {
                let request = Request::post("/v3/kv/range", Some("t.1"), "{}");
                let mut answer = exchange(ours, "pd:2379", &request).await?;
                Ok((answer.status, answer.whole(1000).await?))
            };
            let (answer, served) = tokio::join!(ask, serve);
            served?;
            answer
        })
    }

    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nWiki\r\na;x=y\r\n 0123\r\n567\r\n0\r\n\r\n";

    #[test]
    fn lines_end_where_they_say() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let lines = |body: &[u8], max: usize| {
            let mut lines = Lines::of(HttpAnswer {
                status: 200,
                stream: body,
                unread: Vec::new(),
                body: Body::ToTheEnd,
            });
            let mut found = Vec::new();
            loop {
                match runtime.block_on(lines.next(max)) {
                    Ok(Some(line)) => found.push(String::from_utf8(line).unwrap()),
                    Ok(None) => return Ok(found),
                    Err(error) => return Err(error.to_string()),
                }
            }
        };
        assert_eq!(lines(b"{}\n{1}\n\nrest", 10).unwrap(), ["{}\n", "{1}\n", "\n"]);
        assert_eq!(lines(b"0123456789\n", 100).unwrap(), ["0123456789\n"]);
        assert!(lines(&[b'x'; 101], 100).unwrap_err().contains("too long"));
    }

    #[test]
    fn bodies_end_where_they_say() {
        for (answer, expected) in [
            (CHUNKED, Some(&b"Wiki 0123\r\n567"[..])),
            (
                b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcdef",
                Some(b"abc"),
            ),
            (b"HTTP/1.1 200 OK\r\n\r\nabc", Some(b"abc")),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", None),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc", None),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n", None),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nWikiX",
                None,
            ),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
                None,
            ),
            (b"SSH-2.0-OpenSSH\r\n", None),
            (b"", None),
        ] {
            for piece in [1, 7, 4096] {
                let found = asked(answer, piece).ok();
                let expected = expected.map(|body| (200, body.to_vec()));
                assert_eq!(found, expected, "{}", String::from_utf8_lossy(answer));
            }
        }
    }

    #[test]
    fn a_body_and_a_head_are_bounded() {
        let head = b"HTTP/1.1 200 OK\r\n\r\n";
        assert!(asked(&[&head[..], &[b'x'; 1000]].concat(), 4096).is_ok());
        asked(&[&head[..], &[b'x'; 1001]].concat(), 4096).unwrap_err();
        let header = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(HEAD_MAX + PIECE));
        asked(header.as_bytes(), 4096).unwrap_err();
        let refused = asked(
            b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
            9,
        );
        assert_eq!(refused.unwrap(), (500, Vec::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_says_nothing_leaves_time_for_the_next() {
        let listen = |backlog| {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            socket.listen(backlog).unwrap()
        };
        let (full, other) = (listen(0), listen(8));
        let [silent, answers] = [&full, &other].map(|listener| listener.local_addr().unwrap());
        // Once its queue is full the kernel takes no notice of who wants to connect.
        let mut held = Vec::new();
        let connect = || timeout(Duration::from_millis(100), Stream::connect_tcp(silent, KEEPALIVE));
        while let Ok(connected) = connect().await {
            held.push(connected.unwrap());
        }
        let all = [silent, silent, answers];
        let connected = timeout(Duration::from_secs(3), first_of(&all));
        assert_eq!(connected.await.expect("time is left").unwrap().0, answers);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(mut bytes in prop::collection::vec(any::<u8>(), 0..100), at in 0..CHUNKED.len(), byte: u8, piece in 1..100_usize) {
            let _ = asked(&bytes, piece);
            bytes = CHUNKED.to_vec();
            bytes[at] = byte;
            let _ = asked(&bytes, piece);
        }
    }
}
