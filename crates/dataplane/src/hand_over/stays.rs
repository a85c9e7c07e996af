//! Why a session stays with its process while the program is replaced.

telemetry::labels! {
    /// Why a session stays for now. The words are those of logs and metrics.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
    pub(crate) enum Stays {
        /// A command, a login or something that the gateway does for it is under way.
        #[default]
        Busy = "busy",
        /// A transaction is open.
        Transaction = "transaction",
        /// The link to the client is encrypted.
        Tls = "tls",
        /// The protocol is compressed, with the client or with its server.
        Compressed = "compressed",
        /// The session's connection to a server is encrypted.
        ServerTls = "server-tls",
        /// Bytes are on their way.
        Unfinished = "unfinished",
        /// The session's answer has no end (a replica's), or its listener has another protocol than MySQL's.
        Stream = "stream",
        /// The session is about to end, or to be moved to another server.
        Signalled = "signalled",
        /// More is to be said of the session than fits: prepared statements, mostly.
        Large = "large",
        /// Prepared statements of the session ask for figures of its last statement.
        Figures = "figures",
        /// The new process has no such listener, or one with another mode or cluster.
        Listener = "listener",
        /// The new process has no such account any more, or no more sessions are allowed for it.
        Account = "account",
        /// The new process does not know the server of the session's connection, cannot reach it, or is full.
        Server = "server",
        /// The session's connection was opened with other TLS or compression than the new process has.
        Terms = "terms",
        /// The session's number is another session's in the new process.
        Number = "number",
        /// Sessions that come before this one are on their way.
        Line = "line",
        /// The new process has given no answer in time, or could not take it and does not say why.
        Refused = "refused",
        /// The new process is of another version, which does not take sessions of this one, or has ended.
        Version = "version",
    }
}

impl Stays {
    /// Whether the reason lasts as long as the session.
    pub(crate) fn is_for_good(self) -> bool {
        matches!(self, Self::Tls | Self::Compressed)
    }

    /// The reason with this word; [`Refused`](Self::Refused) for a word that is not known.
    pub(crate) fn by_label(label: &[u8]) -> Self {
        let known = Self::ALL
            .into_iter()
            .find(|stays| stays.label().as_bytes() == label);
        known.unwrap_or(Self::Refused)
    }
}

/// The number of sessions that stay, by reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Staying([u64; Stays::ALL.len()]);

impl Staying {
    pub(crate) fn add(&mut self, why: Stays, count: u64) {
        self.0[why as usize] += count;
    }

    pub(crate) fn of(&self, why: Stays) -> u64 {
        self.0[why as usize]
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The counts as a line of words.
    pub(crate) fn in_words(&self) -> String {
        let some = Stays::ALL.into_iter().filter(|why| self.of(*why) > 0);
        let words: Vec<_> = some
            .map(|why| format!("{} {}", why.label(), self.of(why)))
            .collect();
        words.join(", ")
    }

    /// The counts that [`in_words`](Self::in_words) has written. Parts that are not understood are left out.
    pub(crate) fn from_words(words: &str) -> Self {
        let mut staying = Self::default();
        for part in words.split(", ") {
            if let Some((label, count)) = part.split_once(' ')
                && let Ok(count) = count.parse()
            {
                staying.add(Stays::by_label(label.as_bytes()), count);
            }
        }
        staying
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_words_of_their_own_and_come_back_from_them() {
        for (place, why) in Stays::ALL.into_iter().enumerate() {
            assert_eq!(
                (why as usize, Stays::by_label(why.label().as_bytes())),
                (place, why)
            );
        }
        assert_eq!(Stays::by_label(b"of another version"), Stays::Refused);
    }

    #[test]
    fn counts_come_back_from_their_line() {
        let mut staying = Staying::default();
        staying.add(Stays::Tls, 2);
        staying.add(Stays::Transaction, 1);
        assert_eq!(staying.in_words(), "transaction 1, tls 2");
        assert_eq!(Staying::from_words(&staying.in_words()), staying);
        assert_eq!(Staying::from_words(""), Staying::default());
    }
}
