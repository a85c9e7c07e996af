//! Does what a [`Member`] says: looks at the store, changes it, has the gateway check and apply texts.

use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use tracing::{debug, error, info, warn};
use upstream::Backoff;
use upstream::etcd::{Op, Outcome, Range, takes_no_changes};

use crate::fleet::{Fleet, Host, LEAVE_LIMIT, NO_TEXT};
use crate::folder::Folder;
use crate::keys::{View, first_about};
use crate::kill::NotKilled;
use crate::member::{Action, Member};
use crate::store::{Changes, Store};

/// All is read again after this time: a watch of a store's member that is cut off hears nothing.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// How long nothing may happen before the time is told.
const TICK: Duration = Duration::from_millis(250);

/// Between one attempt and the next, once the store has not answered.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(1));

/// Between one attempt and the next, while the store takes no changes. Leases are longer.
const REFUSED_PAUSE: Duration = Duration::from_millis(500);

impl Fleet {
    /// Is one of the fleet until [`leave`](Self::leave). `running`: what the gateway was started with.
    pub async fn run(self: Arc<Self>, host: Arc<dyn Host>, running: Option<(u64, Arc<str>)>) {
        let member = self.member(running);
        let host = host.as_ref();
        match self.folder() {
            Some(folder) => Driver::new(&self, host, Folder::new(folder), member).run().await,
            None => Driver::new(&self, host, self.etcd(), member).run().await,
        }
    }
}

struct Driver<'f, S> {
    fleet: &'f Arc<Fleet>,
    host: &'f dyn Host,
    store: S,
    member: Member,
    view: View,
    began: Instant,
    /// When the lease is to be renewed next.
    renew_at: Duration,
    /// What the gateway was told of its number.
    number: Option<u32>,
}

impl<'f, S: Store> Driver<'f, S> {
    fn new(fleet: &'f Arc<Fleet>, host: &'f dyn Host, store: S, member: Member) -> Self {
        Self {
            fleet,
            host,
            store,
            member,
            view: View::default(),
            began: Instant::now(),
            renew_at: Duration::ZERO,
            number: None,
        }
    }

    /// Until the gateway leaves.
    async fn run(mut self) {
        let mut pauses = PAUSES;
        loop {
            let began = self.began.elapsed();
            match self.follow().await {
                Ok(()) => break,
                Err(error) => self.fleet.note_lost(&error.to_string()),
            }
            self.store.doubt();
            if self.began.elapsed().saturating_sub(began) > LOOK_AGAIN {
                pauses = PAUSES;
            }
            self.wait(pauses.pause(), "does not answer").await;
            if self.fleet.is_leaving() {
                break;
            }
        }
        if let Some(lease) = self.member.lease().filter(|_| !self.member.is_retired()) {
            let _ = timeout(LEAVE_LIMIT, self.store.revoke(lease)).await;
        }
        self.fleet.note_left();
        info!("this gateway has left the fleet");
    }

    /// Without the store, for which `why` says what it does.
    async fn wait(&mut self, pause: Duration, why: &str) {
        let until = self.began.elapsed() + pause;
        while self.began.elapsed() < until && !self.fleet.is_leaving() {
            sleep(TICK.min(until.saturating_sub(self.began.elapsed()))).await;
            self.fleet
                .give_orders(&mut self.member, self.host, self.began.elapsed());
            if let Some(Action::Share(parts)) = self.member.offline(self.began.elapsed(), why) {
                self.share(parts);
            }
            self.tell_number();
            self.fleet.note_finished(&mut self.member);
        }
    }

    /// Until the gateway leaves, or the store cannot be followed.
    async fn follow(&mut self) -> io::Result<()> {
        let live = self.member.keys.live();
        self.look(&live).await?;
        let mut watch = self.store.watch(&live, self.view.revision).await?;
        self.fleet.note_connected();
        let mut look_at = self.began.elapsed() + LOOK_AGAIN;
        loop {
            let now = self.began.elapsed();
            if self.fleet.is_leaving() {
                return Ok(());
            }
            self.renew(now).await?;
            if now >= look_at {
                look_at = now + LOOK_AGAIN;
                self.look(&live).await?;
            }
            self.fleet.give_orders(&mut self.member, self.host, now);
            if self.member.asks_whether_within() && self.host.is_within_share() {
                self.member.is_within();
            }
            let action = self.member.next(&self.view, now);
            self.tell_number();
            self.fleet.note_finished(&mut self.member);
            let Some(action) = action else {
                self.fleet.publish(&self.member, &self.view);
                if self.member.is_retired() {
                    warn!("another process of this gateway has come after this one, which leaves the fleet");
                    return Ok(());
                }
                tokio::select! {
                    changes = watch.next() => self.view.take(changes?),
                    () = sleep(TICK) => {}
                    () = self.fleet.woken() => {}
                }
                continue;
            };
            self.act(action, &live).await?;
        }
    }

    fn tell_number(&mut self) {
        if self.number != self.member.number() {
            self.number = self.member.number();
            self.host.number(self.number.unwrap_or_default());
        }
    }

    async fn look(&mut self, live: &Range) -> io::Result<()> {
        self.view = self.store.read(live).await?.into();
        self.member.seen();
        Ok(())
    }

    async fn renew(&mut self, now: Duration) -> io::Result<()> {
        let Some(lease) = self.member.lease().filter(|_| now >= self.renew_at) else {
            return Ok(());
        };
        if self.store.renew(lease).await? {
            self.renew_at = now + self.fleet.lease() / 3;
        } else {
            warn!("the lease of this gateway in the store is over: another one is taken");
            self.member.lease_lost();
        }
        Ok(())
    }

