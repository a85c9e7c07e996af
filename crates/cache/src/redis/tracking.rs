//! `CLIENT TRACKING`, `CLIENT CACHING`: a client keeps values itself and is told when their rows change.
//!
//! The words of errors and the rules for options are those of `networking.c` and `tracking.c` of Redis 7.

use std::sync::Arc;
use std::task::{Context, Poll};

use resp_wire::{Args, Version, Writer};

use super::refusal::{Refusal, shown};
use super::session::Session;
use crate::tracking::{Mail, Prefixes, Tracker, Tracking};

/// Prefixes that one client may have, and the bytes of all of them.
const PREFIXES_MAX: usize = 64;
const PREFIX_BYTES_MAX: usize = 4096;

/// What a client that tracks has said.
#[derive(Debug)]
pub(crate) struct Tracked {
    tracker: Tracker,
    mode: Mode,
    no_loop: bool,
    /// `CLIENT CACHING` has been said for the next command.
    said: bool,
}

/// What a client is told of.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mode {
    /// What it has read.
    Reads,
    /// Of that, what it says it keeps.
    OptIn,
    /// Of that, what it does not say it does not keep.
    OptOut,
    /// All keys that begin with one of these.
    Broadcast(Prefixes),
}

impl Mode {
    fn prefixes(&self) -> Option<Prefixes> {
        match self {
            Self::Broadcast(prefixes) => Some(Arc::clone(prefixes)),
            Self::Reads | Self::OptIn | Self::OptOut => None,
        }
    }
}

impl Tracked {
    /// Who has to know what the client is about to read.
    #[inline]
    pub(crate) fn reader(&self) -> Option<&Tracker> {
        let tracks = match self.mode {
            Mode::Reads => true,
            Mode::OptIn => self.said,
            Mode::OptOut => !self.said,
            Mode::Broadcast(_) => false,
        };
        tracks.then_some(&self.tracker)
    }

    /// The command is over for which `CLIENT CACHING` was said.
    pub(crate) fn end_command(&mut self) {
        self.said = false;
    }

    /// `CLIENT CACHING` has been said for the command that is being executed.
    pub(crate) fn has_said(&self) -> bool {
        self.said
    }

    /// It is told of keys that it has not read.
    pub(crate) fn is_broadcast(&self) -> bool {
        matches!(self.mode, Mode::Broadcast(_))
    }

    /// Ready when it has to be told something.
    pub(crate) fn poll_mail(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.tracker.poll_mail(cx)
    }

    /// Takes what it has to be told.
    pub(crate) fn take_mail(&self) -> Option<Mail> {
        self.tracker.take_mail()
    }
}

/// Writes what a client has to be told.
pub(crate) fn tell(mail: &Mail, out: &mut Writer<'_>) {
    if matches!(mail, Mail::Keys(keys) if keys.is_empty()) {
        return;
    }
    out.push(2);
    out.bulk(b"invalidate");
    match mail {
        Mail::All => out.null(),
        Mail::Keys(keys) => {
            out.array(keys.len());
            keys.iter().for_each(|key| out.bulk(key));
        }
    }
}

/// `CLIENT TRACKING ON|OFF [REDIRECT id] [PREFIX prefix …] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]`.
///
/// # Errors
/// What the client is told. Nothing has changed then.
pub(crate) fn tracking(
    session: &mut Session,
    tracking: &Arc<Tracking>,
    args: Args<'_>,
) -> Result<(), Refusal> {
    let is_on = match args.get(2).unwrap_or_default().to_ascii_lowercase().as_slice() {
        b"on" => true,
        b"off" => false,
        _ => return Err(Refusal::Syntax),
    };
    let options = Options::parse(args.from(3))?;
    if !is_on {
        session.track(None);
        return Ok(());
    }
    if session.version == Version::V2 {
        return Err(other(
            "CLIENT TRACKING ON takes RESP3 (HELLO 3): RESP2 has no messages that nobody asked for",
        ));
    }
    let before = session.tracking.as_deref().map(|before| &before.mode);
    if let Some(before) = before {
        options.may_follow(before)?;
    }
    let no_loop = options.no_loop;
    let mode = options.mode(before)?;
    let mut tracked = match session.tracking.take() {
        Some(before) if before.mode == mode || !before.is_broadcast() => before,
        before => {
            let tracker = tracking.begin(mode.prefixes());
            if before.is_some() {
                // What it had yet to be told went with the former tracker.
                tracker.tell_all();
            }
            Box::new(Tracked {
                tracker,
                mode: mode.clone(),
                no_loop,
                said: false,
            })
        }
    };
    (tracked.mode, tracked.no_loop) = (mode, no_loop);
    session.track(Some(tracked));
    Ok(())
}

#[derive(Default)]
struct Options {
    prefixes: Vec<Box<[u8]>>,
    broadcasts: bool,
    opt_in: bool,
    opt_out: bool,
    no_loop: bool,
}

impl Options {
    fn parse(mut rest: Args<'_>) -> Result<Self, Refusal> {
        let mut options = Self::default();
        while let Some(option) = rest.get(0) {
            let mut taken = 1;
            match (option.to_ascii_lowercase().as_slice(), rest.get(1)) {
                (b"bcast", _) => options.broadcasts = true,
                (b"optin", _) => options.opt_in = true,
                (b"optout", _) => options.opt_out = true,
                (b"noloop", _) => options.no_loop = true,
                (b"prefix", Some(prefix)) => {
                    options.prefixes.push(prefix.into());
                    taken = 2;
                }
                (b"redirect", Some(_)) => {
                    return Err(other(
                        "REDIRECT is not served: in RESP3 (HELLO 3) a connection is told by itself",
                    ));
                }
                _ => return Err(Refusal::Syntax),
            }
            rest = rest.from(taken);
        }
        options.check()?;
        Ok(options)
    }

