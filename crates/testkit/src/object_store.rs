//! An object store that speaks as much of S3 as folders of traffic need, and fails as it is told. Google's
//! speaks alike where nobody signs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, sleep};
use std::time::Duration;

/// The key that it knows; requests that name another one are refused.
pub const ACCESS_KEY: &str = "AKIDEXAMPLE";

const BUCKET: &str = "bucket";
const HEAD_MAX: usize = 16 << 10;
const POLL: Duration = Duration::from_millis(2);

/// How it answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Health {
    /// Every request is answered as S3 answers it.
    #[default]
    Fine,
    /// Writes are answered with `503 SlowDown`.
    Busy,
    /// Connections end within a write, of which nothing is kept.
    Cuts,
    /// Writes are kept, and their connections end before the answer.
    Mute,
    /// Nobody listens.
    Gone,
}

/// It runs as long as the process.
#[derive(Debug)]
pub struct ObjectStore {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    health: Health,
    objects: BTreeMap<String, Vec<u8>>,
    writes: u64,
    is_listening: bool,
}

impl ObjectStore {
    /// Starts one with an empty bucket.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State::default()));
        let served = Arc::clone(&state);
        thread::spawn(move || accept(Some(listener), address, &served));
        let store = Self { address, state };
        store.wait_until(true);
        Ok(store)
    }

    /// `s3://` and its bucket, with a prefix.
    #[must_use]
    pub fn url(&self, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}")
    }

    /// What a program needs in its environment to find it, for S3 and for Google's.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let endpoint = format!("http://{}", self.address);
        // Without a token of Google's, which only Google gives.
        let unsigned = format!(
            r#"{{"client_email":"","private_key":"","private_key_id":"","disable_oauth":true,"gcs_base_url":"{endpoint}"}}"#
        );
        [
            ("AWS_ENDPOINT", endpoint.as_str()),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("GOOGLE_SERVICE_ACCOUNT_KEY", unsigned.as_str()),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    }

    /// From now on it is like this.
    pub fn turn(&self, health: Health) {
        self.lock().health = health;
        self.wait_until(health != Health::Gone);
    }

    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.lock().objects.keys().cloned().collect()
    }

    /// An object, which may be changed.
    pub fn change(&self, name: &str, change: impl FnOnce(&mut Option<Vec<u8>>)) {
        let mut state = self.lock();
        let mut object = state.objects.remove(name);
        change(&mut object);
        state
            .objects
            .extend(object.map(|object| (name.to_owned(), object)));
    }

    /// Writes that were asked for, whatever became of them.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.lock().writes
    }

    fn wait_until(&self, is_listening: bool) {
        while self.lock().is_listening != is_listening {
            sleep(POLL);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(mut listener: Option<TcpListener>, address: SocketAddr, state: &Arc<Mutex<State>>) {
    loop {
        let is_gone = lock(state).health == Health::Gone;
        listener = match listener.take() {
            Some(_) if is_gone => None,
            None if !is_gone => TcpListener::bind(address).ok(),
            unchanged => unchanged,
        };
        lock(state).is_listening = listener.is_some();
        let accepted = listener.as_ref().and_then(|listener| {
            listener.set_nonblocking(true).ok()?;
            listener.accept().ok()
        });
        match accepted {
            Some((stream, _)) => {
                let state = Arc::clone(state);
                thread::spawn(move || {
                    // Whoever has gone hears nothing.
                    let _ = serve(stream, &state);
                });
            }
            None => sleep(POLL),
        }
    }
}

struct Request {
    method: String,
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(its, _)| its == name);
        found.map(|(_, value)| value.as_str())
    }

    fn asked(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(its, _)| its == name);
        found.map(|(_, value)| value.as_str())
    }
}

fn serve(mut stream: TcpStream, state: &Mutex<State>) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let health = lock(state).health;
    let Some(request) = read(&mut stream, health)? else {
        return Ok(());
    };
    let key = request.path.strip_prefix(&format!("/{BUCKET}"));
    let key = key.map(|key| key.trim_start_matches('/').to_owned());
    // Google's have a token, or none.
    let signed = request
        .header("authorization")
        .filter(|signed| !signed.starts_with("Bearer"));
    let is_known = signed.is_none_or(|signed| signed.contains(&format!("Credential={ACCESS_KEY}/")));
    let Some(key) = key.filter(|_| is_known) else {
        let (status, code) = match is_known {
            true => ("404 Not Found", "NoSuchBucket"),
            false => ("403 Forbidden", "InvalidAccessKeyId"),
        };
        return answer(&mut stream, status, "", &error(code));
    };
    match request.method.as_str() {
        "PUT" => put(&mut stream, state, health, &key, request),
        "GET" if key.is_empty() => list(&mut stream, state, &request),
        "GET" => get(&mut stream, state, &key, &request),
        _ => answer(&mut stream, "501 Not Implemented", "", &error("NotImplemented")),
    }
}

