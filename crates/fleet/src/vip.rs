//! Does what a [`Claim`] says: asks the store, and gives the address to the kernel and takes it off.
//!
//! It has a connection to the store and a lease of its own: whatever keeps the fleet waiting does not keep
//! the address.

use std::io;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use net::arp::{Arp, Message};
use net::interface::{Interface, has_for_good, interface, lend_address, remove_address};
use rustix::time::{ClockId, clock_gettime};
use tokio::time::sleep;
use tracing::{info, warn};
use upstream::etcd::{Change, Entry, Outcome, Range};

use crate::claim::{Act, Ask, Claim, LEASE, Standing};
use crate::fleet::{Fleet, Host, VipStatus, in_time};
use crate::store::{Changes, Store};

/// How often the clock is looked at, and the network listened to.
const TICK: Duration = Duration::from_millis(50);

/// Messages of others that are read at a time.
const HEARD_MAX: usize = 256;

/// How often it is looked whether this gateway is ready, and its interface up.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Less than until the lease ends: another member of the store is asked then.
const ANSWER_LIMIT: Duration = Duration::from_millis(800);

impl Fleet {
    /// Has the virtual address while it is this gateway's turn, where there is one, until
    /// [`leave`](Self::leave). `takes_over`: the process before this one leaves it to this one.
    pub async fn run_vip(self: Arc<Self>, host: Arc<dyn Host>, takes_over: bool) {
        if let Some((vip, address, prefix)) = self.vip() {
            let place = AddressPlace {
                name: vip.interface.clone(),
                address,
                prefix,
                found: None,
                arp: None,
            };
            let key = self.vip_key(address);
            let mut driver = Driver {
                key: Range::of(&key),
                claim: Claim::new(key, self.name().to_owned(), vip.priority, !takes_over),
                fleet: &self,
                host: host.as_ref(),
                place,
                look_at: Duration::ZERO,
                told: (Standing::Out, None),
            };
            driver.run(self.etcd()).await;
        }
        self.note_vip_left();
    }
}

/// The clock goes on while the machine sleeps.
fn now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}

struct Driver<'f> {
    fleet: &'f Fleet,
    host: &'f dyn Host,
    key: Range,
    place: AddressPlace,
    claim: Claim,
    look_at: Duration,
    /// What was said of it last.
    told: (Standing, Option<String>),
}

/// What the store has said. The store comes back with it.
type Asked<S> = Pin<Box<dyn Future<Output = (S, Said<<S as Store>::Watch>)>>>;

enum Said<W> {
    Key(io::Result<(Option<Entry>, i64, W)>),
    Granted(io::Result<i64>),
    Wrote(Outcome),
    Renewed(io::Result<bool>),
    Revoked(io::Result<()>),
}

impl Driver<'_> {
    async fn run<S: Store + 'static>(&mut self, store: S) {
        let mut idle = Some(store);
        let mut asked: Option<Asked<S>> = None;
        let mut watch: Option<S::Watch> = None;
        while !self.claim.has_left() {
            self.look();
            self.act();
            if idle.is_some()
                && let Some(ask) = self.claim.ask(now())
                && let Some(store) = idle.take()
            {
                asked = Some(Box::pin(answer(store, ask, self.key.clone())));
            }
            self.publish();
            tokio::select! {
                (store, said) = come(&mut asked) => {
                    asked = None;
                    idle = Some(store);
                    self.said(said, &mut watch);
                }
                changes = next(&mut watch) => match changes {
                    Ok(changes) => changes.into_iter().for_each(|change| self.changed(change)),
                    Err(_) => {
                        watch = None;
                        self.claim.look_again(now());
                    }
                },
                () = sleep(TICK) => {}
            }
        }
        self.publish();
    }

    fn look(&mut self) {
        if self.fleet.is_leaving() {
            self.claim.leave(self.fleet.leaves_vip_to());
        }
        let now = now();
        if now >= self.look_at {
            self.look_at = now + LOOK_EVERY;
            let link = self.place.look();
            self.claim.is_fit(self.host.is_ready(), link, now);
        }
        for _ in 0..HEARD_MAX {
            let Some(message) = self.place.hear() else { break };
            self.claim.heard(message.mac, now);
        }
    }

    fn act(&mut self) {
        // Each is there once, and again where the process was stopped within it.
        for _ in 0..8 {
            let Some(act) = self.claim.act(now()) else { break };
            let result = self.place.act(act).map_err(|error| error.to_string());
            let has_failed = result.is_err();
            self.claim.acted(act, result, now());
            if has_failed {
                break;
            }
        }
    }

    fn said<W>(&mut self, said: Said<W>, watch: &mut Option<W>) {
        match said {
            Said::Key(Ok((entry, revision, new))) => {
                *watch = Some(new);
                self.claim.looked(entry.as_ref(), revision, now());
            }
            Said::Granted(Ok(lease)) => self.claim.granted(lease),
            Said::Wrote(outcome) => self.claim.wrote(&outcome, now()),
            Said::Renewed(Ok(is_so)) => self.claim.renewed(is_so),
            Said::Revoked(Ok(())) => self.claim.revoked(),
            Said::Key(Err(error))
            | Said::Granted(Err(error))
            | Said::Renewed(Err(error))
            | Said::Revoked(Err(error)) => self.claim.failed(&error.to_string(), now()),
        }
    }

    fn changed(&mut self, change: Change) {
        match change {
            Change::Put(entry) => self.claim.looked(Some(&entry), entry.modified, now()),
            Change::Deleted { modified, .. } => self.claim.looked(None, modified, now()),
        }
    }

    fn publish(&mut self) {
        let new = (self.claim.standing(), self.claim.problem().map(str::to_owned));
        let (interface, address) = (self.place.name.as_str(), self.place.address);
        if new != self.told {
            match (new.0, &new.1) {
                (Standing::Holds, None) => info!(%address, interface, "the virtual address is here"),
                (standing, None) => info!(%address, interface, %standing, "the virtual address is not here"),
                (standing, Some(problem)) => {
                    warn!(%address, interface, %standing, problem, "the virtual address")
                }
            }
            self.told = new;
        }
        self.fleet.note_vip(VipStatus {
            address: address.to_string(),
            interface: interface.to_owned(),
            state: self.told.0.to_string(),
            holder: self.claim.holder().map(str::to_owned),
            problem: self.told.1.clone(),
        });
    }
}

