//! Whose fault an error is.

crate::labels! {
    /// The party that an error is to be blamed on. The same words appear in logs and metric labels.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Fault {
        /// The client broke the protocol, gave wrong credentials or asked for what is not allowed.
        Client = "client",
        /// Forebay itself: a limit reached, a shutdown, a bug.
        Gateway = "gateway",
        /// A server refused, failed or went away.
        Server = "server",
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.label())
    }
}
