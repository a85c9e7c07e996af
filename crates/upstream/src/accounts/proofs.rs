//! Whether a login on a server proves a password.
//!
//! Over a Unix socket a server sees whose process is at the other end, and that is the gateway. Accounts may
//! be open to that process (`unix_socket` of MariaDB, alone or as one of several ways in; `auth_socket` of
//! MySQL): then an OK says nothing of the password. No packet of a login tells, so the server is asked: it
//! has to refuse a password that the account surely does not have.
//!
//! Asked is only about accounts that the server has just let in, and only over a Unix socket; once an
//! account, server and `accounts.interval`, since servers count each time (`FAILED_LOGIN_ATTEMPTS`,
//! `max_password_errors`).

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::time::Instant;

use config::ServerAddress;
use mysql_wire::{Capabilities, ErrPacket, OkPacket, SslRequest};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

use super::pass_through::DENIALS;
use crate::cluster::Cluster;
use crate::connect::{self, For};
use crate::disconnect::answer_wrongly;
use crate::error::Seconds;
use crate::greeting::read_greeting;
use crate::lock::lock;
use crate::login::{self, Tls};
use crate::server::{Server, ServerId, now};

/// Accounts about which questions are under way at the same time; others that fall to the same place wait for
/// them.
const PLACES: usize = 16;

/// How many times `interval` a verdict stands where the server does not give another.
const PATIENCE: u32 = 10;

/// An account on a server.
type Key = (ServerId, Box<[u8]>);

/// What was found out.
#[derive(Default)]
pub(crate) struct Proofs {
    known: Mutex<HashMap<Key, Proof>>,
    asking: [AsyncMutex<()>; PLACES],
    hasher: RandomState,
}

#[derive(Clone, Copy)]
struct Proof {
    looks_at_password: bool,
    at: Instant,
}

impl Cluster {
    /// Whether this server looks at the password of an account that it has just let in. Always true where it
    /// is not reached by a Unix socket.
    ///
    /// # Errors
    /// The server did not say, and has not for long. In words for a person.
    pub async fn looks_at_password(&self, server: &Server, user: &[u8]) -> Result<bool, String> {
        if !matches!(server.address(), ServerAddress::Unix(_)) {
            return Ok(true);
        }
        let proofs = &self.accounts.proofs;
        let interval = self.config().accounts.interval;
        let key = (server.id(), Box::from(user));
        let is_younger = |proof: &Proof, age| now().saturating_duration_since(proof.at) < age;
        let fresh = || proofs.find(&key).filter(|proof| is_younger(proof, interval));
        if let Some(proof) = fresh() {
            return Ok(proof.looks_at_password);
        }
        let place = proofs.hasher.hash_one(&key) as usize % PLACES;
        let _one_at_a_time = proofs.asking[place].lock().await;
        if let Some(proof) = fresh() {
            return Ok(proof.looks_at_password);
        }
        match self.lets_in_wrongly(server, user).await {
            Ok(lets_in) => {
                if lets_in {
                    tracing::warn!(
                        cluster = self.name(),
                        server = server.name(),
                        user = &*String::from_utf8_lossy(user),
                        "account lets in the process at the other end of the server's Unix socket, whatever the password, and cannot log in here"
                    );
                }
                let most = self.config().accounts.passwords_max as usize;
                proofs.note(key, !lets_in, most);
                Ok(!lets_in)
            }
            Err(reason) => {
                let last = proofs
                    .find(&key)
                    .filter(|proof| proof.looks_at_password && is_younger(proof, PATIENCE * interval));
                last.map(|_| true).ok_or(reason)
            }
        }
    }

    /// Accounts have changed on the servers, or may have: what was found out of them is found out anew.
    pub(super) fn forget_proofs(&self) {
        lock(&self.accounts.proofs.known).clear();
    }

    /// Whether the server lets the account in with a password that it does not have.
    async fn lets_in_wrongly(&self, server: &Server, user: &[u8]) -> Result<bool, String> {
        let limit = self.config().login_timeout;
        let asked = timeout(limit, self.ask_wrongly(server, user)).await;
        let verdict = asked.unwrap_or_else(|_| Err(format!("no verdict within {}", Seconds(limit))))?;
        match verdict.as_deref() {
            Some([OkPacket::HEADER, ..]) => Ok(true),
            Some(packet) => {
                let refusal = ErrPacket::decode(packet, Capabilities::PROTOCOL_41);
                let refusal = refusal.map_err(|error| error.to_string())?;
                match DENIALS.contains(&refusal.code) {
                    true => Ok(false),
                    false => Err(format!(
                        "{} (error {})",
                        String::from_utf8_lossy(&refusal.message),
                        refusal.code
                    )),
                }
            }
            None => Err("no verdict".to_owned()),
        }
    }

    /// As all logins there: an account may be another one without TLS.
    async fn ask_wrongly(&self, server: &Server, user: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let config = self.config();
        let mut stream = connect::connect(server, &config, For::Gateway, config.connect_timeout)
            .await
            .map_err(|error| error.reason)?;
        let greeting = read_greeting(&mut stream, config.login_timeout).await;
        let (greeting, _) = greeting.map_err(|error| error.to_string())?;
        let connector = self.tls();
        let tls = Tls::of(connector.as_deref(), server.tls_name(), &config)
            .filter(|_| greeting.capabilities.contains(Capabilities::SSL));
        let mut request = None;
        if let Some(tls) = tls {
            let begun = SslRequest {
                capabilities: TLS_LOGIN & greeting.capabilities,
                max_packet_size: 1 << 24,
                charset: greeting.charset,
            };
            stream = login::begin_tls(stream, &begun, &greeting, tls)
                .await
                .map_err(|error| error.to_string())?;
            request = Some(begun);
        }
        let answered = answer_wrongly(&mut stream, &greeting, user, request.as_ref()).await;
        answered.map_err(|error| error.to_string())
    }
}

const TLS_LOGIN: Capabilities = Capabilities::PROTOCOL_41
    .with(Capabilities::LONG_PASSWORD)
    .with(Capabilities::SECURE_CONNECTION)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::SSL);

impl Proofs {
    fn find(&self, key: &Key) -> Option<Proof> {
        lock(&self.known).get(key).copied()
    }

    /// At most so many are known, the latest.
    fn note(&self, key: Key, looks_at_password: bool, most: usize) {
        let mut known = lock(&self.known);
        let proof = Proof {
            looks_at_password,
            at: now(),
        };
        known.insert(key, proof);
        while known.len() > most {
            let oldest = known.iter().min_by_key(|(_, proof)| proof.at);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                break;
            };
            known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_known() {
        let proofs = Proofs::default();
        let key = |name: &str| (ServerId(1), Box::from(name.as_bytes()));
        for name in ["a", "b", "c"] {
            proofs.note(key(name), true, 2);
        }
        let known = ["a", "b", "c"].map(|name| proofs.find(&key(name)).is_some());
        assert_eq!(known, [false, true, true]);
        proofs.note(key("b"), false, 2);
        assert!(
            proofs
                .find(&key("b"))
                .is_some_and(|proof| !proof.looks_at_password)
        );
    }
}
