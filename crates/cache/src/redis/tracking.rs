//! `CLIENT TRACKING`, `CLIENT CACHING`: a client keeps values itself and is told when their rows change.
//!
//! The words of errors and the rules for options are those of `networking.c` and `tracking.c` of Redis 7.

use std::sync::Arc;

use resp_wire::{Args, Version, Writer, parse_integer};

use super::clients::ClientInfo;
use super::refusal::{Refusal, shown};
use super::session::Session;
use crate::tracking::{Mail, Prefixes, Tracker, Tracking};

/// Prefixes that one client may have, and the bytes of all of them.
const PREFIXES_MAX: usize = 64;
const PREFIX_BYTES_MAX: usize = 4096;

/// By messages of which connections are told on behalf of others, in RESP2.
pub(crate) const CHANNEL: &str = "__redis__:invalidate";

/// What a client that tracks has said.
#[derive(Debug)]
pub(crate) struct Tracked {
    pub(crate) tracker: Tracker,
    mode: Mode,
    no_loop: bool,
    /// The connection that is told in its place; 0 is itself.
    pub(crate) redirection: u32,
    /// `CLIENT CACHING` has been said for the next command, or for the one that is being executed.
    pub(crate) said: bool,
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

    /// It is told of keys that it has not read.
    pub(crate) fn is_broadcast(&self) -> bool {
        matches!(self.mode, Mode::Broadcast(_))
    }
}

/// Writes what a client has to be told: in RESP2 as messages of the channel to which it has subscribed.
pub(crate) fn tell(mail: &Mail, out: &mut Writer<'_>) {
    if is_nothing(mail) {
        return;
    }
    match out.version() {
        Version::V2 => {
            out.array(3);
            out.bulk(b"message");
            out.bulk(CHANNEL.as_bytes());
        }
        Version::V3 => {
            out.push(2);
            out.bulk(b"invalidate");
        }
    }
    match mail {
        Mail::All => out.null(),
        Mail::Keys(keys) => {
            out.array(keys.len());
            keys.iter().for_each(|key| out.bulk(key));
        }
    }
}

fn is_nothing(mail: &Mail) -> bool {
    matches!(mail, Mail::Keys(keys) if keys.is_empty())
}

/// Has another connection told in the place of this one. Where that one has gone, in RESP3 this one is told
/// so.
pub(crate) fn redirect(mail: &Mail, session: &Session, to: u32, out: &mut Writer<'_>) {
    match target(session, to).and_then(|client_info| client_info.letters()) {
        Some(letters) => letters.pass_on(mail),
        None if session.version == Version::V3 && !is_nothing(mail) => {
            out.push(2);
            out.bulk(b"tracking-redir-broken");
            out.integer(i64::from(to));
        }
        None => {}
    }
}

/// A connection that may be told in the place of this one: one of the same user.
fn target(session: &Session, id: u32) -> Option<Arc<ClientInfo>> {
    let client_info = session.listed.clients.find(id)?;
    (client_info.told().user == session.listed.told().user).then_some(client_info)
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
    let redirection = options.redirection(session)?;
    if session.version == Version::V2 && redirection == 0 {
        return Err(other(
            "CLIENT TRACKING ON takes RESP3 (HELLO 3), or REDIRECT: RESP2 has no messages that nobody asked for",
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
                redirection,
                said: false,
            })
        }
    };
    (tracked.mode, tracked.no_loop, tracked.redirection) = (mode, no_loop, redirection);
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
    redirection: Option<i64>,
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
                (b"redirect", Some(id)) => {
                    if options.redirection.is_some() {
                        return Err(other("A client can only redirect to a single other client"));
                    }
                    options.redirection = Some(parse_integer(id).ok_or(Refusal::NotAnInteger)?);
                    taken = 2;
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

    /// The connection that is to be told; 0 is the client itself. Redis takes one that has not subscribed,
    /// too, and drops what it would be told.
    fn redirection(&self, session: &Session) -> Result<u32, Refusal> {
        let id = self.redirection.unwrap_or(0);
        if id == 0 {
            return Ok(0);
        }
        let client_info = u32::try_from(id).ok().and_then(|id| target(session, id));
        let client_info =
            client_info.ok_or_else(|| other("The client ID you want redirect to does not exist"))?;
        if client_info.letters().is_none() {
            return Err(Refusal::Other(format!(
                "The client ID you want redirect to has not subscribed to {CHANNEL}"
            )));
        }
        Ok(client_info.id)
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
        let to = tracked.redirection;
        if to > 0 && target(session, to).is_none_or(|client_info| client_info.letters().is_none()) {
            flags.push("broken_redirect");
        }
    }
    out.map(3);
    out.bulk(b"flags");
    out.set(flags.len());
    flags.iter().for_each(|flag| out.bulk(flag.as_bytes()));
    out.bulk(b"redirect");
    out.integer(session.listed.redirection());
    out.bulk(b"prefixes");
    out.array(prefixes.len());
    prefixes.iter().for_each(|prefix| out.bulk(prefix));
}

fn other(text: &str) -> Refusal {
    Refusal::Other(text.to_owned())
}
