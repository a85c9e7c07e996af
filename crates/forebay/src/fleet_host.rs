//! The configuration of a gateway that has a store: its own file, and the text that all have in common.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use config::{Config, ConfigErrors};
use fleet::Fleet;
use tracing::{info, warn};

type Text = (u64, Arc<str>);

/// What a gateway has in common with others.
pub(crate) struct Common {
    pub(crate) fleet: Arc<Fleet>,
    text: Mutex<Option<Text>>,
    /// It takes one of so many parts of the limits, where those are shared.
    parts: AtomicU32,
    /// What is to be said of the start, once there is a log.
    notes: Vec<String>,
}

impl Common {
    /// The configuration to start with: `own` alone where no store is in it. Else with the text that was
    /// applied last, which is on the disk; and with the store's where there is none, or it is of no use. The
    /// store is asked in any case what is paused: statements do not go on while it has yet to answer.
    pub(crate) async fn begin(path: &Path, own: Config) -> anyhow::Result<(Config, Option<Self>)> {
        let Some(store) = &own.store else {
            return Ok((own, None));
        };
        let addresses = own.admin.iter().map(|admin| reached_at(admin.bind)).collect();
        let version = env!("CARGO_PKG_VERSION");
        let fleet = Fleet::open(store, own.vip.as_ref(), version, own.zone.clone(), addresses)?;
        let mut notes = Vec::new();
        let kept = usable(path, fleet.kept());
        let looked = fleet.look().await;
        let found = match kept {
            Ok(Some(found)) => {
                if let Err(error) = looked {
                    notes.push(format!(
                        "the store has not said whether statements are to wait (a pause of all); they do not: {error}"
                    ));
                }
                Some(found)
            }
            kept => match (usable(path, looked), kept.err()) {
                (Ok(Some((config, text))), _) => {
                    // Here it is known that it can be run.
                    if let Err(error) = fleet.keep(text.0, &text.1) {
                        notes.push(format!(
                            "the configuration cannot be kept in `state_dir`: {error}"
                        ));
                    }
                    Some((config, text))
                }
                (Ok(None), None) => None,
                (Err(of_store), None) => {
                    notes.push(format!(
                        "there is no configuration in `state_dir`, and the store has none to run: {of_store}"
                    ));
                    None
                }
                // To begin without would close the listeners that there were.
                (Ok(None), Some(why)) => {
                    anyhow::bail!("the configuration in `state_dir` cannot be run: {why}")
                }
                (Err(of_store), Some(why)) => anyhow::bail!(
                    "the configuration in `state_dir` cannot be run: {why}\nand the store has no other: {of_store}"
                ),
            },
        };
        let (mut config, text) = match found {
            Some((config, text)) => (config, Some(text)),
            None => (own, None),
        };
        let parts = match config.store.as_ref().is_some_and(|store| store.share_limits) {
            // Until the others have made room.
            true => u32::MAX,
            false => 1,
        };
        config.share(parts);
        let common = Self {
            fleet,
            text: Mutex::new(text),
            parts: AtomicU32::new(parts),
            notes,
        };
        Ok((config, Some(common)))
    }

    /// Says how it was begun.
    pub(crate) fn tell(&self) {
        self.notes.iter().for_each(|note| warn!("{note}"));
        match self.text() {
            Some((revision, _)) => info!(revision, "begins with the configuration of all gateways"),
            None => warn!("begins without listeners: there is no configuration of all gateways yet"),
        }
    }

    pub(crate) fn text(&self) -> Option<Text> {
        crate::lock(&self.text).clone()
    }

    pub(crate) fn parts(&self) -> u32 {
        self.parts.load(Ordering::Relaxed)
    }

    pub(crate) fn take_parts(&self, parts: u32) {
        self.parts.store(parts, Ordering::Relaxed);
    }

    pub(crate) fn take(&self, text: Text) {
        *crate::lock(&self.text) = Some(text);
    }
}

/// Where others reach what is bound there: every address of this machine is its name.
fn reached_at(bind: SocketAddr) -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match bind.ip().is_unspecified() && !name.trim().is_empty() {
        true => format!("{}:{}", name.trim(), bind.port()),
        false => bind.to_string(),
    }
}

fn usable(path: &Path, text: io::Result<Option<Text>>) -> Result<Option<(Config, Text)>, String> {
    let Some(text) = text.map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    let config = load(path, Some(&text)).map_err(|errors| errors.to_string())?;
    crate::check_files(&config).map_err(|error| format!("{error:#}"))?;
    Ok(Some((config, text)))
}

/// The configuration of this file, with what all have in common where there is a store.
pub(crate) fn load(path: &Path, common: Option<&Text>) -> Result<Config, ConfigErrors> {
    match common {
        Some((revision, text)) => Config::load_common(path, text, &format!("revision {revision}")),
        None => Config::load(path),
    }
}
