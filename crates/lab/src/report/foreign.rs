//! Contenders of the user's: they run already, before the user's servers, and are measured beside ours.

use std::{
    fmt,
    net::{SocketAddr, ToSocketAddrs},
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;

use super::results::Section;
use crate::{
    client::{Account, Client, ClientError, Tls},
    overhead::Kind as Contender,
};

/// A longer name has no room beside a chart.
const NAME_MAX: usize = 18;
/// Servers behind it that the lab does not know get what is written meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);
/// Who is divided by it.
const OURS: [&str; 4] = ["tcp", "session", "moves", "split"];

/// What `--contender` names: `NAME=HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    pub(super) name: String,
    place: String,
}

impl FromStr for Foreign {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, place) = text
            .split_once('=')
            .ok_or("it has no name: NAME=HOST:PORT is wanted")?;
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        match (name, place.rsplit_once(':')) {
            ("", _) => Err("it has no name before `=`".to_owned()),
            (name, _) if name.len() > NAME_MAX || !name.chars().all(is_plain) => Err(format!(
                "the name {name:?} is to have at most {NAME_MAX} letters, digits, `-`, `_` and `.`"
            )),
            (name, _) if is_ours(name) => Err(format!("{name} is the name of a contender of the lab's own")),
            (name, Some((host, port))) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(Self {
                name: name.to_owned(),
                place: place.to_owned(),
            }),
            _ => Err(format!("{place:?} is not HOST:PORT")),
        }
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--contender {}={}", self.name, self.place)
    }
}

/// ProxySQL is none of those that the lab runs before real servers.
fn is_ours(name: &str) -> bool {
    let kind = Contender::from_str(name, true);
    kind.is_ok_and(|kind| kind != Contender::Proxysql)
}

/// All have names of their own, and there are servers that they can lead to.
pub(super) fn fit(foreign: &[Foreign], is_own: bool) -> anyhow::Result<()> {
    let Some(first) = foreign.first() else {
        return Ok(());
    };
    ensure!(
        is_own,
        "{first}: it has to lead to servers of your own, by --servers HOST:PORT; those that the lab starts are nowhere \
         before (`forebay sandbox up` starts some that stay)"
    );
    for (at, one) in foreign.iter().enumerate() {
        let before = foreign[..at]
            .iter()
            .find(|other| other.name.eq_ignore_ascii_case(&one.name));
        if let Some(before) = before {
            bail!("{one}: {before} has the same name");
        }
    }
    Ok(())
}

impl Foreign {
    /// It lets the account in, and leads to the servers that have this mark in the lab's schema.
    pub(super) fn reach(&self, account: Account, mark: &str) -> anyhow::Result<SocketAddr> {
        let address = self
            .place
            .to_socket_addrs()
            .with_context(|| self.to_string())?
            .next()
            .with_context(|| format!("{self}: it has no address"))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = marks(address, account);
            match &seen {
                Ok(marks) if marks == mark => break,
                Err(error @ ClientError::Lost(_)) => {
                    bail!("{self}: it cannot be reached: {error}")
                }
                _ => {}
            }
            if Instant::now() > deadline {
                let but = match seen {
                    Ok(_) => "what was written to the first of --servers is not seen".to_owned(),
                    Err(error) => error.to_string(),
                };
                bail!(
                    "{self}: it does not lead to the schema {} of --servers: {but}",
                    account.database
                );
            }
            thread::sleep(Duration::from_millis(100));
        }
        // As loads come.
        Client::connect(address, account).with_context(|| format!("{self}: without TLS"))?;
        Ok(address)
    }
}

fn marks(address: SocketAddr, account: Account) -> Result<String, ClientError> {
    let found = Client::connect_by(address, account, Tls::Preferred)?.query("SELECT id FROM lab_mark")?;
    Ok(found.rows.into_iter().flatten().flatten().collect())
}

impl Section {
    /// Divides all of ours by each of them.
    pub(super) fn compare_with(&mut self, foreign: &[&str], metric: &str) {
        for other in foreign {
            for own in OURS {
                self.compare(own, other, metric);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        text.parse::<Foreign>().unwrap_err()
    }

    #[test]
    fn a_contender_has_a_name_of_its_own_and_a_place() {
        let foreign: Foreign = "proxysql=db.example:6033".parse().unwrap();
        assert_eq!(foreign.to_string(), "--contender proxysql=db.example:6033");
        assert!("tiproxy-1.3=[::1]:6000".parse::<Foreign>().is_ok());
        assert!(refused("db.example:6033").contains("it has no name"));
        assert!(refused("=db.example:6033").contains("no name before"));
        assert!(refused("a,b=db.example:6033").contains("\"a,b\""));
        assert!(refused("a23456789012345678x=h:1").contains("at most 18"));
        for name in ["direct", "haproxy", "tcp", "session", "moves", "split", "Split"] {
            let error = refused(&format!("{name}=db.example:6033"));
            assert!(error.contains("of the lab's own"), "{error}");
        }
        for place in ["db.example", "db.example:", ":6033", "db.example:port", ""] {
            let error = refused(&format!("proxysql={place}"));
            assert!(error.contains(&format!("{place:?} is not HOST:PORT")), "{error}");
        }
    }

    #[test]
    fn contenders_have_different_names_and_lead_to_the_users_servers() {
        let two = ["a=h:1", "A=h:2"].map(|text| text.parse().unwrap());
        let error = |foreign: &[Foreign], is_own| fit(foreign, is_own).map_err(|error| error.to_string());
        assert_eq!(
            error(&two, true),
            Err("--contender A=h:2: --contender a=h:1 has the same name".to_owned())
        );
        assert_eq!(error(&two[..1], true), Ok(()));
        assert_eq!(error(&[], false), Ok(()));
        let started = error(&two[..1], false).unwrap_err();
        assert!(
            started.contains("--contender a=h:1: it has to lead to servers of your own"),
            "{started}"
        );
    }
}
