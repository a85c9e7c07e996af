//! What has to stay true while a load runs: sessions beside it, through the same gateway, move money from one
//! account to another, add all accounts up, and read what they have written.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::bail;
use inputs::Random;

use super::Violation;
use crate::{
    cache::rig::Run,
    client::{Client, Server},
};

const ACCOUNTS: u64 = 10;
const BALANCE: u64 = 100;
/// Sessions that transfer, and that write and read.
const SESSIONS: u64 = 2;
/// Between two acts of a session: little beside any load.
const PAUSE: Duration = Duration::from_millis(50);

/// How often it was looked.
#[derive(Debug, Default)]
struct Checks {
    sums: AtomicU64,
    reads: AtomicU64,
}

/// They are looked at beside the load of everybody, but of those of the user's that have been wrong before.
#[derive(Debug)]
pub(super) struct Watched<'a> {
    checks: Checks,
    /// Contenders of the user's.
    foreign: Vec<&'a str>,
    unchecked: Vec<String>,
}

impl<'a> Watched<'a> {
    pub(super) fn new(foreign: Vec<&'a str>) -> Self {
        Self {
            checks: Checks::default(),
            foreign,
            unchecked: Vec::new(),
        }
    }

    pub(super) fn in_words(&self) -> String {
        self.checks.in_words()
    }

    /// A fault of one of the user's is noted, and ends nothing: `mend` is to undo what it has done, and its
    /// load runs again.
    pub(super) fn run<T>(
        &mut self,
        (who, server): (&str, Server),
        load: impl Fn() -> anyhow::Result<T>,
        mend: impl FnOnce() -> anyhow::Result<()>,
        notes: &mut Vec<String>,
    ) -> anyhow::Result<T> {
        if self.unchecked.iter().any(|name| name == who) {
            return load();
        }
        match self.checks.beside(server, &load) {
            Err(error) if error.is::<Violation>() && self.foreign.contains(&who) => {
                notes.push(format!("{who}, no longer checked: {error}"));
                self.unchecked.push(who.to_owned());
                mend()?;
                load()
            }
            done => done,
        }
    }
}

/// Makes the tables anew.
pub(super) fn create(run: Run<'_>) -> anyhow::Result<()> {
    run("DROP TABLE IF EXISTS lab_bank, lab_written")?;
    run("CREATE TABLE lab_bank (id INT PRIMARY KEY, balance INT NOT NULL) ENGINE = InnoDB")?;
    run("CREATE TABLE lab_written (id INT PRIMARY KEY, value BIGINT NOT NULL) ENGINE = InnoDB")?;
    for id in 1..=ACCOUNTS {
        run(&format!("INSERT INTO lab_bank VALUES ({id}, {BALANCE})"))?;
    }
    for id in 0..SESSIONS {
        run(&format!("INSERT INTO lab_written VALUES ({id}, 0)"))?;
    }
    Ok(())
}

/// Puts back the money that somebody has lost or made.
pub(super) fn mend(run: Run<'_>) -> anyhow::Result<()> {
    run(&format!("UPDATE lab_bank SET balance = {BALANCE}"))
}