fn put(
    stream: &mut TcpStream,
    state: &Mutex<State>,
    health: Health,
    key: &str,
    request: Request,
) -> io::Result<()> {
    let is_new = request.header("if-none-match") == Some("*")
        || request.header("x-goog-if-generation-match").is_some();
    let mut state = lock(state);
    state.writes += 1;
    if health == Health::Busy {
        return answer(stream, "503 Service Unavailable", "", &error("SlowDown"));
    }
    if is_new && state.objects.contains_key(key) {
        return answer(
            stream,
            "412 Precondition Failed",
            "",
            &error("PreconditionFailed"),
        );
    }
    state.objects.insert(key.to_owned(), request.body);
    match health {
        Health::Mute => Ok(()),
        _ => answer(stream, "200 OK", "ETag: \"1\"\r\n", b""),
    }
}

fn get(stream: &mut TcpStream, state: &Mutex<State>, key: &str, request: &Request) -> io::Result<()> {
    const DATED: &str = "ETag: \"1\"\r\nLast-Modified: Sat, 28 Nov 2026 12:00:00 GMT\r\n";
    let Some(object) = lock(state).objects.get(key).cloned() else {
        return answer(stream, "404 Not Found", "", &error("NoSuchKey"));
    };
    let range = request
        .header("range")
        .and_then(|range| range.strip_prefix("bytes="));
    let range = range.and_then(|range| range.split_once('-'));
    let range = range.and_then(|(from, to)| Some((from.parse().ok()?, to.parse::<usize>().ok()?)));
    let Some((from, to)) = range else {
        return answer(stream, "200 OK", DATED, &object);
    };
    let end = object.len().min(to + 1);
    let Some(part) = object.get(from..end) else {
        return answer(stream, "416 Range Not Satisfiable", "", &error("InvalidRange"));
    };
    let head = format!(
        "{DATED}Content-Range: bytes {from}-{}/{}\r\n",
        end.saturating_sub(1),
        object.len()
    );
    answer(stream, "206 Partial Content", &head, part)
}

fn list(stream: &mut TcpStream, state: &Mutex<State>, request: &Request) -> io::Result<()> {
    let prefix = request.asked("prefix").unwrap_or_default();
    let mut text = format!("<ListBucketResult><Name>{BUCKET}</Name><Prefix>{prefix}</Prefix>");
    for (name, object) in &lock(state).objects {
        if name.starts_with(prefix) {
            let _ = write!(
                text,
                "<Contents><Key>{name}</Key><LastModified>2026-11-28T12:00:00.000Z</LastModified><ETag>\"1\"</ETag><Size>{}</Size></Contents>",
                object.len()
            );
        }
    }
    text += "<IsTruncated>false</IsTruncated></ListBucketResult>";
    answer(
        stream,
        "200 OK",
        "Content-Type: application/xml\r\n",
        text.as_bytes(),
    )
}

/// A whole request; `None` where the connection is to end within it.
fn read(stream: &mut TcpStream, health: Health) -> io::Result<Option<Request>> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        let read = stream.read(&mut piece)?;
        if read == 0 || bytes.len() > HEAD_MAX {
            return Ok(None);
        }
        bytes.extend_from_slice(&piece[..read]);
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let headers = lines.filter_map(|line| line.split_once(':'));
    let mut request = Request {
        method: method.to_owned(),
        path: plain(path),
        query: pairs.map(|(name, value)| (plain(name), plain(value))).collect(),
        headers: headers
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect(),
        body: bytes[end + 4..].to_vec(),
    };
    if health == Health::Cuts && request.method == "PUT" {
        return Ok(None);
    }
    let len = request.header("content-length").and_then(|len| len.parse().ok());
    let left = len.unwrap_or(0_u64).saturating_sub(request.body.len() as u64);
    stream.take(left).read_to_end(&mut request.body)?;
    Ok(Some(request))
}

/// Without `%2F` and the like.
fn plain(text: &str) -> String {
    let mut parts = text.split('%');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let byte = part
            .get(..2)
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        plain.push(byte.map_or('%', char::from));
        plain += part.get(2..).unwrap_or_default();
    }
    plain
}

fn error(code: &str) -> Vec<u8> {
    format!("<Error><Code>{code}</Code><Message>as a test wants it</Message></Error>").into_bytes()
}

fn answer(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}
