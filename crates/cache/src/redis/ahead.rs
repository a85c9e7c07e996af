//! Requests of a pipeline behind one for which the server has to be asked: as long as they need rows of the
//! server, too, they are asked for with the same question. The first that needs none ends that: behind what
//! memory shows then, what the server said before could be older.
//!
//! What is asked for beforehand is bounded in rows and in bytes. How long rows are shows only when they come:
//! where they are too long together, those of the request that cannot wait are asked for alone, and the
//! worker's next questions are for fewer.

use std::cell::Cell;
use std::collections::VecDeque;

use resp_wire::{Args, ParseStep, Parser};

use super::Service;
use super::execute::Execution;
use super::rows::{Stop, Wanted};
use crate::reader::{self, NotFetched};

/// Rows that one question is for, if it is for several requests.
const ROWS_MAX: usize = 200;

/// Bytes of memory that they may take.
const BYTES_MAX: usize = 1 << 20;

/// Rows that the server gave, by request.
pub(crate) type Fetched = VecDeque<Vec<Option<Vec<u8>>>>;

/// How many rows a worker asks for, if it is for several requests.
#[derive(Debug)]
pub(crate) struct Pace(Cell<usize>);

impl Default for Pace {
    fn default() -> Self {
        Self(Cell::new(ROWS_MAX))
    }
}

impl Pace {
    /// Rows came that have so many bytes together.
    fn note(&self, bytes: usize) {
        if bytes <= BYTES_MAX / 4 {
            self.0.set(ROWS_MAX.min(self.0.get() * 2));
        }
    }

    /// None came: most likely they are too long.
    fn slow_down(&self) {
        self.0.set(1.max(self.0.get() / 4));
    }
}

/// What the server is asked for.
#[derive(Debug)]
pub(crate) struct AheadQuestion {
    wanted: Vec<Wanted>,
    /// How many of them each request wants. The first is the one that cannot wait.
    counts: Vec<usize>,
}

impl AheadQuestion {
    /// That of a request, and of those behind it in `bytes`.
    pub(crate) fn new(execution: &mut Execution<'_>, args: Args<'_>, bytes: &[u8]) -> Result<Self, Stop> {
        let wanted = execution.wanted(args)?;
        let counts = vec![wanted.len()];
        let mut question = Self { wanted, counts };
        question.look(execution, bytes);
        Ok(question)
    }

    /// Adds what the requests in `bytes` want.
    fn look(&mut self, execution: &mut Execution<'_>, mut bytes: &[u8]) {
        let rows_max = execution.service.pace.0.get();
        let mut parser = Parser::default();
        while self.wanted.len() < rows_max {
            let Ok(ParseStep::Request(n)) = parser.parse(bytes, execution.session.limits()) else {
                break;
            };
            let args = parser.args(bytes);
            if !execution.asks(args) {
                break;
            }
            let Ok(wanted) = execution.wanted(args) else {
                break;
            };
            if self.wanted.len() + wanted.len() > rows_max {
                break;
            }
            self.counts.push(wanted.len());
            self.wanted.extend(wanted);
            bytes = &bytes[n..];
        }
    }

    /// Asks the server. The rows are there for the first request, and perhaps for those behind it.
    ///
    /// # Errors
    /// Why there are none for the first.
    pub(crate) async fn ask(mut self, service: &Service) -> Result<Fetched, NotFetched> {
        let is_alone = self.counts.len() == 1;
        let bytes_max = if is_alone { reader::BYTES_MAX } else { BYTES_MAX };
        let mut fetched = service.fetch(&self.wanted, bytes_max).await;
        if fetched.is_err() && !is_alone {
            // It may be about a row of those behind.
            service.pace.slow_down();
            self.counts.truncate(1);
            self.wanted.truncate(self.counts[0]);
            fetched = service.fetch(&self.wanted, reader::BYTES_MAX).await;
        }
        let fetched = fetched?;
        service.pace.note(fetched.iter().flatten().map(Vec::len).sum());
        let mut fetched = fetched.into_iter();
        let of_each = self
            .counts
            .iter()
            .map(|&count| fetched.by_ref().take(count).collect());
        Ok(of_each.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_rows_are_asked_for_in_smaller_questions() {
        let pace = Pace::default();
        pace.slow_down();
        assert_eq!(pace.0.get(), ROWS_MAX / 4);
        pace.note(BYTES_MAX / 4 + 1);
        assert_eq!(pace.0.get(), ROWS_MAX / 4, "more would be too long again");
        (0..10).for_each(|_| pace.slow_down());
        assert_eq!(pace.0.get(), 1);
        (0..10).for_each(|_| pace.note(BYTES_MAX / 4));
        assert_eq!(pace.0.get(), ROWS_MAX);
    }
}
