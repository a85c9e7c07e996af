//! The server's side of a login: the gateway checks the client's password itself, in mode `split`.
//!
//! The answer that came with the login is taken if it is made with the nonce of our greeting, for a plugin
//! that can be checked. Otherwise the client is asked once more, by an auth switch. Only one answer is ever
//! judged. The caller sends the final OK, once a server has accepted the account, too.
//!
//! | plugin of the client | what happens |
//! |---|---|
//! | `mysql_native_password` | judged at once |
//! | `caching_sha2_password` | judged at once by the fast answer where the password is known; or by the password itself, where the client sends that (TLS, Unix socket, our RSA key), which it is asked for where all that is known is a hash; asked for `mysql_native_password` where only a hash of that is known |
//! | `client_ed25519` | asked again, for its nonce is longer than the greeting's |
//! | any other, or none | asked for the plugin of our greeting |
//!
//! An account that does not exist goes the same way with the same packets, and fails at its end: see `users`.
//! If the servers decide on accounts that nobody has listed (`pass-through`), clients of such accounts send
//! the password itself as well.

use std::time::Duration;

use config::Secret;
use mysql_wire::{AuthMoreData, AuthSwitch, ChangeUser, Greeting, Login};
use net::Peer;
use tokio::time::timeout;
use upstream::Credential;

use crate::error::SessionError;
use crate::frontend::accounts::{Accounts, Proof};
use crate::frontend::auth_relay::Link;
use crate::frontend::guesses::Asking;
use crate::frontend::handshake::{Client, client_read, nonce};
use crate::frontend::listener_state::ListenerState;
use crate::frontend::packet_io::LoginPeer;
use crate::frontend::rsa_key::PrivateKey;
use crate::frontend::user_name::shown_user;
use crate::frontend::users::{Applicant, Plugin, UserSession};

/// A client that has proved who it is.
#[derive(Debug)]
pub(crate) struct Authenticated {
    /// The account, with this session counted.
    pub(crate) user: UserSession,
    /// The credential that the client has proved: good for logins on servers.
    pub(crate) credential: Credential,
    /// The other credential, which servers may have while the password is being changed.
    pub(crate) other_credential: Option<Box<Credential>>,
}

/// The identity that a client claims, and its answer so far.
struct Claim<'c> {
    user: &'c [u8],
    /// The client's plugin; empty where the client has named none.
    plugin: &'c [u8],
    /// The answer, and the nonce it was made with; `None` where that nonce is not known.
    answer: Option<(&'c [u8], &'c [u8; 20])>,
    /// The plugin that servers would ask for by themselves.
    default_plugin: &'c [u8],
    host: &'c Peer,
    asking: Asking<'c>,
}

/// A question to the client, and the client's answer.
struct LoginAnswer {
    plugin: Plugin,
    nonce: Vec<u8>,
    bytes: Vec<u8>,
}

impl LoginAnswer {
    fn into_proof(self) -> Proof {
        let Self { plugin, nonce, bytes } = self;
        Proof::Answer { plugin, nonce, bytes }
    }
}

/// Checks the login of a client that has answered `greeting`. `host` is the client as accounts and messages
/// name it.
///
/// # Errors
/// The error is what the client is to be told, or that the client is gone.
pub(crate) async fn authenticate(
    client: &mut Client,
    login: &Login,
    greeting: &Greeting,
    host: &Peer,
    accounts: &Accounts,
    listener: &ListenerState,
) -> Result<Authenticated, SessionError> {
    let claim = Claim {
        user: &login.user,
        plugin: login.auth_plugin.as_deref().unwrap_or_default(),
        answer: Some((&login.auth_response, &greeting.nonce)),
        default_plugin: &greeting.auth_plugin,
        host,
        asking: Asking::new(host, &login.user, &listener.config),
    };
    let unread = std::mem::take(&mut client.unread);
    let mut side = LoginPeer::new(&mut client.stream, &mut client.sequence, unread);
    let result = judge_in_time(&mut side, &claim, None, accounts, listener).await;
    client.unread = side.into_unread();
    result
}