    async fn act(&mut self, action: Action, live: &Range) -> io::Result<()> {
        match action {
            Action::Look => self.look(live).await?,
            Action::Grant => {
                let now = self.began.elapsed();
                let lease = match self.store.grant(self.fleet.lease()).await {
                    Err(error) if takes_no_changes(&error.to_string()) => {
                        self.refused(&error.to_string()).await;
                        return Ok(());
                    }
                    granted => granted?,
                };
                self.renew_at = now + self.fleet.lease() / 3;
                self.member.granted(lease);
            }
            Action::Write(transaction) => {
                let outcome = self.store.change(&transaction).await;
                match &outcome {
                    // Deletions are made where there is no room, too.
                    Outcome::Made(_) if transaction.ops.iter().all(|op| matches!(op, Op::Delete(_))) => {}
                    Outcome::Made(_) => self.fleet.note_taken(),
                    // The lease may be over.
                    Outcome::NotMade => self.renew_at = Duration::ZERO,
                    Outcome::Unknown(why) => debug!(why, "the store has not said what became of a change"),
                    Outcome::Refused(_) => {}
                }
                self.member.written(&outcome);
                if let Outcome::Refused(why) | Outcome::Unknown(why) = &outcome
                    && takes_no_changes(why)
                {
                    self.fleet.note_finished(&mut self.member);
                    self.refused(why).await;
                }
            }
            Action::Ask(revision) => {
                let about = Range::of(&self.member.keys.about(revision));
                let about = first_about(&self.store.read(&about).await?);
                self.member.told_about(about);
            }
            Action::Check { proposal, text } => {
                let problem = self.host.check(&text).err();
                if let Some(problem) = &problem {
                    warn!(
                        proposal,
                        problem, "this gateway cannot run what is proposed for all"
                    );
                }
                self.member.checked(proposal, problem);
            }
            Action::Apply { revision, text } => {
                let problem = self.host.apply(revision, &text).err();
                self.applied(revision, text, problem);
            }
            Action::Refuse { revision } => self.applied(revision, "".into(), Some(NO_TEXT.to_owned())),
            Action::Do { key, deed, asked } => {
                let problem = self.host.act(&deed).err();
                let (what, now) = (deed.to_string(), self.began.elapsed());
                match (self.member.did(key, deed, asked, problem.clone(), now), problem) {
                    (_, None) => info!(what, "done since all gateways do it"),
                    (true, Some(problem)) => warn!(
                        what,
                        problem, "what all gateways do cannot be done here; it is tried again"
                    ),
                    (false, Some(problem)) => debug!(what, problem, "still not done"),
                }
            }
            Action::Share(parts) => self.share(parts),
            Action::Kill { key, kill } => {
                let fleet: Weak<Fleet> = Arc::downgrade(self.fleet);
                let asked = kill.clone();
                let told = move |answer: Result<(), NotKilled>| {
                    // Everybody may ask; what is refused is for nobody to read who has not asked for it.
                    match &answer {
                        Ok(()) => info!(kill = ?asked, "another gateway has had a session of this one ended"),
                        Err(why) => debug!(kill = ?asked, ?why, "another gateway's KILL is refused"),
                    }
                    if let Some(fleet) = fleet.upgrade() {
                        fleet.note_killed(key, answer);
                    }
                };
                self.host.kill(kill, Box::new(told));
            }
            Action::Undo { key, deed } => {
                let problem = self.host.undo(&deed).err();
                let now = self.began.elapsed();
                match (self.member.undid(&key, problem.clone(), now), problem) {
                    (_, None) => info!(?deed, "not done any more, as by all gateways"),
                    (true, Some(problem)) => warn!(
                        ?deed,
                        problem, "what no gateway does any more cannot be taken back here; it is tried again"
                    ),
                    (false, Some(problem)) => debug!(?deed, problem, "still not taken back"),
                }
            }
        }
        Ok(())
    }

    /// It is tried again, and not at once: nobody knows until when the store takes no changes.
    async fn refused(&mut self, why: &str) {
        self.fleet.note_refused(why);
        self.wait(REFUSED_PAUSE, &format!("takes no changes: {why}"))
            .await;
    }

    fn share(&mut self, parts: u32) {
        let problem = self.host.share(parts).err();
        match &problem {
            None => {
                info!(parts, "takes an equal part of the limits of all gateways");
                if let Err(error) = self.fleet.keep_parts(parts) {
                    warn!(%error, "its part of the limits cannot be kept in `state_dir`, for a start without the store");
                }
            }
            Some(problem) => error!(
                parts,
                problem, "cannot take its part of the limits of all gateways; it is tried again"
            ),
        }
        if let Some(problem) = &problem {
            self.fleet.note_no_part(problem.clone());
        }
        self.member.took(parts, problem.is_none(), self.began.elapsed());
    }

    fn applied(&mut self, revision: u64, text: Arc<str>, problem: Option<String>) {
        match &problem {
            None => {
                info!(revision, "runs the configuration of all");
                if let Err(error) = self.fleet.keep(revision, &text) {
                    error!(%error, revision, "cannot be kept in `state_dir`: a start without the store would be with an older one");
                }
            }
            Some(problem) => error!(
                revision,
                problem, "cannot run the configuration of all; the old one stays in force"
            ),
        }
        let modified = self
            .view
            .config(&self.member.keys)
            .1
            .map_or(0, |entry| entry.modified);
        let now = self.began.elapsed();
        self.member.applied(revision, text, problem, modified, now);
    }
}
