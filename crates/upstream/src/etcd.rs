//! A client of etcd, as far as the gateway needs one: ranges of keys and what changes there, changes that
//! count only where something holds, and leases.
//!
//! It speaks JSON over HTTP/1.1 to the gateway that etcd (3.4 and later) and PD have on their ports for
//! clients: docs/design/2026-11-26-tidb.md says why not gRPC. Members are asked one after the other, the one
//! that answered last first.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use config::Secret;
use net::{Stream, TlsConnector};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::http::{Host, HttpAnswer, Lines, Request};

/// Time for a member to answer, the body of the answer included where it has an end.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// Longest answer, and longest line of a stream, in bytes.
const ANSWER_MAX: usize = 8 << 20;

/// Keys of a range.
pub(crate) const KEYS_MAX: usize = 4096;

/// Longest text of an error that is passed on.
const REASON_MAX: usize = 200;

/// What etcd says to a token that it does not know, or knows no longer.
const NO_TOKEN: [&str; 3] = [
    "invalid auth token",
    "user name is empty",
    "auth: revision in header is old",
];

/// What etcd says where the account may not write: it has looked at that first, and has changed nothing.
const NO_RIGHT: &str = "permission denied";

/// What etcd says where it is full. The change that fills it is made all the same, and answered with this.
const NO_SPACE: &str = "database space exceeded";

/// What etcd says of a lease that is over.
const NO_LEASE: &str = "requested lease not found";

/// The members of one etcd.
pub struct Etcd {
    members: Vec<Host>,
    tls: Option<Arc<TlsConnector>>,
    login: Option<Login>,
    /// Place of the one that answered last.
    first: usize,
}

/// An account, and what it has been given for its password.
struct Login {
    user: String,
    password: Secret,
    token: Option<String>,
}

/// A key as it is at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    pub value: Vec<u8>,
    /// The lease that it ends with; 0 is none.
    pub lease: i64,
    /// When it came to be: etcd counts its changes.
    pub created: i64,
    /// When it got this value.
    pub modified: i64,
    /// How many values it has had since it came to be.
    pub version: i64,
}

/// The keys of a range at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The moment: etcd counts its changes.
    pub revision: i64,
    /// The keys, in their order.
    pub entries: Vec<Entry>,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has another value.
    Put(Entry),
    Deleted {
        key: String,
        modified: i64,
    },
}

/// Keys from the first (with it) to the last (without).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub from: Vec<u8>,
    /// The first that is none of them.
    pub to: Vec<u8>,
}

/// What must hold for a change to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// A key has had so many values; 0: there is none.
    Version(String, i64),
    /// A key has its value since then.
    Modified(String, i64),
    /// A key has this lease.
    Lease(String, i64),
    /// No key of the range has come to be behind that moment.
    NoneCreatedAfter(Range, i64),
}

/// One thing to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A key gets a value, and a lease where it is not 0.
    Put(String, Vec<u8>, i64),
    /// A key goes, if it is there.
    Delete(String),
}

/// Changes that are all made where all guards hold, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// What must hold.
    pub guards: Vec<Guard>,
    /// What is changed then.
    pub ops: Vec<Op>,
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was made, at that moment.
    Made(i64),
    /// It was not, and will not be.
    NotMade,
    /// Nor was it, since the store takes no changes; with why.
    Refused(String),
    /// Nobody knows: it may be made, now or later. With what went wrong; [`takes_no_changes`] knows whether
    /// more changes are of use.
    Unknown(String),
}

impl Range {
    /// All keys with this prefix.
    #[must_use]
    pub fn below(prefix: &str) -> Self {
        Self {
            from: prefix.as_bytes().to_vec(),
            to: end_of(prefix),
        }
    }

    #[must_use]
    pub fn of(key: &str) -> Self {
        Self {
            from: key.as_bytes().to_vec(),
            to: [key.as_bytes(), b"\0"].concat(),
        }
    }

    /// Whether the key is one of them.
    #[must_use]
    pub fn holds(&self, key: &str) -> bool {
        self.from.as_slice() <= key.as_bytes() && key.as_bytes() < self.to.as_slice()
    }
}