/// Checks the login within a session (COM_CHANGE_USER). The client is always asked anew, since the gateway
/// cannot know which nonce its answer was made with. `host` is the client as accounts and messages name it.
/// `present` is the session's account so far, if it has one: a session that stays with its account does not
/// count twice against the account's limit (as on MariaDB; MySQL counts both).
pub(crate) async fn reauthenticate(
    side: &mut LoginPeer<'_>,
    request: &ChangeUser,
    (host, present): (&Peer, Option<&UserSession>),
    accounts: &Accounts,
    listener: &ListenerState,
) -> Result<Authenticated, SessionError> {
    let profile = listener.cluster.profile();
    let claim = Claim {
        user: &request.user,
        plugin: request.auth_plugin.as_deref().unwrap_or_default(),
        answer: None,
        default_plugin: profile.as_deref().map_or(&[], |profile| &profile.auth_plugin),
        host,
        asking: Asking::new(host, &request.user, &listener.config),
    };
    judge_in_time(side, &claim, present, accounts, listener).await
}

async fn judge_in_time(
    side: &mut LoginPeer<'_>,
    claim: &Claim<'_>,
    present: Option<&UserSession>,
    accounts: &Accounts,
    listener: &ListenerState,
) -> Result<Authenticated, SessionError> {
    let limit = listener.config.login_timeout;
    let judged = timeout(limit, judge(side, claim, accounts, listener)).await;
    let (applicant, credential) = judged.unwrap_or(Err(SessionError::LoginTimeout(limit)))?;
    let other_credential = applicant.other_than(&credential).map(Box::new);
    let counted = present.and_then(|present| present.counts_for(&applicant.user));
    let user = match counted {
        Some(user) => user,
        None => (applicant.user.begin_session()).map_err(|limit| SessionError::TooManyUserSessions {
            user: String::from_utf8_lossy(claim.user).into_owned(),
            limit,
        })?,
    };
    Ok(Authenticated {
        user,
        credential,
        other_credential,
    })
}

/// Gets the answer that counts, and judges it when its turn has come
/// ([`Guesses`](crate::frontend::guesses::Guesses)). If the servers are asked for their accounts, a wrong
/// answer is judged once more by the accounts as they are then, since the account may have been made or
/// changed just now. Every failure waits for that second look, so that such an account cannot be told from
/// others.
async fn judge(
    side: &mut LoginPeer<'_>,
    claim: &Claim<'_>,
    accounts: &Accounts,
    listener: &ListenerState,
) -> Result<(Applicant, Credential), SessionError> {
    let cluster = &listener.cluster;
    let of_servers = cluster.accounts().is_some();
    if of_servers && !cluster.has_read_accounts() {
        cluster.renew_accounts().await;
    }
    let applicant = accounts.applicant(claim.user, cluster);
    let answer = match early_answer(claim, &applicant) {
        Some(answer) => answer,
        None => ask(side, plugin_to_ask_for(claim, &applicant)).await?,
    };
    let with_password = !says_no_password(&answer);
    let mut attempt = accounts.guesses.begin(claim.asking).await?;
    let proof = match answer.plugin {
        Plugin::CachingSha2 => {
            let in_full = accounts.want_passwords(cluster);
            match fast_answer(side, answer, &applicant, in_full).await? {
                Fast::Proof(proof) => proof,
                Fast::InFull { nonce, is_wrong } => {
                    // The question tells the client that its answer is wrong.
                    let mut waited = Duration::ZERO;
                    if is_wrong {
                        waited = attempt.failed();
                        tokio::time::sleep(waited).await;
                    } else {
                        drop(attempt);
                    }
                    more(side, AuthMoreData::FULL_AUTH).await?;
                    let proof = password_itself(side, &nonce, None, &listener.rsa_key).await?;
                    attempt = accounts.guesses.begin(claim.asking).await?;
                    attempt.has_waited(waited);
                    proof
                }
                Fast::Password { nonce, said } => {
                    let asked = password_itself(side, &nonce, Some(said), &listener.rsa_key);
                    let proof = attempt.beside(Box::pin(asked)).await?;
                    attempt.take_turn().await?;
                    proof
                }
            }
        }
        _ => answer.into_proof(),
    };
    match judge_proof(claim, applicant, &proof, accounts, listener).await {
        Ok(Some(judged)) => {
            attempt.succeeded();
            Ok(judged)
        }
        Ok(None) => {
            tokio::time::sleep(attempt.failed()).await;
            Err(access_denied(claim.user, claim.host, with_password))
        }
        Err(error) => Err(error),
    }
}

