//! Who is connected: what `CLIENT LIST` and `CLIENT INFO` say.

use std::collections::HashMap;
use std::fmt::Write;
use std::ops::Deref;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::command::Command;
use crate::tracking::Mailbox;

/// Nobody is told when rows change, as `CLIENT GETREDIR` says it.
const NOBODY: i64 = -1;

/// All clients of the Redis protocol, on all workers. Touched when one comes, goes, or is asked for.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    client_infos: Mutex<HashMap<u32, Arc<ClientInfo>>>,
}

/// What is said of a client.
#[derive(Debug)]
pub(crate) struct ClientInfo {
    pub(crate) clients: Arc<Clients>,
    pub(crate) id: u32,
    pub(crate) address: Box<str>,
    /// To which address it has come.
    pub(crate) local_address: Box<str>,
    since: Instant,
    told: Mutex<ClientNames>,
    /// The last command, counted from 1.
    command: AtomicU8,
    /// Seconds after `since` when the last command came.
    seconds: AtomicU32,
    protocol: AtomicU8,
    redirection: AtomicI64,
    /// What it is told on behalf of others, while it has subscribed to that.
    letters: Mutex<Option<Arc<Mailbox>>>,
}

/// What the client said of itself.
#[derive(Debug, Default, Clone)]
pub(crate) struct ClientNames {
    pub(crate) user: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) library: Box<str>,
    pub(crate) library_version: Box<str>,
}

/// A client among the others, until this is dropped.
#[derive(Debug)]
pub(crate) struct Listed(Arc<ClientInfo>);

impl Clients {
    /// A client comes.
    pub(crate) fn enlist(self: &Arc<Self>, id: u32, address: String, local_address: String) -> Listed {
        let client_info = Arc::new(ClientInfo {
            clients: Arc::clone(self),
            id,
            address: address.into(),
            local_address: local_address.into(),
            since: Instant::now(),
            told: Mutex::default(),
            command: AtomicU8::new(0),
            seconds: AtomicU32::new(0),
            protocol: AtomicU8::new(2),
            redirection: AtomicI64::new(NOBODY),
            letters: Mutex::default(),
        });
        self.client_infos().insert(id, Arc::clone(&client_info));
        Listed(client_info)
    }

    pub(crate) fn count(&self) -> usize {
        self.client_infos().len()
    }

    /// Those that are there now, the eldest first.
    pub(crate) fn all(&self) -> Vec<Arc<ClientInfo>> {
        let mut all: Vec<_> = self.client_infos().values().cloned().collect();
        all.sort_unstable_by_key(|client_info| client_info.id);
        all
    }

    pub(crate) fn find(&self, id: u32) -> Option<Arc<ClientInfo>> {
        self.client_infos().get(&id).cloned()
    }

    /// A lock that outlives a panic on another worker: the map is whole after every call.
    fn client_infos(&self) -> MutexGuard<'_, HashMap<u32, Arc<ClientInfo>>> {
        self.client_infos.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Listed {
    type Target = ClientInfo;

    fn deref(&self) -> &ClientInfo {
        &self.0
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.0.clients.client_infos().remove(&self.0.id);
    }
}

impl ClientInfo {
    /// What the client said of itself.
    pub(crate) fn told(&self) -> ClientNames {
        self.lock().clone()
    }

    /// The client says something else of itself.
    pub(crate) fn tell(&self, change: impl FnOnce(&mut ClientNames)) {
        change(&mut self.lock());
    }

    /// The protocol that the client speaks.
    pub(crate) fn speaks(&self, version: resp_wire::Version) {
        self.protocol.store(version as u8, Ordering::Relaxed);
    }

    /// Who is told when rows change that the client keeps: 0 is itself, `None` is nobody.
    pub(crate) fn tracks(&self, redirection: Option<u32>) {
        let redirection = redirection.map_or(NOBODY, i64::from);
        self.redirection.store(redirection, Ordering::Relaxed);
    }

    /// See [`tracks`](Self::tracks); -1 is nobody.
    pub(crate) fn redirection(&self) -> i64 {
        self.redirection.load(Ordering::Relaxed)
    }

    /// From here on it is told on behalf of others.
    pub(crate) fn subscribe(&self) -> Arc<Mailbox> {
        Arc::clone(self.lock_letters().get_or_insert_default())
    }

    pub(crate) fn unsubscribe(&self) {
        *self.lock_letters() = None;
    }

    /// Where to put what it is to be told, if it has subscribed to that.
    pub(crate) fn letters(&self) -> Option<Arc<Mailbox>> {
        self.lock_letters().clone()
    }

    /// A client's commands came, the last of them was this.
    #[inline]
    pub(crate) fn worked(&self, last: Command) {
        self.command.store(last as u8 + 1, Ordering::Relaxed);
        self.seconds
            .store(self.since.elapsed().as_secs() as u32, Ordering::Relaxed);
    }

    /// The line of `CLIENT LIST`, without its end.
    pub(crate) fn describe(&self, line: &mut String) {
        let told = self.lock();
        let age = self.since.elapsed();
        let redirection = self.redirection();
        let is_subscribed = self.lock_letters().is_some();
        let flags = match (redirection != NOBODY, is_subscribed) {
            (false, false) => "N",
            (true, false) => "t",
            (false, true) => "P",
            (true, true) => "Pt",
        };
        let last = Duration::from_secs(u64::from(self.seconds.load(Ordering::Relaxed)));
        let command = usize::from(self.command.load(Ordering::Relaxed));
        let command = command
            .checked_sub(1)
            .and_then(|at| super::command::COMMANDS.get(at));
        // A `String` takes everything.
        let _ = write!(
            line,
            "id={} addr={} laddr={} fd=-1 name={} age={} idle={} flags={flags} db=0 sub={} psub=0 ssub=0 multi=-1 watch=0 cmd={} user={} \
             redir={redirection} resp={} lib-name={} lib-ver={}",
            self.id,
            self.address,
            self.local_address,
            told.name,
            age.as_secs(),
            age.saturating_sub(last).as_secs(),
            u8::from(is_subscribed),
            command.map_or("NULL", |spec| spec.name),
            told.user,
            self.protocol.load(Ordering::Relaxed),
            told.library,
            told.library_version,
        );
    }

    fn lock_letters(&self) -> MutexGuard<'_, Option<Arc<Mailbox>>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, ClientNames> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_listed_until_it_goes() {
        let clients = Arc::new(Clients::default());
        let first = clients.enlist(7, "a:1".into(), "b:2".into());
        let second = clients.enlist(5, "a:3".into(), "b:2".into());
        let ids = |clients: &Clients| {
            clients
                .all()
                .iter()
                .map(|client_info| client_info.id)
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(&clients), [5, 7]);
        drop(second);
        assert_eq!((ids(&clients), clients.count()), (vec![7], 1));
        first.tell(|told| told.name = "app".into());
        first.worked(Command::Hget);
        let mut line = String::new();
        clients.find(7).unwrap().describe(&mut line);
        assert!(
            line.starts_with("id=7 addr=a:1 laddr=b:2 fd=-1 name=app age=0 idle=0 "),
            "{line}"
        );
        assert!(line.contains(" cmd=hget user= redir=-1 resp=2 "), "{line}");
    }
}
