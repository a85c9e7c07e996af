//! Whose fault an error is.

/// The party that an error is to be blamed on. The same words appear in logs and metric labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The client broke the protocol, gave wrong credentials or asked for what is not allowed.
    Client,
    /// Forebay itself: a limit reached, a shutdown, a bug.
    Gateway,
    /// A server refused, failed or went away.
    Server,
}

impl Fault {
    /// All faults, in the order of their values.
    pub const ALL: [Fault; 3] = [Fault::Client, Fault::Gateway, Fault::Server];

    /// The word used in metric labels and logs.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Fault::Client => "client",
            Fault::Gateway => "gateway",
            Fault::Server => "server",
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.label())
    }
}