/// The account and the credential that a proof is good for; `None` if the proof is wrong.
async fn judge_proof(
    claim: &Claim<'_>,
    applicant: Applicant,
    proof: &Proof,
    accounts: &Accounts,
    listener: &ListenerState,
) -> Result<Option<(Applicant, Credential)>, SessionError> {
    let cluster = &listener.cluster;
    if applicant.passes() {
        let passed = accounts.pass(&applicant, proof, cluster).await;
        let credential = passed.map_err(SessionError::NoServer)?;
        return Ok(credential.map(|credential| (applicant, credential)));
    }
    if let Some(credential) = accounts.judge(&applicant, proof, cluster).await {
        return Ok(Some((applicant, credential)));
    }
    if cluster.accounts().is_some() {
        cluster.renew_accounts().await;
        let applicant = accounts.applicant(claim.user, cluster);
        let credential = accounts.judge(&applicant, proof, cluster).await;
        return Ok(credential.map(|credential| (applicant, credential)));
    }
    Ok(None)
}

/// The error for a client whose password is wrong.
pub(crate) fn access_denied(user: &[u8], host: &Peer, with_password: bool) -> SessionError {
    SessionError::AccessDenied {
        user: shown_user(user).into(),
        host: host_name(host),
        with_password,
    }
}

/// The answer in the login packet, where it can be judged. An empty answer is none: clients also send that
/// when the greeting's nonce is for another plugin than theirs, and wait to be asked. An empty answer says
/// that there is no password only if the client has read the nonce.
fn early_answer(claim: &Claim<'_>, applicant: &Applicant) -> Option<LoginAnswer> {
    let (bytes, nonce) = claim.answer?;
    let plugin = Plugin::by_name(claim.plugin)
        .filter(|plugin| *plugin != Plugin::Ed25519 && applicant.can_use(*plugin))?;
    let answer = LoginAnswer {
        plugin,
        nonce: nonce.to_vec(),
        bytes: bytes.to_vec(),
    };
    let has_read_nonce = claim.plugin == claim.default_plugin;
    (!says_no_password(&answer) || has_read_nonce && applicant.needs_no_password()).then_some(answer)
}

/// The plugin that the client has, where its answers can be checked; else the one that the client was greeted
/// with, since the client has that, too; else the one that everybody has, or the one by which a password can
/// be sent. If a server decides, only the last of these will do.
fn plugin_to_ask_for(claim: &Claim<'_>, applicant: &Applicant) -> Plugin {
    if applicant.passes() {
        return Plugin::CachingSha2;
    }
    let named = [claim.plugin, claim.default_plugin];
    (named.into_iter().filter_map(Plugin::by_name))
        .chain([Plugin::Native])
        .find(|plugin| applicant.can_use(*plugin))
        .unwrap_or(Plugin::CachingSha2)
}

/// Whether the answer is the one of a client that has no password to prove.
fn says_no_password(answer: &LoginAnswer) -> bool {
    match answer.plugin {
        Plugin::Native | Plugin::Ed25519 => answer.bytes.is_empty(),
        Plugin::CachingSha2 => matches!(answer.bytes.as_slice(), [] | [0]),
    }
}

/// Asks for an answer by a plugin, to a nonce of its own.
async fn ask(side: &mut LoginPeer<'_>, plugin: Plugin) -> Result<LoginAnswer, SessionError> {
    let (nonce, data) = match plugin {
        Plugin::Native | Plugin::CachingSha2 => {
            let nonce = nonce::<20>().map_err(SessionError::ClientFailed)?;
            (nonce.to_vec(), [&nonce[..], &[0]].concat())
        }
        Plugin::Ed25519 => {
            let nonce = nonce::<32>().map_err(SessionError::ClientFailed)?;
            (nonce.to_vec(), nonce.to_vec())
        }
    };
    let mut payload = Vec::with_capacity(64);
    AuthSwitch {
        plugin: plugin.name().into(),
        data,
    }
    .encode(&mut payload);
    side.write(&payload).await.map_err(SessionError::ClientFailed)?;
    let bytes = side.read_next().await.map_err(client_read)?;
    Ok(LoginAnswer { plugin, nonce, bytes })
}

