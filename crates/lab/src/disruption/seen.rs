//! What clients saw: of each statement whether it was answered, with what, and how long after it was due.

use std::{collections::BTreeMap, fmt, time::Duration};

/// Statements that took longer have waited.
const WAITED: Duration = Duration::from_millis(100);
/// Of errors and wrong answers so many are kept in words.
const WORDS_MAX: usize = 8;

/// What a statement was part of when it failed: that decides whether its error was to be avoided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Doing {
    /// A read outside a transaction: it can be executed elsewhere.
    Read,
    /// A single write.
    Write,
    /// Anything inside a transaction, its beginning and its end included.
    Transaction,
    /// What a client says after an error in a transaction, to be sure that it has ended.
    Rollback,
    /// A new connection, after one was lost.
    Login,
}

impl fmt::Display for Doing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Transaction => "transaction",
            Self::Rollback => "rollback",
            Self::Login => "login",
        })
    }
}

/// What some clients saw. All times count from the beginning of the load.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Statements sent, those without an answer included.
    pub statements: u64,
    /// Those that were answered more than 100 ms after they were due.
    pub waited: u64,
    /// The longest time from when a statement was due to its answer, and when that one was due.
    pub longest: (Duration, Duration),
    /// By the code of the error, and by what was being done.
    pub errors: BTreeMap<(String, Doing), u64>,
    /// The most errors that one client had, those of a rollback behind another one not counted.
    pub most_of_a_client: u64,
    /// Answers that cannot be right.
    pub wrong: u64,
    /// The first errors and wrong answers, in words.
    pub words: Vec<String>,
    /// When statements were due, and when they were answered.
    answers: Vec<(Duration, Duration)>,
}

impl Seen {
    /// A statement was due then, and answered then, rightly or wrongly.
    pub(super) fn answer(&mut self, due: Duration, answered: Duration) {
        self.statements += 1;
        let waited = answered.saturating_sub(due);
        self.waited += u64::from(waited > WAITED);
        self.longest = self.longest.max((waited, due));
        self.answers.push((due, answered));
    }

    /// An answer was not what it must be.
    pub(super) fn wrong(&mut self, words: String) {
        self.wrong += 1;
        self.note(words);
    }

    /// A statement, or a login, failed.
    pub(super) fn error(&mut self, code: String, doing: Doing, words: String) {
        self.statements += u64::from(doing != Doing::Login);
        *self.errors.entry((code, doing)).or_default() += 1;
        self.most_of_a_client += u64::from(doing != Doing::Rollback);
        self.note(words);
    }

    fn note(&mut self, words: String) {
        if self.words.len() < WORDS_MAX {
            self.words.push(words);
        }
    }

    /// Takes up what another client saw.
    pub(super) fn add(&mut self, other: Self) {
        self.statements += other.statements;
        self.waited += other.waited;
        self.longest = self.longest.max(other.longest);
        for (error, count) in other.errors {
            *self.errors.entry(error).or_default() += count;
        }
        self.most_of_a_client = self.most_of_a_client.max(other.most_of_a_client);
        self.wrong += other.wrong;
        other.words.into_iter().for_each(|words| self.note(words));
        self.answers.extend(other.answers);
    }

    /// The longest time in which no client was answered.
    pub(super) fn longest_silence(&self) -> Duration {
        let mut answers: Vec<_> = self.answers.iter().map(|(_, answered)| *answered).collect();
        answers.sort_unstable();
        let gaps = answers.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.max().unwrap_or_default()
    }

    /// The longest time from when a statement was due to its answer, of those due at such a time.
    pub(super) fn longest_where(&self, is_due: impl Fn(Duration) -> bool) -> Duration {
        let some = self.answers.iter().filter(|(due, _)| is_due(*due));
        let waits = some.map(|(due, answered)| answered.saturating_sub(*due));
        waits.max().unwrap_or_default()
    }

    /// How many failed while this was being done.
    pub(super) fn failed(&self, while_doing: impl Fn(Doing) -> bool) -> u64 {
        let errors = self.errors.iter();
        errors
            .filter(|((_, doing), _)| while_doing(*doing))
            .map(|(_, count)| count)
            .sum()
    }

    /// `1290 write x 3, lost transaction x 1`
    pub(super) fn errors_in_words(&self) -> String {
        let errors = self.errors.iter();
        let each = errors.map(|((code, doing), count)| format!("{code} {doing} x {count}"));
        each.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_wait_counts_from_when_the_statement_was_due() {
        let mut seen = Seen::default();
        seen.answer(ms(0), ms(100));
        seen.answer(ms(10), ms(150));
        seen.answer(ms(20), ms(151));
        assert_eq!(
            (seen.statements, seen.waited, seen.longest),
            (3, 2, (ms(140), ms(10)))
        );
        assert_eq!(seen.longest_where(|due| due > ms(10)), ms(131));
        assert_eq!(seen.longest_where(|due| due > ms(20)), ms(0));
    }

    #[test]
    fn a_silence_is_one_of_all_clients() {
        let (mut one, mut other) = (Seen::default(), Seen::default());
        [10, 500].into_iter().for_each(|at| one.answer(ms(at), ms(at)));
        [200, 900].into_iter().for_each(|at| other.answer(ms(at), ms(at)));
        assert_eq!(one.longest_silence(), ms(490));
        one.add(other);
        assert_eq!(one.longest_silence(), ms(400));
        assert_eq!(Seen::default().longest_silence(), ms(0));
    }

    #[test]
    fn errors_are_told_by_code_and_by_what_was_done() {
        let (mut one, mut other) = (Seen::default(), Seen::default());
        one.error("1290".to_owned(), Doing::Write, "read only".to_owned());
        other.error("1290".to_owned(), Doing::Write, "read only".to_owned());
        other.error("lost".to_owned(), Doing::Read, "gone".to_owned());
        other.error("lost".to_owned(), Doing::Login, "gone".to_owned());
        other.error("lost".to_owned(), Doing::Rollback, "gone".to_owned());
        one.add(other);
        assert_eq!(
            one.errors_in_words(),
            "1290 write x 2, lost read x 1, lost rollback x 1, lost login x 1"
        );
        assert_eq!(one.failed(|doing| doing == Doing::Read), 1);
        assert_eq!((one.statements, one.most_of_a_client), (4, 3));
    }
}