impl Etcd {
    /// `members`: hosts and ports. `login`: an account and its password.
    pub fn new<'a>(
        members: impl IntoIterator<Item = (&'a str, u16)>,
        tls: Option<Arc<TlsConnector>>,
        login: Option<(String, Secret)>,
    ) -> Self {
        let login = login.map(|(user, password)| Login {
            user,
            password,
            token: None,
        });
        Self {
            members: members
                .into_iter()
                .map(|(host, port)| Host::new(host, port))
                .collect(),
            tls,
            login,
            first: 0,
        }
    }

    /// All keys of this range.
    ///
    /// # Errors
    /// No member answers, or there are more than can be meant. Says which and why.
    pub async fn read(&mut self, range: &Range) -> io::Result<Snapshot> {
        let body = json!({
            "key": encoded(&range.from),
            "range_end": encoded(&range.to),
            "limit": KEYS_MAX.to_string(),
        });
        let answer = self.ask("/v3/kv/range", &body).await?;
        if answer["more"] == true {
            return Err(io::Error::other(format!(
                "there are more than {KEYS_MAX} keys behind {}",
                String::from_utf8_lossy(&range.from)
            )));
        }
        let entries = answer["kvs"].as_array().map_or(&[][..], Vec::as_slice);
        let entries = entries.iter().map(entry).collect::<io::Result<Vec<_>>>()?;
        Ok(Snapshot {
            revision: number(&answer["header"]["revision"])?,
            entries: entries.into_iter().flatten().collect(),
        })
    }

