//! Why a session ended.

macro_rules! end_reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $label:literal,)+) => {
        /// Why a session ended. Every session has exactly one; it is in its log line and in
        /// `forebay_sessions_ended_total`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum EndReason { $($(#[doc = $doc])+ $name,)+ }

        impl EndReason {
            /// All reasons, in the order of their values.
            pub const ALL: &[EndReason] = &[$(EndReason::$name,)+];
            /// Number of reasons.
            pub const COUNT: usize = Self::ALL.len();

            /// The word used in metric labels and logs.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(EndReason::$name => $label,)+ }
            }

            /// What the reason means, for the reference documentation.
            #[must_use]
            pub const fn doc(self) -> &'static str {
                match self { $(EndReason::$name => concat!($($doc,)+).trim_ascii(),)+ }
            }
        }
    };
}

end_reasons! {
    /// The client said goodbye (COM_QUIT).
    ClientQuit = "client_quit",
    /// The client's connection broke or closed without a goodbye; in mode `tcp` every end that is nobody's
    /// fault.
    ClientGone = "client_gone",
    /// The client sent no command for `client_idle_timeout`, or in mode `split` for its `wait_timeout`.
    ClientIdle = "client_idle",
    /// The client began a command and did not go on, or did not take an answer, for `stall_timeout`.
    ClientStalled = "client_stalled",
    /// The server refused the login.
    LoginFailed = "login_failed",
    /// The login took longer than `login_timeout`.
    LoginTimeout = "login_timeout",
    /// The server's connection broke or closed.
    ServerGone = "server_gone",
    /// The health checks found the server down.
    ServerDown = "server_down",
    /// A response stopped coming for `server_idle_timeout`.
    ServerTimeout = "server_timeout",
    /// No server of the cluster could be connected to, or the one chosen did not get as far as a login
    /// (greeting, TLS).
    NoServer = "no_server",
    /// No server had a free place within `queue_timeout`.
    QueueTimeout = "queue_timeout",
    /// No server had a free place and `queue_max` sessions were waiting already.
    QueueFull = "queue_full",
    /// `max_connections` of the process or of the listener was reached.
    TooManySessions = "too_many_sessions",
    /// The gateway was short of memory (`memory_max`).
    ShortOfMemory = "short_of_memory",
    /// Bytes that are not the MySQL protocol, from either side.
    Protocol = "protocol",
    /// Another session's `KILL` ended it.
    Killed = "killed",
    /// Its server was removed from the configuration.
    Drained = "drained",
    /// Forebay is shutting down.
    Shutdown = "shutdown",
    /// It goes on in the process that has taken over (`forebay ctl upgrade`); its client does not notice.
    HandedOver = "handed_over",
    /// A fault of the gateway itself, which has said on standard error where: please report it.
    Panic = "panic",
    /// TLS with the client could not be agreed on, or the listener requires it and the client did not ask for
    /// it.
    TlsFailed = "tls_failed",
    /// A peer named in `accept_proxy_from` sent no PROXY header, or a malformed one; or one came from a peer
    /// that is not named there.
    ProxyHeader = "proxy_header",
}

impl std::fmt::Display for EndReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_snake_case_and_unique() {
        let mut labels: Vec<_> = EndReason::ALL.iter().map(|reason| reason.label()).collect();
        assert!(
            labels
                .iter()
                .all(|label| label.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
        );
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), EndReason::COUNT);
    }

    #[test]
    fn a_reason_is_its_place_in_the_list() {
        for (index, reason) in EndReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
            assert!(!reason.doc().is_empty());
        }
    }
}
