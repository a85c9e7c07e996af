//! The API server of a Kubernetes, as far as EndpointSlices are concerned: it lists the slices of one service
//! and lets them be watched, over TLS, for whoever has the token.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::certificates::Certificates;

const HEAD_MAX: usize = 16 << 10;

/// It runs on a thread of its own, as long as the process.
#[derive(Debug)]
pub struct ApiServer {
    address: SocketAddr,
    state: Arc<State>,
    changed: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    path: String,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    token: String,
    /// Names and JSON objects.
    slices: Vec<(String, String)>,
    version: u64,
    /// Lines of a watch, each behind the version that it leads to.
    events: Vec<(u64, String)>,
    /// Watches from before this version are refused by an event.
    forgotten: u64,
    /// Watches on connections from before it was raised end.
    era: u64,
    gone: bool,
    lists: u64,
    watches: u64,
    refused: u64,
}

impl ApiServer {
    /// Starts one for a service, with no slices.
    pub fn start(namespace: &str, service: &str) -> io::Result<(Self, Certificates)> {
        let certificates = Certificates::generate().map_err(io::Error::other)?;
        let tls = TlsAcceptor::from(certificates.server_config().map_err(io::Error::other)?);
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            path: format!(
                "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector=kubernetes.io/service-name%3D{service}"
            ),
            inner: Mutex::new(Inner {
                version: 1,
                ..Inner::default()
            }),
        });
        let (changed, changes) = watch::channel(0);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let served = Arc::clone(&state);
        thread::spawn(move || runtime.block_on(accept(listener, &tls, &served, &changes)));
        let server = Self {
            address,
            state,
            changed,
        };
        Ok((server, certificates))
    }

    /// `localhost` and its port.
    #[must_use]
    pub fn address(&self) -> String {
        format!("localhost:{}", self.address.port())
    }

    /// Writes the files of a service account: `token`, `ca.crt` and `namespace`. From now on only this token
    /// counts, and watches end.
    pub fn write_account(
        &self,
        folder: &Path,
        certificates: &Certificates,
        namespace: &str,
        token: &str,
    ) -> io::Result<()> {
        fs::write(folder.join("ca.crt"), &certificates.ca)?;
        fs::write(folder.join("namespace"), namespace)?;
        fs::write(folder.join("token"), format!("{token}\n"))?;
        self.change(|inner| {
            inner.token = format!("Bearer {token}");
            inner.era += 1;
        });
        Ok(())
    }

    /// Adds a slice or puts another in its place: the rest of a JSON object behind its `metadata`.
    pub fn put(&self, name: &str, rest: &str) {
        self.change(|inner| inner.put(name, rest, true));
    }

    /// The same, which no watch tells: changes are forgotten, so that each watch ends with `410 Gone`.
    pub fn put_and_forget(&self, name: &str, rest: &str) {
        self.change(|inner| {
            inner.put(name, rest, false);
            inner.forgotten = inner.version;
        });
    }

    /// Takes a slice away.
    pub fn delete(&self, name: &str) {
        self.change(|inner| inner.delete(name));
    }

    /// Deletes one slice and puts another one: watches are told of both at once.
    pub fn delete_and_put(&self, gone: &str, name: &str, rest: &str) {
        self.change(|inner| {
            inner.delete(gone);
            inner.put(name, rest, true);
        });
    }

    /// Says to watches how far they are.
    pub fn bookmark(&self) {
        self.change(|inner| {
            inner.version += 1;
            let version = inner.version;
            let object =
                format!("{{\"kind\":\"EndpointSlice\",\"metadata\":{{\"resourceVersion\":\"{version}\"}}}}");
            inner.events.push((version, event("BOOKMARK", &object)));
        });
    }

    /// Ends all connections, and closes new ones until it is back.
    pub fn set_gone(&self, gone: bool) {
        self.change(|inner| {
            inner.gone = gone;
            inner.era += 1;
        });
    }

    /// How often the slices were listed.
    #[must_use]
    pub fn lists(&self) -> u64 {
        self.state.inner().lists
    }

    #[must_use]
    pub fn watches(&self) -> u64 {
        self.state.inner().watches
    }

    /// How often a token was none that counts.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.state.inner().refused
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.state.inner());
        self.changed.send_modify(|number| *number += 1);
    }
}

impl State {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn put(&mut self, name: &str, rest: &str, is_told: bool) {
        self.version += 1;
        let version = self.version;
        let slice =
            format!("{{\"metadata\":{{\"name\":\"{name}\",\"resourceVersion\":\"{version}\"}},{rest}}}");
        let known = self.slices.iter().position(|(known, _)| known == name);
        let kind = match known {
            Some(at) => {
                self.slices[at].1.clone_from(&slice);
                "MODIFIED"
            }
            None => {
                self.slices.push((name.to_owned(), slice.clone()));
                "ADDED"
            }
        };
        if is_told {
            self.events.push((version, event(kind, &slice)));
        }
    }