    /// The changes of this range behind a moment.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub async fn watch(&mut self, range: &Range, behind: i64) -> io::Result<Watch> {
        let body = json!({ "create_request": {
            "key": encoded(&range.from),
            "range_end": encoded(&range.to),
            "start_revision": behind.saturating_add(1).to_string(),
        }});
        let (stream, _) = self.each("/v3/watch", &body, Until::Head).await?;
        Ok(Watch {
            lines: Lines::of(stream),
        })
    }

    /// Makes changes where all guards hold. One member is asked, and not another where it does not answer:
    /// that one would find the guards broken by what the first has done.
    pub async fn change(&mut self, transaction: &Transaction) -> Outcome {
        let body = json!({
            "compare": transaction.guards.iter().map(guard).collect::<Vec<_>>(),
            "success": transaction.ops.iter().map(op).collect::<Vec<_>>(),
        });
        let answer = match self.once("/v3/kv/txn", &body).await {
            Ok(answer) => answer,
            // It was refused as a whole.
            Err(error) if error.to_string().contains(NO_LEASE) => return Outcome::NotMade,
            Err(error) if error.to_string().contains(NO_RIGHT) => return Outcome::Refused(error.to_string()),
            Err(error) => return Outcome::Unknown(error.to_string()),
        };
        match (answer["succeeded"] == true, number(&answer["header"]["revision"])) {
            (true, Ok(revision)) => Outcome::Made(revision),
            (false, Ok(_)) => Outcome::NotMade,
            (_, Err(error)) => Outcome::Unknown(error.to_string()),
        }
    }

    /// A new lease, which ends after this time unless it is renewed.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub async fn grant(&mut self, time: Duration) -> io::Result<i64> {
        let body = json!({ "TTL": time.as_secs().max(1).to_string() });
        let answer = self.ask("/v3/lease/grant", &body).await?;
        number(&answer["ID"])
    }

    /// Has a lease last as long again. False where it is over.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub async fn renew(&mut self, lease: i64) -> io::Result<bool> {
        let body = json!({ "ID": lease.to_string() });
        let answer = self.ask("/v3/lease/keepalive", &body).await?;
        // Numbers that are 0 are left out.
        Ok(number(&answer["result"]["TTL"]).is_ok_and(|left| left > 0))
    }

    /// Ends a lease, and the keys that it holds.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub async fn revoke(&mut self, lease: i64) -> io::Result<()> {
        let body = json!({ "ID": lease.to_string() });
        self.ask("/v3/lease/revoke", &body).await.map(drop)
    }

    async fn ask(&mut self, path: &str, body: &Value) -> io::Result<Value> {
        let (_, whole) = self.each(path, body, Until::End).await?;
        Ok(serde_json::from_slice(&whole)?)
    }

    /// Asks one member after the other until one answers; once more with a new token where the old one has
    /// come to its end.
    async fn each(
        &mut self,
        path: &str,
        body: &Value,
        until: Until,
    ) -> io::Result<(HttpAnswer<Stream>, Vec<u8>)> {
        self.log_in().await?;
        match self.each_as(path, body, until).await {
            Err(error) if self.was_token_refused(&error) => {
                self.log_in().await?;
                self.each_as(path, body, until).await
            }
            result => result,
        }
    }

    async fn each_as(
        &mut self,
        path: &str,
        body: &Value,
        until: Until,
    ) -> io::Result<(HttpAnswer<Stream>, Vec<u8>)> {
        let body = body.to_string();
        let token = self.token();
        let request = Request::post(path, token.as_deref(), &body);
        let mut reasons = Vec::new();
        for place in self.places() {
            let host = &self.members[place];
            match timeout(ANSWER_LIMIT, post(host, self.tls.as_deref(), &request, until)).await {
                Ok(Ok(answer)) => {
                    self.first = place;
                    return Ok(answer);
                }
                Ok(Err(error)) => reasons.push(format!("{}: {error}", host.authority())),
                Err(_) => reasons.push(format!("{}: no answer in time", host.authority())),
            }
        }
        Err(io::Error::other(reasons.join("; ")))
    }

    /// Asks the first member that takes a connection, and no other then.
    async fn once(&mut self, path: &str, body: &Value) -> io::Result<Value> {
        self.log_in().await?;
        match self.once_as(path, body).await {
            // It was not looked at.
            Err(error) if self.was_token_refused(&error) => {
                self.log_in().await?;
                self.once_as(path, body).await
            }
            result => result,
        }
    }

    async fn once_as(&mut self, path: &str, body: &Value) -> io::Result<Value> {
        let body = body.to_string();
        let token = self.token();
        let request = Request::post(path, token.as_deref(), &body);
        let mut reasons = Vec::new();
        for place in self.places() {
            let host = &self.members[place];
            let stream = match timeout(ANSWER_LIMIT, host.connect(self.tls.as_deref())).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    reasons.push(format!("{}: {error}", host.authority()));
                    continue;
                }
                Err(_) => {
                    reasons.push(format!("{}: no connection in time", host.authority()));
                    continue;
                }
            };
            let answer = async {
                let mut answer = accepted(host.ask_on(stream, &request).await?).await?;
                answer.whole(ANSWER_MAX).await
            };
            let said = match timeout(ANSWER_LIMIT, answer).await {
                Ok(Ok(whole)) => {
                    self.first = place;
                    return Ok(serde_json::from_slice(&whole)?);
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
            let said = format!("{}: {said}", host.authority());
            self.first = place;
            self.doubt();
            return Err(io::Error::other(said));
        }
        Err(io::Error::other(reasons.join("; ")))
    }

    /// All members, the one that answered last first.
    fn places(&self) -> Vec<usize> {
        let count = self.members.len();
        (self.first..count).chain(0..self.first.min(count)).collect()
    }

    fn token(&self) -> Option<String> {
        self.login.as_ref().and_then(|login| login.token.clone())
    }

    /// Gets a token where one is needed and there is none.
    async fn log_in(&mut self) -> io::Result<()> {
        let Some(login) = self.login.as_ref().filter(|login| login.token.is_none()) else {
            return Ok(());
        };
        let body = json!({ "name": login.user, "password": login.password.reveal() });
        let (_, whole) = self.each_as("/v3/auth/authenticate", &body, Until::End).await?;
        let answer: Value = serde_json::from_slice(&whole)?;
        let token = answer["token"].as_str();
        let is_plain = |token: &&str| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        let token = token
            .filter(is_plain)
            .ok_or_else(|| invalid("a login without a token"))?;
        if let Some(login) = &mut self.login {
            login.token = Some(token.to_owned());
        }
        Ok(())
    }

    /// Whether that is so; the token is forgotten then.
    fn was_token_refused(&mut self, error: &io::Error) -> bool {
        let said = error.to_string();
        let refused = NO_TOKEN.iter().any(|words| said.contains(words));
        match &mut self.login {
            Some(login) if refused => login.token.take().is_some(),
            _ => false,
        }
    }

    /// The member that answered last is asked last from here on.
    pub fn doubt(&mut self) {
        self.first = (self.first + 1) % self.members.len().max(1);
    }
}

/// Whether what went wrong is the word of an etcd that takes no changes now.
#[must_use]
pub fn takes_no_changes(why: &str) -> bool {
    [NO_RIGHT, NO_SPACE].iter().any(|words| why.contains(words))
}

