//! What there is to say of an option besides its value: its line of the reference, what a change of it takes,
//! and such a change.

use std::fmt;

/// What a changed option takes in a running gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reload {
    /// Takes effect at the reload, for everything.
    Live,
    /// Takes effect for sessions that begin after the reload.
    NewSessions,
    /// Takes effect at the next start. The reload says so and keeps the old value.
    Restart,
}

impl fmt::Display for Reload {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Live => "live",
            Self::NewSessions => "new sessions",
            Self::Restart => "restart",
        })
    }
}

/// One line of the reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionDoc {
    /// Where the option stands: `listener.tls.mode` is `mode` in `[listener.tls]`; `NAME` is a name of your
    /// choice.
    pub path: String,
    /// What a value looks like.
    pub kind: String,
    /// The default as it would be written, or in words. `None` where the option must be given.
    pub default: Option<String>,
    /// Smallest and largest value, where there are such.
    pub range: Option<String>,
    /// What a number counts; empty where the type says it.
    pub unit: &'static str,
    pub reload: Reload,
    pub doc: String,
}

/// One option that differs. Secrets show as `***`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The option, elements of lists by their name: `listener[127.0.0.1:6033].tls.mode`,
    /// `cluster.main.servers[db1]`.
    pub path: String,
    pub reload: Reload,
    /// `None` where it was added.
    pub old: Option<String>,
    /// `None` where it was removed.
    pub new: Option<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.old, &self.new) {
            (Some(old), Some(new)) if old == new => write!(out, "{}: changed", self.path)?,
            (Some(old), Some(new)) => write!(out, "{}: {old} -> {new}", self.path)?,
            (None, _) => write!(out, "{}: added", self.path)?,
            (Some(_), None) => write!(out, "{}: removed", self.path)?,
        }
        write!(out, " ({})", self.reload)
    }
}
