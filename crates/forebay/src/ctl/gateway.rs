//! The running gateway, by its socket or by the address of its admin server.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use config::Secret;

/// As long as the admin server gives a request.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of an answer. At the address may be somebody else.
const ANSWER_MAX: u64 = 64 << 20;

/// How it is reached.
pub(crate) enum Gateway {
    Socket(PathBuf),
    /// Without a token it answers questions only.
    Address(String, Option<Secret>),
}

impl Gateway {
    pub(crate) fn get(&self, path: &str) -> Result<String> {
        self.ask("GET", path, "")
    }

    pub(crate) fn put(&self, path: &str) -> Result<String> {
        self.ask("PUT", path, "")
    }

    pub(super) fn put_with(&self, path: &str, body: &str) -> Result<String> {
        self.ask("PUT", path, body)
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Result<String> {
        let answer = self.answer(method, path, body).with_context(|| match self {
            Self::Socket(socket) => format!(
                "the gateway was not reached on {}: it runs with this `socket` in [admin]? and you are root, or its system user?",
                socket.display()
            ),
            Self::Address(address, _) => {
                format!("the gateway was not reached on {address}: it runs with this `bind` in [admin]?")
            }
        })?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        match head.split(' ').nth(1) {
            Some("200") => Ok(body.to_owned()),
            Some(_) if body.trim().is_empty() => {
                bail!(
                    "refused without a word why: {}",
                    head.lines().next().unwrap_or_default()
                )
            }
            Some(_) => bail!("{}", body.trim_end()),
            None => bail!("the gateway closed the connection without an answer: its log says why"),
        }
    }

    /// The admin server answers one request a connection, and closes it. It wants no `Host` of who is no
    /// browser.
    fn answer(&self, method: &str, path: &str, body: &str) -> std::io::Result<String> {
        let mut request = format!("{method} {path} HTTP/1.0\r\n");
        if !body.is_empty() {
            request.push_str(&format!(
                "Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n",
                body.len()
            ));
        }
        match self {
            Self::Socket(socket) => {
                let stream = UnixStream::connect(socket)?;
                stream.set_read_timeout(Some(ANSWER_LIMIT))?;
                stream.set_write_timeout(Some(ANSWER_LIMIT))?;
                exchange(stream, &format!("{request}\r\n{body}"))
            }
            Self::Address(address, token) => {
                let stream = connect(address)?;
                stream.set_read_timeout(Some(ANSWER_LIMIT))?;
                stream.set_write_timeout(Some(ANSWER_LIMIT))?;
                let token = token.as_ref().map(|token| {
                    let token = token.reveal();
                    format!("Authorization: Bearer {token}\r\n")
                });
                exchange(
                    stream,
                    &format!("{request}{}\r\n{body}", token.unwrap_or_default()),
                )
            }
        }
    }
}

fn exchange(mut stream: impl Read + Write, request: &str) -> std::io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX + 1).read_to_end(&mut answer)?;
    if answer.len() as u64 > ANSWER_MAX {
        return Err(Error::other(format!(
            "its answer has more than {ANSWER_MAX} bytes"
        )));
    }
    String::from_utf8(answer).map_err(|error| Error::new(ErrorKind::InvalidData, error))
}

/// A name may have several addresses.
fn connect(address: &str) -> std::io::Result<TcpStream> {
    let mut last = Error::other("the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, ANSWER_LIMIT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn an_answer_without_a_word_is_told_by_its_status() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let answering = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
            let answer = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(answer).unwrap();
        });
        let error = Gateway::Address(address, None).get("/status").unwrap_err();
        assert!(error.to_string().contains("431 Request Header"), "{error}");
        answering.join().unwrap();
    }

    #[test]
    fn an_answer_without_end_is_not_read_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let endless = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let block = [b'x'; 1 << 16];
            while stream.write_all(&block).is_ok() {}
        });
        let error = Gateway::Address(address, None).get("/status").unwrap_err();
        assert!(format!("{error:#}").contains("more than"), "{error:#}");
        endless.join().unwrap();
    }
}