fn guard(guard: &Guard) -> Value {
    match guard {
        Guard::Version(key, version) => json!({
            "key": encoded(key.as_bytes()), "target": "VERSION", "result": "EQUAL", "version": version.to_string(),
        }),
        Guard::Modified(key, modified) => json!({
            "key": encoded(key.as_bytes()), "target": "MOD", "result": "EQUAL", "mod_revision": modified.to_string(),
        }),
        Guard::Lease(key, lease) => json!({
            "key": encoded(key.as_bytes()), "target": "LEASE", "result": "EQUAL", "lease": lease.to_string(),
        }),
        Guard::NoneCreatedAfter(range, moment) => json!({
            "key": encoded(&range.from), "range_end": encoded(&range.to), "target": "CREATE", "result": "LESS",
            "create_revision": moment.saturating_add(1).to_string(),
        }),
    }
}

fn op(op: &Op) -> Value {
    match op {
        Op::Put(key, value, lease) => json!({ "request_put": {
            "key": encoded(key.as_bytes()), "value": encoded(value), "lease": lease.to_string(),
        }}),
        Op::Delete(key) => json!({ "request_delete_range": { "key": encoded(key.as_bytes()) } }),
    }
}

/// The first key behind all with this prefix.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // No byte of a text is 0xff.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// How much of an answer has to come in time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// What follows is a stream.
    Head,
    End,
}

async fn post(
    host: &Host,
    tls: Option<&TlsConnector>,
    request: &Request<'_>,
    until: Until,
) -> io::Result<(HttpAnswer<Stream>, Vec<u8>)> {
    let mut answer = accepted(host.ask(tls, request).await?).await?;
    let whole = match until {
        Until::Head => Vec::new(),
        Until::End => answer.whole(ANSWER_MAX).await?,
    };
    Ok((answer, whole))
}

/// An answer that is no refusal.
async fn accepted(mut answer: HttpAnswer<Stream>) -> io::Result<HttpAnswer<Stream>> {
    if answer.status == 200 {
        return Ok(answer);
    }
    let body = answer.whole(ANSWER_MAX).await?;
    let reason = match serde_json::from_slice::<Value>(&body) {
        Ok(said) if said["error"].is_string() => said["error"].as_str().unwrap_or_default().to_owned(),
        _ => String::from_utf8_lossy(&body).trim().to_owned(),
    };
    let reason: String = reason.chars().take(REASON_MAX).collect();
    Err(io::Error::other(format!("status {}: {reason}", answer.status)))
}

/// The changes of a range, as they happen.
pub struct Watch {
    lines: Lines<Stream>,
}