    fn delete(&mut self, name: &str) {
        self.version += 1;
        if let Some(at) = self.slices.iter().position(|(known, _)| known == name) {
            let (_, slice) = self.slices.remove(at);
            let line = event("DELETED", &slice);
            self.events.push((self.version, line));
        }
    }
}

fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

async fn accept(
    listener: std::net::TcpListener,
    tls: &TlsAcceptor,
    state: &Arc<State>,
    changes: &watch::Receiver<u64>,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let (tls, state, changes) = (tls.clone(), Arc::clone(state), changes.clone());
        tokio::spawn(async move { serve(&tls, stream, &state, changes).await });
    }
}

async fn serve(
    tls: &TlsAcceptor,
    stream: TcpStream,
    state: &State,
    changes: watch::Receiver<u64>,
) -> io::Result<()> {
    let era = {
        let inner = state.inner();
        if inner.gone {
            return Ok(());
        }
        inner.era
    };
    let mut stream = tls.accept(stream).await?;
    let head = read_head(&mut stream).await?;
    let token = head.lines().find_map(|line| line.strip_prefix("Authorization: "));
    let path = head.split_whitespace().nth(1).unwrap_or_default();
    let is_let_in = {
        let mut inner = state.inner();
        let is_let_in = token == Some(inner.token.as_str());
        inner.refused += u64::from(!is_let_in);
        is_let_in
    };
    let rest = path.strip_prefix(&state.path);
    match rest {
        _ if !is_let_in => answer(&mut stream, "401 Unauthorized", "{}").await,
        Some("") => {
            let list = {
                let mut inner = state.inner();
                inner.lists += 1;
                let slices: Vec<&str> = inner.slices.iter().map(|(_, slice)| slice.as_str()).collect();
                let (version, slices) = (inner.version, slices.join(","));
                format!("{{\"metadata\":{{\"resourceVersion\":\"{version}\"}},\"items\":[{slices}]}}")
            };
            answer(&mut stream, "200 OK", &list).await
        }
        Some(query) if query.contains("&watch=true") && query.contains("&allowWatchBookmarks=true") => {
            let version = query
                .split('&')
                .find_map(|part| part.strip_prefix("resourceVersion="));
            let version = version.and_then(|version| version.parse().ok()).unwrap_or(0);
            follow(&mut stream, state, changes, era, version).await
        }
        _ => answer(&mut stream, "404 Not Found", "{}").await,
    }
}

async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > HEAD_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.push(stream.read_u8().await?);
    }
    String::from_utf8(head).map_err(io::Error::other)
}

async fn answer(stream: &mut (impl AsyncWrite + Unpin), status: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// Tells what has changed since `version`, and what changes from now on.
async fn follow(
    stream: &mut (impl AsyncWrite + Unpin),
    state: &State,
    mut changes: watch::Receiver<u64>,
    era: u64,
    mut version: u64,
) -> io::Result<()> {
    state.inner().watches += 1;
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await?;
    stream.flush().await?;
    loop {
        changes.mark_unchanged();
        let (lines, ends) = {
            let inner = state.inner();
            let is_over = inner.era != era;
            let ends = is_over || version < inner.forgotten;
            let status = "{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\"}";
            let lines = match version < inner.forgotten {
                _ if is_over => String::new(),
                true => event("ERROR", status),
                false => {
                    let new = inner.events.iter().filter(|(number, _)| *number > version);
                    new.map(|(_, line)| line.as_str()).collect()
                }
            };
            version = inner.version;
            (lines, ends)
        };
        // Each line comes in two chunks. All behind the first chunk is written at once: what has changed at
        // the same time is told together, however busy the machine is.
        let mut chunks = Vec::new();
        for line in lines.split_inclusive('\n') {
            let (first, second) = line.split_at(line.len() / 2);
            let chunk = |part: &str| format!("{:x}\r\n{part}\r\n", part.len());
            chunks.extend([first, second].map(chunk));
        }
        let (first, rest) = chunks.split_at(chunks.len().min(1));
        for chunks in [first, rest] {
            stream.write_all(chunks.concat().as_bytes()).await?;
            stream.flush().await?;
        }
        if ends {
            stream.write_all(b"0\r\n\r\n").await?;
            return stream.shutdown().await;
        }
        if changes.changed().await.is_err() {
            return Ok(());
        }
    }
}
