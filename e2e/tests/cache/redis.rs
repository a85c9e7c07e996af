//! A Redis client of a few lines, which shows replies as they are.

use std::io::{Error, ErrorKind, Result};

use sandbox::{PASSWORD, USER};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// `+OK`
    Line(String),
    /// `-ERR …`
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Reply>),
}

pub(crate) struct Redis(BufStream<TcpStream>);

impl Redis {
    /// Connects and logs in with the account of the sandbox.
    pub(crate) async fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        let mut redis = Self(BufStream::new(stream));
        match redis.ask(&["AUTH", USER, PASSWORD]).await? {
            Reply::Line(_) => Ok(redis),
            other => Err(Error::other(format!("AUTH: {other:?}"))),
        }
    }

    pub(crate) async fn ask(&mut self, words: &[&str]) -> Result<Reply> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.write_all(request.as_bytes()).await?;
        self.0.flush().await?;
        self.reply().await
    }

    async fn reply(&mut self) -> Result<Reply> {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).await?;
        let text = String::from_utf8_lossy(&line);
        let Some(text) = text.strip_suffix("\r\n") else {
            return Err(ErrorKind::UnexpectedEof.into());
        };
        let (kind, rest) = text.split_at(1);
        let number = || rest.parse::<i64>().map_err(Error::other);
        Ok(match kind {
            "+" => Reply::Line(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Integer(number()?),
            "$" => match usize::try_from(number()?) {
                Err(_) => Reply::Nil,
                Ok(len) => {
                    let mut bytes = vec![0; len + 2];
                    self.0.read_exact(&mut bytes).await?;
                    bytes.truncate(len);
                    Reply::Bulk(bytes)
                }
            },
            "*" => {
                let mut items = Vec::new();
                for _ in 0..number()?.max(0) {
                    items.push(Box::pin(self.reply()).await?);
                }
                Reply::Array(items)
            }
            _ => return Err(Error::other(format!("an unknown reply: {text}"))),
        })
    }
}