impl Watch {
    /// The next changes; none where the member has only said that it is there. May be given up and begun
    /// again.
    ///
    /// # Errors
    /// The connection has ended, or the member watches no longer: everything is to be read again.
    pub async fn next(&mut self) -> io::Result<Vec<Change>> {
        match self.lines.next(ANSWER_MAX).await? {
            Some(line) => changes(&serde_json::from_slice(&line)?),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn changes(line: &Value) -> io::Result<Vec<Change>> {
    let result = &line["result"];
    if !result.is_object() {
        let said = line["error"].to_string();
        return Err(io::Error::other(
            said.chars().take(REASON_MAX).collect::<String>(),
        ));
    }
    if result["canceled"] == true {
        let revision = result["compact_revision"].as_str().unwrap_or("none");
        return Err(io::Error::other(format!(
            "the watch was cancelled (compacted: {revision})"
        )));
    }
    let events = result["events"].as_array().map_or(&[][..], Vec::as_slice);
    let change = |event: &Value| match event["type"].as_str() {
        Some("DELETE") => Ok(entry(&event["kv"])?.map(|entry| Change::Deleted {
            key: entry.key,
            modified: entry.modified,
        })),
        // The default, which is left out.
        Some("PUT") | None => Ok(entry(&event["kv"])?.map(Change::Put)),
        Some(_) => Err(invalid("a change of an unknown kind")),
    };
    let changes = events.iter().map(change).collect::<io::Result<Vec<_>>>()?;
    Ok(changes.into_iter().flatten().collect())
}

/// `None` where the key is no text: it is somebody else's. Values that are empty, or 0, are left out.
fn entry(kv: &Value) -> io::Result<Option<Entry>> {
    let decoded = |name: &str| {
        let text = kv[name].as_str().unwrap_or_default();
        BASE64_STANDARD.decode(text).map_err(invalid)
    };
    let count = |name: &str| match &kv[name] {
        Value::Null => Ok(0),
        value => number(value),
    };
    let Ok(key) = String::from_utf8(decoded("key")?) else {
        return Ok(None);
    };
    Ok(Some(Entry {
        key,
        value: decoded("value")?,
        lease: count("lease")?,
        created: count("create_revision")?,
        modified: count("mod_revision")?,
        version: count("version")?,
    }))
}

/// Numbers of 64 bits are texts in JSON.
fn number(value: &Value) -> io::Result<i64> {
    let text = value
        .as_str()
        .ok_or_else(|| invalid("an answer without a number"))?;
    text.parse().map_err(invalid)
}

fn encoded(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn invalid(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn heard(line: &str) -> io::Result<Vec<Change>> {
        changes(&serde_json::from_str(line).unwrap())
    }

    #[test]
    fn a_line_of_a_watch_is_changes_or_its_end() {
        let put = r#"{"result":{"header":{"revision":"2"},"events":[{"kv":{"key":"YQ==","mod_revision":"2","value":"Yg=="}},
            {"type":"DELETE","kv":{"key":"YQ==","mod_revision":"3"}}]}}"#;
        let expected = [
            Change::Put(Entry {
                key: "a".to_owned(),
                value: b"b".to_vec(),
                lease: 0,
                created: 0,
                modified: 2,
                version: 0,
            }),
            Change::Deleted {
                key: "a".to_owned(),
                modified: 3,
            },
        ];
        assert_eq!(heard(put).unwrap(), expected);
        let created = r#"{"result":{"header":{"revision":"2"},"created":true}}"#;
        assert_eq!(heard(created).unwrap(), []);
        for end in [
            r#"{"result":{"canceled":true,"compact_revision":"3"}}"#,
            r#"{"error":{"grpc_code":14,"message":"etcdserver: no leader"}}"#,
            r#"{"result":{"events":[{"kv":{"key":"no base64"}}]}}"#,
            r#"{"result":{"events":[{"type":"MOVE","kv":{}}]}}"#,
            "[]",
        ] {
            heard(end).unwrap_err();
        }
    }

    /// A member that has yet to answer.
    async fn member() -> (TcpListener, Etcd) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, Etcd::new([("127.0.0.1", port)], None, None))
    }

    /// Answers one question.
    async fn answer(listener: &TcpListener, status: &str, body: &Value) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        // A body of JSON ends with its brace.
        while !request.ends_with(b"}") {
            assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
        }
        let body = body.to_string();
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        let answer = format!("{head}{body}");
        stream.write_all(answer.as_bytes()).await.unwrap();
    }

    #[tokio::test]
    async fn more_keys_than_are_read_are_an_error_that_names_them() {
        let (listener, mut etcd) = member().await;
        let said = json!({ "header": { "revision": "7" }, "more": true });
        let range = Range::below("/topology/tidb/");
        let (read, ()) = tokio::join!(etcd.read(&range), answer(&listener, "200 OK", &said));
        let words = "there are more than 4096 keys behind /topology/tidb/";
        assert_eq!(read.unwrap_err().to_string(), words);
    }

    #[tokio::test]
    async fn a_change_that_fills_etcd_may_have_been_made_and_one_without_the_right_was_not() {
        let (listener, mut etcd) = member().await;
        let mut answered = async |words: &str| {
            let (change, said) = (Transaction::default(), json!({ "error": words }));
            tokio::join!(etcd.change(&change), answer(&listener, "429 No", &said)).0
        };
        let full = answered("etcdserver: mvcc: database space exceeded").await;
        assert!(
            matches!(&full, Outcome::Unknown(why) if takes_no_changes(why)),
            "{full:?}"
        );
        let refused = answered("etcdserver: permission denied").await;
        assert!(
            matches!(&refused, Outcome::Refused(why) if takes_no_changes(why)),
            "{refused:?}"
        );
        let over = answered("etcdserver: requested lease not found").await;
        assert_eq!(over, Outcome::NotMade);
        let late = answered("etcdserver: request timed out").await;
        assert!(
            matches!(&late, Outcome::Unknown(why) if !takes_no_changes(why)),
            "{late:?}"
        );
    }

    #[test]
    fn a_prefix_ends_before_the_next() {
        assert_eq!(end_of("/topology/tidb/"), b"/topology/tidb0");
    }
}