/// Bytes of the fast answer of `caching_sha2_password`: a SHA-256.
const FAST_ANSWER_LEN: usize = 32;
/// With `caching_sha2_password` a client asks for the RSA key by this.
const KEY_REQUEST: &[u8] = &[2];

/// The outcome of the fast way of `caching_sha2_password`.
enum Fast {
    Proof(Proof),
    /// Another packet than a fast answer: the password itself, or the wish for our key.
    Password {
        nonce: Vec<u8>,
        said: Vec<u8>,
    },
    /// The client is to be asked for the password itself. `is_wrong`: the client's fast answer was checked
    /// and is wrong, which the question tells the client.
    InFull {
        nonce: Vec<u8>,
        is_wrong: bool,
    },
}

/// Takes the fast answer of `caching_sha2_password`. `in_full`: a client whose fast answer is not known to be
/// right is to be asked for the password, as a server asks that does not have the account in its cache.
async fn fast_answer(
    side: &mut LoginPeer<'_>,
    answer: LoginAnswer,
    applicant: &Applicant,
    in_full: bool,
) -> Result<Fast, SessionError> {
    if says_no_password(&answer) {
        let bytes = Vec::new();
        return Ok(Fast::Proof(LoginAnswer { bytes, ..answer }.into_proof()));
    }
    if answer.bytes.len() != FAST_ANSWER_LEN {
        return Ok(Fast::Password {
            nonce: answer.nonce,
            said: answer.bytes,
        });
    }
    let right = applicant
        .check(Plugin::CachingSha2, &answer.nonce, &answer.bytes)
        .is_some();
    if right {
        more(side, AuthMoreData::FAST_AUTH_OK).await?;
    }
    if right || !in_full {
        return Ok(Fast::Proof(answer.into_proof()));
    }
    Ok(Fast::InFull {
        nonce: answer.nonce,
        is_wrong: applicant.knows_password(),
    })
}

/// The password itself, in a way that the client's link allows. `said`: the packet with it, if that has come
/// already.
async fn password_itself(
    side: &mut LoginPeer<'_>,
    nonce: &[u8],
    said: Option<Vec<u8>>,
    key: &PrivateKey,
) -> Result<Proof, SessionError> {
    let said = match said {
        Some(said) => said,
        None => side.read_next().await.map_err(client_read)?,
    };
    let password = if said == KEY_REQUEST {
        more(side, key.public_pem().as_bytes()).await?;
        let encrypted = side.read_next().await.map_err(client_read)?;
        // A password that was encrypted with another key counts as a wrong one.
        key.decrypt_password(&encrypted, nonce).unwrap_or_default()
    } else if side.link() == Link::Plain {
        Vec::new()
    } else {
        said
    };
    Ok(password_in(password).map_or(Proof::Nothing, Proof::Password))
}

/// The password in a packet: all before the final zero byte, unless that is nothing. Passwords are text here.
fn password_in(mut sent: Vec<u8>) -> Option<Secret> {
    let end = sent.pop();
    let password = Secret::new(String::from_utf8(sent).ok()?);
    (end == Some(0) && !password.reveal().is_empty()).then_some(password)
}

async fn more(side: &mut LoginPeer<'_>, data: &[u8]) -> Result<(), SessionError> {
    let mut payload = Vec::with_capacity(data.len() + 1);
    AuthMoreData { data: data.to_vec() }.encode(&mut payload);
    side.write(&payload).await.map_err(SessionError::ClientFailed)
}

/// A client as servers name it in messages: its address without the port.
fn host_name(host: &Peer) -> String {
    host.socket_addr()
        .map_or_else(|| "localhost".to_owned(), |address| address.ip().to_string())
}

#[cfg(test)]
mod tests;