/// Tells those beside a load that it has ended, however that comes.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Checks {
    /// Runs a load, and looks meanwhile. What is not true is an error.
    fn beside<T>(&self, server: Server, load: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let ended = AtomicBool::new(false);
        let (ended, has_ended) = (&ended, &|| ended.load(Ordering::Relaxed));
        thread::scope(|scope| {
            let mut sessions = vec![scope.spawn(move || self.add_up(server, has_ended))];
            for session in 0..SESSIONS {
                sessions.push(scope.spawn(move || transfer(server, session, has_ended)));
                sessions.push(scope.spawn(move || self.read_own(server, session, has_ended)));
            }
            let done = {
                let _ends = Ends(ended);
                load()
            };
            let mut seen = Ok(());
            for session in sessions {
                seen = seen.and(crate::joined(session, "a session beside the load"));
            }
            // What was seen counts whatever has come of the load.
            seen?;
            done
        })
    }

    fn in_words(&self) -> String {
        let [sums, reads] = [&self.sums, &self.reads].map(|count| count.load(Ordering::Relaxed));
        format!(
            "found true beside the load: {sums} sums over accounts with transfers under way, {reads} reads of own writes"
        )
    }

    fn add_up(&self, server: Server, has_ended: &dyn Fn() -> bool) -> anyhow::Result<()> {
        let mut client = server.connect()?;
        while !has_ended() {
            let sum = number(&mut client, "SELECT SUM(balance) FROM lab_bank")?;
            let expected = ACCOUNTS * BALANCE;
            if sum != expected {
                let what =
                    format!("money was lost or made: all accounts together have {sum}, not {expected}");
                return Err(Violation(what).into());
            }
            self.sums.fetch_add(1, Ordering::Relaxed);
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn read_own(&self, server: Server, session: u64, has_ended: &dyn Fn() -> bool) -> anyhow::Result<()> {
        let mut client = server.connect()?;
        let read = format!("SELECT value FROM lab_written WHERE id = {session}");
        // Higher than what any run before has written: an old value is never the right one.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut value = now.as_micros() as u64;
        while !has_ended() {
            value += 1;
            client.query(&format!(
                "UPDATE lab_written SET value = {value} WHERE id = {session}"
            ))?;
            let found = number(&mut client, &read)?;
            if found != value {
                let what = format!("a session wrote {value}, and read {found} directly afterwards");
                return Err(Violation(what).into());
            }
            self.reads.fetch_add(1, Ordering::Relaxed);
            thread::sleep(PAUSE);
        }
        Ok(())
    }
}

fn transfer(server: Server, session: u64, has_ended: &dyn Fn() -> bool) -> anyhow::Result<()> {
    let mut client = server.connect()?;
    let mut random = Random::new(session);
    while !has_ended() {
        let from = 1 + random.below(ACCOUNTS);
        let to = 1 + (from + random.below(ACCOUNTS - 1)) % ACCOUNTS;
        let statements = [
            "BEGIN".to_owned(),
            format!("UPDATE lab_bank SET balance = balance - 1 WHERE id = {from}"),
            format!("UPDATE lab_bank SET balance = balance + 1 WHERE id = {to}"),
            "COMMIT".to_owned(),
        ];
        let done = statements
            .iter()
            .try_for_each(|statement| client.query(statement).map(drop));
        match done {
            Err(error) if error.is_of_lock() => drop(client.query("ROLLBACK")?),
            done => done?,
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

fn number(client: &mut Client, statement: &str) -> anyhow::Result<u64> {
    let answer = client.query(statement)?;
    let value = answer.value();
    match value.map(str::parse) {
        Some(Ok(number)) => Ok(number),
        _ => bail!("{statement}: the answer is {value:?}"),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{Shutdown, SocketAddr, TcpListener, TcpStream},
        time::Instant,
    };

    use sandbox::{Kind, Sandbox, Spec};

    use super::*;
    use crate::client::SANDBOX;

    /// The time that any load may take on a busy machine, and how often a load runs that is over too soon.
    const PATIENCE: Duration = Duration::from_secs(60);
    const TURNS: usize = 30;

    /// The checks beside a load that goes on until a fault is seen, or the checks were often enough.
    fn seen(servers: &Sandbox, enough: u64) -> Result<Checks, String> {
        let server = Server {
            address: servers.primary().address().parse().unwrap(),
            account: SANDBOX,
        };
        let checks = Checks::default();
        let began = Instant::now();
        let few = |count: &AtomicU64| count.load(Ordering::Relaxed) <= enough;
        while began.elapsed() < PATIENCE && (few(&checks.sums) || few(&checks.reads)) {
            let load = || {
                thread::sleep(Duration::from_millis(500));
                Ok(())
            };
            checks.beside(server, load).map_err(|error| error.to_string())?;
        }
        Ok(checks)
    }

    #[test]
    fn what_is_not_true_beside_a_load_is_found() {
        let servers = Sandbox::start(Spec::new(Kind::Mariadb)).unwrap();
        let root = |sql: &str| servers.primary().sql(&format!("USE sbtest; {sql}")).unwrap();
        servers.primary().sql("CREATE DATABASE sbtest").unwrap();
        create(&mut |sql| {
            root(sql);
            Ok(())
        })
        .unwrap();
        let checks = seen(&servers, 20).unwrap();
        assert!(checks.sums.into_inner() > 20 && checks.reads.into_inner() > 20);

        root("CREATE TRIGGER stale BEFORE UPDATE ON lab_written FOR EACH ROW SET NEW.value = OLD.value");
        let stale = seen(&servers, u64::MAX).unwrap_err();
        assert!(stale.contains("directly afterwards"), "{stale}");
        root("DROP TRIGGER stale");

        // Which has no transactions; the second update is late.
        root("ALTER TABLE lab_bank ENGINE = MyISAM");
        root("CREATE TRIGGER slow BEFORE UPDATE ON lab_bank FOR EACH ROW SET @slept = SLEEP(0.01)");
        let torn = seen(&servers, u64::MAX).unwrap_err();
        assert!(torn.contains("money was lost or made"), "{torn}");
    }
    /// A gateway that makes no money of what was taken from an account. It ends with the process.
    fn loses_money(before: SocketAddr) -> SocketAddr {
        let copy = |mut from: TcpStream, mut to: TcpStream| {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                let wrong = buffer[..length]
                    .windows(11)
                    .position(|bytes| bytes == b"balance + 1");
                if let Some(at) = wrong {
                    buffer[at..][..11].copy_from_slice(b"balance + 0");
                }
                if to.write_all(&buffer[..length]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(before).unwrap());
                let (from_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || copy(from_client, to_server));
                thread::spawn(move || copy(server, client));
            }
        });
        address
    }

    #[test]
    fn what_a_contender_of_the_users_does_wrong_is_noted_and_blamed_on_nobody_else() {
        let servers = Sandbox::start(Spec::new(Kind::Mariadb)).unwrap();
        let mut run = |sql: &str| {
            servers.primary().sql(&format!("USE sbtest; {sql}")).unwrap();
            Ok(())
        };
        servers.primary().sql("CREATE DATABASE sbtest").unwrap();
        create(&mut run).unwrap();
        let direct: SocketAddr = servers.primary().address().parse().unwrap();
        let relay = loses_money(direct);
        let mut watched = Watched::new(vec!["mine"]);
        let mut notes = Vec::new();
        let mut turn = |who, address| {
            let account = SANDBOX;
            let load = || {
                thread::sleep(Duration::from_secs(1));
                Ok(address)
            };
            let done = watched.run(
                (who, Server { address, account }),
                load,
                || mend(&mut run),
                &mut notes,
            );
            let reads = watched.checks.reads.load(Ordering::Relaxed);
            (done.map_err(|error| error.to_string()), notes.len(), reads)
        };
        // On a busy machine a load may be over before it was looked at.
        let is_noted = (0..TURNS).any(|_| {
            let (done, noted, _) = turn("mine", relay);
            assert_eq!(done, Ok(relay), "its load runs to its end");
            noted > 0
        });
        assert!(is_noted, "nobody has noticed");
        let is_read = (0..TURNS).any(|_| {
            let (done, _, reads) = turn("direct", direct);
            assert_eq!(done, Ok(direct), "there is all money again");
            reads > 5
        });
        assert!(is_read, "nobody has looked");
        assert_eq!(turn("mine", relay).0, Ok(relay), "it is not looked at");
        // One of ours is not excused.
        let blamed = (0..TURNS).find_map(|_| turn("session", relay).0.err());
        let blamed = blamed.expect("money was lost");
        assert!(blamed.contains("money was lost"), "{blamed}");
        let [note] = &notes[..] else {
            panic!("{notes:?}");
        };
        assert!(
            note.starts_with("mine, no longer checked: money was lost or made"),
            "{note}"
        );
    }
}