    fn check(&self) -> Result<(), Refusal> {
        if !self.prefixes.is_empty() && !self.broadcasts {
            return Err(other("PREFIX option requires BCAST mode to be enabled"));
        }
        if self.broadcasts && (self.opt_in || self.opt_out) {
            return Err(other("OPTIN and OPTOUT are not compatible with BCAST"));
        }
        if self.opt_in && self.opt_out {
            return Err(other("You can't specify both OPTIN mode and OPTOUT mode"));
        }
        Ok(())
    }

    /// A client that tracks in a mode may ask for this.
    fn may_follow(&self, mode: &Mode) -> Result<(), Refusal> {
        let what = match mode {
            _ if matches!(mode, Mode::Broadcast(_)) != self.broadcasts => "BCAST mode on/off",
            Mode::OptIn if self.opt_out => "OPTIN/OPTOUT mode",
            Mode::OptOut if self.opt_in => "OPTIN/OPTOUT mode",
            _ => return Ok(()),
        };
        Err(Refusal::Other(format!(
            "You can't switch {what} before disabling tracking for this client, and then re-enabling it with a different mode."
        )))
    }

    /// The mode from now on. Prefixes are added to those that there are.
    fn mode(self, before: Option<&Mode>) -> Result<Mode, Refusal> {
        let mut all = match before {
            Some(Mode::Broadcast(prefixes)) => prefixes.to_vec(),
            _ if self.broadcasts => Vec::new(),
            _ if self.opt_in => return Ok(Mode::OptIn),
            _ if self.opt_out => return Ok(Mode::OptOut),
            _ => return Ok(Mode::Reads),
        };
        let mut new = self.prefixes;
        if new.is_empty() && all.is_empty() {
            new.push(Box::default());
        }
        for prefix in new {
            let overlaps = |known: &[u8]| known.starts_with(&prefix) || prefix.starts_with(known);
            if all.contains(&prefix) {
                continue;
            }
            if let Some(known) = all.iter().find(|known| overlaps(known)) {
                return Err(Refusal::Other(format!(
                    "Prefix '{}' overlaps with an existing prefix '{}'. Prefixes for a single client must not overlap.",
                    shown(&prefix),
                    shown(known)
                )));
            }
            all.push(prefix);
        }
        let bytes: usize = all.iter().map(|prefix| prefix.len()).sum();
        if all.len() > PREFIXES_MAX || bytes > PREFIX_BYTES_MAX {
            return Err(Refusal::Other(format!(
                "A client may have {PREFIXES_MAX} prefixes of {PREFIX_BYTES_MAX} bytes together"
            )));
        }
        Ok(Mode::Broadcast(all.into()))
    }
}

/// `CLIENT CACHING YES|NO`.
///
/// # Errors
/// What the client is told.
pub(crate) fn caching(session: &mut Session, args: Args<'_>) -> Result<(), Refusal> {
    let tracked = session.tracking.as_mut();
    let Some(tracked) = tracked.filter(|tracked| matches!(tracked.mode, Mode::OptIn | Mode::OptOut)) else {
        return Err(other(
            "CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ));
    };
    match (
        args.get(2).unwrap_or_default().to_ascii_lowercase().as_slice(),
        &tracked.mode,
    ) {
        (b"yes", Mode::OptIn) | (b"no", Mode::OptOut) => tracked.said = true,
        (b"yes", _) => {
            return Err(other(
                "CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            ));
        }
        (b"no", _) => {
            return Err(other(
                "CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            ));
        }
        _ => return Err(Refusal::Syntax),
    }
    Ok(())
}

/// `CLIENT TRACKINGINFO`.
pub(crate) fn tracking_info(session: &Session, out: &mut Writer<'_>) {
    let tracked = session.tracking.as_deref();
    let mut flags = vec![if tracked.is_some() { "on" } else { "off" }];
    let mut prefixes: &[Box<[u8]>] = &[];
    if let Some(tracked) = tracked {
        match &tracked.mode {
            Mode::Reads => {}
            Mode::OptIn => flags.push("optin"),
            Mode::OptOut => flags.push("optout"),
            Mode::Broadcast(known) => {
                flags.push("bcast");
                prefixes = known;
            }
        }
        if tracked.said {
            flags.push(if tracked.mode == Mode::OptIn {
                "caching-yes"
            } else {
                "caching-no"
            });
        }
        if tracked.no_loop {
            flags.push("noloop");
        }
    }
    out.map(3);
    out.bulk(b"flags");
    out.set(flags.len());
    flags.iter().for_each(|flag| out.bulk(flag.as_bytes()));
    out.bulk(b"redirect");
    out.integer(redirection(session));
    out.bulk(b"prefixes");
    out.array(prefixes.len());
    prefixes.iter().for_each(|prefix| out.bulk(prefix));
}

/// `CLIENT GETREDIR`: 0 is the connection itself, -1 that it does not track.
pub(crate) fn redirection(session: &Session) -> i64 {
    if session.tracking.is_some() { 0 } else { -1 }
}

fn other(text: &str) -> Refusal {
    Refusal::Other(text.to_owned())
}