async fn answer<S: Store>(mut store: S, ask: Ask, key: Range) -> (S, Said<S::Watch>) {
    let said = match ask {
        Ask::Look => {
            let look = async {
                let found = store.read(&key).await?;
                let watch = store.watch(&key, found.revision).await?;
                Ok((found.entries.into_iter().next(), found.revision, watch))
            };
            Said::Key(in_time(ANSWER_LIMIT, look).await)
        }
        Ask::Grant => Said::Granted(in_time(ANSWER_LIMIT, store.grant(LEASE)).await),
        Ask::Write(transaction) => {
            let change = async { Ok(store.change(&transaction).await) };
            let outcome = in_time(ANSWER_LIMIT, change).await;
            Said::Wrote(outcome.unwrap_or_else(|late| Outcome::Unknown(late.to_string())))
        }
        Ask::Renew(lease) => Said::Renewed(in_time(ANSWER_LIMIT, store.renew(lease)).await),
        Ask::Revoke(lease) => Said::Revoked(in_time(ANSWER_LIMIT, store.revoke(lease)).await),
    };
    let has_failed = match &said {
        Said::Key(Ok(_)) | Said::Granted(Ok(_)) | Said::Renewed(Ok(_)) | Said::Revoked(Ok(())) => false,
        Said::Wrote(outcome) => matches!(outcome, Outcome::Unknown(_)),
        _ => true,
    };
    if has_failed {
        store.doubt();
    }
    (store, said)
}

async fn come<S: Store>(asked: &mut Option<Asked<S>>) -> (S, Said<S::Watch>) {
    match asked {
        Some(asked) => asked.await,
        None => std::future::pending().await,
    }
}

async fn next<W: Changes>(watch: &mut Option<W>) -> io::Result<Vec<Change>> {
    match watch {
        Some(watch) => watch.next().await,
        None => std::future::pending().await,
    }
}

/// Where the address is.
struct AddressPlace {
    name: String,
    address: Ipv4Addr,
    prefix: u8,
    found: Option<Interface>,
    /// While it is listened to.
    arp: Option<Arp>,
}

impl AddressPlace {
    fn look(&mut self) -> Result<(), String> {
        let found = interface(&self.name);
        self.found = found.as_ref().ok().copied().flatten();
        match found {
            Ok(Some(found)) if found.is_up => Ok(()),
            Ok(Some(_)) => Err(format!("interface {} is down", self.name)),
            Ok(None) => Err(format!("there is no interface {}", self.name)),
            Err(error) => Err(format!("interface {}: {error}", self.name)),
        }
    }

    fn act(&mut self, act: Act) -> io::Result<()> {
        let gone = || io::Error::other(format!("interface {} is gone", self.name));
        let found = match (self.found, act) {
            (Some(found), _) => found,
            // What cannot be looked at may still have it.
            (None, Act::Remove) => match interface(&self.name)? {
                Some(found) => found,
                None => return Ok(()),
            },
            (None, _) => return Err(gone()),
        };
        let is_own = matches!(act, Act::Lend(_) | Act::Remove) && has_for_good(found.index, self.address)?;
        let mac = found
            .mac
            .ok_or_else(|| io::Error::other("the interface is no Ethernet"));
        match act {
            Act::Lend(_) if is_own => Err(io::Error::other("it is this machine's own address for good")),
            // Not lent by a gateway.
            Act::Remove if is_own => Ok(()),
            Act::Lend(seconds) => lend_address(found.index, self.address, self.prefix, seconds),
            Act::Remove => {
                self.arp = None;
                remove_address(found.index, self.address).map(drop)
            }
            Act::Probe => self.say(found.index, &Message::probe(mac?, self.address)),
            Act::Announce => self.say(found.index, &Message::announcement(mac?, self.address)),
        }
    }

    fn say(&mut self, interface: u32, message: &Message) -> io::Result<()> {
        if self.arp.is_none() {
            self.arp = Some(Arp::open(interface)?);
        }
        self.arp.as_ref().map_or(Ok(()), |arp| arp.send(message))
    }

    /// What another one has said that has the address.
    fn hear(&mut self) -> Option<Message> {
        let own = self.found?.mac;
        loop {
            match self.arp.as_ref()?.receive() {
                Ok(Some(message)) if message.sender == self.address && Some(message.mac) != own => {
                    return Some(message);
                }
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(_) => {
                    self.arp = None;
                    return None;
                }
            }
        }
    }
}
